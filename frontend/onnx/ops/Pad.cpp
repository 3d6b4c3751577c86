//===- Pad.cpp - Pad and crop ----------------------------------------------===//

#include "frontend/onnx/ops/Families.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <optional>

namespace tbc::frontend {

Value padZeros(Emitter &emitter, const Value &value, unsigned axis, int64_t low, int64_t high) {
  if (low == 0 && high == 0)
    return value;
  std::vector<unsigned> dims;
  mlir::Value input = coreWith(emitter, value, {axis}, dims);
  Shape shape = value.shape;
  if (__builtin_add_overflow(shape[axis], low, &shape[axis]) ||
      __builtin_add_overflow(shape[axis], high, &shape[axis]))
    throw ImportError("makes more than 2^63 elements");
  Value padded = Value::ofCore(value.dtype, shape, dims, {});
  padded.ir = emitter.createOne("pad", {input}, emitter.type(value.dtype, padded.coreShape()),
                                {emitter.integer("dim", llvm::find(dims, axis) - dims.begin()),
                                 emitter.integer("low", low), emitter.integer("high", high)});
  return padded;
}

namespace {

/// Returns the source index of position `at`, outside of a dim of `size`, in a padding mode.
/// Example: at = -1 is 1 in mode reflect and 0 in mode edge.
int64_t mirrored(int64_t at, int64_t size, llvm::StringRef mode) {
  if (mode == "edge")
    return std::clamp<int64_t>(at, 0, size - 1);
  int64_t period = mode == "wrap" ? size : std::max<int64_t>(2 * (size - 1), 1);
  int64_t place = at % period;
  place += place < 0 ? period : 0;
  return place < size ? place : period - place;
}

/// Pads with elements of the tensor itself.
Value padWithElements(Emitter &emitter, const Value &value, unsigned axis, int64_t low,
                      int64_t high, llvm::StringRef mode) {
  int64_t size = value.shape[axis], total;
  if (size == 0)
    throw ImportError("pads a dim without elements");
  if (__builtin_add_overflow(size, low, &total) || __builtin_add_overflow(total, high, &total) ||
      total > kMaxKnownElements)
    throw ImportError("pads a dim to more than " + std::to_string(kMaxKnownElements) + " elements");
  WorkBudget::spend(total);
  std::vector<int64_t> places;
  for (int64_t at = -low; at < size + high; ++at)
    places.push_back(mirrored(at, size, mode));
  return gather(emitter, value, Value::ofInts(std::move(places)), axis);
}

/// Pads dim `axes[i]` of `value` with `low[i]` and `high[i]` elements, both >= 0.
Value padWithNumber(Emitter &emitter, const Value &value, const std::vector<unsigned> &axes,
                    const std::vector<int64_t> &low, const std::vector<int64_t> &high,
                    double number) {
  Value padded = value;
  for (size_t i = 0; i < axes.size(); ++i)
    padded = padZeros(emitter, padded, axes[i], low[i], high[i]);
  if (number == 0)
    return padded;
  std::optional<Value> inside;
  for (size_t i = 0; i < axes.size(); ++i) {
    Value place = positions(padded.shape, axes[i]);
    auto add = [&](llvm::StringRef predicate, int64_t bound) {
      Value holds =
          compare(emitter, predicate, place, Value::ofKnown(DType::I64, Known::ofInt(bound)));
      inside = inside ? elementwise(emitter, "and", {*inside, holds}) : holds;
    };
    if (low[i] > 0)
      add("ge", low[i]);
    if (high[i] > 0)
      add("lt", low[i] + value.shape[axes[i]]);
  }
  if (!inside)
    return padded;
  return select(emitter, *inside, padded, Value::ofSplat(value.dtype, {}, number));
}

void importPad(NodeContext &node) {
  Value value = node.input(0);
  std::string mode = node.attrText("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    throw ImportError("Pad in mode '" + mode + "' is not supported");
  bool hasNumber = node.hasInput(2); // the other modes ignore it
  double number = mode == "constant" && hasNumber ? node.scalar(2) : 0;
  std::vector<int64_t> pads = node.ints(1), axes;
  for (unsigned dim = 0; dim < value.rank(); ++dim)
    axes.push_back(dim);
  if (node.hasInput(3))
    axes = node.ints(3);
  checkAxes(axes, value.rank());
  if (pads.size() != 2 * axes.size())
    throw ImportError("has " + std::to_string(pads.size()) + " pads for " +
                      std::to_string(axes.size()) + " dims");
  std::vector<unsigned> padded;
  std::vector<int64_t> lows, highs;
  for (size_t i = 0; i < axes.size(); ++i) {
    unsigned axis = checkAxis(axes[i], value.rank());
    int64_t low = pads[i], high = pads[i + axes.size()], size = value.shape[axis];
    if (low < -size || high < -size ||
        size + std::min<int64_t>(low, 0) < -std::min<int64_t>(high, 0))
      throw ImportError("cuts away more than there is");
    int64_t first = std::max<int64_t>(0, -low), last = size - std::max<int64_t>(0, -high);
    value = slice(node.emitter, value, axis, first, 1, last - first);
    low = std::max<int64_t>(low, 0), high = std::max<int64_t>(high, 0);
    if (low == 0 && high == 0)
      continue;
    if (mode != "constant") {
      value = padWithElements(node.emitter, value, axis, low, high, mode);
      continue;
    }
    padded.push_back(axis);
    lows.push_back(low);
    highs.push_back(high);
  }
  node.setOutput(0, padWithNumber(node.emitter, value, padded, lows, highs, number));
}

/// Crops and pads dims to given sizes, as evenly on both sides as possible.
void importCenterCropPad(NodeContext &node) {
  Value value = node.input(0);
  std::vector<int64_t> sizes = checkedShape(node.ints(1)), axes;
  for (unsigned dim = 0; dim < value.rank(); ++dim)
    axes.push_back(dim);
  axes = node.attrInts("axes", axes);
  checkAxes(axes, value.rank());
  if (sizes.size() != axes.size())
    throw ImportError("has " + std::to_string(sizes.size()) + " sizes for " +
                      std::to_string(axes.size()) + " dims");
  for (size_t i = 0; i < axes.size(); ++i) {
    unsigned axis = checkAxis(axes[i], value.rank());
    int64_t size = value.shape[axis], target = sizes[i];
    if (target < size) {
      value = slice(node.emitter, value, axis, (size - target) / 2, 1, target);
    } else if (target > size) {
      int64_t low = (target - size) / 2;
      value = padZeros(node.emitter, value, axis, low, target - size - low);
    }
  }
  node.setOutput(0, value);
}

} // namespace

llvm::ArrayRef<OpImporter> padOps() {
  static const OpImporter ops[] = {
      {"", "CenterCropPad", importCenterCropPad},
      {"", "Pad", importPad},
  };
  return ops;
}

} // namespace tbc::frontend
