//===- PerSample.cpp - Loops over samples as ops on the batch --------------===//

#include "frontend/onnx/PerSample.h"

#include "frontend/onnx/Batch.h"
#include "frontend/onnx/ops/Families.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringSwitch.h"

#include <cassert>
#include <numeric>

namespace tbc::frontend {

namespace {

bool isPerSample(const Value &value) {
  return value.perSample || (value.sequence && llvm::any_of(*value.sequence, isPerSample));
}

/// The way a node's dims move behind the dim of the samples.
enum class Rule {
  None,
  /// Operands broadcast: dims of size 1 behind the samples align their ranks.
  Elementwise,
  /// Attribute `axis` counts dims of input 0; other inputs have no samples.
  Axis,
  /// The same, and every input gets the samples.
  AxisOfAll,
  /// Input 1, or attribute `axes`, lists dims.
  Axes,
  MatMul,
  Gather,
  Slice,
  Reshape,
  Expand,
  Transpose,
  /// Reads the shape.
  Shape,
  If,
  /// Adds to a list, or joins one.
  Insert,
  Join,
};

Rule ruleOf(const OpImporter &importer) {
  auto isOneOf = [&](llvm::ArrayRef<OpImporter> family) {
    return &importer >= family.begin() && &importer < family.end();
  };
  llvm::StringRef type = importer.type;
  if (type != "SwiGLU" && (isOneOf(mathOps()) || isOneOf(activationOps())))
    return Rule::Elementwise;
  if (importer.domain[0])
    return Rule::None;
  if (type.starts_with("Reduce"))
    return Rule::Axes;
  return llvm::StringSwitch<Rule>(type)
      .Cases("Softmax", "LogSoftmax", "Split", "TopK", "ArgMax", "ArgMin", Rule::Axis)
      .Cases("LayerNormalization", "RMSNormalization", Rule::Axis)
      .Cases("Concat", "GatherElements", Rule::AxisOfAll)
      .Cases("Squeeze", "Unsqueeze", Rule::Axes)
      .Case("MatMul", Rule::MatMul)
      .Case("Gather", Rule::Gather)
      .Case("Slice", Rule::Slice)
      .Case("Reshape", Rule::Reshape)
      .Case("Expand", Rule::Expand)
      .Case("Transpose", Rule::Transpose)
      .Cases("Shape", "Size", Rule::Shape)
      .Case("If", Rule::If)
      .Case("SequenceInsert", Rule::Insert)
      .Case("ConcatFromSequence", Rule::Join)
      .Default(Rule::None);
}

/// Returns 0 .. count - 1 as integers [count].
Value numbers(int64_t count, int64_t offset = 0) {
  return Value::ofKnown(DType::I64, {count}, {0}, Known::affine({count}, offset, {1}, false));
}

/// Returns `value`, repeated for all iterations if it is the same in each.
Value overIterations(Emitter &e, Value value, int64_t count) {
  if (value.perSample)
    return value;
  Shape shape = value.shape;
  shape.insert(shape.begin(), count);
  value = expand(e, unsqueeze(value, {0}), shape);
  value.perSample = true;
  return value;
}

ImportError refusal(const std::string &what) {
  return ImportError(what + ", in a loop over samples. " + perSampleRemedy());
}

/// Imports one node for all iterations.
class PerSample {
public:
  PerSample(NodeContext &node, const OpImporter &importer)
      : node(node), importer(importer), e(node.emitter), type(importer.type) {}

  void run();

private:
  void readInputs();
  const Value &input(size_t i) const { return values[i]; }
  bool has(size_t i) const { return i < values.size() && values[i].isDefined(); }
  int64_t rankOf(size_t i) const { return int64_t(input(i).rank()) - perSample[i]; }
  void align(size_t i, int64_t rank);
  void spread(size_t i);
  void forward(std::optional<int64_t> axis = std::nullopt);
  void finish(Value value);
  std::vector<int64_t> known(size_t i) const;

