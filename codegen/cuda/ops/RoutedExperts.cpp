//===- RoutedExperts.cpp - Experts without a capacity, on GPUs -------------===//

#include "codegen/cuda/ops/RoutedExperts.h"

#include "codegen/cuda/ops/GroupedMatmul.h"
#include "ir/ExpertWorkspace.h"

#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {
namespace {

using kernels::DType;
using Values = SmallVector<Value>;

/// Formulas as of runtime/kernels/Activation.h.
class Activation {
public:
  Activation(const ThreadKernel &k, std::string name) : k(k), e(k.e), name(std::move(name)) {}

  Value apply(Value x) const {
    if (name == "relu")
      return e.select(e.less(k.number(0), x), x, k.number(0));
    if (name == "silu")
      return e.mul(x, sigmoid(x));
    return e.mul(half(x), e.add(k.number(1), bend(x)));
  }
  Value derivative(Value x) const {
    if (name == "relu")
      return e.select(e.less(k.number(0), x), k.number(1), k.number(0));
    if (name == "silu") {
      Value s = sigmoid(x);
      return e.add(s, e.mul(e.mul(x, s), e.sub(k.number(1), s)));
    }
    Value y = bend(x), slope;
    if (name == "gelu") {
      Value u = e.mul(x, k.number(root));
      slope = e.mul(k.number(root * twoOverRootPi), e.exp(e.neg(e.mul(u, u))));
    } else {
      Value inner = e.add(k.number(1), e.mul(k.number(3 * cube), e.mul(x, x)));
      slope = e.mul(e.mul(e.sub(k.number(1), e.mul(y, y)), k.number(tanhScale)), inner);
    }
    return e.add(half(e.add(k.number(1), y)), e.mul(half(x), slope));
  }

private:
  static constexpr double root = 0.7071067811865476, twoOverRootPi = 1.1283791670955126;
  static constexpr double tanhScale = 0.7978845608028654, cube = 0.044715;

  Value half(Value x) const { return e.mul(k.number(0.5), x); }
  Value sigmoid(Value x) const { return e.div(k.number(1), e.add(k.number(1), e.exp(e.neg(x)))); }
  /// The inner function of gelu: erf or tanh.
  Value bend(Value x) const {
    if (name == "gelu")
      return e.make<math::ErfOp>(e.mul(x, k.number(root)));
    Value inner = e.add(x, e.mul(k.number(cube), e.mul(x, e.mul(x, x))));
    return e.make<math::TanhOp>(e.mul(k.number(tanhScale), inner));
  }

  const ThreadKernel &k;
  const region::Elements &e;
  std::string name;
};

//===----------------------------------------------------------------------===//
// Sizes and memory
//===----------------------------------------------------------------------===//

/// The sizes of a layer of experts, and its operands from index `first` on.
struct Layer : ExpertSizes {
  Layer(const OpCall &call, int first)
      : x(first), weights(first + 1), in(first + 2), out(first + 3),
        activation(call.attrs.getString("activation")), dtype(call.operands[size_t(x)].dtype) {
    const kernels::Shape &tokens = call.operands[size_t(x)].shape;
    const kernels::Shape &second = call.operands[size_t(out)].shape;
    t = tokens[0], h = tokens[1], e = second[0], o = second[1], f = second[2];
    parts = call.attrs.getBool("gated") ? 2 : 1;
    top = std::min(call.attrs.getInt("top"), e);
    elementBytes = kernels::byteWidth(dtype);
  }
  static int64_t ceilDiv(int64_t a, int64_t b) {
    return int64_t(llvm::divideCeil(uint64_t(a), uint64_t(b)));
  }

