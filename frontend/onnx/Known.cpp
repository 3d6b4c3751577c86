//===- Known.cpp - Tensors whose elements are known at import --------------===//

#include "frontend/onnx/Known.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>

namespace tbc::frontend {

static constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();
static thread_local int64_t workLeft = unlimited, bytesHeld = 0, bytesAllowed = unlimited;

WorkBudget::WorkBudget(int64_t elements, int64_t heldBytes) {
  workLeft = elements;
  bytesHeld = 0;
  bytesAllowed = heldBytes;
}
WorkBudget::~WorkBudget() { workLeft = bytesAllowed = unlimited; }
void WorkBudget::hold(int64_t bytes) {
  if (bytesHeld + bytes > bytesAllowed)
    throw ImportError("the constants computed so far take more than " +
                      std::to_string(bytesAllowed) + " bytes; fold them when exporting the model");
  bytesHeld += bytes;
}
void WorkBudget::release(int64_t bytes) { bytesHeld -= bytes; }
void WorkBudget::spend(int64_t elements) {
  if (elements > workLeft)
    throw ImportError("too much arithmetic on constants; fold it when exporting the model");
  workLeft -= elements;
}

int64_t sumOf(int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum))
    throw ImportError("integer arithmetic on shapes overflows");
  return sum;
}

int64_t productOf(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product))
    throw ImportError("integer arithmetic on shapes overflows");
  return product;
}

int64_t saturatedElements(const Shape &shape) {
  int64_t product = 1;
  bool overflows = false;
  for (int64_t size : shape) {
    if (size == 0)
      return 0;
    overflows |= __builtin_mul_overflow(product, size, &product);
  }
  return overflows ? std::numeric_limits<int64_t>::max() : product;
}

void forEachIndex(const Shape &shape, const std::function<void(const Shape &index)> &visit) {
  int64_t elements = saturatedElements(shape);
  if (elements == 0)
    return;
  WorkBudget::spend(elements);
  Shape index(shape.size(), 0);
  while (true) {
    visit(index);
    size_t dim = shape.size();
    while (dim > 0 && ++index[dim - 1] == shape[dim - 1])
      index[--dim] = 0;
    if (dim == 0)
      return;
  }
}

Known Known::ofInts(Shape shape, std::vector<int64_t> elements) {
  Known known;
  assert(kernels::numElements(shape) == int64_t(elements.size()));
  known.sizes = std::move(shape);
  known.intElements = std::move(elements);
  return known;
}

Known Known::ofReals(Shape shape, std::vector<double> elements) {
  Known known;
  assert(kernels::numElements(shape) == int64_t(elements.size()));
  known.sizes = std::move(shape);
  known.realElements = std::move(elements);
  known.floating = true;
  return known;
}

/// Whether the offset plus any subset of the steps fits in 64 bits.
static bool staysInRange(const Shape &shape, int64_t offset,
                         const std::vector<int64_t> &coefficients) {
  int64_t low = offset, high = offset;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    int64_t span, &end = coefficients[dim] < 0 ? low : high;
    if (__builtin_mul_overflow(coefficients[dim], std::max<int64_t>(shape[dim] - 1, 0), &span) ||
        __builtin_add_overflow(end, span, &end))
      return false;
  }
  return true;
}

Known Known::affine(Shape shape, int64_t offset, std::vector<int64_t> coefficients, bool isFloat) {
  Known known;
  for (size_t dim = 0; dim < shape.size(); ++dim)
    if (shape[dim] <= 1) // no step
      coefficients[dim] = 0;
  if (!staysInRange(shape, offset, coefficients))
    throw ImportError("integer arithmetic on shapes overflows");
  known.sizes = std::move(shape);
  known.floating = isFloat;
  known.isAffineForm = true;
  known.affineOffset = offset;
  known.affineCoefficients = std::move(coefficients);
  return known;
}

int64_t Known::linear(const Shape &index) const {
  int64_t result = 0;
  for (size_t dim = 0; dim < sizes.size(); ++dim)
    result = result * sizes[dim] + index[dim];
  return result;
}

