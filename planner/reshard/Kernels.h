//===- Kernels.h - The ops of a block that share a kernel -------------------===//
//
// Plain C++. The partitioner emits the kernels of this list, and the planner counts their memory:
// both call `planKernels` on the same graph.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_KERNELS_H
#define TBC_PLANNER_RESHARD_KERNELS_H

#include "planner/reshard/Graph.h"

#include <map>
#include <utility>
#include <vector>

namespace tbc::reshard {

/// A chunk of the model and one of its phases.
using BlockKey = std::pair<int, Phase>;

struct Kernel {
  /// In an order in which they can be executed. Two or more are one nest of loops.
  std::vector<int> ops;
  /// One nest of loops; else one op with a kernel of its own, or a packed one. A nest makes no
  /// value of an op that cuts columns: it reads them where they lie.
  bool isNest = false;
  /// Whether it is a nest that reads the columns that `op`, one of its ops, cuts in place: they are
  /// no value of their own.
  bool cutsInPlace(const GraphOp &op) const {
    return isNest && op.columns.kind == ColumnUse::Kind::Cuts;
  }
  /// An op that takes columns of one tensor in place (ColumnUse), between the ops that cut them
  /// and, if it makes columns, the op that joins them. Only the first operand of the kernel's first
  /// op and the other operands of that op are read, and no part is made. Example: three slices, an
  /// attention_grad and a concat.
  bool isPacked = false;
  /// Whether it has sums over the rows that the nest right before it reduces, and reads a value
  /// that is read or made there. GPUs execute both in one launch, which then makes the values
  /// between them in registers. Example: the gradient of a norm's scale, behind the norm's own
  /// gradient.
  bool joinsPrevious = false;
};

/// The kernels of every block, in the order of their execution.
using BlockKernels = std::map<BlockKey, std::vector<Kernel>>;

/// The most ops of a kernel. Longer kernels take long to compile and run no faster.
inline constexpr int maxKernelOps = 40;

/// Returns, by op, whether it computes constants from constants, so that each kernel that reads it
/// executes it again. Values with an order along the sequence are not (positionValues).
/// Example: a splat constant and its broadcast.
std::vector<bool> repeatedOps(const Graph &graph);

/// Groups the ops of each block into kernels, on the dataflow and not on their order:
///
/// - An op with a nest of loops (GraphOp::isLoopNest) joins the latest kernel that makes one of its
///   operands. It also joins the kernel right before it that reads one of them, or that reduces the
///   same loops as it does. All together must be one nest, as below, and every operand must exist
///   where that kernel begins.
/// - A view, such as a broadcast or a reshape, waits for its first reader and joins that one's
///   kernel. An op made of constants alone is executed again by each kernel that reads it.
/// - A reshape of a value that others read too is a kernel of its own.
/// - An op that needs a collective for an operand begins a kernel; so does a gather ahead of use.
/// - A nest that is the only reader of a matmul stands right behind it, where a library can execute
///   both in one call. All its other operands must be made before the matmul.
/// - An op that takes columns (ColumnUse) is a kernel with the ops that cut them, if these read the
///   same tensor, all of its columns, and serve that op alone. If it makes columns, they must be
///   joined by an op that is their only reader.
/// - Columns that nests alone read are cut by each of these: the op is a part of all their kernels,
///   and no part is made. Columns that one nest makes, for an op that joins them, are written where
///   they lie in its result.
/// - A nest with sums over the rows of another one stands right behind that (`joinsPrevious`), if
///   its operands exist there.
///
/// One nest: each value is an array over some of the loops, all loops are those of one value (the
/// operand of the first reduction, or else a result), and all reductions run over the same loops.
/// A result that is read outside has all loops that are not reduced; if it has one of the reduced,
/// it has all. The innermost loops are contiguous in all values that have them. codegen/region
/// makes the same demands of IR (`findDomain`).
///
/// Example: h = x + a; y = layer_norm(h); z = y w; d = reshape(dy); c = d * s; sum(c) gives the
/// kernels {add, layer_norm}, {einsum}, {reshape, mul, sum}. And dx = dy w'; dw = x' dy; dh = dx +
/// r; cast(dw) gives {einsum dx}, {add}, {einsum dw}, {cast}.
///
/// Every op of the block stands in one kernel; those of constants alone, and those that cut columns
/// for nests, in any number. Linear
/// in the ops of the graph, for kernels of bounded size.
BlockKernels planKernels(const Graph &graph, const Assignment &assignment,
                         const Derivation &derivation);

/// Returns planKernels for a step that is not split: one device executes all chunks, without
/// communication. A split moves or separates some of these kernels, and makes few new ones.
BlockKernels planUnsplitKernels(const Graph &graph);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_KERNELS_H