  int x, weights, in, out; // operand indices
  std::string activation;
  DType dtype;
};
static_assert(ExpertSizes::tileRows == cuda::tileRows);

/// An array in the workspace, from element `begin` of a result of `withWorkspace` on.
struct Array {
  int result = 0;
  int64_t begin = 0;
};

Value load(const ThreadKernel &k, const Array &array, Value index) {
  return k.loadResult(array.result, k.e.add(index, k.integer(array.begin)));
}
void store(const ThreadKernel &k, const Array &array, Value index, Value value) {
  k.store(array.result, k.e.add(index, k.integer(array.begin)), value);
}
/// Elements from `index` on, in one access: `count` is 1, or 2 with an even index.
Values loadSome(const ThreadKernel &k, const Array &array, Value index, size_t count) {
  Value begin = k.e.add(index, k.integer(array.begin));
  return count == 1 ? Values{k.loadResult(array.result, begin)}
                    : k.loadResultsTogether(array.result, begin, int64_t(count));
}
void storeSome(const ThreadKernel &k, int result, Value index, ArrayRef<Value> values) {
  if (values.size() == 1)
    k.store(result, index, values[0]);
  else
    k.storeTogether(result, index, values);
}

//===----------------------------------------------------------------------===//
// All launches
//===----------------------------------------------------------------------===//

class ExpertsEmitter {
public:
  ExpertsEmitter(MLIRContext &context, const OpCall &call, bool isGradient, Form form)
      : context(context), form(form), n(call, isGradient ? 1 : 0),
        memory(n, isGradient, form == Form::Device ? 0 : n.f),
        staged(withWorkspace(call, {DType::I32, n.dtype, DType::F32})) {
    int lists = int(call.results.size()), values = lists + 1, sums = lists + 2;
    auto array = [&](int result, int64_t offset) {
      return Array{result, offset / kernels::byteWidth(staged.results[size_t(result)].dtype)};
    };
    counts = array(lists, memory.counts), totals = array(lists, memory.totals);
    starts = array(lists, memory.starts), experts = array(lists, memory.experts);
    tokens = array(lists, memory.tokens), rows = array(lists, memory.rows);
    hidden = array(values, memory.hidden), first = array(values, memory.first);
    made = array(sums, memory.made), terms = array(sums, memory.terms);
  }

  FailureOr<region::Kernel> forward() {
    emitLists(/*cleared=*/-1);
    emitHidden();
    emitSecondLayer();
    emitTokenSums(/*result=*/0, n.o);
    return finish();
  }

  /// Operand 0 is dy; results are dx, dw, d in, d out.
  FailureOr<region::Kernel> backward() {
    auto isUsed = [&](size_t result) { return staged.resultBuffers[result] >= 0; };
    emitLists(/*cleared=*/isUsed(1) ? 1 : -1);
    emitFirstLayer();
    emitHiddenGradient();
    if (isUsed(0)) {
      emitInputGradient();
      emitTokenSums(/*result=*/0, n.h);
    }
    if (isUsed(1))
      emitWeightGradient();
    if (isUsed(2))
      emitFirstLayerGradient();
    if (isUsed(3))
      emitSecondLayerGradient();
    return finish();
  }

private:
  void add(FailureOr<region::Kernel> launch) {
    if (failed(launch))
      isGood = false;
    else
      launches.push_back(std::move(*launch));
  }
  FailureOr<region::Kernel> finish() {
    if (!isGood)
      return failure();
    return joinLaunches(launches, memory.bytes);
  }
  ThreadKernel open(int64_t threads) const { return {context, staged, threads, form}; }

  //===--------------------------------------------------------------------===//
  // Lists of tokens
  //===--------------------------------------------------------------------===//

  Value weight(const ThreadKernel &k, Value token, Value expert) const {
    return k.load(n.weights, k.e.add(k.e.mul(token, k.integer(n.e)), expert));
  }
  /// Returns 1 where the token is routed to the expert, else 0.
  Value isRouted(const ThreadKernel &k, Value token, Value expert) const {
    return k.e.make<arith::ExtUIOp>(k.e.builder.getI64Type(), goes(k, token, expert));
  }
  Value goes(const ThreadKernel &k, Value token, Value expert) const {
    return k.e.make<arith::CmpFOp>(arith::CmpFPredicate::UNE, weight(k, token, expert),
                                   k.number(0));
  }
  /// Place `index` in the list of a token's rows; place `top` tells whether it has too many.
  Value rowPlace(const ThreadKernel &k, Value token, Value index) const {
    return k.e.add(k.e.mul(token, k.integer(n.top + 1)), index);
  }
  Value least(const ThreadKernel &k, Value a, Value b) const {
    return k.e.make<arith::MinSIOp>(a, b);
  }
  /// Returns `count` rounded up to whole tiles.
  Value whole(const ThreadKernel &k, Value count) const {
    Value up = k.e.add(count, k.integer(tileRows - 1));
    return k.e.mul(k.divide(up, tileRows), k.integer(tileRows));
  }
  struct Piece {
    Value number, expert, begin, end; // of its tokens
  };
  Piece pieceOf(const ThreadKernel &k) const {
    Values at = k.split(k.thread, {n.pieces(), n.e});
    Value begin = k.e.mul(at[0], k.integer(ExpertSizes::tokensOfPiece));
    return {at[0], at[1], begin,
            least(k, k.e.add(begin, k.integer(ExpertSizes::tokensOfPiece)), k.integer(n.t))};
  }
  Value countPlace(const ThreadKernel &k, Value piece, Value expert) const {
    return k.e.add(k.e.mul(piece, k.integer(n.e)), expert);
  }

