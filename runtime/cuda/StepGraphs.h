//===- StepGraphs.h - Which steps are launched as graphs -------------------===//
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

/// Whether steps are recorded once and then launched as graphs of CUDA.
enum class GraphUse {
  Off,
  Auto, // where that can be, and says why where it cannot
  On,   // an error says why it cannot be
};

/// What decides it on a rank: the first step is executed instruction by instruction, so that
/// libraries have what they need, the second is recorded, and those after it are replayed. Steps of
/// which somebody looks at values or times are executed. All ranks replay, or none.
class StepGraphs {
public:
  using SayFn = std::function<void(const std::string &)>;

  /// `refusal`: why steps of the Program cannot be recorded, the same on all ranks; empty: they
  /// can. `inputBytes`, `keptBytes`: of Streams::beginRecording. `say` may be empty.
  StepGraphs(GraphUse use, std::shared_ptr<Streams> streams, std::string refusal,
             int64_t inputBytes, SayFn say)
      : use(use), streams(std::move(streams)), refusal(std::move(refusal)), inputBytes(inputBytes),
        say(std::move(say)) {}

  /// These throw MachineError.
  runtime::StepWay begin(bool mayBeWhole);
  Result<bool> endRecording(comm::Communicator &communicator, const Status &walked);
  void replay();

  /// An error: of the step that comes nothing can be recorded, and it goes straight to
  /// `endRecording`.
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

/// Why no step of the Program can be recorded: messages between stages, kernels of the host;
/// empty: it can. `isHostKernel`: whether the host executes this instruction.
std::string whyNotRecorded(
    const program::Program &program,
    const std::function<bool(const program::Block &block, int instruction)> &isHostKernel);

/// The most that a step of the stage is given from outside, each tensor a multiple of 256 bytes.
int64_t stepInputBytes(const program::Program &program, int stage);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_STEPGRAPHS_H
