//===- Courses.h - The courses that collectives take ------------------------===//
//
// Part of tbc. Plain C++. Internal to the backends that move bytes.
//
// A collective of n ranks gives each of them a part. Every rank sends the part of each other one
// straight to it, who combines what came in group order: so results have the same bits on every
// rank, at every time and on every backend, and yet no more than (n - 1) / n of the bytes leave a
// rank for a reduce_scatter or all_gather, twice that for an all_reduce, as in a ring (R. Thakur,
// R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA
// 19, 2005, section 4). Parts travel in portions, a few of which are under way while one is summed
// and passed on.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_COURSES_H
#define TBC_RUNTIME_COMM_COURSES_H

#include "runtime/comm/Communicator.h"
#include "runtime/comm/Courier.h"

namespace tbc::comm {

/// A rank in a call of its group, all by index; parts of the own index are not moved.
struct Course {
  Courier &courier;
  size_t own;
  size_t numRanks;
};

/// toIndex[i] goes to index i, and what that sends here goes to fromIndex[i].
Status exchange(const Course &course, const std::vector<Runs> &toIndex,
                const std::vector<Runs> &fromIndex);

/// output = the reduction of everybody's inputs[own index]. Where there are `gathered`, that of
/// index i comes to gathered[i] too; gathered[own] is the output. These may be the inputs.
Status reduceParts(const Course &course, const Reduction &reduction, const ElementType &type,
                   const std::vector<Runs> &inputs, const Runs &output,
                   const std::vector<Runs> &gathered);

/// The reduction of whole inputs that are small: in one round, each rank for itself.
Status reduceSmall(const Course &course, const Reduction &reduction, const ElementType &type,
                   const Runs &input, const Runs &output);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_COURSES_H
