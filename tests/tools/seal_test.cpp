//===- seal_test.cpp - Damaged and mutated Programs are refused -----------===//

#include "runtime/abi/ProgramFile.h"
#include "runtime/abi/Sha256.h"
#include "runtime/train/Trainer.h"
#include "runtime/train/Weights.h"
#include "tests/runtime/support/FullTests.h"
#include "tests/runtime/verify/Mutators.h"
#include "tests/tools/Reseal.h"
#include "tests/tools/RunFixture.h"

#include <gmock/gmock.h>

#include <random>

namespace tbc::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Sealed : public Run {
protected:
  /// Returns a copy of a compiled Program, with its model beside it.
  std::string copyOf(const std::string &program) {
    std::string copy = folder + "/program";
    fs::remove_all(copy);
    fs::copy(program, copy);
    return copy;
  }
  static void write(const std::string &path, const std::string &content) {
    std::ofstream(path, std::ios::binary) << content;
  }
  /// Loads the folder and the initial weights, like a rank.
  static Status load(const std::string &program) {
    auto loaded = train::loadProgram(program);
    if (!loaded)
      return loaded.error();
    auto weights = train::Weights::open(loaded->manifest, program, kernels::Arith::Native,
                                        /*checksHashes=*/true);
    return weights ? Status::ok() : Status(weights.error());
  }
};

/// Flips one bit of a file that a run reads, drawn evenly over files and then over their bits.
TEST_F(Sealed, NoBitFlipsUnseen) {
  std::string model = folder + "/model.onnx";
  fs::copy(std::string(TBC_SOURCE_DIR) + "/models/tiny-gpt2.onnx", model);
  Outcome made = shell(TBC_PROGRAM " plan model.onnx --gpus 2 --mesh dp=2 --batch 8 --seq 16 "
                                   "--precision f32 -o plan.json && " TBC_PROGRAM
                                   " compile plan.json -o program");
  ASSERT_EQ(made.code, 0) << made.err;
  std::string program = folder + "/program";
  ASSERT_TRUE(load(program)) << load(program).error().message;
  std::vector<std::string> paths = {model};
  for (const char *name : {"program.json", "run.json", "plan.json", "kernels.so", "seal.json"})
    paths.push_back(program + "/" + name);
  std::mt19937 random(11);
  const int numFlips = sampleSize(60, 1000);
  for (int i = 0; i < numFlips; ++i) {
    const std::string &path = paths[size_t(i) % paths.size()];
    std::string content = readAll(path), damaged = content;
    ASSERT_FALSE(content.empty()) << path;
    size_t bit = std::uniform_int_distribution<size_t>(0, 8 * content.size() - 1)(random);
    damaged[bit / 8] = char(damaged[bit / 8] ^ (1 << (bit % 8)));
    write(path, damaged);
    Status status = load(program);
    EXPECT_FALSE(status) << "bit " << bit << " of " << path;
    if (!status) {
      EXPECT_EQ(status.error().code, ErrorCode::Usage);
      EXPECT_THAT(status.error().message, HasSubstr(fs::path(path).filename().string()));
    }
    write(path, content);
  }
  EXPECT_TRUE(load(program));
}

TEST_F(Sealed, TheCommandsNameWhatIsDamaged) {
  std::string copy = copyOf(mlp());
  for (const char *name : {"kernels.so", "run.json", "plan.json", "program.json", "seal.json"}) {
    std::string path = copy + "/" + name, content = readAll(path), damaged = content;
    damaged[content.size() / 2] = char(damaged[content.size() / 2] ^ 1);
    write(path, damaged);
    Outcome outcome = run(copy, "--steps 1");
    EXPECT_EQ(outcome.code, 2) << name;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(name), HasSubstr("is not what tbc compile wrote")));
    write(path, content);
  }
  EXPECT_EQ(run(copy, "--steps 1").code, 0);
  std::string path = copy + "/program.json";
  write(path, readAll(path) + " ");
  EXPECT_EQ(shell(TBC_PROGRAM " program show program").code, 2);
}

TEST_F(Sealed, RanksCompareTheSeal) {
  std::string copy = copyOf(mlpOnTwo());
  // The same Program compiled from the same model elsewhere.
  auto seal = program::readSeal(readAll(copy + "/seal.json"));
  ASSERT_TRUE(seal);
  seal->sources[0].path = "elsewhere.onnx";
  write(copy + "/seal.json", program::writeSeal(*seal));
  std::string flags =
      " --steps 1 --init-weights 1 --timeout 60 --init file://$PWD/meeting --ranks 2";
  Outcome outcome =
      shell(TBC_RUN_PROGRAM " '" + copy + "'" + flags + " --rank 1 & " TBC_RUN_PROGRAM " '" +
            mlpOnTwo() + "'" + flags + " --rank 0; code=$?; wait; exit $code");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("seal of the program's folder"));
}

std::vector<verify::NamedMutator> allMutators() {
  std::vector<verify::NamedMutator> all = verify::dataflowMutators();
  for (const auto &more :
       {verify::communicationMutators(), verify::storageMutators(), verify::hostMutators()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// Deliberate changes with a correct seal are refused by the checkers. Applies each mutator at
/// random places of real Programs, with corrected hashes.
TEST_F(Sealed, MutatedProgramsAreRefused) {
  std::vector<std::string> folders = {
      mlp(), mlpOnTwo(), program("tiny-gpt2", "--gpus 4 --mesh pp=2,tp=2 --seq 16"),
      program("tiny-gpt2", "--gpus 2 --mesh dp=2 --zero 1 --seq 16 --clip-norm 1")};
  std::vector<std::pair<std::string, program::Program>> programs;
  for (const std::string &path : folders) {
    auto loaded = train::loadProgram(path);
    ASSERT_TRUE(loaded) << loaded.error().message;
    programs.emplace_back(path, std::move(loaded->program));
  }
  const std::vector<verify::NamedMutator> mutators = allMutators();
  std::mt19937 random(3);
  const int wanted = sampleSize(60, 1000);
  int numMutants = 0;
  for (int i = 0; numMutants < wanted && i < 20 * wanted; ++i) {
    const auto &[path, valid] = programs[size_t(i) % programs.size()];
    const verify::NamedMutator &mutator = mutators[random() % mutators.size()];
    verify::Mutant mutant{valid, {}};
    if (!mutator.mutate(mutant, random))
      continue;
    std::string text = program::writeProgram(mutant.program);
    if (text == program::writeProgram(valid))
      continue;
    ++numMutants;
    std::string copy = copyOf(path);
    std::string manifest = readAll(copy + "/run.json");
    std::string was = sha256Hex(readAll(copy + "/program.json"));
    manifest.replace(manifest.find(was), was.size(), sha256Hex(text));
    write(copy + "/program.json", text);
    write(copy + "/run.json", manifest);
    resealFolder(copy);
    Status status = load(copy);
    EXPECT_FALSE(status) << mutator.name << " in " << path;
    if (!status)
      EXPECT_EQ(status.error().code, ErrorCode::Usage) << status.error().message;
  }
  EXPECT_EQ(numMutants, wanted);
}

} // namespace
} // namespace tbc::test
