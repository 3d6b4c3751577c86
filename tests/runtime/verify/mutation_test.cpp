//===- mutation_test.cpp - Random mutants, each violating one property -----===//

#include "runtime/verify/Verify.h"
#include "tests/runtime/support/FullTests.h"
#include "tests/runtime/support/MlpProgram.h"
#include "tests/runtime/support/RandomProgram.h"
#include "tests/runtime/verify/Mutators.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace tbc::verify {
namespace {

using namespace tbc::program;

/// A program with a last backward of its own.
Program withLastBackward(std::mt19937 &random) {
  MlpOptions options;
  options.numLayers = 4, options.dp = 2, options.reducesLast = true;
  options.pp = 1 + int(random() % 2), options.tp = 1 + int64_t(random() % 2);
  options.zero = int(random() % 2), options.microBatches = 2 + int64_t(random() % 2);
  return mlpProgram(options);
}

Program someProgram(std::mt19937 &random) {
  if (random() % 4 == 0)
    return withLastBackward(random);
  RandomProgramOptions options;
  options.seed = unsigned(random());
  return randomProgram(options);
}

/// Applies a mutator at a random place of a random program. Returns whether it changed the program.
bool tryMutant(const NamedMutator &mutator, std::mt19937 &random) {
  Mutant mutant{someProgram(random), {}};
  if (!mutator.mutate(mutant, random))
    return false;
  Status status = verifyProgram(mutant.program);
  std::string names;
  for (const std::string &name : mutant.names)
    names += " " + name;
  EXPECT_FALSE(status) << "survived; damaged at" << names << "\n" << show(mutant.program);
  if (status)
    return true;
  const std::string &message = status.error().message;
  bool isNamed =
      std::any_of(mutant.names.begin(), mutant.names.end(),
                  [&](const std::string &name) { return message.find(name) != std::string::npos; });
  EXPECT_TRUE(isNamed) << message << "\nnames none of" << names << "\n" << show(mutant.program);
  return true;
}

std::vector<NamedMutator> allMutators() {
  std::vector<NamedMutator> all = dataflowMutators();
  for (const std::vector<NamedMutator> &more :
       {communicationMutators(), storageMutators(), hostMutators()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

class Mutants : public ::testing::TestWithParam<NamedMutator> {};

TEST_P(Mutants, AreAllRejectedWithTheirPlace) {
  std::mt19937 random(5);
  int numMutants = 0, wanted = test::sampleSize(60, 250);
  for (int i = 0; i < 40 * wanted && numMutants < wanted && !HasFailure(); ++i)
    numMutants += tryMutant(GetParam(), random);
  EXPECT_EQ(numMutants, wanted);
}

INSTANTIATE_TEST_SUITE_P(, Mutants, ::testing::ValuesIn(allMutators()),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace tbc::verify
