//===- KernelCheck.h - Kernels of single ops against the reference ----------===//

#ifndef TBC_TESTS_CODEGEN_CPU_KERNELCHECK_H
#define TBC_TESTS_CODEGEN_CPU_KERNELCHECK_H

#include "codegen/cpu/FormRegions.h"
#include "tests/codegen/cpu/KernelLibrary.h"
#include "tests/ir/OpCases.h"

#include <memory>
#include <set>

namespace tbc {

/// A case as a kernel: the whole of @f is one region.
struct Compiled {
  OpCase opCase;
  std::unique_ptr<ParsedModule> module;
  mlir::OwningOpRef<mlir::ModuleOp> region;
  cpu::Domain domain;
  cpu::Kernel kernel;
  std::string symbol;
};

/// Nothing where there is no kernel for it.
std::optional<Compiled> compileCase(const OpCase &opCase, const cpu::EmitFn &emit, int number);
/// The same of a function @f of several ops; `name` stands in messages.
std::optional<Compiled> compileFunction(const std::string &name, const std::string &text,
                                        const cpu::EmitFn &emit, int number);
/// Under its own symbol.
cpu::KernelSource sourceOf(Compiled &compiled);

/// What a kernel makes of operands; see runKernel.
using RunFn = std::function<std::vector<kernels::Tensor>(
    const KernelRun &run, const std::vector<kernels::Tensor> &operands,
    const std::vector<kernels::TensorType> &results)>;

/// Runs a kernel whole, in single iterations from the last on if `inPieces`, in place wherever it
/// may be, and with as many results in place at once as possible; compares with the reference.
/// `lanes`: as of checkAll.
void check(Compiled &compiled, const RunFn &runKernel, int lanes, bool inPieces);

/// Compiles what compiles and checks it: whole, in single iterations from the last on, and in place
/// wherever it may be. Returns the ops of which something did. `lanes`: how many partial sums a
/// kernel has for a sum over its innermost loop.
std::set<std::string> checkAll(const std::vector<OpCase> &cases, const cpu::CpuTarget &target,
                               const cpu::EmitFn &emit, int lanes);

/// Checks kernels that are compiled already; see checkAll.
void checkCompiled(std::vector<Compiled> &compiled, const cpu::CpuTarget &target, int lanes);

/// The same op with other numbers of elements or another element type.
OpCase withType(OpCase opCase, const std::string &from, const std::string &to);

std::vector<OpCase> allCases();
/// What has no gradient and does not decompose.
std::vector<OpCase> otherCases();
/// Of nine ops: tails of every length, vectors that fit exactly, rows in blocks, single elements.
std::vector<OpCase> shapeCases();

} // namespace tbc

#endif // TBC_TESTS_CODEGEN_CPU_KERNELCHECK_H
