//===- CudaMachine.h - Kernels on a GPU ------------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_CUDAMACHINE_H
#define TBC_RUNTIME_CUDA_CUDAMACHINE_H

#include "runtime/cuda/KernelModule.h"
#include "runtime/exec/Machine.h"

namespace tbc::cuda {

struct CudaOptions {
  DevicePtr device;
  /// Of the program's regions and of slots that are added to; null: there are none.
  std::shared_ptr<const KernelModule> kernels;
  /// What the device has no kernel for is executed on the host by its reference kernel, its
  /// operands and results copied there and back: slow, and right. Without, that is so for the host
  /// ops that `kernels` lists alone; others are refused.
  bool allowHost = false;
  /// Waits for every kernel, so that one that fails is named by its own instruction. Without, the
  /// error says which kernels it may be.
  bool waitForEach = false;
};

/// The machine whose arena is one allocation of a GPU. Kernels are launched in one stream, in the
/// order of the Program, and nothing waits for them but who asks for what is in the arena. Its
/// executor must run in Native arithmetic.
///
/// Errors: Usage, a Program without memory plan, a region without kernel, and unless allowHost an
/// instruction that no region does and the host may not; RankFailed, what the driver refuses.
runtime::MachineMaker cudaMachine(const CudaOptions &options);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_CUDAMACHINE_H
