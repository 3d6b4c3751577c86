//===- GroupedMatmul.cpp - Matmuls of groups whose sizes are data ----------===//

#include "codegen/cuda/ops/GroupedMatmul.h"

#include "codegen/cuda/TensorCores.h"
#include "ir/ElementTypes.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace tbc::cuda {
namespace {

using kernels::DType;
using Values = SmallVector<Value>;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

constexpr int64_t accessBytes = 16;
constexpr int64_t depthBytes = 64; // of the depth of a tile: 32 elements of bf16, 16 of f32
constexpr int64_t bufferBytes = 10240;
constexpr int64_t numOperands = 2, numBuffers = 2; // two tiles of each operand
constexpr int64_t tileBytes = numOperands * numBuffers * bufferBytes;

// A warp multiplies 64 rows by 32 columns, as 4 x 4 tiles of mma.m16n8k16. Two warps lie above each
// other, four beside each other.
constexpr int64_t warpColumns = 32, warpRows = 64, warpsBeside = tileColumns / warpColumns;
constexpr int64_t mmaRows = TensorCores::rows, mmaColumns = TensorCores::columns,
                  mmaDepth = TensorCores::depth;
constexpr int64_t mmasDown = warpRows / mmaRows, mmasAcross = warpColumns / mmaColumns;
constexpr int64_t sumsOfMma = TensorCores::sums;
constexpr int64_t columnsOfPart = 8; // of two parts, these alternate

static_assert(warpsBeside == sumsOfTile);
static_assert(tileRows / warpRows * warpsBeside * warpThreads == threadsPerBlock);

/// How a tile of an operand lies in shared memory: lines of `elements` elements, `stride` apart.
/// The stride avoids bank conflicts: 8 lines of 16 bytes lie in different banks.
struct TileShape {
  TileShape(const TileOperand &operand, DType dtype) {
    int64_t bytes = kernels::byteWidth(dtype), depth = depthBytes / bytes;
    lines = operand.linesAreDepth ? depth : tileRows;
    elements = operand.linesAreDepth ? tileRows : depth;
    stride = elements + accessBytes / bytes;
    each = accessBytes / bytes;
    while (operand.width % each != 0)
      each /= 2;
    assert(lines * stride * bytes <= bufferBytes);
  }
  int64_t accesses() const { return lines * (elements / each) / threadsPerBlock; }

  int64_t lines, elements, stride;
  int64_t each; // elements of an access
};
static_assert(tileRows == tileColumns);

//===----------------------------------------------------------------------===//
// One tile, by a block
//===----------------------------------------------------------------------===//

class BlockMatmul {
public:
  BlockMatmul(const ThreadKernel &k, const TileMatmul &tile, DType dtype)
      : k(k), e(k.e), b(k.e.builder), tile(tile), dtype(dtype),
        depth(depthBytes / kernels::byteWidth(dtype)), cores(k, dtype, tileBytes) {
    Value warp = k.divide(cores.thread, warpThreads);
    firstRow = e.mul(k.divide(warp, warpsBeside), k.integer(warpRows));
    warpBeside = k.remainder(warp, warpsBeside);
    firstColumn = e.mul(warpBeside, k.integer(warpColumns));
  }

  void build() {
    Staged left(*this, tile.left, /*isLeft=*/true), right(*this, tile.right, /*isLeft=*/false);
    Value length = e.sub(tile.depthEnd, tile.depthBegin);
    Value steps = k.divide(e.add(length, k.integer(depth - 1)), depth);
    Values first = both(left, right, tile.depthBegin);
    storeBoth(left, right, first, k.integer(0));
    k.barrier();
    Values sums(size_t(mmasDown * mmasAcross * sumsOfMma), k.number(0));
    sums = k.loop(k.integer(0), steps, sums, [&](Value step, ArrayRef<Value> before) {
      Value next = e.add(step, k.integer(1));
      Values ahead = both(left, right, e.add(tile.depthBegin, e.mul(next, k.integer(depth))));
      Value place = bufferOf(step);
      Values after = kernels::byteWidth(dtype) == 2
                         ? multiplyByTensorCores(left.shape, right.shape, place, before)
                         : multiplyByThreads(left.shape, right.shape, place, before);
      storeBoth(left, right, ahead, bufferOf(next));
      k.barrier();
      return after;
    });
    consumeAll(sums);
  }

private:
  /// An operand on its way from global to shared memory.
  struct Staged {
    Staged(const BlockMatmul &block, const TileOperand &operand, bool isLeft)
        : operand(operand), shape(operand, block.dtype), isLeft(isLeft) {
      const ThreadKernel &k = block.k;
      for (int64_t i = 0; i < shape.accesses(); ++i) {
        Value number = k.e.add(block.cores.thread, k.integer(i * threadsPerBlock));
        Values at = k.split(number, {shape.lines, shape.elements / shape.each});
        line.push_back(at[0]);
        element.push_back(k.e.mul(at[1], k.integer(shape.each)));
        if (!operand.linesAreDepth)
          fixed.push_back(block.lineOf(*this, at[0]));
      }
    }
    const TileOperand &operand;
    TileShape shape;
    bool isLeft;
    Values line, element; // within the tile, of each access of this thread
    SmallVector<TileOperand::Line> fixed;
  };

