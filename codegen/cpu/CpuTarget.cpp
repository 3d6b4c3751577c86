//===- CpuTarget.cpp - Target CPUs of compiled kernels ----------------------===//

#include "codegen/cpu/CpuTarget.h"

#include "llvm/TargetParser/Host.h"

#include <sstream>

namespace tbc::cpu {

/// Source: System V ABI, AMD64 supplement, section 3.1.1; names of /proc/cpuinfo. Ascending.
static const std::vector<CpuTarget> &levels() {
  static const std::string v2 = "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3";
  static const std::string v3 = v2 + " avx avx2 bmi1 bmi2 f16c fma abm movbe xsave";
  static const std::string v4 = v3 + " avx512f avx512bw avx512cd avx512dq avx512vl";
  static const std::vector<CpuTarget> list = {
      {"x86-64-v2", 4, v2}, {"x86-64-v3", 8, v3}, {"x86-64-v4", 16, v4}};
  return list;
}

/// Whether this machine has the level, by LLVM's names of the distinguishing features.
static bool isOnHost(const CpuTarget &target) {
  auto features = llvm::sys::getHostCPUFeatures();
  auto has = [&](llvm::StringRef feature) { return features.lookup(feature); };
  bool v2 = has("sse4.2") && has("popcnt") && has("cx16") && has("ssse3");
  bool v3 = v2 && has("avx2") && has("bmi") && has("bmi2") && has("f16c") && has("fma") &&
            has("lzcnt") && has("movbe");
  bool v4 = v3 && has("avx512f") && has("avx512bw") && has("avx512cd") && has("avx512dq") &&
            has("avx512vl");
  return target.lanes == 4 ? v2 : target.lanes == 8 ? v3 : v4;
}

std::vector<std::string> cpuTargetNames() {
  std::vector<std::string> names = {"native"};
  for (const CpuTarget &level : levels())
    names.push_back(level.name);
  return names;
}

Result<CpuTarget> findCpuTarget(const std::string &name) {
  const CpuTarget *best = nullptr;
  for (const CpuTarget &level : levels()) {
    if (level.name == name)
      return level;
    if (isOnHost(level))
      best = &level;
  }
  if (name == "native" && best)
    return *best;
  std::string known;
  for (const CpuTarget &level : levels())
    known += (known.empty() ? "" : ", ") + level.name;
  if (name == "native")
    return Error{ErrorCode::Usage, "kernels cannot be compiled for this machine: it has none of " +
                                       known + "; --no-kernels compiles none"};
  return Error{ErrorCode::Usage, "unknown CPU \"" + name + "\"; there are native, " + known};
}

} // namespace tbc::cpu
