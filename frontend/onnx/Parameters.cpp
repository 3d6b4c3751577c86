//===- Parameters.cpp - Which initializers are parameters ------------------===//

#include "frontend/onnx/Parameters.h"

#include "frontend/onnx/ExternalData.h"
#include "frontend/onnx/ModulePath.h"
#include "frontend/onnx/Ties.h"
#include "frontend/onnx/Value.h"

#include <algorithm>
#include <deque>
#include <set>

namespace tbc::frontend {

namespace {

/// Who reads each value: (node, which of its inputs).
using Users = std::map<std::string, std::vector<std::pair<const GraphNode *, int>>>;

Users findUsers(const Model &model) {
  Users users;
  forEachNode(model.nodes, [&](const GraphNode &node) {
    for (int i = 0; i < node.proto->input_size(); ++i)
      if (!node.proto->input(i).empty())
        users[node.proto->input(i)].push_back({&node, i});
    // What a body hands on is used, whatever for.
    for (const Body &body : node.bodies)
      for (const std::string &output : body.outputs)
        users[output].push_back({&node, -1});
  });
  return users;
}

const std::vector<std::pair<const GraphNode *, int>> &usersOf(const Users &users,
                                                              const std::string &value) {
  static const std::vector<std::pair<const GraphNode *, int>> none;
  auto it = users.find(value);
  return it == users.end() ? none : it->second;
}

bool isRunningStatistic(const Users &users, const std::string &name) {
  const auto &list = usersOf(users, name);
  return !list.empty() && std::all_of(list.begin(), list.end(), [](const auto &use) {
    return use.first->proto->op_type() == "BatchNormalization" && use.second >= 3;
  });
}

/// Whether it only holds the angles that rotary ops read: cosines and sines by position.
bool isRotaryTable(const Users &users, const std::string &name) {
  const auto &list = usersOf(users, name);
  return !list.empty() && std::all_of(list.begin(), list.end(), [](const auto &use) {
    const onnx::NodeProto &node = *use.first->proto;
    bool isMicrosoft = node.domain() == "com.microsoft";
    if (node.op_type() == "RotaryEmbedding")
      return use.second == (isMicrosoft ? 2 : 1) || use.second == (isMicrosoft ? 3 : 2);
    return isMicrosoft && node.op_type() == "GroupQueryAttention" &&
           (use.second == 7 || use.second == 8);
  });
}

/// Whether a tensor says only what nodes do: Resize's region and scales, the values of OneHot.
bool isSetting(const Users &users, const std::string &name) {
  const auto &list = usersOf(users, name);
  return !list.empty() && std::all_of(list.begin(), list.end(), [](const auto &use) {
    const std::string &type = use.first->proto->op_type();
    return (type == "Resize" && use.second >= 1) || (type == "OneHot" && use.second == 2);
  });
}

/// Whether everything that depends on a tensor passes through Sin or Cos: rotary frequencies.
bool reachesOnlySinCos(const Model &model, const Users &users, const std::string &name) {
  // Frequencies take a handful of nodes; a weight reaches most of the graph, so stop early.
  constexpr size_t maxNodes = 32;
  std::set<std::string> outputs;
  for (const onnx::ValueInfoProto &output : model.graph().output())
    outputs.insert(output.name());
  std::deque<std::string> pending{name};
  std::set<std::string> seen{name};
  bool found = false;
  while (!pending.empty()) {
    std::string value = pending.front();
    pending.pop_front();
    if (outputs.count(value) || seen.size() > maxNodes)
      return false;
    for (const auto &[node, input] : usersOf(users, value)) {
      const std::string &type = node->proto->op_type();
      if (type == "Sin" || type == "Cos") {
        found = true;
        continue;
      }
      for (const std::string &output : node->proto->output())
        if (!output.empty() && seen.insert(output).second)
          pending.push_back(output);
    }
  }
  return found;
}

//===- display names -------------------------------------------------------===//

std::string displayName(const Users &users, const std::string &name) {
  if (!isGeneratedName(name))
    return name;
  for (const auto &[node, input] : usersOf(users, name)) {
    std::string path = modulePath(*node);
    if (path.empty())
      continue;
    const std::string &type = node->proto->op_type();
    bool isProduct = type == "MatMul" || type == "Gemm" || type == "Conv" || type == "Transpose" ||
                     type == "Einsum";
    return path + (isProduct       ? (input < 2 ? ".weight" : ".bias")
                   : type == "Add" ? ".bias"
                                   : "." + name);
  }
  return name;
}

/// Whether the exporter folded a transpose into it: the weight of a linear layer is stored as [out,
/// in], and MatMul reads [in, out] under a generated name.
bool isFoldedTranspose(const Users &users, const onnx::TensorProto &tensor) {
  const auto &list = usersOf(users, tensor.name());
  return tensor.dims_size() == 2 && isGeneratedName(tensor.name()) &&
         std::all_of(list.begin(), list.end(), [](const auto &use) {
           return use.first->proto->op_type() == "MatMul" && use.second == 1;
         });
}

//===- sources -------------------------------------------------------------===//

std::string folderOf(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

class Sources {
public:
  Sources(const Model &model, const ImportOptions &options)
      : model(model), folder(folderOf(model.path())), root(options.externalDataRoot),
        ledger(folder, root) {}

  /// Claims the external data of a tensor; nothing for a tensor inside the model.
  std::optional<ParameterSource> external(const onnx::TensorProto &tensor) {
    if (!isExternal(tensor))
      return std::nullopt;
    ParameterSource source = describe(tensor);
    std::vector<std::pair<std::string, std::string>> entries;
    for (const onnx::StringStringEntryProto &entry : tensor.external_data())
      entries.push_back({entry.key(), entry.value()});
    Result<ExternalRange> range = parseExternalData(tensor.name(), entries);
    if (!range)
      throw ImportError(range.error().message);
    Result<bool> present = ledger.claim(tensor.name(), *range, source.bytes);
    if (!present)
      throw ImportError(present.error().message);
    source.isExternal = true;
    source.location = range->location;
    source.file = folder + "/" + range->location;
    source.offset = range->offset;
    source.directory = folder;
    source.externalDataRoot = root;
    source.present = *present;
    return source;
  }

  ParameterSource inModel(const onnx::TensorProto &tensor) {
    ParameterSource source = describe(tensor);
    source.file = model.path();
    source.present = true;
    std::string what = "initializer '" + tensor.name() + "'";
    if (!tensor.has_segment())
      throw ImportError(what + (source.bytes == 0 ? " has no elements"
                                                  : " has no data, or data that is not packed"));
    const Payload &payload = model.scanned.payloads.at(uint64_t(tensor.segment().begin()));
    source.offset = int64_t(payload.offset);
    bool isRaw = payload.field == 9 || (payload.field == 4 && source.dtype == DType::F32) ||
                 (payload.field == 10 && source.dtype == DType::F64);
    bool isVarint = payload.field == 5 && kernels::byteWidth(source.dtype) == 2;
    if (!isRaw && !isVarint)
      throw ImportError(what + " has data in a field that is not for its element type");
    if (isRaw && int64_t(payload.bytes) != source.bytes)
      throw ImportError(what + " has " + std::to_string(payload.bytes) +
                        " bytes of data for shape " +
                        kernels::toString({source.dtype, source.shape}));
    if (isVarint) {
      source.encoding = ParameterSource::Encoding::Varint;
      const uint8_t *data = model.scanned.file.data() + payload.offset;
      int64_t count = std::count_if(data, data + payload.bytes, [](uint8_t b) { return b < 0x80; });
      if (count != kernels::numElements(source.shape))
        throw ImportError(what + " has data for " + std::to_string(count) + " elements");
      source.bytes = int64_t(payload.bytes);
    }
    return source;
  }

  void finish() {
    if (Status status = ledger.checkOverlaps(); !status)
      throw ImportError(status.error().message);
  }

private:
  ParameterSource describe(const onnx::TensorProto &tensor) {
    ParameterSource source;
    source.name = tensor.name();
    source.dtype = dtypeOfOnnx(tensor.data_type(), "initializer '" + tensor.name() + "'");
    source.shape = shapeOfTensor(tensor);
    source.bytes = kernels::numElements(source.shape) * kernels::byteWidth(source.dtype);
    return source;
  }

  const Model &model;
  std::string folder, root;
  ExternalLedger ledger;
};

enum class Role { Constant, Param, State };

Role roleOf(const Model &model, const Users &users, const onnx::TensorProto &tensor) {
  DType dtype = dtypeOfOnnx(tensor.data_type(), "initializer '" + tensor.name() + "'");
  if (!kernels::isFloat(dtype) || tensor.dims_size() == 0)
    return Role::Constant;
  if (isSetting(users, tensor.name()))
    return Role::Constant;
  if (isRunningStatistic(users, tensor.name()) || isRotaryTable(users, tensor.name()))
    return Role::State;
  if (kernels::numElements(shapeOfTensor(tensor)) == 1 && isGeneratedName(tensor.name()))
    return Role::Constant;
  if (reachesOnlySinCos(model, users, tensor.name()))
    return isExternal(tensor) ? Role::State : Role::Constant;
  return Role::Param;
}

} // namespace

Parameters findParameters(const Model &model, const ImportOptions &options) {
  Parameters result;
  Users users = findUsers(model);
  Sources sources(model, options);
  std::set<std::string> displayNames;
  for (const onnx::TensorProto *initializer : model.initializerOrder) {
    const onnx::TensorProto &tensor = *initializer;
    std::optional<ParameterSource> external = sources.external(tensor);
    if (usersOf(users, tensor.name()).empty()) {
      result.warnings.push_back("initializer '" + tensor.name() + "' is not used");
      continue;
    }
    Role role = roleOf(model, users, tensor);
    if (role == Role::Constant)
      continue;
    ParameterSource source = external ? *external : sources.inModel(tensor);
    source.isState = role == Role::State;
    source.displayName = displayName(users, tensor.name());
    source.isTransposed = isFoldedTranspose(users, tensor);
    if (!displayNames.insert(source.displayName).second) {
      source.displayName = tensor.name();
      displayNames.insert(source.displayName);
    }
    (source.isState ? result.states : result.params).push_back(source);
  }
  sources.finish();
  joinTies(result, options.ties);
  warnOfCopies(model, result);
  return result;
}

} // namespace tbc::frontend
