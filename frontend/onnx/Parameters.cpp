//===- Parameters.cpp - Find the parameters among the initializers ---------===//

#include "frontend/onnx/Parameters.h"

#include "frontend/onnx/Elements.h"
#include "frontend/onnx/Roles.h"
#include "frontend/onnx/SharedParts.h"
#include "frontend/onnx/Sources.h"
#include "frontend/onnx/Ties.h"
#include "frontend/onnx/UpdatedBuffers.h"
#include "frontend/onnx/Value.h"

#include <algorithm>
#include <set>

namespace tbc::frontend {

/// Whether the exporter folded a transpose into it: a linear layer stores its weight as [out, in],
/// and MatMul reads [in, out] under a generated name.
static bool isFoldedTranspose(const Users &users, const onnx::TensorProto &tensor) {
  const std::vector<Use> &list = users.of(tensor.name());
  return tensor.dims_size() == 2 && isGeneratedName(tensor.name()) &&
         std::all_of(list.begin(), list.end(), [](const Use &use) {
           return use.node->proto->op_type() == "MatMul" && use.input == 1;
         });
}

/// Returns true if `tensor` holds integers that are data of the model: indices of a gather or
/// scatter, or operands of arithmetic. Shapes, axes and other settings must be known at import.
static bool isIndexTable(const Users &users, const onnx::TensorProto &tensor) {
  static const std::set<std::string> arithmetic = {"Add",  "Cast", "Div", "Equal", "Greater",
                                                   "Less", "Mod",  "Mul", "Sub",   "Where"};
  static const std::set<std::string> gathers = {"Gather",          "GatherElements", "GatherND",
                                                "ScatterElements", "ScatterND",      "Scatter"};
  const std::vector<Use> &list = users.of(tensor.name());
  return tensor.dims_size() > 0 && std::all_of(list.begin(), list.end(), [](const Use &use) {
           const std::string &type = use.node->proto->op_type();
           return use.node->proto->domain().empty() &&
                  (arithmetic.count(type) || (gathers.count(type) && use.input == 1));
         });
}

/// Returns names for a sentence, the first four of many. Example: "'a', 'b'".
template <typename Names> static std::string listOf(const Names &names) {
  constexpr size_t mostShown = 4;
  std::string list;
  size_t shown = 0;
  for (const std::string &name : names)
    if (shown++ < mostShown)
      list += (shown > 1 ? ", '" : "'") + name + "'";
  if (names.size() > mostShown)
    list += " and " + std::to_string(names.size() - mostShown) + " more";
  return list;
}

std::vector<std::string> openRoleWarnings(const Parameters &parameters) {
  std::vector<std::string> names, warnings;
  for (const ParameterSource &source : parameters.params)
    if (parameters.open.count(source.name))
      names.push_back(source.displayName);
  if (!names.empty()) {
    bool areMany = names.size() > 1;
    warnings.push_back(
        listOf(names) + (areMany ? " are trained as parameters" : " is trained as a parameter") +
        ", but nothing in the file says " + (areMany ? "whether they are" : "whether it is") +
        ": --constant '" + names[0] +
        "' keeps it as it is, --freeze keeps it as a parameter that is not trained, --parameter "
        "says that it is one");
  }
  if (const std::set<std::string> &angles = parameters.openAngles; !angles.empty()) {
    bool areMany = angles.size() > 1;
    warnings.push_back(listOf(angles) + (areMany ? " are" : " is") +
                       " not trained, because only sines and cosines depend on " +
                       (areMany ? "them" : "it") + ", but nothing in the file says " +
                       (areMany ? "whether they are parameters" : "whether it is a parameter") +
                       ": --parameter '" + *angles.begin() +
                       "' trains it, --constant says that it is none");
  }
  return warnings;
}

/// Whether `source` is a boolean mask that is too large for a constant, or one for each head.
static bool isLargeTruth(const ParameterSource &source) {
  constexpr int64_t mostOfHeads = int64_t(1) << 16;
  const int64_t elements = kernels::numElements(source.shape);
  return source.dtype == kernels::DType::Bool && source.shape.size() >= 2 &&
         (elements > kMaxStoredElements ||
          (elements > mostOfHeads &&
           elements > source.shape.back() * source.shape[source.shape.size() - 2]));
}

/// Warns of each parameter that the exporter replaced by parts with common elements: these are
/// tensors of their own here. `parts`: by parameter of the module.
static void warnOfSharedParts(Parameters &parameters, const PartsOfParameters &parts) {
  for (const auto &[whole, list] : parts) {
    std::vector<const ParameterSource *> sources;
    for (const ParameterSource &source : parameters.params)
      for (const RoleFinder::Part &part : list)
        if (part.name == source.name)
          sources.push_back(&source);
    const std::vector<std::string> shared = sharedParts(sources);
    if (!shared.empty())
      parameters.warnings.push_back(
          "the exporter has stored " + std::to_string(shared.size()) + " tensors ('" + shared[0] +
          "', '" + shared[1] + "'" + (shared.size() > 2 ? " and others" : "") +
          ") with common elements of one parameter of the module ('" + whole +
          "'). Each is trained by itself, so training differs from the module's; "
          "torch.onnx.export(..., optimize=False) keeps the parameter");
  }
}

/// Warns of `unread`, constants of no reader that takes weights, where they have more numbers than
/// all parameters: the weights of the model may be among them.
static void warnOfLargeConstants(Parameters &parameters,
                                 const std::vector<ConstantTensor> &unread) {
  int64_t trained = 0, constant = 0;
  for (const ParameterSource &source : parameters.params)
    trained += kernels::numElements(source.shape);
  std::vector<std::string> names;
  for (const ConstantTensor &tensor : unread) {
    constant += kernels::numElements(tensor.shape);
    names.push_back(tensor.displayName);
  }
  if (constant > trained)
    parameters.warnings.push_back(
        listOf(names) + ", with " + std::to_string(constant) + " numbers, " +
        (names.size() > 1 ? "are" : "is") + " not trained, and all parameters have " +
        std::to_string(trained) + ": " + unread[0].reason + "; --parameter '" + names[0] +
        "' trains " + (names.size() > 1 ? "one of them" : "it"));
}

Parameters findParameters(const Model &model, const ImportOptions &options) {
  Parameters result;
  Users users(model);
  Sources sources(model, options);
  RoleFinder roles(model, users, options);
  roles.pairAngles(sources);
  std::set<std::string> displayNames;
  std::vector<ConstantTensor> unread;
  for (const onnx::TensorProto *initializer : model.initializerOrder) {
    const onnx::TensorProto &tensor = *initializer;
    if (isExternal(tensor)) // checked even if unused
      sources.locate(tensor);
    if (users.of(tensor.name()).empty()) {
      result.warnings.push_back("initializer '" + tensor.name() + "' is not used");
      continue;
    }
    ParameterSource source = sources.locateIfPacked(tensor);
    source.displayName = roles.displayName(tensor.name());
    RoleDecision decision = roles.decide(tensor, source);
    bool isTensor =
        decision.evidence != Evidence::NotTrainable && decision.evidence != Evidence::Setting;
    if (decision.role != Role::Constant)
      source = sources.locate(tensor);
    source.displayName = roles.displayName(tensor.name());
    if (decision.role != Role::Constant || isTensor) {
      if (!displayNames.insert(source.displayName).second) {
        source.displayName = tensor.name();
        displayNames.insert(source.displayName);
      }
    }
    if (decision.isOpen && decision.role == Role::Constant)
      result.openAngles.insert(source.displayName);
    else if (decision.isOpen)
      result.open.insert(source.name);
    source.isTransposed = isFoldedTranspose(users, tensor);
    if (decision.role == Role::Parameter) {
      result.params.push_back(source);
      continue;
    }
    bool isStatistic = decision.evidence == Evidence::RunningStatistic;
    if (isTensor && !isStatistic)
      result.constants.push_back({source.name, source.displayName, source.dtype, source.shape,
                                  describe(decision.evidence)});
    if (decision.evidence == Evidence::GeneratedName)
      unread.push_back(result.constants.back());
    // Constants too large for the function become state arguments.
    bool isHeld = (decision.evidence == Evidence::Mask || isLargeTruth(source)) && bandOf(source);
    bool isTooLarge = kernels::numElements(source.shape) > kMaxStoredElements && !isHeld;
    bool isIndex = decision.evidence == Evidence::NotTrainable && isIndexTable(users, tensor);
    if (decision.role == Role::Constant && (isTensor || isIndex) && source.shape.size() > 0 &&
        (isTooLarge || (source.isExternal && !source.present)))
      decision.role = Role::State;
    if (decision.role == Role::State) {
      source.isState = true;
      result.states.push_back(source);
      continue;
    }
    if (source.isExternal || isHeld)
      result.constantSources[source.name] = source;
    if (isHeld)
      result.masks.insert(source.name);
  }
  sources.finish();
  roles.requireAllMatched();
  for (std::string &text : roles.warnings())
    result.warnings.push_back(std::move(text));
  if (std::optional<std::string> text = updatedBuffersWarning(model))
    result.warnings.push_back(std::move(*text));
  warnOfLargeConstants(result, unread);
  joinTies(result, options.ties);
  joinCopies(result, roles.copies());
  const PartsOfParameters parts = roles.parts();
  joinParts(result, parts);
  warnOfSharedParts(result, parts);
  joinCalls(model, result);
  warnOfCopies(model, result);
  return result;
}

} // namespace tbc::frontend
