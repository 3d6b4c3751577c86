//===- Registry.cpp - Which native kernel an op has ----------------------------===//

#include "runtime/cpu/Families.h"

namespace tbc::cpu {

NativeKernel findNativeKernel(std::string_view op, const kernels::Attrs &attrs,
                              const Types &operands, const Types &results) {
  static constexpr NativeKernelMaker makers[] = {
      makeEinsum, makeMovement, makeAttention, makeElementwise, makeNormalization, makeVocabulary};
  for (NativeKernelMaker maker : makers)
    if (NativeKernel kernel = maker(op, attrs, operands, results))
      return kernel;
  return nullptr;
}

} // namespace tbc::cpu
