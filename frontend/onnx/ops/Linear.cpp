//===- Linear.cpp - Matmuls and einsums ------------------------------------===//

#include "frontend/onnx/ops/Families.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <map>

namespace tbc::frontend {

namespace {

/// Returns `value`, with dims `labels`, permuted to the dims `wanted`; missing dims have size 1.
Value arranged(Emitter &emitter, const Value &value, const std::vector<int64_t> &labels,
               const std::vector<int64_t> &wanted) {
  std::vector<unsigned> permutation, added;
  for (auto [i, label] : llvm::enumerate(wanted)) {
    auto it = llvm::find(labels, label);
    if (it == labels.end())
      added.push_back(i);
    else
      permutation.push_back(it - labels.begin());
  }
  return unsqueeze(transpose(emitter, value, permutation), added);
}

/// The einsum of integers: broadcast products, summed.
Value integerEinsum(Emitter &emitter, const Value &a, const std::vector<int64_t> &aLabels,
                    const Value &b, const std::vector<int64_t> &bLabels,
                    const std::vector<int64_t> &outLabels) {
  std::vector<int64_t> all = outLabels;
  std::vector<unsigned> summed;
  for (const auto *labels : {&aLabels, &bLabels})
    for (int64_t label : *labels)
      if (!llvm::is_contained(all, label)) {
        summed.push_back(all.size());
        all.push_back(label);
      }
  Value product = elementwise(
      emitter, "mul", {arranged(emitter, a, aLabels, all), arranged(emitter, b, bLabels, all)});
  return summed.empty() ? product : reduce(emitter, "reduce_sum", product, summed, false);
}

} // namespace

Value einsum(Emitter &emitter, const Value &a, const std::vector<int64_t> &aLabels, const Value &b,
             const std::vector<int64_t> &bLabels, const std::vector<int64_t> &outLabels) {
  if (a.dtype == DType::Bool || a.dtype != b.dtype)
    throw ImportError("multiplies matrices of " + std::string(kernels::name(a.dtype)) + " and " +
                      std::string(kernels::name(b.dtype)));
  if (!kernels::isFloat(a.dtype))
    return integerEinsum(emitter, a, aLabels, b, bLabels, outLabels);
  // A summed dim along which both operands repeat must be materialized once, to count its terms.
  auto coreLabels = [](const Value &value, const std::vector<int64_t> &labels) {
    std::vector<int64_t> result;
    for (unsigned dim : value.dims)
      result.push_back(labels[dim]);
    return result;
  };
  Value left = emitter.withoutUnitDims(a), right = emitter.withoutUnitDims(b);
  std::vector<int64_t> rightCore = coreLabels(right, bLabels);
  std::vector<unsigned> leftDims = left.dims;
  for (unsigned dim = 0; dim < left.rank(); ++dim)
    if (left.coreDim(dim) < 0 && left.shape[dim] != 1 &&
        !llvm::is_contained(outLabels, aLabels[dim]) &&
        !llvm::is_contained(rightCore, aLabels[dim]))
      leftDims.push_back(dim);
  llvm::sort(leftDims);
  std::vector<int64_t> leftLabels;
  for (unsigned dim : leftDims)
    leftLabels.push_back(aLabels[dim]);

  std::map<int64_t, int64_t> sizes;
  auto addSizes = [&](const Value &value, const std::vector<int64_t> &labels) {
    for (unsigned dim = 0; dim < value.rank(); ++dim)
      sizes[labels[dim]] = std::max(sizes[labels[dim]], value.shape[dim]);
  };
  addSizes(left, aLabels);
  addSizes(right, bLabels);
  Shape shape, coreShape;
  std::vector<unsigned> dims;
  std::vector<int64_t> coreOut;
  for (auto [dim, label] : llvm::enumerate(outLabels)) {
    shape.push_back(sizes[label]);
    if (!llvm::is_contained(leftLabels, label) && !llvm::is_contained(rightCore, label))
      continue;
    dims.push_back(dim);
    coreOut.push_back(label);
    coreShape.push_back(sizes[label]);
  }
  mlir::Value core = emitter.createOne(
      "einsum", {emitter.at(left, leftDims), emitter.core(right)}, emitter.type(a.dtype, coreShape),
      {emitter.integers("lhs_labels", leftLabels), emitter.integers("rhs_labels", rightCore),
       emitter.integers("out_labels", coreOut)});
  return Value::ofCore(a.dtype, shape, dims, core);
}

/// Returns `value` over the samples of `other` where it repeats, as zeros of the exported batch do.
static Value overSamplesOf(Emitter &emitter, const Value &value, const Value &other) {
  Shape shape = value.shape;
  for (unsigned dim = 0; value.rank() == other.rank() && dim + 2 < value.rank(); ++dim)
    shape[dim] = other.shape[dim];
  return overSamples(value, shape, emitter.marker);
}

Value matmul(Emitter &emitter, const Value &givenA, const Value &givenB) {
  Value a = overSamplesOf(emitter, givenA, givenB), b = overSamplesOf(emitter, givenB, givenA);
  if (a.rank() == 0 || b.rank() == 0)
    throw ImportError("multiplies a scalar as a matrix");
  bool rowVector = a.rank() == 1, columnVector = b.rank() == 1;
  if (rowVector)
    a = unsqueeze(a, {0});
  if (columnVector)
    b = unsqueeze(b, {1});
  unsigned rank = std::max(a.rank(), b.rank());
  int64_t k = a.shape.back();
  if (b.shape[b.rank() - 2] != k)
    throw ImportError("multiplies matrices of shapes " + printShape(a.shape, emitter.marker) +
                      " and " + printShape(b.shape, emitter.marker));
  // Labels: 0 .. rank-3 the batch dims, then m, k, n.
  Value batchA, batchB;
  batchA.shape.assign(a.shape.begin(), a.shape.end() - 2);
  batchB.shape.assign(b.shape.begin(), b.shape.end() - 2);
  Shape batch = broadcastShapes({batchA, batchB}, emitter.marker);
  auto labels = [&](const Value &value, int64_t row, int64_t column) {
    std::vector<int64_t> result;
    for (unsigned dim = 0; dim + 2 < value.rank(); ++dim)
      result.push_back(dim + rank - value.rank());
    result.push_back(row);
    result.push_back(column);
    return result;
  };
  int64_t m = rank, sum = rank + 1, n = rank + 2;
  std::vector<int64_t> out;
  for (unsigned dim = 0; dim + 2 < rank; ++dim)
    out.push_back(dim);
  out.push_back(m);
  out.push_back(n);
  auto repeated = [&](const Value &value) {
    Shape shape = value.shape;
    unsigned shift = rank - value.rank();
    for (unsigned dim = 0; dim + 2 < value.rank(); ++dim)
      shape[dim] = batch[dim + shift];
    return expand(emitter, value, shape);
  };
  Value result =
      einsum(emitter, repeated(a), labels(a, m, sum), repeated(b), labels(b, sum, n), out);
  std::vector<unsigned> vectors;
  if (rowVector)
    vectors.push_back(rank - 2);
  if (columnVector)
    vectors.push_back(rank - 1);
  return vectors.empty() ? result : squeeze(emitter, result, vectors);
}

namespace {

void importMatMul(NodeContext &node) {
  node.setOutput(0, matmul(node.emitter, node.input(0), node.input(1)));
}

/// alpha * A' * B' + beta * C
void importGemm(NodeContext &node) {
  const Value &a = node.input(0), &b = node.input(1);
  if (a.rank() != 2 || b.rank() != 2)
    throw ImportError("needs matrices, not tensors of rank " + std::to_string(a.rank()) + " and " +
                      std::to_string(b.rank()));
  bool transposeA = node.attrInt("transA", 0) != 0, transposeB = node.attrInt("transB", 0) != 0;
  std::vector<int64_t> aLabels =
      transposeA ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{0, 1};
  std::vector<int64_t> bLabels =
      transposeB ? std::vector<int64_t>{2, 1} : std::vector<int64_t>{1, 2};
  if (a.shape[transposeA ? 0 : 1] != b.shape[transposeB ? 1 : 0])
    throw ImportError("multiplies matrices of shapes " + printShape(a.shape, node.emitter.marker) +
                      " and " + printShape(b.shape, node.emitter.marker));
  Value result = einsum(node.emitter, a, aLabels, b, bLabels, {0, 2});
  auto scaled = [&](const Value &value, const char *name) {
    return elementwise(node.emitter, "mul", {value, number(value, node.attrFloat(name, 1))});
  };
  result = scaled(result, "alpha");
  if (node.hasInput(2))
    result = elementwise(node.emitter, "add", {result, scaled(node.input(2), "beta")});
  node.setOutput(0, result);
}

/// An Einsum equation: the labels of each operand and of the result. A letter's label is its
/// character code. The dims of an ellipsis, counted from the last, have labels from `firstEllipsis`
/// on.
struct Equation {
  static constexpr int64_t firstEllipsis = 1000;

