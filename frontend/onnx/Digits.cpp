//===- Digits.cpp - Affine indices as digits of a flattened dim ------------===//

#include "frontend/onnx/Digits.h"

#include "frontend/onnx/Indexing.h"
#include "frontend/onnx/Structure.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

namespace tbc::frontend {

std::optional<std::vector<Digit>> digitsOf(const Known &indices, int64_t size) {
  if (!indices.isAffine() || indices.offset() < 0)
    return std::nullopt;
  const std::vector<int64_t> &steps = indices.coefficients();
  std::vector<unsigned> order(steps.size());
  std::iota(order.begin(), order.end(), 0U);
  llvm::sort(order, [&](unsigned a, unsigned b) { return steps[a] < steps[b]; });
  if (order.empty() || steps[order[0]] < 1)
    return std::nullopt;
  // The least significant digit first. `reach`: the largest sum of the terms of the current digit.
  std::vector<Digit> digits(1);
  int64_t stride = 1, reach = 0, rest = indices.offset();
  auto close = [&](int64_t next) {
    Digit &digit = digits.back();
    digit.size = next / stride;
    digit.offset = rest / stride % digit.size;
    return next % stride == 0 && digit.offset + reach < digit.size;
  };
  for (size_t i = 0; i < order.size(); ++i) {
    int64_t step = steps[order[i]];
    bool isDigit = step / stride > reach && size % step == 0 &&
                   llvm::all_of(llvm::ArrayRef(order).drop_front(i),
                                [&](unsigned core) { return steps[core] % step == 0; });
    if (isDigit && step > stride) {
      if (!close(step))
        return std::nullopt;
      digits.emplace_back();
      stride = step;
      reach = 0;
    }
    digits.back().cores.push_back(order[i]);
    digits.back().coefficients.push_back(step / stride);
    reach += step / stride * (indices.shape()[order[i]] - 1);
  }
  if (!close(size) || digits.size() < 2)
    return std::nullopt;
  std::reverse(digits.begin(), digits.end());
  return digits;
}

Value gatherDigits(Emitter &emitter, const Value &data, const Value &indices, unsigned axis,
                   const std::vector<Digit> &digits, const Shape &shape) {
  Shape split = data.shape;
  split.erase(split.begin() + axis);
  for (auto [i, digit] : llvm::enumerate(digits))
    split.insert(split.begin() + axis + i, digit.size);
  Value value = reshape(emitter, data, split);
  // The last digit first, so that the dims before it keep their places.
  std::vector<unsigned> cores;
  for (size_t i = digits.size(); i-- > 0;) {
    const Digit &digit = digits[i];
    Shape places;
    std::vector<unsigned> dims;
    for (unsigned core : digit.cores) {
      dims.push_back(unsigned(places.size()));
      places.push_back(indices.known->shape()[core]);
    }
    Known known = Known::affine(places, digit.offset, digit.coefficients, /*isFloat=*/false);
    value = gather(emitter, value, Value::ofKnown(indices.dtype, places, dims, known),
                   axis + unsigned(i));
    cores.insert(cores.begin(), digit.cores.begin(), digit.cores.end());
  }
  // From the order of the digits to the order of the indices' dims.
  std::vector<unsigned> permutation(value.rank()), repeated;
  std::iota(permutation.begin(), permutation.end(), 0U);
  for (unsigned core = 0; core < cores.size(); ++core)
    permutation[axis + core] = axis + unsigned(llvm::find(cores, core) - cores.begin());
  value = transpose(emitter, value, permutation);
  for (unsigned dim = 0; dim < indices.rank(); ++dim)
    if (indices.coreDim(dim) < 0)
      repeated.push_back(axis + dim);
  return expand(emitter, unsqueeze(value, repeated), shape);
}

} // namespace tbc::frontend
