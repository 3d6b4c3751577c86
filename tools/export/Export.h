//===- Export.h - Plans as configurations of other frameworks --------------===//
//
// Each target is a function from a plan to a file, in a file pair of its own. A part of the plan
// that a target cannot express is an error or a named warning.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TOOLS_EXPORT_EXPORT_H
#define TBC_TOOLS_EXPORT_EXPORT_H

#include "tools/export/PlanFacts.h"

#include <string>
#include <vector>

namespace tbc::exporter {

/// A difference between the plan and what the target does with it.
struct Warning {
  std::string name; // for example "RecomputeForm"
  std::string text;
};

/// The file of a target.
struct Exported {
  std::string text;
  std::vector<Warning> warnings;
};

/// Collects what a target cannot express, so that one run names all of it.
class Limits {
public:
  explicit Limits(std::string target) : target(std::move(target)) {}
  /// The plan has `what`, which the target has no form for; `instead` is a flag of tbc plan or
  /// another remedy.
  void refuse(const std::string &what, const std::string &instead);
  void warn(const std::string &name, const std::string &text);
  /// Errors: Usage, with all refused parts.
  Status status() const;
  const std::vector<Warning> &warnings() const { return named; }

  /// Refuses the matmuls in fp8 of a plan that has them.
  void refuseFp8(const planner::Job &job);

private:
  std::string target;
  std::vector<std::string> refused;
  std::vector<Warning> named;
};

/// How a launcher starts one process of the target.
enum class Program {
  None,             ///< the output is not run
  PythonScript,     ///< the output itself, by Python
  DeepSpeedConfig,  ///< the user's train.py with --deepspeed_config
  AccelerateConfig, ///< the user's train.py, by accelerate launch
  TrainAsModule,    ///< the user's train.py, which imports the output
  Jax,              ///< the same, without torch's launcher
  Megatron,         ///< pretrain_gpt.py with the output's flags
  Torchtitan        ///< torchtitan.train with the output as its module
};

/// A framework that runs plans, or a form to look at.
struct Target {
  const char *word;    // of --to
  const char *package; // that accepts it, for docs and messages
  Program program;
  const char *comment; // how a line of comment begins; empty: the format has none
  Result<Exported> (*write)(const PlanFacts &facts);
};

/// Returns lines of comment that say which plan a file is and what differs in it.
std::string header(const PlanFacts &facts, const std::vector<Warning> &warnings,
                   const std::string &comment);

/// Returns a Python literal. Example: "it's" gives "'it\\'s'" in single quotes.
std::string pythonText(const std::string &text);

} // namespace tbc::exporter

#endif // TBC_TOOLS_EXPORT_EXPORT_H
