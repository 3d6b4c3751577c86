//===- Verify.h - Independent checks of a Program --------------------------===//
//
// Part of tbc. Plain C++. Reads only the Program and shares no code with the compiler. All ranks of
// a stage execute the same instructions, so what is asked of ranks is answered per stage.
//
// Every error has code VerificationFailed and names the stage, block and instruction or slot.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_VERIFY_VERIFY_H
#define TBC_RUNTIME_VERIFY_VERIFY_H

#include "runtime/abi/Program.h"

namespace tbc::verify {

/// All the checks below, after program::checkWellFormed (whose errors have code Usage).
Status verifyProgram(const program::Program &program);

// Each of these requires a well-formed program, and those before it to have passed.

/// Every action runs once, in an order in which it can; every value is defined once and read after
/// that; every slot is written before it is read, and by blocks that may: parameters and optimizer
/// states by update, residuals by the forward of their micro-batch. Gradients and the loss gather
/// all micro-batches, each once. Every result of a communication, a host copy or of update is used
/// (but of a sum over stages in update, where some may take part for the others alone), and of
/// every other instruction at least one.
Status checkDataflow(const program::Program &program);

/// What is on the host is what an offload made of something on the device, and is written to a slot
/// on the host; such slots are read by fetch alone.
Status checkLocations(const program::Program &program);

/// Every tensor that outlives a step is held by a rank, and updated by all stages that hold it or
/// by none. (That the pieces of its holders make up the whole tensor is what a well-formed piece
/// means.)
Status checkOwnership(const program::Program &program);

/// Collectives along the pipeline axis meet the same collective of the same action on every stage
/// of their group; the k-th message that a stage sends to another is the k-th that the other
/// receives from it: same channel, micro-batch and type. A channel names one message between two
/// stages. (Within a stage all ranks execute the same collective by construction.)
Status checkMatching(const program::Program &program);

enum class SendSemantics {
  Buffered,  ///< a send never waits: what a Program asks of its transport
  Rendezvous ///< a send waits for its receive: a 1F1B schedule of two stages cannot run so
};

/// Every rank comes to the end of a step.
Status checkDeadlock(const program::Program &program,
                     SendSemantics semantics = SendSemantics::Buffered);

/// Ranks that hold the same piece of a parameter, state or optimizer state go on holding the same:
/// what is written to it does not differ between them. Likewise a gradient but for its pending
/// axes, and the loss over all ranks. No collective takes an operand that is the same along one of
/// its axes where shards or partial sums are asked for (a reduction done twice), or slices one that
/// differs.
///
/// By abstract interpretation: per value the set of mesh axes along which it may differ.
Status checkReplicas(const program::Program &program);

/// Stages that hold the same tensor update it by the same expression.
Status checkHolders(const program::Program &program);

/// Where it is known how a value is cut from its tensor (what slots hold, and what update and
/// collectives make of that), collectives put pieces together in the order and at the place in
/// which they were cut, and what is written to a tensor's slot is its piece.
Status checkLayouts(const program::Program &program);

/// Under the memory plans of the stages, if they have any, no two things that are live at one time
/// share bytes of an arena, that of the device or that of the host: slots that live longer than a
/// micro-batch, always; frames, per micro-batch from the first block that writes or reads a slot of
/// theirs to the last; values, from their instruction to the last that reads them or to the time of
/// their results. What is computed in the place of a slot is what is written to it, and comes when
/// nothing reads any longer what the slot held.
Status checkMemory(const program::Program &program);

} // namespace tbc::verify

#endif // TBC_RUNTIME_VERIFY_VERIFY_H
