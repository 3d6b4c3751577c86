//===- Program.h - What ranks execute --------------------------------------===//
//
// Part of tbc. Plain C++. Program format v4: a table of global tensors, and per pipeline stage its
// slots (named storage), its straight-line blocks and, through a schedule, their order. Every rank
// of a stage executes the same blocks; what differs is its coordinates, which select its pieces and
// its groups.
//
// One step on a rank:
//  1. Slots of role Gradient and Loss are set to zero.
//  2. The stage's actions (actionsOf) run in order: `forward`, `backward` and, where the schedule
//     parts it from backward, `weight` once per chunk and micro-batch, `update` once. A block's
//     arguments are what its slots hold when it begins, which is when the block before it has
//     ended; it runs the instructions of each stream in order, each when those that it waits for
//     are done, and writes each result to a slot as soon as nothing in the block reads any longer
//     what the slot held (resultTimes): as if all reads of slots came before all writes.
//  3. Slots of role Residual and Input have one instance per micro-batch, which is dropped when the
//     last block that reads it has run for the micro-batch.
//
// Memory: where the stages have a memory plan, all of this lies in one arena per rank, on its
// device, but for slots on the host, which lie in a second one there. What is on the host is read
// by `fetch` alone and written by `offload` alone.
//
// Messages: `send` is buffered (it never waits); `recv` waits for its message. Between an ordered
// pair of stages the messages of a lane arrive in the order in which they were sent, so the two
// stages must send and receive them in the same order; lanes do not wait for each other (stages of
// several chunks send in both phases and for any chunk in one direction, in an order that is not
// that of their receipt). All other collectives wait for their whole group.
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

/// What a tensor or slot is for, and so how long it lives.
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

/// A global tensor, of which ranks hold pieces. Roles: Parameter, State, OptimizerState, Gradient,
/// Input.
struct GlobalTensor {
  std::string name;
  Role role = Role::Parameter;
  /// The ONNX initialiser that a parameter, state or master weight starts from (converted to its
  /// type); empty: all elements start at `fill`.
  std::string initializer;
  /// Of an Input: all samples of one micro-batch, over all data-parallel ranks.
  kernels::TensorType type;
  Piece piece;
  /// Pieces of a Gradient that are partial sums over these axes; a gradient held by several stages
  /// is a partial sum over them when the pipeline axis is among these.
  std::vector<AxisRef> pending;
  double fill = 0;
};

/// Where bytes are: on the rank's device, or in the memory of its host.
enum class Location { Device, Host };

/// A place on a rank where a value outlives its block. `type` has the local shape; a name is unique
/// among the slots of one role of a stage.
struct Slot {
  std::string name;
  Role role = Role::Residual;
  /// The index of the GlobalTensor this is a piece of; -1 for Residual, Loss, Scalar and for
  /// gradients that nobody asks for by name.
  int tensor = -1;
  kernels::TensorType type;
  /// Host: of roles OptimizerState and Residual alone (mayBeOnHost).
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
  Fetch,   ///< host -> device: a copy of what such a slot holds
};
inline constexpr int numInstructionKinds = 11;

/// "kernel", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "shard_slice", "send",
/// "recv", "permute", "offload", "fetch".
std::string_view name(InstructionKind kind);

/// Whether it is a copy between a rank's device and its host.
constexpr bool isHostCopy(InstructionKind kind) {
  return kind == InstructionKind::Offload || kind == InstructionKind::Fetch;
}
/// Whether it has a Communication: it moves something between ranks, or cuts it as if it did.
constexpr bool isCommunication(InstructionKind kind) {
  return kind != InstructionKind::Kernel && !isHostCopy(kind);
}

enum class ReduceKind { Sum, Max };

/// A segment of a dim as a collective of a group of n ranks sees it: the full dim has
/// outer*(n*k)*inner elements of it, the local one outer*k*inner.
struct SegmentShape {
  int64_t outer = 1;
  int64_t k = 1;
  int64_t inner = 1;
  bool operator==(const SegmentShape &o) const {
    return outer == o.outer && k == o.k && inner == o.inner;
  }
};

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
/// An AllReduce, and a flat AllGather or ReduceScatter, may be of several tensors: its results in
/// the order of its operands, each as if it were alone. dim = flatDim: the full tensor is
/// flattened, padded to n * ceil(numel / n) and cut into chunks; the local tensor has shape
/// {ceil(numel / n)}; segments are empty.
struct Communication {
  std::vector<AxisRef> axes;
  /// For a group along the pipeline axis that is not the whole axis (tied parameters): its stages,
  /// in ascending order; `axes` still names the pipeline axis. Else empty.
  std::vector<int> stages;
  ReduceKind reduce = ReduceKind::Sum;
  int dim = -1;
  std::vector<SegmentShape> segments;
  int splitDim = -1;
  std::vector<SegmentShape> splitSegments;
  int peerStage = -1;
  /// Names the message on both sides; the same for every micro-batch.
  int64_t channel = -1;
  /// Of a send or receive: messages between two stages are in order within a lane.
  int lane = 0;

