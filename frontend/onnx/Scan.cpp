//===- Scan.cpp - Bounded scan of an ONNX file before parsing --------------===//

#include "frontend/onnx/Scan.h"

#include "frontend/onnx/DeviceAnnotations.h"
#include "frontend/onnx/Wire.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <string_view>

namespace tbc::frontend {

namespace {

enum class Kind {
  Model,
  Graph,
  Node,
  Attribute,
  Tensor,
  ValueInfo,
  Type,
  TensorType,
  Shape,
  Dim,
  OperatorSet,
  StringString,
  ValueRecord,
  Metadata,
  Function,
  Configuration,
  NodeConfiguration,
  ShardingSpec,
  DeviceGroup,
  ShardedDim,
  SimpleSharding
};

enum class Action {
  Scalar,       // varint or fixed: copied
  List,         // scalars, packed or not: copied and counted
  Devices,      // the same; a large cluster has more of them than any other list
  Name,         // text within the limit on names: copied
  Text,         // bytes within the limit on attribute strings: copied
  Payload,      // tensor data
  Message,      // copied field by field
  Signature,    // metadata, of which the signature is kept outside of the skeleton
  Drop,         // not needed
  RefuseSegment // tensors in pieces
};

struct Field {
  Kind parent;
  unsigned number;
  Action action;
  Kind child = Kind::Model;
};

/// All fields read by the importer, from onnx.proto. Other fields are dropped.
constexpr Field fields[] = {
    {Kind::Model, 1, Action::Scalar},
    {Kind::Model, 2, Action::Name},
    {Kind::Model, 3, Action::Name},
    {Kind::Model, 7, Action::Message, Kind::Graph},
    {Kind::Model, 8, Action::Message, Kind::OperatorSet},
    {Kind::Model, 14, Action::Message, Kind::Metadata},
    {Kind::Model, 25, Action::Message, Kind::Function},
    {Kind::Model, 26, Action::Message, Kind::Configuration},
    {Kind::Graph, 1, Action::Message, Kind::Node},
    {Kind::Graph, 2, Action::Name},
    {Kind::Graph, 5, Action::Message, Kind::Tensor},
    {Kind::Graph, 11, Action::Message, Kind::ValueInfo},
    {Kind::Graph, 12, Action::Message, Kind::ValueInfo},
    {Kind::Graph, 13, Action::Message, Kind::ValueRecord},
    {Kind::Graph, 16, Action::Signature},
    {Kind::Node, 1, Action::Name},
    {Kind::Node, 2, Action::Name},
    {Kind::Node, 3, Action::Name},
    {Kind::Node, 4, Action::Name},
    {Kind::Node, 5, Action::Message, Kind::Attribute},
    {Kind::Node, 7, Action::Name},
    {Kind::Node, 8, Action::Name},
    {Kind::Node, 9, Action::Message, Kind::Metadata},
    {Kind::Node, 10, Action::Message, Kind::NodeConfiguration},
    {Kind::Attribute, 1, Action::Name},
    {Kind::Attribute, 2, Action::Scalar},
    {Kind::Attribute, 3, Action::Scalar},
    {Kind::Attribute, 4, Action::Text},
    {Kind::Attribute, 5, Action::Message, Kind::Tensor},
    {Kind::Attribute, 6, Action::Message, Kind::Graph},
    {Kind::Attribute, 7, Action::List},
    {Kind::Attribute, 8, Action::List},
    {Kind::Attribute, 9, Action::Text},
    {Kind::Attribute, 10, Action::Message, Kind::Tensor},
    {Kind::Attribute, 11, Action::Message, Kind::Graph},
    {Kind::Attribute, 20, Action::Scalar},
    {Kind::Attribute, 21, Action::Name},
    {Kind::Tensor, 1, Action::List},
    {Kind::Tensor, 2, Action::Scalar},
    {Kind::Tensor, 3, Action::RefuseSegment},
    {Kind::Tensor, 4, Action::Payload},
    {Kind::Tensor, 5, Action::Payload},
    {Kind::Tensor, 6, Action::Text},
    {Kind::Tensor, 7, Action::Payload},
    {Kind::Tensor, 8, Action::Name},
    {Kind::Tensor, 9, Action::Payload},
    {Kind::Tensor, 10, Action::Payload},
    {Kind::Tensor, 11, Action::Payload},
    {Kind::Tensor, 13, Action::Message, Kind::StringString},
    {Kind::Tensor, 14, Action::Scalar},
    {Kind::Tensor, 16, Action::Message, Kind::Metadata},
    {Kind::ValueRecord, 1, Action::Name},
    {Kind::ValueRecord, 4, Action::Message, Kind::Metadata},
    {Kind::ValueInfo, 1, Action::Name},
    {Kind::ValueInfo, 2, Action::Message, Kind::Type},
    {Kind::Type, 1, Action::Message, Kind::TensorType},
    {Kind::TensorType, 1, Action::Scalar},
    {Kind::TensorType, 2, Action::Message, Kind::Shape},
    {Kind::Shape, 1, Action::Message, Kind::Dim},
    {Kind::Dim, 1, Action::Scalar},
    {Kind::Dim, 2, Action::Name},
    {Kind::OperatorSet, 1, Action::Name},
    {Kind::OperatorSet, 2, Action::Scalar},
    {Kind::StringString, 1, Action::Name},
    {Kind::StringString, 2, Action::Name},
    {Kind::Metadata, 1, Action::Name},
    {Kind::Metadata, 2, Action::Text},
    {Kind::Function, 1, Action::Name},
    {Kind::Function, 4, Action::Name},
    {Kind::Function, 5, Action::Name},
    {Kind::Function, 6, Action::Name},
    {Kind::Function, 7, Action::Message, Kind::Node},
    {Kind::Function, 9, Action::Message, Kind::OperatorSet},
    {Kind::Function, 10, Action::Name},
    {Kind::Function, 11, Action::Message, Kind::Attribute},
    {Kind::Function, 13, Action::Name},
    {Kind::Configuration, 1, Action::Name},
    {Kind::Configuration, 2, Action::Scalar},
    {Kind::NodeConfiguration, 1, Action::Name},
    {Kind::NodeConfiguration, 2, Action::Message, Kind::ShardingSpec},
    {Kind::NodeConfiguration, 3, Action::Scalar},
    {Kind::ShardingSpec, 1, Action::Name},
    {Kind::ShardingSpec, 2, Action::Devices},
    {Kind::ShardingSpec, 3, Action::Message, Kind::DeviceGroup},
    {Kind::ShardingSpec, 4, Action::Message, Kind::ShardedDim},
    {Kind::DeviceGroup, 1, Action::Scalar},
    {Kind::DeviceGroup, 2, Action::Devices},
    {Kind::ShardedDim, 1, Action::Scalar},
    {Kind::ShardedDim, 2, Action::Message, Kind::SimpleSharding},
    {Kind::SimpleSharding, 1, Action::Scalar},
    {Kind::SimpleSharding, 2, Action::Name},
    {Kind::SimpleSharding, 3, Action::Scalar},
};

const Field *findField(Kind parent, unsigned number) {
  for (const Field &field : fields)
    if (field.parent == parent && field.number == number)
      return &field;
  return nullptr;
}

const char *nameOf(Kind kind) {
  switch (kind) {
  case Kind::Model:
    return "model";
  case Kind::Graph:
    return "graph";
  case Kind::Node:
    return "node";
  case Kind::Attribute:
    return "attribute";
  case Kind::Tensor:
    return "tensor";
  case Kind::ValueInfo:
  case Kind::ValueRecord:
    return "value info";
  case Kind::Type:
  case Kind::TensorType:
    return "type";
  case Kind::Shape:
    return "shape";
  case Kind::Dim:
    return "dim";
  case Kind::OperatorSet:
    return "operator set";
  case Kind::StringString:
  case Kind::Metadata:
    return "text entry";
  case Kind::Function:
    return "function";
  case Kind::Configuration:
  case Kind::NodeConfiguration:
    return "device configuration";
  case Kind::ShardingSpec:
  case Kind::DeviceGroup:
  case Kind::ShardedDim:
  case Kind::SimpleSharding:
    return "sharding";
  }
  return "message";
}

/// Returns an upper estimate of the bytes of one parsed object: its class, its slot in the parent,
/// and the importer's data for it.
uint64_t parsedBytes(Kind kind) {
  switch (kind) {
  case Kind::Node:
  case Kind::Attribute:
  case Kind::Tensor:
  case Kind::Graph:
  case Kind::Function:
    return 320;
  default:
    return 96;
  }
}

/// A step of a path into a model, as the Python package of ONNX writes it.
struct PathStep {
  Kind parent;
  unsigned number;
  const char *text;
  bool isList;
};

constexpr PathStep pathSteps[] = {
    {Kind::Model, 7, "graph", false},       {Kind::Model, 8, "opset_import", true},
    {Kind::Model, 25, "functions", true},   {Kind::Model, 26, "configuration", true},
    {Kind::Graph, 1, "node", true},         {Kind::Graph, 5, "initializer", true},
    {Kind::Graph, 11, "input", true},       {Kind::Graph, 12, "output", true},
    {Kind::Graph, 13, "value_info", true},  {Kind::Node, 5, "attribute", true},
    {Kind::Attribute, 5, "t", false},       {Kind::Attribute, 6, "g", false},
    {Kind::Attribute, 10, "tensors", true}, {Kind::Attribute, 11, "graphs", true},
    {Kind::Function, 7, "node", true},
};

class Scanner {
public:
  Scanner(ScannedModel &model, const ScanLimits &limits)
      : model(model), limits(limits), wire(model.file.data(), model.file.size()),
        memoryLimit(limits.memoryPerByte * model.file.size() + limits.memoryBase) {}

