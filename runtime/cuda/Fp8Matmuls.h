//===- Fp8Matmuls.h - Matmuls in fp8 --------------------------------------===//
//
// Part of tbc. Plain C++. Like NVIDIA's "Transformer Engine", but scales come from the current
// tensors (not from earlier steps). Right before a matmul its operands are scaled and rounded to
// fp8, with one scale per tensor, and laid out for cuBLASLt. Sums are in f32; the result type is
// the same as without fp8.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_FP8MATMULS_H
#define TBC_RUNTIME_CUDA_FP8MATMULS_H

#include "runtime/cuda/KernelModule.h"
#include "runtime/cuda/Matmuls.h"

namespace tbc::cuda {

/// The fp8 matmuls of a device, used in one stream: they share a workspace beside the memory plan.
class Fp8Matmuls {
public:
  /// Errors: Usage, for a device before compute capability 8.9, which has no fp8, and for a program
  /// compiled without the kernels.
  static Result<std::shared_ptr<Fp8Matmuls>> create(const DevicePtr &device,
                                                    std::shared_ptr<const KernelModule> kernels,
                                                    std::shared_ptr<Matmuls> matmuls,
                                                    std::shared_ptr<Streams> streams);

  using Enqueue = std::function<Status(const Stream &, const MatmulAddresses &)>;
  /// Returns how to execute a matmul of this shape, whose operands have elementsA and elementsB
  /// elements. Gradients (`isGradient`) are rounded to e5m2, which has more range, others to e4m3.
  /// Errors: Usage, with the reason for a list, if it cannot be in fp8, also for lack of memory
  /// (earlier matmuls stay valid); RankFailed.
  struct Request {
    MatmulShape shape;
    int64_t elementsA = 0, elementsB = 0;
    bool isGradientA = false, isGradientB = false;
  };
  Result<Enqueue> find(const Request &request);

  /// Returns the bytes allocated beside the memory plan.
  int64_t bytes() const { return memory.bytes() + sizesBytes; }

private:
  /// How an operand is quantized.
  struct Operand {
    const LaunchableKernel *amax = nullptr, *scale = nullptr, *quantise = nullptr;
    std::shared_ptr<DeviceMemory> sizes;
    int64_t bytes = 0; // of the result
  };
  explicit Fp8Matmuls(DevicePtr device) : device(std::move(device)) {}
  Result<Operand> operandOf(kernels::DType type, program::fp8::Format format,
                            const std::vector<int64_t> &sizes);
  Status reserve(int64_t bytes);
  Status launch(const LaunchableKernel &kernel, const Stream &stream,
                std::vector<DeviceAddress> addresses) const;
  Status quantise(const Operand &operand, const Stream &stream, DeviceAddress from,
                  DeviceAddress to, DeviceAddress scales) const;

  DevicePtr device;
  std::shared_ptr<const KernelModule> kernels;
  std::shared_ptr<Matmuls> matmuls;
  std::shared_ptr<Streams> streams;
  std::map<std::vector<int64_t>, std::shared_ptr<DeviceMemory>> sizesOnDevice;
  int64_t sizesBytes = 0;
  DeviceMemory memory; // partial maxima, both scales, a and b of the current matmul
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_FP8MATMULS_H
