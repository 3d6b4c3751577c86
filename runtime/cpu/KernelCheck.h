//===- KernelCheck.h - A kernel's results beside the reference kernels' ------===//
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

/// What one kernel does: an instruction, or those of a compiled region.
struct KernelWork {
  const program::Stage *stage = nullptr;
  const program::Block *block = nullptr;
  int first = 0, count = 1; // instructions
  program::RegionValues values;
};

/// Results of one kernel, from the same operands, by the reference kernels: rounded as the types
/// say, and in f64; and how far from the latter a kernel may be.
struct ReferenceResults {
  std::vector<kernels::Tensor> native, exact;
  std::vector<double> bounds; // 0 for integers, which have to be equal
};

/// Executes the instructions of `work` on `operands`, which are in Native arithmetic.
///
/// The bound of a result of type t, with u = 2^-24, is
///
///     4 e + ulp_t(m) + u s M
///
/// e: the largest error of the reference kernels in their own precision; m: the largest magnitude
/// of the exact result; M: that of any operand, intermediate and result, and of what the same
/// instructions make of the magnitudes of the operands, which bounds sums that cancel; s: the
/// roundings that add up, per instruction 24 of 4 u, as many as the longest chain of a composite
/// has, and 8 sqrt(n) for a sum of n terms: rounding errors that are not correlated exceed
/// 8 sqrt(n) u with a probability below 10^-13. Source: Higham and Mary, "A new approach to
/// probabilistic rounding error analysis", 2019, theorem 2.4.
///
/// Example: a sum of 1024 f32 values up to 1 with an exact result of 10: s = 96 + 256, M = 1024
/// (the sum of magnitudes), so at most 0.022 from it. KernelError: as of the kernels.
ReferenceResults evaluateReference(const KernelWork &work,
                                   const std::vector<kernels::Tensor> &operands);

/// The same of the sum of two tensors, in the type of the slot that holds the first.
ReferenceResults addedByReference(const kernels::TensorType &slot,
                                  const std::vector<kernels::Tensor> &terms);

/// How far `made` is from the reference, in bounds of each result; 1 or less agrees. Elements in
/// which integers of the reference itself depend on rounding (a comparison of floats) are left out.
/// `why` says where and by how much, for a worst above 1.
double worstOf(const ReferenceResults &reference, const std::vector<kernels::Tensor> &made,
               std::string &why);

/// How one kernel compared, over all executions that were compared.
struct KernelComparison {
  enum class Kind { Native, Compiled, Reference };
  std::string name;  // the op, or the ops of a region
  std::string place; // of the first execution, or of the first that differs
  Kind kind = Kind::Native;
  int64_t count = 0;      // executions
  double worst = 0;       // the largest error over its bound
  std::string difference; // of the first that differs; empty: none
};

/// Comparisons of all ranks, one line per distinct kernel. For any thread.
class KernelComparisons {
public:
  /// `most`: executions of each kernel that are compared; 0: all.
  explicit KernelComparisons(int64_t most = 0) : most(most) {}
  /// Whether the next execution of the kernel of this key is to be compared. Counts it.
  bool begin(const std::string &key);
  /// `one` with the count of this execution alone.
  void add(const std::string &key, const KernelComparison &one);
  /// In the order of their keys.
  std::vector<KernelComparison> list() const;

private:
  const int64_t most;
  mutable std::mutex mutex;
  std::map<std::string, int64_t> begun;
  std::map<std::string, KernelComparison> lines;
};

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_KERNELCHECK_H