int64_t Known::intAt(const Shape &index) const {
  if (floating && !isAffineForm)
    throw ImportError("reads a float tensor as integers");
  if (!isAffineForm)
    return intElements[linear(index)];
  int64_t result = affineOffset;
  for (size_t dim = 0; dim < sizes.size(); ++dim)
    result += affineCoefficients[dim] * index[dim];
  return result;
}

double Known::realAt(const Shape &index) const {
  if (isAffineForm || !floating)
    return double(intAt(index));
  return realElements[linear(index)];
}

std::vector<int64_t> Known::ints() const {
  if (floating && !isAffineForm)
    throw ImportError("reads a float tensor as integers");
  if (!isAffineForm)
    return intElements;
  std::vector<int64_t> elements;
  elements.reserve(numElements());
  forEachIndex(sizes, [&](const Shape &index) { elements.push_back(intAt(index)); });
  return elements;
}

std::vector<double> Known::reals() const {
  if (!isAffineForm && floating)
    return realElements;
  std::vector<int64_t> elements = ints();
  return std::vector<double>(elements.begin(), elements.end());
}

bool Known::isConstantAlong(unsigned dim) const {
  if (isAffineForm)
    return affineCoefficients[dim] == 0 || sizes[dim] == 1;
  int64_t inner = 1;
  for (size_t i = dim + 1; i < sizes.size(); ++i)
    inner *= sizes[i];
  int64_t period = inner * sizes[dim], count = numElements();
  WorkBudget::spend(count);
  for (int64_t i = 0; i < count; ++i) {
    int64_t first = i / period * period + i % inner;
    // Bits decide: -0 is not 0.
    if (floating ? realElements[i] != realElements[first] ||
                       std::signbit(realElements[i]) != std::signbit(realElements[first])
                 : intElements[i] != intElements[first])
      return false;
  }
  return true;
}

Known Known::compacted(std::vector<unsigned> &kept) const {
  kept.clear();
  Known result = *this;
  if (numElements() == 0) {
    kept.resize(sizes.size());
    std::iota(kept.begin(), kept.end(), 0);
    return result;
  }
  result.sizes.clear();
  result.affineCoefficients.clear();
  std::vector<bool> drop(sizes.size());
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    drop[dim] = isConstantAlong(dim);
    if (drop[dim])
      continue;
    kept.push_back(dim);
    result.sizes.push_back(sizes[dim]);
    if (isAffineForm)
      result.affineCoefficients.push_back(affineCoefficients[dim]);
  }
  if (isAffineForm) {
    if (result.sizes.empty())
      return floating ? ofReal(double(affineOffset)) : ofInt(affineOffset);
    return result;
  }
  if (kept.size() != sizes.size()) {
    Shape index(sizes.size(), 0);
    result.intElements.clear();
    result.realElements.clear();
    forEachIndex(result.sizes, [&](const Shape &compact) {
      for (size_t i = 0; i < kept.size(); ++i)
        index[kept[i]] = compact[i];
      if (floating)
        result.realElements.push_back(realAt(index));
      else
        result.intElements.push_back(intAt(index));
    });
  }
  result.findAffineForm();
  return result;
}

void Known::findAffineForm() {
  // Two elements are always affine, so they prove no pattern.
  if (floating || sizes.empty() || intElements.size() < 3)
    return;
  std::vector<int64_t> steps(sizes.size());
  int64_t stride = 1;
  for (size_t dim = sizes.size(); dim-- > 0; stride *= sizes[dim])
    if (__builtin_sub_overflow(intElements[stride], intElements[0], &steps[dim]))
      return;
  if (!staysInRange(sizes, intElements[0], steps))
    return;
  bool fits = true;
  Known candidate = affine(sizes, intElements[0], steps, false);
  size_t i = 0;
  forEachIndex(sizes, [&](const Shape &index) {
    if (!fits)
      return;
    __int128 value = candidate.affineOffset;
    for (size_t dim = 0; dim < sizes.size(); ++dim)
      value += __int128(steps[dim]) * index[dim];
    fits = value == intElements[i++];
  });
  if (fits)
    *this = candidate;
}

} // namespace tbc::frontend
