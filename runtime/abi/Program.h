//===- Program.h - The Program: blocks, slots and schedule of each rank ---===//
//
// Part of tbc. Plain C++. Program format v6 has a table of global tensors. For each pipeline stage
// it has slots (named storage), straight-line blocks and, through a schedule, their order. All
// ranks of a stage execute the same blocks. Only their coordinates differ; they select the pieces
// and groups of a rank.
//
// One step on a rank:
//
// (1) Slots of role Gradient and Loss are set to zero.
// (2) The stage's actions (`actionsOf`) run in order: `forward` and `backward` once per chunk and
//     micro-batch, `update` once. If the schedule splits backward, `weight` (wgrad) also runs once
//     per chunk and micro-batch. A chunk with a `lastBackward` runs it in place of `backward` for
//     the last micro-batch: it also reduces the accumulated gradients over data ranks.
// (3) Slots of role Residual and Input have one instance per micro-batch. It is dropped after the
//     last block that reads it has run for the micro-batch.
//
// One block:
//
// - It begins when the block before it has ended. Its arguments are the contents of its slots at
//   that time.
// - Each stream runs its instructions in order. An instruction begins when the instructions in its
//   `waits` are done.
// - A result is written to its slot as soon as no later read of the old content is left in the
//   block (`resultTimes`). The effect is as if all reads of slots came before all writes.
//
// Memory: with a memory plan, everything lies in one arena per rank on its device. Slots on the
// host lie in a second arena, in host memory. Only `fetch` reads from the host, and only `offload`
// writes to it.
//
// Messages: `send` is buffered (it never waits); `recv` waits for its message. Between an ordered
// pair of stages, the messages of a lane arrive in the order in which they were sent. So both
// stages must send and receive them in the same order. Lanes do not wait for each
// other: a stage with several chunks sends in both phases and for any chunk, so its messages may be
// received in another order. All other collectives wait for their whole group.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_PROGRAM_H
#define TBC_RUNTIME_ABI_PROGRAM_H

#include "runtime/abi/Piece.h"
#include "runtime/abi/Status.h"
#include "runtime/kernels/Attrs.h"
#include "runtime/kernels/Tensor.h"
#include "runtime/schedule/Schedule.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tbc::program {

/// The purpose of a tensor or slot; it decides the lifetime.
enum class Role {
  Parameter,      ///< lives as long as the program
  State,          ///< the same; written by forward blocks (running statistics)
  OptimizerState, ///< the same; moments and master weights, written by update
  Gradient,       ///< a step; zero at its begin; still readable after the step
  Loss,           ///< the same
  Input,          ///< a micro-batch; provided from outside (labels too)
  Residual,       ///< a micro-batch; from the block that writes it to the last that reads it
  Scalar,         ///< a step; provided from outside: "lr" (float)
};
inline constexpr int numRoles = 8;

/// "parameter", "state", "optimizer_state", "gradient", "loss", "input", "residual", "scalar".
std::string_view name(Role role);

/// A global tensor; each rank holds a piece of it. Roles: Parameter, State, OptimizerState,
/// Gradient, Input.
struct GlobalTensor {
  std::string name;
  Role role = Role::Parameter;
  /// The ONNX initializer with the initial value of a parameter, state or master weight (converted
  /// to its type). Empty: all elements start at `fill`.
  std::string initializer;
  /// For an Input: all samples of one micro-batch, over all data-parallel ranks.
  kernels::TensorType type;
  Piece piece;
  /// The pieces of a Gradient are partial sums over these axes. If the pipeline axis is among them,
  /// the gradient is also a partial sum over the stages that hold it.
  std::vector<AxisRef> partial;
  double fill = 0;
};

/// Memory of the rank's device, or of its host.
enum class Location { Device, Host };

/// Storage on a rank for a value that outlives its block. `type` has the local shape. A name is
/// unique among the slots of one role of a stage.
struct Slot {
  std::string name;
  Role role = Role::Residual;
  /// Index of the GlobalTensor that this is a piece of. It is -1 for Residual, Loss, Scalar and for
  /// gradients that are not requested by name.
  int tensor = -1;
  kernels::TensorType type;
  /// Host is allowed for the roles OptimizerState and Residual only (`mayBeOnHost`).
  Location location = Location::Device;
};

using ValueId = int32_t;

enum class InstructionKind {
  Kernel,
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  ShardSlice,
  Send,
  Recv,
  Permute,
  Offload, ///< device -> host: a copy of its operand, which lies in a slot on the host
  Fetch,   ///< host -> device: a copy of such a slot
};
inline constexpr int numInstructionKinds = 11;

