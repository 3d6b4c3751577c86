//===- Doctor.h - Examine this machine for training --------------------------===//
//
// Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TOOLS_DOCTOR_DOCTOR_H
#define TBC_TOOLS_DOCTOR_DOCTOR_H

#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/Cudnn.h"
#include "runtime/cuda/Nccl.h"

#include <string>
#include <vector>

namespace tbc::doctor {

enum class State {
  Ok,
  Missing, ///< missing, but only some uses need it
  Problem, ///< training will fail or be slow
};

/// The result of one check. Unless it is Ok, `advice` says how to fix it.
struct Finding {
  std::string name;
  State state = State::Ok;
  std::string found, advice;
};

/// Examines cores, vector units, memory, limits, disk space.
std::vector<Finding> examineMachine();
/// Examines the loopback interface, an all-reduce of two ranks over it, and this host's name.
std::vector<Finding> examineNetwork();
/// Examines launchers and the linker for compiled kernels.
std::vector<Finding> examineSoftware();

/// NVIDIA's libraries, or the reasons why they are missing.
struct GpuLibraries {
  /// Whether a usable driver is installed, started or not.
  Status installed;
  Result<cuda::Driver> driver;
  Result<cuda::Nccl> nccl;
  Result<cuda::CublasLt> cublas;
  Result<cuda::Cudnn> cudnn;
};
/// Returns the libraries of this machine.
GpuLibraries gpuLibraries();
/// Examines the driver, every GPU with its memory, NCCL, cuBLASLt and cuDNN. Also checks whether
/// the GPUs are of one model and have peer access. Opens a context on each GPU.
std::vector<Finding> examineGpus(const GpuLibraries &libraries);

/// Returns one line per finding, with the advice below it.
std::string textOf(const std::vector<Finding> &findings);
/// Returns
/// {"format":"tbc-doctor","version":1,"ok":…,"findings":[{"name","state","found","advice"}]}. `ok`:
/// there is no problem.
std::string jsonOf(const std::vector<Finding> &findings);

} // namespace tbc::doctor

#endif // TBC_TOOLS_DOCTOR_DOCTOR_H
