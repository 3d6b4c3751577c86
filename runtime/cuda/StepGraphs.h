//===- StepGraphs.h - Steps launched as CUDA graphs ------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_STEPGRAPHS_H
#define TBC_RUNTIME_CUDA_STEPGRAPHS_H

#include "runtime/cuda/Streams.h"
#include "runtime/exec/Machine.h"

#include <functional>

namespace tbc::cuda {

/// Whether steps are recorded once and then launched as CUDA graphs.
enum class GraphUse {
  Off,
  Auto, // if possible; otherwise says why not
  On,   // an error if it is impossible
};

/// Decides for a rank how each step runs. The first step is executed instruction by instruction, so
/// that libraries are set up. The second is recorded, and later ones are replayed. Steps with
/// observed values or times are executed. All ranks replay, or all execute.
class StepGraphs {
public:
  using SayFn = std::function<void(const std::string &)>;

  /// `refusal`: the reason why steps of the Program cannot be recorded, the same on all ranks;
  /// empty if they can. `inputBytes`: see Streams::beginRecording. `say` may be empty.
  StepGraphs(GraphUse use, std::shared_ptr<Streams> streams, std::string refusal,
             int64_t inputBytes, SayFn say)
      : use(use), streams(std::move(streams)), refusal(std::move(refusal)), inputBytes(inputBytes),
        say(std::move(say)) {}

  /// These throw MachineError.
  runtime::StepWay begin(bool mayBeWhole);
  Result<bool> endRecording(comm::Communicator &communicator, const Status &walked);
  void replay();

  /// Returns an error if the next step cannot be recorded; it then goes straight to `endRecording`.
  Status check() const;

private:
  void refuse(const std::string &why);

  const GraphUse use;
  std::shared_ptr<Streams> streams;
  std::string refusal;
  const int64_t inputBytes;
  const SayFn say;
  bool hasSaid = false, isWarm = false, isRecording = false;
};

/// Returns why no step of the Program can be recorded (messages between stages, host kernels);
/// empty if it can. `isHostKernel`: whether the host executes this instruction.
std::string whyNotRecorded(
    const program::Program &program,
    const std::function<bool(const program::Block &block, int instruction)> &isHostKernel);

/// Returns the most input bytes of a step of the stage, with each tensor rounded up to a multiple
/// of 256.
int64_t stepInputBytes(const program::Program &program, int stage);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_STEPGRAPHS_H