  static constexpr int flatDim = -1;
};

/// What executes instructions. Those of one stream run one after the other, in the order of the
/// block; streams run side by side, and come together at the end of every block.
enum class Stream { Compute, Communication };
inline constexpr int numStreams = 2;

/// "compute", "communication".
std::string_view name(Stream stream);

struct Instruction {
  /// The op id: the ONNX node's name made unique, backward ops with a suffix. For messages and
  /// diffs.
  std::string id;
  InstructionKind kind = InstructionKind::Kernel;
  /// Of a Kernel: the op's mnemonic ("einsum") and attributes.
  std::string op;
  kernels::Attrs attrs;
  Communication comm;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  /// Kernels and slices: Compute.
  Stream stream = Stream::Compute;
  /// Instructions of the block before it, of other streams, that are done before it begins;
  /// ascending.
  std::vector<int> waits = {};
};

struct Argument {
  ValueId value = 0;
  int slot = 0;
};

/// A block's result is written to a slot, or added to it (after a cast to the slot's type:
/// accumulators may be wider than what they gather).
struct BlockResult {
  ValueId value = 0;
  int slot = 0;
  bool accumulate = false;
};

/// Instructions that one compiled kernel does: `count` consecutive kernels of a block from `first`
/// on. It says how they may be executed and changes nothing of what they mean: whoever has no
/// compiled kernels, and every checker, reads the instructions. See runtime/abi/Region.h.
struct Region {
  int first = 0;
  int count = 0;
  /// The function of the program's shared object (runtime/abi/CompiledKernel.h). Regions that
  /// compute the same share one.
  std::string symbol;
  /// The iterations of its parallel loop, which may be done in any order and at the same time.
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

/// Slots that live for a micro-batch and are kept together: an instance of the frame is taken when
/// the first block runs for the micro-batch that writes or reads one of them, and is free when the
/// last has run. All of them are at one location.
struct Frame {
  int64_t bytes = 0;
  /// Where the instance of micro-batch m begins: offsets[m mod the number of offsets].
  std::vector<int64_t> offsets;
};

/// Where a slot lies: at `offset` of its frame, or of the arena of its location (frame -1: slots
/// that live longer than a micro-batch).
struct SlotPlace {
  int frame = -1;
  int64_t offset = 0;
  bool operator==(const SlotPlace &o) const { return frame == o.frame && offset == o.offset; }
};

/// Where a value lies: in a slot, of which it is an argument, or a result for which it is computed
/// in place; or (slot -1) at `offset` of the arena, from its instruction to the last that reads it
/// or, if it is a result, to the time of that. One on the host lies in a slot there.
struct ValuePlace {
  int slot = -1;
  int64_t offset = 0;
  bool operator==(const ValuePlace &o) const { return slot == o.slot && offset == o.offset; }
};

/// The static memory plan of a stage: an offset in bytes for everything that its program owns on a
/// rank, in one arena on its device and one on its host. Two things share bytes only where the
/// streams' order says that one is done with before the other begins. Not in it: what kernels and
/// transports need for themselves, such as the copy that a send makes.
struct MemoryPlan {
  int64_t arenaBytes = 0;
  int64_t hostArenaBytes = 0;
  std::vector<Frame> frames;
  std::vector<SlotPlace> slots;   // one per slot
  std::vector<ValuePlace> values; // one per value

  /// Whether there is none: everything is allocated as it comes.
  bool isEmpty() const {
    return arenaBytes == 0 && hostArenaBytes == 0 && frames.empty() && slots.empty() &&
           values.empty();
  }
};

/// The blocks of one piece of the model. `weight` is empty where the schedule does not part it from
/// backward.
struct Chunk {
  Block forward, backward, weight;
};

/// What the ranks of one coordinate along the pipeline axis execute.
struct Stage {
  /// The type (local shape) of each value; each belongs to one block, where it is an argument or
  /// the result of one instruction.
  std::vector<kernels::TensorType> values;
  std::vector<Slot> slots;
  /// Its pieces of the model, in the order of forward; at least one.
  std::vector<Chunk> chunks = std::vector<Chunk>(1);
  Block update;
  MemoryPlan memory;