/// "kernel", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "shard_slice", "send",
/// "recv", "permute", "offload", "fetch".
std::string_view name(InstructionKind kind);

/// Whether it is a copy between a rank's device and its host.
constexpr bool isHostCopy(InstructionKind kind) {
  return kind == InstructionKind::Offload || kind == InstructionKind::Fetch;
}
/// Whether it has a Communication: it moves data between ranks, or cuts a tensor as if it did.
constexpr bool isCommunication(InstructionKind kind) {
  return kind != InstructionKind::Kernel && !isHostCopy(kind);
}

using mesh::ReduceKind;
using mesh::SegmentShape;

/// The operands of communication. Field use by kind:
///   AllReduce      axes, reduce
///   AllGather      axes, dim, segments      local -> full along dim
///   ReduceScatter  axes, dim, segments      full, summed -> local along dim
///   ShardSlice     axes, dim, segments      full -> local along dim, no communication
///   AllToAll       axes, dim + segments: the dim that becomes full;
///                  splitDim + splitSegments: the dim that becomes local
///   Permute        axes (not the pipeline's): the tensor of group index i goes to i + 1, the last
///                  to the first
///   Send, Recv     peerStage, channel: the rank with the same coordinates at that stage
///
/// An AllReduce may have several tensors, and so may a flat AllGather or ReduceScatter. The results
/// are in the order of the operands; each is as if it were alone.
///
/// Flat (`dim == flatDim`): the full tensor is flattened, padded to n * ceil(numel / n) and cut
/// into n chunks. The local tensor has shape {ceil(numel / n)}; `segments` is empty. Example: 10
/// elements on 4 ranks are padded to 12; each rank has {3}.
struct Communication {
  std::vector<AxisRef> axes;
  /// For a group along the pipeline axis that is not the whole axis (tied parameters): its stages,
  /// ascending. `axes` still names the pipeline axis. Otherwise empty.
  std::vector<int> stages;
  ReduceKind reduce = ReduceKind::Sum;
  int dim = -1;
  std::vector<SegmentShape> segments;
  int splitDim = -1;
  std::vector<SegmentShape> splitSegments;
  int peerStage = -1;
  /// Names the message on both sides; the same for every micro-batch.
  int64_t channel = -1;
  /// For Send and Recv: messages between two stages are in order within a lane.
  int lane = 0;

  static constexpr int flatDim = -1;
};

/// The op of a matmul.
inline constexpr std::string_view matmulOp = "einsum";

/// A queue of instructions. One stream runs its instructions one after the other, in the order of
/// the block. Streams run concurrently, and join at the end of every block.
enum class Stream { Compute, Communication };
inline constexpr int numStreams = 2;

/// "compute", "communication".
std::string_view name(Stream stream);

struct Instruction {
  /// The op id: the ONNX node's name made unique, backward ops with a suffix. Used in messages and
  /// diffs.
  std::string id;
  InstructionKind kind = InstructionKind::Kernel;
  /// For a Kernel: the op's mnemonic ("einsum") and attributes.
  std::string op;
  kernels::Attrs attrs;
  Communication comm;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  /// Kernels and slices: Compute.
  Stream stream = Stream::Compute;
  /// Indices, ascending, of earlier instructions of other streams that must be done before it
  /// begins.
  std::vector<int> waits = {};
};

struct Argument {
  ValueId value = 0;
  int slot = 0;
};

/// A block's result is written to a slot, or added to it after a cast to the slot's type. An
/// accumulator may be wider than its terms, for example f32 for bf16 gradients.
struct BlockResult {
  ValueId value = 0;
  int slot = 0;
  bool accumulate = false;
};

/// The `count` consecutive kernels of a block from `first` on, for one compiled kernel. A region is
/// only a way to execute these kernels; it does not change their meaning. Checkers, and executors
/// without compiled kernels, read the instructions. The memory plan has no place for values that
/// are made and read only inside of a region. See runtime/abi/Region.h.
struct Region {
  int first = 0;
  int count = 0;
  /// A function of the program's shared object (runtime/abi/CompiledKernel.h). Regions with the
  /// same computation share one function. Empty without a compiled kernel.
  std::string symbol;
  /// Iterations of its parallel loop. They may run in any order and concurrently.
  int64_t extent = 1;
};

struct Block {
  std::vector<Argument> arguments;
  std::vector<Instruction> instructions;
  std::vector<BlockResult> results;
  std::vector<Region> regions; // disjoint, ascending
};

