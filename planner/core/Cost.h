//===- Cost.h - How long an op and a collective take -----------------------===//
//
// Plain C++. A roofline for kernels, latency and bandwidth for collectives; every constant from the
// cluster file.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_COST_H
#define TBC_PLANNER_CORE_COST_H

#include "planner/core/Cluster.h"
#include "planner/core/OnceMap.h"
#include "planner/reshard/Graph.h"

#include <vector>

namespace tbc::planner {

/// How the ranks of a group lie on nodes; of all groups along the same axes the worst.
struct GroupShape {
  int64_t size = 1;
  int64_t nodes = 1;
  int64_t perNode = 1; // the fewest ranks of the group on one of its nodes
};

/// What a kernel moves and computes on one rank.
struct LocalWork {
  double flops = 0;
  double bytes = 0;
  int64_t elementBytes = 4; // of the float operand with the most elements, the widest of equals
  bool isF16 = false;       // of that operand
  bool isFused = false;     // part of its user's kernel: no launch, and nothing is written
  double depth = 0;         // of a matrix product: over how many elements each result sums
  /// In how many parts the sequence is split in the order in which it comes: of a causal attention
  /// the last of them has almost nothing to skip. 1 where all parts have alike (zigzag).
  double partsInOrder = 1;
};

/// Whether `value` stays in registers: an elementwise op makes it, and its one user, seen through
/// views, is an elementwise op or a reduction of the same phase. Every code generator of the field
/// fuses at least these (Snider and Liang, "Operator Fusion in XLA", arXiv 2301.13062, section 3:
/// instruction and fusion merger), and no residual is among them: those have users in both phases.
bool isFused(const reshard::Graph &graph, int value);

/// The work of op `op` on one rank under `strategy`: FLOPs and bytes of operands and results,
/// divided by the axes on the loops that run through them. A gather (kernel class "gather") touches
/// of each operand no more than its result has; a view (a broadcast, say) is read as what it views,
/// and fused values and what is made of numbers alone are not moved at all.
LocalWork localWork(const reshard::Graph &graph, int op, const reshard::OpStrategy &strategy);

/// Seconds of a kernel (without launch where it is part of another):
///     max(floor, launch + max(
///         ramp + executed flops / (peak * flopsFraction) * (1 + halfDepth / depth),
///         (bytes + bytesPerFlop * flops) / (bandwidth * memoryFraction))).
/// Executed are the flops times executedFraction; of n parts of a sequence in order, the last skips
/// an n-th of what the whole does: 1 - (1 - executedFraction) / n. Views (kernel class "none") are
/// free. Source: Williams, Waterman, Patterson, "Roofline", CACM 52 (2009).
double kernelSeconds(const Cluster &cluster, const std::string &kernelClass, const LocalWork &work);

/// The arithmetic in it, without the ramp.
double arithmeticSeconds(const Cluster &cluster, const std::string &kernelClass,
                         const LocalWork &work);

/// Seconds of op `op` on one rank under `strategy`: of one kernel, or of one per block of what it
/// streams. `isInOrder`: the ranks that share a sequence have parts of it in the order in which it
/// comes.
double opKernelSeconds(const Cluster &cluster, const reshard::Graph &graph, int op,
                       const reshard::OpStrategy &strategy, bool isInOrder = false);

/// Seconds of one update of `elements` parameter elements spread over `tensors` kernels: the
/// optimizer reads and writes master copy, state, gradient and parameter once.
double updateSeconds(const Cluster &cluster, double bytes, int64_t tensors);

/// Prices collectives on one mesh of one cluster, for any number of threads. Ranks fill nodes in
/// order, so the last axis of the mesh lies inside a node as far as it fits.
class NetworkCost {
public:
  NetworkCost(const Cluster &cluster, const reshard::Mesh &mesh, int pipelineAxis = -1)
      : cluster(cluster), mesh(mesh), pipelineAxis(pipelineAxis) {}

  /// Seconds of `collective`: start + steps * latency + bytes on the wire / bandwidth, of two
  /// algorithms the faster.
  ///
  /// Steps: log2 of the ranks in a node and log2 of the nodes, each at its level's latency, twice
  /// for all_reduce (trees: Sanders, Speck, Traeff, "Two-tree algorithms", Parallel Computing 35
  /// (2009); NCCL >= 2.23 uses logarithmic all_gather and reduce_scatter for small messages, rings
  /// for large). Bytes: 2(n-1)/n for all_reduce, (n-1)/n for the others, all for send and permute
  /// (NCCL busbw convention, nccl-tests doc/PERFORMANCE.md). Bandwidth: the node's for a group of
  /// that size, or, where the group spans nodes, at most what the network cards of its ranks on one
  /// node add up to. Small messages have a protocol with short latency that reaches smallFraction
  /// of it; large ones go round a ring, of n - 1 steps (all_reduce: twice), or are added up by the
  /// switch of a node.
  double seconds(const reshard::Collective &collective) const;
  /// The same, from kind, group and size.
  double seconds(reshard::CollectiveKind kind, const GroupShape &group, double bytes) const;

  GroupShape groupShape(const std::vector<reshard::AxisRef> &axes) const;
  /// The group of pipeline stages `stages` (tied weights; the two ends of a send).
  GroupShape stageGroupShape(const std::vector<int> &stages) const;

private:
  void addGroup(int64_t first, const std::vector<int64_t> &members, GroupShape &shape) const;
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

#endif // TBC_PLANNER_CORE_COST_H
