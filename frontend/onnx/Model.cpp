//===- Model.cpp - A parsed and checked ONNX model -------------------------===//

#include "frontend/onnx/Model.h"

#include "frontend/onnx/Functions.h"
#include "frontend/onnx/OtherFile.h"
#include "frontend/onnx/Value.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <queue>
#include <set>

namespace tbc::frontend {

namespace {

/// The supported versions of the standard operator set; `NodeContext::upgrade` knows the forms of
/// each op.
constexpr int64_t oldestOpset = 1, newestOpset = 28;

void readOperatorSets(Model &model) {
  for (const onnx::OperatorSetIdProto &set : model.proto->opset_import()) {
    if (!set.domain().empty() && set.domain() != "ai.onnx")
      continue;
    if (model.opset != 0 && model.opset != set.version())
      throw ImportError("the model uses two versions of the standard operator set, " +
                        std::to_string(model.opset) + " and " + std::to_string(set.version()));
    model.opset = set.version();
  }
  // A model may use only other domains, without a version of the standard set.
  bool isStandard = false;
  for (const onnx::NodeProto &node : model.graph().node())
    isStandard |= node.domain().empty() || node.domain() == "ai.onnx";
  if (model.opset == 0 && !isStandard)
    model.opset = newestOpset;
  checkOpset(model.opset, "the model");
}

} // namespace

void checkOpset(int64_t version, const std::string &what) {
  if (version < oldestOpset || version > newestOpset)
    throw ImportError(what + " uses operator set " + std::to_string(version) + "; sets " +
                      std::to_string(oldestOpset) + " to " + std::to_string(newestOpset) +
                      " are supported. Convert it with onnx.version_converter, or export it again");
}

std::string torchOpOf(const onnx::NodeProto &node) {
  for (const onnx::StringStringEntryProto &entry : node.metadata_props())
    if (entry.key() == "namespace")
      if (size_t end = entry.value().rfind(": "); end != std::string::npos)
        return entry.value().substr(end + 2);
  return "";
}

std::string describe(const GraphNode &node) {
  // What a loop or a branch is for stands in no other node.
  const std::string torchOp = node.bodies.empty() ? "" : torchOpOf(*node.proto);
  return "node '" + node.name + "' (" + node.proto->op_type() +
         (torchOp.empty() ? "" : " of " + torchOp) + ")";
}

void forEachNode(const std::vector<GraphNode> &nodes,
                 const std::function<void(const GraphNode &)> &visit) {
  for (const GraphNode &node : nodes) {
    visit(node);
    for (const Body &body : node.bodies)
      forEachNode(body.nodes, visit);
  }
}

void sortNodes(std::vector<GraphNode> &nodes, const std::vector<std::string> &defined,
               bool isBody) {
  constexpr int fromOutside = -1;
  std::map<std::string, int> producer;
  for (const std::string &value : defined)
    if (!producer.emplace(value, fromOutside).second)
      throw ImportError("'" + value + "' is defined twice, as input or initializer");
  int count = nodes.size();
  for (int i = 0; i < count; ++i)
    for (const std::string &output : nodes[i].proto->output())
      if (!output.empty() && !producer.emplace(output, i).second)
        throw ImportError(describe(nodes[i]) + " defines '" + output +
                          "', which is already defined");

  std::vector<std::vector<int>> users(count);
  std::vector<int> waiting(count, 0);
  auto wait = [&](int i, const std::string &input) {
    if (input.empty())
      return;
    auto it = producer.find(input);
    if (it == producer.end() && !isBody)
      throw ImportError(describe(nodes[i]) + " reads '" + input + "', which nothing defines");
    if (it == producer.end() || it->second == fromOutside)
      return;
    users[it->second].push_back(i);
    ++waiting[i];
  };
  for (int i = 0; i < count; ++i) {
    for (const std::string &input : nodes[i].proto->input())
      wait(i, input);
    for (const std::string &input : nodes[i].captures)
      wait(i, input);
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < count; ++i)
    if (waiting[i] == 0)
      ready.push(i);
  std::vector<int> order;
  while (!ready.empty()) {
    int i = ready.top();
    ready.pop();
    order.push_back(i);
    for (int user : users[i])
      if (--waiting[user] == 0)
        ready.push(user);
  }
  if (int(order.size()) == count) {
    std::vector<GraphNode> sorted;
    sorted.reserve(count);
    for (int i : order)
      sorted.push_back(std::move(nodes[i]));
    nodes = std::move(sorted);
    return;
  }
  // Every waiting node waits for another one, so walking up ends in a cycle.
  int at =
      std::find_if(waiting.begin(), waiting.end(), [](int n) { return n > 0; }) - waiting.begin();
  std::set<int> seen;
  while (seen.insert(at).second) {
    std::vector<std::string> inputs(nodes[at].proto->input().begin(),
                                    nodes[at].proto->input().end());
    inputs.insert(inputs.end(), nodes[at].captures.begin(), nodes[at].captures.end());
    for (const std::string &input : inputs)
      if (auto it = producer.find(input);
          it != producer.end() && it->second >= 0 && waiting[it->second] > 0) {
        at = it->second;
        break;
      }
  }
  throw ImportError("the graph has a cycle through " + describe(nodes[at]));
}

namespace {

void readGraph(Model &model) {
  const onnx::GraphProto &graph = model.graph();
  for (const onnx::TensorProto &tensor : graph.initializer()) {
    if (tensor.name().empty())
      throw ImportError("an initializer has no name");
    if (!model.initializers.emplace(tensor.name(), &tensor).second)
      throw ImportError("initializer '" + tensor.name() + "' is defined twice");
    model.initializerOrder.push_back(&tensor);
  }
  std::set<std::string> inputs;
  for (const onnx::ValueInfoProto &input : graph.input()) {
    if (input.name().empty() || !inputs.insert(input.name()).second)
      throw ImportError("graph input '" + input.name() + "' has no name or is there twice");
    if (!model.initializers.count(input.name()))
      model.inputs.push_back(&input);
  }
  if (graph.output_size() == 0)
    throw ImportError("the graph has no outputs");
  expandNodes(model);
  std::vector<std::string> defined;
  for (const auto &[name, tensor] : model.initializers)
    if (!model.bodyInitializers.count(name))
      defined.push_back(name);
  for (const onnx::ValueInfoProto *input : model.inputs)
    defined.push_back(input->name());
  sortNodes(model.nodes, defined, /*isBody=*/false);
}

} // namespace

Result<std::unique_ptr<Model>> loadModel(const std::string &path) {
  Result<data::MappedFile> file = data::MappedFile::open(path, ErrorCode::Usage);
  if (!file)
    return file.error();
  if (const std::string other = otherKindOf(file->text()); !other.empty())
    return Error{ErrorCode::ModelRejected, path + ": not an ONNX model: " + other};
  Result<ScannedModel> scanned = scanModel(*file);
  if (!scanned)
    return scanned.error();
  auto model = std::make_unique<Model>();
  model->scanned = std::move(*scanned);
  model->proto = std::make_unique<onnx::ModelProto>();

  const std::string &skeleton = model->scanned.skeleton;
  google::protobuf::io::ArrayInputStream stream(skeleton.data(), int(skeleton.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  // A nested graph takes three levels: node, attribute, graph.
  coded.SetRecursionLimit(4 * ScanLimits().graphDepth + 16);
  auto reject = [&](const std::string &why) {
    return Error{ErrorCode::ModelRejected, path + ": " + why};
  };
  if (!model->proto->ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage())
    return reject("not an ONNX model");
  if (model->graph().node_size() == 0)
    return reject("not an ONNX model: its graph has no nodes");
  try {
    readOperatorSets(*model);
    readGraph(*model);
  } catch (const ImportError &error) {
    return reject(error.what());
  }
  return model;
}

//===- tensors -------------------------------------------------------------===//

DType dtypeOfOnnx(int32_t elementType, const std::string &what) {
  switch (elementType) {
  case onnx::TensorProto::DOUBLE:
    return DType::F64;
  case onnx::TensorProto::FLOAT:
    return DType::F32;
  case onnx::TensorProto::FLOAT16:
    return DType::F16;
  case onnx::TensorProto::BFLOAT16:
    return DType::BF16;
  case onnx::TensorProto::INT64:
    return DType::I64;
  case onnx::TensorProto::INT32:
    return DType::I32;
  case onnx::TensorProto::INT16:
    return DType::I16;
  case onnx::TensorProto::INT8:
    return DType::I8;
  case onnx::TensorProto::UINT8:
    return DType::U8;
  case onnx::TensorProto::UINT16:
    return DType::U16;
  case onnx::TensorProto::UINT32:
    return DType::U32;
  case onnx::TensorProto::UINT64: // elements from 2^63 on are refused
    return DType::I64;
  case onnx::TensorProto::BOOL:
    return DType::Bool;
  default:
    throw ImportError(what + " has element type " + std::to_string(elementType) +
                      ", which is not supported");
  }
}

Shape shapeOfTensor(const onnx::TensorProto &tensor) {
  constexpr int64_t maxElements = int64_t(1) << 56;
  Shape shape;
  __int128 elements = 1;
  for (int64_t size : tensor.dims()) {
    if (size < 0)
      throw ImportError("tensor '" + tensor.name() + "' has a dim of size " + std::to_string(size));
    elements *= size;
    if (size > maxElements || elements > maxElements)
      throw ImportError("tensor '" + tensor.name() + "' has more than 2^56 elements");
    shape.push_back(size);
  }
  return shape;
}

bool isExternal(const onnx::TensorProto &tensor) {
  return tensor.data_location() == onnx::TensorProto::EXTERNAL;
}

namespace {

/// The bytes of a payload in the mapped file.
struct Bytes {
  const uint8_t *data = nullptr;
  uint64_t size = 0;
  unsigned field = 0;
};

Bytes payloadOf(const Model &model, const onnx::TensorProto &tensor) {
  if (!tensor.has_segment())
    return {};
  const Payload &payload = model.scanned.payloads.at(uint64_t(tensor.segment().begin()));
  return {model.scanned.file.data() + payload.offset, payload.bytes, payload.field};
}

std::vector<int64_t> readVarints(const Bytes &bytes) {
  std::vector<int64_t> values;
  for (uint64_t i = 0; i < bytes.size;) {
    uint64_t value = 0;
    unsigned shift = 0;
    do {
      value |= shift < 64 ? uint64_t(bytes.data[i] & 0x7f) << shift : 0;
      shift += 7;
    } while (i < bytes.size && (bytes.data[i++] & 0x80) && i < bytes.size);
    values.push_back(int64_t(value));
  }
  return values;
}

/// Returns the integers of a typed field: integer elements, or the bits of 16-bit floats.
std::vector<int64_t> typedInts(const Model &model, const onnx::TensorProto &tensor) {
  Bytes bytes = payloadOf(model, tensor);
  if (bytes.data && (bytes.field == 5 || bytes.field == 7 || bytes.field == 11))
    return readVarints(bytes);
  if (tensor.int64_data_size() > 0)
    return {tensor.int64_data().begin(), tensor.int64_data().end()};
  if (tensor.uint64_data_size() > 0) // u32 and u64
    return {tensor.uint64_data().begin(), tensor.uint64_data().end()};
  return {tensor.int32_data().begin(), tensor.int32_data().end()};
}

std::vector<double> typedReals(const Model &model, const onnx::TensorProto &tensor, DType dtype) {
  if (dtype == DType::F32)
    return {tensor.float_data().begin(), tensor.float_data().end()};
  if (dtype == DType::F64)
    return {tensor.double_data().begin(), tensor.double_data().end()};
  std::vector<double> values;
  for (int64_t bits : typedInts(model, tensor))
    values.push_back(dtype == DType::BF16 ? kernels::decodeBF16(uint16_t(bits))
                                          : kernels::decodeF16(uint16_t(bits)));
  return values;
}

/// Returns the elements with the bits that the file has.
Known readElements(const Model &model, const onnx::TensorProto &tensor, const std::string &what) {
  DType dtype = dtypeOfOnnx(tensor.data_type(), what);
  Shape shape = shapeOfTensor(tensor);
  int64_t elements = kernels::numElements(shape);
  if (isExternal(tensor))
    throw ImportError(what + " is needed at import, but its data is in another file; store it "
                             "inside the model");
  if (elements > kMaxStoredElements)
    throw ImportError(what + " has " + std::to_string(elements) +
                      " elements, too many for a constant");
  auto requireCount = [&](size_t count) {
    if (int64_t(count) != elements)
      throw ImportError(what + " has data for " + std::to_string(count) + " elements, but shape " +
                        kernels::toString({dtype, shape}));
  };
  Bytes bytes = payloadOf(model, tensor);
  bool isRaw = bytes.data && (bytes.field == 9 || (bytes.field == 4 && dtype == DType::F32) ||
                              (bytes.field == 10 && dtype == DType::F64));
  if (isRaw) {
    if (bytes.size != uint64_t(elements * kernels::byteWidth(dtype)))
      throw ImportError(what + " has " + std::to_string(bytes.size) + " bytes of data for shape " +
                        kernels::toString({dtype, shape}));
    kernels::Tensor read =
        kernels::Tensor::fromBytes({dtype, shape}, kernels::Arith::F64, bytes.data);
    return kernels::isFloat(dtype) ? Known::ofReals(shape, read.data<double>())
                                   : Known::ofInts(shape, read.data<int64_t>());
  }
  if (kernels::isFloat(dtype)) {
    std::vector<double> reals = typedReals(model, tensor, dtype);
    requireCount(reals.size());
    return Known::ofReals(shape, std::move(reals));
  }
  std::vector<int64_t> ints = typedInts(model, tensor);
  requireCount(ints.size());
  for (int64_t &value : ints)
    value = kernels::wrapTo(dtype, value);
  return Known::ofInts(shape, std::move(ints));
}

} // namespace

Known readTensor(const Model &model, const onnx::TensorProto &tensor) {
  std::string what = "tensor '" + tensor.name() + "'";
  Known known = readElements(model, tensor, what);
  if (tensor.data_type() == onnx::TensorProto::UINT64)
    for (int64_t element : known.ints())
      if (element < 0)
        throw ImportError(what + " has the element " + std::to_string(uint64_t(element)) +
                          "; elements of u64 are computed as i64, so at most 2^63 - 1 is "
                          "supported");
  return known;
}

bool isGeneratedName(const std::string &name) {
  if (name.rfind("onnx::", 0) == 0)
    return true;
  // A word and a number: val_152, tensor_3, 417.
  size_t digits = name.find_last_not_of("0123456789");
  if (digits == std::string::npos)
    return true;
  if (digits + 1 == name.size() || name[digits] != '_')
    return false;
  std::string word = name.substr(0, digits);
  return word == "val" || word == "tensor" || word == "_" || word == "const" ||
         word == "initializer";
}

} // namespace tbc::frontend
