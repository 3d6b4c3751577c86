//===- ProgramReader.cpp - The canonical text of a Program: reading --------===//
//
// The text is not trusted. The frame and hash are checked first, then the nesting, then every
// field. The first error is kept, and the rest is read as defaults. `checkWellFormed` runs last.
//
//===----------------------------------------------------------------------===//

#include "runtime/abi/Program.h"
#include "runtime/abi/ProgramFile.h"
#include "runtime/abi/Sha256.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace tbc::program {
namespace {

using Json = nlohmann::json;

/// Reads fields; after the first error it returns defaults.
class Reader {
public:
  std::string error;

  void fail(const std::string &why) {
    if (error.empty())
      error = place + ": " + why;
  }

  /// The position of the reader, for errors; set by the caller before it descends a level.
  std::string place = "program";

  const Json &field(const Json &object, const char *key) {
    if (object.is_object()) {
      auto it = object.find(key);
      if (it != object.end())
        return *it;
    }
    fail("\"" + std::string(key) + "\" is missing");
    return none;
  }
  static bool has(const Json &object, const char *key) {
    return object.is_object() && object.contains(key);
  }

  int64_t integer(const Json &json) {
    bool tooLarge = json.is_number_unsigned() &&
                    json.get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max());
    if (json.is_number_integer() && !tooLarge)
      return json.get<int64_t>();
    fail("an integer is expected");
    return 0;
  }
  int32_t smallInteger(const Json &json) {
    int64_t value = integer(json);
    if (value == int32_t(value))
      return int32_t(value);
    fail("the integer " + std::to_string(value) + " is out of bounds");
    return 0;
  }
  double number(const Json &json) {
    if (json.is_number())
      return json.get<double>();
    fail("a number is expected");
    return 0;
  }
  std::string text(const Json &json) {
    if (json.is_string())
      return json.get<std::string>();
    fail("a text is expected");
    return "";
  }
  /// The list itself, or an empty one.
  const Json &list(Json &&) = delete;
  const Json &list(const Json &json) {
    if (json.is_array())
      return json;
    fail("a list is expected");
    return none;
  }
  /// Returns a list of exactly `size` items, or null.
  const Json *tuple(const Json &json, size_t size) {
    if (json.is_array() && json.size() == size)
      return &json;
    fail("a list of " + std::to_string(size) + " is expected");
    return nullptr;
  }

private:
  const Json none = Json::array();
};

/// "2x3xf32".
kernels::TensorType readType(Reader &in, const Json &json) {
  std::string text = in.text(json);
  kernels::TensorType type;
  size_t at = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    int64_t size = 0;
    auto [end, status] = std::from_chars(text.data() + at, text.data() + text.size(), size);
    if (status != std::errc() || end == text.data() + text.size() || *end != 'x') {
      in.fail("\"" + text + "\" is no tensor type");
      return type;
    }
    type.shape.push_back(size);
    at = size_t(end - text.data()) + 1;
  }
  std::optional<kernels::DType> dtype =
      kernels::parseStorableDType(std::string_view(text).substr(at));
  if (!dtype)
    in.fail("\"" + text + "\" is no tensor type");
  type.dtype = dtype.value_or(kernels::DType::F32);
  return type;
}

/// "dp" or "dp:(2)4".
AxisRef readAxis(Reader &in, const Mesh &mesh, const Json &json) {
  std::string text = in.text(json);
  size_t colon = text.find(':');
  int axis = mesh.axisIndex(text.substr(0, colon));
  if (axis < 0) {
    in.fail("\"" + text + "\" is no axis of the mesh");
    return {};
  }
  if (colon == std::string::npos)
    return wholeAxis(mesh, axis);
  AxisRef ref{axis, 0, 0};
  const char *end = text.data() + text.size();
  if (text.compare(colon, 2, ":(") == 0) {
    auto [close, status] = std::from_chars(text.data() + colon + 2, end, ref.pre);
    if (status == std::errc() && close != end && *close == ')' &&
        std::from_chars(close + 1, end, ref.size).ptr == end && ref.size > 0)
      return ref;
  }
  in.fail("\"" + text + "\" is no part of a mesh axis");
  return {};
}

