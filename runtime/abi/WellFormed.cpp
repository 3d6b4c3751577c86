//===- WellFormed.cpp - Whether a Program is in its bounds -----------------===//
//
// Everything an executor or checker would otherwise have to test before it indexes. What a program
// means is the business of runtime/verify.
//
//===----------------------------------------------------------------------===//

#include "runtime/abi/Program.h"
#include "runtime/memory/Arena.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_set>

namespace tbc::program {
namespace {

constexpr size_t maxMeshAxes = 16;
constexpr int64_t maxRanks = int64_t(1) << 20;
constexpr int64_t maxMicroBatches = int64_t(1) << 20;
constexpr int maxChunks = 1 << 14;
constexpr int maxLanes = 1 << 30;
constexpr int64_t maxChunkActions = int64_t(1) << 24;
constexpr size_t maxTensorDims = 16;
constexpr int64_t maxTensorElements = int64_t(1) << 48;
constexpr size_t maxSymbolLength = 256;
constexpr int64_t maxArenaBytes = int64_t(1) << 56;

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

/// Each check returns why it fails, or "".
std::string whyInvalid(const kernels::TensorType &type) {
  if (type.shape.size() > maxTensorDims)
    return "a tensor has more than " + std::to_string(maxTensorDims) + " dims";
  int64_t elements = 1;
  for (int64_t size : type.shape) {
    if (size < 0)
      return "a tensor has a negative size";
    if (size != 0 && elements > maxTensorElements / size)
      return "a tensor has more than 2^48 elements";
    elements *= size;
  }
  return "";
}

std::string whyInvalid(const Mesh &mesh) {
  if (mesh.axes.empty() || mesh.axes.size() > maxMeshAxes)
    return "a mesh has 1 to 16 axes, this one has " + std::to_string(mesh.axes.size());
  std::set<std::string> names;
  int64_t ranks = 1;
  for (const MeshAxis &axis : mesh.axes) {
    bool isWord = !axis.name.empty() && std::all_of(axis.name.begin(), axis.name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (!isWord)
      return "mesh axis name " + quoted(axis.name) + " is not a word";
    if (!names.insert(axis.name).second)
      return "mesh axis " + quoted(axis.name) + " is there twice";
    if (axis.size < 1 || axis.size > maxRanks / ranks)
      return "the size of mesh axis " + quoted(axis.name) +
             " is not between 1 and 2^20 ranks in all";
    ranks *= axis.size;
  }
  return "";
}

std::string whyInvalidPipeline(const Program &program) {
  if (program.pipelineAxis < -1 || program.pipelineAxis >= int(program.mesh.axes.size()))
    return "the mesh has no axis number " + std::to_string(program.pipelineAxis);
  int64_t stages = program.pipelineAxis < 0 ? 1 : program.mesh.axes[program.pipelineAxis].size;
  if (int64_t(program.stages.size()) != stages)
    return "the mesh asks for " + std::to_string(stages) + " stages, the program has " +
           std::to_string(program.stages.size());
  if (program.microBatches < 1 || program.microBatches > maxMicroBatches)
    return "the number of micro-batches is not between 1 and 2^20";
  return "";
}

std::string whyInvalidSchedule(const Program &program) {
  const ScheduleSpec &spec = program.schedule;
  schedule::Pipeline pipeline = pipelineOf(program);
  if (pipeline.numChunks() > maxChunks)
    return "it has more than 2^14 chunks";
  if (!spec.chunkStage.empty() && pipeline.numChunks() * program.microBatches > maxChunkActions)
    return "its chunks run more than 2^24 times in a step";
  // Whatever the generator, chunks must lie somewhere, and every stage must have one.
  if (std::string why =
          schedule::whyInvalid(schedule::ScheduleKind::ZeroBubble, pipeline, program.microBatches);
      !why.empty())
    return why;
  for (int stage = 0; stage < program.numStages(); ++stage) {
    size_t chunks = pipeline.chunksOf(stage).size(), blocks = program.stages[stage].chunks.size();
    if (chunks != blocks)
      return "stage " + std::to_string(stage) + " has blocks for " + std::to_string(blocks) +
             " chunks, " + std::to_string(chunks) + " lie on it";
  }
  if (spec.generator != "table") {
    auto kind = schedule::parseScheduleKind(spec.generator);
    if (!kind) {
      std::string known;
      for (const std::string &word : schedule::scheduleNames())
        known += word + ", ";
      return "unknown schedule " + quoted(spec.generator) + "; known: " + known + "table";
    }
    if (std::string why = schedule::whyInvalid(*kind, pipeline, program.microBatches); !why.empty())
      return why;
    return spec.table.empty() ? "" : "a generated schedule has a table as well";
  }
  if (spec.table.size() != program.stages.size())
    return "the schedule table has " + std::to_string(spec.table.size()) + " stages, the program " +
           std::to_string(program.stages.size());
  for (size_t stage = 0; stage < spec.table.size(); ++stage) {
    for (const schedule::Action &action : spec.table[stage]) {
      if (action.microBatch < 0 || action.microBatch >= program.microBatches)
        return "the schedule names micro-batch " + std::to_string(action.microBatch) + " of " +
               std::to_string(program.microBatches);
      if (action.chunk < 0 || size_t(action.chunk) >= program.stages[stage].chunks.size())
        return "the schedule of stage " + std::to_string(stage) + " names chunk " +
               std::to_string(action.chunk) + " of " +
               std::to_string(program.stages[stage].chunks.size());
    }
  }
  return "";
}

bool usesAxis(const std::vector<AxisRef> &axes, int axis) {
  return std::any_of(axes.begin(), axes.end(),
                     [&](const AxisRef &ref) { return ref.axis == axis; });
}

bool usesAxis(const Piece &piece, int axis) {
  for (const PieceDim &dim : piece.dims)
    for (const PieceSegment &segment : dim)
      for (const PieceFactor &factor : segment)
        if (usesAxis(factor.axes, axis))
          return true;
  return usesAxis(piece.flat, axis);
}

bool isGlobalRole(Role role) {
  return role != Role::Loss && role != Role::Residual && role != Role::Scalar;
}

std::string whyInvalid(const Program &program, const GlobalTensor &tensor) {
  if (tensor.name.empty())
    return "it has no name";
  if (!isGlobalRole(tensor.role))
    return "role " + quoted(name(tensor.role)) + " is for slots only";
  if (std::string why = whyInvalid(tensor.type); !why.empty())
    return why;
  if (std::string why = whyInvalid(program.mesh, tensor.piece, tensor.type.shape); !why.empty())
    return why;
  if (std::string why = whyInvalid(program.mesh, tensor.pending); !why.empty())
    return why;
  if (program.pipelineAxis >= 0 && usesAxis(tensor.piece, program.pipelineAxis))
    return "its piece is cut along the pipeline axis";
  if (!tensor.pending.empty() && tensor.role != Role::Gradient)
    return "only gradients may be partial sums";
  bool fromFile = tensor.role != Role::Gradient && tensor.role != Role::Input;
  if (!tensor.initializer.empty() && !fromFile)
    return "it takes its value from a file, which " + quoted(name(tensor.role)) + " cannot";
  if (tensor.fill != 0 && (tensor.role != Role::OptimizerState || !tensor.initializer.empty() ||
                           !std::isfinite(tensor.fill)))
    return "it starts at " + std::to_string(tensor.fill) +
           ": only optimizer states that take no value from a file may, and at a finite one";
  return "";
}

std::string whyInvalid(const Program &program, const Slot &slot) {
  if (std::string why = whyInvalid(slot.type); !why.empty())
    return why;
  if (slot.role == Role::Scalar) {
    if (slot.name != "lr")
      return "unknown scalar; known: lr";
    if (!slot.type.shape.empty() || !kernels::isFloat(slot.type.dtype))
      return "lr is a float without dims";
  }
  if (slot.location == Location::Host && !mayBeOnHost(slot.role))
    return "slots of its role are not on the host";
  if (slot.tensor < -1 || slot.tensor >= int(program.tensors.size()))
    return "there is no tensor number " + std::to_string(slot.tensor);
  if (slot.tensor == -1) {
    bool needsTensor = isGlobalRole(slot.role) && slot.role != Role::Gradient;
    return needsTensor ? "it is a piece of no tensor" : "";
  }
  const GlobalTensor &tensor = program.tensors[slot.tensor];
  if (tensor.role != slot.role)
    return "its role is " + quoted(name(slot.role)) + ", that of tensor " + quoted(tensor.name) +
           " is " + quoted(name(tensor.role));
  kernels::TensorType local{tensor.type.dtype, localShape(tensor.piece)};
  if (local != slot.type)
    return "its type is " + toString(slot.type) + ", the piece of tensor " + quoted(tensor.name) +
           " is " + toString(local);
  return "";
}

/// The number of elements of all segments of a dim, full (n = group size) or local (n = 1); -1 if a
/// count is out of bounds.
int64_t segmentsSize(const std::vector<SegmentShape> &segments, int64_t n) {
  int64_t total = 0;
  for (const SegmentShape &segment : segments) {
    int64_t product = n;
    for (int64_t size : {segment.outer, segment.k, segment.inner}) {
      if (size < 1 || product > maxTensorElements / size)
        return -1;
      product *= size;
    }
    total += product;
    if (total > maxTensorElements)
      return -1;
  }
  return total;
}

/// `full` and `local` differ along `dim` only, where they are as `segments` says.
std::string whyNotCut(const kernels::TensorType &full, const kernels::TensorType &local, int dim,
                      const std::vector<SegmentShape> &segments, int64_t n) {
  if (dim == Communication::flatDim) {
    int64_t chunk = (kernels::numElements(full.shape) + n - 1) / n;
    if (!segments.empty())
      return "a flattened tensor has no segments";
    return local.shape == kernels::Shape{chunk}
               ? ""
               : "the local type is " + toString(local) + ", a chunk of " + toString(full) +
                     " over " + std::to_string(n) + " ranks has " + std::to_string(chunk) +
                     " elements";
  }
  if (dim < 0 || dim >= int(full.shape.size()) || full.shape.size() != local.shape.size())
    return "dim " + std::to_string(dim) + " does not exist in both " + toString(full) + " and " +
           toString(local);
  kernels::Shape expected = full.shape;
  expected[dim] = local.shape[dim];
  if (expected != local.shape)
    return toString(full) + " and " + toString(local) + " differ in another dim than " +
           std::to_string(dim);
  if (segments.empty() || segmentsSize(segments, n) != full.shape[dim] ||
      segmentsSize(segments, 1) != local.shape[dim])
    return "the segments over " + std::to_string(n) + " ranks do not take dim " +
           std::to_string(dim) + " from " + toString(full) + " to " + toString(local);
  return "";
}

std::string whyInvalidGroup(const Program &program, int stage, const Communication &comm) {
  if (comm.axes.empty())
    return "it needs at least one mesh axis";
  if (std::string why = whyInvalid(program.mesh, comm.axes); !why.empty())
    return why;
  bool alongPipeline = program.pipelineAxis >= 0 && usesAxis(comm.axes, program.pipelineAxis);
  if (alongPipeline) {
    AxisRef whole = wholeAxis(program.mesh, program.pipelineAxis);
    if (std::find(comm.axes.begin(), comm.axes.end(), whole) == comm.axes.end())
      return "it uses a part of the pipeline axis; name its stages instead";
  }
  if (comm.stages.empty())
    return "";
  if (!alongPipeline)
    return "it names stages but not the pipeline axis";
  for (size_t i = 0; i < comm.stages.size(); ++i) {
    if (comm.stages[i] < 0 || comm.stages[i] >= program.numStages() ||
        (i > 0 && comm.stages[i] <= comm.stages[i - 1]))
      return "its stages are not ascending stages of the program";
  }
  if (!std::binary_search(comm.stages.begin(), comm.stages.end(), stage))
    return "its stages leave out its own";
  return "";
}

std::string whyInvalidPeer(const Program &program, int stage, const Communication &comm) {
  if (comm.peerStage < 0 || comm.peerStage >= program.numStages() || comm.peerStage == stage)
    return "stage " + std::to_string(comm.peerStage) + " is no peer of stage " +
           std::to_string(stage);
  if (comm.lane < 0 || comm.lane > maxLanes)
    return "its lane is not between 0 and 2^30";
  return comm.channel < 0 ? "its channel is negative" : "";
}

/// A collective that may be of several tensors, each of which it takes on its own.
bool mayJoinTensors(const Instruction &instruction) {
  bool isFlat = instruction.comm.dim == Communication::flatDim;
  return instruction.kind == InstructionKind::AllReduce ||
         (isFlat && (instruction.kind == InstructionKind::AllGather ||
                     instruction.kind == InstructionKind::ReduceScatter));
}

std::string whyInvalidTensor(const Program &program, const Instruction &instruction,
                             const kernels::TensorType &in, const kernels::TensorType &out);

std::string whyInvalidCopy(const std::vector<kernels::TensorType> &values,
                           const Instruction &copy) {
  if (copy.operands.size() != 1 || copy.results.size() != 1)
    return "it takes 1 operand and gives 1 result";
  const kernels::TensorType &in = values[copy.operands[0]], &out = values[copy.results[0]];
  return in == out ? "" : "its operand is " + toString(in) + ", its result " + toString(out);
}

std::string whyInvalid(const Program &program, int stage, const Instruction &instruction) {
  const std::vector<kernels::TensorType> &values = program.stages[stage].values;
  for (const std::vector<ValueId> *list : {&instruction.operands, &instruction.results}) {
    for (ValueId value : *list) {
      if (value < 0 || size_t(value) >= values.size())
        return "there is no value %" + std::to_string(value);
    }
  }
  InstructionKind kind = instruction.kind;
  if (kind == InstructionKind::Kernel)
    return instruction.op.empty() ? "a kernel needs an op" : "";
  if (isHostCopy(kind))
    return whyInvalidCopy(values, instruction);

  const Communication &comm = instruction.comm;
  size_t operands = kind == InstructionKind::Recv ? 0 : 1;
  size_t results = kind == InstructionKind::Send ? 0 : 1;
  if (mayJoinTensors(instruction)) {
    operands = std::max<size_t>(1, instruction.operands.size());
    results = operands;
  }
  if (instruction.operands.size() != operands || instruction.results.size() != results)
    return "it takes " + std::to_string(operands) + " operands and gives " +
           std::to_string(results) + " results";
  if (!operands || !results)
    return whyInvalidPeer(program, stage, comm);

  if (std::string why = whyInvalidGroup(program, stage, comm); !why.empty())
    return why;
  for (size_t i = 0; i < operands; ++i) {
    const kernels::TensorType &in = values[instruction.operands[i]];
    if (in.dtype != values[instruction.operands[0]].dtype)
      return "its operands are " + toString(values[instruction.operands[0]]) + " and " +
             toString(in) + ", of two types";
    std::string why = whyInvalidTensor(program, instruction, in, values[instruction.results[i]]);
    if (!why.empty())
      return why;
  }
  return "";
}

std::string whyInvalidTensor(const Program &program, const Instruction &instruction,
                             const kernels::TensorType &in, const kernels::TensorType &out) {
  const Communication &comm = instruction.comm;
  if (in.dtype != out.dtype)
    return "its operand is " + toString(in) + ", its result " + toString(out);
  int64_t n = groupSizeOf(comm, program.pipelineAxis);
  switch (instruction.kind) {
  case InstructionKind::Permute:
    if (usesAxis(comm.axes, program.pipelineAxis))
      return "a permute does not go along the pipeline axis";
    [[fallthrough]];
  case InstructionKind::AllReduce:
    return in == out ? "" : "its operand is " + toString(in) + ", its result " + toString(out);
  case InstructionKind::AllGather:
    return whyNotCut(out, in, comm.dim, comm.segments, n);
  case InstructionKind::ReduceScatter:
  case InstructionKind::ShardSlice:
    return whyNotCut(in, out, comm.dim, comm.segments, n);
  default: {
    // The tensor that is full along both dims.
    kernels::TensorType full = in;
    if (comm.dim < 0 || comm.dim >= int(in.shape.size()) || comm.dim == comm.splitDim ||
        out.shape.size() != in.shape.size())
      return "dims " + std::to_string(comm.dim) + " and " + std::to_string(comm.splitDim) +
             " are not two dims of " + toString(in);
    full.shape[comm.dim] = out.shape[comm.dim];
    if (std::string why = whyNotCut(full, in, comm.dim, comm.segments, n); !why.empty())
      return why;
    if (comm.splitDim < 0)
      return "an all_to_all cannot flatten";
    return whyNotCut(full, out, comm.splitDim, comm.splitSegments, n);
  }
  }
}

/// Why the stream of instruction `index`, or what it waits for, is wrong.
/// `overlaps`: the block has a communication stream.
std::string whyInvalidWaits(const Block &block, int index, bool overlaps) {
  const Instruction &instruction = block.instructions[index];
  bool computes =
      !isCommunication(instruction.kind) || instruction.kind == InstructionKind::ShardSlice;
  if (computes && instruction.stream != Stream::Compute)
    return "it computes, on the stream of " + std::string(name(instruction.stream));
  // Streams are threads, and a communicator is used by one at a time.
  if (!computes && overlaps && instruction.stream == Stream::Compute)
    return "it communicates beside a communication stream";
  int before = -1;
  for (int wait : instruction.waits) {
    if (wait <= before || wait >= index)
      return "it waits for instructions that are not ascending ones before it";
    if (block.instructions[wait].stream == instruction.stream)
      return "it waits for instruction " + std::to_string(wait) +
             " of its own stream, which comes first anyhow";
    before = wait;
  }
  return "";
}

/// `mayConvert`: what is added to a slot may be of another float type than the slot.
std::string whyInvalidBinding(const Stage &stage, ValueId value, int slot,
                              bool mayConvert = false) {
  if (value < 0 || size_t(value) >= stage.values.size())
    return "there is no value %" + std::to_string(value);
  if (slot < 0 || size_t(slot) >= stage.slots.size())
    return "there is no slot number " + std::to_string(slot);
  const kernels::TensorType &from = stage.values[value], &to = stage.slots[slot].type;
  bool converts = mayConvert && from.shape == to.shape && kernels::isFloat(from.dtype) &&
                  kernels::isFloat(to.dtype);
  if (from != to && !converts)
    return "slot " + quoted(stage.slots[slot].name) + " is " + toString(to) + ", value %" +
           std::to_string(value) + " is " + toString(from);
  return "";
}

Status malformed(const std::string &where, const std::string &why) {
  return Error{ErrorCode::Usage, "malformed Program: " + where + ": " + why};
}

/// `done`: the instructions that earlier regions end with.
std::string whyInvalid(const Block &block, const Region &region, int done) {
  int size = int(block.instructions.size());
  if (region.first < done || region.count < 1 || region.first > size - region.count)
    return "it does not begin behind the one before and end within the block";
  for (int i = region.first; i < region.first + region.count; ++i)
    if (block.instructions[i].kind != InstructionKind::Kernel)
      return "its instruction " + std::to_string(i) + " is communication";
  bool isSymbol = !region.symbol.empty() && region.symbol.size() <= maxSymbolLength &&
                  std::all_of(region.symbol.begin(), region.symbol.end(), [](char c) {
                    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '_';
                  });
  if (!isSymbol)
    return quoted(region.symbol) + " is no name of a function";
  if (region.extent < 0 || region.extent > maxTensorElements)
    return "its extent is not between 0 and 2^48";
  return "";
}

Status checkRegions(const Program &program, int stageIndex, BlockId id) {
  const Block &block = program.stages[stageIndex].block(id);
  int done = 0;
  for (size_t i = 0; i < block.regions.size(); ++i) {
    const Region &region = block.regions[i];
    if (std::string why = whyInvalid(block, region, done); !why.empty())
      return malformed(describe(program, stageIndex, id) + ", region " + std::to_string(i), why);
    done = region.first + region.count;
  }
  return Status::ok();
}

Status checkBlock(const Program &program, int stageIndex, BlockId id) {
  const Stage &stage = program.stages[stageIndex];
  const Block &block = stage.block(id);
  std::string where = describe(program, stageIndex, id);
  for (const Argument &argument : block.arguments) {
    if (std::string why = whyInvalidBinding(stage, argument.value, argument.slot); !why.empty())
      return malformed(where + ", arguments", why);
  }
  bool overlaps = std::any_of(
      block.instructions.begin(), block.instructions.end(),
      [](const Instruction &instruction) { return instruction.stream != Stream::Compute; });
  for (size_t i = 0; i < block.instructions.size(); ++i) {
    std::string why = whyInvalid(program, stageIndex, block.instructions[i]);
    if (why.empty())
      why = whyInvalidWaits(block, int(i), overlaps);
    if (!why.empty())
      return malformed(describe(program, stageIndex, id, int(i)), why);
  }
  for (const BlockResult &result : block.results) {
    std::string why = whyInvalidBinding(stage, result.value, result.slot, result.accumulate);
    if (!why.empty())
      return malformed(where + ", results", why);
  }
  return checkRegions(program, stageIndex, id);
}

/// Whether `bytes` from `offset` on lie within `limit`, aligned.
std::string whyOutside(int64_t offset, int64_t bytes, int64_t limit) {
  if (offset < 0 || offset > limit || bytes > limit - offset)
    return "bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " +
           std::to_string(bytes) + " are not within " + std::to_string(limit);
  if (offset % memory::alignmentBytes != 0)
    return "offset " + std::to_string(offset) + " is no multiple of " +
           std::to_string(memory::alignmentBytes);
  return "";
}

/// The bytes of the arena of a location.
int64_t arenaBytes(const MemoryPlan &plan, Location location) {
  return location == Location::Host ? plan.hostArenaBytes : plan.arenaBytes;
}

/// By frame, where its slots are; frames without any are on the device.
std::string whyInvalid(const Stage &stage, std::vector<Location> &ofFrames) {
  ofFrames.assign(stage.memory.frames.size(), Location::Device);
  std::vector<int> first(stage.memory.frames.size(), -1);
  for (int i = 0; i < int(stage.slots.size()); ++i) {
    int frame = stage.memory.slots[i].frame;
    if (frame < 0)
      continue;
    Location location = stage.slots[i].location;
    if (first[frame] >= 0 && ofFrames[frame] != location)
      return "slot " + quoted(stage.slots[i].name) + " and slot " +
             quoted(stage.slots[first[frame]].name) + " share frame " + std::to_string(frame) +
             ", and one of them is on the host";
    first[frame] = i;
    ofFrames[frame] = location;
  }
  return "";
}

std::string whyInvalid(const Frame &frame, int64_t microBatches, int64_t arenaBytes) {
  if (frame.bytes < 0)
    return "its size is negative";
  if (frame.offsets.empty() || int64_t(frame.offsets.size()) > microBatches)
    return "it has " + std::to_string(frame.offsets.size()) + " offsets for " +
           std::to_string(microBatches) + " micro-batches";
  for (int64_t offset : frame.offsets)
    if (std::string why = whyOutside(offset, frame.bytes, arenaBytes); !why.empty())
      return why;
  return "";
}

std::string whyInvalid(const MemoryPlan &plan, const Slot &slot, const SlotPlace &place) {
  if (place.frame < -1 || place.frame >= int(plan.frames.size()))
    return "there is no frame number " + std::to_string(place.frame);
  if ((place.frame >= 0) != livesAMicroBatch(slot.role))
    return place.frame >= 0 ? "it lies in a frame, but lives longer than a micro-batch"
                            : "it lives for a micro-batch, but lies in no frame";
  return whyOutside(place.offset, sizeBytes(slot.type),
                    place.frame < 0 ? arenaBytes(plan, slot.location)
                                    : plan.frames[place.frame].bytes);
}

std::string whyInvalid(const Stage &stage, const kernels::TensorType &type, bool isOnHost,
                       const ValuePlace &place) {
  if (place.slot < -1 || place.slot >= int(stage.slots.size()))
    return "there is no slot number " + std::to_string(place.slot);
  bool slotIsOnHost = place.slot >= 0 && stage.slots[place.slot].location == Location::Host;
  if (isOnHost != slotIsOnHost)
    return isOnHost ? "it is on the host, but lies in no slot there"
                    : "it is on the device, but lies in a slot on the host";
  if (place.slot < 0)
    return whyOutside(place.offset, sizeBytes(type), stage.memory.arenaBytes);
  const Slot &slot = stage.slots[place.slot];
  return slot.type == type ? ""
                           : "it lies in slot " + quoted(slot.name) + " of type " +
                                 toString(slot.type) + ", its own is " + toString(type);
}

Status checkMemoryPlan(const Program &program, int index) {
  const Stage &stage = program.stages[index];
  const MemoryPlan &plan = stage.memory;
  std::string where = "stage " + std::to_string(index) + ", memory plan";
  if (plan.isEmpty() != program.stages[0].memory.isEmpty())
    return malformed(where, "some stages have one and some have none");
  if (plan.isEmpty())
    return Status::ok();
  for (int64_t bytes : {plan.arenaBytes, plan.hostArenaBytes})
    if (bytes < 0 || bytes > maxArenaBytes)
      return malformed(where, "an arena has not between 0 and 2^56 bytes");
  if (plan.slots.size() != stage.slots.size() || plan.values.size() != stage.values.size())
    return malformed(where, "it places " + std::to_string(plan.slots.size()) + " slots and " +
                                std::to_string(plan.values.size()) + " values of " +
                                std::to_string(stage.slots.size()) + " and " +
                                std::to_string(stage.values.size()));
  for (size_t i = 0; i < plan.slots.size(); ++i)
    if (std::string why = whyInvalid(plan, stage.slots[i], plan.slots[i]); !why.empty())
      return malformed(where + ", slot " + quoted(stage.slots[i].name), why);
  std::vector<Location> ofFrames;
  if (std::string why = whyInvalid(stage, ofFrames); !why.empty())
    return malformed(where, why);
  for (size_t i = 0; i < plan.frames.size(); ++i)
    if (std::string why =
            whyInvalid(plan.frames[i], program.microBatches, arenaBytes(plan, ofFrames[i]));
        !why.empty())
      return malformed(where + ", frame " + std::to_string(i), why);
  std::vector<bool> isOnHost = valuesOnHost(stage);
  for (size_t i = 0; i < plan.values.size(); ++i)
    if (std::string why = whyInvalid(stage, stage.values[i], isOnHost[i], plan.values[i]);
        !why.empty())
      return malformed(where + ", value %" + std::to_string(i), why);
  return Status::ok();
}

Status checkStage(const Program &program, int index) {
  const Stage &stage = program.stages[index];
  std::string where = "stage " + std::to_string(index);
  for (size_t i = 0; i < stage.values.size(); ++i) {
    if (std::string why = whyInvalid(stage.values[i]); !why.empty())
      return malformed(where + ", value %" + std::to_string(i), why);
  }
  std::unordered_set<std::string_view> names[numRoles];
  for (const Slot &slot : stage.slots) {
    if (!names[int(slot.role)].insert(slot.name).second)
      return malformed(where, std::string(name(slot.role)) + " slot " + quoted(slot.name) +
                                  " is there twice");
    if (std::string why = whyInvalid(program, slot); !why.empty())
      return malformed(where + ", slot " + quoted(slot.name), why);
  }
  for (BlockId id : stage.blocks()) {
    if (Status status = checkBlock(program, index, id); !status)
      return status;
  }
  return checkMemoryPlan(program, index);
}

} // namespace

Status checkWellFormed(const Program &program) {
  if (std::string why = whyInvalid(program.mesh); !why.empty())
    return malformed("mesh", why);
  if (std::string why = whyInvalidPipeline(program); !why.empty())
    return malformed("pipeline", why);
  if (std::string why = whyInvalidSchedule(program); !why.empty())
    return malformed("schedule", why);
  std::unordered_set<std::string_view> names;
  for (const GlobalTensor &tensor : program.tensors) {
    if (!names.insert(tensor.name).second)
      return malformed("tensors", quoted(tensor.name) + " is there twice");
    if (std::string why = whyInvalid(program, tensor); !why.empty())
      return malformed("tensor " + quoted(tensor.name), why);
  }
  for (int stage = 0; stage < program.numStages(); ++stage) {
    if (Status status = checkStage(program, stage); !status)
      return status;
  }
  return Status::ok();
}

} // namespace tbc::program
