//===- PackedAttention.cpp - Attention of the columns of one tensor -------===//

#include "runtime/kernels/PackedAttention.h"

#include "runtime/cpu/Families.h"

namespace tbc::cpu {

NativeKernel makePackedAttention(std::string_view op, const kernels::Attrs &attrs,
                                 const Types &operands, const Types &results) {
  if (!kernels::PackedAttention::is(op))
    return nullptr;
  const kernels::PackedAttention parts(op);
  NativeKernel plain =
      makeAttention(parts.plainOp(), attrs, parts.operands(operands), parts.results(results));
  if (!plain)
    return nullptr;
  return [parts, plain](Threads &threads, const Buffers &buffers) {
    plain(threads, {parts.operands(buffers.operands), parts.results(buffers.results)});
  };
}

} // namespace tbc::cpu
