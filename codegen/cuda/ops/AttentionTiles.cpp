//===- AttentionTiles.cpp - Tensors of a block of tiled attention -----------===//

#include "codegen/cuda/ops/AttentionTiles.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace tbc::cuda {

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

static constexpr int64_t elementBytes = 2, accessElements = 8; // of an access of 16 bytes
// Lines of 16 bytes more than a multiple of 32 lie in different banks.
static constexpr int64_t linePadding = 8;

static int64_t wholeSteps(int64_t width) {
  return int64_t(llvm::alignTo(uint64_t(width), uint64_t(TensorCores::depth)));
}

AttentionTileShape::AttentionTileShape(const AttentionCall &a)
    : widths{wholeSteps(a.width), wholeSteps(a.valueWidth)} {
  constexpr int64_t elementsOfTensor = 4096, minWidth = 64;
  int64_t widest = std::max({widths[0], widths[1], minWidth});
  lines = elementsOfTensor / int64_t(llvm::PowerOf2Ceil(uint64_t(widest)));
}
int64_t AttentionTileShape::stride(int tensor) const {
  return widths[size_t(tensor)] + linePadding;
}
int64_t AttentionTileShape::bytesBefore(int tensor) const {
  return tensor == 0 ? 0 : lines * stride(0) * elementBytes;
}
int64_t AttentionTileShape::bytes() const { return lines * (stride(0) + stride(1)) * elementBytes; }
int64_t AttentionTileShape::accesses(int tensor) const {
  return lines * widths[size_t(tensor)] / accessElements;
}

AttentionTiles::AttentionTiles(const ThreadKernel &k, const AttentionCall &a)
    : shape(a), cores(k, a.call.operands[size_t(a.first)].dtype, shape.bytesOfBuffers()), k(k),
      e(k.e) {
  Value inMatrix = k.remainder(cores.lane, 8);
  Value low = e.mul(k.remainder(k.divide(cores.lane, 8), 2), k.integer(8));
  Value high = e.mul(k.divide(cores.lane, 16), k.integer(8));
  alongLines = {e.add(high, inMatrix), e.add(low, inMatrix)};
  alongElements = {low, high};
}

