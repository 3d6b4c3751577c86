//===- Legal.h - Whether a configuration can run with a model ---------------===//

#ifndef TBC_TOOLS_JUDGE_LEGAL_H
#define TBC_TOOLS_JUDGE_LEGAL_H

#include "planner/pins/Pins.h"
#include "tools/judge/Setup.h"

namespace tbc::judge {

/// The sizes of a model that a configuration must divide; 0: the model has none.
struct ModelSizes {
  int64_t layers = 0, heads = 0, kvHeads = 0, vocabulary = 0, hidden = 0, experts = 0;
  /// Module path of the numbered layers, such as "transformer.h"; empty if several lists of modules
  /// are numbered, as in an encoder with a decoder.
  std::string layerPath;
};

/// Returns the sizes found in the graph. `paths`: module paths of the parameters.
ModelSizes sizesOf(const reshard::Graph &graph, const std::vector<std::string> &paths);

/// Completes the data axes and batch sizes for `gpus` devices, and adds what contradicts them or
/// the model to the problems.
void checkSetup(Setup &setup, const ModelSizes &model, int64_t gpus);

/// Returns the pins of a setup without problems. Notes in `setup` the cuts of stages that have no
/// pin.
planner::Pins pinsOf(Setup &setup, const ModelSizes &model);

/// A kind of configuration.
struct Kind {
  const char *word; // of --from
  Result<Setup> (*read)(const std::string &text, const std::string &source);
};
const std::vector<Kind> &kinds();
/// Returns the kind of a text by its form and, for a file, its name.
const Kind &recognise(const std::string &text, const std::string &source);

} // namespace tbc::judge

#endif // TBC_TOOLS_JUDGE_LEGAL_H
