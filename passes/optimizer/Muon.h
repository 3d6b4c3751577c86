//===- Muon.h - Orthogonalized steps of hidden matrices ---------------------===//

#ifndef TBC_PASSES_OPTIMIZER_MUON_H
#define TBC_PASSES_OPTIMIZER_MUON_H

#include "ir/Formula.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc {

/// Defaults are those of torch.optim.Muon.
struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  int64_t steps = 5; // of Newton and Schulz
  double a = 3.4445, b = -4.775, c = 2.0315;
  /// The smallest norm by which a direction is divided.
  double epsilon = 1e-7;
  /// Whether steps have the size of AdamW's ("match_rms_adamw"); else "original".
  bool matchesRms = false;
  /// Globs of matrices that step by AdamW.
  std::vector<std::string> exempt;
};

/// The sizes of a matrix that maps `in` features to `out`, whichever dim they are.
struct MatrixSizes {
  int64_t in = 1, out = 1;
  bool operator==(const MatrixSizes &o) const { return in == o.in && out == o.out; }
};

/// Returns, by argument of `train`, the sizes of its hidden matrices; nullopt for other arguments.
/// A hidden matrix is a parameter that only matmuls read, in forward. It has two dims: one that
/// they sum over, with the features in, and one of their result. Or it has a dim in front with one
/// matrix per expert, or per batch of the matmul. Parameters that are not:
/// - embeddings, also where the head is tied to them; convolutions; biases, norms;
/// - the head: a matmul between which and the loss there is no other one;
/// - those that a glob of `exempt` matches.
///
/// Example: gpt2 has 48: four of each block, no embedding.
/// Source: Jordan et al., "Muon" (2024); Liu et al., "Muon is scalable for LLM training",
/// arXiv 2502.16982, section 2.
///
/// Errors: a glob without a match; a model without hidden matrices.
mlir::FailureOr<llvm::SmallVector<std::optional<MatrixSizes>>>
findHiddenMatrices(mlir::func::FuncOp train, llvm::ArrayRef<std::string> exempt);

/// Returns the factor of the learning rate for a matrix: sqrt(max(1, out / in)), or to match the
/// size of AdamW's steps 0.2 sqrt(max(out, in)). Example: in 4, out 16: 2, or 0.8.
double rateScale(const MatrixSizes &sizes, const MuonOptions &options);

/// Builds tbc.gather_matrices of `direction`, the iteration of Newton and Schulz on its last two
/// dims, and tbc.shard_matrices. Of X = direction / max(norm, epsilon), each of `steps` iterations
/// is, with G = X X^T, or X^T X where that is smaller:
///
///     X' = a X + (b G + c G G) X
///
/// which moves every singular value towards 1. It runs in the element type of `direction`: that of
/// the parameter, so on tensor cores in bf16, as PyTorch; norms are f32.
mlir::Value orthogonalize(Formula &f, mlir::Value direction, const MuonOptions &options);

} // namespace tbc

#endif // TBC_PASSES_OPTIMIZER_MUON_H
