//===- NativeMachine.h - Kernels on the bytes of an arena ---------------------===//
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
  /// Of the program's regions; nothing: their instructions are executed one by one.
  std::shared_ptr<const CompiledKernels> compiled;
};

/// The compiled kernels in the folder of a program.json with this SHA-256; nothing where the
/// program has no regions. Errors: as of CompiledKernels and of the seal; regions without a shared
/// object.
Result<std::shared_ptr<const CompiledKernels>>
compiledKernelsOf(const program::Program &program, const program::SealedFolder &folder,
                  const std::string &programHash);

/// The machine that executes kernels where the memory plan has their operands and results, in the
/// precision of their types, by native kernels; an op that has none is executed by its reference
/// kernel, and so counted (KernelShare). Its executor must run in Native arithmetic. Errors: Usage,
/// a Program without memory plan, an op without any kernel.
runtime::MachineMaker nativeMachine(const NativeOptions &options);

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_NATIVEMACHINE_H
