//===- CheckCommand.h - Report on the contents of a model ---------------------===//

#ifndef TBC_TOOLS_TBC_CHECKCOMMAND_H
#define TBC_TOOLS_TBC_CHECKCOMMAND_H

#include "frontend/onnx/Import.h"
#include "runtime/abi/Status.h"
#include "tools/driver/TrainingStep.h"

#include <iosfwd>
#include <map>
#include <string>
#include <vector>

namespace tbc::cli {

/// One tensor of a model: its name, and its dims in factors ("768 x (12*64 + 12*64)").
struct CheckedTensor {
  std::string name, displayName, dtype, factors;
  kernels::Shape shape;
  /// Parameters: matched by --freeze. Constants: the reason why it is constant.
  bool isFrozen = false;
  std::string reason;
};

/// Modules of one kind. Example: "model.layers" x 32, each with these parameters.
struct RepeatedBlock {
  std::string name;
  int64_t count = 0, parameters = 0;
};

/// Returns the longest runs "NAME.0", "NAME.1" ... of modules whose parameters agree in names,
/// shapes and types. Blocks nested in repeated blocks are not listed.
std::vector<RepeatedBlock> findRepeatedBlocks(const std::vector<CheckedTensor> &parameters);

/// The report of `tbc check` on a model.
struct CheckReport {
  std::string model, hash;
  int64_t seq = 0;
  std::vector<CheckedTensor> inputs, outputs, parameters, states;
  /// Untrained float tensors, including those among `states`.
  std::vector<CheckedTensor> constants;
  /// Elements of parameters and state; bytes of the parameters as stored.
  int64_t parameterElements = 0, stateElements = 0, parameterBytes = 0;
  /// Whether the data of every weight is present.
  bool weightsPresent = true;
  /// 2mnk over matmul, convolution and attention, forward, per sample at `seq`.
  double flopsPerSample = 0;
  /// Op counts by mnemonic, after raising; `composites` is the subset of composite ops.
  std::map<std::string, int64_t> ops, composites;
  std::vector<RepeatedBlock> blocks;
  std::vector<std::string> notes, warnings;
};

/// Imports and examines the model. Errors: those of the import, and Usage for names absent from the
/// model.
Result<CheckReport> checkModel(const driver::StepOptions &options);
/// The same with default settings.
Result<CheckReport> checkModel(const std::string &path, const frontend::ImportOptions &options);

/// Tensors whose names differ only in numbers, like those of repeated blocks, in order of first
/// occurrence. Example: "h.*.ln.weight" for "h.0.ln.weight" to "h.11.ln.weight".
struct FoldedTensors {
  std::string name;
  int64_t count = 0;
  CheckedTensor first;
};
std::vector<FoldedTensors> foldTensors(const std::vector<CheckedTensor> &tensors);

void printReport(const CheckReport &report, std::ostream &out);
/// The same as JSON, {"format": "tbc-check", "version": 1, ..}, as in
/// docs/schemas/check.schema.json.
std::string toJson(const CheckReport &report);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_CHECKCOMMAND_H
