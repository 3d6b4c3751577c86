//===- ParameterTotals.h - Sums over the parameters of a model ------------===//

#ifndef TBC_PLANNER_SEARCH_PARAMETERTOTALS_H
#define TBC_PLANNER_SEARCH_PARAMETERTOTALS_H

#include "planner/plan/Job.h"
#include "planner/plan/MeshShape.h"
#include "planner/search/Profile.h"

#include <array>
#include <functional>
#include <map>

namespace tbc::planner {

/// Sums over parameters: the number and bytes of those read in forward, read in backward, and
/// trained. Parameters without readers do not count.
struct ParameterTotals {
  double bytes = 0, inForward = 0, forwardBytes = 0, inBackward = 0, backwardBytes = 0;
  double trained = 0, trainedBytes = 0, gradientBytes = 0, stateBytes = 0, updateBytes = 0;
  double updateTensors = 0; // planner::updateTensors
  double castBytes = 0;     // of trained parameters with a master copy
  double matrices = 0;      // updated as whole matrices (GraphParameter::matrices)
  /// Numbers of parameters by bytes: read in forward, read in backward, and trained.
  std::map<double, double> forwardSizes, backwardSizes, trainedSizes;
  std::map<double, double> gradientSizes; // the same of gradients
  std::map<double, double> matrixSizes;   // of parameters that an update gathers whole
};

/// [0]: parameters whole on every rank along ep. [1]: parameters of experts, split over ep.
using TotalsByKind = std::array<ParameterTotals, 2>;

/// Whether an op that reads `parameter` is of experts.
bool isOfExperts(const reshard::Graph &graph, const reshard::GraphParameter &parameter);

/// Sums the parameters accepted by `isCounted`.
TotalsByKind parameterTotals(const reshard::Graph &graph, const Job &job,
                             const std::function<bool(const reshard::GraphParameter &)> &isCounted);

/// A tensor at the end of a block: bytes, and whether it is of experts (index into TotalsByKind).
struct EndTensor {
  double bytes = 0;
  bool isExpert = false;
};

/// The collectives that begin or end the blocks of a plan with one stage (predict/BlockEnds.h), or
/// a bucket of them, move at least these.
struct EndTensors {
  EndTensor firstForward; // the first parameter that forward reads
  EndTensor lastGradient; // the gradient of a parameter that backward completes last
};

/// Returns the end tensors of `graph`; of several at one op the smallest. Recomputation does not
/// move them: it adds ops to backward, before the readers of their results.
EndTensors endTensors(const reshard::Graph &graph);

/// Whether tp divides some factor of `layout`.
bool mayDivide(const reshard::TensorLayout &layout, int64_t tp);

/// Totals of the parameters that tp may divide, and of the others, which are whole on every device
/// of a tp group.
struct DividedTotals {
  TotalsByKind divided, whole;
};
/// Sums the parameters accepted by `isCounted`.
DividedTotals dividedTotals(const reshard::Graph &graph, const Job &job, int64_t tp,
                            const std::function<bool(const reshard::GraphParameter &)> &isCounted);

/// Returns the largest number of devices over which a model replica splits its parameters.
double parameterParts(const MeshShape &mesh, bool isExpert);

/// Returns a lower bound in bytes on the parameters with sums `totals` and all data related to them
/// (gradients, optimizer states, gathered copies), on all stages of one model replica together,
/// counted on one device of each.
///
/// Theorem: bytes >= (P / z3 + G / z2 + S / z1 + B) / parts, where P, G, S and B are the sums of
/// parameters, gradients, states, and copies kept gathered for backward. z1, z2 and z3 are the
/// number of shards if that ZeRO stage shards the data, else 1.
///
/// Proof sketch: each device of a tp group (and for experts of an ep group) holds at least the
/// average, and a shard has at least the average of its group. Offloaded states count nothing.
///
/// Example: 8e9 bf16 parameters (P = G = 16 GB, S = 96 GB) with tp=2 and ZeRO-1 over 4 ranks:
/// (16 + 16 + 96 / 4) / 2 = 28 GB.
double leastParameterBytes(const MeshShape &mesh, const DataMode &mode,
                           const ParameterTotals &totals, bool isExpert);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_PARAMETERTOTALS_H
