//===- MlpEdits.h - Damages to Programs, for tests of the checkers ---------===//

#ifndef TBC_TESTS_RUNTIME_VERIFY_MLPEDITS_H
#define TBC_TESTS_RUNTIME_VERIFY_MLPEDITS_H

#include "runtime/verify/Verify.h"
#include "tests/runtime/support/MlpProgram.h"

#include <algorithm>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tbc::verify {

using namespace tbc::program;
using Kind = schedule::Action::Kind;
using Instructions = std::vector<Instruction>;

/// Two stages of two layers, two data ranks, two tensor ranks.
inline MlpOptions options(int zero = 0) {
  MlpOptions o;
  o.numLayers = 4, o.pp = o.dp = o.tp = 2, o.zero = zero, o.microBatches = 3;
  return o;
}
inline MlpOptions tied() {
  MlpOptions o = options();
  o.tp = 1, o.isTied = true;
  return o;
}
inline MlpOptions withSkip() {
  MlpOptions o = options();
  o.hasSkip = true;
  return o;
}

/// The first stage reduces gradients in its last backward.
inline MlpOptions reducingLast(int zero = 0) {
  MlpOptions o = options(zero);
  o.reducesLast = true;
  return o;
}

inline size_t find(const Instructions &instructions, const std::string &id) {
  for (size_t i = 0; i < instructions.size(); ++i)
    if (instructions[i].id == id)
      return i;
  ADD_FAILURE() << "no instruction " << id;
  return 0;
}
inline Instruction &at(Program &p, int stage, Kind kind, const std::string &id) {
  Instructions &instructions = p.stages[stage].block(kind).instructions;
  return instructions[find(instructions, id)];
}
inline int slotOf(const Program &p, int stage, const std::string &name) {
  for (size_t i = 0; i < p.stages[stage].slots.size(); ++i)
    if (p.stages[stage].slots[i].name == name)
      return int(i);
  ADD_FAILURE() << "no slot " << name;
  return 0;
}
inline BlockResult &resultTo(Program &p, int stage, Kind kind, const std::string &slot) {
  for (BlockResult &result : p.stages[stage].block(kind).results)
    if (result.slot == slotOf(p, stage, slot))
      return result;
  ADD_FAILURE() << "no result to " << slot;
  return p.stages[stage].block(kind).results[0];
}
inline void drop(Program &p, int stage, Kind kind, const std::string &id) {
  Instructions &instructions = p.stages[stage].block(kind).instructions;
  instructions.erase(instructions.begin() + int64_t(find(instructions, id)));
}
inline void dropResult(Program &p, int stage, Kind kind, const std::string &slot) {
  auto &results = p.stages[stage].block(kind).results;
  results.erase(results.begin() + (&resultTo(p, stage, kind, slot) - results.data()));
}
/// Drops an instruction with one operand and one result. Its readers read its operand.
inline void shortCircuit(Program &p, int stage, Kind kind, const std::string &id) {
  Instruction gone = at(p, stage, kind, id);
  drop(p, stage, kind, id);
  for (Instruction &instruction : p.stages[stage].block(kind).instructions)
    std::replace(instruction.operands.begin(), instruction.operands.end(), gone.results[0],
                 gone.operands[0]);
  for (BlockResult &result : p.stages[stage].block(kind).results)
    if (result.value == gone.results[0])
      result.value = gone.operands[0];
}
/// Repeats an instruction with one operand and one result on its own result.
inline void doItTwice(Program &p, int stage, Kind kind, const std::string &id) {
  Block &block = p.stages[stage].block(kind);
  size_t index = find(block.instructions, id);
  Instruction again = block.instructions[index];
  again.id += ".again";
  p.stages[stage].values.push_back(p.stages[stage].values[again.results[0]]);
  ValueId fresh = ValueId(p.stages[stage].values.size()) - 1;
  block.instructions[index].results[0] = fresh;
  again.operands[0] = fresh;
  block.instructions.insert(block.instructions.begin() + int64_t(index) + 1, again);
}

struct Mutation {
  const char *what;
  MlpOptions options;
  std::function<void(Program &)> mutate;
  std::vector<const char *> expected; // parts of the error
};

inline void expectAllRejected(const std::vector<Mutation> &mutations) {
  for (const Mutation &mutation : mutations) {
    SCOPED_TRACE(mutation.what);
    Program program = mlpProgram(mutation.options);
    mutation.mutate(program);
    Status status = verifyProgram(program);
    ASSERT_FALSE(status);
    for (const char *part : mutation.expected)
      EXPECT_THAT(status.error().message, ::testing::HasSubstr(part));
  }
}

} // namespace tbc::verify

#endif // TBC_TESTS_RUNTIME_VERIFY_MLPEDITS_H
