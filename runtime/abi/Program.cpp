//===- Program.cpp - Groups, result times and sizes of a Program ----------===//

#include "runtime/abi/Program.h"
#include "runtime/abi/Order.h"

#include "runtime/kernels/Kernel.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace tbc::program {

std::string_view name(Role role) {
  switch (role) {
  case Role::Parameter:
    return "parameter";
  case Role::State:
    return "state";
  case Role::OptimizerState:
    return "optimizer_state";
  case Role::Gradient:
    return "gradient";
  case Role::Loss:
    return "loss";
  case Role::Input:
    return "input";
  case Role::Residual:
    return "residual";
  case Role::Scalar:
    return "scalar";
  }
  return "";
}

std::string_view name(Stream stream) {
  return stream == Stream::Compute ? "compute" : "communication";
}

std::string_view name(InstructionKind kind) {
  switch (kind) {
  case InstructionKind::Kernel:
    return "kernel";
  case InstructionKind::AllReduce:
    return "all_reduce";
  case InstructionKind::AllGather:
    return "all_gather";
  case InstructionKind::ReduceScatter:
    return "reduce_scatter";
  case InstructionKind::AllToAll:
    return "all_to_all";
  case InstructionKind::ShardSlice:
    return "shard_slice";
  case InstructionKind::Send:
    return "send";
  case InstructionKind::Recv:
    return "recv";
  case InstructionKind::Permute:
    return "permute";
  case InstructionKind::Offload:
    return "offload";
  case InstructionKind::Fetch:
    return "fetch";
  }
  return "";
}

Block &Stage::block(BlockId id) {
  return const_cast<Block &>(static_cast<const Stage &>(*this).block(id));
}

const Block &Stage::block(BlockId id) const {
  switch (id.kind) {
  case schedule::Action::Kind::Forward:
    return chunks[id.chunk].forward;
  case schedule::Action::Kind::Backward:
    return chunks[id.chunk].backward;
  case schedule::Action::Kind::LastBackward:
    return chunks[id.chunk].lastBackward;
  case schedule::Action::Kind::Weight:
    return chunks[id.chunk].weight;
  case schedule::Action::Kind::Update:
    break;
  }
  return update;
}

std::vector<BlockId> Stage::blocks() const {
  using Kind = schedule::Action::Kind;
  std::vector<BlockId> ids;
  int last = static_cast<int>(chunks.size()) - 1;
  for (int chunk = 0; chunk <= last; ++chunk)
    ids.push_back({Kind::Forward, chunk});
  for (Kind kind : {Kind::Backward, Kind::LastBackward, Kind::Weight})
    for (int chunk = last; chunk >= 0; --chunk)
      if (kind != Kind::LastBackward || chunks[chunk].hasLastBackward())
        ids.push_back({kind, chunk});
  ids.push_back(Kind::Update);
  return ids;
}

int Program::stageOf(const std::vector<int64_t> &coordinates) const {
  return pipelineAxis < 0 ? 0 : static_cast<int>(coordinates[pipelineAxis]);
}

int Program::tensorIndex(const std::string &name) const {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name)
      return static_cast<int>(i);
  }
  return -1;
}

schedule::Pipeline pipelineOf(const Program &program) {
  if (program.schedule.chunkStage.empty())
    return schedule::Pipeline::plain(program.numStages());
  return {program.numStages(), program.schedule.chunkStage};
}

std::vector<schedule::Action> scheduledActions(const Program &program, int stage) {
  if (program.schedule.generator == "table")
    return program.schedule.table[stage];
  std::optional<schedule::ScheduleKind> kind =
      schedule::parseScheduleKind(program.schedule.generator);
  assert(kind && "a well-formed program names a generator");
  return schedule::schedule(*kind, pipelineOf(program), program.microBatches, stage);
}

std::vector<schedule::Action> actionsOf(const Program &program, int stage) {
  using Kind = schedule::Action::Kind;
  std::vector<schedule::Action> actions = scheduledActions(program, stage);
  for (schedule::Action &action : actions)
    if (action.kind == Kind::Backward && action.microBatch == program.microBatches - 1 &&
        program.stages[stage].chunks[action.chunk].hasLastBackward())
      action.kind = Kind::LastBackward;
  return actions;
}

std::vector<int> resultTimes(const Stage &stage, const Block &block) {
  constexpr int before = -1;
  int end = static_cast<int>(block.instructions.size());
  std::array<int, numStreams> neverRead;
  neverRead.fill(before);
  std::vector<int> defined(stage.values.size(), before);
  std::vector<std::array<int, numStreams>> lastReads(stage.values.size(), neverRead);
  for (int i = 0; i < end; ++i) {
    for (ValueId value : block.instructions[i].operands)
      lastReads[value][int(block.instructions[i].stream)] = i;
    for (ValueId value : block.instructions[i].results)
      defined[value] = i;
  }
  std::vector<bool> isPassedOn(stage.values.size(), false);
  for (const BlockResult &result : block.results)
    isPassedOn[result.value] = true;
  // The last read of an argument of each slot, by stream.
  std::map<int, std::array<int, numStreams>> slotReads;
  for (const Argument &argument : block.arguments) {
    auto &last = slotReads.try_emplace(argument.slot, neverRead).first->second;
    for (int s = 0; s < numStreams; ++s)
      last[s] = std::max(last[s], isPassedOn[argument.value] ? end : lastReads[argument.value][s]);
  }
  memory::StreamOrder order(streamStepsOf(block));
  std::vector<int> times;
  for (const BlockResult &result : block.results) {
    std::vector<int> needed{defined[result.value]};
    if (auto read = slotReads.find(result.slot); read != slotReads.end())
      needed.insert(needed.end(), read->second.begin(), read->second.end());
    int last = *std::max_element(needed.begin(), needed.end()), time = last;
    for (int index : needed)
      if (index >= 0 && last < end && index != last && !order.isBefore(index, last))
        time = std::max({time, order.settled(index), order.settled(last)});
    times.push_back(time);
  }
  // Writes and additions to one slot happen one after the other.
  std::map<int, std::vector<std::pair<int, size_t>>> ofSlot;
  for (size_t r = 0; r < times.size(); ++r)
    ofSlot[block.results[r].slot].push_back({times[r], r});
  for (auto &[slot, list] : ofSlot) {
    std::sort(list.begin(), list.end());
    for (size_t k = 1; k < list.size(); ++k) {
      int earlier = times[list[k - 1].second];
      int &time = times[list[k].second];
      time = std::max(time, earlier);
      if (earlier >= 0 && time < end && time != earlier && !order.isBefore(earlier, time))
        time = std::max(order.settled(earlier), order.settled(time));
    }
  }
  return times;
}

