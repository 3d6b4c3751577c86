//===- Experts.h - Common patterns of all forms of a mixture of experts ---===//

#ifndef TBC_PASSES_RAISE_EXPERTS_H
#define TBC_PASSES_RAISE_EXPERTS_H

#include "passes/raise/Match.h"

#include "mlir/IR/PatternMatch.h"

#include <optional>
#include <string>

namespace tbc::raise {

/// The part between the two layers of an expert: act(gate), or act(gate) * up. If both are halves
/// of one value along one dim, gate in front, `gate` is that value.
struct Inner {
  std::string activation;
  mlir::Value gate, up;
  std::optional<int64_t> halvesDim;
  bool isGated() const { return up || halvesDim; }
};
std::optional<Inner> matchInner(mlir::Value value);

/// A tensor with labelled dims.
struct Labelled {
  mlir::Value value;
  llvm::SmallVector<int64_t> labels;

  bool has(int64_t label) const { return llvm::is_contained(labels, label); }
  int64_t dimOf(int64_t label) const { return llvm::find(labels, label) - labels.begin(); }
  int64_t sizeOf(int64_t label) const { return tensorType(value).getDimSize(dimOf(label)); }
  /// Looks through broadcasts and casts between floats, and removes the labels of broadcast dims.
  Labelled stripped() const;
  /// Returns true if the labels are exactly `expected`, in any order.
  bool isOf(llvm::ArrayRef<int64_t> expected) const;
};

/// A matmul over one label, plus a bias if there is one.
struct Layer {
  Labelled left, right;
  /// Label of the sum; `bias` lacks it.
  std::optional<Labelled> bias;
};
/// Matches `value` as a layer. Its dims are labelled, and the summed dim gets the label `summed`.
std::optional<Layer> matchLayer(const Labelled &value, int64_t summed);

/// Strips casts between float types. Exporters of mixed precision put them between any two ops: a
/// router in f32 in a bf16 model casts its operand, and its result or what it is multiplied with.
mlir::Value stripFloatCasts(mlir::Value value);
/// Looks through all that Spread::strip does, and through casts between float types.
Spread stripSpread(Spread spread);

/// Returns true if `value` is one-hot along dim `dim`: 1 (or true) at the index equal to the
/// position, and 0 elsewhere; one element of that dim at most.
bool isOneHotAlong(mlir::Value value, int64_t dim);

/// Returns the number of elements of each row of the matrix `weights`, along its dim `dim`, that
/// may differ from 0; nullopt if the ops that make it do not fix that. Example: 2 for weights
/// scattered from a top-2.
std::optional<int64_t> chosenPerRow(mlir::Value weights, int64_t dim);

/// Labels of the dims in a mixture of experts: token, expert, inner dim, width in and out. Tokens
/// that have several dims, such as [batch, sequence], use kToken and those from kNextToken on.
enum ExpertLabel : int64_t { kToken, kExpert, kInner, kIn, kOut, kNextToken };

/// Returns the labels of tokens of `count` dims, then `last`. Example: 2 dims and kIn give {kToken,
/// kNextToken, kIn}.
llvm::SmallVector<int64_t> tokenLabels(unsigned count, llvm::ArrayRef<int64_t> last = {});

/// The operands of routed_experts with their dims in any order, and biases. Element types may
/// differ.
struct ExpertLayers {
  /// The number of dims of the tokens.
  unsigned tokenDims = 1;
  /// [tokens, in]
  Labelled tokens;
  /// [tokens, expert]
  Labelled weights;
  /// [expert, inner, in]: the gate, or gate and up in one; and up alone.
  Labelled gate;
  std::optional<Labelled> up;
  /// [expert, out, inner]
  Labelled out;
  /// [expert, inner], as `gate` and `up`; and [expert, out].
  std::optional<Labelled> gateBias, upBias, outBias;
  std::string activation;
  bool isGated = false;
  int64_t top = 0;
};

/// Builds y[tokens, out] in the element type of `root`. The op computes in the element type of the
/// experts' weights `out`; other operands are cast to it. Example: f32 weights of a router are cast
/// to bf16 beside experts in bf16. A bias of the first layer becomes one more element of each
/// token, equal to 1. A bias of the second layer is added as weights times biases.
mlir::Value buildRoutedExperts(mlir::PatternRewriter &rewriter, mlir::Operation *root,
                               const ExpertLayers &layers);

/// Inserts a dim of size 1 in front.
mlir::Value withFrontDim(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value);

} // namespace tbc::raise

#endif // TBC_PASSES_RAISE_EXPERTS_H
