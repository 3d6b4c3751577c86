//===- LimitExperts.h - Experts with a capacity ----------------------------===//

#ifndef TBC_PASSES_DECOMPOSE_LIMITEXPERTS_H
#define TBC_PASSES_DECOMPOSE_LIMITEXPERTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LogicalResult.h"
#include "llvm/ADT/SmallVector.h"

namespace tbc {

/// The capacity of experts of one size.
struct ExpertCapacity {
  int64_t experts = 0, top = 0; // each token asks for `top` of the experts
  int64_t tokens = 0;           // of a sample
  int64_t capacity = 0;         // of them, those that an expert computes at most
  bool operator==(const ExpertCapacity &o) const {
    return experts == o.experts && top == o.top && tokens == o.tokens && capacity == o.capacity;
  }
};

/// Limits each expert of `function` to ceil(factor x top x tokens / experts) tokens of a sample,
/// and at least one. An expert computes the first tokens that ask for it and adds 0 to the dropped
/// ones. Example: factor 1.25, top 2, 64 tokens and 8 experts give 20.
///
/// Replaces each routed_experts by dispatch, two layers as einsums over the experts, and combine.
/// Tokens of different samples do not compete, so the dropped tokens depend on no batch, mesh or
/// micro-batch.
///
/// Source: D. Lepikhin et al., "GShard: Scaling Giant Models with Conditional Computation and
/// Automatic Sharding" (2020), section 2.2: expert capacity and local groups.
///
/// Must run before autodiff. Returns the capacities, each once. Errors: the tokens are not ordered
/// sample by sample, at the op; a function without routed experts.
mlir::FailureOr<llvm::SmallVector<ExpertCapacity>> limitExperts(mlir::func::FuncOp function,
                                                                double factor);

} // namespace tbc

#endif // TBC_PASSES_DECOMPOSE_LIMITEXPERTS_H
