//===- HostSlots.h - Programs with slots on the host ------------------------===//

#ifndef TBC_TESTS_RUNTIME_SUPPORT_HOSTSLOTS_H
#define TBC_TESTS_RUNTIME_SUPPORT_HOSTSLOTS_H

#include "runtime/abi/Program.h"

#include <random>

namespace tbc::program {

/// Moves some of the slots that may lie on the host there, at random: what reads one reads what a
/// fetch made of it, what is written to one is what an offload made of that. The program means what
/// it meant. It must have no memory plan. Returns how many slots were moved.
int moveToHost(Program &program, std::mt19937 &random);

} // namespace tbc::program

#endif // TBC_TESTS_RUNTIME_SUPPORT_HOSTSLOTS_H
