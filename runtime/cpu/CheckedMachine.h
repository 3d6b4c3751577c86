//===- CheckedMachine.h - Kernels compared as they are executed --------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_CHECKEDMACHINE_H
#define TBC_RUNTIME_CPU_CHECKEDMACHINE_H

#include "runtime/cpu/KernelCheck.h"
#include "runtime/cpu/NativeMachine.h"

namespace tbc::cpu {

struct CheckOptions {
  NativeOptions native;
  std::shared_ptr<KernelComparisons> comparisons;
  int64_t steps = 0;  // of training, the first ones, in which kernels are compared; 0: all
  bool stops = false; // at the first difference, with VerificationFailed
};

/// nativeMachine, with every kernel that it executes compared with the reference kernels, from the
/// operands that it was given. Each is executed twice:
///  - where the memory plan has its operands and results, as a run does;
///  - on copies that begin 64 bytes behind a multiple of 128, the least alignment that a kernel may
///    rely on, with guards around them, compiled regions in some 64 pieces from the last to the
///    first.
/// Sums in slots are compared as well.
runtime::MachineMaker checkedMachine(const CheckOptions &options);

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_CHECKEDMACHINE_H