  void run() {
    message(Kind::Model, 0, model.file.size(), 0);
    if (!sawGraph)
      throw WireError(0, "not an ONNX model: it has no graph");
  }

private:
  void count(uint64_t at, uint64_t bytes) {
    memory += bytes;
    if (memory > memoryLimit)
      throw WireError(at, "too many objects for a file of " + std::to_string(model.file.size()) +
                              " bytes: parsed they would take more than " +
                              std::to_string(memoryLimit) + " bytes");
  }

  void message(Kind kind, uint64_t begin, uint64_t end, unsigned graphDepth) {
    count(begin, parsedBytes(kind));
    if (kind == Kind::Graph && ++graphDepth > limits.graphDepth)
      throw WireError(begin,
                      "graphs are nested more than " + std::to_string(limits.graphDepth) + " deep");
    if (kind == Kind::Node && ++nodes > limits.nodes)
      throw WireError(begin, "more than " + std::to_string(limits.nodes) + " nodes");
    bool hasOpType = false;
    unsigned rank = 0;
    TensorState tensor;
    for (uint64_t at = begin; at < end;) {
      WireField field = wire.field(at, end);
      hasOpType |= kind == Kind::Node && field.number == 4 && field.bytes > 0;
      sawGraph |= kind == Kind::Model && field.number == 7;
      if (kind == Kind::Tensor && field.number == 1)
        rank += scalars(field);
      copy(kind, field, graphDepth, tensor);
      at = field.next;
    }
    if (kind == Kind::Node && !hasOpType)
      throw WireError(begin, "node without an op type");
    if (rank > limits.rank)
      throw WireError(begin, "tensor of rank " + std::to_string(rank) + "; at most " +
                                 std::to_string(limits.rank) + " is supported");
    if (kind == Kind::Tensor && tensor.runs == 1)
      reference(tensor.payload);
  }