  /// `cleared`: a result [t, e] that is set to 0, or -1.
  void emitLists(int cleared) {
    emitCounts(cleared);
    emitTotals();
    emitRows();
  }

  /// Counts the tokens of each expert in pieces of 64, and empties the rows of tokens.
  void emitCounts(int cleared) {
    ThreadKernel k = open(n.pieces() * n.e);
    Piece piece = pieceOf(k);
    Value count =
        k.loop(piece.begin, piece.end, {k.integer(0)}, [&](Value token, ArrayRef<Value> before) {
          if (cleared >= 0)
            k.store(cleared, countPlace(k, token, piece.expert), k.number(0));
          return Values{k.e.add(before[0], isRouted(k, token, piece.expert))};
        })[0];
    store(k, counts, countPlace(k, piece.number, piece.expert), count);
    k.ifThen(k.equal(piece.expert, k.integer(0)), [&] {
      k.loop(piece.begin, piece.end, {}, [&](Value token, ArrayRef<Value>) {
        for (int64_t i = 0; i < n.top; ++i)
          store(k, rows, rowPlace(k, token, k.integer(i)), k.integer(n.rows()));
        store(k, rows, rowPlace(k, token, k.integer(n.top)), k.integer(0));
        return Values();
      });
    });
    add(k.finish());
  }

  /// Replaces counts by those of the pieces before, and sums all.
  void emitTotals() {
    ThreadKernel k = open(n.e);
    Value total = k.loop(k.integer(0), k.integer(n.pieces()), {k.integer(0)},
                         [&](Value piece, ArrayRef<Value> before) {
                           Value place = countPlace(k, piece, k.thread);
                           Value count = load(k, counts, place);
                           store(k, counts, place, before[0]);
                           return Values{k.e.add(before[0], count)};
                         })[0];
    store(k, totals, k.thread, total);
    add(k.finish());
  }

  /// Writes the tokens of rows, the rows of tokens, and the experts of tiles.
  void emitRows() {
    ThreadKernel k = open(n.pieces() * n.e);
    Piece piece = pieceOf(k);
    Value start = k.loop(k.integer(0), piece.expert, {k.integer(0)},
                         [&](Value expert, ArrayRef<Value> before) {
                           return Values{k.e.add(before[0], whole(k, load(k, totals, expert)))};
                         })[0];
    Value next = k.e.add(start, load(k, counts, countPlace(k, piece.number, piece.expert)));
    k.loop(piece.begin, piece.end, {next}, [&](Value token, ArrayRef<Value> before) {
      return k.choose(
          goes(k, token, piece.expert),
          [&] {
            emitRow(k, token, piece.expert, before[0]);
            return Values{k.e.add(before[0], k.integer(1))};
          },
          [&] { return Values(before); });
    });
    k.ifThen(k.equal(piece.number, k.integer(0)), [&] { emitTiles(k, piece.expert, start); });
    add(k.finish());
  }
  void emitRow(const ThreadKernel &k, Value token, Value expert, Value row) const {
    Value before =
        k.loop(k.integer(0), expert, {k.integer(0)}, [&](Value other, ArrayRef<Value> inner) {
          return Values{k.e.add(inner[0], isRouted(k, token, other))};
        })[0];
    Value isRow = k.e.less(row, k.integer(n.rows()));
    Value isAllowed = k.both(isRow, k.e.less(before, k.integer(n.top)));
    k.ifThen(isRow, [&] { store(k, tokens, row, k.e.select(isAllowed, token, k.integer(n.t))); });
    k.ifThen(isAllowed, [&] { store(k, rows, rowPlace(k, token, before), row); });
    k.ifThen(k.negate(isAllowed),
             [&] { store(k, rows, rowPlace(k, token, k.integer(n.top)), k.integer(1)); });
  }
  /// The expert's tiles, its empty rows, and behind the last expert's the tiles without one.
  void emitTiles(const ThreadKernel &k, Value expert, Value start) const {
    Value most = k.integer(n.rows());
    Value filled = k.e.add(start, load(k, totals, expert));
    Value begin = least(k, start, most);
    Value end = least(k, k.e.add(start, whole(k, load(k, totals, expert))), most);
    k.loop(least(k, filled, most), end, {}, [&](Value row, ArrayRef<Value>) {
      store(k, tokens, row, k.integer(n.t));
      return Values();
    });
    auto setExperts = [&](Value from, Value to, Value value) {
      k.loop(k.divide(from, tileRows), k.divide(to, tileRows), {},
             [&](Value tile, ArrayRef<Value>) {
               store(k, experts, tile, value);
               return Values();
             });
    };
    setExperts(begin, end, expert);
    store(k, starts, expert, begin);
    k.ifThen(k.equal(expert, k.integer(n.e - 1)), [&] {
      store(k, starts, k.integer(n.e), end);
      setExperts(end, most, k.integer(n.e));
    });
  }

