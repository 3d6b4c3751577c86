//===- LimitExperts.h - Experts with a capacity ----------------------------===//

#ifndef TBC_PASSES_DECOMPOSE_LIMITEXPERTS_H
#define TBC_PASSES_DECOMPOSE_LIMITEXPERTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LogicalResult.h"
#include "llvm/ADT/SmallVector.h"

namespace tbc {

/// What the experts of one size may take.
struct ExpertCapacity {
  int64_t experts = 0, top = 0; // each token asks for `top` of the experts
  int64_t tokens = 0;           // of a sample
  int64_t capacity = 0;         // of them, those that an expert computes at most
  bool operator==(const ExpertCapacity &o) const {
    return experts == o.experts && top == o.top && tokens == o.tokens && capacity == o.capacity;
  }
};

/// Lets each expert of `function` compute at most ceil(factor x top x tokens / experts) tokens of a
/// sample, the first that ask for it, and at least one; what comes later is dropped: the expert
/// adds nothing to it. Replaces each routed_experts by dispatch, two layers as einsums over the
/// experts, and combine. Tokens of different samples do not compete, so that who is dropped depends
/// on no batch, mesh or micro-batch.
///
/// Source: D. Lepikhin et al., "GShard: Scaling Giant Models with Conditional Computation and
/// Automatic Sharding" (2020), section 2.2: expert capacity and local groups.
///
/// Before autodiff. Returns the capacities, each once. Errors: experts whose tokens are not those
/// of one sample after the other, at the op; a function without routed experts.
mlir::FailureOr<llvm::SmallVector<ExpertCapacity>> limitExperts(mlir::func::FuncOp function,
                                                                double factor);

} // namespace tbc

#endif // TBC_PASSES_DECOMPOSE_LIMITEXPERTS_H
