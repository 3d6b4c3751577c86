//===- MutationSite.cpp - Sites of a Program, for mutators ------------------===//

#include "tests/runtime/verify/MutationSite.h"

#include <algorithm>
#include <set>

namespace tbc::verify {

using namespace tbc::program;

std::string inQuotes(const std::string &name) { return "\"" + name + "\""; }
std::string slotName(const Program &p, int stage, int slot) {
  return "slot " + inQuotes(p.stages[size_t(stage)].slots[size_t(slot)].name);
}

std::vector<Site> sitesOf(Program &p, const SitePredicate &fits) {
  std::vector<Site> sites;
  for (int stage = 0; stage < p.numStages(); ++stage)
    for (BlockId id : p.stages[size_t(stage)].blocks())
      for (size_t i = 0; i < p.stages[size_t(stage)].block(id).instructions.size(); ++i) {
        Site site{stage, id.kind, i, id.chunk};
        if (fits(site.in(p), site))
          sites.push_back(site);
      }
  return sites;
}

bool pickSite(Program &p, std::mt19937 &random, const SitePredicate &fits, Site &site) {
  std::vector<Site> sites = sitesOf(p, fits);
  if (sites.empty())
    return false;
  site = sites[below(random, sites.size())];
  return true;
}

bool isGroup(const Program &p, const Instruction &instruction) {
  return instruction.kind != InstructionKind::Kernel && instruction.kind != InstructionKind::Send &&
         instruction.kind != InstructionKind::Recv &&
         groupSizeOf(instruction.comm, p.pipelineAxis) > 1;
}

bool isMeeting(const Program &p, const Instruction &instruction) {
  if (!isGroup(p, instruction) || p.pipelineAxis < 0 || instruction.comm.stages.size() == 1)
    return false;
  return p.numStages() > 1 &&
         std::any_of(instruction.comm.axes.begin(), instruction.comm.axes.end(),
                     [&](const AxisRef &axis) { return axis.axis == p.pipelineAxis; });
}

std::vector<std::string> counterparts(const Program &p, const Site &site) {
  Program &q = const_cast<Program &>(p);
  const Instruction &self = site.in(q);
  std::vector<std::string> ids;
  for (const Site &other : sitesOf(q, [&](const Instruction &it, const Site &at) {
         if (at.stage == site.stage)
           return false;
         if (isMeeting(p, self))
           return isMeeting(p, it);
         bool isMessage = it.kind == InstructionKind::Send || it.kind == InstructionKind::Recv;
         return isMessage && self.kind != it.kind && it.comm.peerStage == site.stage &&
                at.stage == self.comm.peerStage;
       }))
    ids.push_back(inQuotes(other.in(q).id));
  return ids;
}

/// `seen`: slots already followed.
static std::vector<std::string> readersOf(const Program &p, const Site &at, ValueId value,
                                          bool isDeep, std::set<int> &seen) {
  const Block &block = p.stages[size_t(at.stage)].block(at.id());
  std::set<ValueId> values = {value};
  std::vector<std::string> names;
  for (const Instruction &instruction : block.instructions) {
    bool reads = std::any_of(instruction.operands.begin(), instruction.operands.end(),
                             [&](ValueId operand) { return values.count(operand) != 0; });
    if (!reads)
      continue;
    names.push_back(inQuotes(instruction.id));
    if (isDeep)
      values.insert(instruction.results.begin(), instruction.results.end());
  }
  for (const BlockResult &result : block.results) {
    if (!values.count(result.value))
      continue;
    names.push_back(slotName(p, at.stage, result.slot));
    if (!isDeep || at.kind == Kind::Update || !seen.insert(result.slot).second)
      continue;
    // Other chunks, wgrad and update continue the chain of reads. Backward reads forward's values
    // from slots with names of their own.
    for (BlockId id : p.stages[size_t(at.stage)].blocks()) {
      bool readsOn = id.kind == at.kind || id.kind == Kind::Weight || id.kind == Kind::Update;
      for (const Argument &argument : p.stages[size_t(at.stage)].block(id).arguments)
        if (argument.slot == result.slot && readsOn && !(id == at.id()))
          for (const std::string &name :
               readersOf(p, {at.stage, id.kind, 0, id.chunk}, argument.value, true, seen))
            names.push_back(name);
    }
  }
  return names;
}

std::vector<std::string> readersOf(const Program &p, const Site &at, ValueId value, bool isDeep) {
  std::set<int> seen;
  return readersOf(p, at, value, isDeep, seen);
}

void addNames(Mutant &m, const std::vector<std::string> &names) {
  m.names.insert(m.names.end(), names.begin(), names.end());
}

void nameSite(Mutant &m, const Site &site, bool isDeep) {
  m.names.push_back(inQuotes(site.in(m.program).id));
  for (ValueId result : site.in(m.program).results)
    addNames(m, readersOf(m.program, site, result, isDeep));
}

ValueId newValue(Program &p, int stage, kernels::TensorType type) {
  p.stages[size_t(stage)].values.push_back(std::move(type));
  return ValueId(p.stages[size_t(stage)].values.size()) - 1;
}

ValueId insertKernel(Program &p, const Site &before, const std::string &op,
                     std::vector<ValueId> operands, kernels::TensorType type) {
  ValueId result = newValue(p, before.stage, std::move(type));
  std::vector<Instruction> &list = before.block(p).instructions;
  list.insert(list.begin() + int64_t(before.index),
              {"inserted", InstructionKind::Kernel, op, {}, {}, std::move(operands), {result}});
  return result;
}

void erase(Program &p, const Site &site) {
  std::vector<Instruction> &list = site.block(p).instructions;
  list.erase(list.begin() + int64_t(site.index));
}

void replaceReads(Block &block, ValueId from, ValueId to, size_t except) {
  for (size_t i = 0; i < block.instructions.size(); ++i)
    if (i != except)
      std::replace(block.instructions[i].operands.begin(), block.instructions[i].operands.end(),
                   from, to);
  for (BlockResult &result : block.results)
    result.value = result.value == from ? to : result.value;
}

void removeUnused(Block &block) {
  std::set<ValueId> isRead;
  for (const BlockResult &result : block.results)
    isRead.insert(result.value);
  for (size_t i = block.instructions.size(); i-- > 0;) {
    const Instruction &it = block.instructions[i];
    bool isUsed = it.results.empty() || std::any_of(it.results.begin(), it.results.end(),
                                                    [&](ValueId v) { return isRead.count(v); });
    if (isUsed)
      isRead.insert(it.operands.begin(), it.operands.end());
    else
      block.instructions.erase(block.instructions.begin() + int64_t(i));
  }
  auto isUnused = [&](const Argument &argument) { return !isRead.count(argument.value); };
  block.arguments.erase(std::remove_if(block.arguments.begin(), block.arguments.end(), isUnused),
                        block.arguments.end());
}

} // namespace tbc::verify
