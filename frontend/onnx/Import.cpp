//===- Import.cpp - From an ONNX file to a module of tbc ops ---------------===//

#include "frontend/onnx/Import.h"
#include "frontend/onnx/Identity.h"

#include "frontend/onnx/BandMask.h"
#include "frontend/onnx/Batch.h"
#include "frontend/onnx/Bindings.h"
#include "frontend/onnx/CustomFunctions.h"
#include "frontend/onnx/Detach.h"
#include "frontend/onnx/DroppedOffsets.h"
#include "frontend/onnx/GroupedRows.h"
#include "frontend/onnx/MaskedScatter.h"
#include "frontend/onnx/Merged.h"
#include "frontend/onnx/ModulePath.h"
#include "frontend/onnx/NoGradNodes.h"
#include "frontend/onnx/NodeContext.h"
#include "frontend/onnx/Parameters.h"
#include "frontend/onnx/PerSample.h"
#include "frontend/onnx/Roles.h"
#include "frontend/onnx/SampleOrder.h"
#include "frontend/onnx/SampleRows.h"
#include "frontend/onnx/Selection.h"
#include "frontend/onnx/Sources.h"
#include "frontend/onnx/TrainedParameters.h"
#include "frontend/onnx/ops/Families.h"
#include "ir/Movement.h"
#include "ir/Roles.h"
#include "runtime/abi/Sha256.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <list>
#include <set>

using namespace mlir;

namespace tbc::frontend {

namespace {

/// The limit on nodes of unrolled loops.
constexpr int64_t maxUnrolledNodes = 32768;

/// Throws if nodes have no importer; lists all of them.
void checkSupported(const Model &model) {
  std::map<std::string, std::vector<std::string>> unsupported;
  for (const GraphNode &node : model.nodes) {
    const std::string &domain = node.proto->domain();
    if (!findImporter(domain, node.proto->op_type()))
      unsupported[(domain.empty() ? "" : domain + ".") + node.proto->op_type()].push_back(
          node.name);
  }
  if (unsupported.empty())
    return;
  std::string text = "the model has nodes that are not supported:";
  size_t room = 4000; // bytes for names; nested functions can make many and long ones
  bool isFirst = true;
  for (const auto &[type, names] : unsupported) {
    text += "\n  " + type + ":";
    size_t shown = 0;
    for (; shown < names.size() && (isFirst || names[shown].size() < room); ++shown) {
      text += " " + names[shown];
      room -= std::min(room, names[shown].size() + 1);
      isFirst = false;
    }
    if (shown < names.size())
      text += (shown ? " and " : " ") + std::to_string(names.size() - shown) +
              (shown ? " more" : " nodes");
  }
  throw ImportError(text +
                    "\nExport the model so that these are made of other ops (docs/onnx-ops.md "
                    "lists those that are supported), or without them");
}

/// Throws if a product of the sizes of a node's result could overflow.
void checkResult(const Shape &shape, int64_t marker) {
  constexpr int64_t maxElements = int64_t(1) << 56;
  if (shape.size() > ScanLimits().rank)
    throw ImportError("makes a tensor of rank " + std::to_string(shape.size()) + "; at most " +
                      std::to_string(ScanLimits().rank) + " is supported");
  __int128 elements = 1;
  for (int64_t size : shape) {
    if (size < 0)
      throw ImportError("makes a tensor of shape " + printShape(shape, marker));
    elements *= std::max<int64_t>(size, 1);
    if (elements > maxElements)
      throw ImportError("makes a tensor of shape " + printShape(shape, marker) +
                        ", which is too large");
  }
}

/// One walk through the graph at one marker.
class GraphImporter {
public:
  GraphImporter(MLIRContext &context, const Model &model, const Bindings &bindings,
                const Parameters &parameters, const ImportOptions &options, int64_t marker)
      : model(model), bindings(bindings), parameters(parameters),
        detached(options.detached, model, noGradNodes(model, parameters)), marker(marker),
        builder(&context) {}

