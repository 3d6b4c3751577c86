//===- NativeMachine.h - The CPU backend ----------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_NATIVEMACHINE_H
#define TBC_RUNTIME_CPU_NATIVEMACHINE_H

#include "runtime/cpu/CompiledKernels.h"
#include "runtime/exec/Machine.h"

namespace tbc::cpu {

struct NativeOptions {
  int threads = 1;
  /// The kernels of the program's regions; null: their instructions run one by one.
  std::shared_ptr<const CompiledKernels> compiled;
};

/// Returns the compiled kernels in the folder of the program.json with the hash `programHash`, or
/// null if the program has no regions. Errors: those of CompiledKernels and of the seal; regions
/// without a shared object.
Result<std::shared_ptr<const CompiledKernels>>
compiledKernelsOf(const program::Program &program, const program::SealedFolder &folder,
                  const std::string &programHash);

/// The backend that runs native kernels on operands and results at their positions in the memory
/// plan, in the precision of their types. An op without a native kernel runs its reference kernel,
/// and is counted so (KernelShare). The executor must use Native arithmetic. Errors: Usage, a
/// Program without memory plan, an op without any kernel.
runtime::MachineMaker nativeMachine(const NativeOptions &options);

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_NATIVEMACHINE_H
