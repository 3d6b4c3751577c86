//===- PlanMemory.h - Memory layout of a Program ----------------------------===//
//
// Plain C++, without IR: the Program itself is the input.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_CODEGEN_PLANMEMORY_H
#define TBC_CODEGEN_PLANMEMORY_H

#include "runtime/abi/Program.h"

#include <functional>

namespace tbc {

/// Replaces the memory plan of every stage. The program must be well formed apart from its memory
/// plan, and must pass `verify::checkDataflow`.
///
/// The arena of a stage, from its beginning:
///   1. Slots that outlive a micro-batch, one after the other.
///   2. Frames. A frame holds the slots written and read by the same blocks. Generated schedules
///      keep a frame live for consecutive micro-batches, so its instances form a ring. Example:
///      with 3 micro-batches in flight, micro-batch i uses instance i % 3. If frames peak at
///      different times, they share bytes instead if that takes less.
///   3. Values of the blocks. All blocks share these bytes; each block is packed by liveness
///      (memory::assignOffsets). A value lives from its instruction until no stream still uses it
///      (memory::StreamOrder::settled). Values of update begin at 2, as no micro-batch is in flight
///      then.
///
/// The instructions of a region are one kernel: what they read lives to its end, and what they make
/// from its beginning. Values inside of a region take no bytes. The operands of a matmul right
/// before a region that reads its product live to the end of the region, so that a library can
/// execute both in one call.
///
/// A block result that goes to a slot is computed in the slot if the old content has no more
/// readers. It is also computed there if its own instruction is the only reader and may overwrite
/// it, or all instructions of its region may. Deterministic.
///
/// `mayOverwrite` says of a compiled kernel whether instruction `at` of block `id` may compute
/// `result` over `operand`; without it, each kernel may that is made of elementwise instructions.
using MayOverwriteFn = std::function<bool(int stage, program::BlockId id, int at,
                                          program::ValueId result, program::ValueId operand)>;
void planMemory(program::Program &program, const MayOverwriteFn &mayOverwrite = {});

} // namespace tbc

#endif // TBC_CODEGEN_PLANMEMORY_H
