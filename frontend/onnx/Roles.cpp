//===- Roles.cpp - Decide the roles of initializers ------------------------===//

#include "frontend/onnx/Roles.h"

#include "frontend/onnx/Elements.h"
#include "frontend/onnx/Folded.h"
#include "frontend/onnx/ModulePath.h"
#include "frontend/onnx/Sources.h"
#include "frontend/onnx/Suggest.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/GlobPattern.h"

#include <algorithm>
#include <deque>
#include <set>

namespace tbc::frontend {

const char *describe(Evidence evidence) {
  switch (evidence) {
  case Evidence::Option:
    return "named by an option";
  case Evidence::NotTrainable:
    return "no tensor of floats";
  case Evidence::Setting:
    return "a setting of the op that reads it";
  case Evidence::RunningStatistic:
    return "running statistics of a norm";
  case Evidence::RotaryAngles:
    return "angles of a rotary embedding";
  case Evidence::OnlySinCos:
    return "read by sin and cos alone";
  case Evidence::Declared:
    return "declared by the exporter";
  case Evidence::Computed:
    return "computed by the exporter from no parameter";
  case Evidence::FrozenNorm:
    return "a buffer of a frozen batch norm";
  case Evidence::Reader:
    return "read as a weight";
  case Evidence::Scaffold:
    return "the exporter's own scale of a norm that has another";
  case Evidence::Mask:
    return "0 and very negative numbers: a mask";
  case Evidence::HidingNumber:
    return "so negative that it hides scores";
  case Evidence::Epsilon:
    return "a small number that is only added: an epsilon";
  case Evidence::Sinusoids:
    return "sines and cosines of positions";
  case Evidence::GeneratedName:
    return "a name of the exporter's own, and no reader that takes weights";
  case Evidence::NoGradient:
    return "no gradient reaches it";
  case Evidence::Default:
    return "nothing speaks against a parameter";
  }
  return "";
}

namespace {

//===- readers that take no weights ----------------------------------------===//

template <typename Predicate>
bool allReads(const Users &users, const std::string &name, Predicate holds) {
  const std::vector<Use> &list = users.of(name);
  return !list.empty() && std::all_of(list.begin(), list.end(), [&](const Use &use) {
    return holds(*use.node->proto, use.input);
  });
}

bool isRunningStatistic(const Users &users, const std::string &name) {
  return allReads(users, name, [](const onnx::NodeProto &node, int input) {
    return node.op_type() == "BatchNormalization" && input >= 3;
  });
}

/// Whether all readers are rotary ops, with cosines and sines by position.
bool isRotaryTable(const Users &users, const std::string &name) {
  return allReads(users, name, [](const onnx::NodeProto &node, int input) {
    bool isMicrosoft = node.domain() == "com.microsoft";
    if (node.op_type() == "RotaryEmbedding")
      return input == (isMicrosoft ? 2 : 1) || input == (isMicrosoft ? 3 : 2);
    return isMicrosoft && node.op_type() == "GroupQueryAttention" && (input == 7 || input == 8);
  });
}

/// Whether a tensor only configures nodes. Example: Resize's region and scales, the values of
/// OneHot, the window of STFT, the weights of classes in a loss.
bool isSetting(const Users &users, const std::string &name) {
  return allReads(users, name, [](const onnx::NodeProto &node, int input) {
    const std::string &type = node.op_type();
    return ((type == "Resize" || type == "Upsample") && input >= 1) ||
           ((type == "OneHot" || type == "STFT" || type == "SoftmaxCrossEntropyLoss" ||
             type == "NegativeLogLikelihoodLoss") &&
            input == 2) ||
           ((type == "Pad" || type == "Dropout") && input >= 1) || type == "Range" ||
           type == "MelWeightMatrix";
  });
}

/// Whether all readers add a number, or bound another one by it.
bool isOnlyAdded(const Users &users, const std::string &name) {
  return allReads(users, name, [](const onnx::NodeProto &node, int input) {
    const std::string &type = node.op_type();
    return type == "Add" || type == "Max" || (type == "Clip" && input >= 1);
  });
}

/// Whether every path from a tensor passes through Sin or Cos: rotary frequencies.
bool reachesOnlySinCos(const Users &users, const std::string &name) {
  // Frequencies reach few nodes, a weight most of the graph; so the search stops early.
  constexpr size_t maxNodes = 32;
  std::deque<std::string> pending{name};
  std::set<std::string> seen{name};
  bool found = false;
  while (!pending.empty()) {
    std::string value = pending.front();
    pending.pop_front();
    if (users.isOutput(value) || seen.size() > maxNodes)
      return false;
    for (const Use &use : users.of(value)) {
      const std::string &type = use.node->proto->op_type();
      if (type == "Sin" || type == "Cos") {
        found = true;
        continue;
      }
      for (const std::string &output : use.node->proto->output())
        if (!output.empty() && seen.insert(output).second)
          pending.push_back(output);
    }
  }
  return found;
}

/// Whether its reader is a norm with a separate scale on its result. Exporters write a group norm
/// as an instance norm with ones and zeros, and scale the result.
bool isScaffold(const Users &users, const std::vector<Use> &reads) {
  return !reads.empty() && std::all_of(reads.begin(), reads.end(), [&](const Use &use) {
    if (use.node->proto->op_type() != "InstanceNormalization" || use.input < 1)
      return false;
    auto next = users.readsOf(use.node->proto->output(0));
    return next && next->size() == 1 && (*next)[0].node->proto->op_type() == "Mul" &&
           users.of(use.node->proto->output(0))[0].node != (*next)[0].node;
  });
}

//===- names ---------------------------------------------------------------===//

bool endsWith(const std::string &text, const std::string &end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// Whether the name is usual for parameters. Example: "fc1.weight".
bool isWeightName(const std::string &name) {
  return endsWith(name, ".weight") || endsWith(name, ".bias");
}

} // namespace

std::string displayNameOf(const Model &model, const Users &users, const std::string &name) {
  if (!isGeneratedName(name))
    return name;
  auto shape =
      model.initializers.count(name) ? shapeOfTensor(*model.initializers.at(name)) : Shape();
  for (const Use &use : users.of(name)) {
    std::string path = modulePath(*use.node);
    if (path.empty())
      continue;
    const std::string &type = use.node->proto->op_type();
    bool isProduct = type == "MatMul" || type == "Gemm" || type == "Conv" || type == "Transpose" ||
                     type == "Einsum" || users.kindOf(use, shape) == UseKind::Affine;
    return path + (isProduct       ? (use.input < 2 ? ".weight" : ".bias")
                   : type == "Add" ? ".bias"
                                   : "." + name);
  }
  return name;
}

//===- decisions -----------------------------------------------------------===//

RoleFinder::RoleFinder(const Model &model, const Users &users, const ImportOptions &options)
    : model(model), users(users) {
  auto read = [&](const std::string &name, const auto &entries) {
    for (const onnx::StringStringEntryProto &entry : entries) {
      if (entry.key() == kInputKindKey)
        records[name].kind = entry.value();
      else if (entry.key() == kFoldedFromKey)
        records[name].foldedFrom = listedStrings(entry.value());
    }
  };
  for (const onnx::ValueInfoProto &info : model.graph().value_info())
    read(info.name(), info.metadata_props());
  for (const onnx::TensorProto &tensor : model.graph().initializer())
    read(tensor.name(), tensor.metadata_props());
  readSignature();
  for (const auto &[name, whole] : model.splitFrom)
    if (auto it = records.find(whole); it != records.end())
      records[name] = it->second;
  for (const std::string &text : options.constants)
    constants.push_back({"--constant", text});
  for (const std::string &text : options.parameters)
    parameters.push_back({"--parameter", text});
}

/// Reads the kinds of all tensors of the module, also of those that the exporter has folded away.
/// Example line: "b_fc_mask: BUFFER target='fc.mask' persistent=True".
void RoleFinder::readSignature() {
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(model.scanned.signature).split(lines, '\n');
  for (llvm::StringRef line : lines) {
    auto [kind, rest] = line.split(": ").second.split(" target='");
    llvm::StringRef name = rest.split('\'').first;
    if (name.empty() || (kind != "PARAMETER" && kind != "BUFFER" && kind != "CONSTANT_TENSOR"))
      continue;
    isComplete = true;
    if (std::string &known = records[name.str()].kind; known.empty())
      known = kind.str();
  }
}

bool RoleFinder::matches(std::vector<Glob> &globs, const ParameterSource &source) {
  bool isMatched = false;
  for (Glob &glob : globs) {
    llvm::Expected<llvm::GlobPattern> pattern = llvm::GlobPattern::create(glob.text);
    if (!pattern)
      throw UsageError(glob.flag + ": the glob '" + glob.text +
                       "' is malformed: " + llvm::toString(pattern.takeError()));
    if (pattern->match(source.name) || pattern->match(source.displayName))
      isMatched = glob.isMatched = true;
  }
  return isMatched;
}

std::string RoleFinder::displayName(const std::string &name) const {
  std::string shown = displayNameOf(model, users, name);
  const Record *record = recordOf(name);
  if (shown != name || !record || record->foldedFrom.size() != 1)
    return shown;
  const std::string &source = record->foldedFrom[0];
  bool isRearranged =
      hasParameter(record->foldedFrom) && isMovedName(name) && !model.initializers.count(source);
  return isGeneratedName(name) || isRearranged ? source : shown;
}

void RoleFinder::requireAllMatched() const {
  for (const std::vector<Glob> *globs : {&constants, &parameters})
    for (const Glob &glob : *globs)
      if (!glob.isMatched) {
        std::vector<std::string> names;
        for (const auto &[name, tensor] : model.initializers) {
          names.push_back(name);
          names.push_back(displayName(name));
        }
        throw UsageError(glob.flag + ": the model has no float tensor '" + glob.text + "'" +
                         suggestion(glob.text, names));
      }
}

const RoleFinder::Record *RoleFinder::recordOf(const std::string &name) const {
  auto it = records.find(name);
  return it == records.end() ? nullptr : &it->second;
}

/// Whether the exporter computed a tensor from the buffers of frozen batch norms alone. Arithmetic
/// on running statistics is that of a frozen norm. The exporter lists them together with its own
/// values between, which have no module. Example: ["add_9", "bn1.running_var", "bn1.weight",
/// "rsqrt"], for weight / sqrt(running_var + epsilon).
static bool isFoldedFrozenNorm(const std::vector<std::string> &names) {
  std::set<std::string> norms;
  for (const std::string &name : names)
    if (auto [module, own] = splitName(name); own == "running_mean" || own == "running_var")
      norms.insert(module);
  return !norms.empty() && std::all_of(names.begin(), names.end(), [&](const std::string &name) {
    auto [module, own] = splitName(name);
    return module.empty() || (norms.count(module) && isNormTensor(own));
  });
}

/// Whether one of these values is a parameter of the module, as the file declares it.
bool RoleFinder::hasParameter(const std::vector<std::string> &names) const {
  return std::any_of(names.begin(), names.end(), [&](const std::string &name) {
    const Record *record = recordOf(name);
    return record && record->kind == "PARAMETER";
  });
}

/// Whether a tensor computed by the exporter from these values depends on no parameter. The values
/// must be constants of the exporter, values of the graph (by their shape), or untrained tensors.
bool RoleFinder::isComputed(const std::vector<std::string> &names) const {
  bool isOfParameter = hasParameter(names);
  if (!isOfParameter && isFoldedFrozenNorm(names))
    return true;
  if (isComplete)
    return !isOfParameter;
  return std::all_of(names.begin(), names.end(), [&](const std::string &name) {
    if (const Record *record = recordOf(name); record && !record->kind.empty())
      return record->kind != "PARAMETER";
    return isGeneratedName(name) || users.producer(name);
  });
}

/// Whether a tensor has the name of a buffer of a frozen batch norm. The module's running
/// statistics are read by arithmetic, and by no BatchNormalization. All four of its tensors are
/// buffers. Source: torchvision.ops.FrozenBatchNorm2d; the copies of detectron2 and DETR are alike.
/// Example: "bn1.weight" beside "bn1.running_var", which an Add reads.
bool RoleFinder::isOfFrozenNorm(const std::string &name) const {
  std::string module = splitName(name).first;
  auto isThere = [&](const char *statistic) {
    return model.initializers.count(module + statistic) > 0 &&
           !isRunningStatistic(users, module + statistic);
  };
  return isNormTensor(splitName(name).second) &&
         (isThere("running_mean") || isThere("running_var"));
}

/// Whether a module gave a tensor its name, and the file does not say what the tensor is to it.
/// PyTorch's older exporter writes such files.
bool RoleFinder::isNamedByModule(const std::string &name) const {
  return model.proto->producer_name() == "pytorch" && !isGeneratedName(name) &&
         std::none_of(records.begin(), records.end(),
                      [](const auto &record) { return !record.second.kind.empty(); });
}

/// Whether PyTorch's older exporter has computed a tensor from others. Weights that it has
/// transposed for a MatMul or reordered for a recurrence do not count: they train as their sources.
/// Example: "onnx::Conv_81", a convolution's weight times the scale of a batch norm.
bool RoleFinder::isComputedByTracer(const std::string &name) const {
  static const llvm::StringSet<> rearranging{"MatMul", "Gemm", "LSTM", "GRU", "RNN"};
  if (name.rfind("onnx::", 0) != 0 || model.proto->producer_name() != "pytorch")
    return false;
  std::optional<std::vector<Use>> reads = users.readsOf(name);
  return reads && !std::all_of(reads->begin(), reads->end(), [](const Use &use) {
           return use.node && rearranging.contains(use.node->proto->op_type());
         });
}

void RoleFinder::pairAngles(Sources &sources) {
  auto isTable = [&](const onnx::TensorProto &tensor) {
    return tensor.dims_size() >= 2 && !users.of(tensor.name()).empty() && !recordOf(tensor.name());
  };
  for (size_t i = 0; i + 1 < model.initializerOrder.size(); ++i) {
    const onnx::TensorProto &a = *model.initializerOrder[i], &b = *model.initializerOrder[i + 1];
    if (a.data_type() != b.data_type() || a.dims_size() != b.dims_size() || !isTable(a) ||
        !isTable(b) || !std::equal(a.dims().begin(), a.dims().end(), b.dims().begin()))
      continue;
    ParameterSource first = sources.locateIfPacked(a);
    if (kernels::isFloat(first.dtype) && areCosineAndSine(first, sources.locateIfPacked(b)))
      angles.insert({a.name(), b.name()});
  }
}

std::optional<RoleDecision> RoleFinder::declared(const std::string &name) const {
  const Record *record = recordOf(name);
  if (!record)
    return std::nullopt;
  if (record->kind == "PARAMETER")
    return RoleDecision{Role::Parameter, Evidence::Declared};
  if (!record->kind.empty())
    return RoleDecision{Role::Constant, Evidence::Declared};
  if (!record->foldedFrom.empty() && isComputed(record->foldedFrom))
    return RoleDecision{Role::Constant, Evidence::Computed};
  // Example: the number "select" from ["scale", "val_16"], for scale[0].
  if (hasParameter(record->foldedFrom))
    return RoleDecision{Role::Parameter, Evidence::Declared};
  return std::nullopt;
}

/// The older exporter writes a number that is no parameter and no persistent buffer as a Constant,
/// so an initializer with a module's name is a parameter far more often than not. Example: the
/// scalar "logit_scale" of CLIP.
RoleDecision RoleFinder::roleOfNumber(const ParameterSource &source) const {
  const std::string &name = source.name;
  if (!isNamedByModule(name))
    return {Role::Constant, Evidence::NotTrainable};
  if (isHidingNumber(source))
    return {Role::Constant, Evidence::HidingNumber};
  if (isOnlyAdded(users, name) && isTiny(source))
    return {Role::Constant, Evidence::Epsilon};
  if (reachesOnlySinCos(users, name))
    return {Role::Constant, Evidence::OnlySinCos, true};
  return {Role::Parameter, Evidence::Default, true};
}

RoleDecision RoleFinder::decide(const onnx::TensorProto &tensor, const ParameterSource &source) {
  const std::string &name = tensor.name();
  int64_t elements = kernels::numElements(source.shape);
  bool isGenerated = isGeneratedName(name);
  if (!kernels::isFloat(source.dtype))
    return {Role::Constant, Evidence::NotTrainable};
  bool isConstant = matches(constants, source), isParameter = matches(parameters, source);
  if (isConstant && isParameter)
    throw UsageError("'" + source.displayName + "' is named by --constant and by --parameter");
  if (isConstant || isParameter)
    return {isConstant ? Role::Constant : Role::Parameter, Evidence::Option};
  if (isComputedByTracer(name))
    computedByTracer.insert(source.displayName);

  if (isSetting(users, name))
    return {Role::Constant, Evidence::Setting};
  if (isRunningStatistic(users, name))
    return {Role::State, Evidence::RunningStatistic};
  if (isRotaryTable(users, name))
    return {Role::State, Evidence::RotaryAngles};
  if (std::optional<RoleDecision> decision = declared(name)) {
    bool isNumber = decision->role == Role::Constant && elements == 1;
    return isNumber ? RoleDecision{Role::Constant, Evidence::NotTrainable} : *decision;
  }
  if (users.isOnlyCompared(name))
    return {Role::Constant, Evidence::NoGradient};
  if (source.shape.empty())
    return roleOfNumber(source);
  if (isOfFrozenNorm(name))
    return {Role::Constant, Evidence::FrozenNorm};

  std::optional<std::vector<Use>> reads = users.readsOf(name);
  auto isReadAs = [&](std::initializer_list<UseKind> kinds) {
    return !reads || std::any_of(reads->begin(), reads->end(), [&](const Use &use) {
      return std::count(kinds.begin(), kinds.end(), users.kindOf(use, source.shape)) > 0;
    });
  };
  if (isReadAs({UseKind::Weight})) {
    if (isGenerated && reads && isScaffold(users, *reads) && isUniform(source))
      return {Role::Constant, Evidence::Scaffold};
    // A position table read by indices may also be computed from a formula.
    bool isTable = reads && std::all_of(reads->begin(), reads->end(), [](const Use &use) {
                     return use.node->proto->op_type() == "Gather";
                   });
    if (isTable && areSinusoids(source))
      return {Role::Constant, Evidence::Sinusoids};
    bool isOpen = !isTable && isNamedByModule(name) && isOfFormula(source);
    return {Role::Parameter, Evidence::Reader, isOpen};
  }
  if (reachesOnlySinCos(users, name))
    return {Role::Constant, Evidence::OnlySinCos, isNamedByModule(name) && !areFrequencies(source)};
  if (isAdditiveMask(source))
    return {Role::Constant, Evidence::Mask};
  if (isReadAs({UseKind::Affine}))
    return {Role::Parameter, Evidence::Reader};
  if (elements == 1 && isGenerated)
    return {Role::Constant, Evidence::NotTrainable};
  // A function of a parameter, such as exp(logit_scale), trains in another way than the parameter.
  const Record *record = recordOf(name);
  bool isFolded = record && !record->foldedFrom.empty();
  bool isOfWeights =
      isFolded && std::any_of(record->foldedFrom.begin(), record->foldedFrom.end(), isWeightName);
  bool isOpen = isFolded && !isOfWeights;
  if (isReadAs({UseKind::Scale, UseKind::Bias}))
    return {Role::Parameter, Evidence::Reader, isOpen};
  if (angles.count(name) || areSinusoids(source))
    return {Role::Constant, Evidence::Sinusoids};
  if (isFolded)
    return {Role::Parameter, Evidence::Default, isOpen};
  if (isGenerated)
    return {Role::Constant, Evidence::GeneratedName};
  return {Role::Parameter, Evidence::Default,
          !isWeightName(name) && (isNamedByModule(name) || isUniform(source))};
}

} // namespace tbc::frontend
