//===- RandomRegion.h - Small random regions of several ops -----------------===//

#ifndef TBC_TESTS_CODEGEN_CPU_RANDOMREGION_H
#define TBC_TESTS_CODEGEN_CPU_RANDOMREGION_H

#include <cstdint>
#include <random>
#include <string>

namespace tbc {

/// Returns a module with a function @f of 3 to 9 ops over tensors [n, c, h, w] and vectors [c], as
/// in the decomposed norms of a split batch. The ops are elementwise, broadcasts of vectors along
/// the channels, constants, and sums over all dims but the channels. Extents are 1, 2, 3, 5, 8 or
/// 17. @f returns all unread values and some others. Equal states of `random` give equal texts.
std::string randomRegion(std::mt19937 &random);

} // namespace tbc

#endif // TBC_TESTS_CODEGEN_CPU_RANDOMREGION_H
