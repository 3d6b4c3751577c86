//===- Mutations.h - Planted miscompiles ----------------------------------------===//

#ifndef TBC_TESTS_TOOLS_MUTATIONS_H
#define TBC_TESTS_TOOLS_MUTATIONS_H

#include "runtime/abi/Program.h"

#include <functional>
#include <string>
#include <vector>

namespace tbc::test {

/// One wrong Program, made from a right one.
struct Mutant {
  std::string kind;  // what kind of miscompile
  std::string place; // the stage, block and instruction
  std::function<void(program::Program &)> apply;
};

/// Every place in `program` where one of the known kinds of miscompile can be planted: a collective
/// dropped, doubled, over the wrong axis or with the wrong reduction; a missing 1/N; a gradient not
/// accumulated; a parameter that keeps its old value; swapped operands, swapped residuals, swapped
/// messages; shards joined in the wrong order; a slice that is off by one; blocks of
/// a ring that are stale or come the wrong way; members of a bucket that are missing, there twice
/// or at the offset of another.
std::vector<Mutant> enumerateMutants(const program::Program &program);

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_MUTATIONS_H
