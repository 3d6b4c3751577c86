//===- OpKernelCheck.h - Kernels of single ops for GPUs against the reference ===//

#ifndef TBC_TESTS_CODEGEN_CUDA_OPKERNELCHECK_H
#define TBC_TESTS_CODEGEN_CUDA_OPKERNELCHECK_H

#include "codegen/cuda/ThreadKernel.h"
#include "tests/codegen/cpu/KernelCheck.h"

namespace tbc {

/// A case as a call of its op.
struct OpKernelCase {
  explicit OpKernelCase(const OpCase &opCase);

  /// The text of its kernel under the name of its number; nothing if it has none.
  std::optional<cpu::KernelSource> source(cuda::Form form, int number, int64_t &extent);
  std::vector<kernels::Tensor> evaluate(kernels::Arith arith);

  OpCase opCase;
  std::unique_ptr<ParsedModule> module;
  cuda::OpCall call;
  bool isRead = false;
};

/// Runs a kernel of this extent and compares with the reference; in single threads from the last on
/// as well, if `inPieces`.
void check(OpKernelCase &one, const RunFn &runKernel, int64_t extent, bool inPieces);

/// Those of the tables and others: rows longer than a warp, sizes that nothing divides.
std::vector<OpCase> opKernelCases();

} // namespace tbc

#endif // TBC_TESTS_CODEGEN_CUDA_OPKERNELCHECK_H
