//===- CudaMachine.h - The backend of a rank on a GPU ----------------------===//
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
  /// For the program's regions and for accumulated slots; null: no kernels.
  std::shared_ptr<const KernelModule> kernels;
  /// Whether ops without a device kernel run on the host by their reference kernels. Operands and
  /// results are copied between the two: slow but correct. If false, only the host ops listed in
  /// `kernels` do so, and others are refused.
  bool allowHost = false;
  /// Waits for every kernel, so that an error names the failing instruction. Otherwise the error
  /// lists the possible kernels.
  bool waitForEach = false;
  /// Executes matmuls, if it can; the program's own kernels are the fallback.
  std::optional<CublasLt> cublas;
  /// Executes attention and convolution, if it can; the program's own kernels are the fallback.
  std::optional<Cudnn> cudnn;
  /// Gives the same numbers on every run, with the same devices and libraries. cuBLASLt then uses
  /// no split sums, and `cudnn` is not used, because its algorithms may split them.
  bool isDeterministic = false;
  /// The first step times the best few cuBLASLt algorithms of each matmul and keeps the fastest. It
  /// excludes isDeterministic, because the fastest one may differ between runs.
  bool isBenchmark = false;
  /// Executes matmuls in fp8 if their shapes allow it (`Fp8Matmuls`). Needs `cublas`.
  bool multipliesInFp8 = false;
  /// Receives messages: before the first block, the work of the libraries and the reasons for the
  /// rest; after the first step, the time saved by timing matmuls.
  std::function<void(const std::string &)> say;
  /// If it is given and can register memory, it allocates the memory plan. The memory is registered
  /// with the communicators of groups within one stage. Outlives the machine.
  const Nccl *registrar = nullptr;
  /// On: a step that cannot be recorded is an error, with code Usage if this is known before any
  /// step.
  GraphUse graphs = GraphUse::Off;
  /// The longest wait without progress of the device; then HangDetected, with the possible kernels,
  /// and the device is given up. 0: forever.
  std::chrono::milliseconds timeout{0};
  /// The watch of the rank, whose time-out then applies; may be null.
  std::shared_ptr<HostWatch> watch;
};

/// Returns the machine whose arena is one allocation of a GPU. The streams of the Program are
/// streams of the device, and its waits are events. Kernels are launched in one stream; collectives
/// are enqueued in the other and work on the arena itself. Only a read of the arena waits for them.
///
/// If the communicator is no DeviceCommunicator, or cannot reduce a type, the host calls the
/// collectives and waits. A used communicator outlives the machine.
///
/// Its executor runs in Native arithmetic or in Residue251. In Residue251 the host executes all
/// kernels, without libraries and graphs, and NCCL gathers instead of reducing. Memory plan,
/// streams, messages and communicators stay the same.
///
/// Errors: RankFailed, for refusals of the driver; Usage, for
///
/// - isBenchmark with isDeterministic;
/// - multipliesInFp8 without support;
/// - a Program without memory plan;
/// - a region without kernel;
/// - unless allowHost, an instruction outside all regions that is not a host op.
runtime::MachineMaker cudaMachine(const CudaOptions &options);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_CUDAMACHINE_H