  //===--------------------------------------------------------------------===//
  // Matmuls
  //===--------------------------------------------------------------------===//

  using Line = TileOperand::Line;
  using Parts = TileMatmul::Parts;
  static Value yes(const ThreadKernel &k) { return k.e.number(k.equal(k.thread, k.thread), 1); }

  /// Elements [token of the row, width] of operand `index`.
  TileOperand ofTokens(const ThreadKernel &k, int index, int64_t width) const {
    TileOperand operand{false, index, false, width, {}};
    operand.line = [this, &k, width](Value row) {
      Value token = load(k, tokens, row), isThere = k.e.less(token, k.integer(n.t));
      Value begin = k.e.mul(k.e.select(isThere, token, k.integer(0)), k.integer(width));
      return Line{begin, isThere};
    };
    return operand;
  }
  /// Elements [row, width] of an array.
  TileOperand ofRows(const ThreadKernel &k, const Array &array, int64_t width) const {
    TileOperand operand{true, array.result, false, width, {}};
    operand.line = [&k, array, width](Value row) {
      return Line{k.e.add(k.e.mul(row, k.integer(width)), k.integer(array.begin)), yes(k)};
    };
    return operand;
  }
  /// Elements [expert, line, width] of operand `index`.
  TileOperand ofExpert(const ThreadKernel &k, int index, Value expert, int64_t lines,
                       int64_t width) const {
    TileOperand operand{false, index, false, width, {}};
    operand.line = [&k, expert, lines, width](Value line) {
      Value at = k.e.add(k.e.mul(expert, k.integer(lines)), line);
      return Line{k.e.mul(at, k.integer(width)), yes(k)};
    };
    return operand;
  }
  static TileOperand alongDepth(TileOperand operand) {
    operand.linesAreDepth = true;
    return operand;
  }

  /// Rows by `columns` of the expert of the block's tile. `expert` is the result.
  TileMatmul rowTile(const ThreadKernel &k, Value block, int64_t columns, int64_t parts,
                     int64_t depth, Value &expert) const {
    int64_t width = tileColumns / parts;
    Values at = k.split(block, {n.tiles(), Layer::ceilDiv(columns, width)});
    Value found = load(k, experts, at[0]);
    TileMatmul tile;
    tile.isThere = k.e.less(found, k.integer(n.e));
    expert = k.e.select(tile.isThere, found, k.integer(0));
    tile.row = k.e.mul(at[0], k.integer(tileRows));
    tile.column = k.e.mul(at[1], k.integer(width));
    tile.depthBegin = k.integer(0), tile.depthEnd = k.integer(depth);
    tile.numColumns = columns, tile.parts = int(parts);
    return tile;
  }
  int64_t rowBlocks(int64_t columns, int64_t parts = 1) const {
    return n.tiles() * Layer::ceilDiv(columns, tileColumns / parts);
  }
  void addMatmul(int64_t blocks, llvm::function_ref<TileMatmul(const ThreadKernel &, Value)> tile) {
    add(emitGroupedMatmul(context, staged, form, n.dtype, blocks, tile));
  }
  Value placeOf(const ThreadKernel &k, Value row, int64_t width, Value column) const {
    return k.e.add(k.e.mul(row, k.integer(width)), column);
  }
  void storeRow(const ThreadKernel &k, const Array &array, Value place,
                ArrayRef<Value> values) const {
    storeSome(k, array.result, k.e.add(place, k.integer(array.begin)), values);
  }
  /// Returns the router's weight of a row for its expert; 0 for an empty row.
  Value rowWeight(const ThreadKernel &k, Value row, Value expert) const {
    Value token = load(k, tokens, row);
    return k.choose(
        k.e.less(token, k.integer(n.t)), [&] { return Values{weight(k, token, expert)}; },
        [&] { return Values{k.number(0)}; })[0];
  }

