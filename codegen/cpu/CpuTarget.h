//===- CpuTarget.h - What CPU kernels are compiled for ----------------------===//

#ifndef TBC_CODEGEN_CPU_CPUTARGET_H
#define TBC_CODEGEN_CPU_CPUTARGET_H

#include "runtime/abi/Status.h"

#include <string>
#include <vector>

namespace tbc::cpu {

/// A level of the x86-64 psABI: kernels are the same on every machine that has it.
struct CpuTarget {
  std::string name; // "x86-64-v3"
  int lanes = 4;    // f32 in a vector register
  /// What the level asks of a CPU, as the kernel names it in /proc/cpuinfo, separated by spaces.
  std::string features;
};

/// "native": the highest level that this machine has; or a level by its name.
/// Errors, code Usage: another name; native on a machine of another architecture.
Result<CpuTarget> findCpuTarget(const std::string &name);

/// "native", "x86-64-v2" ...
std::vector<std::string> cpuTargetNames();

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_CPUTARGET_H
