//===- ExpertLists.h - Tokens by expert, on GPUs ---------------------------===//
//
// Internal to the kernels of routed experts.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_CODEGEN_CUDA_OPS_EXPERTLISTS_H
#define TBC_CODEGEN_CUDA_OPS_EXPERTLISTS_H

#include "codegen/cuda/ThreadKernel.h"
#include "ir/ExpertWorkspace.h"

namespace tbc::cuda {

/// The sizes of a layer of experts, and its operands from index `first` on.
struct ExpertLayer : ExpertSizes {
  ExpertLayer(const OpCall &call, int first);

  int x, weights, in, out; // operand indices
  std::string activation;
  kernels::DType dtype;
};

/// An array in the workspace, from element `begin` of a result of `withWorkspace` on.
struct WorkspaceArray {
  int result = 0;
  int64_t begin = 0;

  mlir::Value load(const ThreadKernel &k, mlir::Value index) const {
    return k.loadResult(result, k.e.add(index, k.integer(begin)));
  }
  void store(const ThreadKernel &k, mlir::Value index, mlir::Value value) const {
    k.store(result, k.e.add(index, k.integer(begin)), value);
  }
};

/// The launches that list the tokens of each expert, and what these and later launches share.
///
/// Example: tokens 0, 2 of expert 0 and 1, 2 of expert 1 are rows 0, 1 and 128, 129. `tokens` of
/// rows 2 to 127 is t, and `rows` of token 2 is 1, 129.
class ExpertLists {
public:
  ExpertLists(mlir::MLIRContext &context, const OpCall &call, bool isGradient, Form form);

protected:
  using Value = mlir::Value;

  void add(mlir::FailureOr<region::Kernel> launch);
  /// Joins the launches; fails if one of them failed.
  mlir::FailureOr<region::Kernel> finish();
  ThreadKernel open(int64_t threads) const { return {context, staged, threads, form}; }

  /// `cleared`: a result [t, e] that is set to 0, or -1.
  void emitLists(int cleared);

  Value weight(const ThreadKernel &k, Value token, Value expert) const;
  /// Returns place `index` in the list of a token's rows; place `top` tells whether it has too
  /// many.
  Value rowPlace(const ThreadKernel &k, Value token, Value index) const;
  /// Returns the place of [line, expert] in an array with a column per expert.
  Value countPlace(const ThreadKernel &k, Value line, Value expert) const;

  mlir::MLIRContext &context;
  const Form form;
  const ExpertLayer n;
  const ExpertWorkspace memory;
  const OpCall staged;            // with three views of the workspace as further results
  WorkspaceArray counts, totals;  // [piece, e], [e]: tokens of an expert
  WorkspaceArray starts, experts; // [e + 1]: first rows; [tile]
  WorkspaceArray tokens, rows;    // [row]: its token, or t; [t, top + 1]: rows of a token
  WorkspaceArray first, hidden;   // [row, parts f]: gate and up or their gradients; [row, f]
  WorkspaceArray made, terms;     // [row, o or h]; in f32: [row, range]

private:
  struct Piece {
    Value number, expert, begin, end; // of its tokens
  };
  Piece pieceOf(const ThreadKernel &k) const;
  /// Returns whether the token is routed to the expert, as i1 and as 0 or 1.
  Value goes(const ThreadKernel &k, Value token, Value expert) const;
  Value isRouted(const ThreadKernel &k, Value token, Value expert) const;

  void emitCounts(int cleared);
  void emitTotals();
  void emitRows();
  void emitRow(const ThreadKernel &k, Value token, Value expert, Value row) const;
  void emitTiles(const ThreadKernel &k, Value expert, Value start) const;

  llvm::SmallVector<region::Kernel> launches;
  bool isGood = true;
};

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_OPS_EXPERTLISTS_H
