//===- TiledAttention.cpp - Attention on GPUs by tensor cores ---------------===//
//
// All launches but the first of a gradient have one form. A warp owns 16 rows, queries or keys, and
// walks over tiles of the others, which lie in shared memory:
//
//   rows     others  products of a tile                          sums
//   queries  keys    S = q k^T                                   o += P v
//   queries  keys    S = q k^T, dP = do v^T                      dq += dS k
//   keys     queries S = k q^T, dP = v do^T                      dk += dS q, dv += P do
//   queries  keys    S = q k^T, dP = do v^T                      d bias += dz
//
// The last walks over samples and heads, with one tile of keys. The sums of a product are in the
// registers that the fragment of the next one needs, so scores never go to memory.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/ops/TiledAttention.h"

#include "codegen/cuda/DeviceMath.h"
#include "codegen/cuda/ops/AttentionScores.h"
#include "ir/TiledAttention.h"

#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {
namespace {

using kernels::DType;
using kernels::HeadLayout;
using Values = SmallVector<Value>;

constexpr int64_t warpsOfBlock = threadsPerBlock / warpThreads;

int64_t ceilDiv(int64_t a, int64_t b) {
  return int64_t(llvm::divideCeil(uint64_t(a), uint64_t(b)));
}

/// What a launch makes.
enum class Task {
  Forward,
  QueryGradient,
  KeyGradient,
  ValueGradient,
  KeyAndValueGradients,
  BiasGradient
};

bool ownsQueries(Task task) {
  return task == Task::Forward || task == Task::QueryGradient || task == Task::BiasGradient;
}
/// Whether rows sum weights times v or do.
bool sumsWeights(Task task) {
  return task == Task::Forward || task == Task::ValueGradient || task == Task::KeyAndValueGradients;
}
/// Whether rows sum gradients of scores times k or q.
bool sumsScores(Task task) {
  return task == Task::QueryGradient || task == Task::KeyGradient ||
         task == Task::KeyAndValueGradients;
}
bool needsGradients(Task task) { return sumsScores(task) || task == Task::BiasGradient; }

/// How the rows of a task are cut.
struct Cut {
  Cut(const AttentionCall &a, Task task)
      : lines(AttentionTileShape(a).lines), numRows(ownsQueries(task) ? a.queries : a.keys) {
    const std::array<int64_t, 2> &widths = AttentionTileShape(a).widths;
    int64_t width = std::max(sumsScores(task) ? widths[0] : 0, sumsWeights(task) ? widths[1] : 0);
    if (task != Task::BiasGradient)
      parts = tiledAttentionParts(width);
    columns = task == Task::BiasGradient ? lines : width / parts;
    rowsOfBlock = warpsOfBlock / parts * TensorCores::rows;
    tiles = ceilDiv(numRows, rowsOfBlock);
  }
  bool hasPartRows() const { return numRows % rowsOfBlock != 0; }
  /// Registers of a lane for a sum of rows.
  size_t numSums() const { return size_t(columns / TensorCores::columns * TensorCores::sums); }

  int64_t lines, numRows;
  int64_t parts = 1; // warps that share rows, each with a part of the columns of the sums
  int64_t columns, rowsOfBlock, tiles;
};

//===----------------------------------------------------------------------===//
// A block
//===----------------------------------------------------------------------===//

class AttentionBlock {
public:
  AttentionBlock(const ThreadKernel &k, const AttentionCall &a, Task task)
      : k(k), e(k.e), a(a), task(task), isOfQueries(ownsQueries(task)), cut(a, task), tiles(k, a),
        scores(k, a, tiles, isOfQueries, task != Task::Forward),
        block(k.divide(k.thread, threadsPerBlock)) {
    Value warp = k.divide(tiles.cores.thread, warpThreads);
    rowInBlock = e.mul(k.divide(warp, cut.parts), k.integer(TensorCores::rows));
    part = k.remainder(warp, cut.parts);
    firstColumn = e.mul(part, k.integer(cut.columns));
  }

