//===- Fp8Products.h - Products of matrices in fp8 --------------------------===//
//
// Part of tbc. Plain C++. As the "Transformer Engine" of NVIDIA has it, with scales of the tensors
// as they are (not of steps before): right before a product its operands are scaled and rounded to
// fp8, each tensor by one scale, and laid out as cuBLASLt wants them; sums are taken in f32, the
// result has the type that it has without.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_FP8PRODUCTS_H
#define TBC_RUNTIME_CUDA_FP8PRODUCTS_H

#include "runtime/cuda/KernelModule.h"
#include "runtime/cuda/MatrixProducts.h"

namespace tbc::cuda {

/// The products in fp8 of a device, used in one stream: they share the memory that they work in,
/// which lies beside the memory plan.
class Fp8Products {
public:
  /// Errors: Usage, a device before compute capability 8.9, which has no fp8; a program compiled
  /// without the kernels.
  static Result<std::shared_ptr<Fp8Products>> create(const DevicePtr &device,
                                                     std::shared_ptr<const KernelModule> kernels,
                                                     std::shared_ptr<MatrixProducts> products,
                                                     std::shared_ptr<Streams> streams);

  using Enqueue = std::function<Status(const Stream &, const ProductAddresses &)>;
  /// How to do the product of this shape, of operands of so many elements. `isGradient`, of a and
  /// b: these are rounded to e5m2, which reaches further, others to e4m3. Errors: Usage, what
  /// products cannot be so, for a list of them, also for lack of memory, what was found before
  /// being as it was; RankFailed.
  struct Request {
    ProductShape shape;
    int64_t elementsA = 0, elementsB = 0;
    bool isGradientA = false, isGradientB = false;
  };
  Result<Enqueue> find(const Request &request);

  /// What is allocated beside the memory plan.
  int64_t bytes() const { return memory.bytes() + sizesBytes; }

private:
  /// An operand, as it is quantised.
  struct Operand {
    const LaunchableKernel *amax = nullptr, *scale = nullptr, *quantise = nullptr;
    std::shared_ptr<DeviceMemory> sizes;
    int64_t bytes = 0; // of the result
  };
  explicit Fp8Products(DevicePtr device) : device(std::move(device)) {}
  Result<Operand> operandOf(kernels::DType type, program::fp8::Format format,
                            const std::vector<int64_t> &sizes);
  Status reserve(int64_t bytes);
  Status launch(const LaunchableKernel &kernel, const Stream &stream,
                std::vector<DeviceAddress> addresses) const;
  Status quantise(const Operand &operand, const Stream &stream, DeviceAddress from,
                  DeviceAddress to, DeviceAddress scales) const;

  DevicePtr device;
  std::shared_ptr<const KernelModule> kernels;
  std::shared_ptr<MatrixProducts> products;
  std::shared_ptr<Streams> streams;
  std::map<std::vector<int64_t>, std::shared_ptr<DeviceMemory>> sizesOnDevice;
  int64_t sizesBytes = 0;
  DeviceMemory memory; // partials, scales of both, a, b of the product that works in it
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_FP8PRODUCTS_H
