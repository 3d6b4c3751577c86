//===- LibraryCalls.h - What NVIDIA's libraries do of a program ------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_LIBRARYCALLS_H
#define TBC_RUNTIME_CUDA_LIBRARYCALLS_H

#include "runtime/cuda/Fp8Products.h"
#include "runtime/cuda/GradientValues.h"
#include "runtime/cuda/LibraryRequests.h"

#include <functional>
#include <set>

namespace tbc::cuda {

/// For each region of a stage whether a library does it, in place of its kernel. What a library
/// cannot do its kernel does.
class LibraryCalls {
public:
  using AddressOf = std::function<DeviceAddress(program::ValueId)>;
  /// Puts a region's work into a stream.
  using Call = std::function<Status(const Stream &, const AddressOf &)>;

  /// `products`: null without cuBLASLt; `plans`: null without cuDNN; `fp8`: null where no product
  /// is to be in fp8.
  LibraryCalls(const program::Program &program, int stage, std::shared_ptr<MatrixProducts> products,
               std::shared_ptr<CudnnPlans> plans = nullptr,
               std::shared_ptr<Fp8Products> fp8 = nullptr)
      : program(program), stage(stage), products(std::move(products)), plans(std::move(plans)),
        fp8(std::move(fp8)) {
    if (this->fp8)
      gradients = gradientsOf(code());
  }

  /// Decides for a block. Errors: RankFailed, what a library refuses though it said it could.
  Status prepare(program::BlockId id);
  /// Null: the kernel of the region that begins there does it.
  const Call *find(program::BlockId id, int first) const;
  /// Whether the call of a region to come does it.
  bool isLeftOut(program::BlockId id, int instruction) const;

  /// What the libraries do of all blocks that were prepared, what not, and why.
  std::vector<std::string> sentences() const;
  /// What timing products saves of those that were done so far; empty where none was timed.
  std::string gain() const { return products ? products->gain() : ""; }

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
  Status prepareProducts(program::BlockId id);

  Status prepareEpilogue(program::BlockId id, const Epilogue &epilogue);
  Status prepareProduct(program::BlockId id, int index);

  Result<Fp8Products::Enqueue> inFp8(const program::Instruction &einsum,
                                     const EinsumProduct &product, const ProductShape &shape) const;

  Status prepareCudnn(program::BlockId id, const program::Region &region);

  const program::Program &program;
  int stage;
  std::shared_ptr<MatrixProducts> products;
  std::shared_ptr<CudnnPlans> plans;
  std::shared_ptr<Fp8Products> fp8;
  std::vector<bool> gradients; // by value, for fp8
  std::map<program::BlockId, BlockCalls> blocks;
  int64_t numProducts = 0;                   // einsums that cuBLASLt does
  std::map<std::string, int64_t> noProducts; // why others are not, how often
  std::map<std::string, int64_t> epilogues, apart;
  int64_t numInFp8 = 0;                               // of the products
  std::map<std::string, int64_t> notInFp8;            // why, how often
  std::map<std::string, int64_t> byCudnn, notByCudnn; // ops, reasons
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_LIBRARYCALLS_H
