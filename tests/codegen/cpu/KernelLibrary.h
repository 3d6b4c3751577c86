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

/// A kernel of one or several launches. The extent of the first is in KernelRun.
struct LoadedKernel {
  program::CompiledKernel first = nullptr;
  std::vector<std::pair<program::CompiledKernel, int64_t>> then = {}; // with their extents
  int64_t workspaceBytes = 0;
};

/// A shared object of kernels in a temporary file, loaded.
class KernelLibrary {
public:
  /// If compilation fails, the test fails and `isOpen` is false.
  KernelLibrary(const std::vector<region::KernelSource> &sources, const cpu::CpuTarget &target);
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary &) = delete;

  bool isOpen() const { return handle != nullptr; }
  program::CompiledKernel find(const std::string &symbol) const;
  LoadedKernel find(const std::string &symbol, const region::Kernel &kernel) const;
  /// Returns an exported text.
  std::string text(const char *symbol) const;

  static constexpr const char *programHash = "0123";

private:
  std::string path;
  void *handle = nullptr;
};

/// How to run a kernel: its extent in pieces of `step` iterations, the last piece first if
/// `backwards`. Example: extent 10 and step 4 run pieces of 4, 4 and 2. A pair of
/// `inPlace` puts result `first` into the buffer of operand `second`.
struct KernelRun {
  int64_t extent = 1;
  int64_t step = 1 << 30;
  bool backwards = false;
  std::vector<std::pair<int, int>> inPlace;
};

/// Returns the kernel's results for `operands`. Fails the test on a write outside of the results.
std::vector<kernels::Tensor> runKernel(const LoadedKernel &kernel, const KernelRun &run,
                                       const std::vector<kernels::Tensor> &operands,
                                       const std::vector<kernels::TensorType> &results);

/// Bound on the difference of a kernel's values from f64. It is the sum of:
///
/// - 4 times the error of the reference kernels in their own precision
/// - one ulp of the result's type at its largest magnitude
/// - 2 ulps of f32 per step (the error of polynomial functions), at the largest magnitude of any
///   value. A sum has as many steps as terms in a lane, plus lanes.
struct ErrorBound {
  double referenceError = 0;
  double magnitude = 0; // of the result
  double steps = 0;
  double stepMagnitude = 0; // of all values
  double of(kernels::DType type) const;
};

/// Returns the largest |a - b|. It is infinite if one is not finite and the other differs.
double largestDifference(const kernels::Tensor &a, const kernels::Tensor &b);
double largestMagnitude(const kernels::Tensor &a);

} // namespace tbc

#endif // TBC_TESTS_CODEGEN_CPU_KERNELLIBRARY_H
