//===- WellFormedBlocks.cpp - Whether a block is within its bounds --------===//

#include "runtime/abi/WellFormed.h"

#include <algorithm>

namespace tbc::program {
namespace {

constexpr int maxLanes = 1 << 30;
constexpr size_t maxSymbolLength = 256;

/// Returns the number of elements of all segments of a dim, full (n = group size) or local (n = 1),
/// or -1 if a count is out of bounds.
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

/// Why `local` is not the part of `full` that `segments` describe, or "": they may differ along
/// `dim` only.
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

/// Whether it is a collective that may have several tensors, each handled on its own.
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
    // The tensor in its full size along both dims.
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

/// Why the stream or the waits of instruction `index` are wrong, or "".
/// `overlaps`: the block has a communication stream.
std::string whyInvalidWaits(const Block &block, int index, bool overlaps) {
  const Instruction &instruction = block.instructions[index];
  bool computes =
      !isCommunication(instruction.kind) || instruction.kind == InstructionKind::ShardSlice;
  if (computes && instruction.stream != Stream::Compute)
    return "it computes, on the stream of " + std::string(name(instruction.stream));
  // Streams are threads, and a communicator is used by one thread at a time.
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

/// `mayConvert`: a value that is added to a slot may have another float type than the slot.
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

/// `done`: the instruction at which earlier regions end.
std::string whyInvalid(const Block &block, const Region &region, int done) {
  int size = int(block.instructions.size());
  if (region.first < done || region.count < 1 || region.first > size - region.count)
    return "it does not begin behind the one before and end within the block";
  for (int i = region.first; i < region.first + region.count; ++i)
    if (block.instructions[i].kind != InstructionKind::Kernel)
      return "its instruction " + std::to_string(i) + " is communication";
  bool isSymbol = region.symbol.size() <= maxSymbolLength &&
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

} // namespace

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

} // namespace tbc::program