  static int64_t numBlocks(const AttentionCall &a, Task task) {
    return a.batch * (ownsQueries(task) ? a.heads : a.keyHeads) * Cut(a, task).tiles;
  }

  void build() {
    Values at = k.split(block, {a.batch, isOfQueries ? a.heads : a.keyHeads, cut.tiles});
    // Under a window that ends at the diagonal the last queries have the most keys: they go first.
    placeRows(isOfQueries ? e.sub(k.integer(cut.tiles - 1), at[2]) : at[2]);
    int64_t group = a.heads / a.keyHeads;
    if (isOfQueries)
      setHead(at[0], at[1], k.divide(at[1], group));
    else
      setHead(at[0], e.mul(at[1], k.integer(group)), at[1]);
    loadRows();
    Values state(cut.numSums() * size_t(int(sumsWeights(task)) + int(sumsScores(task))),
                 k.number(0));
    if (task == Task::Forward)
      llvm::append_range(state, firstStatistics());
    if (isOfQueries)
      state = overTiles(state);
    else
      state = k.loop(k.integer(0), k.integer(group), state, [&](Value i, ArrayRef<Value> before) {
        setHead(at[0], e.add(e.mul(at[1], k.integer(group)), i), at[1]);
        return overTiles(before);
      });
    if (task == Task::Forward) // by all lanes, before rows that are absent part from the others
      for (Value l : ArrayRef<Value>(state).take_back(numHalves))
        rowSums.push_back(rowSumOf(k, a, tiles.cores.overQuad(l, /*isSum=*/true)));
    forRows([&](size_t half) { storeRow(half, state); });
  }

  /// A block makes a tile of rows and keys of one bias; it sums over the samples and heads that the
  /// bias lacks.
  static int64_t numBiasBlocks(const AttentionCall &a, const kernels::BiasLayout &bias) {
    Cut cut(a, Task::BiasGradient);
    return (bias.strides[0] == 0 ? 1 : a.batch) * (bias.strides[1] == 0 ? 1 : a.heads) * cut.tiles *
           ceilDiv(a.keys, cut.lines);
  }
  void buildBiasGradient(const kernels::BiasLayout &bias) {
    bool hasSample = bias.strides[0] != 0, hasHead = bias.strides[1] != 0;
    Values at = k.split(block, {hasSample ? a.batch : 1, hasHead ? a.heads : 1, cut.tiles,
                                ceilDiv(a.keys, cut.lines)});
    placeRows(at[2]);
    Value tile = at[3];
    auto range = scores.tilesOf(firstRow, e.add(firstRow, k.integer(cut.rowsOfBlock - 1)));
    Value isRead = k.both(k.negate(e.less(tile, range.begin)), e.less(tile, range.end));
    int64_t samples = hasSample ? 1 : a.batch, heads = hasHead ? 1 : a.heads;
    Value count = e.select(isRead, k.integer(samples * heads), k.integer(0));
    Values sums =
        k.loop(k.integer(0), count, Values(cut.numSums(), k.number(0)),
               [&](Value i, ArrayRef<Value> before) {
                 Values index = k.split(i, {samples, heads});
                 Value head = hasHead ? at[1] : index[1];
                 setHead(hasSample ? at[0] : index[0], head, k.divide(head, a.heads / a.keyHeads));
                 loadRows();
                 std::array<AttentionTiles::Staged, 2> others = stageOthers();
                 tiles.store(others, i, tiles.load(others, tile));
                 AttentionScores::Pairs pairs = pairsOf(tile, i);
                 Values after;
                 for (auto [sum, gradient] : llvm::zip_equal(before, pairs.gradients))
                   after.push_back(e.add(sum, gradient));
                 return after;
               });
    Value base =
        e.add(e.mul(at[0], k.integer(bias.strides[0])), e.mul(at[1], k.integer(bias.strides[1])));
    forRows([&](size_t half) { storeBias(bias, base, tile, half, sums); });
  }

private:
  //===--------------------------------------------------------------------===//
  // Rows
  //===--------------------------------------------------------------------===//

