//===- KernelClass.h - Kinds of kernels, for the cost model ----------------===//
//
// Plain C++. An op says its class (ir, CostOpInterface); a cluster file says how well a device runs
// it ([kernel.CLASS]).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_KERNELCLASS_H
#define TBC_PLANNER_RESHARD_KERNELCLASS_H

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace tbc::reshard {

/// GroupedMatmul: matmuls of groups whose sizes are data, such as routed experts. Fp8Matmul: both
/// rounded to 8 bits; Rounding: kernels that do so. No op has these two, a matmul has both if its
/// operands are rounded.
/// CausalAttention: queries read only the keys before them, so a kernel may skip about half of the
/// work. TiledAttention, CausalTiledAttention: attention that libraries lack, with masks that are
/// data, windows, biases, caps, sinks or dropout, by tbc's own kernels. None: views and generators,
/// without a kernel.
enum class KernelClass {
  Matmul,
  Fp8Matmul,
  GroupedMatmul,
  Conv,
  Attention,
  CausalAttention,
  TiledAttention,
  CausalTiledAttention,
  Elementwise,
  Rounding,
  Reduction,
  Gather,
  None
};

/// The function of an op for each element, where decisions depend on it: sums join the parts of a
/// gradient, and libraries execute these functions with a matmul. Sum: of two operands. Cast:
/// between floats. Gelu: the tanh form; its gradient reads the input, then the cotangent.
enum class ElementFunction { Other, Sum, Cast, Gelu, GeluGradient };

/// The bytes that the kernel of an op keeps between its launches on a GPU, from the local shapes of
/// its operands. Unset: zero, or little enough for the cluster's context_bytes.
using WorkspaceFn = std::function<int64_t(const std::vector<std::vector<int64_t>> &)>;

/// The launches of the kernel of an op that depend on the local shapes of its operands. It never
/// decreases with them.
using LaunchesFn = std::function<int64_t(const std::vector<std::vector<int64_t>> &)>;

/// What tbc's own kernel of an op does on a GPU.
struct OwnKernel {
  double work = 1;                 // FLOPs executed for each of the op
  double launches = 1;             // that follow each other, without `launchesOf`
  bool usesTensorCores = false;    // for 16-bit types
  LaunchesFn launchesOf = nullptr; // unset: always as many
};

const std::vector<KernelClass> &kernelClasses();
/// What an op does with the columns, the last dim, of a tensor of several parts. Example: q, k and
/// v are the columns of the tensor that one linear layer makes.
struct ColumnUse {
  /// Cuts: the result is some of the operand's columns. Joins: the operands are the columns of the
  /// result, in their order. Takes: three operands may be the columns of one tensor, in their
  /// order.
  enum class Kind { Other, Cuts, Joins, Takes } kind = Kind::Other;
  /// Cuts: the first of these columns. Takes: the first of these operands.
  int64_t first = 0;
  /// Takes: whether the first three results may then be the columns of one tensor.
  bool makesColumns = false;

  /// Of the operands and results that are parts of one tensor.
  static constexpr size_t numParts = 3;
};

/// Returns the word of cluster files. Example: "causal_attention".
const char *name(KernelClass kernelClass);
/// The inverse of name(); nullopt for any other text.
std::optional<KernelClass> parseKernelClass(std::string_view word);

/// Whether kernels of this class run on matrix units. Example: matmul and conv do, reduction does
/// not.
bool isMatrixClass(KernelClass kernelClass);
/// Whether only tbc's own kernels have this class. Other executors run ops of it at the rate of the
/// broader class.
bool isOwnClass(KernelClass kernelClass);
/// Whether a kernel of this class may read an operand from the registers of the elementwise kernel
/// that makes it: elementwise and reduction.
bool readsRegisters(KernelClass kernelClass);
/// Whether a kernel of this class reads at most as many bytes of an operand as it writes: gather.
bool readsPart(KernelClass kernelClass);
/// Returns the class whose numbers stand for this one in a cluster file without numbers of its own.
/// Example: attention for causal_attention.
std::optional<KernelClass> broaderClass(KernelClass kernelClass);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_KERNELCLASS_H
