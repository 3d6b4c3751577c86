//===- ModelOptions.h - Flags that describe the model --------------------------===//

#ifndef TBC_TOOLS_TBC_MODELOPTIONS_H
#define TBC_TOOLS_TBC_MODELOPTIONS_H

#include "tools/driver/TrainingStep.h"

#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
} // namespace CLI

namespace tbc::cli {

/// The values of --seq, --dim, --fix, --tie, --constant, --parameter, --external-data-root,
/// --detach, --loss, --optimizer and its numbers, --precision, --loss-scale, --freeze, --no-decay,
/// --no-muon.
struct ModelOptions {
  std::string model;
  int64_t seq = -1;
  std::vector<std::string> dims;
  std::vector<std::string> fixed, ties;
  std::vector<std::string> constants, parameters, detached;
  std::string externalDataRoot;
  std::string loss = "cross-entropy";
  std::string optimizer = "adamw";
  std::string precision; // empty: the default
  std::string lossScale; // dynamic, none or a number
  std::vector<std::string> freeze;
  std::vector<std::string> noDecay, noMuon;
  std::map<std::string, double> settings;
};

/// Adds the flags to a subcommand; the model is a positional argument.
void addModelOptions(CLI::App &command, ModelOptions &options);

/// Converts the flags. Errors: Usage, naming the flag.
Result<driver::StepOptions> toStepOptions(const ModelOptions &options);

/// Returns the bindings of the model that a plan records.
std::map<std::string, int64_t> toBindings(const driver::StepOptions &options);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_MODELOPTIONS_H