  void placeRows(Value tile) { firstRow = e.mul(tile, k.integer(cut.rowsOfBlock)); }
  Value rowOf(size_t half) const { return tiles.rowOf(e.add(firstRow, rowInBlock), int64_t(half)); }
  void setHead(Value ofSample, Value queryHead, Value ofKeys) {
    sample = ofSample, head = queryHead, keyHead = ofKeys;
    scores.setHead(sample, head);
  }
  Value begin(const HeadLayout &layout, bool isOfHeads) const {
    return tiles.begin(layout, sample, isOfHeads ? head : keyHead);
  }

  /// Loads the tensors of rows; rows that are absent are those of the last one.
  void loadRows() {
    Values present;
    rows.clear();
    for (size_t half = 0; half < numHalves; ++half) {
      Value row = rowOf(half);
      rows.push_back({row, scores.sideOf(isOfQueries, row, cut.hasPartRows())});
      present.push_back(
          cut.hasPartRows() ? Value(e.make<arith::MinSIOp>(row, k.integer(cut.numRows - 1))) : row);
    }
    rowTensors.clear();
    auto add = [&](int operand, const HeadLayout &layout) {
      rowTensors.push_back(tiles.loadRows(operand, layout, begin(layout, isOfQueries), present));
    };
    add(isOfQueries ? a.first : a.first + 1, isOfQueries ? a.q : a.k);
    if (needsGradients(task))
      add(isOfQueries ? GradientOperand::cotangent : a.first + 2, isOfQueries ? a.o : a.v);
  }

  //===--------------------------------------------------------------------===//
  // Tiles
  //===--------------------------------------------------------------------===//

  std::array<AttentionTiles::Staged, 2> stageOthers() const {
    if (isOfQueries)
      return {tiles.stage(a.first + 1, 0, a.k, begin(a.k, false)),
              tiles.stage(a.first + 2, 1, a.v, begin(a.v, false))};
    return {tiles.stage(a.first, 0, a.q, begin(a.q, true)),
            tiles.stage(GradientOperand::cotangent, 1, a.o, begin(a.o, true))};
  }

  /// Walks over the tiles of others for one query head.
  Values overTiles(ArrayRef<Value> state) const {
    std::array<AttentionTiles::Staged, 2> others = stageOthers();
    auto range = scores.tilesOf(firstRow, e.add(firstRow, k.integer(cut.rowsOfBlock - 1)));
    tiles.store(others, range.begin, tiles.load(others, range.begin));
    return k.loop(range.begin, range.end, state, [&](Value tile, ArrayRef<Value> before) {
      Value next = e.add(tile, k.integer(1));
      Values ahead = tiles.load(others, next), after(before);
      visit(tile, after);
      tiles.store(others, next, ahead);
      return after;
    });
  }

  /// Returns the pairs of rows and a tile, which lies in the buffer of step `step`.
  AttentionScores::Pairs pairsOf(Value tile, Value step) const {
    AttentionScores::Pairs pairs;
    pairs.products = tiles.multiply(rowTensors[0], 0, step);
    if (needsGradients(task))
      pairs.gradients = tiles.multiply(rowTensors[1], 1, step);
    scores.evaluate(tile, rows, pairs, task == Task::BiasGradient);
    return pairs;
  }

  /// Adds a tile to the sums.
  void visit(Value tile, Values &state) const {
    AttentionScores::Pairs pairs = pairsOf(tile, tile);
    MutableArrayRef<Value> sums(state);
    if (task == Task::Forward)
      normalize(pairs, sums);
    if (sumsWeights(task)) {
      tiles.accumulate(1, tile, pairs.weights, firstColumn, cut.columns,
                       sums.take_front(cut.numSums()));
      sums = sums.drop_front(cut.numSums());
    }
    if (sumsScores(task))
      tiles.accumulate(0, tile, pairs.gradients, firstColumn, cut.columns,
                       sums.take_front(cut.numSums()));
  }

  //===--------------------------------------------------------------------===//
  // Softmax
  //===--------------------------------------------------------------------===//

