//===- CommunicationMutators.cpp - Mismatched communication ----------------===//

#include "tests/runtime/verify/MutationSite.h"

#include <algorithm>

namespace tbc::verify {
namespace {

using namespace tbc::program;
using Random = std::mt19937;

bool isMessage(const Instruction &it, const Site &) {
  return it.kind == InstructionKind::Send || it.kind == InstructionKind::Recv;
}

bool pickMessage(Mutant &m, Random &random, Site &site) {
  if (!pickSite(m.program, random, isMessage, site))
    return false;
  m.names = {inQuotes(site.in(m.program).id)};
  addNames(m, counterparts(m.program, site));
  return true;
}

bool pickMeeting(Mutant &m, Random &random, Site &site) {
  auto fits = [&](const Instruction &it, const Site &) { return isMeeting(m.program, it); };
  if (!pickSite(m.program, random, fits, site))
    return false;
  m.names = {inQuotes(site.in(m.program).id)};
  addNames(m, counterparts(m.program, site));
  return true;
}

bool changeChannel(Mutant &m, Random &random) {
  Site site;
  if (!pickMessage(m, random, site))
    return false;
  site.in(m.program).comm.channel += 5000 + int64_t(below(random, 5));
  return true;
}

bool changePeer(Mutant &m, Random &random) {
  Site site;
  if (m.program.numStages() < 3 || !pickMessage(m, random, site))
    return false;
  int &peer = site.in(m.program).comm.peerStage, old = peer;
  while (peer == old || peer == site.stage)
    peer = int(below(random, m.program.stages.size()));
  addNames(m, counterparts(m.program, site));
  return true;
}

/// Replaces a receive by a constant, so that its send has no counterpart.
bool receiveInstead(Mutant &m, Random &random) {
  Site site;
  if (!pickMessage(m, random, site) || site.in(m.program).kind != InstructionKind::Recv)
    return false;
  Instruction &recv = site.in(m.program);
  addNames(m, readersOf(m.program, site, recv.results[0]));
  recv.kind = InstructionKind::Kernel;
  recv.op = "constant";
  recv.comm = {};
  return true;
}

bool swapMessages(Mutant &m, Random &random) {
  std::vector<std::pair<Site, Site>> pairs;
  std::vector<Site> sites = sitesOf(m.program, isMessage);
  for (const Site &a : sites)
    for (const Site &b : sites)
      if (a.stage == b.stage && a.kind == b.kind && a.index < b.index &&
          a.in(m.program).kind == b.in(m.program).kind &&
          a.in(m.program).comm.peerStage == b.in(m.program).comm.peerStage)
        pairs.push_back({a, b});
  if (pairs.empty())
    return false;
  auto [a, b] = pairs[below(random, pairs.size())];
  m.names = {inQuotes(a.in(m.program).id), inQuotes(b.in(m.program).id)};
  addNames(m, counterparts(m.program, a));
  std::swap(a.in(m.program).comm.channel, b.in(m.program).comm.channel);
  return true;
}

/// Both ends agree, but two messages have the same channel.
bool shareChannel(Mutant &m, Random &random) {
  std::vector<Site> sites = sitesOf(m.program, isMessage);
  std::vector<std::pair<Site, Site>> pairs; // sends of one stage to another
  for (const Site &a : sites)
    for (const Site &b : sites)
      if (a.stage == b.stage && (a.kind != b.kind || a.index != b.index) &&
          a.in(m.program).kind == InstructionKind::Send &&
          b.in(m.program).kind == InstructionKind::Send &&
          a.in(m.program).comm.peerStage == b.in(m.program).comm.peerStage)
        pairs.push_back({a, b});
  if (pairs.empty())
    return false;
  auto [a, b] = pairs[below(random, pairs.size())];
  int64_t from = a.in(m.program).comm.channel, to = b.in(m.program).comm.channel;
  m.names = {inQuotes(a.in(m.program).id), inQuotes(b.in(m.program).id)};
  addNames(m, counterparts(m.program, a));
  for (const Site &site : sites) {
    Communication &comm = site.in(m.program).comm;
    bool isEither = (site.stage == a.stage && comm.peerStage == a.in(m.program).comm.peerStage &&
                     site.in(m.program).kind == InstructionKind::Send) ||
                    (site.stage == a.in(m.program).comm.peerStage && comm.peerStage == a.stage &&
                     site.in(m.program).kind == InstructionKind::Recv);
    if (isEither && comm.channel == from)
      comm.channel = to;
  }
  return true;
}

/// Sends a value converted to another shape or dtype.
bool sendOther(Mutant &m, Random &random, bool isType) {
  Site site;
  if (!pickMessage(m, random, site) || site.in(m.program).kind != InstructionKind::Send)
    return false;
  ValueId old = site.in(m.program).operands[0];
  kernels::TensorType type = m.program.stages[site.stage].values[old];
  if (isType)
    type.dtype = kernels::DType::BF16;
  else if (below(random, 2))
    type.shape.push_back(1);
  else
    type.shape[0] += 1;
  ValueId other = insertKernel(m.program, site, "cast", {old}, type);
  ++site.index;
  site.in(m.program).operands[0] = other;
  return true;
}
bool resizeMessage(Mutant &m, Random &random) { return sendOther(m, random, false); }
bool retypeMessage(Mutant &m, Random &random) { return sendOther(m, random, true); }

bool changeReduction(Mutant &m, Random &random) {
  Site site;
  if (!pickMeeting(m, random, site))
    return false;
  site.in(m.program).comm.reduce = ReduceKind::Max;
  return true;
}

/// One stage has another list of stages for a collective.
bool changeStages(Mutant &m, Random &random) {
  Site site;
  if (m.program.numStages() < 3 || !pickMeeting(m, random, site))
    return false;
  std::vector<int> &stages = site.in(m.program).comm.stages;
  bool isAll = stages.empty();
  for (int s = 0; isAll && s < m.program.numStages(); ++s)
    stages.push_back(s);
  int other = 0;
  do
    other = int(below(random, m.program.stages.size()));
  while (other == site.stage);
  auto found = std::find(stages.begin(), stages.end(), other);
  if (found != stages.end() && stages.size() == 2)
    return false; // it would be alone
  if (found != stages.end())
    stages.erase(found);
  else
    stages.insert(std::lower_bound(stages.begin(), stages.end(), other), other);
  return true;
}

bool changeMeetingAxes(Mutant &m, Random &random) {
  Site site;
  if (!pickMeeting(m, random, site))
    return false;
  std::vector<AxisRef> &axes = site.in(m.program).comm.axes;
  if (axes.size() != 1)
    return false;
  int axis = int(below(random, m.program.mesh.axes.size()));
  if (axis == m.program.pipelineAxis || m.program.mesh.axes[axis].size == 1)
    return false;
  axes.push_back(wholeAxis(m.program.mesh, axis));
  return true;
}

/// One stage skips a collective and uses its operand instead.
bool missMeeting(Mutant &m, Random &random) {
  Site site;
  if (!pickMeeting(m, random, site))
    return false;
  Instruction it = site.in(m.program);
  erase(m.program, site);
  replaceReads(site.block(m.program), it.results[0], it.operands[0]);
  return true;
}

/// One stage takes part with a tensor of another shape.
bool resizeMeeting(Mutant &m, Random &random) {
  Site site;
  if (!pickMeeting(m, random, site))
    return false;
  Instruction it = site.in(m.program);
  kernels::TensorType old = m.program.stages[site.stage].values[it.operands[0]], type = old;
  type.shape.push_back(2);
  ValueId in = insertKernel(m.program, site, "broadcast", {it.operands[0]}, type);
  ++site.index;
  ValueId out = newValue(m.program, site.stage, type);
  site.in(m.program).operands = {in};
  site.in(m.program).results = {out};
  ++site.index;
  ValueId back = insertKernel(m.program, site, "reduce_max", {out}, old);
  replaceReads(site.block(m.program), it.results[0], back);
  return true;
}

int commonStages(const Program &p, const Communication &a, const Communication &b) {
  auto has = [](const Communication &comm, int stage) {
    return comm.stages.empty() || std::count(comm.stages.begin(), comm.stages.end(), stage);
  };
  int common = 0;
  for (int stage = 0; stage < p.numStages(); ++stage)
    common += has(a, stage) && has(b, stage);
  return common;
}

/// Swaps two collectives between the same two stages. Each keeps its operand and result.
bool swapMeetings(Mutant &m, Random &random) {
  std::vector<Site> sites = sitesOf(
      m.program, [&](const Instruction &it, const Site &) { return isMeeting(m.program, it); });
  std::vector<std::pair<Site, Site>> pairs;
  for (const Site &a : sites)
    for (const Site &b : sites) {
      if (a.stage != b.stage || a.kind != b.kind || a.index >= b.index)
        continue;
      if (commonStages(m.program, a.in(m.program).comm, b.in(m.program).comm) < 2)
        continue;
      // No instruction between them may depend on the first.
      std::vector<std::string> readers = readersOf(m.program, a, a.in(m.program).results[0], true);
      bool depends = false;
      for (size_t i = a.index + 1; i <= b.index; ++i) {
        std::string id = inQuotes(a.block(m.program).instructions[i].id);
        depends |= std::count(readers.begin(), readers.end(), id) != 0;
      }
      if (!depends)
        pairs.push_back({a, b});
    }
  if (pairs.empty())
    return false;
  auto [a, b] = pairs[below(random, pairs.size())];
  m.names = {inQuotes(a.in(m.program).id), inQuotes(b.in(m.program).id)};
  addNames(m, counterparts(m.program, a));
  for (const Site &site : {a, b})
    addNames(m, readersOf(m.program, site, site.in(m.program).results[0], true));
  // Moves the first behind the second.
  std::vector<Instruction> &list = a.block(m.program).instructions;
  std::rotate(list.begin() + int64_t(a.index), list.begin() + int64_t(a.index) + 1,
              list.begin() + int64_t(b.index) + 1);
  return true;
}

/// At the start of update, two or three stages each receive from the next stage before they send to
/// the previous one. One of the waits may be a collective.
bool crossMessages(Mutant &m, Random &random) {
  int numStages = m.program.numStages();
  if (numStages < 2)
    return false;
  std::vector<int> ring;
  for (int s = 0; s < numStages; ++s)
    ring.push_back(s);
  std::shuffle(ring.begin(), ring.end(), random);
  ring.resize(size_t(2 + (numStages > 2 ? below(random, 2) : 0)));
  const kernels::TensorType type{kernels::DType::F32, {}};
  bool meets = below(random, 2) == 0 && ring.size() == 2;
  for (size_t i = 0; i < ring.size(); ++i) {
    int stage = ring[i];
    int from = ring[(i + 1) % ring.size()], to = ring[(i + ring.size() - 1) % ring.size()];
    std::string suffix = std::to_string(stage);
    std::vector<Instruction> first;
    ValueId received = newValue(m.program, stage, type), made = received;
    Communication in, out, meet;
    in.peerStage = from, in.channel = 9000;
    out.peerStage = to, out.channel = 9000;
    Instruction recv = {"early" + suffix, InstructionKind::Recv, "", {}, in, {}, {received}};
    if (!meets) {
      first = {recv, {"late" + suffix, InstructionKind::Send, "", {}, out, {received}, {}}};
    } else {
      // One stage waits for a message, but the other sends it only after their collective.
      made = newValue(m.program, stage, type);
      ValueId met = newValue(m.program, stage, type);
      meet.axes = {wholeAxis(m.program.mesh, m.program.pipelineAxis)};
      meet.stages = {std::min(ring[0], ring[1]), std::max(ring[0], ring[1])};
      Instruction make = {"make" + suffix, InstructionKind::Kernel, "constant", {}, {}, {}, {made}};
      if (i == 0) {
        first = {recv,
                 {"meet" + suffix, InstructionKind::AllReduce, "", {}, meet, {received}, {met}}};
        m.program.stages[stage].slots.push_back({"met", Role::Gradient, -1, type});
        int slot = int(m.program.stages[stage].slots.size()) - 1;
        m.program.stages[stage].update.results.push_back({met, slot, false});
      } else {
        first = {make,
                 {"meet" + suffix, InstructionKind::AllReduce, "", {}, meet, {made}, {met}},
                 {"late" + suffix, InstructionKind::Send, "", {}, out, {met}, {}}};
      }
    }
    std::vector<Instruction> &list = m.program.stages[stage].update.instructions;
    list.insert(list.begin(), first.begin(), first.end());
    addNames(m, {inQuotes("early" + suffix), inQuotes("meet" + suffix)});
  }
  return true;
}

} // namespace

std::vector<NamedMutator> communicationMutators() {
  return {{"ChangeChannel", changeChannel},   {"ChangePeer", changePeer},
          {"ReceiveNothing", receiveInstead}, {"SwapMessages", swapMessages},
          {"ShareChannel", shareChannel},     {"ResizeMessage", resizeMessage},
          {"RetypeMessage", retypeMessage},   {"ChangeReduction", changeReduction},
          {"ChangeStages", changeStages},     {"ChangeMeetingAxes", changeMeetingAxes},
          {"MissMeeting", missMeeting},       {"ResizeMeeting", resizeMeeting},
          {"SwapMeetings", swapMeetings},     {"CrossMessages", crossMessages}};
}

} // namespace tbc::verify
