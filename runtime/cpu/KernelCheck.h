//===- KernelCheck.h - Comparison of a kernel with the reference kernels ---===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_KERNELCHECK_H
#define TBC_RUNTIME_CPU_KERNELCHECK_H

#include "runtime/abi/Region.h"
#include "runtime/kernels/Tensor.h"

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tbc::cpu {

/// The work of one kernel: an instruction, or those of a compiled region.
struct KernelWork {
  const program::Stage *stage = nullptr;
  const program::Block *block = nullptr;
  int first = 0, count = 1; // instructions
  program::RegionValues values;
};

/// Results of the reference kernels for one kernel, from the same operands: rounded to their types
/// (`native`), and in f64 (`exact`). `bounds` are the allowed errors against `exact`.
struct ReferenceResults {
  std::vector<kernels::Tensor> native, exact;
  std::vector<double> bounds; // 0 for integers, which must be equal
};

/// Executes the instructions of `work` on `operands`, which are in Native arithmetic.
///
/// The bound of a result of type t, with u = 2^-24, is
///
///     4 e + ulp_t(m) + u s M
///
/// - e: the largest error of the reference kernels in their own precision;
/// - m: the largest magnitude of the exact result;
/// - M: the largest magnitude of any operand, intermediate and result, and of the results of the
///   same instructions on the magnitudes of the operands. The latter bounds sums that cancel;
/// - s: the roundings that add up. Each instruction counts 24 roundings of 4 u, the longest
///   chain of a composite. A sum of n terms adds 8 sqrt(n).
///
/// Uncorrelated rounding errors exceed 8 sqrt(n) u with a probability below 10^-13. Source: Higham
/// and Mary, "A new approach to probabilistic rounding error analysis", 2019, theorem 2.4.
///
/// Example: a sum of 1024 f32 values up to 1 with an exact result of 10 has s = 96 + 256 and M =
/// 1024 (the sum of magnitudes). So the error may be up to 0.022. KernelError: as of the kernels.
ReferenceResults evaluateReference(const KernelWork &work,
                                   const std::vector<kernels::Tensor> &operands);

/// The same for the sum of two tensors, in the type of the slot that holds the first.
ReferenceResults addedByReference(const kernels::TensorType &slot,
                                  const std::vector<kernels::Tensor> &terms);

/// Returns the largest error of `made` against the reference, as a multiple of its bound; 1 or less
/// agrees. Integers that depend on rounding in the reference itself (a comparison of floats) are
/// left out. `why` reports the element and the error if the result is above 1.
double worstOf(const ReferenceResults &reference, const std::vector<kernels::Tensor> &made,
               std::string &why);

/// The comparison of one kernel, over all its compared executions.
struct KernelComparison {
  enum class Kind { Native, Compiled, Reference };
  std::string name;  // the op, or the ops of a region
  std::string place; // the first execution, or the first that differs
  Kind kind = Kind::Native;
  int64_t count = 0;      // executions
  double worst = 0;       // the largest error over its bound
  std::string difference; // the first difference; empty: no difference
};

/// Comparisons of all ranks, one line per distinct kernel. Any thread may call it.
class KernelComparisons {
public:
  /// `most`: the number of compared executions of each kernel; 0: all.
  explicit KernelComparisons(int64_t most = 0) : most(most) {}
  /// Counts an execution of the kernel `key`; returns whether it is to be compared.
  bool begin(const std::string &key);
  /// Adds `one`, whose count is that of this execution.
  void add(const std::string &key, const KernelComparison &one);
  /// Returns the comparisons in the order of their keys.
  std::vector<KernelComparison> list() const;

private:
  const int64_t most;
  mutable std::mutex mutex;
  std::map<std::string, int64_t> begun;
  std::map<std::string, KernelComparison> lines;
};

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_KERNELCHECK_H
