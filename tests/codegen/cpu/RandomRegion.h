//===- RandomRegion.h - Small regions of several ops, at random -------------===//

#ifndef TBC_TESTS_CODEGEN_CPU_RANDOMREGION_H
#define TBC_TESTS_CODEGEN_CPU_RANDOMREGION_H

#include <cstdint>
#include <random>
#include <string>

namespace tbc {

/// The text of a module with a function @f of 3 to 9 ops over tensors [n, c, h, w] and vectors [c],
/// as the decomposed norms of a split batch are made of: elementwise ops, vectors broadcast along
/// the channels, numbers that are the same everywhere, and sums over all dims but the channels.
/// Extents are 1, 2, 3, 5, 8 or 17. It returns everything that nothing reads and some of the rest.
/// Equal states of `random` give equal texts.
std::string randomRegion(std::mt19937 &random);

} // namespace tbc

#endif // TBC_TESTS_CODEGEN_CPU_RANDOMREGION_H