std::vector<AxisRef> readAxes(Reader &in, const Mesh &mesh, const Json &json) {
  std::vector<AxisRef> axes;
  for (const Json &axis : in.list(json))
    axes.push_back(readAxis(in, mesh, axis));
  return axes;
}

PieceFactor readFactor(Reader &in, const Mesh &mesh, const Json &json) {
  PieceFactor factor;
  bool first = true;
  for (const Json &item : in.list(json)) {
    if (first)
      factor.size = in.integer(item);
    else if (item.is_object())
      factor.zigzag = in.integer(in.field(item, "zigzag"));
    else
      factor.axes.push_back(readAxis(in, mesh, item));
    first = false;
  }
  if (first)
    in.fail("a factor needs a size");
  return factor;
}

Piece readPiece(Reader &in, const Mesh &mesh, const Json &json) {
  Piece piece;
  for (const Json &dim : in.list(json)) {
    PieceDim &pieceDim = piece.dims.emplace_back();
    for (const Json &segment : in.list(dim)) {
      PieceSegment &pieceSegment = pieceDim.emplace_back();
      for (const Json &factor : in.list(segment))
        pieceSegment.push_back(readFactor(in, mesh, factor));
    }
  }
  return piece;
}

std::vector<SegmentShape> readSegments(Reader &in, const Json &json) {
  const Json &list = in.list(json);
  if (list.size() % 3 != 0)
    in.fail("segments are three numbers each");
  std::vector<SegmentShape> segments;
  for (size_t i = 0; i + 2 < list.size(); i += 3)
    segments.push_back({in.integer(list[i]), in.integer(list[i + 1]), in.integer(list[i + 2])});
  return segments;
}

/// The value of an enum of `count` values with this name.
template <typename Enum> Enum readEnum(Reader &in, const Json &json, int count) {
  std::string text = in.text(json);
  for (int i = 0; i < count; ++i) {
    if (name(Enum(i)) == text)
      return Enum(i);
  }
  in.fail("\"" + text + "\" is unknown");
  return Enum(0);
}

double readDouble(Reader &in, const Json &json) {
  if (json.is_number())
    return json.get<double>();
  std::string text = in.text(json);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (text == "inf" || text == "-inf")
    return text == "inf" ? infinity : -infinity;
  if (text != "nan")
    in.fail("\"" + text + "\" is no number");
  return std::numeric_limits<double>::quiet_NaN();
}

template <typename T, typename ReadFn>
std::vector<T> readVector(Reader &in, const Json &json, ReadFn read) {
  const Json &list = in.list(json);
  std::vector<T> values;
  values.reserve(list.size());
  for (const Json &item : list)
    values.push_back(read(item));
  return values;
}

/// See AttrToJson in ProgramFile.cpp.
kernels::AttrValue readAttr(Reader &in, const Json &json) {
  if (json.is_boolean())
    return json.get<bool>();
  if (json.is_number_integer())
    return in.integer(json);
  if (json.is_number_float())
    return json.get<double>();
  if (json.is_string())
    return json.get<std::string>();
  if (Reader::has(json, "i"))
    return readVector<int64_t>(in, json["i"], [&](const Json &item) { return in.integer(item); });
  if (Reader::has(json, "s"))
    return readVector<std::string>(in, json["s"], [&](const Json &item) { return in.text(item); });
  const Json &floats = in.field(json, "f");
  if (!floats.is_array())
    return readDouble(in, floats);
  return readVector<double>(in, floats, [&](const Json &item) { return readDouble(in, item); });
}

ReduceKind readReduce(Reader &in, const Json &json) {
  std::string text = in.text(json);
  if (text != "sum" && text != "max")
    in.fail("\"" + text + "\" is no reduction; known: sum, max");
  return text == "max" ? ReduceKind::Max : ReduceKind::Sum;
}

