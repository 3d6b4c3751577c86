//===- Dnnl.cpp - Common parts of kernels by oneDNN -----------------------===//

#include "runtime/cpu/Dnnl.h"
#include "runtime/cpu/ScratchMemory.h"

#include <cstring>

namespace tbc::cpu {

const dnnl::engine &dnnlEngine() {
  static const dnnl::engine theEngine(dnnl::engine::kind::cpu, 0);
  return theEngine;
}

dnnl::stream &dnnlStream() {
  static thread_local dnnl::stream theStream(dnnlEngine());
  return theStream;
}

char *threadScratch(size_t bytes) {
  static thread_local ScratchMemory memory;
  return memory.atLeast(bytes);
}

dnnl::primitive_attr withOwnScratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

bool hasAvx512() {
  auto level = unsigned(dnnl::get_effective_cpu_isa());
  auto wanted = unsigned(dnnl::cpu_isa::avx512_core); // levels are sets of bits
  return (level & wanted) == wanted;
}

bool isPlainLoop(const char *implementation) { return std::strncmp(implementation, "ref", 3) == 0; }

} // namespace tbc::cpu
