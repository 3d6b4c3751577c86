//===- Sample.h - Runs some blocks of a kernel -----------------------------===//
//
// Executes a few blocks of a kernel on the PTX executor, at the shapes of its Program. Tensors are
// reservations, so the tensors of a real model fit a small machine. Integers are spread over their
// range, so that gathers and comparisons behave as in a run. A quarter of the floats is 1, like
// routing weights; the others are 0.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_GATE_SAMPLE_H
#define TBC_TESTS_GATE_SAMPLE_H

#include "runtime/abi/CudaKernels.h"
#include "runtime/kernels/Tensor.h"
#include "tests/ptx/Executor.h"

#include <string>
#include <vector>

namespace tbc::gate {

/// An operand or result. Its integers are `given`, or else in [0, below).
struct Buffer {
  kernels::TensorType type;
  int64_t below = 1;
  std::vector<int64_t> given = {}; // of type i64
};

struct Sample {
  ptx::Counts counts;   // of the executed blocks
  int64_t blocks = 0;   // of the kernel
  int64_t executed = 0; // of these
  int threads = 0;      // of a block
  int localBytes = 0;   // of a thread
  /// Extrapolates a count from the executed blocks to all blocks. Example: 30 instructions in 3 of
  /// 100 blocks give 1000.
  double ofAll(uint64_t count) const { return double(count) * double(blocks) / double(executed); }
};

struct SampleOptions {
  int numBlocks = 3; // the first, and others at equal distances
  /// Limit of warp instructions over all sampled blocks. A kernel beyond it is cut (Counts::isCut),
  /// and its counts are too small.
  uint64_t budget = 12'000'000;
  /// Limit for a launch that runs wholly.
  uint64_t wholeBudget = 4'000'000;
};

class Sampler {
public:
  /// Throws ptx::Fault if the executor does not support the text.
  explicit Sampler(const std::string &ptx);

  /// Samples each launch of a kernel. An earlier launch runs wholly if that takes few instructions,
  /// so that later ones find indices in the workspace. Throws ptx::Fault for a fault of the kernel.
  std::vector<Sample> samples(const program::CudaKernel &kernel, const std::vector<Buffer> &buffers,
                              const SampleOptions &options = {});

private:
  Sample sampleOf(const program::CudaLaunch &kernel, ptx::Launch &launch, bool isLast,
                  const SampleOptions &options);

  ptx::Memory memory;
  ptx::LoadedModule module;
};

} // namespace tbc::gate

#endif // TBC_TESTS_GATE_SAMPLE_H
