//===- Holders.cpp - Stages that hold the same tensor update it alike -------===//
//
// Tied parameters and their optimizer states are held by several stages. Each of them updates its
// own copy. The copies stay equal if all holders compute the same expression. So the check compares
// its structure, op by op, down to the slots it reads. A collective among stages gives all of them
// the same result for any contributions, so the comparison ends there: it must be the same meeting.
//
//===----------------------------------------------------------------------===//

#include "runtime/verify/Events.h"
#include "runtime/verify/Places.h"

#include <map>
#include <set>
#include <sstream>

namespace tbc::verify {
namespace {

using program::Block;
using program::Instruction;
using program::InstructionKind;
using program::Program;
using program::Role;
using program::Slot;
using program::Stage;
using program::ValueId;

void print(std::ostream &out, bool value) { out << (value ? "true" : "false"); }
void print(std::ostream &out, int64_t value) { out << value; }
void print(std::ostream &out, double value) { out << std::hexfloat << value; }
void print(std::ostream &out, const std::string &value) { out << value.size() << ":" << value; }
template <typename T> void print(std::ostream &out, const std::vector<T> &values) {
  out << "[";
  for (const T &value : values) {
    print(out, value);
    out << ",";
  }
  out << "]";
}

void print(std::ostream &out, const std::vector<program::SegmentShape> &segments) {
  for (const program::SegmentShape &s : segments)
    out << " " << s.outer << "*" << s.k << "*" << s.inner;
}

/// Numbers expressions: equal numbers mean equal expressions, on any stage.
class HolderChecker {
public:
  explicit HolderChecker(const Program &program) : program(program), events(eventsOf(program)) {}

  Status check() {
    std::map<int, std::set<int>> holders; // tensor -> stages
    for (int stage = 0; stage < program.numStages(); ++stage)
      for (const Slot &slot : program.stages[stage].slots)
        if (slot.tensor >= 0 && slot.role != Role::Gradient)
          holders[slot.tensor].insert(stage);
    std::set<int> stages;
    for (const auto &[tensor, ofTensor] : holders)
      if (ofTensor.size() > 1)
        stages.insert(ofTensor.begin(), ofTensor.end());
    for (int stage : stages) {
      if (Status status = checkStage(stage); !status)
        return status;
    }
    return Status::ok();
  }

private:
  struct Update {
    int stage = -1;
    int expression = -1;
    std::string place;
  };

  Status checkStage(int stageIndex) {
    const Stage &stage = program.stages[stageIndex];
    const Block &block = stage.update;
    std::map<int, std::string> meetings = meetingsOf(stageIndex);
    std::vector<int> number(stage.values.size(), -1), source(stage.values.size(), -1);
    for (const program::Argument &argument : block.arguments)
      number[argument.value] = numberOf(slotText(stageIndex, stage.slots[argument.slot]));
    for (size_t i = 0; i < block.instructions.size(); ++i) {
      const Instruction &instruction = block.instructions[i];
      if (isHostCopy(instruction.kind)) { // the same value in another memory
        number[instruction.results[0]] = number[instruction.operands[0]];
        source[instruction.results[0]] = int(i);
        continue;
      }
      auto meeting = meetings.find(int(i));
      std::string text =
          meeting != meetings.end() ? meeting->second : expressionText(instruction, number);
      for (size_t r = 0; r < instruction.results.size(); ++r) {
        number[instruction.results[r]] = numberOf(text + " #" + std::to_string(r));
        source[instruction.results[r]] = int(i);
      }
    }
    for (const program::BlockResult &result : block.results) {
      const Slot &slot = stage.slots[result.slot];
      if (slot.tensor < 0 || slot.role == Role::Gradient)
        continue;
      std::string place = source[result.value] < 0
                              ? describe(program, stageIndex, Kind::Update)
                              : describe(program, stageIndex, Kind::Update, source[result.value]);
      place += ", result to slot \"" + slot.name + "\"";
      auto [found, isFirst] =
          updates.try_emplace(slot.tensor, Update{stageIndex, number[result.value], place});
      if (!isFirst && found->second.expression != number[result.value])
        return rejected(place, "tensor \"" + program.tensors[slot.tensor].name +
                                   "\" is updated in another way at " + found->second.place);
    }
    return Status::ok();
  }

  /// Returns the collectives among stages in update, by instruction: their position in the list of
  /// their group.
  std::map<int, std::string> meetingsOf(int stage) const {
    std::map<int, int> countOf; // group -> meetings so far
    std::map<int, std::string> meetings;
    for (const Event &event : events.ofStage[stage]) {
      if (event.kind != Event::Kind::Meet)
        continue;
      int count = countOf[event.lane]++;
      if (event.action.kind == Kind::Update)
        meetings[event.instruction] =
            "meeting " + std::to_string(count) + " of group " + std::to_string(event.lane);
    }
    return meetings;
  }

  std::string slotText(int stage, const Slot &slot) const {
    if (slot.tensor >= 0)
      return "tensor " + std::to_string(slot.tensor);
    if (slot.role == Role::Scalar)
      return "scalar " + slot.name;
    return "slot " + slot.name + " of stage " + std::to_string(stage);
  }

  std::string expressionText(const Instruction &instruction, const std::vector<int> &number) const {
    std::ostringstream out;
    out << name(instruction.kind) << " " << instruction.op;
    for (const auto &[key, value] : instruction.attrs.entries()) {
      out << " " << key << "=" << value.index() << " ";
      std::visit([&](const auto &held) { print(out, held); }, value);
    }
    if (isCommunication(instruction.kind)) {
      const program::Communication &comm = instruction.comm;
      out << " over " << toString(program.mesh, comm.axes) << " dims " << comm.dim << " "
          << comm.splitDim << " reduce " << int(comm.reduce) << " message " << comm.peerStage << " "
          << comm.channel << " segments";
      print(out, comm.segments);
      out << " /";
      print(out, comm.splitSegments);
    }
    for (ValueId operand : instruction.operands)
      out << " %" << number[operand];
    return out.str();
  }

  int numberOf(const std::string &expression) {
    return numbers.try_emplace(expression, int(numbers.size())).first->second;
  }

  const Program &program;
  Events events;
  std::map<std::string, int> numbers; // the expressions name their operands by number
  std::map<int, Update> updates;      // by tensor
};

} // namespace

Status checkHolders(const Program &program) { return HolderChecker(program).check(); }

} // namespace tbc::verify