  /// in x, of the gate and the up layer together.
  TileMatmul firstLayer(const ThreadKernel &k, Value block) const {
    Value expert;
    TileMatmul tile = rowTile(k, block, n.f, n.parts, n.h, expert);
    tile.left = ofTokens(k, n.x, n.h);
    tile.right = ofExpert(k, n.in, expert, n.parts * n.f, n.h);
    return tile;
  }
  /// a = act(gate) up.
  void emitHidden() {
    addMatmul(rowBlocks(n.f, n.parts), [&](const ThreadKernel &k, Value block) {
      TileMatmul tile = firstLayer(k, block);
      tile.consume = [this, &k](Value row, Value column, const Parts &parts) {
        Activation activation(k, n.activation);
        Values values;
        for (auto [i, gate] : llvm::enumerate(parts[0])) {
          Value value = activation.apply(gate);
          values.push_back(n.parts == 2 ? k.e.mul(value, parts[1][i]) : value);
        }
        storeRow(k, hidden, placeOf(k, row, n.f, column), values);
        return Value();
      };
      return tile;
    });
  }
  void emitSecondLayer() {
    addMatmul(rowBlocks(n.o), [&](const ThreadKernel &k, Value block) {
      Value expert;
      TileMatmul tile = rowTile(k, block, n.o, 1, n.f, expert);
      tile.left = ofRows(k, hidden, n.f);
      tile.right = ofExpert(k, n.out, expert, n.o, n.f);
      auto scale = std::make_shared<Value>();
      tile.beginRow = [this, &k, expert, scale](Value row) { *scale = rowWeight(k, row, expert); };
      tile.consume = [this, &k, scale](Value row, Value column, const Parts &parts) {
        Values values;
        for (Value sum : parts[0])
          values.push_back(k.e.mul(*scale, sum));
        storeRow(k, made, placeOf(k, row, n.o, column), values);
        return Value();
      };
      return tile;
    });
  }
  /// Keeps gate and up.
  void emitFirstLayer() {
    addMatmul(rowBlocks(n.f, n.parts), [&](const ThreadKernel &k, Value block) {
      TileMatmul tile = firstLayer(k, block);
      tile.consume = [this, &k](Value row, Value column, const Parts &parts) {
        for (auto [part, values] : llvm::enumerate(parts)) {
          Value at = k.e.add(column, k.integer(int64_t(part) * n.f));
          storeRow(k, first, placeOf(k, row, n.parts * n.f, at), values);
        }
        return Value();
      };
      return tile;
    });
  }
  /// da = out^T dy; then w a, and the gradients of gate and up in place of these.
  void emitHiddenGradient() {
    addMatmul(rowBlocks(n.f), [&](const ThreadKernel &k, Value block) {
      Value expert;
      TileMatmul tile = rowTile(k, block, n.f, 1, n.o, expert);
      tile.left = ofTokens(k, 0, n.o);
      tile.right = alongDepth(ofExpert(k, n.out, expert, n.o, n.f));
      auto scale = std::make_shared<Value>();
      tile.beginRow = [this, &k, expert, scale](Value row) { *scale = rowWeight(k, row, expert); };
      tile.consume = [this, &k, scale](Value row, Value column, const Parts &parts) {
        return hiddenGradient(k, row, column, parts[0], *scale);
      };
      int64_t rangesOfTile = form == Form::Device ? sumsOfTile : tileColumns;
      Value firstRange = k.e.mul(k.divide(tile.column, tileColumns), k.integer(rangesOfTile));
      tile.storeSum = [this, &k, firstRange](Value row, Value range, Value sum) {
        store(k, terms, placeOf(k, row, memory.ranges, k.e.add(firstRange, range)), sum);
      };
      return tile;
    });
  }
  /// Returns the columns' terms of a . da.
  Value hiddenGradient(const ThreadKernel &k, Value row, Value column, ArrayRef<Value> das,
                       Value scale) const {
    Activation activation(k, n.activation);
    Value place = placeOf(k, row, n.parts * n.f, column);
    Values gates = loadSome(k, first, place, das.size()), ups;
    Value upPlace = k.e.add(place, k.integer(n.f));
    if (n.parts == 2)
      ups = loadSome(k, first, upPlace, das.size());
    Values inner, dGates, dUps;
    Value term = k.number(0);
    for (auto [i, da] : llvm::enumerate(das)) {
      Value activated = activation.apply(gates[i]);
      Value a = n.parts == 2 ? k.e.mul(activated, ups[i]) : activated;
      Value scaled = k.e.mul(scale, da);
      Value slope = k.e.mul(scaled, activation.derivative(gates[i]));
      term = k.e.add(term, k.e.mul(a, da));
      inner.push_back(k.e.mul(scale, a));
      dGates.push_back(n.parts == 2 ? k.e.mul(slope, ups[i]) : slope);
      dUps.push_back(k.e.mul(scaled, activated));
    }
    storeRow(k, hidden, placeOf(k, row, n.f, column), inner);
    storeRow(k, first, place, dGates);
    if (n.parts == 2)
      storeRow(k, first, upPlace, dUps);
    return term;
  }
  /// in^T of the gradients of gate and up.
  void emitInputGradient() {
    addMatmul(rowBlocks(n.h), [&](const ThreadKernel &k, Value block) {
      Value expert;
      TileMatmul tile = rowTile(k, block, n.h, 1, n.parts * n.f, expert);
      tile.left = ofRows(k, first, n.parts * n.f);
      tile.right = alongDepth(ofExpert(k, n.in, expert, n.parts * n.f, n.h));
      tile.consume = [this, &k](Value row, Value column, const Parts &parts) {
        storeRow(k, made, placeOf(k, row, n.h, column), parts[0]);
        return Value();
      };
      return tile;
    });
  }

