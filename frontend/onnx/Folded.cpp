//===- Folded.cpp - What an exporter has made of parameters ----------------===//

#include "frontend/onnx/Folded.h"

#include "frontend/onnx/Elements.h"
#include "frontend/onnx/ModulePath.h"
#include "frontend/onnx/Roles.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <set>

namespace tbc::frontend {

std::pair<std::string, std::string> splitName(const std::string &name) {
  size_t length = name.rfind('.') + 1;
  return {name.substr(0, length), name.substr(length)};
}

bool isNormTensor(const std::string &own) {
  return own == "running_mean" || own == "running_var" || own == "weight" || own == "bias";
}

/// "slice_4" without its number: the PyTorch op whose result has that name.
static llvm::StringRef opOfName(llvm::StringRef name) {
  llvm::StringRef stem = name.rtrim("0123456789");
  return stem.size() < name.size() && stem.ends_with("_") ? stem.drop_back() : name;
}

/// Whether an op of this name only moves elements. "val" is the exporter's own: transposes of
/// weights and constants of shapes.
static bool isMovement(llvm::StringRef op) {
  static const llvm::StringSet<> ops{"_to_copy",  "_unsafe_view", "alias",
                                     "chunk",     "clone",        "convert_element_type_default",
                                     "detach",    "embedding",    "flatten",
                                     "flip",      "getitem",      "movedim",
                                     "narrow",    "permute",      "reshape",
                                     "roll",      "select",       "slice",
                                     "split",     "squeeze",      "t",
                                     "to",        "unbind",       "split_with_sizes",
                                     "val",       "transpose",    "unflatten",
                                     "unsqueeze", "view"};
  return ops.contains(op);
}

bool isMovedName(const std::string &name) { return isMovement(opOfName(name)); }

/// Whether the exporter computed `name` from its one parameter by arithmetic, so that training it
/// is not training the parameter. A sum with a constant is: d/dw of 1 + w is 1. Example: "exp"
/// from ["scale"] is arithmetic, "val_7" from ["fc.weight"] a transpose, and "add_3" from
/// ["norm.weight", "val_5"] a sum. A "getitem" is a part of a split, with a value for its sizes, or
/// of the results of a function, with a value for each of its steps: 22 in a batch norm.
bool RoleFinder::isArithmetic(const std::string &name, const Record &record,
                              bool isSourceThere) const {
  std::vector<std::string> values = record.foldedFrom;
  values.push_back(name);
  constexpr size_t mostOfSplits = 8;
  size_t sums = 0, steps = 0;
  bool isItem = false;
  for (const std::string &value : values) {
    const Record *tensor = recordOf(value);
    llvm::StringRef op = opOfName(value);
    steps += op == "val";
    isItem |= op == "getitem";
    if ((tensor && !tensor->kind.empty()) || isMovement(op))
      continue;
    bool isSum = op == "add" || op == "sub" || op == "rsub";
    if (!isSum || isSourceThere || ++sums > 1)
      return true;
  }
  return isItem && steps > mostOfSplits;
}

/// Returns the tensors of the module that initializers stand for: those of their names, and those
/// that they were computed from.
std::set<std::string> RoleFinder::presentTensors() const {
  std::set<std::string> present;
  for (const auto &[name, tensor] : model.initializers)
    present.insert(name);
  for (const auto &[name, record] : records)
    if (model.initializers.count(name))
      present.insert(record.foldedFrom.begin(), record.foldedFrom.end());
  return present;
}

/// Returns the weights and biases of batch norms of which the file has no tensor: the exporter
/// merged them with the layer before. Example: "bn.weight" and "bn.bias", where "bn.running_mean"
/// is a buffer of the module, and no initializer stands for any of them.
std::set<std::string> RoleFinder::mergedNorms() const {
  const std::set<std::string> present = presentTensors();
  std::set<std::string> merged;
  for (const auto &[name, record] : records) {
    auto [module, own] = splitName(name);
    const Record *mean = recordOf(module + "running_mean");
    if (record.kind == "PARAMETER" && isNormTensor(own) && mean && mean->kind == "BUFFER" &&
        !present.count(name) && !present.count(module + "running_mean"))
      merged.insert(name);
  }
  return merged;
}

/// Returns the biases that the signature lists and the file has no addition of, though their weight
/// is there. The exporter's optimizer leaves out additions of zeros, as all biases of a fresh layer
/// are. Example: "fc.bias" beside "fc.weight", where the nodes of `fc` are a MatMul. A bias that
/// lies in the file under another name, such as one that the exporter stored once for several
/// modules, is read by a node of its module.
std::set<std::string> RoleFinder::droppedBiases() const {
  const std::set<std::string> present = presentTensors();
  std::set<std::string> modules, biased; // with nodes; with a node that reads a term
  forEachNode(model.nodes, [&](const GraphNode &node) { modules.insert(modulePath(node)); });
  for (const auto &[name, tensor] : model.initializers) {
    if (!kernels::isFloat(dtypeOfOnnx(tensor->data_type(), "initializer '" + name + "'")))
      continue; // such as the axes of a Slice
    for (const Use &use : users.of(name)) {
      const std::string &type = use.node->proto->op_type();
      if (type == "Add" || type == "Sub" || type == "Sum" || use.input > 1)
        biased.insert(modulePath(*use.node));
    }
  }
  std::set<std::string> dropped;
  for (const auto &[name, record] : records) {
    auto [module, own] = splitName(name);
    const size_t at = own.find("bias");
    if (record.kind != "PARAMETER" || present.count(name) || at == std::string::npos)
      continue;
    std::string weight = own;
    weight.replace(at, 4, "weight"); // "in_proj_bias" goes with "in_proj_weight"
    const std::string path = module.substr(0, module.empty() ? 0 : module.size() - 1);
    if (present.count(module + weight) && modules.count(path) && !biased.count(path))
      dropped.insert(name);
  }
  return dropped;
}

/// Returns the parameters that the exporter cast to bf16 or f16 when it wrote them, by that type.
/// The file then has no cast, and the parameter itself only where other layers read it. PyTorch
/// writes a cast only where the type changes, so each of these has another type in the module.
/// Example: under torch.autocast, "val_4" of bf16 from ["_to_copy_1", "fc.weight"]. With a second
/// cast the type of the module's tensor is open: a bf16 weight may be widened and rounded again.
std::map<kernels::DType, std::set<std::string>> RoleFinder::roundedParameters() const {
  static const llvm::StringSet<> casts{"_to_copy", "convert_element_type_default", "to"};
  auto isCast = [](const std::string &value) { return casts.contains(opOfName(value)); };
  std::map<kernels::DType, std::set<std::string>> rounded;
  for (const auto &[name, record] : records) {
    auto own = model.initializers.find(name);
    const auto count = std::count_if(record.foldedFrom.begin(), record.foldedFrom.end(), isCast);
    if (own == model.initializers.end() || count + isCast(name) != 1)
      continue;
    const auto type = dtypeOfOnnx(own->second->data_type(), "initializer '" + name + "'");
    if (type != kernels::DType::BF16 && type != kernels::DType::F16)
      continue;
    for (const std::string &source : record.foldedFrom) {
      const Record *from = recordOf(source);
      if (from && from->kind == "PARAMETER")
        rounded[type].insert(source);
    }
  }
  return rounded;
}

/// Whether `own` is a weight or bias of nn.RNN, nn.LSTM or nn.GRU. Examples: "weight_hh_l0",
/// "bias_ih_l1_reverse".
static bool isRecurrentTensor(llvm::StringRef own) {
  own.consume_back("_reverse");
  llvm::StringRef stem = own.rtrim("0123456789");
  static const llvm::StringSet<> stems{"weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"};
  return stem.size() < own.size() && stems.contains(stem);
}

/// Whether `name` holds the weights of a recurrence. The exporter orders the gates as ONNX has them
/// and puts directions and biases side by side, so training it is training the module's tensors.
bool RoleFinder::isOfRecurrence(const std::string &name, const Record &record) const {
  static const llvm::StringSet<> recurrences{"GRU", "LSTM", "RNN"};
  const std::vector<Use> &list = users.of(name);
  auto isRead = [](const Use &use) { return recurrences.contains(use.node->proto->op_type()); };
  auto isForeign = [&](const std::string &source) {
    const Record *from = recordOf(source);
    return from && from->kind == "PARAMETER" && !isRecurrentTensor(splitName(source).second);
  };
  return !list.empty() && std::all_of(list.begin(), list.end(), isRead) &&
         std::none_of(record.foldedFrom.begin(), record.foldedFrom.end(), isForeign);
}

std::vector<std::pair<std::string, std::string>> RoleFinder::copies() const {
  constexpr int64_t mostMerged = 1024; // elements of equal tensors that exporters store once
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto &[name, record] : records) {
    auto own = model.initializers.find(name);
    if (own == model.initializers.end() || record.foldedFrom.size() != 1 || !isMovedName(name))
      continue;
    const std::string &source = record.foldedFrom[0];
    const Record *from = recordOf(source);
    if (from && from->kind == "PARAMETER" && model.initializers.count(source) &&
        kernels::numElements(shapeOfTensor(*own->second)) > mostMerged)
      found.emplace_back(name, source);
  }
  return found;
}

