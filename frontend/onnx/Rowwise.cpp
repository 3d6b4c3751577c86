//===- Rowwise.cpp - Import of nodes that treat each row by itself ---------===//

#include "frontend/onnx/Selection.h"
#include "frontend/onnx/ops/Families.h"
#include "llvm/ADT/StringSwitch.h"
#include <limits>

namespace tbc::frontend {

namespace {

/// The use of selected rows by a node.
enum class Access {
  None,
  /// Each element by itself; several operands broadcast.
  Elementwise,
  /// Multiplies rows by a matrix.
  Product,
  /// Moves whole rows.
  Structure,
  /// Reads sizes.
  Size,
};

Access accessOf(llvm::StringRef type) {
  return llvm::StringSwitch<Access>(type)
      .Cases("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", Access::Elementwise)
      .Cases("Sigmoid", "Tanh", "Erf", "Relu", "Gelu", "Swish", "Mish", Access::Elementwise)
      .Cases("HardSwish", "HardSigmoid", "LeakyRelu", "Elu", "Softplus", Access::Elementwise)
      .Cases("Exp", "Log", "Sqrt", "Reciprocal", "Neg", "Abs", "Clip", Access::Elementwise)
      .Cases("FastGelu", "QuickGelu", "BiasGelu", Access::Elementwise)
      .Cases("MatMul", "Gemm", Access::Product)
      .Cases("Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", Access::Structure)
      .Cases("Transpose", "Expand", "Slice", "Split", "Concat", Access::Structure)
      .Cases("Gather", "LayerNormalization", "RMSNormalization", "Softmax", Access::Structure)
      .Case("Shape", Access::Size)
      .Default(Access::None);
}

/// The dim of `after` for dim `dim` of `before`, if both have the same elements in row-major
/// order.
std::optional<unsigned> sameDim(const Shape &before, unsigned dim, const Shape &after) {
  int64_t inFront = 1, product = 1;
  for (unsigned i = 0; i < dim; ++i)
    inFront *= before[i];
  for (unsigned i = 0; i < after.size(); ++i) {
    if (product == inFront && after[i] == before[dim])
      return i;
    product *= after[i];
  }
  return std::nullopt;
}

} // namespace

/// Imports one node on the rows of all tokens. Members say which of its inputs have selected rows.
struct Selections::Rowwise {
  Rowwise(const Selections &selections, const onnx::NodeProto &node, NodeContext &context,
          const OpImporter &importer)
      : selections(selections), node(node), context(context), importer(importer),
        type(node.op_type()), access(accessOf(type)), lead(find(0)) {}

  Selected run();

private:
  const Selected *find(int input) const { return selections.find(node, input); }
  ImportError refuse(const std::string &what) const;
  void readInputs();
  bool hasOnlySizes() const;
  void importSizes();
  void checkStructure();
  void importElementwise();
  const Selected *readOperands(unsigned back, std::optional<Value> &scale);
  void readOperand(int input, unsigned back) const;
  void addToSource(const Selected *scaled);
  void importProduct();
  void checkAxes();
  void requireAxis(int64_t axis) const;
  void importStructure();
  void moveDim(const Shape &after);

