//===- PlanMemory.h - Where everything of a Program lies --------------------===//
//
// Plain C++. No IR: what it plans by is the Program itself.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_CODEGEN_PLANMEMORY_H
#define TBC_CODEGEN_PLANMEMORY_H

#include "runtime/abi/Program.h"

namespace tbc {

/// Gives every stage its memory plan, in place of any that it has. The program must be well formed
/// but for that, and its dataflow right (verify::checkDataflow).
///
/// The arena of a stage, from its beginning:
///  1. slots that live longer than a micro-batch, one after the other;
///  2. frames, each of the slots that the same blocks write and read. Where the micro-batches of
///     which a frame is live at once follow each other, as under every generated schedule, its
///     instances are a ring. Where frames are largest at different times, they share bytes instead
///     if that takes less;
///  3. the values of the blocks, which all share these bytes, each block's by liveness
///     (memory::assignOffsets): from the instruction that makes one to the last before all to come
///     begin when nobody is at work on it any longer (memory::StreamOrder::settled). Those of
///     update begin at 2: no micro-batch is in flight then.
/// A result of a block that is written to a slot is computed there, if nothing reads any longer
/// what the slot held, or only the instruction that makes the result and may overwrite it.
/// Deterministic.
void planMemory(program::Program &program);

} // namespace tbc

#endif // TBC_CODEGEN_PLANMEMORY_H