  //===--------------------------------------------------------------------===//
  // Global to shared memory
  //===--------------------------------------------------------------------===//

  /// Returns the operand's line of row or column `number` of the tile.
  TileOperand::Line lineOf(const Staged &staged, Value number) const {
    if (staged.isLeft)
      return bounded(staged.operand, e.add(tile.row, number), tile.numRows);
    if (tile.parts == 1)
      return bounded(staged.operand, e.add(tile.column, number), tile.numColumns);
    assert(tile.parts == 2 && !staged.operand.linesAreDepth);
    // 8 columns of the first part, the same 8 of the second, the next 8 of the first.
    Values at = k.split(number, {tileColumns / (2 * columnsOfPart), 2, columnsOfPart});
    Value column = e.add(tile.column, e.add(e.mul(at[0], k.integer(columnsOfPart)), at[2]));
    Value isColumn = e.less(column, k.integer(tile.numColumns));
    column = e.select(isColumn, column, k.integer(0));
    TileOperand::Line found =
        staged.operand.line(e.add(e.mul(at[1], k.integer(tile.numColumns)), column));
    return {found.begin, k.both(isColumn, found.isThere)};
  }
  /// Lines from `size` on are absent, unless `size` is 0.
  TileOperand::Line bounded(const TileOperand &operand, Value line, int64_t size) const {
    if (size == 0)
      return operand.line(line);
    Value isLine = e.less(line, k.integer(size));
    TileOperand::Line found = operand.line(e.select(isLine, line, k.integer(0)));
    return {found.begin, k.both(isLine, found.isThere)};
  }
  /// The same for an index of the depth. An absent one may have no index at all, as in a group
  /// without rows, so no memory is read for it.
  TileOperand::Line depthLineOf(const Staged &staged, Value index) const {
    Values found = k.choose(
        e.less(index, tile.depthEnd),
        [&] {
          TileOperand::Line line = staged.operand.line(index);
          return Values{line.begin, line.isThere};
        },
        [&] { return Values{k.integer(0), e.constant(b.getI1Type(), 0)}; });
    return {found[0], found[1]};
  }

  /// Loads a thread's elements of the tile whose depth begins at `begin`.
  Values load(const Staged &staged, Value begin) const {
    Values loaded;
    for (size_t i = 0; i < staged.line.size(); ++i) {
      TileOperand::Line line = staged.operand.linesAreDepth
                                   ? depthLineOf(staged, e.add(begin, staged.line[i]))
                                   : staged.fixed[i];
      Value from = staged.operand.linesAreDepth ? (staged.isLeft ? tile.row : tile.column) : begin;
      Value element = e.add(from, staged.element[i]);
      Value isThere = k.both(line.isThere, e.less(element, k.integer(staged.operand.width)));
      Type type = rawType(staged.shape.each);
      loaded.push_back(k.choose(
          isThere,
          [&] {
            Value address = k.address(staged.operand.isResult, staged.operand.index,
                                      e.add(line.begin, element));
            return Values{e.make<LLVM::LoadOp>(type, address, unsigned(bytesOf(type)))};
          },
          [&] { return Values{e.constant(type, 0)}; })[0]);
    }
    return loaded;
  }
  Values both(const Staged &left, const Staged &right, Value begin) const {
    Values loaded = load(left, begin);
    llvm::append_range(loaded, load(right, begin));
    return loaded;
  }

