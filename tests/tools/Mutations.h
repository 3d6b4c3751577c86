//===- Mutations.h - Planted miscompiles ----------------------------------===//

#ifndef TBC_TESTS_TOOLS_MUTATIONS_H
#define TBC_TESTS_TOOLS_MUTATIONS_H

#include "runtime/abi/Program.h"

#include <functional>
#include <string>
#include <vector>

namespace tbc::test {

/// One wrong Program, made from a right one.
struct Mutant {
  std::string kind;  // kind of miscompile
  std::string place; // stage, block and instruction
  std::function<void(program::Program &)> apply;
};

/// Returns every possible miscompile of a known kind in `program`:
/// - a collective dropped, doubled, over the wrong axis or with the wrong reduction; a missing 1/N;
/// - a gradient not accumulated; a parameter that keeps its old value;
/// - swapped operands, residuals or messages; shards joined in the wrong order; a slice off by one;
/// - blocks of a ring that are stale or come the wrong way;
/// - members of a bucket that are missing, doubled or at another's offset.
std::vector<Mutant> enumerateMutants(const program::Program &program);

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_MUTATIONS_H
