//===- ProgramFile.cpp - The canonical text of a Program: writing ----------===//
//
// Each tensor, value, slot and instruction is one line, so line-based tools can compare two
// programs.
//
//===----------------------------------------------------------------------===//

#include "runtime/abi/ProgramFile.h"
#include "runtime/abi/Program.h"
#include "runtime/abi/Sha256.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace tbc::program {
namespace {

using Json = nlohmann::ordered_json;
using kernels::AttrValue;

/// JSON has no infinities and no NaN; they are strings.
Json toJson(double value) {
  if (std::isfinite(value))
    return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

/// Lists and non-finite numbers carry their kind ("i", "f", "s"), because an empty list does not
/// show it.
struct AttrToJson {
  Json operator()(bool value) const { return value; }
  Json operator()(int64_t value) const { return value; }
  Json operator()(double value) const {
    return std::isfinite(value) ? Json(value) : Json{{"f", toJson(value)}};
  }
  Json operator()(const std::string &value) const { return value; }
  Json operator()(const std::vector<int64_t> &values) const { return {{"i", values}}; }
  Json operator()(const std::vector<std::string> &values) const { return {{"s", values}}; }
  Json operator()(const std::vector<double> &values) const {
    Json list = Json::array();
    for (double value : values)
      list.push_back(toJson(value));
    return {{"f", std::move(list)}};
  }
};

Json toJson(const Mesh &mesh, const std::vector<AxisRef> &axes) {
  Json list = Json::array();
  for (const AxisRef &axis : axes)
    list.push_back(toString(mesh, axis));
  return list;
}

/// dims > segments > factors. A factor is [size, axis..., {"zigzag": ranks}]; the last item is
/// there only for the zigzag order.
Json toJson(const Mesh &mesh, const Piece &piece) {
  Json dims = Json::array();
  for (const PieceDim &dim : piece.dims) {
    Json segments = Json::array();
    for (const PieceSegment &segment : dim) {
      Json factors = Json::array();
      for (const PieceFactor &factor : segment) {
        Json entry = toJson(mesh, factor.axes);
        entry.insert(entry.begin(), factor.size);
        if (factor.zigzag != 1)
          entry.push_back({{"zigzag", factor.zigzag}});
        factors.push_back(std::move(entry));
      }
      segments.push_back(std::move(factors));
    }
    dims.push_back(std::move(segments));
  }
  return dims;
}

Json toJson(const std::vector<SegmentShape> &segments) {
  Json list = Json::array();
  for (const SegmentShape &segment : segments) {
    for (int64_t size : {segment.outer, segment.k, segment.inner})
      list.push_back(size);
  }
  return list;
}

Json toJson(const Mesh &mesh, const GlobalTensor &tensor) {
  Json json = {{"name", tensor.name},
               {"role", name(tensor.role)},
               {"type", toString(tensor.type)},
               {"piece", toJson(mesh, tensor.piece)}};
  if (!tensor.piece.flat.empty())
    json["flat"] = toJson(mesh, tensor.piece.flat);
  if (!tensor.partial.empty())
    json["partial"] = toJson(mesh, tensor.partial);
  if (!tensor.initializer.empty())
    json["initializer"] = tensor.initializer;
  if (tensor.fill != 0)
    json["fill"] = tensor.fill;
  return json;
}

Json toJson(const Slot &slot) {
  Json json = {{"name", slot.name}, {"role", name(slot.role)}, {"type", toString(slot.type)}};
  if (slot.tensor >= 0)
    json["tensor"] = slot.tensor;
  if (slot.location == Location::Host)
    json["location"] = "host";
  return json;
}

void addCommunication(Json &json, const Mesh &mesh, InstructionKind kind,
                      const Communication &comm) {
  if (kind == InstructionKind::Send || kind == InstructionKind::Recv) {
    json["peer"] = comm.peerStage;
    json["channel"] = comm.channel;
    if (comm.lane != 0)
      json["lane"] = comm.lane;
    return;
  }
  json["axes"] = toJson(mesh, comm.axes);
  if (!comm.stages.empty())
    json["stages"] = comm.stages;
  if (kind == InstructionKind::Permute)
    return;
  if (kind == InstructionKind::AllReduce) {
    json["reduce"] = comm.reduce == ReduceKind::Sum ? "sum" : "max";
    return;
  }
  json["dim"] = comm.dim;
  json["segments"] = toJson(comm.segments);
  if (kind == InstructionKind::AllToAll) {
    json["split_dim"] = comm.splitDim;
    json["split_segments"] = toJson(comm.splitSegments);
  }
}

Json toJson(const Mesh &mesh, const Instruction &instruction) {
  Json json = {{"id", instruction.id}, {"kind", name(instruction.kind)}};
  if (instruction.kind == InstructionKind::Kernel) {
    json["op"] = instruction.op;
    Json attrs = Json::object();
    for (const auto &[key, value] : instruction.attrs.entries())
      attrs[key] = std::visit(AttrToJson(), value);
    if (!attrs.empty())
      json["attrs"] = std::move(attrs);
  } else if (isCommunication(instruction.kind)) {
    addCommunication(json, mesh, instruction.kind, instruction.comm);
  }
  json["in"] = instruction.operands;
  json["out"] = instruction.results;
  if (instruction.stream != Stream::Compute)
    json["stream"] = name(instruction.stream);
  if (!instruction.waits.empty())
    json["waits"] = instruction.waits;
  return json;
}

/// Collects the payload, one JSON value per line.
class Lines {
public:
  std::string text;

  void add(const Json &json) { text += json.dump(-1, ' ', false, Json::error_handler_t::replace); }
  template <typename Items, typename Fn> void addList(const Items &items, Fn toLine) {
    text += "[";
    const char *separator = "\n";
    for (const auto &item : items) {
      text += separator;
      add(toLine(item));
      separator = ",\n";
    }
    text += "]";
  }
};

void addBlock(Lines &lines, const Mesh &mesh, const Block &block) {
  lines.text += "{\"arguments\":";
  Json arguments = Json::array(), results = Json::array();
  for (const Argument &argument : block.arguments)
    arguments.push_back({argument.value, argument.slot});
  for (const BlockResult &result : block.results)
    results.push_back({result.value, result.slot, result.accumulate ? "add" : "write"});
  lines.add(arguments);
  lines.text += ",\n\"instructions\":";
  lines.addList(block.instructions, [&](const Instruction &i) { return toJson(mesh, i); });
  lines.text += ",\n\"results\":";
  lines.add(results);
  if (!block.regions.empty()) {
    lines.text += ",\n\"regions\":";
    lines.addList(block.regions, [](const Region &region) {
      return Json::array({region.first, region.count, region.symbol, region.extent});
    });
  }
  lines.text += "}";
}

/// A position in the arena is its offset; one in a frame or slot is a list.
Json toJson(const SlotPlace &place) {
  return place.frame < 0 ? Json(place.offset) : Json::array({place.frame, place.offset});
}
Json toJson(const ValuePlace &place) {
  return place.slot < 0 ? Json(place.offset) : Json::array({place.slot});
}

template <typename Place> Json toJson(const std::vector<Place> &places) {
  Json list = Json::array();
  for (const Place &place : places)
    list.push_back(toJson(place));
  return list;
}

void addMemory(Lines &lines, const MemoryPlan &memory) {
  lines.text += ",\n\"memory\":{\"arena\":" + std::to_string(memory.arenaBytes) +
                ",\"host_arena\":" + std::to_string(memory.hostArenaBytes) + ",\"frames\":";
  lines.addList(memory.frames, [](const Frame &frame) {
    return Json{{"bytes", frame.bytes}, {"offsets", frame.offsets}};
  });
  lines.text += ",\n\"slots\":";
  lines.add(toJson(memory.slots));
  lines.text += ",\n\"values\":";
  lines.add(toJson(memory.values));
  lines.text += "}";
}

void addStage(Lines &lines, const Mesh &mesh, const Stage &stage) {
  lines.text += "{\"values\":";
  lines.addList(stage.values, [](const kernels::TensorType &type) { return Json(toString(type)); });
  lines.text += ",\n\"slots\":";
  lines.addList(stage.slots, [](const Slot &slot) { return toJson(slot); });
  lines.text += ",\n\"chunks\":[";
  const char *separator = "\n";
  for (const Chunk &chunk : stage.chunks) {
    lines.text += separator;
    lines.text += "{\"forward\":";
    addBlock(lines, mesh, chunk.forward);
    lines.text += ",\n\"backward\":";
    addBlock(lines, mesh, chunk.backward);
    lines.text += ",\n\"weight\":";
    addBlock(lines, mesh, chunk.weight);
    if (chunk.hasLastBackward()) {
      lines.text += ",\n\"last_backward\":";
      addBlock(lines, mesh, chunk.lastBackward);
    }
    lines.text += "}";
    separator = ",\n";
  }
  lines.text += "],\n\"update\":";
  addBlock(lines, mesh, stage.update);
  if (!stage.memory.isEmpty())
    addMemory(lines, stage.memory);
  lines.text += "}";
}

Json scheduleToJson(const ScheduleSpec &spec) {
  Json json = {{"generator", spec.generator}};
  if (!spec.chunkStage.empty())
    json["chunk_stage"] = spec.chunkStage;
  if (spec.generator != "table")
    return json;
  Json table = Json::array();
  for (const std::vector<schedule::Action> &actions : spec.table) {
    Json list = Json::array();
    for (const schedule::Action &action : actions)
      list.push_back({name(action.kind), action.microBatch, action.chunk});
    table.push_back(std::move(list));
  }
  json["table"] = std::move(table);
  return json;
}

std::string payloadOf(const Program &program) {
  Json mesh = Json::array();
  for (const MeshAxis &axis : program.mesh.axes)
    mesh.push_back({axis.name, axis.size});
  Json pipelineAxis;
  if (program.pipelineAxis >= 0)
    pipelineAxis = program.mesh.axes[program.pipelineAxis].name;

  Lines lines;
  lines.text = "{\"metadata\":";
  lines.add(Json(program.metadata));
  lines.text += ",\n\"mesh\":";
  lines.add(mesh);
  lines.text += ",\n\"pipeline_axis\":";
  lines.add(pipelineAxis);
  lines.text += ",\n\"micro_batches\":";
  lines.add(program.microBatches);
  lines.text += ",\n\"schedule\":";
  lines.add(scheduleToJson(program.schedule));
  lines.text += ",\n\"tensors\":";
  lines.addList(program.tensors, [&](const GlobalTensor &t) { return toJson(program.mesh, t); });
  lines.text += ",\n\"stages\":[";
  for (size_t i = 0; i < program.stages.size(); ++i) {
    lines.text += i ? ",\n" : "\n";
    addStage(lines, program.mesh, program.stages[i]);
  }
  lines.text += "]}";
  return lines.text;
}

} // namespace

std::string writeProgram(const Program &program) {
  std::string payload = payloadOf(program);
  std::string text(fileBegin);
  text += std::to_string(fileVersion);
  text += fileHash;
  text += sha256Hex(payload);
  text += filePayload;
  text += payload;
  text += fileEnd;
  return text;
}

} // namespace tbc::program
