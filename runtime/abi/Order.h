//===- Order.h - What is done when an instruction begins -------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_ORDER_H
#define TBC_RUNTIME_ABI_ORDER_H

#include "runtime/abi/Program.h"
#include "runtime/memory/Streams.h"

namespace tbc::program {

/// The instructions of a block by stream, for memory::StreamOrder.
std::vector<memory::StreamStep> streamStepsOf(const Block &block);

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_ORDER_H
