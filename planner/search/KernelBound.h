//===- KernelBound.h - Bounds on the kernels of a micro-batch -------------===//

#ifndef TBC_PLANNER_SEARCH_KERNELBOUND_H
#define TBC_PLANNER_SEARCH_KERNELBOUND_H

#include "planner/search/BoundTables.h"

#include <cstdint>

namespace tbc::planner {

// Lower bounds on the seconds of a micro-batch on each rank along ep, forward and backward, all
// stages together. They hold for any placement over the axes tp, cp and ep of `mesh`.

/// Returns a lower bound without recomputation.
///
/// Theorem: seconds >= max(I(tp * cp * ep), L(tp) / (cp * ep)). I(n): all kernels divided evenly
/// over n devices. L(tp): BoundTables::leastSeconds(), with the collectives of tp.
///
/// Proof sketch: no strategy leaves less than 1/n of a kernel on each device. Given a placement
/// over tp, cp and ep, the n-th part of a kernel or collective takes at least an n-th of its time.
/// So the placement over tp alone takes at most cp * ep times as long. A pinned tp splits all it
/// can, but inside experts it may split less, so L does not count with ep then.
///
/// Example: tp=2 and cp=2, kernels of 8 ms on one device, L(2) = 5 ms: max(8 / 4, 5 / 2) = 2.5 ms.
double leastKernelSeconds(const BoundTables &tables, const MeshShape &mesh, int64_t microBatch);

/// Returns a lower bound for any recomputation: the even division, less BoundTables::mostSaved().
///
/// Proof sketch: recomputation adds kernels, and saves at most the launches and memory accesses of
/// values that then stay in registers. mostSaved() counts all of these.
///
/// Example: 8 ms on one device, 4 devices, a saving of at most 0.1 ms: 2 - 0.1 = 1.9 ms.
double idealRecomputedSeconds(const BoundTables &tables, const MeshShape &mesh, int64_t microBatch);

/// Returns the larger of idealRecomputedSeconds() and leastKernelSeconds() less the saving of a
/// whole sample on one device. Kernels divided over fewer devices can save more by recomputation,
/// but also take longer without it; beside collectives this may be worthwhile. So the second bound
/// allows the saving of undivided kernels.
double leastRecomputedSeconds(const BoundTables &tables, const MeshShape &mesh, int64_t microBatch);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_KERNELBOUND_H
