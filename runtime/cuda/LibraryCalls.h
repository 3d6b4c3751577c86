//===- LibraryCalls.h - Regions executed by NVIDIA's libraries -------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_LIBRARYCALLS_H
#define TBC_RUNTIME_CUDA_LIBRARYCALLS_H

#include "runtime/cuda/Fp8Matmuls.h"
#include "runtime/cuda/GradientValues.h"
#include "runtime/cuda/LibraryRequests.h"

#include <functional>
#include <set>

namespace tbc::cuda {

/// Decides for each region of a stage whether a library executes it instead of its kernel. The
/// kernel is the fallback.
class LibraryCalls {
public:
  using AddressOf = std::function<DeviceAddress(program::ValueId)>;
  /// Enqueues a region's work in a stream.
  using Call = std::function<Status(const Stream &, const AddressOf &)>;

  /// `matmuls`: null without cuBLASLt. `plans`: null without cuDNN. `fp8`: null if no matmul is to
  /// be in fp8.
  LibraryCalls(const program::Program &program, int stage, std::shared_ptr<Matmuls> matmuls,
               std::shared_ptr<CudnnPlans> plans = nullptr,
               std::shared_ptr<Fp8Matmuls> fp8 = nullptr)
      : program(program), stage(stage), matmuls(std::move(matmuls)), plans(std::move(plans)),
        fp8(std::move(fp8)) {
    if (this->fp8)
      gradients = gradientsOf(code());
  }

  /// Decides for a block. Errors: RankFailed, if a library refuses work that it had accepted.
  Status prepare(program::BlockId id);
  /// Returns null if the kernel of the region that begins there executes it.
  const Call *find(program::BlockId id, int first) const;
  /// Returns whether the call of a later region executes it, or it needs no launch
  /// (`unreadRegions`).
  bool isLeftOut(program::BlockId id, int instruction) const;

  /// Describes the libraries' work in all prepared blocks, and the reasons for the rest.
  std::vector<std::string> sentences() const;
  /// Describes the time saved by timing the matmuls so far; empty without timing.
  std::string gain() const { return matmuls ? matmuls->gain() : ""; }

private:
  struct BlockCalls {
    std::map<int, Call> calls; // by the first instruction
    std::set<int> leftOut;
  };
  const program::Instruction &instructionAt(program::BlockId id, int index) const {
    return code().block(id).instructions[size_t(index)];
  }
  const program::Stage &code() const { return program.stages[size_t(stage)]; }
  const kernels::TensorType &typeOf(program::ValueId value) const {
    return code().values[size_t(value)];
  }
  Error at(program::BlockId id, int index, const Error &error) const;
  Status prepareMatmuls(program::BlockId id);

  Status prepareEpilogue(program::BlockId id, const Epilogue &epilogue);
  Status prepareMatmul(program::BlockId id, int index);

  Result<Fp8Matmuls::Enqueue> inFp8(const program::Instruction &einsum, const EinsumMatmul &matmul,
                                    const MatmulShape &shape) const;

  /// Adds to `reads` the values that cuDNN reads, if it executes the region.
  Status prepareCudnn(program::BlockId id, const program::Region &region,
                      std::map<int, std::set<program::ValueId>> &reads);

  const program::Program &program;
  int stage;
  std::shared_ptr<Matmuls> matmuls;
  std::shared_ptr<CudnnPlans> plans;
  std::shared_ptr<Fp8Matmuls> fp8;
  std::vector<bool> gradients; // by value, for fp8
  std::map<program::BlockId, BlockCalls> blocks;
  int64_t numMatmuls = 0;                   // einsums executed by cuBLASLt
  std::map<std::string, int64_t> noMatmuls; // reasons for other einsums, with counts
  std::map<std::string, int64_t> epilogues, apart;
  int64_t numInFp8 = 0;                               // of the matmuls
  std::map<std::string, int64_t> notInFp8;            // reasons, with counts
  std::map<std::string, int64_t> byCudnn, notByCudnn; // ops; reasons
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_LIBRARYCALLS_H