  const Block &block(BlockId id) const;
  Block &block(BlockId id);
  /// All blocks in an order in which they can run: forward by ascending chunk, backward by
  /// descending chunk, weight likewise, update.
  std::vector<BlockId> blocks() const;
};

/// The order of blocks: a generator of runtime/schedule by name, or "table" with one list per
/// stage.
struct ScheduleSpec {
  std::string generator = "1f1b";
  std::vector<std::vector<schedule::Action>> table;
  /// The stage of each chunk of the model, in the order of forward; empty: chunk s on stage s.
  std::vector<int> chunkStage;
};

struct Program {
  /// Where it came from, e.g. "model", "plan": for people, nothing is decided by it.
  std::map<std::string, std::string> metadata;
  Mesh mesh;
  /// The axis along which stages lie, its coordinate = the stage; -1 without a pipeline.
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

/// Which stage runs which chunk.
schedule::Pipeline pipelineOf(const Program &program);

/// The actions of one step of `stage`. The program must be well formed.
std::vector<schedule::Action> actionsOf(const Program &program, int stage);

/// When the results of a block take effect, in their order: after the instruction of this index, on
/// its stream, or before the first (-1), or after all of them (their number). A result is written
/// once its value is there and no instruction to come, nor one that may be under way, reads an
/// argument of its slot. Where such an argument is
/// passed on as a result itself, what is written to the slot is written after all instructions; of
/// several results at that time all values are read before any is written. Results of one time are
/// written in their order.
std::vector<int> resultTimes(const Stage &stage, const Block &block);

/// Whether slots of this role have one instance per micro-batch.
constexpr bool livesAMicroBatch(Role role) { return role == Role::Residual || role == Role::Input; }

/// Whether slots of this role may lie on the host.
constexpr bool mayBeOnHost(Role role) {
  return role == Role::OptimizerState || role == Role::Residual;
}

/// By value of the stage, whether it is on the host: an argument of a slot there, or what an
/// offload makes.
std::vector<bool> valuesOnHost(const Stage &stage);

/// Where the slot's instance for a micro-batch begins in the arena of its location, of a stage with
/// a memory plan.
int64_t slotOffset(const Stage &stage, int slot, int64_t microBatch);

/// Whether an instruction may write a result over an operand of the same type
/// (kernels::isElementwiseKernel).
bool mayOverwriteOperands(const Instruction &instruction);

/// The ranks with which the rank at `coordinates` executes a collective, in the order of group
/// indices, itself included.
std::vector<int64_t> groupOf(const Program &program, const Communication &comm,
                             const std::vector<int64_t> &coordinates);

/// The number of ranks of groupOf: the n of SegmentShape.
int64_t groupSizeOf(const Communication &comm, int pipelineAxis);

/// The bytes of a communication: of its buffer on the side where the tensor is full along `axes`
/// (all_reduce: the tensor; all_gather: the result, reduce_scatter: the input, both with the
/// padding of a flat one; all_to_all, permute, send and recv: the local tensor), 0 for ShardSlice;
/// of offload and fetch those that they copy.
/// NCCL's convention.
int64_t messageBytes(const Program &program, const Stage &stage, const Instruction &instruction);

/// Bytes of all elements of a tensor of this type.
int64_t sizeBytes(const kernels::TensorType &type);

/// Whether every index, count and shape of `program` is in its bounds, so that it can be executed
/// or analysed without further checks of this kind; nothing is said about its meaning
/// (runtime/verify does that). Errors name the stage, block and instruction; code Usage.
Status checkWellFormed(const Program &program);

/// "stage 1, backward block", and where the stage has several chunks "stage 1, backward block of
/// chunk 0".
std::string describe(const Program &program, int stage, BlockId block);

/// "stage 1, backward block, instruction 7 (fc1.bwd.0, all_reduce)": how errors name a place.
std::string describe(const Program &program, int stage, BlockId block, int instruction);

/// The canonical text of `program`: the same program is the same bytes. It is JSON with a hash of
/// its payload. The program must be well formed.
std::string writeProgram(const Program &program);

/// The inverse of writeProgram. Any other text is an error of code Usage: not a Program, another
/// version, damaged (any byte), truncated, out of bounds.
Result<Program> readProgram(std::string_view text);

/// A readable listing: mesh, tensors with their pieces, slots, blocks with types and groups,
/// schedule.
std::string show(const Program &program);

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_PROGRAM_H