  struct TensorState {
    Payload payload;
    unsigned runs = 0;
  };

  void copy(Kind kind, const WireField &field, unsigned graphDepth, TensorState &tensor) {
    const Field *known = findField(kind, field.number);
    if (!known)
      return;
    switch (known->action) {
    case Action::Drop:
      return;
    case Action::Scalar:
      if (field.type == WireType::Bytes)
        throw WireError(field.begin, unexpected(kind, field));
      return append(field);
    case Action::List:
      requireWholeNumbers(field, kind == Kind::Attribute && field.number == 7 ? 4 : 0);
      count(field.begin, 8 * scalars(field));
      elements += scalars(field);
      if (elements > limits.listElements)
        throw WireError(field.begin, "more than " + std::to_string(limits.listElements) +
                                         " elements in lists of dims and attributes");
      return append(field);
    case Action::Devices:
      requireWholeNumbers(field, 0);
      count(field.begin, 8 * scalars(field));
      return append(field);
    case Action::Name:
      requireText(kind, field, limits.nameBytes);
      if (std::string why = whyNoName(model.file.data() + field.data, field.bytes); !why.empty())
        throw WireError(field.begin, std::string("a name in a ") + nameOf(kind) + " " + why +
                                         ", in " + pathTo(field.begin) +
                                         "; change it in Python and save the model again");
      count(field.begin, 48 + field.bytes);
      return append(field);
    case Action::Text:
      requireText(kind, field, limits.attributeStringBytes);
      count(field.begin, 48 + field.bytes);
      return append(field);
    case Action::Payload:
      return payload(field, tensor);
    case Action::Message:
      if (field.type != WireType::Bytes)
        throw WireError(field.begin, unexpected(kind, field));
      if (known->child == Kind::Metadata && !isWantedMetadata(field))
        return;
      if (known->child == Kind::ValueRecord && !isWantedRecord(field))
        return;
      return nested(*known, field, graphDepth);
    case Action::Signature:
      return keepSignature(field);
    case Action::RefuseSegment:
      throw WireError(field.begin, "tensor stored in segments, which is not supported");
    }
  }