Value AttentionTiles::begin(const HeadLayout &layout, Value sample, Value head) const {
  Value ofSample = e.add(e.mul(sample, k.integer(layout.sampleStride())),
                         e.mul(head, k.integer(layout.headStride())));
  return layout.first == 0 ? ofSample : e.add(ofSample, k.integer(layout.first));
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

Value AttentionTiles::rowOf(Value firstRowOfWarp, int64_t half) const {
  return e.add(firstRowOfWarp, e.add(cores.quad, k.integer(half * 8)));
}

AttentionTiles::Fragments AttentionTiles::loadRows(int operand, const HeadLayout &layout,
                                                   Value begin, ArrayRef<Value> rows) const {
  Type pair = e.builder.getI32Type();
  Values lines;
  for (Value row : rows) {
    Value line = e.add(begin, e.mul(row, k.integer(layout.tokenStride())));
    lines.push_back(e.add(line, e.mul(cores.inQuad, k.integer(2))));
  }
  auto load = [&](Value line, int64_t column) -> Value {
    if (column >= layout.width)
      return e.constant(pair, 0);
    Value address = k.address(false, operand, e.add(line, k.integer(column)));
    return e.make<LLVM::LoadOp>(pair, address, 4U);
  };
  Fragments steps;
  for (int64_t column = 0; column < layout.width; column += TensorCores::depth) {
    steps.emplace_back();
    for (int64_t right : {0, 8})
      for (Value line : lines)
        steps.back().push_back(load(line, column + right));
  }
  return steps;
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

AttentionTiles::Staged AttentionTiles::stage(int operand, int tensor, const HeadLayout &layout,
                                             Value begin) const {
  Staged made{operand, tensor, &layout, begin, {}, {}};
  int64_t width = shape.widths[size_t(tensor)];
  for (int64_t done = 0; done < shape.accesses(tensor); done += threadsPerBlock) {
    Values at =
        k.split(e.add(cores.thread, k.integer(done)), {shape.lines, width / accessElements});
    made.line.push_back(at[0]);
    made.element.push_back(e.mul(at[1], k.integer(accessElements)));
  }
  return made;
}
Type AttentionTiles::accessType() const { return VectorType::get({4}, e.builder.getI32Type()); }
bool AttentionTiles::fillsBlock(int tensor) const {
  return shape.accesses(tensor) % threadsPerBlock == 0;
}

void AttentionTiles::loadOne(const Staged &from, Value tile, Values &loaded) const {
  Value first = e.mul(tile, k.integer(shape.lines));
  for (auto [line, element] : llvm::zip_equal(from.line, from.element)) {
    Value token = e.add(first, line);
    Value isThere = e.less(token, k.integer(from.layout->tokens));
    if (from.layout->width % TensorCores::depth != 0)
      isThere = k.both(isThere, e.less(element, k.integer(from.layout->width)));
    if (!fillsBlock(from.tensor))
      isThere = k.both(isThere, e.less(line, k.integer(shape.lines)));
    Value offset = e.add(e.mul(token, k.integer(from.layout->tokenStride())), element);
    loaded.push_back(k.choose(
        isThere,
        [&] {
          Value address = k.address(false, from.operand, e.add(from.begin, offset));
          return Values{e.make<LLVM::LoadOp>(accessType(), address, 16U)};
        },
        [&] { return Values{e.constant(accessType(), 0)}; })[0]);
  }
}
AttentionTiles::Values AttentionTiles::load(const std::array<Staged, 2> &others, Value tile) const {
  Values loaded;
  for (const Staged &from : others)
    loadOne(from, tile, loaded);
  return loaded;
}

void AttentionTiles::storeOne(const Staged &from, Value buffer, ArrayRef<Value> loaded) const {
  for (size_t i = 0; i < loaded.size(); ++i) {
    Value place = e.add(e.mul(from.line[i], k.integer(shape.stride(from.tensor))), from.element[i]);
    Value bytes = e.add(e.mul(place, k.integer(elementBytes)),
                        e.add(buffer, k.integer(shape.bytesBefore(from.tensor))));
    auto write = [&] {
      e.builder.create<LLVM::StoreOp>(k.loc, loaded[i], cores.tileAddress(bytes), 16U);
    };
    if (fillsBlock(from.tensor))
      write();
    else
      k.ifThen(e.less(from.line[i], k.integer(shape.lines)), write);
  }
}
void AttentionTiles::store(const std::array<Staged, 2> &others, Value step,
                           ArrayRef<Value> loaded) const {
  Value buffer = bufferOf(step);
  size_t ofFirst = others[0].line.size();
  storeOne(others[0], buffer, loaded.take_front(ofFirst));
  storeOne(others[1], buffer, loaded.drop_front(ofFirst));
  k.barrier();
}
Value AttentionTiles::bufferOf(Value step) const {
  return e.mul(k.remainder(step, AttentionTileShape::numBuffers), k.integer(shape.bytes()));
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Loads the right operands of two products: 16 lines by 16 elements from (line, element) on. By
/// default lines are columns of the product. With `areDepth` they are summed over.
AttentionTiles::Values AttentionTiles::rightOperands(int tensor, Value buffer, int64_t line,
                                                     Value element, bool areDepth) const {
  Value place = e.add(e.mul(alongLines[size_t(areDepth)], k.integer(shape.stride(tensor))),
                      alongElements[size_t(areDepth)]);
  Value bytes = e.add(buffer, e.mul(e.add(place, element), k.integer(elementBytes)));
  int64_t fixed = shape.bytesBefore(tensor) + line * shape.stride(tensor) * elementBytes;
  return cores.loadMatrices(cores.tileAddress(e.add(bytes, k.integer(fixed))), areDepth);
}

void AttentionTiles::addProducts(ArrayRef<Value> left, ArrayRef<Value> right,
                                 MutableArrayRef<Value> sums, int64_t first) const {
  for (int64_t i = 0; i < 2; ++i)
    cores.multiply(left, right.slice(size_t(2 * i), 2),
                   sums.slice(size_t((first + i) * TensorCores::sums), TensorCores::sums));
}

AttentionTiles::Values AttentionTiles::multiply(const Fragments &rows, int tensor,
                                                Value step) const {
  Value buffer = bufferOf(step);
  Values sums(size_t(shape.lines / TensorCores::columns * TensorCores::sums), k.number(0));
  for (auto [index, fragment] : llvm::enumerate(rows)) {
    Value element = k.integer(int64_t(index) * TensorCores::depth);
    for (int64_t line = 0; line < shape.lines; line += 2 * TensorCores::columns)
      addProducts(fragment, rightOperands(tensor, buffer, line, element, false), sums,
                  line / TensorCores::columns);
  }
  return sums;
}

void AttentionTiles::accumulate(int tensor, Value step, ArrayRef<Value> pairs, Value first,
                                int64_t columns, MutableArrayRef<Value> sums) const {
  Value buffer = bufferOf(step);
  columns = std::min(columns, shape.widths[size_t(tensor)]);
  for (int64_t line = 0; line < shape.lines; line += TensorCores::depth) {
    auto place = size_t(line / TensorCores::columns * TensorCores::sums);
    Values fragment;
    for (size_t i = 0; i < 2 * TensorCores::sums; i += 2)
      fragment.push_back(cores.pack(pairs[place + i], pairs[place + i + 1]));
    for (int64_t column = 0; column < columns; column += 2 * TensorCores::columns) {
      Value element = e.add(first, k.integer(column));
      addProducts(fragment, rightOperands(tensor, buffer, line, element, true), sums,
                  column / TensorCores::columns);
    }
  }
}

} // namespace tbc::cuda