  OwningOpRef<ModuleOp> run();

  /// Warnings of the nodes' importers, one line per kind.
  std::vector<std::string> warnings() const;

private:
  void addArguments();
  void countUses();
  const Value &valueOf(const std::string &name);
  void dropUse(const std::string &name) {
    if (--usesLeft[name] == 0)
      values.erase(name);
  }
  Location locationOf(const GraphNode &node, const std::string &suffix);
  void importNode(const GraphNode &node);
  std::vector<Value> runBody(const Body &body, const std::vector<Value> &arguments,
                             const std::string &suffix);
  void addResults();
  void eraseDeadOps();
  void nameOps();

  const Model &model;
  const Bindings &bindings;
  const Parameters &parameters;
  Detached detached;
  int64_t marker;
  OpBuilder builder;
  func::FuncOp function;
  std::optional<Emitter> emitter;
  std::map<std::string, Value> values;
  Selections selections;
  /// Remaining uses: inputs of nodes, and outputs of the graph.
  std::map<std::string, int64_t> usesLeft;
  std::map<std::string, mlir::Value> newStates;
  /// The suffix of op names in the bodies around the current node.
  std::string suffix;
  unsigned bodyDepth = 0;
  int64_t unrolledNodes = 0;
  /// The warning about samples that meet; empty if they do not.
  std::string meetings;
  /// By op type and text: number of nodes, and the first one.
  std::map<std::pair<std::string, std::string>, std::pair<int, std::string>> nodeWarnings;
};

std::vector<std::string> GraphImporter::warnings() const {
  std::vector<std::string> result;
  for (const auto &[key, nodes] : nodeWarnings) {
    std::string others =
        nodes.first > 1 ? " (and " + std::to_string(nodes.first - 1) + " more)" : "";
    result.push_back(key.first + " '" + nodes.second + "'" + others + " " + key.second);
  }
  llvm::append_range(result, detached.warnings());
  if (!meetings.empty())
    result.push_back(meetings);
  return result;
}

OwningOpRef<ModuleOp> GraphImporter::run() {
  OwningOpRef<ModuleOp> module = ModuleOp::create(builder.getUnknownLoc());
  builder.setInsertionPointToEnd(module->getBody());
  function = builder.create<func::FuncOp>(builder.getUnknownLoc(), "model",
                                          builder.getFunctionType({}, {}));
  builder.setInsertionPointToEnd(function.addEntryBlock());
  emitter.emplace(builder, marker);
  emitter->exportedBatch = bindings.exportedBatch;
  addArguments();
  countUses();
  for (const GraphNode &node : model.nodes)
    importNode(node);
  detached.requireAllMatched();
  addResults();
  eraseDeadOps();
  Block &block = function.getBody().front();
  undoSampleSorts(block, marker);
  gatherWithinSamples(*emitter, block);
  eraseDeadOps();
  if (!numbersSamples(block, marker))
    emitter->tableOverBatch.clear();
  meetings = checkMeetings(function, marker, emitter->tableOverBatch);
  nameOps();
  return module;
}

void GraphImporter::addArguments() {
  SmallVector<Type> types;
  SmallVector<DictionaryAttr> attributes;
  auto addArgument = [&](DType dtype, const Shape &shape, ArrayRef<NamedAttribute> attrs,
                         const std::string &what) {
    try {
      types.push_back(emitter->type(dtype, shape));
    } catch (const ImportError &error) {
      throw ImportError(what + ": " + error.what());
    }
    attributes.push_back(builder.getDictionaryAttr(attrs));
    return function.getBody().front().addArgument(types.back(), builder.getUnknownLoc());
  };
  for (const BoundInput &input : bindings.inputs) {
    Shape shape = input.atBatch(marker);
    if (input.isPositions) {
      unsigned last = shape.size() - 1;
      values[input.name] =
          Value::ofKnown(input.dtype, shape, {last}, Known::affine({shape[last]}, 0, {1}, false));
      continue;
    }
    if (input.constant) {
      values[input.name] = Value::ofSplat(input.dtype, shape, *input.constant);
      continue;
    }
    if (input.elements) {
      values[input.name] = Value::ofKnown(input.dtype, *input.elements);
      continue;
    }
    SmallVector<NamedAttribute> attrs{namedRole(builder.getContext(), TensorRole::Input),
                                      emitter->text(kNameAttr, input.name)};
    if (input.batchDim() >= 0)
      attrs.push_back(emitter->integer(kBatchDimAttr, input.batchDim()));
    if (input.sequenceDim >= 0)
      attrs.push_back(emitter->integer(kSequenceDimAttr, input.sequenceDim));
    values[input.name] = Value::ofTensor(
        input.dtype, addArgument(input.dtype, shape, attrs, "input '" + input.name + "'"));
  }
  for (const auto *sources : {&parameters.params, &parameters.states})
    for (const ParameterSource &source : *sources) {
      mlir::Value argument =
          addArgument(source.dtype, source.shape,
                      {namedRole(builder.getContext(),
                                 source.isState ? TensorRole::State : TensorRole::Parameter),
                       emitter->text(kNameAttr, source.name),
                       emitter->text("tbc.display_name", source.displayName)},
                      "initializer '" + source.name + "'");
      values[source.name] = Value::ofTensor(source.dtype, argument);
    }
  function.setFunctionType(builder.getFunctionType(types, {}));
  function.setAllArgAttrs(attributes);
  for (const Tie &tie : parameters.ties) {
    emitter->setNode(tie.name);
    const Value &source = values.at(tie.source);
    values[tie.name] = tie.isTransposed ? transpose(*emitter, source, {1, 0}) : source;
  }
  for (const auto *sources : {&parameters.params, &parameters.states})
    for (const ParameterSource &source : *sources) {
      emitter->setNode(source.name + ".detach");
      Value &value = values[source.name];
      value = detached.defined(*emitter, source.name, source.displayName, value);
    }
}

void GraphImporter::countUses() {
  for (const GraphNode &node : model.nodes) {
    for (const std::string &name : node.proto->input())
      ++usesLeft[name];
    for (const std::string &name : node.captures)
      ++usesLeft[name];
  }
  for (const onnx::ValueInfoProto &output : model.graph().output())
    ++usesLeft[output.name()];
}

/// Returns the value called `name`. Constants are read at their first use and freed at their last
/// one, because there may be many large ones.
const Value &GraphImporter::valueOf(const std::string &name) {
  auto [it, isNew] = values.try_emplace(name);
  if (!isNew)
    return it->second;
  const onnx::TensorProto &tensor = *model.initializers.at(name);
  DType dtype = dtypeOfOnnx(tensor.data_type(), "initializer '" + name + "'");
  auto source = parameters.constantSources.find(name);
  if (source == parameters.constantSources.end())
    it->second = Value::ofKnown(dtype, readTensor(model, tensor));
  else if (parameters.masks.count(name))
    it->second = bandMask(*emitter, source->second);
  else
    it->second = Value::ofKnown(dtype, readSource(source->second));
  return it->second;
}

/// Returns the node's name, with its module path if the file has it.
Location GraphImporter::locationOf(const GraphNode &node, const std::string &suffix) {
  Location inside = builder.getUnknownLoc();
  if (std::string module = modulePath(node); !module.empty())
    inside = NameLoc::get(builder.getStringAttr(module));
  return NameLoc::get(builder.getStringAttr(node.name + suffix), inside);
}

void GraphImporter::importNode(const GraphNode &node) {
  emitter->setLocation(locationOf(node, suffix));
  std::vector<const Value *> inputs;
  std::list<Value> detachedInputs;
  try {
    for (const std::string &name : node.proto->input())
      inputs.push_back(name.empty() ? nullptr : &valueOf(name));
    if (detached.mayRead(node)) {
      emitter->setLocation(locationOf(node, suffix + ".detach"));
      detached.read(*emitter, node, inputs, detachedInputs);
      emitter->setLocation(locationOf(node, suffix));
    }
  } catch (const ImportError &error) {
    throw ImportError(describe(node) + ": " + error.what());
  }
  NodeContext context(
      model, node, *emitter, std::move(inputs),
      [&](const Body &body, const std::vector<Value> &arguments, const std::string &suffix) {
        std::vector<Value> results = runBody(body, arguments, suffix);
        emitter->setLocation(locationOf(node, this->suffix));
        return results;
      });
  const OpImporter *importer = findImporter(node.proto->domain(), node.proto->op_type());
  try {
    // Nodes of the graph were checked before; bodies of branches are only checked if taken.
    if (!importer)
      throw ImportError("is not supported; docs/onnx-ops.md lists the ops that are");
    context.upgrade();
    for (const std::string &name : node.captures)
      selections.requireWhole(name);
    for (const std::string &name : node.proto->output())
      selections.forget(name);
    if (readsSamples(context))
      importPerSample(context, *importer);
    else if (selections.concerns(*node.proto, context))
      selections.import(node, context, *importer);
    else
      importer->import(context);
    context.requireAllAsked(importer->unread);
    for (const Value &value : context.results())
      if (value.isDefined())
        checkResult(value.shape, marker);
  } catch (const ImportError &error) {
    throw ImportError(describe(node) + ": " + error.what());
  }
  for (int i = 0; i < node.proto->output_size(); ++i)
    if (!node.proto->output(i).empty()) {
      const Value &value = context.results()[i];
      if (!value.isDefined())
        throw ImportError(describe(node) + ": output " + std::to_string(i) + " is not supported");
      emitter->setLocation(locationOf(node, suffix + ".detach"));
      const std::string &name = node.proto->output(i);
      values[name] = detached.defined(*emitter, name, name, value);
      values[name].perSample = value.perSample;
    }
  // A body may be imported several times.
  if (bodyDepth == 0) {
    for (const std::string &name : node.proto->input())
      dropUse(name);
    for (const std::string &name : node.captures)
      dropUse(name);
  }
  for (const std::string &text : context.warnings) {
    auto &[count, first] = nodeWarnings[{node.proto->op_type(), text}];
    if (count++ == 0)
      first = node.name;
  }
  for (auto &[name, value] : context.newStates)
    if (!newStates.emplace(name, value).second)
      throw ImportError(describe(node) + ": running statistics '" + name +
                        "' are updated twice, by a module that runs twice; this is not supported");
}

std::vector<Value> GraphImporter::runBody(const Body &body, const std::vector<Value> &arguments,
                                          const std::string &added) {
  if (arguments.size() != body.inputs.size())
    throw ImportError("graph '" + body.attribute + "' takes " + std::to_string(body.inputs.size()) +
                      " inputs, but gets " + std::to_string(arguments.size()));
  unrolledNodes += int64_t(body.nodes.size()) + 1;
  if (unrolledNodes > maxUnrolledNodes)
    throw ImportError("unrolls to more than " + std::to_string(maxUnrolledNodes) +
                      " nodes; export the model with fewer iterations, or without the loop");
  for (size_t i = 0; i < arguments.size(); ++i)
    values[body.inputs[i]] = arguments[i];
  size_t length = suffix.size();
  suffix += added;
  ++bodyDepth;
  auto restore = llvm::make_scope_exit([&] { // also if a node is refused
    --bodyDepth;
    suffix.resize(length);
  });
  for (const GraphNode &node : body.nodes)
    importNode(node);
  std::vector<Value> results;
  for (const std::string &output : body.outputs) {
    if (!values.count(output) && !model.initializers.count(output))
      throw ImportError("graph '" + body.attribute + "' has an output '" + output +
                        "' that nothing defines");
    selections.requireWhole(output);
    results.push_back(valueOf(output));
  }
  return results;
}

void GraphImporter::addResults() {
  SmallVector<mlir::Value> results;
  SmallVector<DictionaryAttr> attributes;
  auto addResult = [&](mlir::Value value, ArrayRef<NamedAttribute> attrs) {
    results.push_back(value);
    attributes.push_back(builder.getDictionaryAttr(attrs));
  };
  for (const onnx::ValueInfoProto &output : model.graph().output()) {
    if (!values.count(output.name()) && !model.initializers.count(output.name()))
      throw ImportError("graph output '" + output.name() + "' is not defined");
    try {
      selections.requireWhole(output.name());
      emitter->setNode(output.name());
      const Value &value = valueOf(output.name());
      if (value.sequence)
        throw ImportError("is a sequence of tensors, and a plan has tensors only; make each of "
                          "its tensors an output");
      addResult(emitter->full(value), {emitter->text(kNameAttr, output.name())});
    } catch (const ImportError &error) {
      throw ImportError("graph output '" + output.name() + "': " + error.what());
    }
  }
  for (const ParameterSource &state : parameters.states)
    if (auto it = newStates.find(state.name); it != newStates.end())
      addResult(it->second, {namedRole(builder.getContext(), TensorRole::State),
                             emitter->text(kNameAttr, state.name)});
  builder.create<func::ReturnOp>(builder.getUnknownLoc(), results);
  SmallVector<Type> types;
  for (mlir::Value result : results)
    types.push_back(result.getType());
  function.setFunctionType(
      builder.getFunctionType(function.getBody().front().getArgumentTypes(), types));
  function.setAllResultAttrs(attributes);
}

void GraphImporter::eraseDeadOps() {
  // Reverse iterators stay valid after an erasure at their position.
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (op.use_empty() && !op.hasTrait<OpTrait::IsTerminator>())
      op.erase();
}

void GraphImporter::nameOps() {
  // The first op of a node has the node's name; others add a number.
  llvm::StringSet<> taken;
  forEachNode(model.nodes, [&](const GraphNode &node) { taken.insert(node.name); });
  llvm::StringMap<unsigned> next;
  for (Operation &op : function.getBody().front().without_terminator()) {
    StringRef name = llvm::cast<NameLoc>(op.getLoc()).getName();
    unsigned &number = next[name];
    std::string id = name.str();
    if (number++ > 0) {
      do
        id = (name + "." + Twine(number - 1)).str();
      while (!taken.insert(id).second && number++);
    }
    op.setAttr(kIdAttr, builder.getStringAttr(id));
  }
}

void describeValues(func::FuncOp function, const Bindings &bindings, const Model &model,
                    ImportedModel &imported) {
  Block &body = function.getBody().front();
  unsigned next = 0;
  for (const BoundInput &input : bindings.inputs) {
    if (input.isHeld())
      continue;
    if (body.getArgument(next++).use_empty())
      imported.warnings.push_back("input '" + input.name + "' does not influence the outputs");
    imported.inputs.push_back(
        {input.name, input.dtype, input.atBatch(bindings.batch), input.batchDim()});
  }
  for (int i = 0; i < model.graph().output_size(); ++i) {
    auto type = llvm::cast<RankedTensorType>(body.getTerminator()->getOperand(i).getType());
    imported.outputs.push_back({model.graph().output(i).name(), *dtypeOf(type.getElementType()),
                                Shape(type.getShape().begin(), type.getShape().end()), -1});
  }
}

/// Verifies the module; throws with the first diagnostic and its node.
void verifyModule(ModuleOp module) {
  std::string text;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &diagnostic) {
    if (text.empty()) {
      if (auto name = dyn_cast<NameLoc>(diagnostic.getLocation()))
        text = "node '" + name.getName().str() + "': ";
      text += diagnostic.str();
    }
    return success();
  });
  if (failed(verify(module)))
    throw ImportError(text);
}

