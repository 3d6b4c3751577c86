//===- JoinedBound.h - Bound on collectives that may be joined -------------===//
//
// Plain C++. A lower bound on the seconds of several collectives, however their tensors are joined.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_BOUND_JOINEDBOUND_H
#define TBC_PLANNER_BOUND_JOINEDBOUND_H

#include <functional>
#include <map>

namespace tbc::planner {

/// Returns a lower bound on the seconds of collectives of tensors that are joined in any way into
/// at least `leastCount` collectives, each of at most `mostBytes` or of one larger tensor. With 0
/// bytes all are apart. `seconds`: of one collective of some bytes, increasing and concave.
/// `sizes`: the number of tensors by bytes.
///
/// Theorem: with m = mostBytes, k = max(leastCount, ceil(sum of min(1, b / m))) and B the sum of
/// all b, the collectives take at least
/// - (1) (k - 1) t(0) + t(B);
/// - (2) the sum of t(b) for b > m, plus the sum of t(0) + (t(m) - t(0)) b / m for groups of
/// others.
///
/// Proof sketch: (1) t(x) + t(y) >= t(0) + t(x + y), because t is concave. (2) A concave function
/// lies above its chord from 0 to m, and there are at least ceil(sum of b / m) groups.
///
/// Example: t(b) = min(0.2 ms + b / 20 GB/s, 1 ms + b / 200 GB/s), and 100 tensors of 4 MB in
/// collectives of at most 40 MB: at least 10 t(40 MB) = 12 ms by (2), and 3.8 ms by (1).
double leastJoinedSeconds(const std::function<double(double)> &seconds,
                          const std::map<double, double> &sizes, double mostBytes,
                          double leastCount = 1);

} // namespace tbc::planner

#endif // TBC_PLANNER_BOUND_JOINEDBOUND_H
