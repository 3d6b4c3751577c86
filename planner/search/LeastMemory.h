//===- LeastMemory.h - Lower bounds on memory -----------------------------===//
//
// Closed-form bounds before any placement or pricing. They prove that no plan can fit.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_SEARCH_LEASTMEMORY_H
#define TBC_PLANNER_SEARCH_LEASTMEMORY_H

#include "planner/search/BoundTables.h"

namespace tbc::planner {

/// Returns a lower bound in bytes on the fullest device of any plan of the job.
///
/// Theorem: peak >= (1 + allocator share) * (parameters + gradients + states) / devices + context.
///
/// Proof sketch: each byte of a parameter, its gradient and its optimizer states lies on at least
/// one device, and the fullest device has at least the average. Offloaded states count nothing.
///
/// Example: 16 bytes for each of 8.03e9 parameters on 8 devices are 15 GiB each.
double leastBytesAnywhere(const reshard::Graph &graph, const Job &job, const Cluster &cluster,
                          bool offloadsStates);

/// Returns a lower bound in bytes on the fullest device of the candidate.
///
/// Theorem: peak >= (1 + allocator share) * max(F / pp, R, X) + context, and with pp=1 F + R in
/// place of F / pp and R.
/// - F: leastParameterBytes() of a model replica, with tp dividing only parameters with a divisible
///   factor.
/// - R: the largest matmul result of a micro-batch, divided over tp and cp.
/// - X: leastReaderBytes() of any kind of op that reads parameters.
///
/// Proof sketch: the fullest stage has at least the average of F. The stage of the largest matmul
/// holds its result while it runs. With several stages these may be two different stages. The proof
/// of X stands in ReaderBytes.h.
///
/// Example: GPT-3 175B on two devices with pp=2: 16 bytes for each of 174.6e9 parameters give
/// F / pp = 1.27 TiB.
double leastBytes(const BoundTables &tables, const Candidate &candidate);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_LEASTMEMORY_H
