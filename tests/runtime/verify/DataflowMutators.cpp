//===- DataflowMutators.cpp - Wrong reads, writes and schedules -------------===//

#include "tests/runtime/verify/MutationSite.h"

#include <algorithm>
#include <set>

namespace tbc::verify {
namespace {

using namespace tbc::program;
using Random = std::mt19937;

bool anyInstruction(const Instruction &, const Site &) { return true; }
bool hasOperands(const Instruction &it, const Site &) { return !it.operands.empty(); }

bool dropInstruction(Mutant &m, Random &random) {
  Site site;
  if (!pickSite(m.program, random, anyInstruction, site))
    return false;
  nameSite(m, site);
  bool isSend = site.in(m.program).kind == InstructionKind::Send;
  if (isSend) {
    addNames(m, counterparts(m.program, site));
    // The sent value may lose its only reader.
    for (const Instruction &it : site.block(m.program).instructions)
      if (!it.results.empty() && it.results[0] == site.in(m.program).operands[0])
        m.names.push_back(inQuotes(it.id));
  }
  erase(m.program, site);
  return true;
}

bool doubleInstruction(Mutant &m, Random &random) {
  Site site;
  if (!pickSite(m.program, random, anyInstruction, site))
    return false;
  m.names = {inQuotes(site.in(m.program).id)};
  std::vector<Instruction> &list = site.block(m.program).instructions;
  size_t at = site.index + below(random, list.size() - site.index + 1);
  list.insert(list.begin() + int64_t(at), Instruction(list[site.index]));
  return true;
}

bool moveBehindReader(Mutant &m, Random &random) {
  Site site;
  auto isReadLater = [&](const Instruction &it, const Site &at) {
    const std::vector<Instruction> &list = at.block(m.program).instructions;
    return !it.results.empty() &&
           std::any_of(list.begin() + int64_t(at.index), list.end(), [&](const Instruction &other) {
             return std::count(other.operands.begin(), other.operands.end(), it.results[0]) != 0;
           });
  };
  if (!pickSite(m.program, random, isReadLater, site))
    return false;
  std::vector<Instruction> &list = site.block(m.program).instructions;
  m.names = readersOf(m.program, site, list[site.index].results[0]);
  Instruction moved = list[site.index];
  for (size_t i = site.index;; ++i) {
    const std::vector<ValueId> &operands = list[i + 1].operands;
    list[i] = list[i + 1];
    if (std::count(operands.begin(), operands.end(), moved.results[0])) {
      list[i + 1] = moved;
      return true;
    }
  }
}

bool readUndefined(Mutant &m, Random &random) {
  Site site;
  if (!pickSite(m.program, random, hasOperands, site))
    return false;
  m.names = {inQuotes(site.in(m.program).id)};
  size_t which = below(random, site.in(m.program).operands.size());
  ValueId old = site.in(m.program).operands[which];
  ValueId fresh = newValue(m.program, site.stage, m.program.stages[site.stage].values[old]);
  site.in(m.program).operands[which] = fresh;
  return true;
}

bool readOtherBlock(Mutant &m, Random &random) {
  Site site;
  if (!pickSite(m.program, random, hasOperands, site))
    return false;
  const std::vector<kernels::TensorType> &values = m.program.stages[site.stage].values;
  ValueId &operand = site.in(m.program).operands[0];
  std::vector<ValueId> theirs;
  for (BlockId id : m.program.stages[site.stage].blocks())
    if (!(id == site.id()))
      for (const Instruction &it : m.program.stages[site.stage].block(id).instructions)
        for (ValueId value : it.results)
          if (values[value] == values[operand])
            theirs.push_back(value);
  if (theirs.empty())
    return false;
  m.names = {inQuotes(site.in(m.program).id)};
  operand = theirs[below(random, theirs.size())];
  return true;
}

/// Picks a random block and a place from its list `choose(block)`. Returns false if all lists are
/// empty.
template <typename ChooseFn>
bool pickIn(Mutant &m, Random &random, ChooseFn choose, Site &block, size_t &place) {
  std::vector<std::pair<Site, size_t>> places;
  for (int stage = 0; stage < m.program.numStages(); ++stage)
    for (BlockId id : m.program.stages[size_t(stage)].blocks()) {
      Site site{stage, id.kind, 0, id.chunk};
      for (size_t i : choose(site))
        places.push_back({site, i});
    }
  if (places.empty())
    return false;
  std::tie(block, place) = places[below(random, places.size())];
  return true;
}

bool dropArgument(Mutant &m, Random &random) {
  Site block;
  size_t at = 0;
  auto all = [&](const Site &site) {
    std::vector<size_t> list;
    for (size_t i = 0; i < site.block(m.program).arguments.size(); ++i)
      list.push_back(i);
    return list;
  };
  if (!pickIn(m, random, all, block, at))
    return false;
  std::vector<Argument> &arguments = block.block(m.program).arguments;
  m.names = readersOf(m.program, block, arguments[at].value);
  m.names.push_back(slotName(m.program, block.stage, arguments[at].slot));
  arguments.erase(arguments.begin() + int64_t(at));
  return true;
}

bool isReadElsewhere(const Program &p, int stage, int slot) {
  for (BlockId id : p.stages[size_t(stage)].blocks())
    for (const Argument &argument : p.stages[size_t(stage)].block(id).arguments)
      if (argument.slot == slot)
        return true;
  return false;
}

/// Picks a result whose slot is read later or is an output of the step.
bool pickResult(Mutant &m, Random &random, Site &block, size_t &at) {
  auto needed = [&](const Site &site) {
    std::vector<size_t> list;
    const std::vector<BlockResult> &results = site.block(m.program).results;
    for (size_t i = 0; i < results.size(); ++i) {
      Role role = m.program.stages[site.stage].slots[results[i].slot].role;
      if (role != Role::Residual || isReadElsewhere(m.program, site.stage, results[i].slot))
        list.push_back(i);
    }
    return list;
  };
  return pickIn(m, random, needed, block, at);
}

/// Adds the names of a result's slot and of the instruction that makes it.
void nameResult(Mutant &m, const Site &block, const BlockResult &result) {
  m.names.push_back(slotName(m.program, block.stage, result.slot));
  for (const Instruction &it : block.block(m.program).instructions)
    if (std::count(it.results.begin(), it.results.end(), result.value))
      m.names.push_back(inQuotes(it.id));
}

bool dropResult(Mutant &m, Random &random) {
  Site block;
  size_t at = 0;
  if (!pickResult(m, random, block, at))
    return false;
  std::vector<BlockResult> &results = block.block(m.program).results;
  // With one rank, the loss summed over ranks may be an argument unchanged.
  const Block &code = block.block(m.program);
  bool isArgument = std::any_of(code.arguments.begin(), code.arguments.end(),
                                [&](const Argument &a) { return a.value == results[at].value; });
  if (isArgument && block.kind == Kind::Update)
    return false;
  nameResult(m, block, results[at]);
  results.erase(results.begin() + int64_t(at));
  return true;
}

bool doubleResult(Mutant &m, Random &random) {
  Site block;
  size_t at = 0;
  if (!pickResult(m, random, block, at))
    return false;
  std::vector<BlockResult> &results = block.block(m.program).results;
  nameResult(m, block, results[at]);
  results.push_back(BlockResult(results[at]));
  return true;
}

/// Whether the slot gets one value in a step, which may be written as well as added to zeros.
bool isOnlyTerm(const Program &program, int stage, int slot) {
  int64_t terms = 0;
  for (program::BlockId id : program.stages[stage].blocks())
    if (id.kind != Kind::Update)
      for (const BlockResult &result : program.stages[stage].block(id).results)
        terms += result.slot == slot ? program.microBatches : 0;
  return terms == 1;
}

bool flipAccumulation(Mutant &m, Random &random) {
  Site block;
  size_t at = 0;
  if (!pickResult(m, random, block, at))
    return false;
  BlockResult &result = block.block(m.program).results[at];
  if (result.accumulate && isOnlyTerm(m.program, block.stage, result.slot))
    return false;
  nameResult(m, block, result);
  result.accumulate = !result.accumulate;
  return true;
}

/// Reads a slot, or writes a constant to it, although its role is invalid for this kind of block.
bool useWrongSlot(Mutant &m, Random &random, bool isWrite) {
  struct Wrong {
    Kind kind;
    Role role;
  };
  static const std::vector<Wrong> writes = {
      {Kind::Forward, Role::Parameter},      {Kind::Backward, Role::Parameter},
      {Kind::Forward, Role::OptimizerState}, {Kind::Backward, Role::OptimizerState},
      {Kind::Backward, Role::State},         {Kind::Update, Role::State},
      {Kind::Backward, Role::Residual},      {Kind::Update, Role::Residual},
      {Kind::Forward, Role::Gradient},       {Kind::Forward, Role::Input},
      {Kind::Backward, Role::Input},         {Kind::Update, Role::Input},
      {Kind::Update, Role::Scalar},          {Kind::Forward, Role::Scalar}};
  static const std::vector<Wrong> reads = {{Kind::Forward, Role::Residual},
                                           {Kind::Update, Role::Residual},
                                           {Kind::Update, Role::Input},
                                           {Kind::Forward, Role::Gradient},
                                           {Kind::Backward, Role::Loss}};
  const std::vector<Wrong> &kinds = isWrite ? writes : reads;
  Wrong wrong = kinds[below(random, kinds.size())];
  Site block;
  size_t slot = 0;
  auto ofRole = [&](const Site &site) {
    std::vector<size_t> list;
    const std::vector<Slot> &slots = m.program.stages[site.stage].slots;
    // A later chunk may read residuals of an earlier one.
    bool isLater = !isWrite && wrong.role == Role::Residual && site.chunk > 0;
    for (size_t i = 0; i < slots.size() && site.kind == wrong.kind && !isLater; ++i)
      if (slots[i].role == wrong.role)
        list.push_back(i);
    return list;
  };
  if (!pickIn(m, random, ofRole, block, slot))
    return false;
  kernels::TensorType type = m.program.stages[block.stage].slots[slot].type;
  m.names = {slotName(m.program, block.stage, int(slot))};
  if (isWrite) {
    ValueId value = insertKernel(m.program, block, "constant", {}, type);
    block.block(m.program).results.push_back({value, int(slot), false});
  } else {
    ValueId value = newValue(m.program, block.stage, type);
    block.block(m.program).arguments.push_back({value, int(slot)});
  }
  return true;
}
bool writeWrongSlot(Mutant &m, Random &random) { return useWrongSlot(m, random, true); }
bool readWrongSlot(Mutant &m, Random &random) { return useWrongSlot(m, random, false); }

/// The result of a collective is unused; its operand is used instead.
bool ignoreCollective(Mutant &m, Random &random) {
  Site site;
  auto keepsType = [&](const Instruction &it, const Site &at) {
    const std::vector<kernels::TensorType> &values = m.program.stages[at.stage].values;
    return it.kind == InstructionKind::AllReduce && !it.operands.empty() &&
           values[it.operands[0]] == values[it.results[0]];
  };
  if (!pickSite(m.program, random, keepsType, site))
    return false;
  const Instruction &it = site.in(m.program);
  m.names = {inQuotes(it.id)};
  replaceReads(site.block(m.program), it.results[0], it.operands[0], site.index);
  return true;
}

/// The only reader of a kernel's result reads another value of the same type.
bool ignoreKernel(Mutant &m, Random &random) {
  std::vector<std::pair<Site, ValueId>> places; // the reader and another operand
  std::vector<size_t> operandOf;
  std::vector<std::string> ids;
  for (const Site &site : sitesOf(m.program, [](const Instruction &it, const Site &) {
         return it.kind == InstructionKind::Kernel && it.results.size() == 1;
       })) {
    const Instruction &it = site.in(m.program);
    if (readersOf(m.program, site, it.results[0]).size() != 1)
      continue;
    const std::vector<Instruction> &list = site.block(m.program).instructions;
    for (size_t i = site.index + 1; i < list.size(); ++i)
      for (size_t o = 0; o < list[i].operands.size(); ++o) {
        bool isRead = list[i].operands[o] == it.results[0];
        bool isOnce = std::count(list[i].operands.begin(), list[i].operands.end(), it.results[0]);
        const auto &values = m.program.stages[site.stage].values;
        bool fits = !it.operands.empty() && values[it.operands[0]] == values[it.results[0]];
        if (isRead && isOnce && fits && list[i].operands.size() == 1) {
          places.push_back({{site.stage, site.kind, i, site.chunk}, it.operands[0]});
          operandOf.push_back(o);
          ids.push_back(it.id);
        }
      }
  }
  if (places.empty())
    return false;
  size_t at = below(random, places.size());
  m.names = {inQuotes(ids[at])};
  places[at].first.in(m.program).operands[operandOf[at]] = places[at].second;
  return true;
}

/// Removes the whole update of an untied weight.
bool forgetUpdate(Mutant &m, Random &random) {
  Site site;
  auto isStep = [&](const Instruction &it, const Site &at) {
    // The gradient comes from its slot without a collective between stages, and has no other
    // reader.
    if (it.op != "sgd_momentum" || readersOf(m.program, at, it.operands[1]).size() != 1)
      return false;
    ValueId g = it.operands[1];
    const std::vector<Instruction> &list = at.block(m.program).instructions;
    for (size_t i = at.index; i-- > 0;)
      if (!list[i].results.empty() && list[i].results[0] == g) {
        if (isMeeting(m.program, list[i]) || list[i].kind == InstructionKind::Kernel)
          return false;
        g = list[i].operands[0];
        if (readersOf(m.program, at, g).size() != 1)
          return false;
      }
    return true;
  };
  if (!pickSite(m.program, random, isStep, site))
    return false;
  Block &block = site.block(m.program);
  std::set<int> slots;
  for (size_t r = 0; r < block.results.size();) {
    std::vector<std::string> readers;
    for (ValueId value : site.in(m.program).results)
      for (const std::string &name : readersOf(m.program, site, value, true))
        readers.push_back(name);
    std::string name = slotName(m.program, site.stage, block.results[r].slot);
    bool isIts = std::count(readers.begin(), readers.end(), name) != 0;
    if (isIts)
      slots.insert(block.results[r].slot);
    ++r;
  }
  std::string weight = "";
  for (int slot : slots) {
    const Slot &it = m.program.stages[site.stage].slots[slot];
    if (it.role == Role::Parameter)
      weight = it.name;
  }
  if (m.program.tensorIndex(weight) < 0)
    return false;
  m.names = {"slot " + inQuotes(weight + ".grad"), "slot " + inQuotes(weight + ".grad.reduced"),
             inQuotes(weight)};
  auto isGone = [&](const BlockResult &result) { return slots.count(result.slot) != 0; };
  block.results.erase(std::remove_if(block.results.begin(), block.results.end(), isGone),
                      block.results.end());
  removeUnused(block);
  return true;
}

//===----------------------------------------------------------------------===//
// Schedules
//===----------------------------------------------------------------------===//

using Actions = std::vector<schedule::Action>;

/// Turns the schedule into a table and returns the actions of a random stage.
Actions &someActions(Mutant &m, Random &random, int &stage) {
  if (m.program.schedule.generator != "table") {
    for (int s = 0; s < m.program.numStages(); ++s)
      m.program.schedule.table.push_back(scheduledActions(m.program, s));
    m.program.schedule.generator = "table";
  }
  stage = int(below(random, m.program.stages.size()));
  m.names = {"stage " + std::to_string(stage) + ", schedule"};
  return m.program.schedule.table[size_t(stage)];
}

size_t positionOf(const Actions &actions, Kind kind, int64_t microBatch) {
  return size_t(std::find(actions.begin(), actions.end(), schedule::Action{kind, microBatch}) -
                actions.begin());
}

bool backwardFirst(Mutant &m, Random &random) {
  int stage = 0;
  Actions &actions = someActions(m, random, stage);
  int64_t microBatch = int64_t(below(random, size_t(m.program.microBatches)));
  std::swap(actions[positionOf(actions, Kind::Forward, microBatch)],
            actions[positionOf(actions, Kind::Backward, microBatch)]);
  return true;
}
/// Runs wgrad before its dgrad.
bool weightFirst(Mutant &m, Random &random) {
  int stage = 0;
  Actions &actions = someActions(m, random, stage);
  int64_t microBatch = int64_t(below(random, size_t(m.program.microBatches)));
  size_t weight = positionOf(actions, Kind::Weight, microBatch);
  if (weight == actions.size())
    return false;
  std::swap(actions[positionOf(actions, Kind::Backward, microBatch)], actions[weight]);
  return true;
}
/// Replaces a block of one chunk by another chunk's.
bool otherChunk(Mutant &m, Random &random) {
  int stage = 0;
  Actions &actions = someActions(m, random, stage);
  int numChunks = int(m.program.stages[size_t(stage)].chunks.size());
  schedule::Action &action = actions[below(random, actions.size() - 1)];
  if (numChunks < 2)
    return false;
  action.chunk = (action.chunk + 1) % numChunks;
  return true;
}
bool doubleAction(Mutant &m, Random &random) {
  int stage = 0;
  Actions &actions = someActions(m, random, stage);
  size_t at = below(random, actions.size());
  actions.insert(actions.begin() + int64_t(at), schedule::Action(actions[at]));
  return true;
}
bool dropAction(Mutant &m, Random &random) {
  int stage = 0;
  Actions &actions = someActions(m, random, stage);
  actions.erase(actions.begin() + int64_t(below(random, actions.size())));
  return true;
}
bool updateEarly(Mutant &m, Random &random) {
  int stage = 0;
  Actions &actions = someActions(m, random, stage);
  size_t at = below(random, actions.size() - 1);
  std::rotate(actions.begin() + int64_t(at), actions.end() - 1, actions.end());
  return true;
}

/// One stage swaps the order of two micro-batches, unlike its neighbours.
bool otherOrder(Mutant &m, Random &random) {
  if (m.program.numStages() < 2 || m.program.microBatches < 2)
    return false;
  int stage = 0;
  Actions &actions = someActions(m, random, stage);
  for (const Slot &slot : m.program.stages[size_t(stage)].slots)
    if (slot.name.rfind("pass.", 0) == 0)
      return false; // a chunk of the stage would run before one it waits for
  Kind kind = below(random, 2) ? Kind::Forward : Kind::Backward;
  if (kind == Kind::Backward && m.program.stages[size_t(stage)].chunks[0].hasLastBackward())
    return false; // the last one would come before others
  int64_t a = int64_t(below(random, size_t(m.program.microBatches)));
  int64_t b = (a + 1) % m.program.microBatches;
  std::swap(actions[positionOf(actions, kind, a)], actions[positionOf(actions, kind, b)]);
  for (int64_t microBatch : {a, b})
    if (positionOf(actions, Kind::Forward, microBatch) >
            positionOf(actions, Kind::Backward, microBatch) ||
        positionOf(actions, Kind::Backward, microBatch) >
            positionOf(actions, Kind::Weight, microBatch)) // or without wgrad
      return false;                                        // that would violate another property
  m.names.clear();
  for (const Site &site : sitesOf(m.program, [&](const Instruction &it, const Site &at) {
         bool isMessage = it.kind == InstructionKind::Send || it.kind == InstructionKind::Recv;
         return isMessage && (at.stage == stage || it.comm.peerStage == stage);
       }))
    m.names.push_back(inQuotes(site.in(m.program).id));
  return true;
}

} // namespace

std::vector<NamedMutator> dataflowMutators() {
  return {{"DropInstruction", dropInstruction},
          {"DoubleInstruction", doubleInstruction},
          {"MoveBehindReader", moveBehindReader},
          {"ReadUndefined", readUndefined},
          {"ReadOtherBlock", readOtherBlock},
          {"DropArgument", dropArgument},
          {"DropResult", dropResult},
          {"DoubleResult", doubleResult},
          {"FlipAccumulation", flipAccumulation},
          {"WriteWrongSlot", writeWrongSlot},
          {"ReadWrongSlot", readWrongSlot},
          {"IgnoreCollective", ignoreCollective},
          {"IgnoreKernel", ignoreKernel},
          {"ForgetUpdate", forgetUpdate},
          {"BackwardFirst", backwardFirst},
          {"WeightFirst", weightFirst},
          {"OtherChunk", otherChunk},
          {"DoubleAction", doubleAction},
          {"DropAction", dropAction},
          {"UpdateEarly", updateEarly},
          {"OtherOrder", otherOrder}};
}

} // namespace tbc::verify
