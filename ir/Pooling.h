//===- Pooling.h - The ops of Pooling.td ----------------------------------===//

#ifndef TBC_IR_POOLING_H
#define TBC_IR_POOLING_H

#include "ir/Tbc.h"

namespace tbc {

/// Returns the memory of a max_pool_grad on GPUs (ir/PoolWorkspace.h).
WorkspaceFn maxPoolWorkspace(llvm::ArrayRef<int64_t> kernel);

} // namespace tbc

#define GET_OP_CLASSES
#include "ir/Pooling.h.inc"

#endif // TBC_IR_POOLING_H
