//===- RoutedExperts.cpp - Experts without a capacity, on GPUs -------------===//

#include "codegen/cuda/ops/RoutedExperts.h"

#include "codegen/cuda/ops/ExpertLists.h"
#include "codegen/cuda/ops/GroupedMatmul.h"

#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {
namespace {

using Values = SmallVector<Value>;

/// Formulas as of runtime/kernels/Activation.h.
class Activation {
public:
  Activation(const ThreadKernel &k, std::string name) : k(k), e(k.e), name(std::move(name)) {}

  Value apply(Value x) const {
    if (name == "relu")
      return e.select(e.notPositive(x), k.number(0), x);
    if (name == "silu")
      return e.mul(x, sigmoid(x));
    return e.mul(half(x), e.add(k.number(1), bend(x)));
  }
  Value derivative(Value x) const {
    if (name == "relu")
      return e.select(e.notPositive(x), k.number(0), k.number(1));
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

int64_t ceilDiv(int64_t a, int64_t b) {
  return int64_t(llvm::divideCeil(uint64_t(a), uint64_t(b)));
}

/// Elements from `index` on, in one access. Their total bytes are a power of two, and `index` is a
/// multiple of `count`.
Values loadSome(const ThreadKernel &k, const WorkspaceArray &array, Value index, size_t count) {
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

class ExpertsEmitter : public ExpertLists {
public:
  using ExpertLists::ExpertLists;

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
  //===--------------------------------------------------------------------===//
  // Matmuls
  //===--------------------------------------------------------------------===//

  using Line = TileOperand::Line;
  using Parts = TileMatmul::Parts;
  static Value yes(const ThreadKernel &k) { return k.e.constant(k.e.builder.getI1Type(), 1); }

  /// Elements [token of the row, width] of operand `index`.
  TileOperand ofTokens(const ThreadKernel &k, int index, int64_t width) const {
    TileOperand operand{false, index, false, width, {}};
    operand.line = [this, &k, width](Value row) {
      Value token = tokens.load(k, row), isThere = k.e.less(token, k.integer(n.t));
      Value begin = k.e.mul(k.e.select(isThere, token, k.integer(0)), k.integer(width));
      return Line{begin, isThere};
    };
    return operand;
  }
  /// Elements [row, width] of an array.
  TileOperand ofRows(const ThreadKernel &k, const WorkspaceArray &array, int64_t width) const {
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
    Values at = k.split(block, {n.tiles(), ceilDiv(columns, width)});
    Value found = experts.load(k, at[0]);
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
    return n.tiles() * ceilDiv(columns, tileColumns / parts);
  }
  void addMatmul(int64_t blocks, llvm::function_ref<TileMatmul(const ThreadKernel &, Value)> tile) {
    add(emitGroupedMatmul(context, staged, form, n.dtype, blocks, tile));
  }
  Value placeOf(const ThreadKernel &k, Value row, int64_t width, Value column) const {
    return k.e.add(k.e.mul(row, k.integer(width)), column);
  }
  void storeRow(const ThreadKernel &k, const WorkspaceArray &array, Value place,
                ArrayRef<Value> values) const {
    storeSome(k, array.result, k.e.add(place, k.integer(array.begin)), values);
  }
  /// Returns the router's weight of a row for its expert; 0 for an empty row.
  Value rowWeight(const ThreadKernel &k, Value row, Value expert) const {
    Value token = tokens.load(k, row);
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
        terms.store(k, placeOf(k, row, memory.ranges, k.e.add(firstRange, range)), sum);
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
    int64_t down = ceilDiv(lines, tileRows), across = ceilDiv(width, tileColumns);
    addMatmul(n.e * down * across, [&](const ThreadKernel &k, Value block) {
      Values at = k.split(block, {n.e, down, across});
      TileMatmul tile;
      tile.isThere = yes(k);
      tile.row = k.e.mul(at[1], k.integer(tileRows));
      tile.column = k.e.mul(at[2], k.integer(tileColumns));
      tile.numRows = lines, tile.numColumns = width;
      tile.depthBegin = starts.load(k, at[0]);
      tile.depthEnd = starts.load(k, k.e.add(at[0], k.integer(1)));
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
    Value excess = rows.load(k, rowPlace(k, token, k.integer(n.top)));
    return k.e.select(k.equal(excess, k.integer(0)), value,
                      k.number(std::numeric_limits<double>::quiet_NaN()));
  }
  /// Result [t, width] = the sum of `made` over the rows of a token.
  void emitTokenSums(int result, int64_t width) {
    int64_t each = elementsOfAccess(width);
    ThreadKernel k = open(n.t * (width / each));
    Values at = k.split(k.thread, {n.t, width / each});
    Value column = k.e.mul(at[1], k.integer(each));
    Values sums =
        k.loop(k.integer(0), k.integer(n.top), Values(size_t(each), k.number(0)),
               [&](Value i, ArrayRef<Value> before) {
                 Value row = rows.load(k, rowPlace(k, at[0], i));
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
  static int64_t elementsOfAccess(int64_t width) {
    return width % 4 == 0 ? 4 : width % 2 == 0 ? 2 : 1;
  }

  /// dw of the experts of a token: a warp sums the terms of a row.
  void emitWeightGradient() {
    ThreadKernel k = open(threadsOfWarps(n.t * n.top, form));
    Value lane = k.remainder(k.thread, k.lanes()), warp = k.divide(k.thread, k.lanes());
    Values at = k.split(warp, {n.t, n.top});
    Value row = rows.load(k, rowPlace(k, at[0], at[1]));
    Value isRow = k.e.less(row, k.integer(n.rows()));
    Value from = k.e.select(isRow, row, k.integer(0));
    Value sum = k.loop(
        lane, k.e.select(isRow, k.integer(memory.ranges), k.integer(0)), {k.number(0)},
        [&](Value range, ArrayRef<Value> before) {
          return Values{k.e.add(before[0], terms.load(k, placeOf(k, from, memory.ranges, range)))};
        },
        k.lanes())[0];
    sum = k.overWarp(sum, /*isSum=*/true);
    k.ifThen(k.both(isRow, k.equal(lane, k.integer(0))), [&] {
      Value expert = experts.load(k, k.divide(from, tileRows));
      k.store(1, countPlace(k, at[0], expert), orNan(k, at[0], sum));
    });
    add(k.finish());
  }
};

/// Whether the indices of all arrays are below 2^31.
bool isInRange(const OpCall &call, int first) {
  ExpertLayer n(call, first);
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
