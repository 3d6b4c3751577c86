//===- Support.cpp - Operand checks and index arithmetic -------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Support.h"

#include <algorithm>

using namespace tbc::kernels;

void tbc::kernels::requireCounts(const std::vector<Tensor> &inputs, size_t numInputs,
                                 const std::vector<TensorType> &resultTypes, size_t numResults) {
  require(inputs.size() == numInputs, [&] {
    return "expected " + std::to_string(numInputs) + " operands, got " +
           std::to_string(inputs.size());
  });
  require(resultTypes.size() == numResults, [&] {
    return "expected " + std::to_string(numResults) + " results, got " +
           std::to_string(resultTypes.size());
  });
}

static std::string shapeText(const Shape &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

void tbc::kernels::requireShape(const char *what, const Shape &shape, const Shape &expected) {
  require(shape == expected, [&] {
    return std::string(what) + " has shape " + shapeText(shape) + ", expected " +
           shapeText(expected);
  });
}

int64_t tbc::kernels::requireDim(int64_t dim, size_t numDims) {
  require(dim >= 0 && dim < int64_t(numDims), [&] {
    return "dim " + std::to_string(dim) + " is out of range for " + std::to_string(numDims) +
           " dims";
  });
  return dim;
}

int64_t tbc::kernels::indexIn(const KernelContext &context, int64_t index, int64_t size) {
  if (!isModular(context.arith))
    return index;
  int64_t rest = index % size;
  return rest < 0 ? rest + size : rest;
}

Shape tbc::kernels::rowMajorStrides(const Shape &shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t dim = shape.size(); dim-- > 0; stride *= shape[dim])
    strides[dim] = stride;
  return strides;
}

std::vector<int64_t> tbc::kernels::listOffsets(const Shape &shape, const Shape &strides) {
  std::vector<int64_t> offsets = {0};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    std::vector<int64_t> next;
    next.reserve(offsets.size() * shape[dim]);
    for (int64_t offset : offsets)
      for (int64_t i = 0; i < shape[dim]; ++i)
        next.push_back(offset + i * strides[dim]);
    offsets = std::move(next);
  }
  return offsets;
}

static bool contains(const std::vector<int64_t> &dims, int64_t dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

Shape tbc::kernels::without(const Shape &shape, const std::vector<int64_t> &dims) {
  Shape kept;
  for (size_t dim = 0; dim < shape.size(); ++dim)
    if (!contains(dims, int64_t(dim)))
      kept.push_back(shape[dim]);
  return kept;
}

Shape tbc::kernels::only(const Shape &shape, const std::vector<int64_t> &dims) {
  Shape kept;
  for (size_t dim = 0; dim < shape.size(); ++dim)
    if (contains(dims, int64_t(dim)))
      kept.push_back(shape[dim]);
  return kept;
}

DimSplit tbc::kernels::splitAt(const Shape &shape, int64_t dim) {
  requireDim(dim, shape.size());
  DimSplit split = {1, shape[dim], 1};
  for (int64_t i = 0; i < dim; ++i)
    split.outer *= shape[i];
  for (size_t i = dim + 1; i < shape.size(); ++i)
    split.inner *= shape[i];
  return split;
}
