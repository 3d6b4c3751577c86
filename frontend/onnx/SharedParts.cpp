//===- SharedParts.cpp - Tensors that hold the same elements of one --------===//

#include "frontend/onnx/SharedParts.h"

#include "frontend/onnx/Sources.h"

#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/bit.h"

#include <map>
#include <set>

namespace tbc::frontend {

namespace {

constexpr int64_t maxElements = int64_t(1) << 22;
constexpr int64_t minSlab = 4;

/// Elements in row-major order, as a number that only equal ones share.
class Slab {
public:
  void add(double element) {
    isUniform = isUniform && (size == 0 || element == first);
    if (size == 0)
      first = element;
    hash = llvm::hash_combine(size_t(hash), llvm::bit_cast<uint64_t>(element == 0 ? 0.0 : element));
    ++size;
  }
  bool isComplete(int64_t elements) const {
    return size == elements && size >= minSlab && !isUniform;
  }
  size_t number() const { return hash; }

private:
  llvm::hash_code hash = 0;
  int64_t size = 0;
  double first = 0;
  bool isUniform = true;
};

/// Returns the numbers of the slabs of a part: along each dim, and all of it.
std::set<size_t> slabsOf(const ParameterSource &part) {
  Shape shape;
  for (int64_t size : part.shape)
    if (size != 1)
      shape.push_back(size);
  const int64_t elements = kernels::numElements(shape);
  if (shape.empty() || elements == 0)
    return {};
  const bool isVector = shape.size() == 1;
  std::vector<std::vector<Slab>> slabs;
  for (int64_t size : shape)
    slabs.emplace_back(size_t(size));
  Slab whole;
  std::vector<int64_t> index(shape.size(), 0);
  int64_t count = 0;
  forEachElement(part, [&](double element) {
    whole.add(element);
    if (isVector)
      for (int64_t begin = std::max<int64_t>(0, count - minSlab + 1); begin <= count; ++begin)
        slabs[0][size_t(begin)].add(element);
    else
      for (size_t dim = 0; dim < shape.size(); ++dim)
        slabs[dim][size_t(index[dim])].add(element);
    for (size_t dim = shape.size(); dim > 0; --dim) {
      ++index[dim - 1];
      if (index[dim - 1] < shape[dim - 1])
        break;
      index[dim - 1] = 0;
    }
    return ++count < maxElements;
  });
  std::set<size_t> numbers;
  if (whole.isComplete(elements))
    numbers.insert(whole.number());
  for (size_t dim = 0; dim < shape.size(); ++dim)
    for (const Slab &slab : slabs[dim])
      if (slab.isComplete(isVector ? minSlab : elements / shape[dim]))
        numbers.insert(slab.number());
  return numbers;
}

} // namespace

std::vector<std::string> sharedParts(const std::vector<const ParameterSource *> &parts) {
  std::map<size_t, size_t> firstOf; // by number: the first part with this slab
  std::set<size_t> shared;
  for (size_t part = 0; part < parts.size(); ++part)
    for (size_t number : slabsOf(*parts[part]))
      if (auto [it, isNew] = firstOf.insert({number, part}); !isNew && it->second != part) {
        shared.insert(it->second);
        shared.insert(part);
      }
  std::vector<std::string> names;
  for (size_t part : shared)
    names.push_back(parts[part]->name);
  return names;
}

} // namespace tbc::frontend
