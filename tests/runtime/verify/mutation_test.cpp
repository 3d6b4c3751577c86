//===- mutation_test.cpp - Random mutants, each violating one property -----===//

#include "runtime/verify/Verify.h"
#include "tests/runtime/support/MlpFamily.h"

#include <algorithm>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

namespace tbc::verify {
namespace {

using namespace tbc::program;
using Kind = schedule::Action::Kind;

/// A place in a program, drawn at random.
struct Site {
  Program &p;
  int stage;
  Kind kind;
  size_t index; // of an instruction
  std::mt19937 &random;

  Block &block() const { return p.stages[stage].block(kind); }
  Instruction &instruction() const { return block().instructions[index]; }
  bool is(InstructionKind wanted) const { return instruction().kind == wanted; }
  bool isGroup() const {
    return instruction().kind != InstructionKind::Kernel && !is(InstructionKind::Send) &&
           !is(InstructionKind::Recv);
  }
};

/// Changes the program at the site and returns true, or leaves it alone and returns false where the
/// change would not violate the property.
using Mutator = bool (*)(const Site &);

bool dropInstruction(const Site &s) {
  // Values that only residuals' readers want would be missed in backward instead; all are noticed.
  s.block().instructions.erase(s.block().instructions.begin() + int64_t(s.index));
  return true;
}
bool doubleInstruction(const Site &s) {
  auto &list = s.block().instructions;
  list.insert(list.begin() + int64_t(s.index), s.instruction());
  return true;
}
bool readBeforeWrite(const Site &s) {
  auto &list = s.block().instructions;
  if (s.index == 0)
    return false;
  const auto &results = list[s.index - 1].results;
  bool depends =
      std::any_of(list[s.index].operands.begin(), list[s.index].operands.end(), [&](ValueId v) {
        return std::find(results.begin(), results.end(), v) != results.end();
      });
  if (depends)
    std::swap(list[s.index - 1], list[s.index]);
  return depends;
}
bool changeChannel(const Site &s) {
  if (!s.is(InstructionKind::Send) && !s.is(InstructionKind::Recv))
    return false;
  s.instruction().comm.channel += 1 + int64_t(s.random() % 5);
  return true;
}
bool changePeer(const Site &s) {
  if ((!s.is(InstructionKind::Send) && !s.is(InstructionKind::Recv)) || s.p.numStages() < 3)
    return false;
  int &peer = s.instruction().comm.peerStage;
  do
    peer = int(s.random() % unsigned(s.p.numStages()));
  while (peer == s.stage);
  return peer != (s.is(InstructionKind::Send) == (s.kind == Kind::Forward) ? s.stage + 1
                                                                           : s.stage - 1) &&
         peer != s.p.numStages() - 1 - s.stage; // where the skip goes
}
bool changeAxis(const Site &s) {
  if (!s.isGroup() || s.instruction().comm.axes.size() != 1)
    return false;
  // Which dim of an activation lies on which axis is nothing that a Program says.
  if (s.kind != Kind::Update && s.is(InstructionKind::AllReduce))
    return false;
  AxisRef &axis = s.instruction().comm.axes[0];
  int other = 1 + int(s.random() % 2);
  if (other == axis.axis || axis.axis == s.p.pipelineAxis)
    return false;
  if (axis.size == 1 && s.p.mesh.axes[other].size == 1)
    return false; // nothing is exchanged either way
  axis = wholeAxis(s.p.mesh, other);
  return true;
}
bool changeSize(const Site &s) {
  if (s.instruction().results.empty() || s.instruction().kind == InstructionKind::Kernel)
    return false;
  s.p.stages[s.stage].values[s.instruction().results[0]].shape.push_back(2);
  return true;
}
bool changeKind(const Site &s) {
  static const InstructionKind kinds[] = {InstructionKind::AllReduce, InstructionKind::AllGather,
                                          InstructionKind::ReduceScatter,
                                          InstructionKind::ShardSlice};
  if (!s.isGroup() || groupSizeOf(s.instruction().comm, s.p.pipelineAxis) == 1)
    return false;
  InstructionKind other = kinds[s.random() % 4];
  // A slice of the right shape in place of a reduce_scatter is a sum left out: checkReplicas.
  if (other == s.instruction().kind)
    return false;
  s.instruction().kind = other;
  return true;
}
bool dropBlockResult(const Site &s) {
  auto &results = s.block().results;
  if (results.empty())
    return false;
  auto gone = results.begin() + int64_t(s.random() % results.size());
  const Slot &slot = s.p.stages[s.stage].slots[gone->slot];
  bool isRead = false;
  for (Kind kind : {Kind::Forward, Kind::Backward, Kind::Update})
    for (const Argument &argument : s.p.stages[s.stage].block(kind).arguments)
      isRead |= argument.slot == gone->slot;
  // A residual that nobody reads, a tied gradient with a second term, and a loss that is not summed
  // over ranks are not missed.
  bool hasTwin = std::count_if(results.begin(), results.end(),
                               [&](const BlockResult &r) { return r.slot == gone->slot; }) > 1;
  if (!isRead || hasTwin ||
      (slot.role == Role::Loss && s.kind == Kind::Update && s.p.mesh.axes[1].size == 1))
    return false;
  results.erase(gone);
  return true;
}
bool doubleBlockResult(const Site &s) {
  auto &results = s.block().results;
  if (results.empty())
    return false;
  results.push_back(results[s.random() % results.size()]);
  return true;
}
bool flipAccumulation(const Site &s) {
  auto &results = s.block().results;
  if (results.empty())
    return false;
  BlockResult &result = results[s.random() % results.size()];
  // Update may add to the loss.
  if (s.p.stages[s.stage].slots[result.slot].role == Role::Loss && s.kind == Kind::Update)
    return false;
  result.accumulate = !result.accumulate;
  return true;
}
bool dropArgument(const Site &s) {
  auto &arguments = s.block().arguments;
  if (arguments.empty())
    return false;
  arguments.erase(arguments.begin() + int64_t(s.random() % arguments.size()));
  return true;
}
bool swapSends(const Site &s) {
  auto &list = s.block().instructions;
  for (size_t a = 0; a < list.size(); ++a) {
    for (size_t b = a + 1; b < list.size(); ++b) {
      bool samePair = list[a].kind == InstructionKind::Send &&
                      list[b].kind == InstructionKind::Send &&
                      list[a].comm.peerStage == list[b].comm.peerStage;
      if (!samePair)
        continue;
      std::swap(list[a], list[b]);
      return true;
    }
  }
  return false;
}
bool readUnreduced(const Site &s) {
  if (!s.is(InstructionKind::AllReduce))
    return false;
  Instruction &reduce = s.instruction();
  bool changed = false;
  for (Instruction &reader : s.block().instructions) {
    if (&reader == &reduce)
      continue;
    for (ValueId &operand : reader.operands) {
      changed |= operand == reduce.results[0];
      operand = operand == reduce.results[0] ? reduce.operands[0] : operand;
    }
  }
  bool isResult = std::any_of(s.block().results.begin(), s.block().results.end(),
                              [&](const BlockResult &r) { return r.value == reduce.results[0]; });
  return changed && !isResult;
}

struct Named {
  const char *name;
  Mutator mutate;
};
constexpr Named mutators[] = {{"DropInstruction", dropInstruction},
                              {"DoubleInstruction", doubleInstruction},
                              {"ReadBeforeWrite", readBeforeWrite},
                              {"ChangeChannel", changeChannel},
                              {"ChangePeer", changePeer},
                              {"ChangeAxis", changeAxis},
                              {"ChangeSize", changeSize},
                              {"ChangeKind", changeKind},
                              {"DropBlockResult", dropBlockResult},
                              {"DoubleBlockResult", doubleBlockResult},
                              {"FlipAccumulation", flipAccumulation},
                              {"DropArgument", dropArgument},
                              {"SwapSends", swapSends},
                              {"ReadUnreduced", readUnreduced}};

/// Tries one mutator at a random site of a random program; true if the program was changed.
bool tryMutant(const Named &mutator, const std::vector<MlpOptions> &family, std::mt19937 &random) {
  const MlpOptions &o = family[random() % family.size()];
  Program program = mlpProgram(o);
  int stage = int(random() % unsigned(program.numStages()));
  Kind kind = Kind(random() % 3);
  size_t numInstructions = program.stages[stage].block(kind).instructions.size();
  Site site{program, stage, kind, random() % numInstructions, random};
  std::string id = site.instruction().id;
  if (!mutator.mutate(site))
    return false;
  Status status = verifyProgram(program);
  EXPECT_FALSE(status) << "stage " << stage << ", " << name(kind) << ", \"" << id << "\" in "
                       << describe(o) << "\n"
                       << show(program);
  if (!status)
    EXPECT_THAT(status.error().message, ::testing::HasSubstr("stage "));
  return true;
}

class Mutants : public ::testing::TestWithParam<Named> {};

TEST_P(Mutants, AreAllRejectedWithAPlace) {
  std::vector<MlpOptions> family = mlpFamily();
  std::mt19937 random(5);
  int numMutants = 0;
  for (int i = 0; i < 10000 && numMutants < 700 && !HasFailure(); ++i)
    numMutants += tryMutant(GetParam(), family, random);
  EXPECT_GE(numMutants, 50);
}

INSTANTIATE_TEST_SUITE_P(, Mutants, ::testing::ValuesIn(mutators),
                         [](const auto &info) { return info.param.name; });

} // namespace
} // namespace tbc::verify
