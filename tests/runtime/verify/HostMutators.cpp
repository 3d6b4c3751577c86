//===- HostMutators.cpp - Wrong copies to and from the host ----------------===//
//
// Random programs have no slots on the host. Each mutator first moves some slots there.
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/support/HostSlots.h"
#include "tests/runtime/verify/MutationSite.h"

#include <algorithm>

namespace tbc::verify {
namespace {

using namespace tbc::program;
using Random = std::mt19937;

/// Moves some slots to the host and picks a copy of this kind.
bool pickCopy(Mutant &m, Random &random, InstructionKind kind, Site &site) {
  moveToHost(m.program, random);
  return pickSite(
      m.program, random, [&](const Instruction &it, const Site &) { return it.kind == kind; },
      site);
}

/// Adds the names of the slots of an argument or a result.
void nameSlots(Mutant &m, const Site &site, ValueId value) {
  const Block &block = site.block(m.program);
  for (const Argument &argument : block.arguments)
    if (argument.value == value)
      m.names.push_back(slotName(m.program, site.stage, argument.slot));
  for (const BlockResult &result : block.results)
    if (result.value == value)
      m.names.push_back(slotName(m.program, site.stage, result.slot));
}

/// Readers of the device copy read the host value instead.
bool dropFetch(Mutant &m, Random &random) {
  Site site;
  if (!pickCopy(m, random, InstructionKind::Fetch, site))
    return false;
  Instruction copy = site.in(m.program);
  nameSite(m, site);
  nameSlots(m, site, copy.results[0]);
  nameSlots(m, site, copy.operands[0]);
  Block &block = site.block(m.program);
  replaceReads(block, copy.results[0], copy.operands[0]);
  erase(m.program, site);
  return true;
}

/// Writes a device value to a host slot.
bool dropOffload(Mutant &m, Random &random) {
  Site site;
  if (!pickCopy(m, random, InstructionKind::Offload, site))
    return false;
  Instruction copy = site.in(m.program);
  nameSlots(m, site, copy.results[0]);
  Block &block = site.block(m.program);
  replaceReads(block, copy.results[0], copy.operands[0]);
  erase(m.program, site);
  return true;
}

/// Turns an offload into a fetch, or a fetch into an offload.
bool turnCopy(Mutant &m, Random &random) {
  bool isFetch = below(random, 2);
  Site site;
  if (!pickCopy(m, random, isFetch ? InstructionKind::Fetch : InstructionKind::Offload, site))
    return false;
  nameSite(m, site);
  nameSlots(m, site, site.in(m.program).results[0]);
  site.in(m.program).kind = isFetch ? InstructionKind::Offload : InstructionKind::Fetch;
  return true;
}

/// Offloads the result of a kernel although its slot is on the device.
bool offloadForTheDevice(Mutant &m, Random &random) {
  Site site;
  if (!pickCopy(m, random, InstructionKind::Offload, site))
    return false;
  ValueId made = site.in(m.program).results[0];
  for (const BlockResult &result : site.block(m.program).results)
    if (result.value == made) {
      Slot &slot = m.program.stages[size_t(site.stage)].slots[size_t(result.slot)];
      m.names.push_back(inQuotes(slot.name));
      slot.location = Location::Device;
    }
  // Fetches of this slot now read a device value.
  for (const Site &fetch : sitesOf(m.program, [&](const Instruction &it, const Site &at) {
         return it.kind == InstructionKind::Fetch && at.stage == site.stage;
       }))
    nameSite(m, fetch);
  return !m.names.empty();
}

/// Fetches a residual that is never written.
bool neverOffload(Mutant &m, Random &random) {
  moveToHost(m.program, random);
  std::vector<std::pair<int, int>> slots;
  for (int s = 0; s < m.program.numStages(); ++s)
    for (int i = 0; i < int(m.program.stages[size_t(s)].slots.size()); ++i) {
      const Slot &slot = m.program.stages[size_t(s)].slots[size_t(i)];
      if (slot.location == Location::Host && slot.role == Role::Residual)
        slots.push_back({s, i});
    }
  if (slots.empty())
    return false;
  auto [stage, slot] = slots[below(random, slots.size())];
  bool any = false;
  for (BlockId id : m.program.stages[size_t(stage)].blocks()) {
    Block &block = m.program.stages[size_t(stage)].block(id);
    auto isIts = [&, slot = slot](const BlockResult &result) { return result.slot == slot; };
    auto first = std::find_if(block.results.begin(), block.results.end(), isIts);
    if (first == block.results.end())
      continue;
    for (size_t i = 0; i < block.instructions.size(); ++i)
      if (block.instructions[i].results == std::vector<ValueId>{first->value})
        m.names.push_back(inQuotes(block.instructions[i].id));
    block.results.erase(first);
    any = true;
  }
  m.names.push_back(slotName(m.program, stage, slot));
  return any;
}

} // namespace

std::vector<NamedMutator> hostMutators() {
  return {{"DropFetch", dropFetch},
          {"DropOffload", dropOffload},
          {"TurnCopy", turnCopy},
          {"OffloadForTheDevice", offloadForTheDevice},
          {"NeverOffload", neverOffload}};
}

} // namespace tbc::verify