/// Names a block of a stage.
struct BlockId {
  schedule::Action::Kind kind = schedule::Action::Kind::Forward;
  int chunk = 0; // of the stage's own; 0 for update
  BlockId(schedule::Action::Kind kind, int chunk = 0) : kind(kind), chunk(chunk) {}
  BlockId(const schedule::Action &action) : kind(action.kind), chunk(action.chunk) {}
  bool operator==(const BlockId &o) const { return kind == o.kind && chunk == o.chunk; }
  bool operator<(const BlockId &o) const {
    return kind != o.kind ? kind < o.kind : chunk < o.chunk;
  }
};

/// A group of slots that live for a micro-batch and are allocated together, all at one location. An
/// instance is taken when the first block that writes or reads one of them runs for the
/// micro-batch. It is free after the last such block.
struct Frame {
  int64_t bytes = 0;
  /// The instance of micro-batch `m` begins at offsets[m mod offsets.size()].
  std::vector<int64_t> offsets;
};

/// The position of a slot: `offset` in its frame, or in the arena of its location. `frame` is -1
/// for slots that live longer than a micro-batch.
struct SlotPlace {
  int frame = -1;
  int64_t offset = 0;
  bool operator==(const SlotPlace &o) const { return frame == o.frame && offset == o.offset; }
};

/// The position of a value. In a slot: the value is an argument of that slot, or a result computed
/// in place. Otherwise `slot` is -1 and the value lies at `offset` of the arena. It lives from its
/// instruction to its last read or, for a result, to its time in `resultTimes`; the instructions of
/// a region count as one. A value on the host always lies in a slot there. A value inside of a
/// region has the offset `inside`, and no place: a compiled kernel holds it in registers.
struct ValuePlace {
  static constexpr int64_t inside = -1;
  int slot = -1;
  int64_t offset = 0;
  bool isInside() const { return slot < 0 && offset == inside; }
  bool operator==(const ValuePlace &o) const { return slot == o.slot && offset == o.offset; }
};

/// The static memory plan of a stage: an offset in bytes for every slot and value of a rank, in one
/// arena on its device and one on its host. Two things share bytes only if the order of the streams
/// ends the life of one before the other begins. Workspace of kernels and transports is not in it,
/// for example the copy that a send makes.
struct MemoryPlan {
  int64_t arenaBytes = 0;
  int64_t hostArenaBytes = 0;
  std::vector<Frame> frames;
  std::vector<SlotPlace> slots;   // one per slot
  std::vector<ValuePlace> values; // one per value

  /// Whether there is no plan: everything is allocated when it is needed.
  bool isEmpty() const {
    return arenaBytes == 0 && hostArenaBytes == 0 && frames.empty() && slots.empty() &&
           values.empty();
  }
};

/// The blocks of one piece of the model. `weight` (wgrad) is empty unless the schedule splits
/// backward. `lastBackward` is empty where `backward` serves every micro-batch.
struct Chunk {
  Block forward, backward, weight, lastBackward;

  bool hasLastBackward() const {
    return !lastBackward.instructions.empty() || !lastBackward.results.empty();
  }
};

/// The blocks, slots and values of the ranks at one coordinate of the pipeline axis.
struct Stage {
  /// The type (local shape) of each value. A value belongs to one block, as an argument or as the
  /// result of one instruction.
  std::vector<kernels::TensorType> values;
  std::vector<Slot> slots;
  /// Its pieces of the model, in the order of forward; at least one.
  std::vector<Chunk> chunks = std::vector<Chunk>(1);
  Block update;
  MemoryPlan memory;

  const Block &block(BlockId id) const;
  Block &block(BlockId id);
  /// All blocks in a valid order: forward by ascending chunk, backward by descending chunk,
  /// lastBackward (of the chunks that have one) and weight likewise, update.
  std::vector<BlockId> blocks() const;
};

/// The order of blocks: the name of a generator of runtime/schedule, or "table" with one list per
/// stage.
struct ScheduleSpec {
  std::string generator = "1f1b";
  std::vector<std::vector<schedule::Action>> table;
  /// The stage of each chunk of the model, in forward order. Empty: chunk `s` is on stage `s`.
  std::vector<int> chunkStage;
};

struct Program {
  /// The origin, e.g. "model" and "plan". It is for people; no decision depends on it.
  std::map<std::string, std::string> metadata;
  Mesh mesh;
  /// The axis of pipeline stages; a rank's coordinate on it is its stage. -1 without a pipeline.
  int pipelineAxis = -1;
  int64_t microBatches = 1;
  ScheduleSpec schedule;
  std::vector<GlobalTensor> tensors;
  std::vector<Stage> stages;

