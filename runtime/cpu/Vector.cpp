//===- Vector.cpp - The vectorized loops for this CPU ---------------------===//

#include "runtime/cpu/Vector.h"

namespace tbc::cpu {

extern const VectorLoops vectorLoopsBaseline;
#ifdef TBC_VECTOR_LEVELS
extern const VectorLoops vectorLoopsV3, vectorLoopsV4;
#endif

const VectorLoops &vectors() {
#ifdef TBC_VECTOR_LEVELS
  // The features of x86-64-v4 and -v3, the levels of the compiled loops. Source: System V ABI for
  // AMD64, "Micro-Architecture Levels".
  static const VectorLoops &chosen = [&]() -> const VectorLoops & {
    bool isV3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("bmi2");
    bool isV4 = isV3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512cd");
    return isV4 ? vectorLoopsV4 : isV3 ? vectorLoopsV3 : vectorLoopsBaseline;
  }();
  return chosen;
#else
  return vectorLoopsBaseline;
#endif
}

const NamedLoop *findElementLoop(std::string_view name) {
  for (const NamedLoop *loop = vectors().elementwise; loop->name; ++loop)
    if (name == loop->name)
      return loop;
  return nullptr;
}

} // namespace tbc::cpu