  /// Row max of both rows in units of scores, then the lane's part of the row sum l.
  Values firstStatistics() const {
    constexpr double lowest = std::numeric_limits<float>::lowest();
    constexpr double half = 0.5; // the lowest number times a unit is finite
    Value m = k.number(scores.unit() > 1 ? half * lowest / scores.unit() : lowest);
    Value l = k.number(0);
    if (a.sink >= 0) {
      m = e.mul(k.load(a.sink, head), k.number(log2e / scores.unit()));
      l = e.select(k.equal(tiles.cores.inQuad, k.integer(0)), k.number(1), l);
    }
    return {m, m, l, l};
  }
  static bool isOfHalf(size_t i, size_t half) { return i % TensorCores::sums / 2 == half; }

  /// Makes weights of a tile's scores, relative to the largest score so far, and rescales the sums.
  void normalize(AttentionScores::Pairs &pairs, MutableArrayRef<Value> state) const {
    auto sums = state.drop_back(2 * numHalves);
    auto statistics = state.take_back(2 * numHalves);
    for (size_t half = 0; half < numHalves; ++half) {
      Value &m = statistics[half], &l = statistics[numHalves + half];
      Value most = m;
      for (size_t i = 0; i < pairs.products.size(); ++i)
        if (isOfHalf(i, half))
          most = e.larger(most, pairs.products[i]);
      most = tiles.cores.overQuad(most, /*isSum=*/false);
      Value shift = scores.inUnits(most);
      // Not by powerOf: equal scores have the difference 0.
      Value shrinks = powerOfTwo(e, scores.inUnits(e.sub(m, most)));
      m = most;
      l = e.mul(l, shrinks);
      for (size_t i = 0; i < pairs.products.size(); ++i)
        if (isOfHalf(i, half)) {
          Value weight = scores.powerOf(pairs.products[i], shift);
          l = e.add(l, weight);
          pairs.weights[i] = scores.times(weight, pairs.kept[i]);
        }
      for (size_t i = 0; i < sums.size(); ++i)
        if (isOfHalf(i, half))
          sums[i] = e.mul(sums[i], shrinks);
    }
  }

  //===--------------------------------------------------------------------===//
  // Results
  //===--------------------------------------------------------------------===//

  void forRows(llvm::function_ref<void(size_t half)> store) const {
    for (size_t half = 0; half < numHalves; ++half)
      if (cut.hasPartRows())
        k.ifThen(e.less(rowOf(half), k.integer(cut.numRows)), [&] { store(half); });
      else
        store(half);
  }
  void storeRow(size_t half, ArrayRef<Value> state) const {
    if (task == Task::Forward)
      return storeResult(half, state);
    Value scale = k.number(a.call.attrs.getDouble("scale"));
    if (sumsWeights(task)) {
      storeSums(2, a.v, half, state.take_front(cut.numSums()), nullptr);
      state = state.drop_front(cut.numSums());
    }
    if (sumsScores(task))
      storeSums(isOfQueries ? 0 : 1, isOfQueries ? a.q : a.k, half, state, scale);
  }
  /// Stores o, m and l of a row.
  void storeResult(size_t half, ArrayRef<Value> state) const {
    Value m = state.take_back(2 * numHalves)[half], l = rowSums[half];
    Value isHidden = e.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, l, k.number(0));
    Value factor = e.div(k.number(1), e.select(isHidden, k.number(1), l));
    storeSums(0, a.o, half, state.drop_back(2 * numHalves), factor);
    Value isFirst = k.both(k.equal(tiles.cores.inQuad, k.integer(0)), k.equal(part, k.integer(0)));
    k.ifThen(isFirst, [&] {
      Value place = k.join({sample, head, rowOf(half)}, {a.batch, a.heads, a.queries});
      Value score = e.mul(m, k.number(scores.unit() * ln2));
      k.store(1, place, e.select(isHidden, k.number(0), score));
      k.store(2, place, l);
    });
  }
  void storeSums(int result, const HeadLayout &layout, size_t half, ArrayRef<Value> sums,
                 Value factor) const {
    Value line =
        e.add(begin(layout, isOfQueries), e.mul(rowOf(half), k.integer(layout.tokenStride())));
    Value first = e.add(e.add(line, firstColumn), e.mul(tiles.cores.inQuad, k.integer(2)));
    for (size_t i = 2 * half; i < sums.size(); i += TensorCores::sums) {
      auto column = int64_t(i / TensorCores::sums * TensorCores::columns);
      if (column >= layout.width)
        break;
      k.storeTogether(result, e.add(first, k.integer(column)),
                      {scores.times(sums[i], factor), scores.times(sums[i + 1], factor)});
    }
  }
  /// `base`: the offset of the bias's sample and head.
  void storeBias(const kernels::BiasLayout &bias, Value base, Value tile, size_t half,
                 ArrayRef<Value> sums) const {
    Value key = e.add(e.mul(tile, k.integer(cut.lines)), e.mul(tiles.cores.inQuad, k.integer(2)));
    Value line = e.add(base, e.mul(rowOf(half), k.integer(bias.strides[2])));
    int64_t each = a.keys % 2 == 0 ? 2 : 1;
    for (size_t i = 2 * half; i < sums.size(); i += TensorCores::sums)
      for (int64_t j = 0; j < 2; j += each) {
        auto column = int64_t(i / TensorCores::sums * TensorCores::columns) + j;
        Value at = e.add(key, k.integer(column));
        ArrayRef<Value> some = sums.slice(i + size_t(j), size_t(each));
        k.ifThen(e.less(at, k.integer(a.keys)), [&] { k.storeTogether(0, e.add(line, at), some); });
      }
  }