  void store(const Staged &staged, ArrayRef<Value> loaded, Value buffer) const {
    for (auto [line, element, value] : llvm::zip_equal(staged.line, staged.element, loaded)) {
      Value place = e.add(e.mul(line, k.integer(staged.shape.stride)), element);
      e.builder.create<LLVM::StoreOp>(k.loc, value, at(staged.isLeft, buffer, place),
                                      unsigned(bytesOf(value.getType())));
    }
  }
  void storeBoth(const Staged &left, const Staged &right, ArrayRef<Value> loaded,
                 Value buffer) const {
    store(left, loaded.take_front(left.line.size()), buffer);
    store(right, loaded.drop_front(left.line.size()), buffer);
  }

  /// Returns the byte offset of the buffer of a step: they alternate.
  Value bufferOf(Value step) const {
    return e.mul(k.remainder(step, numBuffers), k.integer(numOperands * bufferBytes));
  }
  /// Returns the address of element `place` of an operand's tile in shared memory.
  Value at(bool isLeft, Value buffer, Value place) const {
    Value bytes = e.add(e.mul(place, k.integer(kernels::byteWidth(dtype))), buffer);
    if (!isLeft)
      bytes = e.add(bytes, k.integer(bufferBytes));
    return cores.tileAddress(bytes);
  }

  /// Returns the integer type with the bytes of `elements` elements.
  Type rawType(int64_t elements) const {
    int64_t bytes = elements * kernels::byteWidth(dtype);
    return bytes <= 4 ? Type(b.getIntegerType(unsigned(8 * bytes)))
                      : VectorType::get({bytes / 4}, b.getI32Type());
  }
  static int64_t bytesOf(Type raw) {
    auto vector = dyn_cast<VectorType>(raw);
    return vector ? vector.getNumElements() * 4 : int64_t(raw.getIntOrFloatBitWidth() / 8);
  }

  //===--------------------------------------------------------------------===//
  // Matmul
  //===--------------------------------------------------------------------===//

  static size_t sumOf(int64_t down, int64_t across, int64_t i) {
    return size_t((down * mmasAcross + across) * sumsOfMma + i);
  }

  /// Loads four matrices of 8 x 8 elements: `lines` x `elements` of the tile from (line, element)
  /// on, 16 x 16, by `ldmatrix`. A tile with lines of the depth is transposed on the way.
  ///
  /// `inOrder`: matrices 0 and 1 follow each other along rows, 2 and 3 are behind them in depth
  /// (the left operand); else 0 and 1 follow each other in depth, 2 and 3 are the next columns.
  Values loadMatrices(const TileShape &shape, bool isLeft, bool isDepth, Value buffer,
                      Value position, Value depthPosition) const {
    Value inMatrix = k.remainder(cores.lane, 8);
    Value low = e.mul(k.remainder(k.divide(cores.lane, 8), 2), k.integer(8));
    Value high = e.mul(k.divide(cores.lane, 16), k.integer(8));
    Value alongRows = isLeft ? low : high, alongDepth = isLeft ? high : low;
    if (isDepth)
      alongDepth = e.add(alongDepth, inMatrix);
    else
      alongRows = e.add(alongRows, inMatrix);
    Value row = e.add(position, alongRows), index = e.add(depthPosition, alongDepth);
    Value line = isDepth ? index : row, element = isDepth ? row : index;
    Value place = e.add(e.mul(line, k.integer(shape.stride)), element);
    return cores.loadMatrices(at(isLeft, buffer, place), /*isTransposed=*/isDepth);
  }

  Values multiplyByTensorCores(const TileShape &left, const TileShape &right, Value buffer,
                               ArrayRef<Value> before) const {
    Values sums(before);
    for (int64_t index = 0; index < depth; index += mmaDepth) {
      SmallVector<Values> a, bs;
      for (int64_t down = 0; down < mmasDown; ++down)
        a.push_back(loadMatrices(left, true, tile.left.linesAreDepth, buffer,
                                 e.add(firstRow, k.integer(down * mmaRows)), k.integer(index)));
      for (int64_t across = 0; across < mmasAcross; across += 2) {
        Values two =
            loadMatrices(right, false, tile.right.linesAreDepth, buffer,
                         e.add(firstColumn, k.integer(across * mmaColumns)), k.integer(index));
        bs.push_back({two[0], two[1]});
        bs.push_back({two[2], two[3]});
      }
      for (int64_t down = 0; down < mmasDown; ++down)
        for (int64_t across = 0; across < mmasAcross; ++across)
          cores.multiply(a[size_t(down)], bs[size_t(across)],
                         MutableArrayRef<Value>(sums).slice(sumOf(down, across, 0), sumsOfMma));
    }
    return sums;
  }

