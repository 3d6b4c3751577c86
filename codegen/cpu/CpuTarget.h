//===- CpuTarget.h - Target CPUs of compiled kernels ------------------------===//

#ifndef TBC_CODEGEN_CPU_CPUTARGET_H
#define TBC_CODEGEN_CPU_CPUTARGET_H

#include "runtime/abi/Status.h"

#include <string>
#include <vector>

namespace tbc::cpu {

/// A level of the x86-64 psABI. Kernels give the same results on every machine with the level.
struct CpuTarget {
  std::string name; // "x86-64-v3"
  int lanes = 4;    // f32 in a vector register
  /// The CPU features of the level, by their names in /proc/cpuinfo, separated by spaces.
  std::string features;
};

/// Returns a level by its name; "native" is the highest level of this machine. Errors, code Usage:
/// another name; native on a machine of another architecture.
Result<CpuTarget> findCpuTarget(const std::string &name);

/// "native", "x86-64-v2" ...
std::vector<std::string> cpuTargetNames();

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_CPUTARGET_H
