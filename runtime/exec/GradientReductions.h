//===- GradientReductions.h - The collectives that sum gradients ------------===//
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

/// Returns, by instruction of a block, whether it sums f32 gradients over ranks with different
/// data. Such a sum is an all_reduce or reduce_scatter over axes that cut inputs. In addition,
/// either all its operands are read from slots of role Gradient, or all its results are written to
/// such slots.
std::vector<bool> gradientReductions(const program::Program &program, int stage,
                                     program::BlockId block);

/// Returns whether the program scales its loss and skips the update of a step with overflowing
/// gradients by itself.
bool skipsOverflow(const program::Program &program);

/// Returns why the gradients of a program cannot be compressed with residuals, or an empty string
/// if they can. Reasons: (1) the program scales its loss and skips steps with overflow, and the
/// residuals would keep the overflow; (2) it has no gradient sum over more than one rank.
std::string whyNotCompressed(const program::Program &program);

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_GRADIENTREDUCTIONS_H
