//===- Epilogues.h - What can be done at the end of a product --------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_EPILOGUES_H
#define TBC_RUNTIME_CUDA_EPILOGUES_H

#include "runtime/abi/Region.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tbc::cuda {

/// A product (an einsum that is a region by itself) and the region after it, which one call of
/// cuBLASLt may do: result = f(product + added + bias), where all that has a value is used.
struct Epilogue {
  enum class Function {
    Identity,
    Cast,         ///< of bf16 or f16 to f32, alone
    Gelu,         ///< the tanh form
    GeluGradient, ///< product * gelu'(geluInput), alone; the tanh form
  };

  int einsum = 0; ///< instruction
  program::Region region;
  Function function = Function::Identity;
  program::ValueId result = 0;
  /// Along the last dims of the result; of the result's type, as all others.
  std::optional<program::ValueId> bias, added;
  /// What gelu is applied to: read by its gradient, and written by gelu where others read it.
  std::optional<program::ValueId> geluInput;
  /// The einsum, and reshapes of what it makes: instructions that are done with the region.
  std::vector<int> leftOut;

  /// "bias and gelu".
  std::string name() const;
};

struct Epilogues {
  std::vector<Epilogue> list;
  /// Of regions that add a bias to a product, or the like, and are none: why, how often.
  std::map<std::string, int64_t> apart;
};

/// The epilogues of a block with a memory plan. The product is done where its region begins, so
/// between the two nothing may take the place of its operands; what the region writes may share
/// bytes with nothing that is read, but for `added` at exactly its place.
Epilogues findEpilogues(const program::Stage &stage, const program::Block &block);

/// "12 bias, 12 bias and gelu": of these, with how often.
std::string describe(const std::map<std::string, int64_t> &counts);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_EPILOGUES_H
