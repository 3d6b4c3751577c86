//===- Value.h - A value of the ONNX graph during import -------------------===//

#ifndef TBC_FRONTEND_ONNX_VALUE_H
#define TBC_FRONTEND_ONNX_VALUE_H

#include "frontend/onnx/Known.h"

#include "mlir/IR/Value.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tbc::frontend {

/// An ONNX value: a logical shape, and a *core* with only the dims along which the value may
/// change. Core dim i is logical dim `dims[i]` (increasing); along other dims the value repeats. So
/// Expand and Unsqueeze are free. Example: a mask [s, s] expanded to [b, h, s, s] keeps the core
/// [s, s].
///
/// The core is one of:
///   - known elements;
///   - an IR tensor;
///   - parts joined along a dim: lists of coordinates, which would be large as a table, or have an
///     entry for each sample;
///   - an op on known values, emitted at its first use (it may be used for its shape alone).
struct Value {
  DType dtype = DType::F32;
  Shape shape;
  std::vector<unsigned> dims;

  std::shared_ptr<const Known> known;
  mlir::Value ir;
  std::shared_ptr<const std::vector<Value>> parts;
  unsigned partsDim = 0;
  std::function<mlir::Value()> deferred;
  /// A sequence of values instead of a tensor. Only its length and values count, not its shape.
  std::shared_ptr<const std::vector<Value>> sequence;
  /// Dim 0 has the values of all iterations of a loop over samples, and the nodes of the loop's
  /// body do not know it; see PerSample.h. A sequence: its one tensor is such a value.
  bool perSample = false;
  /// The core as an IR tensor once it has been emitted.
  std::shared_ptr<mlir::Value> emitted;

  bool isKnown() const { return known != nullptr; }
  bool isDefined() const { return known || ir || parts || deferred || sequence; }
  bool isSplat() const { return known && dims.empty(); }
  unsigned rank() const { return shape.size(); }
  Shape coreShape() const;
  /// Returns the core dim of logical dim `dim`, or -1. Example: in the mask above, dim 2 is core
  /// dim 0, and dim 0 is -1.
  int coreDim(unsigned dim) const;
  /// Returns the one element of a splat.
  int64_t splatInt() const { return known->intAt({}); }
  double splatReal() const { return known->realAt({}); }

  /// Makes a known value; dims along which it is constant leave the core.
  static Value ofKnown(DType dtype, Shape shape, std::vector<unsigned> dims, const Known &known);
  /// The same for a `known` of the logical shape.
  static Value ofKnown(DType dtype, const Known &known);
  static Value ofInts(std::vector<int64_t> elements);
  static Value ofSplat(DType dtype, Shape shape, double value);
  static Value ofSequence(std::vector<Value> values);
  /// Makes a value from an IR tensor of its whole shape.
  static Value ofTensor(DType dtype, mlir::Value tensor);
  /// Makes a value from an IR tensor of its core.
  static Value ofCore(DType dtype, Shape shape, std::vector<unsigned> dims, mlir::Value tensor);
};

/// Prints a shape as "[10007, 12]"; a dim divisible by `marker` is printed as "batch" or
/// "12*batch".
std::string printShape(const Shape &shape, int64_t marker);

/// Returns the broadcast shape of values; ImportError if they do not broadcast. A constant that
/// repeats along a dim fits any batch, since exporters fold `zeros_like(x)` to the exported batch
/// size. Example: zeros [2, 16] and a tensor [batch, 16] give [batch, 16].
Shape broadcastShapes(const std::vector<Value> &values, int64_t marker);

/// Returns `value` with the dims of `shape` that count samples, where a known `value` repeats along
/// them. Example: zeros [2, 16] for [batch, 16] are zeros [batch, 16].
Value overSamples(const Value &value, const Shape &shape, int64_t marker);

/// Returns all elements of a known value, in row-major order. ImportError if there are too many.
std::vector<int64_t> fullInts(const Value &value);
std::vector<double> fullReals(const Value &value);
/// Returns a known value with its elements over the whole shape.
Known fullKnown(const Value &value);

/// Limits of tables, in elements: computed at import, and read from the model's
/// file.
inline constexpr int64_t kMaxKnownElements = int64_t(1) << 20;
inline constexpr int64_t kMaxStoredElements = int64_t(1) << 22;

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_VALUE_H
