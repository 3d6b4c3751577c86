//===- Order.h - The instructions of a block by stream --------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_ORDER_H
#define TBC_RUNTIME_ABI_ORDER_H

#include "runtime/abi/Program.h"
#include "runtime/memory/Streams.h"

namespace tbc::program {

/// Returns the stream and the waits of each instruction of a block, as `memory::StreamOrder` takes
/// them.
std::vector<memory::StreamStep> streamStepsOf(const Block &block);

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_ORDER_H
