//===- TrainedModel.cpp - Write a checkpoint's weights into the model -------===//

#include "tools/driver/TrainedModel.h"

#include "frontend/onnx/ExternalData.h"
#include "frontend/onnx/Identity.h"
#include "frontend/onnx/Merged.h"
#include "frontend/onnx/Parameters.h"
#include "runtime/comm/Wire.h"

#include <filesystem>
#include <functional>
#include <optional>

namespace tbc::driver {

using checkpoint::Checkpoint;
using checkpoint::StoredTensor;
using frontend::Model;
using frontend::ParameterSource;
using kernels::Arith;
using kernels::Shape;
using kernels::Tensor;
using onnx::TensorProto;

static Error refused(const std::string &name, const std::string &why) {
  return {ErrorCode::Usage, "\"" + name + "\": " + why};
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// Returns the linear indices, in a tensor of shape `outer`, of its corner of shape `inner`.
/// Example: inner [2, 2] in outer [3, 4] gives 0, 1, 4, 5.
static std::vector<int64_t> cornerOf(const Shape &inner, const Shape &outer) {
  std::vector<int64_t> indices(size_t(kernels::numElements(inner)));
  for (size_t i = 0; i < indices.size(); ++i) {
    int64_t rest = int64_t(i), stride = 1;
    for (size_t d = inner.size(); d-- > 0;) {
      indices[i] += rest % inner[d] * stride;
      rest /= inner[d];
      stride *= outer[d];
    }
  }
  return indices;
}

static const StoredTensor *find(const Checkpoint &checkpoint, const std::string &name) {
  for (const StoredTensor &tensor : checkpoint.tensors())
    if (tensor.name == name)
      return &tensor;
  return nullptr;
}

Result<Tensor> weightOf(Checkpoint &checkpoint, const ParameterSource &source) {
  const StoredTensor *stored = find(checkpoint, source.name + ".master");
  if (!stored)
    stored = find(checkpoint, source.name);
  if (!stored && source.isState)
    return Tensor();
  if (!stored)
    return refused(source.name, "the checkpoint does not have it; was another model trained, or is "
                                "it the same as another parameter (--tie A=B)?");
  const Shape &outer = stored->type.shape;
  bool fits = outer.size() == source.shape.size();
  for (size_t d = 0; fits && d < outer.size(); ++d)
    fits = source.shape[d] <= outer[d];
  if (!fits)
    return refused(source.name,
                   "the checkpoint has a " + toString(stored->type) + ", the model a " +
                       kernels::toString(kernels::TensorType{source.dtype, source.shape}) +
                       "; another model was trained");
  Result<Tensor> piece = checkpoint.piece(stored->name, stored->type, cornerOf(source.shape, outer),
                                          {stored->type.dtype, source.shape});
  if (!piece || !kernels::isFloat(source.dtype))
    return piece;
  return Tensor::fromDoubles({source.dtype, source.shape}, Arith::Native, piece->toDoubles());
}

Tensor transposed(const Tensor &tensor, const Shape &shape) {
  std::vector<double> from = tensor.toDoubles(), to(from.size());
  for (size_t i = 0; i < to.size(); ++i)
    to[i] = from[i % size_t(shape[1]) * size_t(shape[0]) + i / size_t(shape[1])];
  return Tensor::fromDoubles({tensor.dtype(), shape}, Arith::Native, to);
}

/// Returns the new contents of initializers, by name.
static Result<std::map<std::string, Tensor>>
weights(const Model &model, const frontend::Parameters &parameters, Checkpoint &checkpoint) {
  std::map<std::string, Tensor> weights;
  for (const std::vector<ParameterSource> *list : {&parameters.params, &parameters.states})
    for (const ParameterSource &source : *list) {
      if (model.bodyInitializers.count(source.name))
        return refused(source.name, "it is an initializer of a graph inside a node; consolidate to "
                                    "a safetensors file");
      Result<Tensor> weight = weightOf(checkpoint, source);
      if (!weight)
        return weight.error();
      if (*weight)
        weights[source.name] = std::move(*weight);
    }
  for (const frontend::Tie &tie : parameters.ties) {
    auto source = weights.find(tie.source);
    auto initializer = model.initializers.find(tie.name);
    if (source == weights.end() || initializer == model.initializers.end())
      continue;
    weights[tie.name] =
        tie.isTransposed ? transposed(source->second, frontend::shapeOfTensor(*initializer->second))
                         : source->second;
  }
  return weights;
}

//===----------------------------------------------------------------------===//
// The model
//===----------------------------------------------------------------------===//

using Visit = std::function<void(TensorProto &)>;

static void forEachTensor(onnx::GraphProto &graph, const Visit &visit);

static void forEachTensor(onnx::SparseTensorProto &sparse, const Visit &visit) {
  visit(*sparse.mutable_values());
  visit(*sparse.mutable_indices());
}

static void forEachTensor(onnx::NodeProto &node, const Visit &visit) {
  for (onnx::AttributeProto &attribute : *node.mutable_attribute()) {
    if (attribute.has_t())
      visit(*attribute.mutable_t());
    for (TensorProto &tensor : *attribute.mutable_tensors())
      visit(tensor);
    if (attribute.has_sparse_tensor())
      forEachTensor(*attribute.mutable_sparse_tensor(), visit);
    for (onnx::SparseTensorProto &sparse : *attribute.mutable_sparse_tensors())
      forEachTensor(sparse, visit);
    if (attribute.has_g())
      forEachTensor(*attribute.mutable_g(), visit);
    for (onnx::GraphProto &graph : *attribute.mutable_graphs())
      forEachTensor(graph, visit);
  }
}

static void forEachTensor(onnx::GraphProto &graph, const Visit &visit) {
  for (TensorProto &tensor : *graph.mutable_initializer())
    visit(tensor);
  for (onnx::SparseTensorProto &sparse : *graph.mutable_sparse_initializer())
    forEachTensor(sparse, visit);
  for (onnx::NodeProto &node : *graph.mutable_node())
    forEachTensor(node, visit);
}

static void forEachTensor(onnx::ModelProto &model, const Visit &visit) {
  forEachTensor(*model.mutable_graph(), visit);
  for (onnx::FunctionProto &function : *model.mutable_functions())
    for (onnx::NodeProto &node : *function.mutable_node())
      forEachTensor(node, visit);
}

/// Restores the data skipped by the scan: a bytes field on the wire, for every type.
static bool restore(TensorProto &tensor, const frontend::ScannedModel &scanned) {
  const frontend::Payload &payload = scanned.payloads.at(uint64_t(tensor.segment().begin()));
  tensor.clear_segment();
  std::string wire;
  auto varint = [&](uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      wire += char(value | 0x80);
    wire += char(value);
  };
  constexpr unsigned lengthDelimited = 2;
  varint(payload.field << 3 | lengthDelimited);
  varint(payload.bytes);
  wire.append(reinterpret_cast<const char *>(scanned.file.data()) + payload.offset, payload.bytes);
  return tensor.MergeFromString(wire);
}

/// Moves the data of a constant from an external file into the model.
static Status embed(TensorProto &tensor, const std::string &modelPath,
                    const std::string &externalDataRoot) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const auto &entry : tensor.external_data())
    entries.emplace_back(entry.key(), entry.value());
  auto range = frontend::parseExternalData(tensor.name(), entries);
  if (!range)
    return range.error();
  std::string directory = std::filesystem::path(modelPath).parent_path().string();
  auto file = frontend::openExternal(tensor.name(), directory, range->location, externalDataRoot);
  if (!file)
    return file.error();
  if (!*file)
    return Error{ErrorCode::ModelRejected, "the data of \"" + tensor.name() + "\" is in " +
                                               range->location + ", which is not there"};
  uint64_t offset = uint64_t(range->offset), size = (*file)->size();
  uint64_t bytes = range->length >= 0 ? uint64_t(range->length) : size - std::min(offset, size);
  if (offset > size || bytes > size - offset)
    return Error{ErrorCode::ModelRejected,
                 "the data of \"" + tensor.name() + "\" lies beyond the end of " + range->location};
  tensor.clear_external_data();
  tensor.clear_data_location();
  tensor.set_raw_data((*file)->data() + offset, bytes);
  return Status::ok();
}

