//===- Sample.h - What some blocks of a kernel do --------------------------===//
//
// Executes a few blocks of a kernel on the executor of PTX, at the shapes of its Program. Tensors
// are reservations, so those of a real model fit a small machine. Integers are spread over
// their range, so that gathers and comparisons do what they do in a run; of floats a quarter is 1,
// as of routing weights, the others 0.
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

/// An operand or result. `below`: integers of it are at least 0 and less than this.
struct Buffer {
  kernels::TensorType type;
  int64_t below = 1;
};

struct Sample {
  ptx::Counts counts;   // of the blocks that were executed
  int64_t blocks = 0;   // of the kernel
  int64_t executed = 0; // of them
  int threads = 0;      // of a block
  int localBytes = 0;   // of a thread
  /// A count of all blocks, from that of those that were executed.
  double ofAll(uint64_t count) const { return double(count) * double(blocks) / double(executed); }
};

struct SampleOptions {
  int numBlocks = 3; // the first, and those at equal distances
  /// Warp instructions of all of them together; a kernel that has more is cut (Counts::isCut), and
  /// its counts are too small.
  uint64_t budget = 12'000'000;
};

class Sampler {
public:
  /// Throws ptx::Fault: the text is none that the executor knows.
  explicit Sampler(const std::string &ptx);

  /// Throws ptx::Fault for what the kernel does wrong.
  Sample sample(const program::CudaKernel &kernel, const std::vector<Buffer> &buffers,
                const SampleOptions &options = {});

private:
  ptx::Memory memory;
  ptx::LoadedModule module;
};

} // namespace tbc::gate

#endif // TBC_TESTS_GATE_SAMPLE_H
