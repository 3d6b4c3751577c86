//===- Doctor.h - What this machine has, and what it lacks -------------------===//
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
  Missing, ///< something that only some uses need
  Problem, ///< training will fail, or be slow
};

/// What was found of one thing; `advice` says how to mend it, where it is not Ok.
struct Finding {
  std::string name;
  State state = State::Ok;
  std::string found, advice;
};

/// Cores, vector units, memory, limits, space for files.
std::vector<Finding> examineMachine();
/// The loopback interface, two ranks that meet and add up over it, this host's name.
std::vector<Finding> examineNetwork();
/// Launchers, a linker for compiled kernels.
std::vector<Finding> examineSoftware();

/// NVIDIA's libraries, or why they are not there.
struct GpuLibraries {
  /// Whether there is a driver that will do, started or not.
  Status installed;
  Result<cuda::Driver> driver;
  Result<cuda::Nccl> nccl;
  Result<cuda::CublasLt> cublas;
  Result<cuda::Cudnn> cudnn;
};
/// Those of this machine.
GpuLibraries gpuLibraries();
/// The driver, every GPU with its memory, whether they are of one model and reach each other's
/// memory, NCCL, cuBLASLt and cuDNN. Opens a context on each.
std::vector<Finding> examineGpus(const GpuLibraries &libraries);

/// One line each, with the advice below it.
std::string textOf(const std::vector<Finding> &findings);
/// {"version":1,"ok":…,"findings":[{"name","state","found","advice"}]}; `ok`: there is no problem.
std::string jsonOf(const std::vector<Finding> &findings);

} // namespace tbc::doctor

#endif // TBC_TOOLS_DOCTOR_DOCTOR_H
