//===- Selection.cpp - Import of rows selected by data ---------------------===//

#include "frontend/onnx/Selection.h"

#include "frontend/onnx/ops/Families.h"

#include "llvm/ADT/STLExtras.h"

namespace tbc::frontend {

namespace {

/// During import, the index a * token + b * choice is represented as a * tokenCode + b *
/// choiceCode. All arithmetic on indices is linear, so the importers of the nodes compute on the
/// codes.
constexpr int64_t tokenCode = 1, choiceCode = int64_t(1) << 31;

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
  } else if (type == "Split" && splitsAll(node, context, importer)) {
    return; // the parts are known
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

/// Imports a Split of the numbers of selected rows into single ones: an exporter has unrolled a
/// loop over them, so their number is the one of its example. If it is that of all rows, all are
/// selected, and the parts are 0, 1, ... Returns false for other nodes. Example: experts with
/// tokens, NonZero(counts > 0), as 4 parts of 1 where there are 4 experts.
bool Selections::splitsAll(const onnx::NodeProto &node, NodeContext &context,
                           const OpImporter &importer) const {
  const Selected *rows = find(node, 0);
  if (!rows || rows->kind != Kind::Indices || find(node, 1))
    return false;
  const Value &numbers = context.input(0);
  if (checkAxis(context.attrInt("axis", 0), numbers.rank()) != rows->dim || !numbers.isSplat() ||
      numbers.splatInt() != tokenCode || rows->from->choices() != 1)
    return false;
  int64_t parts = int64_t(context.numOutputs()), all = rows->from->tokens();
  if (parts != all)
    throw ImportError("has one part for each of the " + std::to_string(parts) + " rows of " +
                      std::to_string(all) + " that node '" + rows->from->node +
                      "' selects in the example of the export: the exporter has unrolled a loop "
                      "over them, such as one over the experts that got tokens. Export with an "
                      "example that selects all, such as a longer one");
  Value counted = positions(numbers.shape, rows->dim);
  Value sizes = Value::ofInts(std::vector<int64_t>(size_t(parts), 1));
  context.importAs(importer, {&counted, &sizes}, std::nullopt, /*withoutAxes=*/false);
  return true;
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

} // namespace tbc::frontend
