//===- CheckedMachine.h - A backend that checks every kernel it runs ------===//
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
  int64_t steps = 0;  // compared training steps, from the first; 0: all
  bool stops = false; // with VerificationFailed at the first difference
};

/// `nativeMachine` with a check: every kernel is compared with the reference kernels on the same
/// operands. Each kernel runs twice:
///
/// - on operands and results at their positions in the memory plan, as in a run;
/// - on copies between guard bytes. The copies begin 64 bytes after a multiple of 128, the least
///   alignment that a kernel may rely on. Compiled regions run in about 64 pieces, from the last to
///   the first.
///
/// Sums in slots are compared as well.
runtime::MachineMaker checkedMachine(const CheckOptions &options);

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_CHECKEDMACHINE_H
