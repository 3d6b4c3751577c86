//===- Selection.cpp - Import of rows selected by data ---------------------===//

#include "frontend/onnx/Selection.h"

#include "frontend/onnx/ops/Families.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <limits>

namespace tbc::frontend {

namespace {

/// During import, the index a * token + b * choice is represented as a * tokenCode + b *
/// choiceCode. All arithmetic on indices is linear, so the importers of the nodes compute on the
/// codes.
constexpr int64_t tokenCode = 1, choiceCode = int64_t(1) << 31;

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

bool isOne(const Shape &shape, unsigned except) {
  for (unsigned i = 0; i < shape.size(); ++i)
    if (i != except && shape[i] != 1)
      return false;
  return true;
}

/// A matrix [b, a] as [a, b].
Value swapped(Emitter &emitter, const Value &matrix) { return transpose(emitter, matrix, {1, 0}); }

} // namespace

const Selections::Selected *Selections::find(const onnx::NodeProto &node, int input) const {
  if (input >= node.input_size())
    return nullptr;
  auto it = selected.find(node.input(input));
  return it == selected.end() ? nullptr : &it->second;
}

bool Selections::concerns(const onnx::NodeProto &node, const NodeContext &context) const {
  if (node.domain().empty() && node.op_type() == "NonZero")
    return find(node, 0) || !context.input(0).isKnown();
  if (selected.empty())
    return false;
  for (int i = 0; i < node.input_size(); ++i)
    if (find(node, i))
      return true;
  return false;
}

void Selections::requireWhole(const std::string &name) const {
  auto it = selected.find(name);
  if (it != selected.end())
    throw ImportError("the number of rows of '" + name + "' depends on data: node '" +
                      it->second.from->node +
                      "' selects them; shapes must follow from the shapes "
                      "of the inputs");
}

void Selections::import(const GraphNode &graphNode, NodeContext &context,
                        const OpImporter &importer) {
  const onnx::NodeProto &node = *graphNode.proto;
  Selected result;
  bool isIndexed = find(node, 1) && find(node, 1)->kind == Kind::Indices && !find(node, 0);
  std::string type = node.op_type();
  if (type == "NonZero" && !find(node, 0)) {
    result = start(context);
    result.from = std::make_shared<const Selection>(Selection{graphNode.name, result.from->mask});
  } else if (isIndexed && (type == "Gather" || type == "GatherND")) {
    result = gather(node, context);
  } else if (isIndexed && (type == "ScatterND" || type == "ScatterElements")) {
    scatter(node, context);
    return;
  } else {
    result = importRowwise(node, context, importer);
  }
  for (const std::string &output : node.output())
    if (!output.empty())
      selected[output] = result;
}

/// Returns the mask of a NonZero; its output is the codes of the coordinates. The tokens are along
/// the dim that depends on the batch, or the longer one.
Selections::Selected Selections::start(NodeContext &context) const {
  Emitter &e = context.emitter;
  Value mask = context.input(0);
  if (mask.rank() != 1 && mask.rank() != 2)
    throw ImportError("the number of its results depends on data, which is supported only for a "
                      "mask of tokens, or of tokens and their choices. Export the model with "
                      "shapes that follow from the shapes of the inputs");
  if (mask.dtype != DType::Bool)
    mask = compare(e, "ne", mask, number(mask, 0));
  unsigned tokens = 0;
  if (mask.rank() == 2) {
    bool first = e.dependsOnBatch(mask.shape[0]), second = e.dependsOnBatch(mask.shape[1]);
    tokens = first != second ? second : mask.shape[1] > mask.shape[0];
  }
  std::vector<int64_t> codes{tokenCode};
  if (mask.rank() == 2)
    codes.insert(tokens == 0 ? codes.end() : codes.begin(), choiceCode);
  int64_t rank = mask.rank(), count = mask.shape[tokens];
  Selected result;
  result.kind = Kind::Indices;
  result.dim = 1;
  if (rank == 1)
    mask = unsqueeze(mask, {1});
  else if (tokens == 1)
    mask = swapped(e, mask);
  if (mask.shape[1] >= choiceCode || count >= choiceCode)
    throw ImportError("selects among too many elements");
  result.from = std::make_shared<const Selection>(Selection{"", mask});
  context.setOutput(
      0, Value::ofKnown(DType::I64, {rank, count}, {0}, Known::ofInts({rank}, std::move(codes))));
  return result;
}

/// Gathers rows of a whole value. Rows of the tokens are the value itself; a number per token and
/// choice becomes a factor of the row.
Selections::Selected Selections::gather(const onnx::NodeProto &node, NodeContext &context) const {
  Emitter &e = context.emitter;
  const Value &data = context.input(0);
  Selected result = *find(node, 1);
  result.kind = Kind::Rows;
  const Selection &from = *result.from;
  bool isNd = node.op_type() == "GatherND";
  Value index = context.input(1);
  auto refuse = [&]() -> ImportError {
    return ImportError("reads " + printShape(data.shape, e.marker) + " at rows that node '" +
                       from.node +
                       "' selects by data in a way that is not supported; rows of "
                       "tokens, and one number for each token and choice, are");
  };
  std::vector<int64_t> codes{};
  unsigned axis = 0;
  if (isNd) {
    if (context.attrInt("batch_dims", 0) != 0 || index.rank() != 2 || result.dim != 0)
      throw refuse();
    codes = fullInts(squeeze(e, slice(e, index, 0, 0, 1, 1), {0}));
    index = squeeze(e, slice(e, index, 1, 0, 1, 1), {1});
  } else {
    axis = checkAxis(context.attrInt("axis", 0), data.rank());
    if (!isOne(index.shape, result.dim) || !index.isSplat())
      throw refuse();
    codes = {index.splatInt()};
  }
  Shape place = index.shape, rest(data.shape.begin() + axis + codes.size(), data.shape.end());
  if (codes == std::vector<int64_t>{tokenCode} && data.shape[axis] == from.tokens()) {
    std::vector<unsigned> added;
    for (unsigned i = 0; i < place.size(); ++i)
      if (i != result.dim)
        added.push_back(axis + i);
    context.setOutput(0, unsqueeze(data, added));
    result.dim += axis;
    if (axis == 0 && place.size() == 1)
      result.origin = node.input(0);
    return result;
  }
  // Views the data as a matrix of tokens and choices; its other dims have size 1.
  Shape matrix{from.tokens(), from.choices()};
  bool isSwapped = false;
  if (codes.size() == 2) {
    isSwapped = codes[0] == choiceCode;
    if (!(codes[isSwapped] == tokenCode && codes[!isSwapped] == choiceCode) ||
        data.shape[isSwapped] != matrix[0] || data.shape[!isSwapped] != matrix[1])
      throw refuse();
  } else {
    isSwapped = codes[0] == tokenCode + matrix[0] * choiceCode;
    if (!isSwapped && codes[0] != matrix[1] * tokenCode + choiceCode)
      throw refuse();
  }
  if (saturatedElements(data.shape) != matrix[0] * matrix[1])
    throw refuse();
  result.scale =
      isSwapped ? swapped(e, reshape(e, data, {matrix[1], matrix[0]})) : reshape(e, data, matrix);
  Shape shape(data.shape.begin(), data.shape.begin() + axis);
  shape.insert(shape.end(), place.begin(), place.end());
  shape.insert(shape.end(), rest.begin(), rest.end());
  context.setOutput(0, Value::ofSplat(data.dtype, shape, 1));
  result.dim += axis;
  return result;
}

/// Adds rows to the rows of their tokens. If the node replaces rows, each token has one (ONNX
/// forbids equal indices), and the replaced row is 0 or part of the new row.
void Selections::scatter(const onnx::NodeProto &node, NodeContext &context) const {
  Emitter &e = context.emitter;
  const Selected &index = *find(node, 1), *rows = find(node, 2);
  const Value &data = context.input(0), &indices = context.input(1);
  const Selection &from = *index.from;
  bool isNd = node.op_type() == "ScatterND";
  std::string mode = context.attrText("reduction", "none");
  if (!rows || rows->from != index.from || rows->kind != Kind::Rows || rows->dim != 0 ||
      index.dim != 0 || !indices.isSplat() || indices.splatInt() != tokenCode || data.rank() == 0 ||
      data.shape[0] != from.tokens() ||
      (isNd ? indices.rank() != 2 || indices.shape[1] != 1
            : context.attrInt("axis", 0) != 0 || indices.shape != context.input(2).shape) ||
      context.input(2).shape != data.shape || context.input(2).dtype != data.dtype ||
      (mode != "none" && mode != "add"))
    throw ImportError("writes rows that node '" + from.node +
                      "' selects by data in a way that is "
                      "not supported; rows added to those of their own tokens are");
  bool adds = mode == "add", isSum = rows->isSum && rows->origin == node.input(0) && !adds;
  if (rows->isSum && !isSum)
    throw ImportError("writes sums of rows that node '" + from.node +
                      "' selects by data back to another value than they were read from");
  Value scale = rows->scale ? *rows->scale : Value::ofSplat(data.dtype, from.mask.shape, 1);
  Value chosen = select(e, from.mask, scale, number(scale, 0));
  std::vector<unsigned> behind;
  for (unsigned i = 1; i < data.rank(); ++i)
    behind.push_back(i);
  auto perToken = [&](const Value &value, const char *reduction) {
    return unsqueeze(reduce(e, reduction, value, {1}, false), behind);
  };
  Value sum = elementwise(e, "mul", {context.input(2), perToken(chosen, "reduce_sum")});
  bool ontoZero = data.isSplat() && data.splatReal() == 0;
  if (adds || isSum || ontoZero) {
    context.setOutput(0, elementwise(e, "add", {data, sum}));
    return;
  }
  Value hit = perToken(select(e, from.mask, number(scale, 1), number(scale, 0)), "reduce_sum");
  context.setOutput(0, select(e, compare(e, "ne", hit, number(hit, 0)), sum, data));
}

/// A node that treats each row by itself: imported on the rows of all tokens.
Selections::Selected Selections::importRowwise(const onnx::NodeProto &node, NodeContext &context,
                                               const OpImporter &importer) const {
  Emitter &e = context.emitter;
  std::string type = node.op_type();
  Access access = accessOf(type);
  Selected result;
  unsigned first = node.input_size(), count = 0;
  for (int i = node.input_size() - 1; i >= 0; --i)
    if (const Selected *input = find(node, i)) {
      if (result.from && input->from != result.from)
        throw ImportError("joins rows that nodes '" + input->from->node + "' and '" +
                          result.from->node + "' select by data");
      result = *input;
      first = i;
      ++count;
    }
  auto refuse = [&](const std::string &what) -> ImportError {
    return ImportError(what + " rows that node '" + result.from->node +
                       "' selects by data, whose number is not known; only ops that treat each "
                       "row by itself are supported between the selection and the sum over "
                       "tokens. Export the experts in another form (all of them on all tokens "
                       "with a weight that is 0 for those not chosen, or batched weights)");
  };
  // Sizes of selected rows are known, and may only be used as shapes.
  bool onlySizes = true;
  for (int i = 0; i < node.input_size(); ++i) {
    const Selected *input = find(node, i);
    onlySizes = onlySizes && (input ? input->kind == Kind::Sizes
                                    : node.input(i).empty() || context.input(i).isKnown());
  }
  if (onlySizes || access == Access::Size) {
    importer.import(context);
    for (const Value &value : context.results())
      if (value.isDefined() && (!value.isKnown() || kernels::isFloat(value.dtype) ||
                                saturatedElements(value.shape) > ScanLimits().rank))
        throw refuse("computes on the number of");
    result.kind = Kind::Sizes;
    result.scale.reset();
    return result;
  }
  if (access == Access::None ||
      (!node.domain().empty() && !llvm::StringRef(type).ends_with("Gelu")))
    throw refuse("reads");

  const Selected *lead = find(node, 0);
  Shape before;
  if (access == Access::Structure) {
    if (!lead || lead->kind == Kind::Sizes)
      throw refuse("repeats or moves a value by the number of");
    result = *lead;
    before = context.input(0).shape;
    for (int i = 1; i < node.input_size(); ++i)
      if (const Selected *other = find(node, i)) {
        bool isShape = other->kind == Kind::Sizes && (type == "Reshape" || type == "Expand");
        bool isPart = type == "Concat" && other->kind == lead->kind && other->dim == lead->dim &&
                      lead->kind == Kind::Indices;
        if (!isShape && !isPart)
          throw refuse("reads");
      } else if (type == "Concat") {
        throw refuse("joins other values to");
      }
  }
  auto requireAxis = [&](int64_t axis) {
    if (checkAxis(axis, before.size()) == result.dim)
      throw refuse("works across");
  };

  if (access == Access::Elementwise) {
    // Counted from the last dim, the rows of all operands are along one dim.
    unsigned back = context.input(first).rank() - result.dim;
    const Selected *scaled = nullptr;
    std::optional<Value> scale;
    for (int i = 0; i < node.input_size(); ++i) {
      if (node.input(i).empty())
        continue;
      const Value &value = context.input(i);
      const Selected *input = find(node, i);
      if (!input) {
        if (value.rank() >= back && value.shape[value.rank() - back] != 1)
          throw refuse("combines other rows with");
        continue;
      }
      if (input->kind == Kind::Sizes || value.rank() - input->dim != back)
        throw refuse("broadcasts over");
      bool isIndex = input->kind == Kind::Indices;
      if (isIndex && !((type == "Mul" && count == 1 && i < 2 && node.input_size() == 2 &&
                        context.input(1 - i).isSplat()) ||
                       (type == "Add" && count == 2 && find(node, 1 - i)->kind == Kind::Indices)))
        throw refuse("computes with the indices of");
      if (input->isSum)
        throw refuse("goes on with sums of");
      if (input->scale) {
        if (type == "Mul")
          scale = scale ? elementwise(e, "mul", {*scale, *input->scale}) : *input->scale;
        scaled = input;
      }
    }
    if (scaled && type != "Mul") {
      // acc[rows] + weight * f(x): the other operand is the source of these rows.
      const Selected *other = count == 2 ? find(node, find(node, 0) == scaled ? 1 : 0) : nullptr;
      if (type != "Add" || !other || other->scale || other->origin.empty() || other == scaled)
        throw refuse("is not a weighted sum of");
      int mine = find(node, 0) == scaled ? 0 : 1;
      if (context.input(mine).shape != context.input(1 - mine).shape)
        throw refuse("broadcasts over");
      context.setOutput(0, context.input(mine));
      result = *scaled;
      result.origin = other->origin;
      result.isSum = true;
      (void)context.input(1 - mine);
      return result;
    }
    importer.import(context);
    result.scale = scale;
    result.origin.clear();
    result.dim = context.results()[0].rank() - back;
    return result;
  }
  // A sum may only be reshaped to its own shape.
  if (result.isSum ? type != "Reshape" && type != "Identity"
                   : access == Access::Product && result.scale)
    throw refuse("goes on with weighted sums of");
  if (!result.isSum)
    result.origin.clear();
  if (access == Access::Product) {
    const Value &rows = context.input(0);
    bool isGemm = type == "Gemm";
    bool fits = lead && count == 1 && lead->kind == Kind::Rows && rows.rank() >= 2 &&
                lead->dim + 1 < rows.rank() && context.input(1).rank() == 2;
    if (isGemm && context.hasInput(2))
      fits = fits && (context.input(2).rank() < 2 || context.input(2).shape[0] == 1);
    if (!fits || (isGemm && context.attrInt("transA", 0) != 0))
      throw refuse("multiplies across");
    importer.import(context);
    return result;
  }

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
  bool isWeighted = result.scale.has_value();
  if (isWeighted && (type == "Softmax" || type == "LayerNormalization" ||
                     type == "RMSNormalization" || type == "Gather"))
    throw refuse("goes on with weighted sums of");
  if (type == "Cast" && isWeighted)
    result.scale = cast(e, *result.scale, dtypeOfOnnx(context.attrInt("to", 1), "attribute 'to'"));
  importer.import(context);
  const Shape &after = context.results()[0].shape;
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
    int64_t axis = checkAxis(context.attrInt("axis", 0), before.size());
    if (axis < int64_t(result.dim))
      result.dim += context.input(1).rank() - 1;
  } else if (std::optional<unsigned> dim = sameDim(before, lead->dim, after);
             dim &&
             (type == "Reshape" || type == "Flatten" || type == "Squeeze" || type == "Unsqueeze")) {
    result.dim = *dim;
  } else if (type == "Reshape" || type == "Flatten" || type == "Squeeze" || type == "Unsqueeze") {
    throw refuse("reshapes");
  }
  for (const Value &value : context.results())
    if (value.isDefined() &&
        (value.shape[result.dim] != before[lead->dim] || (result.isSum && value.shape != before)))
      throw refuse("reshapes");
  return result;
}

} // namespace tbc::frontend
