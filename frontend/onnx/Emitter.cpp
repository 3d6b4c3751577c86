//===- Emitter.cpp - Builds tbc ops from values of the ONNX graph ----------===//

#include "frontend/onnx/Emitter.h"

#include "frontend/onnx/Batch.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Location.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <cstring>

using namespace mlir;

namespace tbc::frontend {

void Emitter::setNode(const std::string &name) { loc = NameLoc::get(builder.getStringAttr(name)); }

Operation *Emitter::create(StringRef mnemonic, ArrayRef<mlir::Value> operands, ArrayRef<Type> types,
                           const Attributes &attributes) {
  OperationState state(loc, ("tbc." + mnemonic).str());
  // Some ops exist for shape arithmetic only (floor, mod).
  if (!state.name.isRegistered())
    throw ImportError("is computed from data, which is not supported for this op");
  state.addOperands(operands);
  state.addTypes(types);
  state.addAttributes(attributes);
  return builder.create(state);
}

RankedTensorType Emitter::type(DType dtype, ArrayRef<int64_t> shape) {
  constexpr int64_t maxElements = int64_t(1) << 56;
  __int128 elements = 1;
  for (int64_t size : shape) {
    if (size <= 0)
      throw ImportError("a tensor of shape " + printShape(shape, marker) +
                        " has no elements, which is not supported");
    elements *= size;
    if (elements > maxElements)
      throw ImportError("a tensor of shape " + printShape(shape, marker) + " is too large");
  }
  return RankedTensorType::get(shape, elementTypeOf(dtype, builder.getContext()));
}

//===- cores ---------------------------------------------------------------===//

/// Returns the dims of the core of `value` as its parts number them. Nodes behind the concatenation
/// rename dims of the whole and keep their order. Example: parts [12, 12, 1] of a table [12, 12, 2]
/// that became [1, 12, 12, 2] have the dims 0, 1 and 2.
static llvm::SmallVector<unsigned> dimsOfParts(const Value &value) {
  llvm::SmallVector<unsigned> dims;
  for (const Value &part : *value.parts)
    dims.append(part.dims.begin(), part.dims.end());
  llvm::sort(dims);
  dims.erase(std::unique(dims.begin(), dims.end()), dims.end());
  if (dims.size() == value.dims.size())
    return dims;
  // No part has the joined dim in its core: it is found by its place and size.
  for (unsigned dim = 0; dim < value.parts->front().rank(); ++dim) {
    auto *place = llvm::lower_bound(dims, dim);
    int64_t size = 0;
    for (const Value &part : *value.parts)
      size += part.shape[dim];
    if (!llvm::is_contained(dims, dim) && place - dims.begin() == value.coreDim(value.partsDim) &&
        size == value.shape[value.partsDim]) {
      dims.insert(place, dim);
      break;
    }
  }
  return dims;
}

mlir::Value Emitter::core(const Value &value) {
  if (value.ir)
    return value.ir;
  if (*value.emitted)
    return *value.emitted;
  mlir::Value result;
  if (value.known) {
    result = emitKnown(value);
  } else if (value.deferred) {
    result = value.deferred();
  } else {
    llvm::SmallVector<mlir::Value> parts;
    llvm::SmallVector<unsigned> dims = dimsOfParts(value);
    for (const Value &part : *value.parts)
      parts.push_back(at(part, dims));
    result = createOne("concat", parts, type(value.dtype, value.coreShape()),
                       {integer("dim", value.coreDim(value.partsDim))});
  }
  *value.emitted = result;
  return result;
}

/// Returns the product of factor_size ops that stands for `value`, one float that counts samples;
/// null if it is another number. Where no samples meet, only a statistic of the batch may be
/// divided by it (checkSampleCounts). Examples at marker 10007: the 10007.0 of
/// `loss.sum() / x.shape[0]`, and the 10006.0 of an unbiased variance, which is factor_size - 1;
/// over 6 elements of each sample it is 60041.0, which is factor_size 6 - 1.
mlir::Value Emitter::sampleCount(const Value &value) {
  const Known &known = *value.known;
  if (!kernels::isFloat(value.dtype) || !known.isFloat() || known.numElements() != 1)
    return {};
  double number = known.realAt(Shape(known.shape().size(), 0));
  constexpr double largest = double(int64_t(1) << 53); // integers are exact below
  if (!(number > 0 && number < largest) || number != std::floor(number))
    return {};
  int64_t rest = int64_t(number);
  bool isCount = rest % marker == 0, lacksOne = rest % (marker - 1) == 0,
       lacksOneElement = !lacksOne && (rest + 1) % marker == 0;
  if (!isCount && !lacksOne && !lacksOneElement)
    return {};
  RankedTensorType scalar = type(value.dtype, {});
  auto size = [&](int64_t count) {
    return createOne("factor_size", {}, scalar,
                     {integer("count", count), integer("samples", marker),
                      builder.getNamedAttr(kSampleCountAttr, builder.getUnitAttr())});
  };
  mlir::Value product;
  if (lacksOne || lacksOneElement) {
    mlir::Value one = constant(value.dtype, Known::ofReal(1));
    int64_t elements = lacksOne ? 1 : (rest + 1) / marker;
    product = createOne("sub", {size(elements), one}, scalar);
    rest /= elements * marker - 1;
  }
  if (isCount) {
    mlir::Value count = size(rest / marker);
    product = product ? createOne("mul", {count, product}, scalar) : count;
  } else if (rest != 1) {
    product =
        createOne("mul", {product, constant(value.dtype, Known::ofReal(double(rest)))}, scalar);
  }
  return broadcast(product, known.shape(), {});
}

/// Returns a list along the batch that is the same for each sample, as a broadcast of its elements
/// for one; null for other lists. Example: a table [4, 6] repeated for 10007 samples and reshaped
/// to [40028, 6].
mlir::Value Emitter::repeatedForSamples(const Value &value) {
  const Known &known = *value.known;
  const Shape &shape = known.shape();
  auto isOverBatch = [&](int64_t size) { return dependsOnBatch(size); };
  if (known.isAffine() || llvm::count_if(shape, isOverBatch) != 1)
    return {};
  size_t dim = size_t(llvm::find_if(shape, isOverBatch) - shape.begin());
  Shape one = shape;
  one[dim] = shape[dim] / marker;
  bool isSame = true;
  forEachIndex(shape, [&](const Shape &index) {
    Shape first = index;
    first[dim] %= one[dim];
    isSame = isSame && (known.isFloat() ? known.realAt(index) == known.realAt(first)
                                        : known.intAt(index) == known.intAt(first));
  });
  if (!isSame)
    return {};
  std::vector<int64_t> ints;
  std::vector<double> reals;
  forEachIndex(one, [&](const Shape &index) {
    if (known.isFloat())
      reals.push_back(known.realAt(index));
    else
      ints.push_back(known.intAt(index));
  });
  Value sample = Value::ofKnown(value.dtype, known.isFloat() ? Known::ofReals(one, std::move(reals))
                                                             : Known::ofInts(one, std::move(ints)));
  llvm::SmallVector<int64_t> sizes, dims, in, out;
  for (size_t i = 0; i < one.size(); ++i) {
    if (i == dim) {
      sizes.push_back(marker);
      in.push_back(1);
    }
    dims.push_back(int64_t(sizes.size()));
    sizes.push_back(one[i]);
    in.push_back(1);
    out.push_back(i == dim ? 2 : 1);
  }
  return reshape(broadcast(full(sample), sizes, dims), sizes, in, out);
}

mlir::Value Emitter::emitKnown(const Value &value) {
  const Known &known = *value.known;
  if (mlir::Value repeated = repeatedForSamples(value))
    return repeated;
  if (llvm::any_of(known.shape(), [&](int64_t size) { return dependsOnBatch(size); })) {
    constexpr const char *reason =
        "uses a table with an entry for each sample of the batch, so its meaning depends on the "
        "batch size; export the model without it (an index over the batch is understood only "
        "where it selects the sample's own row, or beside scores of all pairs)";
    if (!known.isAffine())
      throw ImportError(reason);
    if (tableOverBatch.empty())
      tableOverBatch = "node '" + cast<NameLoc>(loc).getName().str() + "' " + reason;
  }
  if (mlir::Value size = sampleCount(value))
    return size;
  if (!known.isAffine())
    return constant(value.dtype, known);

  // Ranges count in i64 and become floats at the end, exactly.
  RankedTensorType intType =
      type(kernels::isFloat(value.dtype) ? DType::I64 : value.dtype, known.shape());
  DType intDtype = *dtypeOf(intType.getElementType());
  auto number = [&](int64_t n) {
    return broadcast(constant(intDtype, Known::ofInt(n)), intType.getShape(), {});
  };
  mlir::Value sum;
  for (auto [dim, step] : llvm::enumerate(known.coefficients())) {
    mlir::Value term = createOne("iota", {}, intType, {integer("dim", dim)});
    if (step != 1)
      term = createOne("mul", {term, number(step)}, intType);
    sum = sum ? createOne("add", {sum, term}, intType) : term;
  }
  // Beside scores of all pairs: the 10007 of `arange(n) + n` at that marker.
  if (known.offset() != 0 && known.offset() % marker == 0) {
    mlir::Value size =
        createOne("factor_size", {}, type(DType::F64, {}),
                  {integer("count", known.offset() / marker), integer("samples", marker)});
    size = createOne("cast", {size}, type(intDtype, {}));
    sum = createOne("add", {sum, broadcast(size, intType.getShape(), {})}, intType);
  } else if (known.offset() != 0) {
    sum = createOne("add", {sum, number(known.offset())}, intType);
  }
  if (kernels::isFloat(value.dtype))
    sum = createOne("cast", {sum}, type(value.dtype, known.shape()));
  return sum;
}

/// Packs booleans as one bit each, MLIR's format; a list of APInt would take 16 bytes each.
static DenseElementsAttr integerElements(RankedTensorType type,
                                         const std::vector<int64_t> &elements) {
  unsigned width = type.getElementType().getIntOrFloatBitWidth();
  if (width == 1) {
    llvm::SmallVector<bool> values(elements.begin(), elements.end());
    return DenseElementsAttr::get(type, values);
  }
  std::vector<char> bytes(elements.size() * (width / 8));
  for (size_t i = 0; i < elements.size(); ++i) // little-endian, as the host is
    std::memcpy(&bytes[i * (width / 8)], &elements[i], width / 8);
  return DenseElementsAttr::getFromRawBuffer(type, bytes);
}

mlir::Value Emitter::constant(DType dtype, const Known &elements) {
  RankedTensorType tensorType = type(dtype, elements.shape());
  // The context keeps attributes for its lifetime.
  WorkBudget::hold(elements.numElements() * kernels::byteWidth(dtype));
  DenseElementsAttr attr;
  if (kernels::isFloat(dtype)) {
    llvm::SmallVector<APFloat> values;
    auto floatType = cast<FloatType>(tensorType.getElementType());
    for (double real : elements.reals()) {
      APFloat value(real);
      bool losesInfo = false;
      value.convert(floatType.getFloatSemantics(), APFloat::rmNearestTiesToEven, &losesInfo);
      values.push_back(value);
    }
    attr = DenseElementsAttr::get(tensorType, values);
  } else {
    attr = integerElements(tensorType, elements.ints());
  }
  return createOne("constant", {}, tensorType, {builder.getNamedAttr("value", attr)});
}

Value Emitter::withoutUnitDims(const Value &value) {
  llvm::SmallVector<int64_t> sizes, in, out;
  std::vector<unsigned> kept;
  for (unsigned dim : value.dims) {
    in.push_back(value.shape[dim] != 1);
    if (value.shape[dim] == 1)
      continue;
    sizes.push_back(value.shape[dim]);
    out.push_back(1);
    kept.push_back(dim);
  }
  if (kept.size() == value.dims.size())
    return value;
  return Value::ofCore(value.dtype, value.shape, kept, reshape(core(value), sizes, in, out));
}

mlir::Value Emitter::at(const Value &value, ArrayRef<unsigned> dims) {
  llvm::SmallVector<int64_t> shape, positions;
  for (unsigned dim : dims)
    shape.push_back(value.shape[dim]);
  for (unsigned dim : value.dims)
    positions.push_back(llvm::find(dims, dim) - dims.begin());
  return broadcast(core(value), shape, positions);
}

mlir::Value Emitter::full(const Value &value) {
  llvm::SmallVector<unsigned> all;
  for (unsigned dim = 0; dim < value.rank(); ++dim)
    all.push_back(dim);
  return at(value, all);
}

mlir::Value Emitter::broadcast(mlir::Value input, ArrayRef<int64_t> shape, ArrayRef<int64_t> dims) {
  if (dims.size() == shape.size())
    return input;
  auto elementType = cast<RankedTensorType>(input.getType()).getElementType();
  return createOne("broadcast", {input}, type(*dtypeOf(elementType), shape),
                   {integers("dims", dims)});
}

mlir::Value Emitter::reshape(mlir::Value input, ArrayRef<int64_t> sizes, ArrayRef<int64_t> in,
                             ArrayRef<int64_t> out) {
  llvm::SmallVector<int64_t> shape;
  size_t next = 0;
  for (int64_t count : out) {
    int64_t product = 1;
    for (int64_t i = 0; i < count; ++i)
      product *= sizes[next++];
    shape.push_back(product);
  }
  auto elementType = cast<RankedTensorType>(input.getType()).getElementType();
  return createOne("reshape", {input}, type(*dtypeOf(elementType), shape),
                   {integers("sizes", sizes), integers("in", in), integers("out", out)});
}

//===- attributes ----------------------------------------------------------===//

NamedAttribute Emitter::integer(StringRef name, int64_t value) {
  return builder.getNamedAttr(name, builder.getI64IntegerAttr(value));
}
NamedAttribute Emitter::real(StringRef name, double value) {
  return builder.getNamedAttr(name, builder.getF64FloatAttr(value));
}
NamedAttribute Emitter::flag(StringRef name, bool value) {
  return builder.getNamedAttr(name, builder.getBoolAttr(value));
}
NamedAttribute Emitter::text(StringRef name, StringRef value) {
  return builder.getNamedAttr(name, builder.getStringAttr(value));
}
NamedAttribute Emitter::integers(StringRef name, ArrayRef<int64_t> values) {
  return builder.getNamedAttr(name, builder.getDenseI64ArrayAttr(values));
}

} // namespace tbc::frontend
