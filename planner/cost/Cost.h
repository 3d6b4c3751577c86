//===- Cost.h - Seconds of an op and of a collective ----------------------===//
//
// Plain C++. A roofline for kernels; latency and bandwidth for collectives. Every constant comes
// from the cluster file.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_COST_COST_H
#define TBC_PLANNER_COST_COST_H

#include "planner/devices/Cluster.h"
#include "planner/devices/GroupShape.h"
#include "planner/reshard/Graph.h"
#include "planner/support/OnceMap.h"

#include <vector>

namespace tbc::planner {

/// The part of an op in the memory traffic of its kernel, for whole tensors. The shares of the ops
/// of a kernel add up to the kernel.
struct KernelShare {
  std::vector<double> readBytes;    // by operand; 0: another op of the kernel makes or reads it
  std::vector<double> writtenBytes; // by result; 0: only its kernel reads it
  bool isFused = false;             // another op of the kernel has the launch
  bool isCopy = false;              // a view that its kernel copies; else views are free
  reshard::OwnKernel own;           // on GPUs, where no library has the op
  /// Of a matmul in fp8, by operand: bytes moved to round it, and launches; 0 if it is rounded for
  /// another matmul. Empty: without all rounding.
  std::vector<double> roundingBytes, roundingLaunches;
};

/// Returns the share of every op in the kernels of a program of `cluster`.
///
/// - tbc's own programs have the kernels of reshard::planUnsplitKernels. A kernel reads each value
///   once, and writes those that others read. Its first op that is no view has the launch. A view
///   alone in a kernel is copied.
/// - Frameworks have a kernel for each op, but for fused ones (isFused), and views are free.
///
/// Constant-derived values move no bytes. Matmuls in fp8 have the rounding of their operands, by
/// the rule of the executor (Fp8Rule). Example: h = x + a; y = layer_norm(h), where others read h
/// too, is one kernel. The sum has the launch, reads x and a, and writes h. The norm writes y.
std::vector<KernelShare> kernelShares(const Cluster &cluster, const reshard::Graph &graph);

/// Returns the share of `op` in a framework's kernels.
KernelShare frameworkShare(const reshard::Graph &graph, const reshard::GraphOp &op);

/// Returns the FLOPs of each op without anything that its kernel computes twice. The gradients of a
/// matmul, convolution or attention have at most twice its FLOPs, once for each of two factors; a
/// kernel with more computes a part of the forward again. Example: attention has two matmuls, and
/// its gradient five, one of which makes the scores again: 2 and 4 count. `cloneOf`: as of
/// reshard::withRecompute; clones are no gradients.
std::vector<double> flopsOnce(const reshard::Graph &graph, const std::vector<int> &cloneOf = {});

/// Bytes and FLOPs of a kernel on one rank.
struct LocalWork {
  double flops = 0; // that the kernel executes
  double bytes = 0;
  /// Of the float operand with the most elements, the widest of equals; f8e4m3 of matmuls in fp8.
  reshard::DType dtype = reshard::DType::F32;
  bool isFused = false; // part of another op's kernel: no launch
  bool isCopy = false;  // of a view, at the rate of an elementwise kernel
  double depth = 0;     // of a matmul: the length of the sum for each result
  /// Number of parts of the sequence if they are split in order: in causal attention the last part
  /// has almost nothing to skip. 1 if all parts have equal work (zigzag).
  double partsInOrder = 1;
  double launches = 1;
  /// To round operands to 8 bits, in kernels of their own.
  double roundingBytes = 0, roundingLaunches = 0;
};

/// Whether `value` stays in registers. Its op is elementwise, and its one user, seen through views,
/// is an elementwise op or a reduction of the same phase. All common code generators fuse at least
/// these (Snider and Liang, "Operator Fusion in XLA", arXiv 2301.13062, section 3: instruction and
/// fusion merger). Residuals are never fused, because they have users in both phases.
bool isFused(const reshard::Graph &graph, int value);

/// Returns the work of op `op` on one rank under `strategy`: its FLOPs, and the bytes of its
/// `share`, divided by the axes on their loops. A gather (readsPart) reads from each operand at
/// most the size of its result.
LocalWork localWork(const reshard::Graph &graph, int op, const reshard::OpStrategy &strategy,
                    const KernelShare &share);
/// The same as if a matmul kept the types of its operands, and as if they were rounded to 8 bits
/// (GraphOp::fp8); localWork() is the one or the other, by isInFp8().
LocalWork workInOwnTypes(const reshard::Graph &graph, int op, const reshard::OpStrategy &strategy,
                         const KernelShare &share);
LocalWork workInFp8(const reshard::Graph &graph, int op, const reshard::OpStrategy &strategy,
                    const KernelShare &share);
/// The same as localWork() for a framework's kernel.
LocalWork localWork(const reshard::Graph &graph, int op, const reshard::OpStrategy &strategy);

/// Returns the seconds of a kernel (without launch if it is fused into another):
///     max(floor, launch + max(
///         ramp + executed flops / (peak * flopsFraction) * (1 + halfDepth / depth),
///         (bytes + bytesPerFlop * flops) / (bandwidth * memoryFraction))).
/// Executed flops are flops * executedFraction. With n parts of a sequence in order, the last part
/// skips an n-th of the whole's share: 1 - (1 - executedFraction) / n. Example: 0.5 and n = 4 give
/// 0.875. Views (KernelClass::None) that are not copied are free. Source: Williams, Waterman,
/// Patterson, "Roofline", CACM 52 (2009). With roundingSeconds().
double kernelSeconds(const Cluster &cluster, KernelClass kernelClass, const LocalWork &work);

/// Returns the seconds in which the operands of a matmul are rounded to 8 bits, by kernels of class
/// Rounding. Example: an operand of 1 GiB in bf16 is read twice and written in half a GiB, 2.2 ms
/// at 1.2 TB/s.
double roundingSeconds(const Cluster &cluster, const LocalWork &work);

/// Returns the class whose numbers rate a kernel: Fp8Matmul for matmuls on operands in 8 bits.
KernelClass ratedClass(KernelClass kernelClass, reshard::DType dtype);

/// The two parts of kernelSeconds of which the longer counts, without gaps before launches.
struct BusySeconds {
  double arithmetic = 0, movement = 0; // with the ramp; of bytes
};
BusySeconds busySeconds(const Cluster &cluster, KernelClass kernelClass, const LocalWork &work);

/// Returns the arithmetic part of kernelSeconds, without the ramp.
double arithmeticSeconds(const Cluster &cluster, KernelClass kernelClass, const LocalWork &work);

/// Returns the seconds of op `op` on one rank under `strategy`: one kernel, or one per block of a
/// streamed loop. `isInOrder`: the ranks of a sequence have its parts in order, not zigzag.
double opKernelSeconds(const Cluster &cluster, const reshard::Graph &graph, int op,
                       const reshard::OpStrategy &strategy, const KernelShare &share,
                       bool isInOrder = false);

/// Returns the launches of op `op` under `strategy`: one, or one per block of a streamed loop; 0
/// for views that are not copied, and for ops that are fused into another one's kernel.
double opLaunches(const reshard::Graph &graph, int op, const reshard::OpStrategy &strategy,
                  const KernelShare &share);

/// Returns the seconds of one update of `bytes` in `launches` launches. The optimizer reads and
/// writes master copy, state, gradient and parameter once.
double updateSeconds(const Cluster &cluster, double bytes, double launches);

/// Returns the seconds that the executor of `cluster` adds to `count` all_gathers of parameters or
/// reduce_scatters of gradients over `ranks`, with `bytes` in all: work of the host for each rank,
/// and copies in the device's memory. 0 for other kinds, and for tbc's own programs.
double executorSeconds(const Cluster &cluster, reshard::CollectiveKind kind, double count,
                       double ranks, double bytes);

/// Returns the seconds that the executor of `cluster` holds a rank for its messages of one phase to
/// and from the stages `hasPrevious` and `hasNext` tell of. Example: 2.5 ms for a message are 5 ms
/// on a stage in the middle.
double messageSeconds(const Cluster &cluster, bool hasPrevious, bool hasNext);

/// Prices collectives on one mesh of one cluster. Thread-safe. Ranks fill nodes in order, so the
/// last axis of the mesh lies inside a node as far as it fits.
class NetworkCost {
public:
  NetworkCost(const Cluster &cluster, const reshard::Mesh &mesh, int pipelineAxis = -1)
      : cluster(cluster), mesh(mesh), pipelineAxis(pipelineAxis) {}