std::vector<memory::StreamStep> streamStepsOf(const Block &block) {
  std::vector<memory::StreamStep> steps;
  for (const Instruction &instruction : block.instructions)
    steps.push_back({int(instruction.stream), instruction.waits});
  return steps;
}

std::vector<bool> valuesOnHost(const Stage &stage) {
  std::vector<bool> isOnHost(stage.values.size(), false);
  for (BlockId id : stage.blocks()) {
    const Block &block = stage.block(id);
    for (const Argument &argument : block.arguments)
      isOnHost[argument.value] = stage.slots[argument.slot].location == Location::Host;
    for (const Instruction &instruction : block.instructions)
      if (instruction.kind == InstructionKind::Offload)
        isOnHost[instruction.results[0]] = true;
  }
  return isOnHost;
}

int64_t slotOffset(const Stage &stage, int slot, int64_t microBatch) {
  const SlotPlace &place = stage.memory.slots[slot];
  if (place.frame < 0)
    return place.offset;
  const std::vector<int64_t> &offsets = stage.memory.frames[place.frame].offsets;
  return offsets[size_t(microBatch) % offsets.size()] + place.offset;
}

bool mayOverwriteOperands(const Instruction &instruction) {
  return instruction.kind == InstructionKind::Kernel &&
         kernels::isElementwiseKernel(instruction.op);
}

std::vector<int64_t> groupOf(const Program &program, const Communication &comm,
                             const std::vector<int64_t> &coordinates) {
  std::vector<int64_t> ranks = groupRanks(program.mesh, comm.axes, coordinates);
  if (comm.stages.empty())
    return ranks;
  auto elsewhere = [&](int64_t rank) {
    int stage = program.stageOf(program.mesh.coordinates(rank));
    return !std::binary_search(comm.stages.begin(), comm.stages.end(), stage);
  };
  ranks.erase(std::remove_if(ranks.begin(), ranks.end(), elsewhere), ranks.end());
  return ranks;
}

int64_t groupSizeOf(const Communication &comm, int pipelineAxis) {
  int64_t size = 1;
  for (const AxisRef &axis : comm.axes) {
    bool someStages = axis.axis == pipelineAxis && !comm.stages.empty();
    size *= someStages ? static_cast<int64_t>(comm.stages.size()) : axis.size;
  }
  return size;
}

int64_t sizeBytes(const kernels::TensorType &type) {
  return kernels::numElements(type.shape) * kernels::byteWidth(type.dtype);
}

int64_t messageBytes(const Program &program, const Stage &stage, const Instruction &instruction) {
  auto bytesOf = [&](const std::vector<ValueId> &values) {
    int64_t bytes = 0;
    for (ValueId value : values)
      bytes += sizeBytes(stage.values[value]);
    return bytes;
  };
  int64_t n = groupSizeOf(instruction.comm, program.pipelineAxis);
  switch (instruction.kind) {
  case InstructionKind::AllReduce:
  case InstructionKind::AllToAll:
  case InstructionKind::Permute:
  case InstructionKind::Send:
  case InstructionKind::Offload:
  case InstructionKind::Fetch:
    return bytesOf(instruction.operands);
  case InstructionKind::AllGather:
    return n * bytesOf(instruction.operands);
  case InstructionKind::ReduceScatter:
    return n * bytesOf(instruction.results);
  case InstructionKind::Recv:
    return bytesOf(instruction.results);
  case InstructionKind::Kernel:
  case InstructionKind::ShardSlice:
    break;
  }
  return 0;
}

std::string describe(const Program &program, int stage, BlockId block) {
  std::string text =
      "stage " + std::to_string(stage) + ", " + std::string(name(block.kind)) + " block";
  if (program.stages[stage].chunks.size() > 1 && block.kind != schedule::Action::Kind::Update)
    text += " of chunk " + std::to_string(block.chunk);
  return text;
}

std::string describe(const Program &program, int stage, BlockId block, int instruction) {
  const Instruction &at = program.stages[stage].block(block).instructions[instruction];
  std::string what(at.kind == InstructionKind::Kernel ? std::string_view(at.op) : name(at.kind));
  return describe(program, stage, block) + ", instruction " + std::to_string(instruction) + " (\"" +
         at.id + "\", " + what + ")";
}

} // namespace tbc::program