  const ThreadKernel &k;
  const region::Elements &e;
  const AttentionCall &a;
  const Task task;
  const bool isOfQueries;
  const Cut cut;
  const AttentionTiles tiles;
  AttentionScores scores;
  Value block, rowInBlock, part, firstColumn; // rowInBlock: the warp's first one
  // Of the rows and others that come next.
  Value firstRow, sample, head, keyHead;
  SmallVector<AttentionTiles::Fragments> rowTensors;
  SmallVector<AttentionScores::Row, numHalves> rows;
  Values rowSums;
};

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

FailureOr<region::Kernel> emitBlocks(MLIRContext &context, const AttentionCall &a, Task task) {
  ThreadKernel k(context, a.call, AttentionBlock::numBlocks(a, task) * threadsPerBlock,
                 Form::Device);
  TensorCores::addTiles(k, AttentionTileShape(a).bytesOfBuffers());
  AttentionBlock(k, a, task).build();
  return k.finish();
}

FailureOr<region::Kernel> emitBiasBlocks(MLIRContext &context, const AttentionCall &a) {
  const kernels::BiasLayout &bias = a.biases[size_t(a.call.attrs.getInt("bias"))];
  ThreadKernel k(context, a.call, AttentionBlock::numBiasBlocks(a, bias) * threadsPerBlock,
                 Form::Device);
  TensorCores::addTiles(k, AttentionTileShape(a).bytesOfBuffers());
  AttentionBlock(k, a, Task::BiasGradient).buildBiasGradient(bias);
  return k.finish();
}