  /// Returns the path to the message around `target`, as far as pathSteps knows it. Example:
  /// "model.graph.node[3].attribute[0].t". All before `target` is well-formed.
  std::string pathTo(uint64_t target) const {
    std::string path = "model";
    uint64_t begin = 0, end = model.file.size();
    for (Kind kind = Kind::Model;;) {
      std::map<unsigned, unsigned> counts; // by field number
      WireField field = wire.field(begin, end);
      for (; field.next <= target; field = wire.field(field.next, end))
        ++counts[field.number];
      auto step = std::find_if(std::begin(pathSteps), std::end(pathSteps), [&](const PathStep &s) {
        return s.parent == kind && s.number == field.number;
      });
      if (step == std::end(pathSteps))
        return path;
      path += std::string(".") + step->text;
      if (step->isList)
        path += "[" + std::to_string(counts[field.number]) + "]";
      kind = findField(kind, field.number)->child;
      begin = field.data;
      end = field.data + field.bytes;
    }
  }

  std::string unexpected(Kind kind, const WireField &field) {
    return "not an ONNX model: field " + std::to_string(field.number) + " of a " + nameOf(kind) +
           " has wire type " + std::to_string(unsigned(field.type));
  }

  void requireText(Kind kind, const WireField &field, uint64_t limit) {
    if (field.type != WireType::Bytes)
      throw WireError(field.begin, unexpected(kind, field));
    if (field.bytes > limit)
      throw WireError(field.begin, std::string("a text of ") + std::to_string(field.bytes) +
                                       " bytes in a " + nameOf(kind) + "; at most " +
                                       std::to_string(limit) + " are supported");
  }

  /// Returns the number of numbers in a field: one, or the length of a packed list.
  uint64_t scalars(const WireField &field) {
    if (field.type != WireType::Bytes)
      return 1;
    if (field.number == 7) // floats
      return field.bytes / 4;
    uint64_t n = 0;
    for (uint64_t i = 0; i < field.bytes; ++i)
      n += (model.file.data()[field.data + i] & 0x80) == 0;
    return n;
  }

  /// Throws if a packed list ends inside a number: `width` bytes each, or varints if `width` is 0.
  void requireWholeNumbers(const WireField &field, unsigned width) {
    if (field.type != WireType::Bytes)
      return;
    if (width != 0 && field.bytes % width != 0)
      throw WireError(field.begin, "a list of numbers of " + std::to_string(width) + " bytes has " +
                                       std::to_string(field.bytes) + " bytes");
    if (width != 0)
      return;
    unsigned length = 0;
    for (uint64_t i = field.data; i < field.data + field.bytes; ++i) {
      length = (model.file.data()[i] & 0x80) == 0 ? 0 : length + 1;
      if (length >= 10)
        throw WireError(i, "a list holds a number of more than 64 bits");
    }
    if (length != 0)
      throw WireError(field.begin, "a list of numbers ends inside a number");
  }

  /// Whether to keep a metadata entry: module paths of nodes, their calls in PyTorch, sources of
  /// initializers, and flags of an annotated plan. The rest is most of the file: stack traces
  /// without calls of custom functions or functions of the exporter.
  bool isWantedMetadata(const WireField &entry) {
    const auto [key, value] = textsOf(entry);
    if (key == kStackTraceKey)
      return value.find(kApplyCall) != value.npos || value.rfind(kGeneratedFrame, 0) == 0;
    return key == "pkg.torch.onnx.name_scopes" || key == "namespace" || key == kTorchCallKey ||
           key == kInputKindKey || key == kFoldedFromKey || key == kPlanFlagsKey;
  }

