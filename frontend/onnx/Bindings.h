//===- Bindings.h - Numbers for the symbolic dims of a model ---------------===//

#ifndef TBC_FRONTEND_ONNX_BINDINGS_H
#define TBC_FRONTEND_ONNX_BINDINGS_H

#include "frontend/onnx/ImportedModel.h"
#include "frontend/onnx/Model.h"

#include <optional>

namespace tbc::frontend {

/// A graph input with all dims bound to numbers.
struct BoundInput {
  std::string name;
  DType dtype = DType::F32;
  /// At the batch size of the result; see `atBatch`.
  Shape shape;
  /// The dims of the batch.
  std::vector<bool> isBatch;
  /// The dim of the tokens of a sample, or -1.
  int64_t sequenceDim = -1;
  /// Held at 0, 1, 2 ... along the last dim.
  bool isPositions = false;
  /// Held constant at this number, or at these elements.
  std::optional<double> constant;
  std::optional<Known> elements;

  bool isHeld() const { return isPositions || constant || elements; }

  Shape atBatch(int64_t batch) const;
  int64_t batchDim() const;
};

struct Bindings {
  int64_t batch = 0, seq = 0;
  /// The size of the batch dim in the file; 0 if it is a symbol.
  int64_t exportedBatch = 0;
  std::vector<BoundInput> inputs;
  std::vector<std::string> warnings;
  /// The end of messages about nodes: the sequence length if neither file nor options give it.
  std::string lengthHint;
};

/// Binds the inputs' dims. The batch is the symbol of the first dim of the first input with one.
/// The sequence is the symbol of dim 1 of a list of integers, or one that contains "seq". A dim "a
/// + b" is the sum. A dim with "past", of an input with "past", is 0: training starts without a
/// cache. ImportError for an unbound symbol, and for options with an unknown symbol or input.
/// Example: input_ids ["batch", "seq"] becomes [2, 1024] with --seq 1024.
Bindings bindInputs(const Model &model, const ImportOptions &options);

/// Returns two primes that divide no size of the model: see Emitter.
std::pair<int64_t, int64_t> chooseMarkers(const Model &model, const Bindings &bindings);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_BINDINGS_H