  std::vector<std::vector<int64_t>> operands;
  std::vector<int64_t> result;
};

/// The labels of one term; an ellipsis stands for `ellipsisRank` dims.
std::vector<int64_t> parseTerm(const std::string &term, int64_t ellipsisRank) {
  std::vector<int64_t> labels;
  bool hasEllipsis = false;
  for (size_t i = 0; i < term.size(); ++i) {
    if (term[i] == ' ')
      continue;
    if (term.compare(i, 3, "...") == 0 && !hasEllipsis) {
      for (int64_t dim = ellipsisRank; dim-- > 0;)
        labels.push_back(Equation::firstEllipsis + dim);
      hasEllipsis = true;
      i += 2;
      continue;
    }
    if (!std::isalpha(static_cast<unsigned char>(term[i])))
      throw ImportError("has '" + std::string(1, term[i]) + "' in its equation");
    labels.push_back(term[i]);
  }
  return labels;
}

/// Returns the number of ellipsis dims of `term` for a tensor of rank `rank`.
int64_t ellipsisRank(const std::string &term, unsigned rank) {
  if (term.find("...") == std::string::npos)
    return 0;
  int64_t letters = llvm::count_if(term, [](char c) { return c != ' ' && c != '.'; });
  return std::max<int64_t>(0, int64_t(rank) - letters);
}

Equation parseEquation(const std::string &text, const std::vector<Value> &values) {
  Equation equation;
  size_t arrow = text.find("->");
  llvm::SmallVector<llvm::StringRef> terms;
  llvm::StringRef(text).substr(0, arrow).split(terms, ',');
  if (terms.size() != values.size())
    throw ImportError("equation '" + text + "' is not one for " + std::to_string(values.size()) +
                      " operands");
  int64_t rank = 0;
  std::map<int64_t, int> uses;
  for (auto [term, value] : llvm::zip(terms, values)) {
    int64_t own = ellipsisRank(term.str(), value.rank());
    rank = std::max(rank, own);
    equation.operands.push_back(parseTerm(term.str(), own));
    if (equation.operands.back().size() != value.rank())
      throw ImportError("equation '" + text + "' does not fit a tensor of rank " +
                        std::to_string(value.rank()));
    for (int64_t label : equation.operands.back())
      ++uses[label];
  }
  if (arrow != std::string::npos) {
    equation.result = parseTerm(text.substr(arrow + 2), rank);
  } else {
    // Without an explicit result: the ellipsis, then the letters that occur once, in alphabetical
    // order.
    equation.result = parseTerm("...", rank);
    for (auto [label, count] : uses)
      if (count == 1 && label < Equation::firstEllipsis)
        equation.result.push_back(label);
  }
  for (auto [i, label] : llvm::enumerate(equation.result))
    if (!uses.count(label) ||
        llvm::is_contained(llvm::ArrayRef(equation.result).take_front(i), label))
      throw ImportError("equation '" + text + "' has a result label that no operand has, or twice");
  return equation;
}

/// The diagonal along two dims `first` < `second`, in the first.
Value diagonal(Emitter &emitter, const Value &value, unsigned first, unsigned second) {
  if (value.shape[first] != value.shape[second])
    throw ImportError("takes the diagonal of dims of sizes " + std::to_string(value.shape[first]) +
                      " and " + std::to_string(value.shape[second]));
  auto index = [&](unsigned dim) {
    std::vector<int64_t> steps(value.rank(), 0);
    steps[dim] = 1;
    return Value::ofKnown(DType::I64, Known::affine(value.shape, 0, steps, false));
  };
  Value isDiagonal = compare(emitter, "eq", index(first), index(second));
  Value masked = select(emitter, isDiagonal, value, number(value, 0));
  return reduce(emitter, "reduce_sum", masked, {second}, false);
}

/// Checks that each label has one size; ellipsis dims of size 1 are repeated.
void repeatEllipses(Emitter &emitter, const std::vector<std::vector<int64_t>> &labels,
                    std::vector<Value> &values) {
  std::map<int64_t, int64_t> sizes;
  for (auto [names, value] : llvm::zip(labels, values))
    for (auto [label, size] : llvm::zip(names, value.shape)) {
      int64_t &known = sizes.try_emplace(label, size).first->second;
      bool mayRepeat = label >= Equation::firstEllipsis && (known == 1 || size == 1);
      if (known != size && !mayRepeat)
        throw ImportError("gives a label of its equation two sizes, " + std::to_string(known) +
                          " and " + std::to_string(size));
      known = std::max(known, size);
    }
  for (auto [names, value] : llvm::zip(labels, values)) {
    Shape shape;
    for (int64_t label : names)
      shape.push_back(sizes[label]);
    value = expand(emitter, value, shape);
  }
}

/// Takes diagonals first, then multiplies operand by operand; each matmul sums the labels without
/// later uses.
void importEinsum(NodeContext &node) {
  Emitter &e = node.emitter;
  std::vector<Value> values = node.allInputs();
  Equation equation = parseEquation(node.attrText("equation", ""), values);
  for (auto [labels, value] : llvm::zip(equation.operands, values))
    for (size_t i = 0; i < labels.size(); ++i)
      for (size_t k = labels.size(); --k > i;)
        if (labels[i] == labels[k]) {
          value = diagonal(e, value, i, k);
          labels.erase(labels.begin() + k);
        }
  repeatEllipses(e, equation.operands, values);
  if (values.size() == 1) {
    std::vector<int64_t> kept;
    std::vector<unsigned> summed;
    for (auto [dim, label] : llvm::enumerate(equation.operands[0]))
      if (llvm::is_contained(equation.result, label))
        kept.push_back(label);
      else
        summed.push_back(dim);
    Value sum = summed.empty() ? values[0] : reduce(e, "reduce_sum", values[0], summed, false);
    return node.setOutput(0, arranged(e, sum, kept, equation.result));
  }
  Value product = values[0];
  std::vector<int64_t> labels = equation.operands[0];
  for (size_t i = 1; i < values.size(); ++i) {
    std::vector<int64_t> next;
    auto keep = [&](int64_t label) {
      bool isNeeded = llvm::is_contained(equation.result, label);
      for (size_t later = i + 1; later < values.size(); ++later)
        isNeeded |= llvm::is_contained(equation.operands[later], label);
      if (isNeeded && !llvm::is_contained(next, label))
        next.push_back(label);
    };
    llvm::for_each(labels, keep);
    llvm::for_each(equation.operands[i], keep);
    if (i + 1 == values.size())
      next = equation.result;
    product = einsum(e, product, labels, values[i], equation.operands[i], next);
    labels = next;
  }
  node.setOutput(0, product);
}

} // namespace

llvm::ArrayRef<OpImporter> linearOps() {
  static const OpImporter ops[] = {
      {"", "Einsum", importEinsum, "", weightsAt(0, 1, 2, 3)},
      // beta: factor of an optional operand
      {"", "Gemm", importGemm, "beta", weightsAt(0, 1, 2)},
      {"", "MatMul", importMatMul, "", weightsAt(0, 1)},
  };
  return ops;
}

} // namespace tbc::frontend