  /// Returns the key and the value of a metadata entry.
  std::pair<std::string_view, std::string_view> textsOf(const WireField &entry) {
    std::string_view key, value;
    for (uint64_t at = entry.data; at < entry.data + entry.bytes;) {
      WireField field = wire.field(at, entry.data + entry.bytes);
      if (field.type == WireType::Bytes && (field.number == 1 || field.number == 2))
        (field.number == 1 ? key : value) = std::string_view(
            reinterpret_cast<const char *>(model.file.data()) + field.data, field.bytes);
      at = field.next;
    }
    return {key, value};
  }

  /// Keeps the value of a metadata entry that is the signature; longer texts are dropped.
  void keepSignature(const WireField &entry) {
    if (entry.type != WireType::Bytes)
      return;
    auto [key, value] = textsOf(entry);
    if (key != kSignatureKey || value.size() > limits.attributeStringBytes)
      return;
    count(entry.begin, value.size());
    model.signature = value;
  }

  /// Whether the value info of an inner value has such metadata.
  bool isWantedRecord(const WireField &record) {
    for (uint64_t at = record.data; at < record.data + record.bytes;) {
      WireField field = wire.field(at, record.data + record.bytes);
      if (field.number == 4 && field.type == WireType::Bytes && isWantedMetadata(field))
        return true;
      at = field.next;
    }
    return false;
  }

  void payload(const WireField &field, TensorState &tensor) {
    if (field.type != WireType::Bytes) { // an unpacked list: element by element
      tensor.runs = 2;
      count(field.begin, 8);
      return append(field);
    }
    bool isFixed = field.number == 4 || field.number == 10;
    if (field.number != 9)
      requireWholeNumbers(field, isFixed ? (field.number == 4 ? 4 : 8) : 0);
    if (++tensor.runs > 1)
      throw WireError(field.begin, "tensor with more than one run of data");
    tensor.payload = {field.number, field.data, field.bytes};
    if (field.bytes > limits.inlineBytes)
      return;
    count(field.begin, 8 * field.bytes);
    append(field);
  }

  /// Writes TensorProto.segment = {begin, end}.
  void reference(const Payload &payload) {
    std::string segment;
    putTag(segment, 1, WireType::Varint);
    putVarint(segment, payload.offset);
    putTag(segment, 2, WireType::Varint);
    putVarint(segment, payload.offset + payload.bytes);
    putTag(model.skeleton, 3, WireType::Bytes);
    putVarint(model.skeleton, segment.size());
    model.skeleton += segment;
    model.payloads[payload.offset] = payload;
    count(payload.offset, 128);
  }

  void nested(const Field &known, const WireField &field, unsigned graphDepth) {
    putTag(model.skeleton, field.number, WireType::Bytes);
    // The length is unknown yet: reserves five bytes, patched afterwards.
    size_t lengthAt = model.skeleton.size();
    model.skeleton.append(5, '\0');
    message(known.child, field.data, field.data + field.bytes, graphDepth);
    uint64_t length = model.skeleton.size() - lengthAt - 5;
    for (unsigned i = 0; i < 5; ++i)
      model.skeleton[lengthAt + i] = char(((length >> (7 * i)) & 0x7f) | (i < 4 ? 0x80 : 0));
  }

  void append(const WireField &field) {
    model.skeleton.append(reinterpret_cast<const char *>(model.file.data()) + field.begin,
                          field.next - field.begin);
  }

  ScannedModel &model;
  const ScanLimits &limits;
  Wire wire;
  uint64_t memoryLimit, memory = 0, nodes = 0, elements = 0;
  bool sawGraph = false;
};

} // namespace

Result<ScannedModel> scanModel(data::MappedFile file, const ScanLimits &limits) {
  auto reject = [&](const std::string &message) {
    return Error{ErrorCode::ModelRejected, file.path() + ": " + message};
  };
  if (file.size() == 0)
    return reject("the file is empty; expected an ONNX model");
  if (file.size() > limits.fileBytes)
    return reject("the file has " + std::to_string(file.size()) + " bytes; at most " +
                  std::to_string(limits.fileBytes) +
                  " are read. Store the weights as external data");
  ScannedModel model;
  model.file = file;
  try {
    Scanner(model, limits).run();
  } catch (const WireError &error) {
    return reject("at byte " + std::to_string(error.offset) + ": " + error.what());
  }
  return model;
}

} // namespace tbc::frontend