  void importElementwise();
  void importAxis(bool ofAll);
  void importAxes();
  void importMatMul();
  void importGather();
  void importSlice();
  void importWindow();
  void importReshape();
  void importExpand();
  void importTranspose();
  void importShape();
  void importIf();
  std::vector<Value> runBranch(const Body &branch, bool outcome);
  Value overTaken(const Value &value) const;
  void importInsert();
  void importJoin();

  NodeContext &node;
  const OpImporter &importer;
  Emitter &e;
  const std::string type;
  int64_t samples = 0;
  std::vector<Value> values;   // the inputs with their dim 0; undefined where omitted
  std::vector<bool> perSample; // which of them have the samples in it
};

} // namespace

void PerSample::readInputs() {
  for (size_t i = 0; i < node.numInputs(); ++i) {
    Value value = node.hasInput(i) ? node.anyInput(i) : Value();
    perSample.push_back(value.perSample);
    if (value.perSample && !value.sequence) {
      assert(value.rank() > 0 && "the samples are dim 0");
      if (samples != 0 && value.shape[0] != samples)
        throw refusal("joins values of different loops");
      samples = value.shape[0];
    }
    value.perSample = false;
    values.push_back(std::move(value));
  }
}

std::vector<int64_t> PerSample::known(size_t i) const {
  if (perSample[i])
    throw refusal("input " + std::to_string(i) + " differs between iterations");
  return node.ints(i);
}

/// Gives input `i` rank `rank` without the samples, by dims of size 1 in front of its own.
void PerSample::align(size_t i, int64_t rank) {
  std::vector<unsigned> added(size_t(std::max<int64_t>(0, rank - rankOf(i))));
  std::iota(added.begin(), added.end(), 1u);
  if (perSample[i])
    values[i] = unsqueeze(values[i], added);
}

/// Repeats an input without samples for each of them.
void PerSample::spread(size_t i) {
  if (perSample[i])
    return;
  values[i] = overIterations(e, input(i), samples);
  values[i].perSample = false;
  perSample[i] = true;
}

/// Calls the op's importer on the changed inputs, with attribute `axis` if given.
void PerSample::forward(std::optional<int64_t> axis) {
  std::vector<const Value *> inputs;
  for (const Value &value : values)
    inputs.push_back(value.isDefined() ? &value : nullptr);
  node.importAs(importer, std::move(inputs), axis, /*withoutAxes=*/ruleOf(importer) == Rule::Axes);
  for (size_t i = 0; i < node.numOutputs(); ++i)
    if (node.results()[i].isDefined()) {
      Value value = node.results()[i];
      value.perSample = true;
      node.setOutput(i, std::move(value));
    }
}

void PerSample::finish(Value value) {
  value.perSample = true;
  node.setOutput(0, std::move(value));
}

void PerSample::importElementwise() {
  if (type == "CastLike" && !perSample[0]) // takes the type of the other alone
    return node.importAs(importer, {&input(0), &input(1)}, std::nullopt, false);
  int64_t rank = 0;
  for (size_t i = 0; i < values.size(); ++i)
    rank = has(i) ? std::max(rank, rankOf(i)) : rank;
  bool isKnown = llvm::all_of(values, [](const Value &value) { return value.isKnown(); });
  for (size_t i = 0; i < values.size(); ++i) {
    if (has(i) && !isKnown)
      values[i] = overTaken(values[i]);
    if (has(i))
      align(i, rank);
  }
  forward();
}

/// Returns a number of each sample as one number, if it is the same for all samples that take the
/// branch. Example: the codes from the first one of a sample on, all - 3 i, are 3 for the last.
Value PerSample::overTaken(const Value &value) const {
  if (!e.taken || !value.isKnown() || value.dims != std::vector<unsigned>{0})
    return value;
  std::optional<double> number;
  for (int64_t i = 0; i < value.shape[0]; ++i) {
    if (!(*e.taken)[size_t(i)])
      continue;
    double mine = value.known->realAt({i});
    if (number.value_or(mine) != mine)
      return value;
    number = mine;
  }
  return number ? Value::ofSplat(value.dtype, value.shape, *number) : value;
}

void PerSample::importAxis(bool ofAll) {
  for (size_t i = 0; i < values.size(); ++i)
    if (ofAll && has(i))
      spread(i);
    else if (i > 0 && perSample[i])
      throw refusal("input " + std::to_string(i) + " differs between iterations");
  bool isLast = llvm::StringRef(type).ends_with("Normalization") || type == "TopK" ||
                (llvm::StringRef(type).ends_with("oftmax") && node.opset >= 13);
  bool isSecond = llvm::StringRef(type).ends_with("oftmax") && node.opset < 13;
  int64_t axis = node.attrInt("axis", isLast ? -1 : isSecond ? 1 : 0);
  forward(checkAxis(axis, rankOf(0)) + 1);
}

void PerSample::importAxes() {
  int64_t rank = rankOf(0);
  std::vector<int64_t> given =
                           has(1) || node.hasAttr("axes") ? node.axes(1) : std::vector<int64_t>(),
                       axes;
  int64_t all = type == "Unsqueeze" ? rank + int64_t(given.size()) : rank;
  for (int64_t axis : given)
    axes.push_back(checkAxis(axis, all) + 1);
  // Without axes a reduction takes all dims, and Squeeze those of size 1.
  bool isNone = type == "Unsqueeze" || node.attrInt("noop_with_empty_axes", 0) != 0;
  for (int64_t dim = 1; given.empty() && !isNone && dim <= rank; ++dim)
    if (type != "Squeeze" || input(0).shape[size_t(dim)] == 1)
      axes.push_back(dim);
  if (axes.empty())
    return finish(input(0));
  values.resize(2);
  perSample.resize(2);
  values[1] = Value::ofInts(axes);
  forward();
}

/// numpy's matmul of vectors and matrices, with the samples as the first batch dim.
void PerSample::importMatMul() {
  bool isRow = rankOf(0) == 1, isColumn = rankOf(1) == 1;
  if (isRow)
    values[0] = unsqueeze(input(0), {unsigned(perSample[0])});
  if (isColumn)
    values[1] = unsqueeze(input(1), {unsigned(perSample[1]) + 1});
  int64_t rank = std::max(rankOf(0), rankOf(1));
  align(0, rank);
  align(1, rank);
  Value product = matmul(e, input(0), input(1));
  std::vector<unsigned> units;
  if (isRow)
    units.push_back(product.rank() - 2);
  if (isColumn)
    units.push_back(product.rank() - 1);
  finish(squeeze(e, product, units));
}

void PerSample::importGather() {
  unsigned axis = checkAxis(node.attrInt("axis", 0), rankOf(0));
  requireIndices(input(1));
  if (!perSample[1])
    return finish(gather(e, input(0), input(1), axis + 1));
  if (perSample[0]) { // a row of each sample's own tensor
    if (axis != 0)
      throw refusal("selects along dim " + std::to_string(axis) + " by each sample's own index");
    return finish(gatherNd(e, input(0), unsqueeze(input(1), {input(1).rank()}), 1));
  }
  Value rows = gather(e, input(0), input(1), axis);
  std::vector<unsigned> order(rows.rank());
  std::iota(order.begin(), order.end(), 0u);
  std::rotate(order.begin(), order.begin() + axis, order.begin() + axis + 1);
  finish(transpose(e, rows, order));
}

void PerSample::importSlice() {
  if (perSample[1] || perSample[2])
    return importWindow();
  std::vector<int64_t> axes;
  for (int64_t axis : has(3) ? known(3) : std::vector<int64_t>())
    axes.push_back(checkAxis(axis, rankOf(0)) + 1);
  for (size_t i = 0; !has(3) && i < node.ints(1).size(); ++i)
    axes.push_back(int64_t(i) + 1);
  values.resize(std::max<size_t>(values.size(), 4));
  perSample.resize(values.size());
  values[3] = Value::ofInts(axes);
  forward();
}

/// A slice from a position of each sample, all of one length. Example: rows 3 i to 3 i + 3 of the
/// table of all samples' indices.
void PerSample::importWindow() {
  if (perSample[0] || (has(4) && known(4) != std::vector<int64_t>{1}))
    throw refusal("slices each sample's own tensor at its own position, or in steps");
  auto vectorOf = [&](size_t i) {
    Value bound = cast(e, input(i), DType::I64);
    if (rankOf(i) != 1 || bound.shape.back() != 1)
      throw refusal("slices along several dims at each sample's own position");
    return perSample[i] ? squeeze(e, bound, {1}) : expand(e, bound, {samples});
  };
  Value start = vectorOf(1);
  Value length = overTaken(elementwise(e, "sub", {vectorOf(2), start}));
  if (!start.isKnown() || !length.isSplat())
    throw refusal("takes parts whose lengths follow from data, or differ between samples");
  unsigned axis = has(3) ? checkAxis(known(3)[0], input(0).rank()) : 0;
  int64_t size = length.splatInt();
  if (size < 1 || size > input(0).shape[axis])
    throw refusal("takes parts of length " + std::to_string(size));
  Value places = elementwise(e, "add", {unsqueeze(start, {1}), positions({1, size}, 1)});
  Value rows = gather(e, input(0), places, axis);
  std::vector<unsigned> order(rows.rank());
  std::iota(order.begin(), order.end(), 0u);
  std::rotate(order.begin(), order.begin() + axis, order.begin() + axis + 1);
  finish(transpose(e, rows, order));
}

void PerSample::importReshape() {
  std::vector<int64_t> target = known(1);
  for (size_t i = 0; i < target.size(); ++i)
    if (target[i] == 0 && node.attrInt("allowzero", 0) == 0 && int64_t(i) < rankOf(0))
      target[i] = input(0).shape[i + 1];
  target.insert(target.begin(), samples);
  values[1] = Value::ofInts(target);
  forward();
}

void PerSample::importExpand() {
  std::vector<int64_t> target = known(1);
  align(0, int64_t(target.size()));
  target.insert(target.begin(), size_t(std::max<int64_t>(0, rankOf(0) - int64_t(target.size()))),
                1);
  target.insert(target.begin(), samples);
  values[1] = Value::ofInts(target);
  forward();
}

void PerSample::importTranspose() {
  std::vector<int64_t> reversed;
  for (int64_t dim = rankOf(0); dim-- > 0;)
    reversed.push_back(dim);
  std::vector<int64_t> permutation = node.attrInts("perm", reversed);
  if (permutation.size() != reversed.size() ||
      checkAxes(permutation, rankOf(0)).size() != reversed.size())
    throw ImportError("perm does not list the dims of a tensor of rank " +
                      std::to_string(rankOf(0)));
  std::vector<unsigned> order{0};
  for (int64_t dim : permutation)
    order.push_back(checkAxis(dim, rankOf(0)) + 1);
  finish(transpose(e, input(0), order));
}

void PerSample::importShape() {
  Value one =
      Value::ofSplat(input(0).dtype, Shape(input(0).shape.begin() + 1, input(0).shape.end()), 0);
  node.importAs(importer, {&one}, std::nullopt, false);
}

/// Whether both branches of a condition compute the same. Exporters write nn.EmbeddingBag with
/// another branch for the last sample, which reads to the end of the list: as much as the others.
static bool areEqual(Emitter &e, const std::vector<Value> &a, const std::vector<Value> &b) {
  return llvm::all_of(llvm::zip(a, b), [&](auto pair) {
    const auto &[x, y] = pair;
    return x.perSample && y.perSample && x.shape == y.shape && x.dims == y.dims && !x.isKnown() &&
           !y.isKnown() && !x.sequence && !y.sequence && areSame(e.core(x), e.core(y));
  });
}

/// Runs the branch for a condition of `outcome`. A known condition says which samples take it.
std::vector<Value> PerSample::runBranch(const Body &branch, bool outcome) {
  const Value condition = input(0);
  const auto *around = e.taken;
  std::vector<bool> mine;
  if (condition.isKnown() && condition.dims == std::vector<unsigned>{0}) {
    for (int64_t i = 0; i < condition.shape[0]; ++i)
      mine.push_back((condition.known->intAt({i}) != 0) == outcome &&
                     (!around || (*around)[size_t(i)]));
    e.taken = &mine;
  }
  auto restore = llvm::make_scope_exit([&] { e.taken = around; });
  return node.runBody(branch, {}, "");
}

/// Runs both branches where samples differ, and selects.
void PerSample::importIf() {
  Value condition = overTaken(input(0));
  const Body &yes = node.body("then_branch"), &no = node.body("else_branch");
  std::vector<Value> results;
  if (condition.isSplat()) {
    results = node.runBody(condition.splatReal() != 0 ? yes : no, {}, "");
  } else {
    results = runBranch(yes, true);
    std::vector<Value> others = runBranch(no, false);
    if (results.size() != others.size())
      throw ImportError("has branches of different results");
    others.resize(areEqual(e, results, others) ? 0 : others.size());
    for (auto [result, other] : llvm::zip(results, others)) {
      if (result.sequence || other.sequence)
        throw refusal("makes lists that differ between samples");
      values = {result, other};
      perSample = {result.perSample, other.perSample};
      spread(0);
      spread(1);
      values[0].perSample = values[1].perSample = false;
      if (input(0).shape != input(1).shape)
        throw refusal("has branches of different shapes");
      std::vector<unsigned> behind(input(0).rank() - condition.rank());
      std::iota(behind.begin(), behind.end(), condition.rank());
      result = select(e, unsqueeze(condition, behind), input(0), input(1));
      result.perSample = true;
    }
  }
  for (size_t i = 0; i < results.size(); ++i)
    node.setOutput(i, results[i]);
}

void PerSample::importInsert() {
  if (has(2) || !node.anyInput(0).sequence || isPerSample(node.anyInput(0)))
    throw refusal("adds more than one tensor of each sample to a list");
  std::vector<Value> list = node.sequence(0);
  list.push_back(node.input(1));
  node.setOutput(0, Value::ofSequence(std::move(list)));
}

/// Joins the list of one tensor of each sample, [samples, ...], in which the samples are dim 0.
void PerSample::importJoin() {
  const Value &list = node.anyInput(0);
  if (!list.perSample || list.sequence->size() != 1 || node.attrInt("axis", 0) != 0)
    throw refusal("joins tensors of samples along another dim than the first");
  Value all = list.sequence->front();
  all.perSample = false;
  if (node.attrInt("new_axis", 0) == 0) {
    if (all.rank() < 2)
      throw ImportError("joins tensors without dims");
    Shape shape(all.shape.begin() + 1, all.shape.end());
    shape[0] *= all.shape[0];
    all = reshape(e, all, shape);
  }
  node.setOutput(0, all);
}

void PerSample::run() {
  readInputs();
  switch (ruleOf(importer)) {
  case Rule::Elementwise:
    return importElementwise();
  case Rule::Axis:
    return importAxis(false);
  case Rule::AxisOfAll:
    return importAxis(true);
  case Rule::Axes:
    return importAxes();
  case Rule::MatMul:
    return importMatMul();
  case Rule::Gather:
    return importGather();
  case Rule::Slice:
    return importSlice();
  case Rule::Reshape:
    return importReshape();
  case Rule::Expand:
    return importExpand();
  case Rule::Transpose:
    return importTranspose();
  case Rule::Shape:
    return importShape();
  case Rule::If:
    return importIf();
  case Rule::Insert:
    return importInsert();
  case Rule::Join:
    return importJoin();
  case Rule::None:
    throw refusal("is supported on the whole batch only");
  }
}

bool readsSamples(const NodeContext &node) {
  for (size_t i = 0; i < node.numInputs(); ++i)
    if (node.given(i) && isPerSample(*node.given(i)))
      return true;
  return false;
}

void importPerSample(NodeContext &node, const OpImporter &importer) {
  PerSample(node, importer).run();
}

//===- the loop ------------------------------------------------------------===//

namespace {

/// A value that the loop carries from sample to sample.
enum class Carried { Same, Counter, List };

Carried kindOf(const Value &value, bool isReturned) {
  if (isReturned)
    return Carried::Same;
  if (value.sequence && value.sequence->empty())
    return Carried::List;
  if (value.isSplat() && value.rank() == 0 && value.dtype == DType::I64)
    return Carried::Counter;
  throw ImportError("carries a value from sample to sample. " + perSampleRemedy());
}

/// Whether `value` is `offset` + the number of the sample.
bool countsFrom(const Value &value, int64_t offset) {
  return value.perSample && value.isKnown() && value.rank() == 1 && value.known->isAffine() &&
         value.known->offset() == offset && value.known->coefficients() == std::vector<int64_t>{1};
}

/// Checks the condition after each iteration: it holds until the last one, if there is no trip
/// count.
void checkCondition(const Value &condition, bool hasCount, int64_t count) {
  bool isFine = condition.isKnown();
  if (isFine && hasCount)
    isFine = condition.isSplat() && condition.splatInt() != 0;
  else if (isFine)
    isFine = condition.perSample && condition.shape == Shape{count} && !condition.isSplat();
  for (int64_t i = 0; isFine && !hasCount && i < count; ++i)
    isFine = (condition.known->intAt({i}) != 0) == (i + 1 < count);
  if (!isFine)
    throw ImportError("ends by a condition that differs between samples. " + perSampleRemedy());
}

} // namespace

void importSampleLoop(NodeContext &node, int64_t count) {
  const Body &body = node.body("body");
  size_t numCarried = node.numInputs() - 2;
  Value number = numbers(count);
  number.perSample = true;
  std::vector<Value> arguments{number, Value::ofSplat(DType::Bool, {}, 1)};
  std::vector<Carried> kinds;
  for (size_t i = 0; i < numCarried; ++i) {
    Value value = node.anyInput(2 + i);
    kinds.push_back(kindOf(value, body.outputs[1 + i] == body.inputs[2 + i]));
    if (kinds.back() == Carried::Counter) {
      value = numbers(count, value.splatInt());
      value.perSample = true;
    }
    arguments.push_back(value);
  }
  std::vector<Value> results = node.runBody(body, arguments, "");
  checkCondition(results[0], node.hasInput(0), count);
  for (size_t i = 0; i < numCarried; ++i) {
    const Value &result = results[1 + i];
    if (kinds[i] == Carried::Same) {
      node.setOutput(i, result);
    } else if (kinds[i] == Carried::Counter) {
      int64_t start = node.anyInput(2 + i).splatInt();
      if (!countsFrom(result, start + 1))
        throw ImportError("carries a number from sample to sample. " + perSampleRemedy());
      node.setOutput(i, Value::ofKnown(DType::I64, Known::ofInt(start + count)));
    } else {
      if (!result.sequence || result.sequence->size() != 1)
        throw ImportError("makes a list that does not have one tensor of each sample. " +
                          perSampleRemedy());
      Value list =
          Value::ofSequence({overIterations(node.emitter, result.sequence->front(), count)});
      list.perSample = true;
      node.setOutput(i, list);
    }
  }
  for (size_t k = numCarried; k + 1 < results.size(); ++k) {
    Value all = overIterations(node.emitter, results[1 + k], count);
    all.perSample = false;
    if (node.wantsOutput(k))
      node.setOutput(k, all);
  }
}

} // namespace tbc::frontend
