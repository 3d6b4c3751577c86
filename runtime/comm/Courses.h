//===- Courses.h - The algorithms of collectives ----------------------------===//
//
// Part of tbc. Plain C++. Internal to the backends that move bytes.
//
// A collective of n ranks assigns one part to each rank. Every rank sends each other rank's part
// directly to it. The receiver combines its terms in group order, so results have the same bits on
// every rank, in every run and on every backend.
//
// A rank sends at most (n - 1) / n of the bytes for a reduce_scatter or all_gather, and twice this
// for an all_reduce, as in a ring (R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of
// Collective Communication Operations in MPICH", IJHPCA 19, 2005, section 4). Example: an
// all_reduce of 8 MiB over 4 ranks sends 12 MiB per rank.
//
// Parts travel in portions. A few portions are in flight while another is summed and passed on.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_COURSES_H
#define TBC_RUNTIME_COMM_COURSES_H

#include "runtime/comm/Communicator.h"
#include "runtime/comm/Courier.h"

namespace tbc::comm {

/// A rank in a call of its group. Vectors are by index in the group. Parts of the own index are not
/// moved.
struct Course {
  Courier &courier;
  size_t own;
  size_t numRanks;
};

/// Sends toIndex[i] to index i, and receives fromIndex[i] from it.
Status exchange(const Course &course, const std::vector<Runs> &toIndex,
                const std::vector<Runs> &fromIndex);

/// output = the reduction of all ranks' inputs[own index]. If `gathered` is not empty, gathered[i]
/// becomes the output of index i, and gathered[own] is `output`. These may be the inputs.
Status reduceParts(const Course &course, const Reduction &reduction, const ElementType &type,
                   const std::vector<Runs> &inputs, const Runs &output,
                   const std::vector<Runs> &gathered);

/// Reduces whole small inputs in one round; each rank computes the result for itself.
Status reduceSmall(const Course &course, const Reduction &reduction, const ElementType &type,
                   const Runs &input, const Runs &output);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_COURSES_H
