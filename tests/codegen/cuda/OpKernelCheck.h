//===- OpKernelCheck.h - Kernels of single ops for GPUs against the reference ===//

#ifndef TBC_TESTS_CODEGEN_CUDA_OPKERNELCHECK_H
#define TBC_TESTS_CODEGEN_CUDA_OPKERNELCHECK_H

#include "codegen/cuda/ThreadKernel.h"
#include "tests/codegen/cpu/KernelCheck.h"

namespace tbc {

/// A case as a call of its op.
struct OpKernelCase {
  explicit OpKernelCase(const OpCase &opCase);

  /// Returns the source of its kernel, with `number` as its name, or no value if it has no kernel.
  std::optional<region::KernelSource> source(cuda::Form form, int number);
  std::vector<kernels::Tensor> evaluate(kernels::Arith arith);

  OpCase opCase;
  /// Returns the operands; a router's weights have at most `top` values other than 0 per token, and
  /// a cast to integers has infinities, NaN, and floats beyond the range of the integers.
  std::vector<kernels::Tensor> operands(kernels::Arith arith);

  std::unique_ptr<ParsedModule> module;
  cuda::OpCall call;
  region::Kernel kernel; // after `source`
  bool isRead = false;
};

/// Runs a kernel and compares it with the reference. With `inPieces` also in single threads, from
/// the last on.
void check(OpKernelCase &one, const RunFn &runKernel, bool inPieces);

/// Returns attentions and their gradients in 16-bit types, which tensor cores make on a device.
std::vector<OpCase> tiledAttentionCases();

/// Returns cases of one row, one column, one token or one class, and of odd widths.
std::vector<OpCase> tinyOpCases();

/// Returns cases of maxima, orders and sums of them on operands with NaN.
std::vector<OpCase> nanOpCases();

/// Returns the cases of the tables and others: rows longer than a warp, and prime sizes.
std::vector<OpCase> opKernelCases();

} // namespace tbc

#endif // TBC_TESTS_CODEGEN_CUDA_OPKERNELCHECK_H
