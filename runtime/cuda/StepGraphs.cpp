//===- StepGraphs.cpp - Steps launched as CUDA graphs ----------------------===//

#include "runtime/cuda/StepGraphs.h"

#include <numeric>

namespace tbc::cuda {

using kernels::DType;
using kernels::Tensor;
using program::InstructionKind;
using runtime::StepWay;

// Observers read a few scalars.
static constexpr int64_t keptBytes = int64_t(64) << 10;

static void require(const Status &status) {
  if (!status)
    throw runtime::MachineError(status.error());
}

StepWay StepGraphs::begin(bool mayBeWhole) {
  if (use == GraphUse::Off)
    return StepWay::Execute;
  if (!refusal.empty()) {
    refuse(refusal);
    return StepWay::Execute;
  }
  if (!isWarm || !mayBeWhole) {
    isWarm = true;
    return StepWay::Execute;
  }
  if (streams->hasRecording()) {
    require(streams->beginReplay());
    return StepWay::Replay;
  }
  isRecording = true;
  // The other ranks also try, and learn of the refusal at the end.
  if (Status status = streams->beginRecording(inputBytes, keptBytes); !status)
    refusal = status.error().message;
  return StepWay::Record;
}

Status StepGraphs::check() const {
  return isRecording && !streams->isRecording() ? Status(Error{ErrorCode::Usage, refusal})
                                                : Status::ok();
}

/// Returns whether `isSo` is true on all ranks.
static Result<bool> isSoOnAll(comm::Communicator &communicator, bool isSo) {
  if (communicator.numRanks() == 1)
    return isSo;
  comm::Group all(static_cast<size_t>(communicator.numRanks()));
  std::iota(all.begin(), all.end(), int64_t(0));
  auto least = communicator
                   .allReduce(all, comm::ReduceKind::Min,
                              Tensor::fromInts({DType::I32, {1}}, {isSo}), "recording a step")
                   ->wait();
  if (!least)
    return least.error();
  return least->data<int64_t>()[0] != 0;
}

Result<bool> StepGraphs::endRecording(comm::Communicator &communicator, const Status &walked) {
  isRecording = false;
  Status recorded = streams->isRecording() ? streams->endRecording() : Status::ok();
  if (refusal.empty() && !(walked && recorded))
    refusal = walked ? recorded.error().message : walked.error().message;
  Result<bool> isRecorded = isSoOnAll(communicator, refusal.empty());
  if (!isRecorded)
    return isRecorded;
  if (*isRecorded) {
    if (say && !hasSaid)
      say("each step is one CUDA graph of " + std::to_string(streams->numNodes()) + " nodes");
    hasSaid = true;
    if (Status status = streams->launch(); !status)
      return status.error();
    return true;
  }
  streams->forgetRecording();
  if (refusal.empty())
    refusal = "another rank could not record its step";
  if (use == GraphUse::On)
    return Error{ErrorCode::RankFailed,
                 refusal + "; --cuda-graphs on asks for it, auto goes without"};
  refuse(refusal);
  return false;
}

void StepGraphs::replay() { require(streams->launch()); }

void StepGraphs::refuse(const std::string &why) {
  if (say && !hasSaid)
    say("steps are not CUDA graphs: " + why);
  hasSaid = true;
}

std::string whyNotRecorded(
    const program::Program &program,
    const std::function<bool(const program::Block &block, int instruction)> &isHostKernel) {
  for (int s = 0; s < program.numStages(); ++s)
    for (program::BlockId id : program.stages[size_t(s)].blocks()) {
      const program::Block &block = program.stages[size_t(s)].block(id);
      for (int i = 0; i < int(block.instructions.size()); ++i) {
        const program::Instruction &instruction = block.instructions[size_t(i)];
        // A message runs concurrently to the rest. CUDA does not guarantee this for branches of a
        // graph.
        if (instruction.kind == InstructionKind::Send || instruction.kind == InstructionKind::Recv)
          return "stages send messages to each other";
        if (instruction.kind == InstructionKind::Kernel && isHostKernel(block, i))
          return "the host executes " + instruction.op + " (" + describe(program, s, id, i) + ")";
      }
    }
  return "";
}

int64_t stepInputBytes(const program::Program &program, int stage) {
  auto whole = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  int64_t bytes = 0;
  for (const program::Slot &slot : program.stages[size_t(stage)].slots) {
    int64_t count = slot.role == program::Role::Scalar  ? 1
                    : slot.role == program::Role::Input ? program.microBatches
                                                        : 0;
    bytes += count * whole(program::sizeBytes(slot.type));
  }
  return bytes;
}

} // namespace tbc::cuda