  /// Returns the seconds of `collective`: of the fastest algorithm and protocol, start + steps +
  /// bytes on the wire / bandwidth. A group has n ranks on m nodes.
  ///
  /// - Bytes: 2(n-1)/n for all_reduce, (n-1)/n for the others, all for send and permute (NCCL busbw
  ///   convention, nccl-tests doc/PERFORMANCE.md).
  /// - Bandwidth: the node's for a group of that size. For a group over several nodes, at most the
  ///   sum of the network cards of its ranks on one node.
  /// - Small messages have steps of `latencySeconds` and `smallFraction` of the bandwidth (NCCL's
  ///   protocol LL). Within a node, and for all_reduces, the steps are the levels of trees, twice
  ///   for all_reduce (Sanders, Speck, Traeff, "Two-tree algorithms", Parallel Computing 35
  ///   (2009)). An all_gather or reduce_scatter between nodes passes n - m devices and m - 1 nodes.
  /// - Large messages (NCCL's protocol Simple) have rings of n - 1 steps, twice for all_reduce. A
  ///   step takes `ringStepSeconds` of the slowest link. Within a node an all_reduce may be one
  ///   reduction in the switch. Between nodes it may go along trees of depth d = log2(m), 2 d - 1
  ///   times through the cards of a node.
  ///
  /// Every algorithm is affine in the bytes, so the seconds are concave: joined messages never take
  /// longer than separate ones.
  ///
  /// Example: an all_reduce of 1 GB over 8 ranks puts 1.75 GB on the wire. An all_gather over 256
  /// H100 on 32 nodes has 255 steps of 45 microseconds, 11 ms, for any size.
  double seconds(const reshard::Collective &collective) const;
  /// The same, given kind, group and size.
  double seconds(reshard::CollectiveKind kind, const GroupShape &group, double bytes) const;

