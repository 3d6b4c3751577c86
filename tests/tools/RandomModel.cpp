//===- RandomModel.cpp - Random training graphs, for end-to-end tests -----===//

#include "tests/tools/RandomModel.h"

#include "ir/Tbc.h"
#include "tests/tools/RandomModelMaker.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <algorithm>
#include <numeric>

namespace tbc::test {

//===----------------------------------------------------------------------===//
// Dims and values
//===----------------------------------------------------------------------===//

int64_t RandomDim::size() const {
  return std::accumulate(parts.begin(), parts.end(), int64_t(1), std::multiplies<>());
}
bool RandomDim::hasBatch() const {
  return std::count(parts.begin(), parts.end(), RandomModelMaker::batch) > 0;
}
bool RandomDim::isBatch() const { return parts == std::vector<int64_t>{RandomModelMaker::batch}; }

static std::string typeText(const RandomDims &dims, const std::string &element) {
  std::string text = "tensor<";
  for (const RandomDim &dim : dims)
    text += std::to_string(dim.size()) + "x";
  return text + element + ">";
}
std::string RandomValue::type() const { return typeText(dims, element); }

std::string arrayText(const std::vector<int64_t> &numbers) {
  if (numbers.empty())
    return "array<i64>";
  std::string text;
  for (int64_t number : numbers)
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "array<i64: " + text + ">";
}

int64_t elementsOf(const RandomDims &dims) {
  int64_t count = 1;
  for (const RandomDim &dim : dims)
    count *= dim.hasBatch() ? dim.size() / RandomModelMaker::batch : dim.size();
  return count;
}

bool isSame(const RandomDim &a, const RandomDim &b) {
  return a.hasBatch() || b.hasBatch() ? a.parts == b.parts : a.size() == b.size();
}
bool areSame(const RandomDims &a, const RandomDims &b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), isSame);
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

RandomValue RandomModelMaker::argument(TensorRole role, RandomDims dims, const std::string &element,
                                       int64_t batchDim, int64_t sequenceDim) {
  RandomValue value;
  std::string roleName = stringifyTensorRole(role).str();
  std::string name = roleName + std::to_string(numArguments++);
  value.name = "%" + name;
  value.dims = std::move(dims);
  value.element = element;
  std::string text = value.name + ": " + value.type() + " {tbc.role = #tbc.role<" + roleName +
                     ">, tbc.name = \"" + name + "\"";
  if (batchDim >= 0)
    text += ", tbc.batch_dim = " + std::to_string(batchDim) + " : i64";
  if (sequenceDim >= 0)
    text += ", tbc.sequence_dim = " + std::to_string(sequenceDim) + " : i64";
  std::string &list = role == TensorRole::Input       ? inputs
                      : role == TensorRole::Parameter ? params
                                                      : states;
  list += (list.empty() ? "" : ",\n    ") + text + "}";
  return value;
}

RandomValue RandomModelMaker::newParameter(const RandomDims &dims, bool isState) {
  RandomValue value = argument(isState ? TensorRole::State : TensorRole::Parameter, dims);
  frontend::ParameterSource source;
  source.name = source.displayName = value.name.substr(1);
  source.isState = isState;
  for (const RandomDim &dim : dims)
    source.shape.push_back(dim.size());
  parameters.push_back(std::move(source));
  if (!isState)
    byType[value.type()].push_back(value.name);
  return value;
}

RandomValue RandomModelMaker::parameter(const RandomDims &dims) {
  auto old = byType.find(typeText(dims, "f32"));
  if (old == byType.end() || !oneIn(3))
    return newParameter(dims);
  RandomValue value;
  value.name = oneOf(old->second);
  value.dims = dims;
  return value;
}