  /// f32: each lane multiplies the elements of the sums that it has, as after `mma`.
  Values multiplyByThreads(const TileShape &left, const TileShape &right, Value buffer,
                           ArrayRef<Value> before) const {
    auto element = [&](const TileShape &shape, bool isLeft, Value position, Value index) {
      bool isDepth = (isLeft ? tile.left : tile.right).linesAreDepth;
      Value line = isDepth ? index : position, inLine = isDepth ? position : index;
      Value place = e.add(e.mul(line, k.integer(shape.stride)), inLine);
      return Value(e.make<LLVM::LoadOp>(b.getF32Type(), at(isLeft, buffer, place)));
    };
    return k.loop(k.integer(0), k.integer(depth), before, [&](Value index, ArrayRef<Value> inner) {
      Values a, c, after(inner);
      for (int64_t down = 0; down < mmasDown; ++down)
        for (int64_t half = 0; half < 2; ++half)
          a.push_back(element(left, true, rowOf(down, half), index));
      for (int64_t across = 0; across < mmasAcross; ++across)
        for (int64_t i = 0; i < 2; ++i)
          c.push_back(element(right, false, e.add(columnOf(across), k.integer(i)), index));
      for (int64_t down = 0; down < mmasDown; ++down)
        for (int64_t across = 0; across < mmasAcross; ++across)
          for (int64_t i = 0; i < sumsOfMma; ++i) {
            Value &sum = after[sumOf(down, across, i)];
            sum = e.add(sum, e.mul(a[size_t(2 * down + i / 2)], c[size_t(2 * across + i % 2)]));
          }
      return after;
    });
  }

  //===--------------------------------------------------------------------===//
  // Results
  //===--------------------------------------------------------------------===//

  /// Returns the tile's row of half `half` of a lane's sums.
  Value rowOf(int64_t down, int64_t half) const {
    return e.add(e.add(firstRow, k.integer(down * mmaRows + half * mmaColumns)), cores.quad);
  }
  /// Returns the first of the tile's two columns of a lane's sums.
  Value columnOf(int64_t across) const {
    return e.add(e.add(firstColumn, k.integer(across * mmaColumns)),
                 e.mul(cores.inQuad, k.integer(2)));
  }

  void consumeAll(ArrayRef<Value> sums) const {
    for (int64_t down = 0; down < mmasDown; ++down)
      for (int64_t half = 0; half < 2; ++half) {
        Value row = e.add(tile.row, rowOf(down, half)), total = k.number(0);
        if (tile.beginRow)
          tile.beginRow(row);
        for (int64_t across = 0; across < mmasAcross; across += tile.parts)
          total = e.add(total, consume(sums, down, half, across, row));
        if (tile.storeSum)
          storeSum(row, total);
      }
  }
  /// Returns the sum of the terms of two columns.
  Value consume(ArrayRef<Value> sums, int64_t down, int64_t half, int64_t across, Value row) const {
    Value inTile = columnOf(across);
    if (tile.parts == 2) // 16 columns of the tile are 8 of the result
      inTile = e.add(e.add(k.divide(firstColumn, 2), k.integer(across / 2 * columnsOfPart)),
                     e.mul(cores.inQuad, k.integer(2)));
    Value column = e.add(tile.column, inTile), total = k.number(0);
    int64_t width = tile.numColumns % 2 == 0 ? 2 : 1;
    for (int64_t i = 0; i < 2; i += width) {
      TileMatmul::Parts parts;
      for (int64_t part = 0; part < tile.parts; ++part) {
        parts.emplace_back();
        for (int64_t j = i; j < i + width; ++j)
          parts.back().push_back(sums[sumOf(down, across + part, 2 * half + j)]);
      }
      Value here = e.add(column, k.integer(i));
      Value isThere = e.less(here, k.integer(tile.numColumns));
      if (tile.numRows != 0)
        isThere = k.both(isThere, e.less(row, k.integer(tile.numRows)));
      total = e.add(total, k.choose(
                               isThere,
                               [&] {
                                 Value term = tile.consume(row, here, parts);
                                 return Values{term ? term : k.number(0)};
                               },
                               [&] { return Values{k.number(0)}; })[0]);
    }
    return total;
  }
  /// Adds the sums of the four lanes with the same row.
  void storeSum(Value row, Value total) const {
    total = cores.overQuad(total, /*isSum=*/true);
    k.ifThen(k.equal(cores.inQuad, k.integer(0)), [&] { tile.storeSum(row, warpBeside, total); });
  }