  /// Returns the time of the host to launch kernels, relative to that of one rank alone: in a
  /// pipeline over several nodes 1 + groupWait * (tp - 1), else 1. Example: 0.7 and tp = 8
  /// give 5.9.
  double launchFactor() const;

  GroupShape groupShape(const std::vector<reshard::AxisRef> &axes) const;
  GroupShape groupShape(const reshard::Collective &collective) const;
  /// The group of pipeline stages `stages` (tied weights; the two ends of a send).
  GroupShape stageGroupShape(const std::vector<int> &stages) const;

private:
  GroupShape computeShape(const std::vector<reshard::AxisRef> &axes) const;
  std::map<int64_t, int64_t> firstRanks(const std::vector<reshard::AxisRef> &axes,
                                        const std::vector<int64_t> &stride) const;
  GroupShape computeStageShape(const std::vector<int> &stages) const;

  const Cluster &cluster;
  reshard::Mesh mesh;
  int pipelineAxis;
  mutable OnceMap<std::vector<reshard::AxisRef>, GroupShape> shapes;
  mutable OnceMap<std::vector<int>, GroupShape> stageShapes;
};

/// NetworkCost::seconds() on a network of these two levels.
double networkSeconds(const NetworkLevel &intra, const NetworkLevel &inter,
                      reshard::CollectiveKind kind, const GroupShape &group, double bytes);

} // namespace tbc::planner

#endif // TBC_PLANNER_COST_COST_H