/// A warp does a row: log2(e) (m + log(l)), with which 2^(log2(e) z - it) is the weight of a score
/// z, and the sum of do * o. A row without keys has infinity, so that all its weights are 0.
FailureOr<region::Kernel> emitRowNumbers(MLIRContext &context, const AttentionCall &a) {
  constexpr int64_t together = 2;
  int64_t numRows = a.batch * a.heads * a.queries;
  ThreadKernel k(context, a.call, threadsOfWarps(numRows, Form::Device), Form::Device);
  Value lane = k.remainder(k.thread, k.lanes()), row = k.divide(k.thread, k.lanes());
  Values at = k.split(row, {a.batch, a.heads, a.queries});
  Value begin = k.e.add(k.e.mul(at[0], k.integer(a.o.sampleStride())),
                        k.e.add(k.e.mul(at[1], k.integer(a.o.headStride())),
                                k.e.mul(at[2], k.integer(a.o.tokenStride()))));
  Value sum = k.loop(
      k.e.mul(lane, k.integer(together)), k.integer(a.valueWidth), {k.number(0)},
      [&](Value column, ArrayRef<Value> before) {
        Value offset = k.e.add(begin, column), sum = before[0];
        Values dout = k.loadTogether(GradientOperand::cotangent, offset, together);
        Values o = k.loadTogether(GradientOperand::result, offset, together);
        for (auto [x, y] : llvm::zip_equal(dout, o))
          sum = k.e.add(sum, k.e.mul(x, y));
        return Values{sum};
      },
      k.lanes() * together)[0];
  sum = k.overWarp(sum, /*isSum=*/true);
  k.ifThen(k.equal(lane, k.integer(0)), [&] {
    int numbers = int(a.call.results.size()) - 1;
    Value l = k.load(GradientOperand::denominator, row);
    Value isHidden = k.e.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, l, k.number(0));
    Value log = k.e.make<math::LogOp>(k.e.select(isHidden, k.number(1), l));
    Value logSum = k.e.mul(k.e.add(k.load(GradientOperand::maximum, row), log), k.number(log2e));
    Value infinity = k.number(std::numeric_limits<double>::infinity());
    k.store(numbers, row, k.e.select(isHidden, infinity, logSum));
    k.store(numbers, k.e.add(row, k.integer(numRows)), sum);
  });
  return k.finish();
}

/// Joins the launch of the rows' numbers and these.
FailureOr<region::Kernel>
withRowNumbers(MLIRContext &context, const AttentionCall &a,
               llvm::function_ref<FailureOr<region::Kernel>(size_t)> launch, size_t count) {
  SmallVector<region::Kernel> launches;
  for (size_t i = 0; i <= count; ++i) {
    FailureOr<region::Kernel> made = i == 0 ? emitRowNumbers(context, a) : launch(i - 1);
    if (failed(made))
      return failure();
    launches.push_back(std::move(*made));
  }
  return joinLaunches(launches, attentionRowBytes(a.batch * a.heads * a.queries));
}

} // namespace

bool isTiled(const AttentionCall &a, Form form) {
  DType dtype = a.call.operands[size_t(a.first)].dtype;
  return form == Form::Device && (dtype == DType::BF16 || dtype == DType::F16) &&
         hasTiledAttention(a.width, a.valueWidth);
}

bool isTiledBiasGradient(const AttentionCall &a, Form form) {
  return isTiled(a, form) &&
         hasTiledBiasGradient(a.call.attrs.getString("biases"), a.call.attrs.getInt("bias"));
}

FailureOr<region::Kernel> emitTiledAttention(MLIRContext &context, const AttentionCall &a) {
  return emitBlocks(context, a, Task::Forward);
}

FailureOr<region::Kernel> emitTiledAttentionGrad(MLIRContext &context, const AttentionCall &a) {
  OpCall call = withWorkspace(a.call, {DType::F32});
  AttentionCall staged(call, a.first, a.terms);
  auto isUsed = [&](size_t result) { return call.resultBuffers[result] >= 0; };
  SmallVector<Task> tasks;
  if (isUsed(0))
    tasks.push_back(Task::QueryGradient);
  if (isUsed(1) && isUsed(2) && makesBothGradients(a.width, a.valueWidth)) {
    tasks.push_back(Task::KeyAndValueGradients);
  } else {
    if (isUsed(1))
      tasks.push_back(Task::KeyGradient);
    if (isUsed(2))
      tasks.push_back(Task::ValueGradient);
  }
  return withRowNumbers(
      context, staged, [&](size_t i) { return emitBlocks(context, staged, tasks[i]); },
      tasks.size());
}

FailureOr<region::Kernel> emitTiledBiasGradient(MLIRContext &context, const AttentionCall &a) {
  OpCall call = withWorkspace(a.call, {DType::F32});
  AttentionCall staged(call, a.first, a.terms);
  return withRowNumbers(
      context, staged, [&](size_t) { return emitBiasBlocks(context, staged); }, 1);
}

} // namespace tbc::cuda