  const Selections &selections;
  const onnx::NodeProto &node;
  NodeContext &context;
  const OpImporter &importer;
  const std::string type;
  const Access access;
  const Selected *const lead; // the first input; null: it has no selected rows
  Selected result;
  int first = 0, count = 0; // the first input with selected rows, and how many have them
  Shape before;             // of the first input, if the node moves or repeats its elements
};

ImportError Selections::Rowwise::refuse(const std::string &what) const {
  return ImportError(what + " rows that node '" + result.from->node +
                     "' selects by data, whose number is not known; only ops that treat each "
                     "row by itself are supported between the selection and the sum over "
                     "tokens. Export the experts in another form (all of them on all tokens "
                     "with a weight that is 0 for those not chosen, or batched weights)");
}

void Selections::Rowwise::readInputs() {
  for (int i = node.input_size() - 1; i >= 0; --i)
    if (const Selected *input = find(i)) {
      if (result.from && input->from != result.from)
        throw ImportError("joins rows that nodes '" + input->from->node + "' and '" +
                          result.from->node + "' select by data");
      result = *input;
      first = i;
      ++count;
    }
}

/// Whether all inputs are known, or sizes of selected rows.
bool Selections::Rowwise::hasOnlySizes() const {
  bool onlySizes = true;
  for (int i = 0; i < node.input_size(); ++i) {
    const Selected *input = find(i);
    onlySizes = onlySizes && (input ? input->kind == Kind::Sizes
                                    : node.input(i).empty() || context.input(i).isKnown());
  }
  return onlySizes;
}

/// Sizes of selected rows are known, and may only be used as shapes.
void Selections::Rowwise::importSizes() {
  importer.import(context);
  for (const Value &value : context.results())
    if (value.isDefined() && (!value.isKnown() || kernels::isFloat(value.dtype) ||
                              saturatedElements(value.shape) > ScanLimits().rank))
      throw refuse("computes on the number of");
  result.kind = Kind::Sizes;
  result.scale.reset();
}

/// Checks the inputs of a node that moves or repeats elements of its first one.
void Selections::Rowwise::checkStructure() {
  if (!lead || lead->kind == Kind::Sizes)
    throw refuse("repeats or moves a value by the number of");
  result = *lead;
  before = context.input(0).shape;
  for (int i = 1; i < node.input_size(); ++i)
    if (const Selected *other = find(i)) {
      bool isShape = other->kind == Kind::Sizes && (type == "Reshape" || type == "Expand");
      bool isPart = type == "Concat" && other->kind == lead->kind && other->dim == lead->dim &&
                    lead->kind == Kind::Indices;
      if (!isShape && !isPart)
        throw refuse("reads");
    } else if (type == "Concat") {
      throw refuse("joins other values to");
    }
}

/// Checks operand `input`. Counted from the last dim, the rows of all operands are along dim
/// `back`.
void Selections::Rowwise::readOperand(int input, unsigned back) const {
  const Value &value = context.input(input);
  const Selected *operand = find(input);
  if (!operand) {
    if (value.rank() >= back && value.shape[value.rank() - back] != 1)
      throw refuse("combines other rows with");
    return;
  }
  if (operand->kind == Kind::Sizes || value.rank() - operand->dim != back)
    throw refuse("broadcasts over");
  bool isIndex = operand->kind == Kind::Indices;
  if (isIndex && !((type == "Mul" && count == 1 && input < 2 && node.input_size() == 2 &&
                    context.input(1 - input).isSplat()) ||
                   (type == "Add" && count == 2 && find(1 - input)->kind == Kind::Indices)))
    throw refuse("computes with the indices of");
  if (operand->isSum)
    throw refuse("goes on with sums of");
}

/// Checks the operands. Returns the last weighted one or null, and sets the `scale` of a product.
const Selections::Selected *Selections::Rowwise::readOperands(unsigned back,
                                                              std::optional<Value> &scale) {
  const Selected *scaled = nullptr;
  for (int i = 0; i < node.input_size(); ++i) {
    if (node.input(i).empty())
      continue;
    readOperand(i, back);
    const Selected *input = find(i);
    if (!input || !input->scale)
      continue;
    if (type == "Mul")
      scale = scale ? elementwise(context.emitter, "mul", {*scale, *input->scale}) : *input->scale;
    scaled = input;
  }
  return scaled;
}

/// acc[rows] + weight * f(x): the other operand is the source of these rows.
void Selections::Rowwise::addToSource(const Selected *scaled) {
  const int mine = find(0) == scaled ? 0 : 1;
  const Selected *other = count == 2 ? find(1 - mine) : nullptr;
  if (type != "Add" || !other || other->scale || other->origin.empty() || other == scaled)
    throw refuse("is not a weighted sum of");
  if (context.input(mine).shape != context.input(1 - mine).shape)
    throw refuse("broadcasts over");
  context.setOutput(0, context.input(mine));
  result = *scaled;
  result.origin = other->origin;
  result.isSum = true;
}

void Selections::Rowwise::importElementwise() {
  const unsigned back = context.input(first).rank() - result.dim;
  std::optional<Value> scale;
  const Selected *scaled = readOperands(back, scale);
  if (scaled && type != "Mul") {
    addToSource(scaled);
    return;
  }
  importer.import(context);
  result.scale = scale;
  result.origin.clear();
  result.dim = context.results()[0].rank() - back;
}

void Selections::Rowwise::importProduct() {
  const Value &rows = context.input(0);
  bool isGemm = type == "Gemm";
  bool fits = lead && count == 1 && lead->kind == Kind::Rows && rows.rank() >= 2 &&
              lead->dim + 1 < rows.rank() && context.input(1).rank() == 2;
  if (isGemm && context.hasInput(2))
    fits = fits && (context.input(2).rank() < 2 || context.input(2).shape[0] == 1);
  if (!fits || (isGemm && context.attrInt("transA", 0) != 0))
    throw refuse("multiplies across");
  importer.import(context);
}

/// Refuses a node that works along `axis` if the rows lie on it.
void Selections::Rowwise::requireAxis(int64_t axis) const {
  if (checkAxis(axis, before.size()) == result.dim)
    throw refuse("works across");
}

/// Refuses a node that works along the rows, or on weighted rows as a whole.
void Selections::Rowwise::checkAxes() {
  if (type == "Slice") {
    std::vector<int64_t> starts = context.ints(1), ends = context.ints(2), axes, steps;
    axes = context.hasInput(3) ? context.ints(3) : axes;
    steps = context.hasInput(4) ? context.ints(4) : std::vector<int64_t>(starts.size(), 1);
    for (size_t i = 0; i < starts.size(); ++i) {
      bool isAll = starts[i] == 0 && i < ends.size() && i < steps.size() && steps[i] == 1 &&
                   ends[i] >= std::numeric_limits<int32_t>::max();
      if (!isAll)
        requireAxis(i < axes.size() ? axes[i] : int64_t(i));
    }
  } else if (type == "Split" || type == "Gather" || type == "Concat") {
    requireAxis(context.attrInt("axis", 0));
  } else if (type == "Softmax") {
    requireAxis(context.attrInt("axis", -1));
  } else if (type == "LayerNormalization" || type == "RMSNormalization") {
    if (checkAxis(context.attrInt("axis", -1), before.size()) <= result.dim)
      throw refuse("works across");
  }
  if (result.scale && (type == "Softmax" || type == "LayerNormalization" ||
                       type == "RMSNormalization" || type == "Gather"))
    throw refuse("goes on with weighted sums of");
}

/// Sets the dim of the rows in a result of shape `after`.
void Selections::Rowwise::moveDim(const Shape &after) {
  const bool reshapes =
      type == "Reshape" || type == "Flatten" || type == "Squeeze" || type == "Unsqueeze";
  if (type == "Transpose") {
    std::vector<int64_t> permutation = context.attrInts("perm", {});
    for (size_t i = permutation.empty() ? before.size() : 0; i < before.size(); ++i)
      if (permutation[i] == int64_t(lead->dim))
        result.dim = i;
    if (permutation.empty())
      result.dim = before.size() - 1 - lead->dim;
  } else if (type == "Expand") {
    result.dim += after.size() - before.size();
  } else if (type == "Gather") {
    if (checkAxis(context.attrInt("axis", 0), before.size()) < int64_t(result.dim))
      result.dim += context.input(1).rank() - 1;
  } else if (reshapes) {
    std::optional<unsigned> dim = sameDim(before, lead->dim, after);
    if (!dim)
      throw refuse("reshapes");
    result.dim = *dim;
  }
}

void Selections::Rowwise::importStructure() {
  checkAxes();
  if (type == "Cast" && result.scale)
    result.scale = cast(context.emitter, *result.scale,
                        dtypeOfOnnx(context.attrInt("to", 1), "attribute 'to'"));
  importer.import(context);
  moveDim(context.results()[0].shape);
  for (const Value &value : context.results())
    if (value.isDefined() &&
        (value.shape[result.dim] != before[lead->dim] || (result.isSum && value.shape != before)))
      throw refuse("reshapes");
}

Selections::Selected Selections::Rowwise::run() {
  readInputs();
  if (hasOnlySizes() || access == Access::Size) {
    importSizes();
    return result;
  }
  if (access == Access::None ||
      (!node.domain().empty() && !llvm::StringRef(type).ends_with("Gelu")))
    throw refuse("reads");
  if (access == Access::Structure)
    checkStructure();
  if (access == Access::Elementwise) {
    importElementwise();
    return result;
  }
  // A sum may only be reshaped to its own shape.
  if (result.isSum ? type != "Reshape" && type != "Identity"
                   : access == Access::Product && result.scale)
    throw refuse("goes on with weighted sums of");
  if (!result.isSum)
    result.origin.clear();
  access == Access::Product ? importProduct() : importStructure();
  return result;
}

Selections::Selected Selections::importRowwise(const onnx::NodeProto &node, NodeContext &context,
                                               const OpImporter &importer) const {
  return Rowwise(*this, node, context, importer).run();
}

} // namespace tbc::frontend
