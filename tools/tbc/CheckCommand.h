//===- CheckCommand.h - What is in a model ------------------------------------===//

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

/// One tensor of a model: its name, and what its dims are made of ("768 x (12*64 + 12*64)").
struct CheckedTensor {
  std::string name, displayName, dtype, factors;
  kernels::Shape shape;
  /// Of parameters: --freeze names it. Of constants: why it is one.
  bool isFrozen = false;
  std::string reason;
};

/// Modules of one kind: "model.layers" x 32, each with these parameters.
struct RepeatedBlock {
  std::string name;
  int64_t count = 0, parameters = 0;
};

/// The longest runs "NAME.0", "NAME.1" ... of modules whose parameters agree in names, shapes and
/// types; blocks inside of repeated blocks are not listed.
std::vector<RepeatedBlock> findRepeatedBlocks(const std::vector<CheckedTensor> &parameters);

/// What `tbc check` says about a model.
struct CheckReport {
  std::string model, hash;
  int64_t seq = 0;
  std::vector<CheckedTensor> inputs, outputs, parameters, states;
  /// Float tensors that are held as they are, those among `states` too.
  std::vector<CheckedTensor> constants;
  /// Elements of the parameters and of the state; bytes of the parameters as stored.
  int64_t parameterElements = 0, stateElements = 0, parameterBytes = 0;
  /// Whether every weight's data is there.
  bool weightsPresent = true;
  /// 2mnk over matmul, convolution and attention, forward, per sample at `seq`.
  double flopsPerSample = 0;
  /// Ops by mnemonic, after raising; and those of them that are composites.
  std::map<std::string, int64_t> ops, composites;
  std::vector<RepeatedBlock> blocks;
  std::vector<std::string> notes, warnings;
};

/// Imports the model and looks at it. Errors: those of the import, and Usage for names that the
/// model does not have.
Result<CheckReport> checkModel(const driver::StepOptions &options);
/// The same with everything else by default.
Result<CheckReport> checkModel(const std::string &path, const frontend::ImportOptions &options);

/// Tensors whose names differ in numbers alone, as those of repeated blocks do: "h.*.ln.weight" for
/// "h.0.ln.weight" to "h.11.ln.weight", in the order of the first of each.
struct FoldedTensors {
  std::string name;
  int64_t count = 0;
  CheckedTensor first;
};
std::vector<FoldedTensors> foldTensors(const std::vector<CheckedTensor> &tensors);

void printReport(const CheckReport &report, std::ostream &out);
/// The same as JSON, schema "tbc.check" version 1.
std::string toJson(const CheckReport &report);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_CHECKCOMMAND_H
