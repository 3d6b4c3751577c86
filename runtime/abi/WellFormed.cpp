//===- WellFormed.cpp - Whether a Program is within its bounds ------------===//
//
// All that an executor or checker would otherwise have to test before it indexes. The meaning of a
// program is checked by runtime/verify.
//
//===----------------------------------------------------------------------===//

#include "runtime/abi/WellFormed.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_set>

namespace tbc::program {

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

Status malformed(const std::string &where, const std::string &why) {
  return Error{ErrorCode::Usage, "malformed Program: " + where + ": " + why};
}

bool usesAxis(const std::vector<AxisRef> &axes, int axis) {
  return std::any_of(axes.begin(), axes.end(),
                     [&](const AxisRef &ref) { return ref.axis == axis; });
}

namespace {

constexpr size_t maxMeshAxes = 16;
constexpr int64_t maxRanks = int64_t(1) << 20;
constexpr int64_t maxMicroBatches = int64_t(1) << 20;
constexpr int maxChunks = 1 << 14;
constexpr int64_t maxChunkActions = int64_t(1) << 24;
constexpr size_t maxTensorDims = 16;

/// Each check returns the reason why it fails, or "".
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

/// Why the blocks for the last micro-batch are misplaced, or "".
std::string whyInvalidLastBackward(const Program &program) {
  for (int stage = 0; stage < program.numStages(); ++stage)
    for (const Chunk &chunk : program.stages[stage].chunks) {
      if (!chunk.hasLastBackward())
        continue;
      if (program.microBatches == 1)
        return "stage " + std::to_string(stage) +
               " has a last backward block beside the backward block of its only micro-batch";
      if (!chunk.weight.instructions.empty() || !chunk.weight.results.empty())
        return "stage " + std::to_string(stage) +
               " has a last backward block, and wgrad in a block of its own";
    }
  return "";
}

std::string whyInvalidSchedule(const Program &program) {
  const ScheduleSpec &spec = program.schedule;
  schedule::Pipeline pipeline = pipelineOf(program);
  if (pipeline.numChunks() > maxChunks)
    return "it has more than 2^14 chunks";
  if (!spec.chunkStage.empty() && pipeline.numChunks() * program.microBatches > maxChunkActions)
    return "its chunks run more than 2^24 times in a step";
  // With any generator, every chunk must have a stage, and every stage a chunk.
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
      if (action.kind == schedule::Action::Kind::LastBackward)
        return "the schedule table names a last backward; it stands for the backward of the last "
               "micro-batch";
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

bool isCutAlong(const Piece &piece, int axis) {
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
  if (std::string why = whyInvalid(program.mesh, tensor.partial); !why.empty())
    return why;
  if (program.pipelineAxis >= 0 && isCutAlong(tensor.piece, program.pipelineAxis))
    return "its piece is cut along the pipeline axis";
  if (!tensor.partial.empty() && tensor.role != Role::Gradient)
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
  if (std::string why = whyInvalidLastBackward(program); !why.empty())
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
