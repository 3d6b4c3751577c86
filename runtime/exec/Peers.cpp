//===- Peers.cpp - The groups and messages of a Program ----------------------===//

#include "runtime/exec/Peers.h"

#include <algorithm>
#include <set>

namespace tbc::runtime {

using program::Instruction;
using program::InstructionKind;

static bool isMessage(const Instruction &instruction) {
  return instruction.kind == InstructionKind::Send || instruction.kind == InstructionKind::Recv;
}

static bool isCollective(const Instruction &instruction) {
  switch (instruction.kind) {
  case InstructionKind::AllReduce:
  case InstructionKind::AllGather:
  case InstructionKind::ReduceScatter:
  case InstructionKind::AllToAll:
  case InstructionKind::Permute:
    return true;
  default:
    return false;
  }
}

/// Returns the instructions of a stage that communicate with other ranks, without duplicates.
static std::vector<const Instruction *> distinct(const program::Stage &stage) {
  std::vector<const Instruction *> list;
  auto isSame = [](const Instruction &a, const Instruction &b) {
    return isMessage(a) == isMessage(b) && a.kind == b.kind && a.comm.axes == b.comm.axes &&
           a.comm.stages == b.comm.stages && a.comm.peerStage == b.comm.peerStage &&
           a.comm.lane == b.comm.lane;
  };
  for (program::BlockId id : stage.blocks())
    for (const Instruction &instruction : stage.block(id).instructions)
      if ((isMessage(instruction) || isCollective(instruction)) &&
          std::none_of(list.begin(), list.end(),
                       [&](const Instruction *one) { return isSame(*one, instruction); }))
        list.push_back(&instruction);
  return list;
}

static void addTo(std::vector<std::vector<comm::Group>> &partitions, const comm::Group &group) {
  auto overlaps = [&](const comm::Group &other) {
    return std::find_first_of(other.begin(), other.end(), group.begin(), group.end()) !=
           other.end();
  };
  for (std::vector<comm::Group> &partition : partitions)
    if (std::none_of(partition.begin(), partition.end(), overlaps)) {
      partition.push_back(group);
      return;
    }
  partitions.push_back({group});
}

Peers peersOf(const program::Program &program) {
  std::vector<std::vector<const Instruction *>> byStage;
  for (const program::Stage &stage : program.stages)
    byStage.push_back(distinct(stage));
  std::vector<comm::Group> groups; // in the order of first use
  std::set<comm::Group> known;
  std::set<comm::MessagePair> messages;
  for (int64_t rank = 0; rank < program.mesh.numRanks(); ++rank) {
    std::vector<int64_t> coordinates = program.mesh.coordinates(rank);
    for (const Instruction *instruction : byStage[size_t(program.stageOf(coordinates))]) {
      if (!isMessage(*instruction)) {
        comm::Group group = program::groupOf(program, instruction->comm, coordinates);
        if (group.size() > 1 && known.insert(group).second)
          groups.push_back(group);
        continue;
      }
      std::vector<int64_t> peer = coordinates;
      peer[size_t(program.pipelineAxis)] = instruction->comm.peerStage;
      int64_t other = program.mesh.rankOf(peer);
      if (instruction->kind == InstructionKind::Send)
        messages.insert({rank, other, instruction->comm.lane});
      else
        messages.insert({other, rank, instruction->comm.lane});
    }
  }
  Peers peers;
  for (const comm::Group &group : groups)
    addTo(peers.partitions, group);
  peers.messages.assign(messages.begin(), messages.end());
  return peers;
}

} // namespace tbc::runtime
