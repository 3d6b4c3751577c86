//===- CudnnOps.cpp - Ops as cuDNN graphs ----------------------------------===//

#include "runtime/cuda/CudnnOps.h"

#include "runtime/kernels/HeadLayout.h"
#include "runtime/kernels/PackedAttention.h"

#include <algorithm>
#include <limits>

namespace tbc::cuda {

using kernels::DType;
using kernels::HeadLayout;
using kernels::TensorType;
using Dims = CudnnGraph::Dims;
using Of = CudnnWork::Place::Of;

static std::optional<CudnnType> typeOf(DType dtype) {
  switch (dtype) {
  case DType::F32:
    return CudnnType::F32;
  case DType::BF16:
    return CudnnType::BF16;
  case DType::F16:
    return CudnnType::F16;
  default:
    return std::nullopt;
  }
}

static Error none(const std::string &why) { return {ErrorCode::Usage, why}; }

//===----------------------------------------------------------------------===//
// Convolution
//===----------------------------------------------------------------------===//

/// Adds a dim of one element before a single spatial dim, because cuDNN has no 1-D convolution.
static Dims withTwoSpatialDims(Dims dims, size_t before, int64_t value) {
  if (dims.size() == before + 1)
    dims.insert(dims.begin() + std::ptrdiff_t(before), value);
  return dims;
}

static Result<CudnnWork> convolution(const CudnnRequest &r, CudnnKind kind) {
  CudnnWork work;
  CudnnWork::Step step;
  const std::vector<int64_t> &strides = r.attrs.getInts("strides"), &pads = r.attrs.getInts("pads");
  size_t spatial = strides.size();
  if (spatial < 1 || spatial > 3)
    return none("a convolution of more than three spatial dims");
  if (std::any_of(pads.begin(), pads.end(), [](int64_t pad) { return pad < 0; }))
    return none("a convolution with negative pads");
  Dims lows(pads.begin(), pads.begin() + std::ptrdiff_t(spatial));
  Dims highs(pads.begin() + std::ptrdiff_t(spatial), pads.end());
  CudnnGraph::Window window = {withTwoSpatialDims(strides, 0, 1), withTwoSpatialDims(lows, 0, 0),
                               withTwoSpatialDims(highs, 0, 0),
                               withTwoSpatialDims(r.attrs.getInts("dilations"), 0, 1)};
  std::optional<Error> wrong;
  auto tensor = [&](const TensorType &type, CudnnWork::Place place) {
    std::optional<CudnnType> known = typeOf(type.dtype);
    if (!known || kernels::numElements(type.shape) == 0) {
      wrong =
          none(known ? "nothing to convolve" : "a convolution of " + std::string(name(type.dtype)));
      return 0;
    }
    Dims dims = withTwoSpatialDims(type.shape, 2, 1);
    int number = step.graph.given(*known, dims, denseStrides(dims));
    step.places[number] = place;
    return number;
  };
  int first = tensor(r.operands[0], {Of::Operand, 0});
  int second = tensor(r.operands[1], {Of::Operand, 1});
  int result = tensor(r.results[0], {Of::Result, 0});
  if (wrong)
    return *wrong;
  step.graph.isExact = r.operands[0].dtype == DType::F32;
  if (kind == CudnnKind::ConvolutionForward)
    step.graph.convolve(kind, first, second, result, window);
  else if (kind == CudnnKind::ConvolutionBackwardData)
    step.graph.convolve(kind, result, second, first, window);
  else
    step.graph.convolve(kind, first, result, second, window);
  work.steps.push_back(std::move(step));
  return work;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

namespace {

/// Builds a graph of attention or its gradient.
class AttentionGraph {
public:
  AttentionGraph(const CudnnRequest &r, int first)
      : q(r.attrs, 'q', r.operands[size_t(first)].shape),
        k(r.attrs, 'k', r.operands[size_t(first) + 1].shape),
        v(r.attrs, 'v', r.operands[size_t(first) + 2].shape),
        o(q.batch, q.heads, q.tokens, v.width, HeadLayout::isTokenMajorIn(r.attrs, 'o')),
        b(q.batch), h(q.heads), hk(k.heads), s(q.tokens), t(k.tokens), d(q.width), dv(v.width),
        type(typeOf(r.operands[size_t(first)].dtype)), r(r), first(first),
        isCausal(r.attrs.getBool("causal", false)), scale(float(r.attrs.getDouble("scale"))) {}

  /// Returns why cuDNN is not asked; empty if it is.
  std::string whyNot() const {
    for (const char *flag : {"key_mask", "segments", "ordered"})
      if (r.attrs.getBool(flag, false))
        return "attention with masks that are data";
    if (r.attrs.has("biases") && !r.attrs.getString("biases").empty())
      return "attention with biases";
    if (r.attrs.getBool("sink", false) || r.attrs.getDouble("soft_cap", 0) > 0)
      return "attention with a sink or capped scores";
    if (r.attrs.getBool("drops_out", false))
      return "attention with dropout";
    if (r.attrs.getInt("left", -1) >= 0 || r.attrs.getInt("right", -1) >= 0)
      return "attention with a sliding window";
    if (isCausal && r.attrs.getBool("placed", false) && !r.placesAreIndices)
      return "attention of parts of a sequence";
    if (isCausal && s != t)
      return "causal attention of fewer queries than keys";
    if (type != CudnnType::BF16 && type != CudnnType::F16)
      return "attention of f32";
    int64_t widest = r.capability >= 90 ? 256 : 128;
    if (d % 8 != 0 || dv % 8 != 0 || d > widest || dv > widest)
      return "attention whose heads are no multiple of 8 wide, or wider than " +
             std::to_string(widest);
    if (b * h * s * t == 0 || (s == 1 && t == 1))
      return "attention of one query to one key, or of none";
    return "";
  }

  // For cuDNN a tensor is [b, heads, tokens, width], with strides for its layout.
  static Dims dimsOf(const HeadLayout &x) { return {x.batch, x.heads, x.tokens, x.width}; }
  static Dims stridesOf(const HeadLayout &x) {
    return {x.sampleStride(), x.headStride(), x.tokenStride(), 1};
  }
  /// The place of a tensor of 16 bits in its operand or result.
  static CudnnWork::Place at(const HeadLayout &x, CudnnWork::Place place) {
    place.firstByte = x.first * 2;
    return place;
  }
  /// Adds a tensor in memory.
  int given(const HeadLayout &x, CudnnWork::Place place) {
    return given(dimsOf(x), stridesOf(x), at(x, place), false);
  }
  /// The same with its last two dims swapped.
  int givenTransposed(const HeadLayout &x, CudnnWork::Place place) {
    Dims dims = dimsOf(x), strides = stridesOf(x);
    std::swap(dims[2], dims[3]);
    std::swap(strides[2], strides[3]);
    return given(dims, strides, at(x, place), false);
  }
  int given(const Dims &dims, const Dims &strides, CudnnWork::Place place, bool isF32) {
    int number = step.graph.given(isF32 ? CudnnType::F32 : *type, dims, strides);
    step.places[number] = place;
    return number;
  }
  /// The dims of one number per row, [b, h, s, 1].
  Dims rowDims() const { return {b, h, s, 1}; }
  int rows(CudnnWork::Place place) {
    return given(rowDims(), denseStrides(rowDims()), place, /*isF32=*/true);
  }
  int innerRows() { return step.graph.inner(rowDims(), denseStrides(rowDims())); }
  /// Adds an inner tensor over queries and keys, [b, h, s, t].
  int inner(CudnnType type = CudnnType::F32) {
    Dims dims = {b, h, s, t};
    return step.graph.inner(dims, denseStrides(dims), type);
  }
  int pairwise(CudnnPointwise mode, const std::vector<int> &xbt, CudnnType made = CudnnType::F32,
               CudnnType type = CudnnType::F32) {
    int y = inner(made);
    step.graph.pointwise(mode, xbt, y, type);
    return y;
  }
  int rowwise(CudnnPointwise mode, const std::vector<int> &xb) {
    int y = innerRows();
    step.graph.pointwise(mode, xb, y);
    return y;
  }
  int number(float value) { return step.graph.constant(value, 4); }

  /// Replaces the scores hidden from a causal query by a value whose exp is 0.
  int masked(int scores) {
    if (!isCausal)
      return scores;
    int row = inner(CudnnType::I32), column = inner(CudnnType::I32);
    step.graph.index(scores, 2, row);
    step.graph.index(scores, 3, column);
    int sees = pairwise(CudnnPointwise::GreaterOrEqual, {row, column}, CudnnType::Boolean,
                        CudnnType::Boolean);
    // As in NVIDIA's frontend: before 9.10 softmax needs a finite number.
    constexpr size_t takesInfinity = 91000;
    float hidden = r.version < takesInfinity ? std::numeric_limits<float>::lowest()
                                             : -std::numeric_limits<float>::infinity();
    return pairwise(CudnnPointwise::Select, {scores, number(hidden), sees});
  }

  const HeadLayout q, k, v, o;
  const int64_t b, h, hk, s, t, d, dv;
  const std::optional<CudnnType> type;
  const CudnnRequest &r;
  const int first; // operand number of q
  const bool isCausal;
  const float scale;
  CudnnWork::Step step;
};

/// A separate graph of numbers per row. They are laid out as channels, because the library's
/// engines for pointwise operations require this order.
class RowGraph {
public:
  explicit RowGraph(const AttentionGraph &a) : count(a.b * a.h * a.s) {}

  int given(CudnnWork::Place place) {
    int number = step.graph.given(CudnnType::F32, dims(), strides());
    step.places[number] = place;
    return number;
  }
  int made(CudnnPointwise mode, const std::vector<int> &xb) {
    int y = step.graph.inner(dims(), strides());
    step.graph.pointwise(mode, xb, y);
    return y;
  }

  int64_t count;
  CudnnWork::Step step;

private:
  Dims dims() const { return {1, count, 1, 1}; }
  Dims strides() const { return {count, 1, count, count}; }
};

/// Writes l = 1 in the shape of `m`, as exp(m - m).
CudnnWork::Step onesOf(const AttentionGraph &a, CudnnWork::Place m, CudnnWork::Place l) {
  RowGraph rows(a);
  int x = rows.given(m);
  int difference = rows.made(CudnnPointwise::Sub, {x, x});
  rows.step.graph.pointwise(CudnnPointwise::Exp, {difference}, rows.given(l));
  return std::move(rows.step);
}

Result<CudnnWork> attention(const CudnnRequest &r) {
  AttentionGraph a(r, 0);
  if (std::string why = a.whyNot(); !why.empty())
    return none(why);
  if (!r.isRead[0])
    return none("an attention that nobody reads");
  CudnnWork work;
  CudnnGraph &g = a.step.graph;
  int query = a.given(a.q, {Of::Operand, 0});
  int key = a.givenTransposed(a.k, {Of::Operand, 1});
  int value = a.given(a.v, {Of::Operand, 2});
  int out = a.given(a.o, {Of::Result, 0});
  // The rows' statistics; with l = 1 they are all in m.
  CudnnWork::Place m = {Of::Result, 1};
  if (r.isRead[2] && !r.isRead[1]) {
    m = {Of::Scratch, 0};
    work.scratchBytes = {a.b * a.h * a.s * int64_t(sizeof(float))};
  }
  int stats = r.isRead[1] || r.isRead[2] ? a.rows(m) : a.innerRows();

  int scores = a.inner();
  g.matmul(query, key, scores);
  int z = a.masked(a.pairwise(CudnnPointwise::Mul, {scores, a.number(a.scale)}));
  int largest = a.innerRows(), sum = a.innerRows();
  g.reduce(CudnnReduction::Max, z, largest);
  int e = a.pairwise(CudnnPointwise::Exp, {a.pairwise(CudnnPointwise::Sub, {z, largest})});
  g.reduce(CudnnReduction::Add, e, sum);
  g.pointwise(CudnnPointwise::Add, {largest, a.rowwise(CudnnPointwise::Log, {sum})}, stats);
  int p = a.pairwise(CudnnPointwise::Div, {e, sum}, *a.type);
  g.matmul(p, value, out);
  work.steps.push_back(std::move(a.step));
  if (r.isRead[2])
    work.steps.push_back(onesOf(a, m, {Of::Result, 2}));
  return work;
}

constexpr int cotangentOperand = 0, resultOperand = 4, maximumOperand = 5, denominatorOperand = 6;
constexpr int logSumScratch = 0, rowSumScratch = 1, querySumScratch = 2;

/// Writes cuDNN's statistics, m + log l.
CudnnWork::Step logSumOf(const AttentionGraph &a) {
  RowGraph rows(a);
  int m = rows.given({Of::Operand, maximumOperand});
  int logarithm = rows.made(CudnnPointwise::Log, {rows.given({Of::Operand, denominatorOperand})});
  rows.step.graph.pointwise(CudnnPointwise::Add, {m, logarithm},
                            rows.given({Of::Scratch, logSumScratch}));
  return std::move(rows.step);
}

/// Returns x^T of [b, h, s, t], as the 16-bit operand of a matmul.
int transposedOf(AttentionGraph &a, int x) {
  int y = a.step.graph.inner({a.b, a.h, a.t, a.s}, {a.h * a.s * a.t, a.s * a.t, 1, a.t}, *a.type);
  a.step.graph.reshape(x, y);
  return y;
}

/// Computes the gradient of keys or values, summed over the query heads that share a head.
void addHeadSums(AttentionGraph &a, int left, int right, int64_t columns, int result) {
  if (a.h == a.hk)
    return a.step.graph.matmul(left, right, result);
  Dims dims = {a.b, a.h, a.t, columns};
  int all = a.step.graph.inner(dims, denseStrides(dims), *a.type);
  a.step.graph.matmul(left, right, all);
  a.step.graph.reduce(CudnnReduction::Add, all, result);
}

Result<CudnnWork> attentionGrad(const CudnnRequest &r) {
  AttentionGraph a(r, 1);
  if (std::string why = a.whyNot(); !why.empty())
    return none(why);
  if (std::find(r.isRead.begin(), r.isRead.end(), false) != r.isRead.end())
    return none("a gradient of attention with an unused part");
  // NVIDIA's frontend refuses these versions, or pads sequences for them.
  if (r.version == 91000 || r.version == 91001)
    return none("the gradient of attention, which is wrong in cuDNN 9.10.0 and 9.10.1");
  constexpr size_t lastThatPads = 91500;
  if (a.t % 128 != 0 && r.version <= lastThatPads)
    return none(
        "the gradient of attention of keys that are no multiple of 128, before cuDNN 9.15.1");
  CudnnWork work;
  int64_t rowBytes = a.b * a.h * a.s * int64_t(sizeof(float));
  work.scratchBytes = {rowBytes, rowBytes, r.mayVary ? rowBytes * a.d : 0};
  CudnnGraph &g = a.step.graph;
  g.isDeterministic = !r.mayVary;
  int query = a.given(a.q, {Of::Operand, 1});
  int keyT = a.givenTransposed(a.k, {Of::Operand, 2});
  int valueT = a.givenTransposed(a.v, {Of::Operand, 3});
  int out = a.given(a.o, {Of::Operand, resultOperand});
  int dout = a.given(a.o, {Of::Operand, cotangentOperand});
  int stats = a.rows({Of::Scratch, logSumScratch});
  int dq = a.given(a.q, {Of::Result, 0});
  int dk = a.given(a.k, {Of::Result, 1});
  int dv = a.given(a.v, {Of::Result, 2});
  int scale = a.number(a.scale);

  // sum(do * o) of each row.
  int product = g.inner({a.b, a.h, a.s, a.dv}, {a.h * a.s * a.dv, a.s * a.dv, a.h * a.dv, 1});
  g.pointwise(CudnnPointwise::Mul, {dout, out}, product);
  int sum = a.innerRows(), rowSum = a.rows({Of::Scratch, rowSumScratch});
  g.reduce(CudnnReduction::Add, product, sum);
  g.pointwise(CudnnPointwise::Mul, {sum, a.number(1)}, rowSum);

  // p, and dv = p^T do.
  int scores = a.inner();
  g.matmul(query, keyT, scores);
  int z = a.pairwise(CudnnPointwise::Mul, {scores, scale});
  z = a.masked(a.pairwise(CudnnPointwise::Sub, {z, stats}));
  int p = a.pairwise(CudnnPointwise::Exp, {z});
  addHeadSums(a, transposedOf(a, p), dout, a.dv, dv);

  // dz = p * (do v^T - sum), and dk = scale * dz^T q.
  int dp = a.inner();
  g.matmul(dout, valueT, dp);
  int dz = a.pairwise(CudnnPointwise::Sub, {dp, rowSum});
  dz = a.pairwise(CudnnPointwise::Mul, {dz, p});
  dz = a.pairwise(CudnnPointwise::Mul, {dz, scale});
  addHeadSums(a, transposedOf(a, dz), query, a.d, dk);

  // dq = scale * dz k: accumulated in memory by several blocks or, to get the same bits on every
  // run, by one.
  // A reshape keeps the order in memory, so it gives back the strides from before the transpose.
  int key = g.inner(a.dimsOf(a.k), a.stridesOf(a.k), *a.type);
  g.reshape(keyT, key);
  if (r.mayVary) {
    Dims queryDims = {a.b, a.h, a.s, a.d};
    int sums = a.given(queryDims, denseStrides(queryDims), {Of::Scratch, querySumScratch},
                       /*isF32=*/true);
    g.matmul(dz, key, sums);
    g.pointwise(CudnnPointwise::Identity, {sums}, dq);
  } else {
    g.matmul(dz, key, dq);
  }
  work.steps.push_back(logSumOf(a));
  work.steps.push_back(std::move(a.step));
  return work;
}

using WorkFn = Result<CudnnWork> (*)(const CudnnRequest &);

/// The work of `Plain` on the columns of one tensor.
template <WorkFn Plain> Result<CudnnWork> packed(const CudnnRequest &r) {
  const kernels::PackedAttention parts(r.op);
  CudnnRequest plain = parts.plain(r);
  plain.isRead = parts.results(r.isRead);
  Result<CudnnWork> work = Plain(plain);
  if (!work)
    return work;
  for (CudnnWork::Step &step : work->steps)
    for (auto &[tensor, place] : step.places)
      if (place.of == Of::Operand)
        place.number = parts.operandOf(place.number);
      else if (place.of == Of::Result)
        place.number = parts.resultOf(place.number);
  return work;
}

const std::map<std::string, WorkFn> &workTable() {
  static const std::map<std::string, WorkFn> table = {
      {"attention", attention},
      {"attention_grad", attentionGrad},
      {"packed_attention", packed<attention>},
      {"packed_attention_grad", packed<attentionGrad>},
      {"conv", [](const CudnnRequest &r) { return convolution(r, CudnnKind::ConvolutionForward); }},
      {"conv_grad_input",
       [](const CudnnRequest &r) { return convolution(r, CudnnKind::ConvolutionBackwardData); }},
      {"conv_grad_weight",
       [](const CudnnRequest &r) { return convolution(r, CudnnKind::ConvolutionBackwardFilter); }}};
  return table;
}

} // namespace

bool isCudnnOp(const std::string &op) { return workTable().count(op) > 0; }

Result<CudnnWork> cudnnWorkOf(const CudnnRequest &request) {
  return workTable().at(request.op)(request);
}

} // namespace tbc::cuda