  int numStages() const { return static_cast<int>(stages.size()); }
  /// The stage that a rank executes.
  int stageOf(const std::vector<int64_t> &coordinates) const;
  /// The index of the tensor called `name`, or -1.
  int tensorIndex(const std::string &name) const;
};

/// The stage of each chunk.
schedule::Pipeline pipelineOf(const Program &program);

/// The actions of one step of `stage` as the schedule has them. The program must be well formed.
std::vector<schedule::Action> scheduledActions(const Program &program, int stage);

/// The actions of one step of `stage`, with LastBackward in place of the last micro-batch's
/// Backward for chunks that have such a block. The program must be well formed.
std::vector<schedule::Action> actionsOf(const Program &program, int stage);

/// Returns when each result of a block takes effect, in the order of `block.results`: the index of
/// an instruction (after it, on its stream), -1 (before the first) or the number of instructions
/// (after all).
///
/// - A result is written once its value exists and no running or later instruction reads an
///   argument of its slot.
/// - If an argument of its slot is itself a result of the block, the write comes after all
///   instructions. At that time all values are read before any is written.
/// - Results with equal times are written in their order.
///
/// Example: instruction 2 computes a result, and instruction 5 of the same stream is the last to
/// read an argument of its slot. The result is written after instruction 5.
std::vector<int> resultTimes(const Stage &stage, const Block &block);

/// Whether slots of this role have one instance per micro-batch.
constexpr bool livesAMicroBatch(Role role) { return role == Role::Residual || role == Role::Input; }

/// Whether slots of this role may lie on the host.
constexpr bool mayBeOnHost(Role role) {
  return role == Role::OptimizerState || role == Role::Residual;
}

/// Returns for each value of the stage whether it is on the host: an argument from a slot there, or
/// the result of an offload.
std::vector<bool> valuesOnHost(const Stage &stage);

/// Returns the offset in bytes of a slot's instance for `microBatch`, in the arena of its location.
/// The stage must have a memory plan.
int64_t slotOffset(const Stage &stage, int slot, int64_t microBatch);

/// Whether an instruction may write a result over an operand of the same type
/// (kernels::isElementwiseKernel).
bool mayOverwriteOperands(const Instruction &instruction);

/// Returns the ranks of the collective's group that contains the rank at `coordinates`, in the
/// order of group indices.
std::vector<int64_t> groupOf(const Program &program, const Communication &comm,
                             const std::vector<int64_t> &coordinates);

/// The number of ranks of `groupOf`, which is the n of SegmentShape.
int64_t groupSizeOf(const Communication &comm, int pipelineAxis);

/// Returns the bytes of a communication by NCCL's convention, the buffer on the side of the full
/// tensor:
///
/// - all_reduce: the tensor;
/// - all_gather: the result; reduce_scatter: the input (both with the padding of a flat one);
/// - all_to_all, permute, send, recv: the local tensor;
/// - offload, fetch: the copied bytes; shard_slice: 0.
///
/// Example: an all_gather of 1 MiB per rank over 8 ranks has 8 MiB.
int64_t messageBytes(const Program &program, const Stage &stage, const Instruction &instruction);

/// Bytes of all elements of a tensor of this type.
int64_t sizeBytes(const kernels::TensorType &type);

/// Checks that every index, count and shape of `program` is in its bounds. An executor or checker
/// can then index without further tests. The meaning of the program is checked by runtime/verify.
/// Errors name the stage, block and instruction; code Usage.
Status checkWellFormed(const Program &program);

/// "stage 1, backward block" or, with several chunks, "stage 1, backward block of chunk 0".
std::string describe(const Program &program, int stage, BlockId block);

/// "stage 1, backward block, instruction 7 (fc1.bwd.0, all_reduce)", as used in error messages.
std::string describe(const Program &program, int stage, BlockId block, int instruction);

/// Returns the canonical text of a well-formed `program`: JSON with a hash of its payload. Equal
/// programs give equal bytes.
std::string writeProgram(const Program &program);

/// The inverse of `writeProgram`. Any other text is an error of code Usage: no Program, another
/// version, damaged (any byte), truncated, out of bounds.
Result<Program> readProgram(std::string_view text);

/// A readable listing: mesh, tensors with their pieces, slots, blocks with types and groups,
/// schedule.
std::string show(const Program &program);

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_PROGRAM_H
