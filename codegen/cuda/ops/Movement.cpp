//===- Movement.cpp - Ops that move elements --------------------------------===//
//
// A thread does up to 16 bytes of the result, as many elements as lie together on both sides.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/ops/RowSums.h"
#include "runtime/dtype/Casts.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/xxhash.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {
namespace {

/// A shape as [outer][size along `dim`][inner].
struct Split {
  Split(const kernels::Shape &shape, int64_t dim) : size(shape[size_t(dim)]) {
    for (int64_t d = 0; d < dim; ++d)
      outer *= shape[size_t(d)];
    for (size_t d = size_t(dim) + 1; d < shape.size(); ++d)
      inner *= shape[d];
  }
  std::vector<int64_t> sizes() const { return {outer, size, inner}; }
  int64_t outer = 1, size, inner = 1;
};

int64_t dimOf(const OpCall &call) { return call.attrs.getInt("dim"); }

Value zeroLike(const ThreadKernel &k, const kernels::TensorType &type) {
  if (kernels::isFloat(type.dtype))
    return k.number(0);
  bool isBool = type.dtype == kernels::DType::Bool;
  return k.e.make<arith::ConstantIntOp>(0, isBool ? 1 : 64);
}

FailureOr<region::Kernel> copy(MLIRContext &context, const OpCall &call, Form form) {
  int64_t count = kernels::numElements(call.results[0].shape);
  int64_t each = ThreadKernel::elementsTogether(call.results[0].dtype, {count});
  ThreadKernel k(context, call, count / each, form);
  Value at = k.e.mul(k.thread, k.integer(each));
  k.storeTogether(0, at, k.loadTogether(0, at, each));
  return k.finish();
}

/// Truncates floats to integers. Beyond 64 bits the result is that of `castOfTooLarge`, and for NaN
/// too, which the reference refuses. Regions do all other casts.
FailureOr<region::Kernel> castToInteger(MLIRContext &context, const OpCall &call, Form form) {
  const kernels::TensorType &result = call.results[0];
  if (!kernels::isFloat(call.operands[0].dtype) || kernels::isFloat(result.dtype) ||
      result.dtype == kernels::DType::Bool)
    return failure();
  ThreadKernel k(context, call, kernels::numElements(result.shape), form);
  constexpr double limit = 0x1p63;
  Value x = k.load(0, k.thread);
  auto compare = [&](arith::CmpFPredicate predicate, double bound) {
    return Value(k.e.make<arith::CmpFOp>(predicate, x, k.number(bound)));
  };
  Value fits =
      k.both(compare(arith::CmpFPredicate::OGE, -limit), compare(arith::CmpFPredicate::OLT, limit));
  Value whole =
      k.e.make<arith::FPToSIOp>(k.e.builder.getI64Type(), k.e.select(fits, x, k.number(0)));
  k.store(0, k.thread, k.e.select(fits, whole, k.integer(castOfTooLarge(result.dtype))));
  return k.finish();
}

/// The threads of an op that moves elements along a dim: each does `each` elements of the result,
/// at position `at` of the row `outer`. A row is what lies together: the dim and all inner ones.
struct Rows {
  Rows(MLIRContext &context, const OpCall &call, const Split &to, ArrayRef<int64_t> runs, Form form)
      : row(to.size * to.inner), each(elements(call, runs, row)),
        k(context, call, to.outer * row / each, form) {
    SmallVector<Value> place = k.split(k.thread, {to.outer, row / each});
    outer = place[0];
    at = k.e.mul(place[1], k.integer(each));
  }
  static int64_t elements(const OpCall &call, ArrayRef<int64_t> runs, int64_t row) {
    SmallVector<int64_t> all(runs);
    all.push_back(row);
    return ThreadKernel::elementsTogether(call.results[0].dtype, all);
  }
  Value offset() const { return k.e.mul(k.thread, k.integer(each)); }
  void store(ArrayRef<Value> values) const { k.storeTogether(0, offset(), values); }
  /// Loads from position `place` of this row of an operand, whose rows have so many elements.
  SmallVector<Value> load(int operand, Value place, int64_t rowOfOperand) const {
    return k.loadTogether(operand, k.e.add(k.e.mul(outer, k.integer(rowOfOperand)), place), each);
  }
  /// Whether position `place` lies in [0, size). Unsigned: positions before the begin wrap to large
  /// numbers.
  Value isInside(Value place, int64_t size) const {
    return k.e.make<arith::CmpIOp>(arith::CmpIPredicate::ult, place, k.integer(size));
  }

