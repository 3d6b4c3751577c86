//===- Packing.cpp - Shards of tensors as lists of indices -----------------===//

#include "runtime/exec/Packing.h"
#include "runtime/kernels/Support.h"

#include <cassert>

namespace tbc::runtime {

using kernels::Residue;
using kernels::Residue251;
using kernels::Tensor;
using kernels::TensorType;

/// Returns the indices along a dim held by index `index` of n, in local order.
static Indices dimIndices(const std::vector<program::SegmentShape> &segments, int64_t n,
                          int64_t index) {
  Indices indices;
  int64_t base = 0;
  for (const program::SegmentShape &segment : segments) {
    for (int64_t outer = 0; outer < segment.outer; ++outer) {
      int64_t first = base + (outer * n + index) * segment.k * segment.inner;
      for (int64_t i = 0; i < segment.k * segment.inner; ++i)
        indices.push_back(first + i);
    }
    base += segment.outer * n * segment.k * segment.inner;
  }
  return indices;
}

Indices shardIndices(const kernels::Shape &full, int dim,
                     const std::vector<program::SegmentShape> &segments, int64_t n, int64_t index) {
  int64_t numElements = kernels::numElements(full);
  if (dim == program::Communication::flatDim) {
    int64_t chunk = (numElements + n - 1) / n;
    Indices indices(chunk, -1);
    for (int64_t i = 0; i < chunk && index * chunk + i < numElements; ++i)
      indices[i] = index * chunk + i;
    return indices;
  }
  Indices along = dimIndices(segments, n, index);
  int64_t outerSize = 1, innerSize = 1;
  for (int d = 0; d < int(full.size()); ++d)
    (d < dim ? outerSize : innerSize) *= d == dim ? 1 : full[d];
  Indices indices;
  indices.reserve(outerSize * int64_t(along.size()) * innerSize);
  for (int64_t outer = 0; outer < outerSize; ++outer)
    for (int64_t middle : along)
      for (int64_t inner = 0; inner < innerSize; ++inner)
        indices.push_back((outer * full[dim] + middle) * innerSize + inner);
  return indices;
}

Tensor pick(const Tensor &tensor, const Indices &indices, const TensorType &type) {
  return kernels::dispatch(tensor, [&](auto zero) {
    using T = decltype(zero);
    const std::vector<T> &from = tensor.data<T>();
    std::vector<T> picked(indices.size(), zero);
    for (size_t i = 0; i < indices.size(); ++i) {
      assert(indices[i] < int64_t(from.size()) && "an index lies within its tensor");
      if (indices[i] >= 0)
        picked[i] = from[indices[i]];
    }
    return Tensor(type, std::move(picked));
  });
}

Tensor place(const std::vector<Tensor> &parts, const std::vector<Indices> &indices,
             const TensorType &type) {
  return kernels::dispatch(parts.front(), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> placed(kernels::numElements(type.shape), zero);
    for (size_t p = 0; p < parts.size(); ++p) {
      const std::vector<T> &from = parts[p].template data<T>();
      assert(from.size() == indices[p].size() && "one index per element");
      for (size_t i = 0; i < from.size(); ++i) {
        if (indices[p][i] >= 0)
          placed[indices[p][i]] = from[i];
      }
    }
    return Tensor(type, std::move(placed));
  });
}

static bool isHeldIn(const Tensor &tensor, kernels::Arith arith) {
  if (!kernels::isFloat(tensor.dtype()))
    return tensor.holds<int64_t>();
  if (arith == kernels::Arith::Residue61)
    return tensor.holds<Residue>();
  if (arith == kernels::Arith::Residue251)
    return tensor.holds<Residue251>();
  bool isDouble = arith == kernels::Arith::F64 || tensor.dtype() == kernels::DType::F64;
  return isDouble ? tensor.holds<double>() : tensor.holds<float>();
}

Tensor convert(const Tensor &tensor, const TensorType &type, kernels::Arith arith) {
  kernels::require(bool(tensor), "no tensor was provided");
  kernels::require(tensor.shape() == type.shape, [&] {
    return "a tensor of type " + toString(tensor.type()) + " was provided for " + toString(type);
  });
  kernels::require(isHeldIn(tensor, arith), "the tensor provided is held in another arithmetic");
  if (tensor.dtype() == type.dtype)
    return tensor;
  kernels::require(kernels::isFloat(tensor.dtype()) && kernels::isFloat(type.dtype), [&] {
    return "a tensor of type " + toString(tensor.type()) + " was provided for " + toString(type);
  });
  if (arith == kernels::Arith::Native)
    return Tensor::fromDoubles(type, arith, tensor.toDoubles());
  if (arith == kernels::Arith::F64)
    return Tensor(type, tensor.data<double>());
  if (arith == kernels::Arith::Residue251)
    return Tensor(type, tensor.data<Residue251>());
  return Tensor(type, tensor.data<Residue>());
}

} // namespace tbc::runtime
