//===- CudaMachine.h - Kernels on a GPU ------------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_CUDAMACHINE_H
#define TBC_RUNTIME_CUDA_CUDAMACHINE_H

#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/Cudnn.h"
#include "runtime/cuda/HostWatch.h"
#include "runtime/cuda/KernelModule.h"
#include "runtime/cuda/Nccl.h"
#include "runtime/cuda/StepGraphs.h"
#include "runtime/exec/Machine.h"

#include <chrono>
#include <functional>
#include <optional>

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
  /// Multiplies matrices, where it can; the program's own kernels do what it cannot.
  std::optional<CublasLt> cublas;
  /// Does attention and convolution, where it can; the program's own kernels do what it cannot.
  std::optional<Cudnn> cudnn;
  /// The same numbers on every run, on the same devices and libraries: cuBLASLt takes no sum in
  /// parts side by side, and `cudnn`, whose ways may, is not used.
  bool isDeterministic = false;
  /// Of the best few ways that cuBLASLt knows for a product, the first step times each and takes
  /// the fastest. Not together with isDeterministic: which is the fastest may differ.
  bool isBenchmark = false;
  /// Products of matrices are done in fp8, where their shapes allow it (Fp8Products). With
  /// `cublas`.
  bool multipliesInFp8 = false;
  /// Told once, before the first block, what the libraries do and what not, and why; and after the
  /// first step what timing products saves of it.
  std::function<void(const std::string &)> say;
  /// Where it can register memory and is given, the memory plan is allocated by it and registered
  /// with the communicators of groups that lie in one stage. Outlives the machine.
  const Nccl *registrar = nullptr;
  /// On: a step that cannot be recorded is an error, of code Usage where that is seen before any.
  GraphUse graphs = GraphUse::Off;
  /// The longest wait in which the device does not get on: HangDetected, with the kernels that it
  /// may be; the device is then given up. 0: for ever.
  std::chrono::milliseconds timeout{0};
  /// The watch of the rank, whose time-out then holds; may be null.
  std::shared_ptr<HostWatch> watch;
};

/// The machine whose arena is one allocation of a GPU. The streams of the Program are streams of
/// the device, and its waits events: kernels are launched in one, collectives are put into the
/// other and work on the arena itself, and nothing waits for them but who asks for what is in the
/// arena. Where the communicator is no DeviceCommunicator, or cannot reduce a type, collectives are
/// called by the host, which waits. A communicator that it has called outlives it.
///
/// Its executor runs in Native arithmetic, or in Residue251: then the host executes all kernels, of
/// `options` no library is used and no graph made, and NCCL moves what it reduces otherwise. The
/// memory plan, the streams, messages and communicators are the same.
///
/// Errors: Usage, isBenchmark with isDeterministic, multipliesInFp8 where that cannot be, a Program
/// without memory plan, a region without kernel, and unless allowHost an instruction that no region
/// does and the host may not; RankFailed, what the driver refuses.
runtime::MachineMaker cudaMachine(const CudaOptions &options);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_CUDAMACHINE_H