Communication readCommunication(Reader &in, const Mesh &mesh, InstructionKind kind,
                                const Json &json) {
  Communication comm;
  if (kind == InstructionKind::Send || kind == InstructionKind::Recv) {
    comm.peerStage = in.smallInteger(in.field(json, "peer"));
    comm.channel = in.integer(in.field(json, "channel"));
    if (Reader::has(json, "lane"))
      comm.lane = in.smallInteger(json["lane"]);
    return comm;
  }
  comm.axes = readAxes(in, mesh, in.field(json, "axes"));
  if (Reader::has(json, "stages"))
    comm.stages =
        readVector<int>(in, json["stages"], [&](const Json &i) { return in.smallInteger(i); });
  if (kind == InstructionKind::Permute)
    return comm;
  if (kind == InstructionKind::AllReduce) {
    comm.reduce = readReduce(in, in.field(json, "reduce"));
    return comm;
  }
  comm.dim = in.smallInteger(in.field(json, "dim"));
  comm.segments = readSegments(in, in.field(json, "segments"));
  if (kind == InstructionKind::AllToAll) {
    comm.splitDim = in.smallInteger(in.field(json, "split_dim"));
    comm.splitSegments = readSegments(in, in.field(json, "split_segments"));
  }
  return comm;
}

Instruction readInstruction(Reader &in, const Mesh &mesh, const Json &json) {
  Instruction instruction;
  instruction.id = in.text(in.field(json, "id"));
  instruction.kind = readEnum<InstructionKind>(in, in.field(json, "kind"), numInstructionKinds);
  if (instruction.kind == InstructionKind::Kernel) {
    instruction.op = in.text(in.field(json, "op"));
    if (Reader::has(json, "attrs")) {
      for (const auto &[key, value] : json["attrs"].items())
        instruction.attrs.set(key, readAttr(in, value));
    }
  } else if (isCommunication(instruction.kind)) {
    instruction.comm = readCommunication(in, mesh, instruction.kind, json);
  }
  auto readValue = [&](const Json &item) { return in.smallInteger(item); };
  instruction.operands = readVector<ValueId>(in, in.field(json, "in"), readValue);
  instruction.results = readVector<ValueId>(in, in.field(json, "out"), readValue);
  if (Reader::has(json, "stream"))
    instruction.stream = readEnum<Stream>(in, json["stream"], numStreams);
  if (Reader::has(json, "waits"))
    instruction.waits = readVector<int>(in, json["waits"], readValue);
  return instruction;
}

Block readBlock(Reader &in, const Mesh &mesh, const Json &json) {
  Block block;
  for (const Json &argument : in.list(in.field(json, "arguments"))) {
    if (const Json *pair = in.tuple(argument, 2))
      block.arguments.push_back({in.smallInteger((*pair)[0]), in.smallInteger((*pair)[1])});
  }
  for (const Json &instruction : in.list(in.field(json, "instructions")))
    block.instructions.push_back(readInstruction(in, mesh, instruction));
  for (const Json &result : in.list(in.field(json, "results"))) {
    const Json *triple = in.tuple(result, 3);
    if (!triple)
      continue;
    std::string mode = in.text((*triple)[2]);
    if (mode != "add" && mode != "write")
      in.fail("a block's result is to \"add\" or to \"write\", not to \"" + mode + "\"");
    block.results.push_back(
        {in.smallInteger((*triple)[0]), in.smallInteger((*triple)[1]), mode == "add"});
  }
  if (!Reader::has(json, "regions"))
    return block;
  for (const Json &region : in.list(json["regions"])) {
    if (const Json *fields = in.tuple(region, 4))
      block.regions.push_back({in.smallInteger((*fields)[0]), in.smallInteger((*fields)[1]),
                               in.text((*fields)[2]), in.integer((*fields)[3])});
  }
  return block;
}

MemoryPlan readMemory(Reader &in, const Json &json) {
  MemoryPlan memory;
  memory.arenaBytes = in.integer(in.field(json, "arena"));
  memory.hostArenaBytes = in.integer(in.field(json, "host_arena"));
  for (const Json &entry : in.list(in.field(json, "frames"))) {
    Frame &frame = memory.frames.emplace_back();
    frame.bytes = in.integer(in.field(entry, "bytes"));
    frame.offsets = readVector<int64_t>(in, in.field(entry, "offsets"),
                                        [&](const Json &item) { return in.integer(item); });
  }
  for (const Json &item : in.list(in.field(json, "slots"))) {
    SlotPlace &place = memory.slots.emplace_back();
    if (!item.is_array())
      place.offset = in.integer(item);
    else if (const Json *pair = in.tuple(item, 2))
      place = {in.smallInteger((*pair)[0]), in.integer((*pair)[1])};
  }
  for (const Json &item : in.list(in.field(json, "values"))) {
    ValuePlace &place = memory.values.emplace_back();
    if (!item.is_array())
      place.offset = in.integer(item);
    else if (const Json *slot = in.tuple(item, 1))
      place.slot = in.smallInteger((*slot)[0]);
  }
  return memory;
}