void RandomModelMaker::addInputs() {
  RandomDim b{{batch}};
  for (int64_t i = 0, n = 1 + below(2); i < n; ++i) {
    RandomDims dims{b};
    for (int64_t k = 0, rank = 1 + below(3); k < rank; ++k)
      dims.push_back({{elementsOf(dims) > 60 ? 2 : someSize()}});
    int64_t at = oneIn(5) ? below(int64_t(dims.size())) : 0;
    std::swap(dims[0], dims[size_t(at)]);
    // The first input has the tokens, if one of its dims can be split in two.
    int64_t tokens = -1;
    for (int64_t dim = 0; i == 0 && dim < int64_t(dims.size()); ++dim)
      if (dim != at && dims[size_t(dim)].size() % 2 == 0 && dims[size_t(dim)].size() >= 4)
        tokens = dim;
    values.push_back(argument(TensorRole::Input, dims, "f32", at, tokens));
  }
  for (int64_t i = 0, n = below(3); i < n; ++i) {
    RandomDims dims{b};
    if (!oneIn(3))
      dims.push_back({{someSize()}});
    integerInputs.push_back(argument(TensorRole::Input, dims, "i64", 0));
  }
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

std::vector<RandomValue> RandomModelMaker::ops(const std::string &mnemonic,
                                               const std::vector<RandomValue> &operands,
                                               const std::vector<RandomDims> &results,
                                               const std::string &attributes,
                                               const std::string &element) {
  std::vector<RandomValue> made(results.size());
  std::string number = std::to_string(numOps++), names, operandNames, operandTypes, resultTypes;
  for (size_t i = 0; i < results.size(); ++i) {
    made[i].name = "%v" + number + "_" + std::to_string(i);
    made[i].dims = results[i];
    made[i].element = element;
    names += (i ? ", " : "") + made[i].name;
    resultTypes += (i ? ", " : "") + made[i].type();
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    operandNames += (i ? ", " : "") + operands[i].name;
    operandTypes += (i ? ", " : "") + operands[i].type();
  }
  body += "  " + names + " = \"tbc." + mnemonic + "\"(" + operandNames + ")" +
          (attributes.empty() ? "" : " <{" + attributes + "}>") + " {tbc.id = \"" + mnemonic +
          number + "\"} : (" + operandTypes + ") -> (" + resultTypes + ")\n";
  return made;
}

RandomValue RandomModelMaker::op(const std::string &mnemonic,
                                 const std::vector<RandomValue> &operands, RandomDims result,
                                 const std::string &attributes, const std::string &element) {
  return ops(mnemonic, operands, {std::move(result)}, attributes, element)[0];
}

bool RandomModelMaker::keep(RandomValue value) {
  values.push_back(std::move(value));
  return true;
}

RandomValue RandomModelMaker::use(int64_t index) {
  ++values[size_t(index)].uses;
  return values[size_t(index)];
}

RandomValue RandomModelMaker::pick() {
  int64_t n = int64_t(values.size());
  if (oneIn(3))
    return use(below(n));
  if (oneIn(2))
    return use(n - 1 - below(std::min<int64_t>(n, 3)));
  std::vector<int64_t> unused;
  for (int64_t i = 0; i < n; ++i)
    if (values[size_t(i)].uses == 0)
      unused.push_back(i);
  return use(unused.empty() ? below(n) : oneOf(unused));
}

int64_t RandomModelMaker::findLike(const RandomDims &dims) {
  std::vector<int64_t> like;
  for (size_t i = 0; i < values.size(); ++i)
    if (areSame(values[i].dims, dims))
      like.push_back(int64_t(i));
  return like.empty() ? -1 : oneOf(like);
}

//===----------------------------------------------------------------------===//
// The loss
//===----------------------------------------------------------------------===//

RandomValue RandomModelMaker::partBatch(const RandomValue &value) {
  std::vector<std::vector<int64_t>> in;
  std::vector<int64_t> out;
  bool parts = false;
  for (const RandomDim &dim : value.dims) {
    bool isParted = dim.hasBatch() && !dim.isBatch();
    parts |= isParted;
    in.push_back(dim.parts);
    if (isParted)
      out.insert(out.end(), dim.parts.size(), 1);
    else
      out.push_back(int64_t(dim.parts.size()));
  }
  return parts ? regroup(value, in, out) : value;
}

RandomValue RandomModelMaker::reduced(const RandomValue &value, bool withBatch) {
  RandomValue parted = withBatch ? value : partBatch(value);
  std::vector<int64_t> dims;
  RandomDims left;
  for (size_t i = 0; i < parted.dims.size(); ++i) {
    if (withBatch || !parted.dims[i].hasBatch())
      dims.push_back(int64_t(i));
    else
      left.push_back(parted.dims[i]);
  }
  return dims.empty() ? parted : op("reduce_sum", {parted}, left, "dims = " + arrayText(dims));
}

/// Returns class scores from an old value with a batch, in the last dim.
RandomValue RandomModelMaker::logits() {
  std::vector<int64_t> batched;
  for (size_t i = 0; i < values.size(); ++i)
    for (const RandomDim &dim : values[i].dims)
      if (dim.hasBatch() && (values[i].uses == 0 || batched.empty()))
        batched.push_back(int64_t(i));
  RandomValue x = use(batched.back());
  // A dim that starts with the batch may stay merged.
  for (const RandomDim &dim : x.dims)
    if (dim.hasBatch() && (dim.parts[0] != batch || oneIn(2))) {
      x = partBatch(x);
      break;
    }
  std::vector<int64_t> left(x.dims.size()), right, out;
  std::iota(left.begin(), left.end(), 0);
  RandomDims weight, result;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    bool isKept = x.dims[i].hasBatch() || (oneIn(3) && i + 1 < x.dims.size());
    if (isKept) {
      out.push_back(int64_t(i));
      result.push_back(x.dims[i]);
    } else {
      right.push_back(int64_t(i));
      weight.push_back(x.dims[i]);
    }
  }
  int64_t label = int64_t(x.dims.size());
  RandomDim classes{{oneOf(std::vector<int64_t>{4, 5, 6, 8, 10, 12, 127})}};
  right.push_back(label), out.push_back(label);
  weight.push_back(classes), result.push_back(classes);
  return op("einsum", {x, parameter(weight)}, result,
            "lhs_labels = " + arrayText(left) + ", rhs_labels = " + arrayText(right) +
                ", out_labels = " + arrayText(out));
}