  /// A gradient of the experts: [e, lines, width], summed over the rows of each expert.
  void emitExpertGradient(int result, int64_t lines, int64_t width,
                          llvm::function_ref<TileOperand(const ThreadKernel &)> left,
                          llvm::function_ref<TileOperand(const ThreadKernel &)> right) {
    int64_t down = Layer::ceilDiv(lines, tileRows), across = Layer::ceilDiv(width, tileColumns);
    addMatmul(n.e * down * across, [&](const ThreadKernel &k, Value block) {
      Values at = k.split(block, {n.e, down, across});
      TileMatmul tile;
      tile.isThere = yes(k);
      tile.row = k.e.mul(at[1], k.integer(tileRows));
      tile.column = k.e.mul(at[2], k.integer(tileColumns));
      tile.numRows = lines, tile.numColumns = width;
      tile.depthBegin = load(k, starts, at[0]);
      tile.depthEnd = load(k, starts, k.e.add(at[0], k.integer(1)));
      tile.left = alongDepth(left(k)), tile.right = alongDepth(right(k));
      Value expert = at[0];
      tile.consume = [this, &k, expert, result, lines, width](Value row, Value column,
                                                              const Parts &parts) {
        Value line = placeOf(k, expert, lines, row);
        storeSome(k, result, placeOf(k, line, width, column), parts[0]);
        return Value();
      };
      return tile;
    });
  }
  void emitFirstLayerGradient() {
    emitExpertGradient(
        2, n.parts * n.f, n.h,
        [&](const ThreadKernel &k) { return ofRows(k, first, n.parts * n.f); },
        [&](const ThreadKernel &k) { return ofTokens(k, n.x, n.h); });
  }
  void emitSecondLayerGradient() {
    emitExpertGradient(
        3, n.o, n.f, [&](const ThreadKernel &k) { return ofTokens(k, 0, n.o); },
        [&](const ThreadKernel &k) { return ofRows(k, hidden, n.f); });
  }

  //===--------------------------------------------------------------------===//
  // Sums over the experts of a token
  //===--------------------------------------------------------------------===//