  const ThreadKernel &k;
  const region::Elements &e;
  OpBuilder &b;
  const TileMatmul &tile;
  DType dtype;
  int64_t depth; // of a tile, in elements
  TensorCores cores;
  Value firstRow, firstColumn; // of the warp's sums in the tile
  Value warpBeside;
};

//===----------------------------------------------------------------------===//
// One element of a tile, by a thread of the host form
//===----------------------------------------------------------------------===//

Value elementOf(const ThreadKernel &k, const TileOperand &operand, Value line, Value element) {
  TileOperand::Line found = operand.line(line);
  Value isThere = k.both(found.isThere, k.e.less(element, k.integer(operand.width)));
  return k.choose(
      isThere,
      [&] {
        Value offset = k.e.add(found.begin, element);
        return Values{operand.isResult ? k.loadResult(operand.index, offset)
                                       : k.load(operand.index, offset)};
      },
      [&] { return Values{k.number(0)}; })[0];
}

void buildElement(const ThreadKernel &k, const TileMatmul &tile, Value rowInTile,
                  Value columnInTile) {
  Value row = k.e.add(tile.row, rowInTile), column = k.e.add(tile.column, columnInTile);
  Value isThere = k.e.less(column, k.integer(tile.numColumns));
  if (tile.numRows != 0)
    isThere = k.both(isThere, k.e.less(row, k.integer(tile.numRows)));
  k.ifThen(isThere, [&] {
    Values sums = k.loop(
        tile.depthBegin, tile.depthEnd, Values(size_t(tile.parts), k.number(0)),
        [&](Value index, ArrayRef<Value> before) {
          auto of = [&](const TileOperand &operand, Value line) {
            return operand.linesAreDepth ? elementOf(k, operand, index, line)
                                         : elementOf(k, operand, line, index);
          };
          Value left = of(tile.left, row);
          Values after;
          for (int64_t part = 0; part < tile.parts; ++part) {
            Value line = k.e.add(column, k.integer(part * tile.numColumns));
            after.push_back(k.e.add(before[size_t(part)], k.e.mul(left, of(tile.right, line))));
          }
          return after;
        });
    if (tile.beginRow)
      tile.beginRow(row);
    TileMatmul::Parts parts;
    for (Value sum : sums)
      parts.push_back({sum});
    Value term = tile.consume(row, column, parts);
    if (tile.storeSum)
      tile.storeSum(row, columnInTile, term);
  });
}

} // namespace

FailureOr<region::Kernel>
emitGroupedMatmul(MLIRContext &context, const OpCall &call, Form form, DType dtype, int64_t blocks,
                  llvm::function_ref<TileMatmul(const ThreadKernel &k, Value block)> describe) {
  bool isDevice = form == Form::Device;
  int64_t threads = isDevice ? threadsPerBlock : tileRows * tileColumns;
  ThreadKernel k(context, call, blocks * threads, form);
  TileMatmul tile = describe(k, k.divide(k.thread, threads));
  if (isDevice)
    TensorCores::addTiles(k, tileBytes);
  k.ifThen(tile.isThere, [&] {
    if (isDevice) {
      BlockMatmul(k, tile, dtype).build();
    } else {
      Values at = k.split(k.remainder(k.thread, threads), {tileRows, tileColumns});
      Value isColumn = k.e.less(at[1], k.integer(tileColumns / tile.parts));
      k.ifThen(isColumn, [&] { buildElement(k, tile, at[0], at[1]); });
    }
  });
  return k.finish();
}

} // namespace tbc::cuda
