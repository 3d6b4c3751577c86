//===- Epilogues.h - Epilogues of matmuls ----------------------------------===//
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

/// A matmul (an einsum in a region of its own) and the region after it, executed by one call of
/// cuBLASLt. result = f(matmul + added + bias); terms without a value are left out. Example: gelu(x
/// w + bias).
struct Epilogue {
  enum class Function {
    Identity,
    Cast,         ///< bf16 or f16 to f32, alone
    Gelu,         ///< the tanh form
    GeluGradient, ///< matmul * gelu'(geluInput), alone; the tanh form
  };

  int einsum = 0; ///< instruction
  program::Region region;
  Function function = Function::Identity;
  program::ValueId result = 0;
  /// The bias lies along the last dims of the result. All have the result's type.
  std::optional<program::ValueId> bias, added;
  /// The input of gelu: read by its gradient, and written by gelu if it is read later.
  std::optional<program::ValueId> geluInput;
  /// The instructions executed with the region: the einsum, and reshapes of its result.
  std::vector<int> leftOut;

  /// Returns, for example, "bias and gelu".
  std::string name() const;
};

struct Epilogues {
  std::vector<Epilogue> list;
  /// Regions after a matmul that cannot be epilogues: reasons, with their counts.
  std::map<std::string, int64_t> apart;
};

/// Finds the epilogues of a block with a memory plan. The matmul is executed where its region
/// begins, so its operands must not be overwritten in between. The outputs of the region must not
/// share bytes with its inputs, except `added` at exactly its place.
Epilogues findEpilogues(const program::Stage &stage, const program::Block &block);

/// Returns the names with their counts, e.g. "12 bias, 12 bias and gelu".
std::string describe(const std::map<std::string, int64_t> &counts);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_EPILOGUES_H
