//===- Verify.h - Independent checks of a Program --------------------------===//
//
// Part of tbc. Plain C++. Reads only the Program and shares no code with the compiler. All ranks of
// a stage execute the same instructions, so most properties of ranks are checked per stage.
//
// Every error has code VerificationFailed and names the stage, block and instruction or slot.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_VERIFY_VERIFY_H
#define TBC_RUNTIME_VERIFY_VERIFY_H

#include "runtime/abi/Program.h"

namespace tbc::verify {

/// Runs all checks below, after program::checkWellFormed (its errors have code Usage).
Status verifyProgram(const program::Program &program);

// Each check requires a well-formed program and success of the checks before it.

/// Checks the order of reads and writes:
///
/// - Every action runs once, in a valid order.
/// - Every value is defined once and read only afterwards.
/// - Every slot is written before it is read, and only by blocks allowed to write it: parameters
///   and optimizer states by update, residuals by the forward of their micro-batch.
/// - Gradients and the loss accumulate all micro-batches, each once.
/// - Every result of a communication, a host copy or of update is used. A sum over stages in update
///   is exempt, because a stage may take part only for the others. Other instructions need at least
///   one used result.
Status checkDataflow(const program::Program &program);

/// Slots on the host are written only by an offload of a device value, and are read only by fetch.
Status checkLocations(const program::Program &program);

/// Every tensor that outlives a step is held by a rank. Either all its stages update it, or no
/// stage does. (The pieces make up the whole tensor because they are well formed.)
Status checkOwnership(const program::Program &program);

/// Communication between stages matches. Collectives along the pipeline axis meet the same
/// collective of the same action on every stage of their group. The k-th message from one stage to
/// another is the k-th received there, with the same channel, micro-batch and type. A channel names
/// one message between two stages. (Within a stage all ranks execute the same collectives by
/// construction.)
Status checkMatching(const program::Program &program);

enum class SendSemantics {
  Buffered,  ///< a send never waits; a Program relies on this
  Rendezvous ///< a send waits for its receive; then 1F1B on two stages deadlocks
};

/// Every rank reaches the end of a step.
Status checkDeadlock(const program::Program &program,
                     SendSemantics semantics = SendSemantics::Buffered);

/// Ranks with the same piece of a parameter, state or optimizer state keep equal contents: values
/// written to it do not differ between them. The same holds for a gradient except along its
/// partial-sum axes, and for the loss over all ranks. In addition, no collective sums or gathers an
/// operand that is equal along one of its axes (a reduction done twice), and no slice cuts one that
/// differs.
///
/// It uses abstract interpretation: for each value, the set of mesh axes along which it may differ.
/// Example: after an all_reduce over dp a gradient no longer differs along dp.
Status checkReplicas(const program::Program &program);

/// Stages with the same tensor update it by the same expression.
Status checkHolders(const program::Program &program);

/// Checks how values are cut from their tensors, as far as it is known: for contents of slots, and
/// for results of update and collectives. Collectives must join pieces in the order and at the
/// place of the cut, and a value written to a tensor's slot must be its piece.
Status checkLayouts(const program::Program &program);

/// Checks the memory plans of the stages, if there are any: no two live buffers share bytes of an
/// arena, neither on the device nor on the host. Lifetimes:
///
/// - slots that outlive a micro-batch: always;
/// - frames: per micro-batch, from the first block that writes or reads a slot of the frame to the
///   last;
/// - values: from their instruction to their last read, or until their result takes effect.
///
/// A value computed in the place of a slot must be written to this slot, after the last read of the
/// slot's old content.
Status checkMemory(const program::Program &program);

} // namespace tbc::verify

#endif // TBC_RUNTIME_VERIFY_VERIFY_H
