//===- Linear.cpp - Matrix products ----------------------------------------===//

#include "frontend/onnx/ops/Families.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <map>

namespace tbc::frontend {

Value einsum(Emitter &emitter, const Value &a, const std::vector<int64_t> &aLabels, const Value &b,
             const std::vector<int64_t> &bLabels, const std::vector<int64_t> &outLabels) {
  if (!kernels::isFloat(a.dtype) || a.dtype != b.dtype)
    throw ImportError("multiplies matrices of " + std::string(kernels::name(a.dtype)) + " and " +
                      std::string(kernels::name(b.dtype)));
  // A summed dim along which both repeat must be there once for its terms to be counted.
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

Value matmul(Emitter &emitter, const Value &givenA, const Value &givenB) {
  Value a = givenA, b = givenB;
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

/// Labels of one term of an equation.
std::vector<int64_t> parseTerm(const std::string &term) {
  std::vector<int64_t> labels;
  for (char c : term) {
    if (c == ' ')
      continue;
    if (!std::isalpha(static_cast<unsigned char>(c)))
      throw ImportError("Einsum supports letters only, not '" + std::string(1, c) + "'");
    if (llvm::is_contained(labels, c))
      throw ImportError("Einsum with a repeated label in one operand is not supported");
    labels.push_back(c);
  }
  return labels;
}

void importEinsum(NodeContext &node) {
  std::string equation = node.attrText("equation", "");
  size_t comma = equation.find(','), arrow = equation.find("->");
  if (node.numInputs() != 2 || comma == std::string::npos || arrow == std::string::npos ||
      comma > arrow)
    throw ImportError("Einsum is supported for two operands and an explicit result, not '" +
                      equation + "'");
  std::vector<int64_t> a = parseTerm(equation.substr(0, comma));
  std::vector<int64_t> b = parseTerm(equation.substr(comma + 1, arrow - comma - 1));
  std::vector<int64_t> out = parseTerm(equation.substr(arrow + 2));
  std::map<int64_t, int64_t> sizes;
  for (auto [labels, value] : {std::pair(&a, &node.input(0)), std::pair(&b, &node.input(1))}) {
    if (labels->size() != value->rank())
      throw ImportError("equation '" + equation + "' does not fit a tensor of rank " +
                        std::to_string(value->rank()));
    for (unsigned dim = 0; dim < value->rank(); ++dim)
      if (auto [it, isNew] = sizes.insert({(*labels)[dim], value->shape[dim]});
          it->second != value->shape[dim])
        throw ImportError("equation '" + equation + "' gives label '" +
                          std::string(1, char((*labels)[dim])) + "' two sizes");
  }
  for (int64_t label : out)
    if (!sizes.count(label))
      throw ImportError("equation '" + equation + "' has a result label that no operand has");
  node.setOutput(0, einsum(node.emitter, node.input(0), a, node.input(1), b, out));
}

} // namespace

llvm::ArrayRef<OpImporter> linearOps() {
  static const OpImporter ops[] = {
      {"", "Einsum", importEinsum},
      {"", "Gemm", importGemm},
      {"", "MatMul", importMatMul},
  };
  return ops;
}

} // namespace tbc::frontend
