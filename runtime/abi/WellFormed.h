//===- WellFormed.h - Parts of checkWellFormed -----------------------------===//
//
// Used by WellFormed*.cpp only. Functions named `why…` return the reason why a check fails, or "".
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_WELLFORMED_H
#define TBC_RUNTIME_ABI_WELLFORMED_H

#include "runtime/abi/Program.h"

#include <string>
#include <string_view>
#include <vector>

namespace tbc::program {

constexpr int64_t maxTensorElements = int64_t(1) << 48;

std::string quoted(std::string_view text);

/// Returns an error with the place and the reason.
Status malformed(const std::string &where, const std::string &why);

bool usesAxis(const std::vector<AxisRef> &axes, int axis);

/// Checks instructions, regions and bindings of a block. Values and slots are well-formed.
Status checkBlock(const Program &program, int stage, BlockId id);

/// Checks the positions of slots and values if the stage has a memory plan. The rest of the stage
/// is well-formed.
Status checkMemoryPlan(const Program &program, int stage);

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_WELLFORMED_H
