//===- HostSlots.h - Programs with slots on the host ------------------------===//

#ifndef TBC_TESTS_RUNTIME_SUPPORT_HOSTSLOTS_H
#define TBC_TESTS_RUNTIME_SUPPORT_HOSTSLOTS_H

#include "runtime/abi/Program.h"

#include <random>

namespace tbc::program {

/// Moves a random choice of offloadable slots to the host and returns their number. Reads of a
/// moved slot go through a fetch, and writes through an offload. The program computes the same. It
/// must not have a memory plan yet.
int moveToHost(Program &program, std::mt19937 &random);

} // namespace tbc::program

#endif // TBC_TESTS_RUNTIME_SUPPORT_HOSTSLOTS_H
