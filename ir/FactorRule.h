//===- FactorRule.h - The loops of an op and the dims they make up ---------===//

#ifndef TBC_IR_FACTORRULE_H
#define TBC_IR_FACTORRULE_H

#include "planner/reshard/Graph.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <optional>

namespace tbc {

using reshard::ColumnUse;
using reshard::ElementFunction;
using reshard::KernelClass;
using reshard::LaunchesFn;
using reshard::LoopKind;
using reshard::OwnKernel;
using reshard::WorkspaceFn;

/// An op's loops and how they run through its operands and results, as in an einsum. A dim is an
/// ordered sum of segments, each an ordered product of loops: a matmul's dims are single loops, a
/// reshape's are products, a concat's are sums.
struct FactorRule {
  struct Loop {
    int64_t size = 1;
    LoopKind kind = LoopKind::Parallel;
  };
  using Product = llvm::SmallVector<unsigned, 2>;
  using Dim = llvm::SmallVector<Product, 1>;

  llvm::SmallVector<Loop, 6> loops;
  llvm::SmallVector<llvm::SmallVector<Dim, 4>, 3> operands;
  llvm::SmallVector<llvm::SmallVector<Dim, 4>, 2> results;

  /// Tensors without loop `experts` have a row per token, which is of use for `copies` elements of
  /// `experts` at most. For each of them the op computes `inner` values for each element of loop
  /// `innerLoop`, which backward reads.
  struct Routing {
    unsigned experts = 0, innerLoop = 0;
    int64_t copies = 0, inner = 0;
  };
  std::optional<Routing> routing;

  /// Adds a loop and returns its number.
  unsigned addLoop(int64_t size, LoopKind kind = LoopKind::Parallel) {
    loops.push_back({size, kind});
    return loops.size() - 1;
  }
  /// A dim of one loop.
  static Dim dim(unsigned loop) { return Dim{Product{loop}}; }
  /// A dim of a product of loops; an empty product has size 1.
  static Dim dim(llvm::ArrayRef<unsigned> product) { return Dim{Product(product)}; }
  /// Dims that are one loop each.
  static llvm::SmallVector<Dim, 4> dims(llvm::ArrayRef<unsigned> loops) {
    llvm::SmallVector<Dim, 4> result;
    for (unsigned loop : loops)
      result.push_back(dim(loop));
    return result;
  }
};

/// The part of an op in a mixture of experts: the work of the experts, or dispatch before it and
/// combination after it, token by token.
enum class ExpertRole { Computes, Deals, Collects };

} // namespace tbc

#endif // TBC_IR_FACTORRULE_H
