//===- Value.cpp - A value of the ONNX graph during import -----------------===//

#include "frontend/onnx/Value.h"

#include "mlir/IR/BuiltinTypes.h"

#include <algorithm>
#include <memory>
#include <numeric>

namespace tbc::frontend {

Shape Value::coreShape() const {
  Shape result;
  for (unsigned dim : dims)
    result.push_back(shape[dim]);
  return result;
}

int Value::coreDim(unsigned dim) const {
  auto it = std::find(dims.begin(), dims.end(), dim);
  return it == dims.end() ? -1 : int(it - dims.begin());
}

Value Value::ofKnown(DType dtype, Shape shape, std::vector<unsigned> dims, const Known &known) {
  std::vector<unsigned> kept;
  Value value;
  auto held = std::make_unique<Known>(known.compacted(kept));
  int64_t bytes = held->heldBytes();
  WorkBudget::hold(bytes);
  value.known = std::shared_ptr<const Known>(held.release(), [bytes](const Known *known) {
    WorkBudget::release(bytes);
    delete known;
  });
  value.dtype = dtype;
  value.shape = std::move(shape);
  for (unsigned i : kept)
    value.dims.push_back(dims[i]);
  value.emitted = std::make_shared<mlir::Value>();
  return value;
}

Value Value::ofKnown(DType dtype, const Known &known) {
  std::vector<unsigned> all(known.shape().size());
  std::iota(all.begin(), all.end(), 0);
  return ofKnown(dtype, known.shape(), all, known);
}

Value Value::ofInts(std::vector<int64_t> elements) {
  Shape shape{int64_t(elements.size())};
  return ofKnown(DType::I64, Known::ofInts(shape, std::move(elements)));
}

Value Value::ofSplat(DType dtype, Shape shape, double value) {
  Known known = kernels::isFloat(dtype) ? Known::ofReal(value) : Known::ofInt(int64_t(value));
  return ofKnown(dtype, std::move(shape), {}, known);
}

Value Value::ofSequence(std::vector<Value> values) {
  Value result;
  result.sequence = std::make_shared<const std::vector<Value>>(std::move(values));
  return result;
}

Value Value::ofTensor(DType dtype, mlir::Value tensor) {
  auto type = llvm::cast<mlir::RankedTensorType>(tensor.getType());
  std::vector<unsigned> all(type.getRank());
  std::iota(all.begin(), all.end(), 0);
  return ofCore(dtype, Shape(type.getShape().begin(), type.getShape().end()), all, tensor);
}

Value Value::ofCore(DType dtype, Shape shape, std::vector<unsigned> dims, mlir::Value tensor) {
  Value value;
  value.dtype = dtype;
  value.shape = std::move(shape);
  value.dims = std::move(dims);
  value.ir = tensor;
  return value;
}

std::string printShape(const Shape &shape, int64_t marker) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += i ? ", " : "";
    if (shape[i] == marker)
      text += "batch";
    else if (shape[i] != 0 && shape[i] % marker == 0)
      text += std::to_string(shape[i] / marker) + "*batch";
    else
      text += std::to_string(shape[i]);
  }
  return text + "]";
}

/// Whether dim `dim` of a constant only repeats it, so that its size, a number, may be that of any
/// batch.
static bool repeatsAlong(const Value &value, unsigned dim, int64_t marker) {
  return value.isKnown() && value.shape[dim] > 1 && value.shape[dim] % marker != 0 &&
         value.coreDim(dim) < 0;
}

/// Returns the end of the message about two sizes that differ: what to do if one is the batch.
static std::string batchRemedy(int64_t a, int64_t b, int64_t marker) {
  if ((a % marker == 0) == (b % marker == 0))
    return "";
  return ". " + std::to_string(a % marker == 0 ? b : a) +
         " stands where the batch does; if it is that of the example, the exporter wrote it as a "
         "number: take sizes and strides from tensors, as x.size(0), or export with dynamo=True";
}

Shape broadcastShapes(const std::vector<Value> &values, int64_t marker) {
  Shape result;
  std::vector<bool> repeats; // by dim: its size comes from constants that repeat along it
  for (const Value &value : values) {
    if (value.shape.size() > result.size()) {
      size_t added = value.shape.size() - result.size();
      result.insert(result.begin(), added, 1);
      repeats.insert(repeats.begin(), added, false);
    }
    size_t shift = result.size() - value.shape.size();
    for (size_t i = 0; i < value.shape.size(); ++i) {
      int64_t size = value.shape[i], &other = result[shift + i];
      if (size == 1)
        continue;
      bool repeated = repeatsAlong(value, i, marker);
      bool isNew = other == 1 || (repeats[shift + i] && size % marker == 0);
      if (!isNew && other != size && !(repeated && other % marker == 0))
        throw ImportError("shapes " + printShape(result, marker) + " and " +
                          printShape(value.shape, marker) + " do not broadcast" +
                          batchRemedy(other, size, marker));
      repeats[shift + i] = repeated && (isNew || repeats[shift + i]);
      other = isNew ? size : other;
    }
  }
  return result;
}

Value overSamples(const Value &value, const Shape &shape, int64_t marker) {
  Value result = value;
  for (size_t i = 0; i < shape.size() && shape.size() == value.shape.size(); ++i)
    if (shape[i] != 0 && shape[i] % marker == 0 && repeatsAlong(value, i, marker))
      result.shape[i] = shape[i];
  return result;
}

Known fullKnown(const Value &value) {
  const Known &core = *value.known;
  bool isWhole = value.dims.size() == value.shape.size();
  if (isWhole && !core.isAffine()) // listed, so of a bounded size
    return core;
  // In 128 bits: the product of hostile dims must not wrap.
  __int128 count = 1;
  for (int64_t size : value.shape) {
    count *= size;
    if (count > kMaxKnownElements)
      throw ImportError("a table of more than " + std::to_string(kMaxKnownElements) +
                        " elements would have to be computed at import");
  }
  if (isWhole)
    return core;
  std::vector<int64_t> ints;
  std::vector<double> reals;
  Shape coreIndex(value.dims.size());
  forEachIndex(value.shape, [&](const Shape &index) {
    for (size_t i = 0; i < value.dims.size(); ++i)
      coreIndex[i] = index[value.dims[i]];
    if (core.isFloat())
      reals.push_back(core.realAt(coreIndex));
    else
      ints.push_back(core.intAt(coreIndex));
  });
  return core.isFloat() ? Known::ofReals(value.shape, std::move(reals))
                        : Known::ofInts(value.shape, std::move(ints));
}

std::vector<int64_t> fullInts(const Value &value) { return fullKnown(value).ints(); }
std::vector<double> fullReals(const Value &value) { return fullKnown(value).reals(); }

} // namespace tbc::frontend