ImportedModel importModel(MLIRContext &context, const Model &model, const ImportOptions &options) {
  context.loadDialect<TbcDialect, func::FuncDialect>();
  constexpr int64_t maxWork = int64_t(1) << 26;
  checkSupported(model);
  Parameters parameters = findParameters(model, options);
  const std::vector<std::string> noGrad = noGradWarnings(model, parameters);
  int64_t fileBytes = int64_t(model.scanned.file.size());
  for (const auto &[name, source] : parameters.constantSources)
    fileBytes += source.isExternal ? source.bytes : 0;
  WorkBudget budget(maxWork, (int64_t(32) << 20) + 3 * fileBytes);
  Bindings bindings = bindInputs(model, options);
  std::pair<int64_t, int64_t> markers = chooseMarkers(model, bindings);
  int64_t marker = markers.first, otherMarker = markers.second;

  ImportedModel imported;
  auto importAt = [&](int64_t at) {
    GraphImporter importer(context, model, bindings, parameters, options, at);
    OwningOpRef<ModuleOp> module;
    try {
      module = importer.run();
    } catch (const UsageError &) {
      throw;
    } catch (const ImportError &error) {
      throw ImportError(error.what() + bindings.lengthHint);
    }
    imported.warnings = importer.warnings();
    verifyModule(*module);
    return module;
  };
  auto functionOf = [](OwningOpRef<ModuleOp> &module) {
    return *module->getOps<func::FuncOp>().begin();
  };
  imported.module = importAt(marker);
  if (std::set<std::string> names = withoutGradient(functionOf(imported.module)); !names.empty()) {
    holdParameters(parameters, names);
    imported.module = importAt(marker);
  }
  auto function = functionOf(imported.module);
  bindBatch(function, marker, bindings.batch);
  {
    OwningOpRef<ModuleOp> check = importAt(otherMarker);
    bindBatch(functionOf(check), otherMarker, bindings.batch);
    if (Operation *op = firstDifference(function, functionOf(check)))
      throw ImportError(nodeOf(op, "the result") +
                        (isa<SliceOp>(op) ? " " + placesOfSamples() : batchAsNumber()));
  }
  imported.batch = bindings.batch;
  imported.seq = bindings.seq;
  imported.hash = sha256Hex(model.scanned.skeleton);
  for (const auto &list : {openRoleWarnings(parameters), noGrad, customFunctionWarnings(model),
                           droppedOffsetWarnings(model), parameters.warnings, bindings.warnings})
    imported.warnings.insert(imported.warnings.begin(), list.begin(), list.end());
  imported.notes = parameters.notes;
  imported.constants = parameters.constants;
  imported.parameters = parameters.params;
  imported.parameters.insert(imported.parameters.end(), parameters.states.begin(),
                             parameters.states.end());
  verifyModule(*imported.module);
  describeValues(function, bindings, model, imported);
  dropUnusedParameters(function, imported, imported.inputs.size());
  return imported;
}

} // namespace

Result<ImportedModel> importOnnx(MLIRContext &context, const std::string &path,
                                 const ImportOptions &options) {
  Result<std::unique_ptr<Model>> model = loadModel(path);
  if (!model)
    return model.error();
  try {
    // The identity of the file, before initializers are split.
    std::string identity = identityOf(**model);
    DeviceAnnotations annotations;
    if (options.readAnnotations)
      annotations = readDeviceAnnotations(**model);
    std::vector<std::string> notes = splitMerged(**model, options);
    joinMaskedScatters(**model);
    joinGroupedRows(**model);
    ImportedModel imported = importModel(context, **model, options);
    imported.identity = std::move(identity);
    imported.notes.insert(imported.notes.begin(), notes.begin(), notes.end());
    imported.annotations = std::move(annotations);
    return imported;
  } catch (const UsageError &error) {
    return Error{ErrorCode::Usage, error.what()};
  } catch (const ImportError &error) {
    return Error{ErrorCode::ModelRejected, path + ": " + error.what()};
  }
}

} // namespace tbc::frontend
