//===- KernelCheck.h - Kernels of single ops against references -------------===//

#ifndef TBC_TESTS_CODEGEN_CPU_KERNELCHECK_H
#define TBC_TESTS_CODEGEN_CPU_KERNELCHECK_H

#include "codegen/region/FormRegions.h"
#include "tests/codegen/cpu/KernelLibrary.h"
#include "tests/ir/OpCases.h"

#include <memory>
#include <set>

namespace tbc {

/// A case compiled to a kernel: the whole of @f is one region.
struct Compiled {
  OpCase opCase;
  std::unique_ptr<ParsedModule> module;
  mlir::OwningOpRef<mlir::ModuleOp> region;
  region::Domain domain;
  region::Kernel kernel;
  std::string symbol;
};

/// Compiles a case. Returns no value if the case has no kernel.
std::optional<Compiled> compileCase(const OpCase &opCase, const region::EmitFn &emit, int number);
/// Compiles a function @f of several ops; `name` is used in messages.
std::optional<Compiled> compileFunction(const std::string &name, const std::string &text,
                                        const region::EmitFn &emit, int number);
/// Returns the source, with the case's own symbol.
region::KernelSource sourceOf(Compiled &compiled);

/// Returns the kernel's results for `operands`; see runKernel.
using RunFn = std::function<std::vector<kernels::Tensor>(
    const KernelRun &run, const std::vector<kernels::Tensor> &operands,
    const std::vector<kernels::TensorType> &results)>;

/// Compares a kernel with the reference, in several runs: whole; in single iterations from the last
/// on if `inPieces`; with each allowed result in place; with as many results in place at once as
/// possible. `lanes` as in checkAll.
void check(Compiled &compiled, const RunFn &runKernel, int lanes, bool inPieces);

/// Compiles the cases and checks those with a kernel: whole, in single iterations from the last on,
/// and with results in place. Returns the checked ops. `lanes`: the number of partial sums of a
/// kernel for a sum over its innermost loop.
std::set<std::string> checkAll(const std::vector<OpCase> &cases, const cpu::CpuTarget &target,
                               const region::EmitFn &emit, int lanes);

/// Checks compiled kernels; see checkAll.
void checkCompiled(std::vector<Compiled> &compiled, const cpu::CpuTarget &target, int lanes);

/// Returns the same op with another number of elements or element type. Example: `from` "xf32",
/// `to` "xbf16".
OpCase withType(OpCase opCase, const std::string &from, const std::string &to);

std::vector<OpCase> allCases();
/// Returns cases of ops without a gradient and without a decomposition.
std::vector<OpCase> otherCases();
/// Returns functions @f that cut and join columns of tensors in place: gates and their gradients,
/// norms, sums, broadcasts and casts of columns, whole vectors of them and others.
std::vector<std::string> columnFunctions();
/// Returns cases of many ops on operands with NaN: functions, maxima and minima, reductions of all
/// forms.
std::vector<OpCase> nanCases();
/// Returns shapes for nine ops: tails of every length, exact vectors, blocks of rows, single
/// elements.
std::vector<OpCase> shapeCases();

} // namespace tbc

#endif // TBC_TESTS_CODEGEN_CPU_KERNELCHECK_H