/// The location of a slot: the device, unless the text says otherwise.
Location readLocation(Reader &in, const Json &json) {
  if (!Reader::has(json, "location"))
    return Location::Device;
  std::string text = in.text(json["location"]);
  if (text != "host")
    in.fail("\"" + text + "\" is no location; known: host");
  return Location::Host;
}

Stage readStage(Reader &in, const Mesh &mesh, const Json &json) {
  std::string stagePlace = in.place;
  Stage stage;
  for (const Json &value : in.list(in.field(json, "values")))
    stage.values.push_back(readType(in, value));
  for (const Json &entry : in.list(in.field(json, "slots"))) {
    Slot &slot = stage.slots.emplace_back();
    slot.name = in.text(in.field(entry, "name"));
    slot.role = readEnum<Role>(in, in.field(entry, "role"), numRoles);
    slot.type = readType(in, in.field(entry, "type"));
    slot.tensor = Reader::has(entry, "tensor") ? in.smallInteger(entry["tensor"]) : -1;
    slot.location = readLocation(in, entry);
  }
  stage.chunks.clear();
  for (const Json &entry : in.list(in.field(json, "chunks"))) {
    Chunk &chunk = stage.chunks.emplace_back();
    for (auto [name, block] :
         {std::pair("forward", &chunk.forward), std::pair("backward", &chunk.backward),
          std::pair("weight", &chunk.weight), std::pair("last_backward", &chunk.lastBackward)}) {
      if (block == &chunk.lastBackward && !Reader::has(entry, name))
        continue;
      in.place = stagePlace + ", chunk " + std::to_string(stage.chunks.size() - 1) + ", " + name +
                 " block";
      *block = readBlock(in, mesh, in.field(entry, name));
    }
  }
  in.place = stagePlace + ", update block";
  stage.update = readBlock(in, mesh, in.field(json, "update"));
  in.place = stagePlace + ", memory plan";
  if (Reader::has(json, "memory"))
    stage.memory = readMemory(in, json["memory"]);
  return stage;
}

GlobalTensor readTensor(Reader &in, const Mesh &mesh, const Json &json) {
  GlobalTensor tensor;
  tensor.name = in.text(in.field(json, "name"));
  tensor.role = readEnum<Role>(in, in.field(json, "role"), numRoles);
  tensor.type = readType(in, in.field(json, "type"));
  tensor.piece = readPiece(in, mesh, in.field(json, "piece"));
  if (Reader::has(json, "flat"))
    tensor.piece.flat = readAxes(in, mesh, json["flat"]);
  if (Reader::has(json, "partial"))
    tensor.partial = readAxes(in, mesh, json["partial"]);
  if (Reader::has(json, "initializer"))
    tensor.initializer = in.text(json["initializer"]);
  if (Reader::has(json, "fill"))
    tensor.fill = in.number(json["fill"]);
  return tensor;
}

ScheduleSpec readSchedule(Reader &in, const Json &json) {
  ScheduleSpec spec;
  spec.generator = in.text(in.field(json, "generator"));
  if (Reader::has(json, "chunk_stage"))
    spec.chunkStage = readVector<int>(in, json["chunk_stage"],
                                      [&](const Json &stage) { return in.smallInteger(stage); });
  if (!Reader::has(json, "table"))
    return spec;
  for (const Json &list : in.list(json["table"])) {
    std::vector<schedule::Action> &actions = spec.table.emplace_back();
    for (const Json &item : in.list(list)) {
      if (const Json *triple = in.tuple(item, 3))
        actions.push_back(
            {readEnum<schedule::Action::Kind>(in, (*triple)[0], schedule::numActionKinds),
             in.integer((*triple)[1]), in.smallInteger((*triple)[2])});
    }
  }
  return spec;
}