/// Replaces the data of `tensor`. With `external`, stores it in that file and refers to it.
static void setData(TensorProto &tensor, const std::vector<unsigned char> &bytes,
                    TrainedModel *external, const std::string &dataName) {
  tensor.clear_segment();
  tensor.clear_external_data();
  tensor.clear_data_location();
  for (auto clear : {&TensorProto::clear_raw_data, &TensorProto::clear_float_data,
                     &TensorProto::clear_double_data, &TensorProto::clear_int32_data,
                     &TensorProto::clear_int64_data, &TensorProto::clear_uint64_data})
    (tensor.*clear)();
  if (!external) {
    tensor.set_raw_data(bytes.data(), bytes.size());
    return;
  }
  auto entry = [&](const std::string &key, const std::string &value) {
    auto *added = tensor.add_external_data();
    added->set_key(key);
    added->set_value(value);
  };
  entry("location", dataName);
  entry("offset", std::to_string(external->data.size()));
  entry("length", std::to_string(bytes.size()));
  tensor.set_data_location(TensorProto::EXTERNAL);
  external->data.append(bytes.begin(), bytes.end());
}

Result<TrainedModel> trainedModel(const std::string &modelPath,
                                  const frontend::ImportOptions &options, Checkpoint &checkpoint,
                                  const std::string &dataName, int64_t inlineBytes) {
  if (kernels::isModular(checkpoint.arith()))
    return Error{ErrorCode::Usage, "the checkpoint was computed in residues, which are no weights"};
  auto model = frontend::loadModel(modelPath);
  if (!model)
    return model.error();
  const std::string &trainedOf = checkpoint.progress().model;
  if (!trainedOf.empty() && trainedOf != frontend::identityOf(**model))
    return Error{ErrorCode::Usage, modelPath + " is not the model that the checkpoint is of: their "
                                               "graphs or the shapes of their initializers differ"};
  try {
    frontend::splitMerged(**model, options);
    frontend::Parameters parameters = frontend::findParameters(**model, options);
    Result<std::map<std::string, Tensor>> found = weights(**model, parameters, checkpoint);
    if (!found)
      return found.error();
    int64_t bytes = 0;
    for (const auto &[name, tensor] : *found)
      bytes += tensor.numElements() * kernels::byteWidth(tensor.dtype());

    TrainedModel trained;
    onnx::ModelProto proto = *(*model)->proto;
    for (TensorProto &tensor : *proto.mutable_graph()->mutable_initializer())
      if (auto weight = found->find(tensor.name()); weight != found->end())
        setData(tensor, comm::encode(weight->second), bytes > inlineBytes ? &trained : nullptr,
                dataName);
    Status status = Status::ok();
    forEachTensor(proto, [&](TensorProto &tensor) {
      bool isNew = found->count(tensor.name()) && !tensor.has_segment();
      if (!status || isNew)
        return;
      if (tensor.has_segment() && !restore(tensor, (*model)->scanned))
        status = Error{ErrorCode::ModelRejected,
                       modelPath + ": the data of \"" + tensor.name() + "\" is malformed"};
      else if (tensor.data_location() == TensorProto::EXTERNAL)
        status = embed(tensor, modelPath, options.externalDataRoot);
    });
    if (!status)
      return status.error();
    if (proto.ByteSizeLong() > size_t(INT32_MAX) || !proto.SerializeToString(&trained.model))
      return Error{ErrorCode::Other, "the model takes more than 2 GiB without its weights"};
    return trained;
  } catch (const frontend::ImportError &error) {
    return Error{ErrorCode::ModelRejected, modelPath + ": " + error.what()};
  }
}

} // namespace tbc::driver
