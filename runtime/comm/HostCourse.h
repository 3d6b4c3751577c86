//===- HostCourse.h - An all_reduce over several hosts ----------------------===//
//
// Part of tbc. Plain C++. Internal to the backends that move bytes.
//
// Of L ranks on each of H hosts, each takes one of L parts of the elements. Within a host everybody
// sends everybody his part; then the part's sum goes from host to host, each adding its own terms;
// the last one rounds it, and it comes back the same way, and on each host to everybody. The sum
// that is handed on is not rounded (ReduceRuns.h), and hosts stand in the order of the group, so
// that the result has the bits of a sum in group order. Of N elements of w bytes with states of s
// bytes N s leave each host for the next, and N w for the one before; on the straight course of
// Courses.h 2 N w L (H - 1) / H leave each host.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_HOSTCOURSE_H
#define TBC_RUNTIME_COMM_HOSTCOURSE_H

#include "runtime/comm/Courses.h"

#include <optional>

namespace tbc::comm {

/// A group of which each host has as many ranks, one host's after the other's.
struct HostShape {
  size_t numHosts = 1, numLocal = 1;
};

/// The shape of a group, by the host of each index; nothing where it has none.
std::optional<HostShape> hostShape(const std::vector<int64_t> &hostOfIndex);

/// Whether the host that sends most to others sends less than on the straight course.
bool paysByHost(const HostShape &shape, const ElementType &type);

/// output = the reduction over `shape`'s ranks; outputs may be inputs. `within`: this rank among
/// those of its host; `across`: among those of the same index within theirs, by host.
Status reduceByHost(const HostShape &shape, const Course &within, const Course &across,
                    const Reduction &reduction, const ElementType &type, const Runs &input,
                    const Runs &output);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_HOSTCOURSE_H
