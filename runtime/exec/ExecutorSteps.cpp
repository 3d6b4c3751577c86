//===- ExecutorSteps.cpp - Steps that a machine executes as a whole ----------===//

#include "runtime/exec/Executor.h"
#include "runtime/exec/Failed.h"

#include <algorithm>

namespace tbc::runtime {

using program::Role;
using program::Slot;
using schedule::Action;

Status Executor::runStep(comm::Communicator &communicator, const StepInputs &inputs) {
  try {
    bool mayBeWhole =
        std::none_of(observers.begin(), observers.end(),
                     [](const Observer *observer) { return observer->looksAtOnce(); });
    timeInstructions();
    switch (machine->beginStep(mayBeWhole)) {
    case StepWay::Execute:
      return walkStep(communicator, inputs);
    case StepWay::Record:
      return recordStep(communicator, inputs);
    case StepWay::Replay:
      return replayStep(inputs);
    }
  } catch (const kernels::KernelError &error) {
    return failed("a step as a whole", error);
  }
  return Status::ok();
}

/// Begins or ends the timing of instructions by the device, as observers ask.
void Executor::timeInstructions() {
  machine->timeInstructions(
      std::any_of(observers.begin(), observers.end(), [](const Observer *observer) {
        return observer->looksAtOnce() && observer->timesDevices();
      }));
}

Status Executor::runGatedStep(comm::Communicator &communicator, const StepInputs &inputs,
                              const UpdateGate &gate) {
  try {
    timeInstructions();
    machine->beginStep(/*mayBeWhole=*/false);
    return walkStep(communicator, inputs, &gate);
  } catch (const kernels::KernelError &error) {
    return failed("a step with a gate", error);
  }
}

Status Executor::recordStep(comm::Communicator &communicator, const StepInputs &inputs) {
  CollectiveCounts before = counts;
  keptValues.clear();
  isRecording = true;
  Status walked;
  try {
    walked = walkStep(communicator, inputs);
  } catch (const kernels::KernelError &error) {
    walked = failed("recording a step", error); // the recording still has to be ended
  }
  isRecording = false;
  Result<bool> isRecorded = machine->endRecording(communicator, walked);
  if (!isRecorded)
    return isRecorded.error();
  if (!*isRecorded) {
    counts = std::move(before);
    return walkStep(communicator, inputs);
  }
  recordedCounts = counts;
  for (const auto &[key, count] : before)
    recordedCounts[key] -= count;
  return tellKept();
}

/// Stores the step's inputs, in the same order as a walk through the schedule, and replays.
Status Executor::replayStep(const StepInputs &inputs) {
  if (Status status = checkInputs(inputs); !status)
    return status;
  for (int i = 0; i < int(stageCode->slots.size()); ++i)
    if (const Slot &slot = stageCode->slots[size_t(i)]; slot.role == Role::Scalar)
      contents->setSlot(i, 0,
                        kernels::Tensor::fromDoubles(slot.type, arith, {inputs.learningRate}));
  for (const Action &action : program::actionsOf(*program, stageIndex))
    if (Status status = loadInputs(inputs, action); !status)
      return status;
  machine->replay();
  // As after the last read in a normal step.
  for (int i = 0; i < int(stageCode->slots.size()); ++i)
    if (livesAMicroBatch(stageCode->slots[size_t(i)].role))
      contents->clear(i);
  for (const auto &[key, count] : recordedCounts)
    counts[key] += count;
  return tellKept();
}

/// Records the values that the observer will need for instructions `first` to `end`, which were
/// just recorded.
Status Executor::keepFor(Observer &observer, const Action &action, int first, int end) {
  const program::Block &block = stageCode->block(action);
  Kept kept{&observer, action, first, end, {}};
  bool isAny = false;
  for (int i = first; i < end; ++i) {
    if (!observer.looksAt(action.kind, block.instructions[size_t(i)]))
      continue;
    isAny = true;
    for (program::ValueId value : block.instructions[size_t(i)].results)
      if (contents->hasValue(value))
        kept.numbers[value] = machine->keep(value);
  }
  if (isAny)
    keptValues.push_back(std::move(kept));
  return Status::ok();
}

Status Executor::tellKept() {
  for (const Kept &kept : keptValues) {
    auto now = std::chrono::steady_clock::now();
    Executed executed{
        *stageCode, kept.action, kept.first, kept.end, now, now, [&](program::ValueId value) {
          auto found = kept.numbers.find(value);
          return found == kept.numbers.end() ? kernels::Tensor() : machine->kept(found->second);
        }};
    if (Status status = kept.observer->executed(executed); !status)
      return Error{status.error().code,
                   place(kept.action, kept.first) + ": " + status.error().message};
  }
  return Status::ok();
}

} // namespace tbc::runtime
