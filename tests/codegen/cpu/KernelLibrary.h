//===- KernelLibrary.h - Compiles kernels and runs them on tensors ----------===//

#ifndef TBC_TESTS_CODEGEN_CPU_KERNELLIBRARY_H
#define TBC_TESTS_CODEGEN_CPU_KERNELLIBRARY_H

#include "codegen/cpu/CompileKernels.h"
#include "codegen/cpu/EmitKernel.h"
#include "runtime/abi/CompiledKernel.h"
#include "runtime/kernels/Tensor.h"

#include <string>
#include <vector>

namespace tbc {

/// A shared object of kernels in a temporary file, opened.
class KernelLibrary {
public:
  /// Fails the test, and `isOpen` is false, where they cannot be compiled.
  KernelLibrary(const std::vector<cpu::KernelSource> &sources, const cpu::CpuTarget &target);
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary &) = delete;

  bool isOpen() const { return handle != nullptr; }
  program::CompiledKernel find(const std::string &symbol) const;
  /// An exported text.
  std::string text(const char *symbol) const;

  static constexpr const char *programHash = "0123";

private:
  std::string path;
  void *handle = nullptr;
};

/// How a kernel is run: its extent in pieces of `step` iterations, the last ones first if
/// `backwards`; for each pair of `inPlace`, with result `first` in the buffer of operand `second`.
struct KernelRun {
  int64_t extent = 1;
  int64_t step = 1 << 30;
  bool backwards = false;
  std::vector<std::pair<int, int>> inPlace;
};

/// What the kernel makes of `operands`. Fails the test if it writes beside its results.
std::vector<kernels::Tensor> runKernel(program::CompiledKernel kernel, const KernelRun &run,
                                       const std::vector<kernels::Tensor> &operands,
                                       const std::vector<kernels::TensorType> &results);

/// How far the numbers of a kernel may be from those in f64: 4 times what the reference kernels in
/// their own precision are, one ulp of the result's type at its largest magnitude, and the f32
/// rounding of every step, 2 ulps each (as good as the polynomials of functions are), at the
/// largest magnitude of any value; sums have as many steps as they have terms in a lane and lanes.
struct ErrorBound {
  double referenceError = 0;
  double magnitude = 0; // of the result
  double steps = 0;
  double stepMagnitude = 0; // of all values
  double of(kernels::DType type) const;
};

/// The largest |a - b|; infinite where one is not finite and the other is not the same.
double largestDifference(const kernels::Tensor &a, const kernels::Tensor &b);
double largestMagnitude(const kernels::Tensor &a);

} // namespace tbc

#endif // TBC_TESTS_CODEGEN_CPU_KERNELLIBRARY_H