/// Adds a sum of all unused values to the logits, so that each has a gradient.
void RandomModelMaker::joinLeaves(RandomValue &logits) {
  int64_t batchDim = -1;
  for (size_t i = 0; i < logits.dims.size(); ++i)
    if (logits.dims[i].isBatch())
      batchDim = int64_t(i);
  std::vector<RandomValue> leaves;
  for (const RandomValue &value : values)
    if (value.uses == 0)
      leaves.push_back(value);
  for (const RandomValue &leaf : leaves) {
    bool hasBatch = std::any_of(leaf.dims.begin(), leaf.dims.end(),
                                [](const RandomDim &dim) { return dim.hasBatch(); });
    bool isScalar = !hasBatch || batchDim < 0 || oneIn(8);
    RandomValue sum = reduced(leaf, isScalar);
    std::vector<int64_t> at;
    if (!isScalar)
      at.push_back(batchDim);
    logits = op("add", {logits, broadcast(sum, logits.dims, at)}, logits.dims);
  }
}

std::string RandomModelMaker::make() {
  mergesBatch = oneIn(3);
  addInputs();
  auto numLeaves = [&] {
    return std::count_if(values.begin(), values.end(),
                         [](const RandomValue &value) { return value.uses == 0; });
  };
  int64_t wanted = 20 + below(38);
  while (numOps < 19 || numOps + 3 * numLeaves() + 3 < wanted)
    addOp();
  RandomValue result = logits();
  joinLeaves(result);
  if (oneIn(3))
    newParameter({RandomDim{{someSize()}}}); // unused
  std::vector<std::string> names;
  for (const frontend::ParameterSource &source : parameters)
    if (!source.isState)
      names.push_back(source.name);
  if (names.size() > 2 && oneIn(4))
    frozen = names.front();
  loss = oneIn(4) ? "mse" : "cross-entropy";
  std::string arguments = inputs;
  for (const std::string *list : {&params, &states})
    if (!list->empty())
      arguments += ",\n    " + *list;
  return "func.func @model(\n    " + arguments + ")\n    -> (" + result.type() +
         " {tbc.name = \"logits\"}) {\n" + body + "  return " + result.name + " : " +
         result.type() + "\n}\n";
}

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

Result<RandomModel> makeRandomModel(uint64_t seed) {
  RandomModel model;
  RandomModelMaker maker(seed);
  model.text = maker.make();
  model.numOps = maker.numOps;
  model.context = driver::makeContext();
  frontend::ImportedModel imported;
  {
    driver::DiagnosticCollector diagnostics(*model.context);
    imported.module = mlir::parseSourceString<mlir::ModuleOp>(model.text, model.context.get());
    if (!imported.module)
      return diagnostics.error(ErrorCode::Other, "not a module");
  }
  imported.parameters = maker.parameters;
  imported.batch = RandomModelMaker::batch;
  imported.hash = std::to_string(seed);

  std::mt19937_64 random(seed + 1);
  driver::StepOptions options;
  options.loss = maker.loss;
  options.optimizer =
      std::vector{planner::Optimizer::Sgd, planner::Optimizer::SgdMomentum,
                  planner::Optimizer::Adam, planner::Optimizer::AdamW}[random() % 4];
  options.precision = random() % 8 == 0 ? planner::Precision::BF16 : planner::Precision::F32;
  if (!maker.frozen.empty())
    options.freeze = {maker.frozen};
  if (random() % 4 == 0)
    options.settings["clip_norm"] = 0.5;
  if (random() % 8 == 0)
    options.settings["loss_scale"] = 1024;
  options.settings["pad_vocabulary"] = random() % 2 ? 1 : 4;
  options.settings["seed"] = double(seed % 1000);
  auto step = driver::buildTrainingStep(*model.context, std::move(imported), options);
  if (!step)
    return Error{step.error().code, step.error().message + "\n" + model.text};
  model.step = std::move(*step);
  return model;
}

} // namespace tbc::test