std::map<std::string, std::vector<RoleFinder::Part>> RoleFinder::parts() const {
  static const llvm::StringSet<> transposes{"permute", "t", "transpose", "val"};
  std::map<std::string, std::vector<Part>> found;
  for (const auto &[name, record] : records) {
    std::vector<std::string> sources;
    for (const std::string &source : record.foldedFrom)
      if (const Record *from = recordOf(source); from && from->kind == "PARAMETER")
        sources.push_back(source);
    if (model.initializers.count(name) && sources.size() == 1 &&
        !model.initializers.count(sources[0]) &&
        !isArithmetic(name, record, /*isSourceThere=*/false) && !isOfRecurrence(name, record))
      found[sources[0]].push_back(
          {name, record.foldedFrom.size() == 1 && transposes.contains(opOfName(name))});
  }
  for (auto it = found.begin(); it != found.end();)
    it = it->second.size() > 1 ? std::next(it) : found.erase(it);
  return found;
}

std::vector<std::string> RoleFinder::warnings() const {
  std::set<std::string> joined, computed, dropped;
  if (isComplete) {
    joined = mergedNorms();
    dropped = droppedBiases();
    for (const std::string &name : joined)
      dropped.erase(name);
  }
  for (const auto &[name, record] : records) {
    auto own = model.initializers.find(name);
    if (own == model.initializers.end() || !isComplete || isOfRecurrence(name, record))
      continue;
    std::vector<std::string> gone;
    std::string last;
    size_t sources = 0;
    bool isThere = false, isResized = false;
    for (const std::string &source : record.foldedFrom) {
      const Record *from = recordOf(source);
      if (!from || from->kind != "PARAMETER")
        continue;
      ++sources;
      last = source;
      auto still = model.initializers.find(source);
      if (still == model.initializers.end()) {
        gone.push_back(source);
        continue;
      }
      isThere = true;
      if (kernels::numElements(shapeOfTensor(*still->second)) !=
          kernels::numElements(shapeOfTensor(*own->second))) {
        isResized = true;
        computed.insert(source);
      }
    }
    if (sources > 1)
      joined.insert(gone.begin(), gone.end());
    if (sources == 1 && !isResized && isArithmetic(name, record, isThere))
      computed.insert(last);
  }
  std::vector<std::string> result;
  auto warn = [&](const std::set<std::string> &names, const char *what) {
    if (!names.empty())
      result.push_back("the exporter has " + std::string(what) + " " +
                       std::to_string(names.size()) +
                       (names.size() > 1 ? " parameters" : " parameter") + " of the module ('" +
                       *names.begin() + (names.size() > 1 ? "' and others" : "'") +
                       "), so training differs from the module's; torch.onnx.export(..., "
                       "optimize=False) keeps the ops");
  };
  if (!dropped.empty())
    result.push_back("the exporter has dropped " + std::to_string(dropped.size()) +
                     (dropped.size() > 1 ? " biases" : " bias") + " of the module ('" +
                     *dropped.begin() + (dropped.size() > 1 ? "' and others" : "'") +
                     "), because they are zeros now, so training differs from the module's; "
                     "torch.onnx.export(..., optimize=False) keeps them");
  if (isComplete)
    for (const auto &[type, names] : roundedParameters())
      result.push_back("the exporter has stored " + std::to_string(names.size()) +
                       (names.size() > 1 ? " parameters" : " parameter") + " of the module ('" +
                       *names.begin() + (names.size() > 1 ? "' and others" : "'") + ") in " +
                       std::string(kernels::name(type)) +
                       ", to which the model casts them, as torch.autocast does; tbc trains the "
                       "rounded ones, so training differs from the module's; "
                       "torch.onnx.export(..., optimize=False) keeps the casts");
  warn(joined, "folded into each other");
  warn(computed, "computed tensors, through which no gradient passes, from");
  if (!computedByTracer.empty())
    result.push_back(
        "the exporter has computed " + std::to_string(computedByTracer.size()) +
        (computedByTracer.size() > 1 ? " tensors" : " tensor") + " ('" + *computedByTracer.begin() +
        (computedByTracer.size() > 1 ? "' and others" : "'") +
        ") from others of the module. Where these are parameters, training differs from the "
        "module's: batch norms merged into convolutions, a softmax or exponential of a weight; "
        "torch.onnx.export(..., do_constant_folding=False, "
        "training=torch.onnx.TrainingMode.PRESERVE) keeps the ops");
  if (model.proto->producer_name() == "tf2onnx")
    result.push_back("tf2onnx has written the graph of inference: batch norms are parts of the "
                     "layers before them or fixed arithmetic, and dropout is left out, so "
                     "training differs from the TensorFlow model's");
  return result;
}

} // namespace tbc::frontend