  int64_t row, each;
  ThreadKernel k;
  Value outer, at;
};

FailureOr<region::Kernel> slice(MLIRContext &context, const OpCall &call, Form form) {
  Split from(call.operands[0].shape, dimOf(call)), to(call.results[0].shape, dimOf(call));
  int64_t row = from.size * from.inner, first = call.attrs.getInt("offset") * from.inner;
  Rows rows(context, call, to, {row, first}, form);
  rows.store(rows.load(0, rows.k.e.add(rows.at, rows.k.integer(first)), row));
  return rows.k.finish();
}

FailureOr<region::Kernel> pad(MLIRContext &context, const OpCall &call, Form form) {
  Split from(call.operands[0].shape, dimOf(call)), to(call.results[0].shape, dimOf(call));
  int64_t row = from.size * from.inner, low = call.attrs.getInt("low") * from.inner;
  Rows rows(context, call, to, {row, low}, form);
  Value place = rows.k.e.sub(rows.at, rows.k.integer(low));
  rows.store(rows.k.choose(
      rows.isInside(place, row), [&] { return rows.load(0, place, row); },
      [&] { return SmallVector<Value>(size_t(rows.each), zeroLike(rows.k, call.results[0])); }));
  return rows.k.finish();
}

FailureOr<region::Kernel> concat(MLIRContext &context, const OpCall &call, Form form) {
  Split to(call.results[0].shape, dimOf(call));
  SmallVector<int64_t> parts;
  for (const kernels::TensorType &operand : call.operands) {
    Split from(operand.shape, dimOf(call));
    parts.push_back(from.size * from.inner);
  }
  Rows rows(context, call, to, parts, form);
  int64_t first = 0;
  for (auto [i, part] : llvm::enumerate(parts)) {
    Value place = rows.k.e.sub(rows.at, rows.k.integer(first));
    rows.k.ifThen(rows.isInside(place, part), [&] { rows.store(rows.load(int(i), place, part)); });
    first += part;
  }
  return rows.k.finish();
}

FailureOr<region::Kernel> iota(MLIRContext &context, const OpCall &call, Form form) {
  Split to(call.results[0].shape, dimOf(call));
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  k.store(0, k.thread, k.split(k.thread, to.sizes())[1]);
  return k.finish();
}

FailureOr<region::Kernel> transpose(MLIRContext &context, const OpCall &call, Form form) {
  const std::vector<int64_t> &permutation = call.attrs.getInts("permutation");
  const kernels::Shape &from = call.operands[0].shape;
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  SmallVector<Value> at(from.size());
  for (auto [dim, index] : llvm::zip_equal(permutation, k.split(k.thread, call.results[0].shape)))
    at[size_t(dim)] = index;
  k.store(0, k.thread, k.load(0, k.join(at, from)));
  return k.finish();
}

/// Loads this thread's number of a table that becomes a part of the image. Kernels of one image
/// share names, so the table's name tells its contents.
template <typename T>
Value loadFromTable(const ThreadKernel &k, Type element, ArrayRef<T> numbers, Form form) {
  OpBuilder &b = k.e.builder;
  const unsigned space = form == Form::Device ? unsigned(NVVM::kGlobalMemorySpace) : 0;
  llvm::StringRef bytes(reinterpret_cast<const char *>(numbers.data()), numbers.size() * sizeof(T));
  std::string name =
      "table_" + std::to_string(bytes.size()) + "_" + llvm::utohexstr(llvm::xxh3_64bits(bytes));
  {
    OpBuilder::InsertionGuard guard(b);
    auto module = b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
    b.setInsertionPointToStart(module.getBody());
    auto type = RankedTensorType::get({int64_t(numbers.size())}, element);
    b.create<LLVM::GlobalOp>(k.loc, LLVM::LLVMArrayType::get(element, unsigned(numbers.size())),
                             /*isConstant=*/true, LLVM::Linkage::Internal, name,
                             DenseElementsAttr::get(type, numbers), /*alignment=*/sizeof(T), space);
  }
  Type pointer = LLVM::LLVMPointerType::get(b.getContext(), space);
  Value base = k.e.make<LLVM::AddressOfOp>(pointer, name);
  Value at = k.e.make<LLVM::GEPOp>(pointer, element, base, ArrayRef<LLVM::GEPArg>{k.thread}, true);
  return k.e.make<LLVM::LoadOp>(element, at);
}

/// Short lists are choices of a thread, longer ones a table in the image, of 32 bits where that
/// holds all numbers.
FailureOr<region::Kernel> constant(MLIRContext &context, const OpCall &call, Form form) {
  constexpr int64_t mostChoices = 1024, mostNumbers = int64_t(1) << 22;
  int64_t count = kernels::numElements(call.results[0].shape);
  const kernels::AttrValue *value = call.attrs.find("value");
  if (count > mostNumbers || !value)
    return failure();
  kernels::DType dtype = call.results[0].dtype;
  ThreadKernel k(context, call, count, form);
  OpBuilder &b = k.e.builder;
  auto build = [&](auto number) -> Value {
    if (kernels::isFloat(dtype))
      return k.number(double(number));
    return k.e.make<arith::ConstantIntOp>(int64_t(number), dtype == kernels::DType::Bool ? 1 : 64);
  };
  Value chosen;
  auto choose = [&](const auto &numbers) {
    chosen = build(numbers[0]);
    for (size_t i = 1; i < numbers.size(); ++i)
      chosen = k.e.select(k.equal(k.thread, k.integer(int64_t(i))), build(numbers[i]), chosen);
  };
  const auto *integers = std::get_if<std::vector<int64_t>>(value);
  const auto *numbers = std::get_if<std::vector<double>>(value);
  if (!integers && !numbers)
    return failure();
  bool isShort = (integers ? integers->size() : numbers->size()) <= size_t(mostChoices);
  if (isShort && integers) {
    choose(*integers);
  } else if (isShort) {
    choose(*numbers);
  } else if (kernels::isFloat(dtype)) {
    std::vector<float> list = integers ? std::vector<float>(integers->begin(), integers->end())
                                       : std::vector<float>(numbers->begin(), numbers->end());
    chosen = loadFromTable<float>(k, b.getF32Type(), list, form);
  } else if (!integers) {
    return failure();
  } else if (llvm::all_of(*integers, [](int64_t x) { return x == int64_t(int32_t(x)); })) {
    std::vector<int32_t> list(integers->begin(), integers->end());
    Value narrow = loadFromTable<int32_t>(k, b.getI32Type(), list, form);
    chosen = k.e.make<arith::ExtSIOp>(b.getI64Type(), narrow);
    if (dtype == kernels::DType::Bool)
      chosen = k.negate(k.equal(chosen, k.integer(0)));
  } else {
    chosen = loadFromTable<int64_t>(k, b.getI64Type(), *integers, form);
  }
  k.store(0, k.thread, chosen);
  return k.finish();
}

/// A thread does a pair of elements.
FailureOr<region::Kernel> rotary(MLIRContext &context, const OpCall &call, Form form) {
  const kernels::Shape &shape = call.operands[0].shape;
  // [b, s, h, d] or [b, s, h * d]
  bool isTokenMajor = call.attrs.getBool("token_major", false);
  int64_t length = shape[isTokenMajor ? 1 : shape.size() - 2];
  int64_t half = call.operands[1].shape.back();
  bool isPerSample = call.operands[1].shape.size() == 3 && shape.size() >= 3;
  int64_t rows = kernels::numElements(shape) / (2 * half);
  int64_t rowsPerToken = isTokenMajor ? rows / std::max<int64_t>(1, shape[0] * length) : 1;
  ThreadKernel k(context, call, rows * half, form);
  Value row = k.divide(k.thread, half), i = k.remainder(k.thread, half);
  Value angleRow = k.remainder(isTokenMajor ? k.divide(row, rowsPerToken) : row, length);
  if (isPerSample)
    angleRow = k.e.add(k.e.mul(k.divide(row, rows / shape[0]), k.integer(length)), angleRow);
  Value angle = k.e.add(k.e.mul(angleRow, k.integer(half)), i);
  Value cosine = k.load(1, angle), sine = k.load(2, angle);
  if (call.attrs.getBool("inverse", false))
    sine = k.e.neg(sine);
  const bool isInterleaved = call.attrs.getBool("interleaved", false);
  Value pair = isInterleaved ? k.e.mul(i, k.integer(2)) : i;
  Value first = k.e.add(k.e.mul(row, k.integer(2 * half)), pair);
  Value second = k.e.add(first, k.integer(isInterleaved ? 1 : half));
  Value x = k.load(0, first), y = k.load(0, second);
  k.store(0, first, k.e.sub(k.e.mul(x, cosine), k.e.mul(y, sine)));
  k.store(0, second, k.e.add(k.e.mul(y, cosine), k.e.mul(x, sine)));
  return k.finish();
}

/// Converts a negative index, counted from the end, and returns whether the row exists.
std::pair<Value, Value> placeOf(const ThreadKernel &k, Value index, int64_t size) {
  Value place = k.e.select(k.e.less(index, k.integer(0)), k.e.add(index, k.integer(size)), index);
  return {place, k.e.make<arith::CmpIOp>(arith::CmpIPredicate::ult, place, k.integer(size))};
}

/// GPUs cannot report errors: an index out of range gives NaN.
FailureOr<region::Kernel> gather(MLIRContext &context, const OpCall &call, Form form) {
  if (!kernels::isFloat(call.results[0].dtype))
    return failure();
  Split table(call.operands[0].shape, dimOf(call));
  int64_t count = kernels::numElements(call.operands[1].shape);
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  SmallVector<Value> at = k.split(k.thread, {table.outer, count, table.inner});
  auto [place, isThere] = placeOf(k, k.load(1, at[1]), table.size);
  at[1] = place;
  Value value = k.choose(
      isThere, [&] { return SmallVector<Value>{k.load(0, k.join(at, table.sizes()))}; },
      [&] { return SmallVector<Value>{k.number(std::numeric_limits<double>::quiet_NaN())}; })[0];
  k.store(0, k.thread, value);
  return k.finish();
}

/// An index out of range adds nothing.
FailureOr<region::Kernel> scatterAdd(MLIRContext &context, const OpCall &call, Form form) {
  if (!kernels::isFloat(call.results[0].dtype))
    return failure();
  Split table(call.results[0].shape, dimOf(call));
  RowSums sums;
  sums.outer = table.outer, sums.rows = table.size, sums.width = table.inner;
  sums.count = kernels::numElements(call.operands[1].shape);
  sums.rowOf = [&](const ThreadKernel &k, Value update) {
    auto [place, isThere] = placeOf(k, k.load(1, update), table.size);
    return k.e.select(isThere, place, k.integer(table.size));
  };
  return sumByRows(context, call, sums, form);
}

} // namespace

const OpKernelTable &movementOpKernels() {
  static const OpKernelTable table = {
      {"cast", castToInteger},     {"concat", concat},      {"constant", constant},
      {"gather", gather},          {"iota", iota},          {"pad", pad},
      {"reshape", copy},           {"rotary", rotary},      {"slice", slice},
      {"scatter_add", scatterAdd}, {"transpose", transpose}};
  return table;
}

} // namespace tbc::cuda
