//===- Mutators.h - Kinds of damage to a valid Program ----------------------===//

#ifndef TBC_TESTS_RUNTIME_VERIFY_MUTATORS_H
#define TBC_TESTS_RUNTIME_VERIFY_MUTATORS_H

#include "runtime/abi/Program.h"

#include <ostream>
#include <random>
#include <string>
#include <vector>

namespace tbc::verify {

/// A damaged Program, and what a rejection has to name one of: ids, slots or tensors in quotes, or
/// a stage's schedule.
struct Mutant {
  program::Program program;
  std::vector<std::string> names;
};

/// Damages `mutant.program` at a random place so that one property is violated, and says where;
/// false if the program has no such place.
using Mutator = bool (*)(Mutant &mutant, std::mt19937 &random);

struct NamedMutator {
  const char *name;
  Mutator mutate;
};
/// For the name that CTest shows.
inline void PrintTo(const NamedMutator &mutator, std::ostream *out) { *out << mutator.name; }

/// By the property that they violate.
std::vector<NamedMutator> dataflowMutators();
std::vector<NamedMutator> communicationMutators();
std::vector<NamedMutator> storageMutators();
std::vector<NamedMutator> hostMutators();

} // namespace tbc::verify

#endif // TBC_TESTS_RUNTIME_VERIFY_MUTATORS_H
