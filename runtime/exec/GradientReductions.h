//===- GradientReductions.h - Which communication sums gradients ------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_GRADIENTREDUCTIONS_H
#define TBC_RUNTIME_EXEC_GRADIENTREDUCTIONS_H

#include "runtime/abi/Program.h"

#include <string>
#include <vector>

namespace tbc::runtime {

/// By instruction of a block, whether it sums gradients of f32 over ranks that have other data: a
/// sum (all_reduce or reduce_scatter) over axes along which inputs are cut, either of nothing but
/// what slots of role Gradient hold, or into nothing but such slots.
std::vector<bool> gradientReductions(const program::Program &program, int stage,
                                     program::BlockId block);

/// Whether the program scales its loss and leaves out, by itself, the update of a step whose
/// gradients overflow.
bool skipsOverflow(const program::Program &program);

/// Why the gradients of a program cannot be compressed with a memory of what was not sent; empty if
/// they can: it scales its loss and skips steps that overflow, which would be remembered; or has no
/// such sum of more than one rank.
std::string whyNotCompressed(const program::Program &program);

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_GRADIENTREDUCTIONS_H