Program readPayload(Reader &in, const Json &json) {
  Program program;
  const Json &metadata = in.field(json, "metadata");
  if (!metadata.is_object())
    in.fail("\"metadata\" is no object");
  else
    for (const auto &[key, value] : metadata.items())
      program.metadata[key] = in.text(value);
  for (const Json &axis : in.list(in.field(json, "mesh"))) {
    if (const Json *pair = in.tuple(axis, 2))
      program.mesh.axes.push_back({in.text((*pair)[0]), in.integer((*pair)[1])});
  }
  const Json &pipelineAxis = in.field(json, "pipeline_axis");
  if (!pipelineAxis.is_null()) {
    program.pipelineAxis = program.mesh.axisIndex(in.text(pipelineAxis));
    if (program.pipelineAxis < 0)
      in.fail("the pipeline axis is no axis of the mesh");
  }
  program.microBatches = in.integer(in.field(json, "micro_batches"));
  program.schedule = readSchedule(in, in.field(json, "schedule"));
  for (const Json &tensor : in.list(in.field(json, "tensors"))) {
    in.place = "tensor " + std::to_string(program.tensors.size());
    program.tensors.push_back(readTensor(in, program.mesh, tensor));
  }
  in.place = "program";
  for (const Json &stage : in.list(in.field(json, "stages"))) {
    in.place = "stage " + std::to_string(program.stages.size());
    program.stages.push_back(readStage(in, program.mesh, stage));
  }
  return program;
}

Error notAProgram(const std::string &why) {
  return Error{ErrorCode::Usage, "cannot read the Program: " + why};
}

/// Takes `prefix` off `text`; false if it does not begin so.
bool consume(std::string_view &text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix)
    return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// Whether brackets are nested deeper than in any Program.
bool isTooDeep(std::string_view text) {
  int depth = 0;
  bool inString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (inString) {
      i += c == '\\';
      inString = c != '"';
    } else if (c == '"') {
      inString = true;
    } else if (c == '[' || c == '{') {
      if (++depth > maxFileNesting)
        return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

/// Returns the payload of a file with a correct frame and hash.
Result<std::string_view> payloadOf(std::string_view text) {
  if (text.size() > maxFileBytes)
    return notAProgram("it is larger than " + std::to_string(maxFileBytes) + " bytes");
  if (!consume(text, fileBegin))
    return notAProgram("it does not begin as a tbc program does; compile one with `tbc compile`");
  size_t versionEnd = std::min(text.find(','), text.size());
  std::string version(text.substr(0, std::min<size_t>(versionEnd, 20)));
  text.remove_prefix(versionEnd);
  if (version != std::to_string(fileVersion))
    return notAProgram("it is of version \"" + version + "\", this tbc reads version " +
                       std::to_string(fileVersion) + "; compile it again");
  const char *damaged = "it is damaged or truncated; compile it again";
  constexpr size_t hashDigits = 64;
  if (!consume(text, fileHash) || text.size() < hashDigits)
    return notAProgram(damaged);
  std::string_view hash = text.substr(0, hashDigits);
  text.remove_prefix(hashDigits);
  if (!consume(text, filePayload) || text.size() < fileEnd.size() ||
      text.substr(text.size() - fileEnd.size()) != fileEnd)
    return notAProgram(damaged);
  text.remove_suffix(fileEnd.size());
  if (sha256Hex(text) != hash)
    return notAProgram(damaged);
  return text;
}

} // namespace

Result<Program> readProgram(std::string_view text) {
  Result<std::string_view> payload = payloadOf(text);
  if (!payload)
    return payload.error();
  if (isTooDeep(*payload))
    return notAProgram("its payload is nested too deeply");
  Json json = Json::parse(payload->begin(), payload->end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    return notAProgram("its payload is not JSON");
  Reader in;
  Program program = readPayload(in, json);
  if (!in.error.empty())
    return notAProgram(in.error);
  if (Status status = checkWellFormed(program); !status)
    return status.error();
  return program;
}

} // namespace tbc::program
