//===- Mutators.h - Kinds of damage to a valid Program ----------------------===//

#ifndef TBC_TESTS_RUNTIME_VERIFY_MUTATORS_H
#define TBC_TESTS_RUNTIME_VERIFY_MUTATORS_H

#include "runtime/abi/Program.h"

#include <ostream>
#include <random>
#include <string>
#include <vector>

namespace tbc::verify {

/// A damaged Program, and names. A rejection must contain one of them: a quoted id, slot or tensor,
/// or a stage's schedule.
struct Mutant {
  program::Program program;
  std::vector<std::string> names;
};

/// Damages `mutant.program` at a random place so that one property is violated, and adds the names.
/// Returns false if the program has no suitable place.
using Mutator = bool (*)(Mutant &mutant, std::mt19937 &random);

struct NamedMutator {
  const char *name;
  Mutator mutate;
};
/// The test name shown by CTest.
inline void PrintTo(const NamedMutator &mutator, std::ostream *out) { *out << mutator.name; }

/// Mutators by the property they violate.
std::vector<NamedMutator> dataflowMutators();
std::vector<NamedMutator> communicationMutators();
std::vector<NamedMutator> storageMutators();
std::vector<NamedMutator> hostMutators();

} // namespace tbc::verify

#endif // TBC_TESTS_RUNTIME_VERIFY_MUTATORS_H