  /// Returns `value`, or NaN for a token with too many experts.
  Value orNan(const ThreadKernel &k, Value token, Value value) const {
    Value excess = load(k, rows, rowPlace(k, token, k.integer(n.top)));
    return k.e.select(k.equal(excess, k.integer(0)), value,
                      k.number(std::numeric_limits<double>::quiet_NaN()));
  }
  /// Result [t, width] = the sum of `made` over the rows of a token.
  void emitTokenSums(int result, int64_t width) {
    int64_t each = accessBytesOf(width);
    ThreadKernel k = open(n.t * (width / each));
    Values at = k.split(k.thread, {n.t, width / each});
    Value column = k.e.mul(at[1], k.integer(each));
    Values sums =
        k.loop(k.integer(0), k.integer(n.top), Values(size_t(each), k.number(0)),
               [&](Value i, ArrayRef<Value> before) {
                 Value row = load(k, rows, rowPlace(k, at[0], i));
                 return k.choose(
                     k.e.less(row, k.integer(n.rows())),
                     [&] {
                       Values after,
                           terms = loadSome(k, made, placeOf(k, row, width, column), size_t(each));
                       for (auto [sum, term] : llvm::zip_equal(before, terms))
                         after.push_back(k.e.add(sum, term));
                       return after;
                     },
                     [&] { return Values(before); });
               });
    for (Value &sum : sums)
      sum = orNan(k, at[0], sum);
    storeSome(k, result, placeOf(k, at[0], width, column), sums);
    add(k.finish());
  }
  /// Elements of f32 that a thread loads at once from rows of `width`.
  static int64_t accessBytesOf(int64_t width) {
    return width % 4 == 0 ? 4 : width % 2 == 0 ? 2 : 1;
  }

  /// dw of the experts of a token: a warp sums the terms of a row.
  void emitWeightGradient() {
    ThreadKernel k = open(threadsOfWarps(n.t * n.top, form));
    Value lane = k.remainder(k.thread, k.lanes()), warp = k.divide(k.thread, k.lanes());
    Values at = k.split(warp, {n.t, n.top});
    Value row = load(k, rows, rowPlace(k, at[0], at[1]));
    Value isRow = k.e.less(row, k.integer(n.rows()));
    Value from = k.e.select(isRow, row, k.integer(0));
    Value sum = k.loop(
        lane, k.e.select(isRow, k.integer(memory.ranges), k.integer(0)), {k.number(0)},
        [&](Value range, ArrayRef<Value> before) {
          return Values{k.e.add(before[0], load(k, terms, placeOf(k, from, memory.ranges, range)))};
        },
        k.lanes())[0];
    sum = k.overWarp(sum, /*isSum=*/true);
    k.ifThen(k.both(isRow, k.equal(lane, k.integer(0))), [&] {
      Value expert = load(k, experts, k.divide(from, tileRows));
      k.store(1, countPlace(k, at[0], expert), orNan(k, at[0], sum));
    });
    add(k.finish());
  }

  MLIRContext &context;
  Form form;
  const Layer n;
  const ExpertWorkspace memory;
  const OpCall staged;   // with three views of the workspace as further results
  Array counts, totals;  // [piece, e], [e]: tokens of an expert
  Array starts, experts; // [e + 1]: first rows; [tile]
  Array tokens, rows;    // [row]: its token, or t; [t, top + 1]: rows of a token
  Array first, hidden;   // [row, parts f]: gate and up or their gradients; [row, f]
  Array made, terms;     // [row, o or h] and [row, range], in f32
  SmallVector<region::Kernel> launches;
  bool isGood = true;
};

/// Whether the indices of all arrays are below 2^31.
bool isInRange(const OpCall &call, int first) {
  Layer n(call, first);
  int64_t most = std::numeric_limits<int32_t>::max();
  return n.rows() < most && n.t * (n.top + 1) < most && n.pieces() * n.e < most;
}

} // namespace

FailureOr<region::Kernel> emitRoutedExperts(MLIRContext &context, const OpCall &call, Form form) {
  if (!isInRange(call, 0))
    return failure();
  return ExpertsEmitter(context, call, /*isGradient=*/false, form).forward();
}

FailureOr<region::Kernel> emitRoutedExpertsGrad(MLIRContext &context, const OpCall &call,
                                                Form form) {
  if (!isInRange(call, 1))
    return failure();
  return ExpertsEmitter(context, call, /*isGradient=*/true, form).backward();
}

} // namespace tbc::cuda
