//===- HostCourse.h - A hierarchical all_reduce over several hosts ----------===//
//
// Part of tbc. Plain C++. Internal to the backends that move bytes.
//
// With L ranks on each of H hosts, the elements are split into L parts, one per local index:
//
// 1. reduce-scatter within each host;
// 2. a chain of hosts, in group order: each adds its own terms to the unrounded sum and sends it on
//    (ReduceRuns.h);
// 3. the last host rounds, and the result comes back along the chain;
// 4. all-gather within each host.
//
// The order and the single rounding give the bits of a sum in group order. N elements of w bytes
// have states of s bytes. Each host sends N s bytes to the next host and N w to the previous one.
// The direct algorithm of Courses.h sends 2 N w L (H - 1) / H. Example: f32 has w = 4 and s = 8.
// With L = 8 and H = 2, a host sends at most 8 N instead of 32 N bytes.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_HOSTCOURSE_H
#define TBC_RUNTIME_COMM_HOSTCOURSE_H

#include "runtime/comm/Courses.h"

#include <optional>

namespace tbc::comm {

/// A group with the same number of ranks on each host, ordered by host.
struct HostShape {
  size_t numHosts = 1, numLocal = 1;
};

/// Returns the shape of a group, given the host of each index; nullopt if the group has no such
/// shape.
std::optional<HostShape> hostShape(const std::vector<int64_t> &hostOfIndex);

/// Returns whether the busiest host sends fewer bytes to others than with the direct algorithm.
bool paysByHost(const HostShape &shape, const ElementType &type);

/// output = the reduction over `shape`'s ranks; outputs may be inputs. `within`: this rank among
/// those of its host. `across`: this rank among the ranks of equal local index, by host.
Status reduceByHost(const HostShape &shape, const Course &within, const Course &across,
                    const Reduction &reduction, const ElementType &type, const Runs &input,
                    const Runs &output);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_HOSTCOURSE_H
