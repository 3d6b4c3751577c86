//===- RandomModelOps.cpp - The kinds of ops of a random model ------------===//

#include "tests/tools/RandomModelMaker.h"

#include <algorithm>
#include <numeric>

namespace tbc::test {

static constexpr int64_t maxElements = 192; // per sample
static constexpr size_t maxDims = 5;

static std::string number(const std::string &name, int64_t value) {
  return name + " = " + std::to_string(value) + " : i64";
}

std::vector<int64_t> RandomModelMaker::shuffled(int64_t n) {
  std::vector<int64_t> numbers{};
  for (int64_t i = 0; i < n; ++i)
    numbers.push_back(i);
  std::shuffle(numbers.begin(), numbers.end(), random);
  return numbers;
}

std::vector<int64_t> RandomModelMaker::freeDims(const RandomDims &dims) const {
  std::vector<int64_t> free;
  for (size_t i = 0; i < dims.size(); ++i)
    if (!dims[i].hasBatch())
      free.push_back(int64_t(i));
  return free;
}

bool RandomModelMaker::addOp() {
  using Kind = bool (RandomModelMaker::*)();
  static const std::vector<std::pair<Kind, int64_t>> kinds = {
      {&RandomModelMaker::unary, 6},         {&RandomModelMaker::binary, 8},
      {&RandomModelMaker::bias, 4},          {&RandomModelMaker::select, 1},
      {&RandomModelMaker::matmul, 9},        {&RandomModelMaker::contraction, 4},
      {&RandomModelMaker::softmax, 2},       {&RandomModelMaker::norm, 3},
      {&RandomModelMaker::batchNorm, 1},     {&RandomModelMaker::reduction, 3},
      {&RandomModelMaker::reshape, 5},       {&RandomModelMaker::transpose, 4},
      {&RandomModelMaker::concat, 3},        {&RandomModelMaker::slice, 3},
      {&RandomModelMaker::pad, 1},           {&RandomModelMaker::embedding, 3},
      {&RandomModelMaker::positions, 1},     {&RandomModelMaker::gather, 1},
      {&RandomModelMaker::attention, 2},     {&RandomModelMaker::experts, 1},
      {&RandomModelMaker::convolution, 1},   {&RandomModelMaker::dropout, 1},
      {&RandomModelMaker::constant, 1},      {&RandomModelMaker::runningSum, 1},
      {&RandomModelMaker::parameterValue, 1}};
  int64_t total = 0;
  for (const auto &[kind, weight] : kinds)
    total += weight;
  int64_t drawn = below(total);
  for (const auto &[kind, weight] : kinds) {
    drawn -= weight;
    if (drawn < 0)
      return (this->*kind)();
  }
  return false;
}

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

bool RandomModelMaker::unary() {
  RandomValue x = pick();
  const std::string mnemonic =
      oneOf(std::vector<std::string>{"tanh", "sigmoid", "sin", "cos", "exp", "relu", "gelu", "silu",
                                     "neg", "abs", "erf", "reciprocal", "sqrt"});
  return keep(op(mnemonic, {x}, x.dims, mnemonic == "gelu" ? "approximate = \"tanh\"" : ""));
}

RandomValue RandomModelMaker::broadcast(const RandomValue &value, const RandomDims &dims,
                                        const std::vector<int64_t> &at) {
  if (at.size() == dims.size())
    return value;
  return op("broadcast", {value}, dims, "dims = " + arrayText(at), value.element);
}

/// Returns the positions of the dims of `small` among those of `large`, in order; {-1} if they are
/// not there.
static std::vector<int64_t> placesOf(const RandomDims &small, const RandomDims &large) {
  std::vector<int64_t> at;
  for (size_t i = 0; i < large.size() && at.size() < small.size(); ++i)
    if (isSame(small[at.size()], large[i]))
      at.push_back(int64_t(i));
  return at.size() == small.size() ? at : std::vector<int64_t>{-1};
}

bool RandomModelMaker::binary() {
  RandomValue x = pick();
  std::vector<int64_t> candidates;
  for (size_t i = 0; i < values.size(); ++i)
    if (placesOf(values[i].dims, x.dims) != std::vector<int64_t>{-1})
      candidates.push_back(int64_t(i));
  RandomValue y = use(oneOf(candidates)); // x itself, if there is no other
  y = broadcast(y, x.dims, placesOf(y.dims, x.dims));
  const std::string mnemonic = oneOf(std::vector<std::string>{
      "add", "add", "sub", "mul", "mul", "div", "maximum", "minimum", "swiglu"});
  return keep(oneIn(2) ? op(mnemonic, {x, y}, x.dims) : op(mnemonic, {y, x}, x.dims));
}

bool RandomModelMaker::bias() {
  RandomValue x = pick();
  std::vector<int64_t> at;
  RandomDims dims;
  for (int64_t dim : freeDims(x.dims))
    if (!oneIn(3)) {
      at.push_back(dim);
      dims.push_back(x.dims[size_t(dim)]);
    }
  if (dims.empty())
    return false;
  RandomValue b = broadcast(parameter(dims), x.dims, at);
  return keep(op(oneIn(3) ? "mul" : "add", {x, b}, x.dims));
}

bool RandomModelMaker::select() {
  RandomValue x = pick();
  RandomValue y = use(findLike(x.dims)), z = use(findLike(x.dims));
  RandomValue isLess = op("compare", {x, y}, x.dims, "predicate = \"lt\"", "i1");
  return keep(op("select", {isLess, x, z}, x.dims));
}

bool RandomModelMaker::dropout() {
  RandomValue x = pick();
  for (const RandomDim &dim : x.dims)
    if (dim.hasBatch() && !dim.isBatch())
      return false;
  return keep(op("dropout", {x}, x.dims, "ratio = 0.25 : f64"));
}

//===----------------------------------------------------------------------===//
// Contractions
//===----------------------------------------------------------------------===//

static std::string labelsText(const std::vector<int64_t> &lhs, const std::vector<int64_t> &rhs,
                              const std::vector<int64_t> &out) {
  return "lhs_labels = " + arrayText(lhs) + ", rhs_labels = " + arrayText(rhs) +
         ", out_labels = " + arrayText(out);
}

bool RandomModelMaker::matmul() {
  RandomValue x = pick();
  std::vector<int64_t> free = freeDims(x.dims);
  std::shuffle(free.begin(), free.end(), random);
  // The first are summed over. The next are also the weight's, but stay.
  size_t summed = free.empty() ? 0 : size_t(1 + (free.size() > 1 && oneIn(4)));
  size_t batched = free.size() > summed && oneIn(6) ? 1 : 0;
  struct Part {
    int64_t label;
    RandomDim dim;
  };
  std::vector<Part> weight, out;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    size_t place = size_t(std::find(free.begin(), free.end(), int64_t(i)) - free.begin());
    if (place < free.size() && place < summed + batched)
      weight.push_back({int64_t(i), x.dims[i]});
    if (place >= summed || x.dims[i].hasBatch())
      out.push_back({int64_t(i), x.dims[i]});
  }
  for (int64_t i = 0, n = 1 + oneIn(4); i < n; ++i) {
    Part part{int64_t(x.dims.size()) + i, {{someSize()}}};
    weight.push_back(part), out.push_back(part);
  }
  if (oneIn(4))
    std::shuffle(weight.begin(), weight.end(), random);
  if (oneIn(5))
    std::shuffle(out.begin(), out.end(), random);
  std::vector<int64_t> left(x.dims.size()), right, result;
  std::iota(left.begin(), left.end(), 0);
  RandomDims weightDims, outDims;
  for (const Part &part : weight)
    right.push_back(part.label), weightDims.push_back(part.dim);
  for (const Part &part : out)
    result.push_back(part.label), outDims.push_back(part.dim);
  if (elementsOf(outDims) > maxElements || outDims.size() > maxDims)
    return false;
  return keep(op("einsum", {x, parameter(weightDims)}, outDims, labelsText(left, right, result)));
}

/// Contracts two values. Dims of equal size may be shared; dims with the batch must be.
bool RandomModelMaker::contraction() {
  RandomValue x = pick(), y = pick();
  std::vector<int64_t> left(x.dims.size()), right(y.dims.size(), -1), out;
  std::iota(left.begin(), left.end(), 0);
  std::vector<bool> isShared(x.dims.size(), false);
  for (size_t j = 0; j < y.dims.size(); ++j)
    for (size_t i = 0; i < x.dims.size() && right[j] < 0; ++i)
      if (!isShared[i] && isSame(x.dims[i], y.dims[j]) && (x.dims[i].hasBatch() || !oneIn(4))) {
        isShared[i] = true;
        right[j] = int64_t(i);
      }
  RandomDims dims;
  int64_t next = int64_t(x.dims.size());
  bool xHasBatch = false, isBatchShared = false;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    bool hasBatch = x.dims[i].hasBatch();
    xHasBatch |= hasBatch;
    isBatchShared |= hasBatch && isShared[i];
    if (hasBatch || (isShared[i] ? oneIn(3) : !oneIn(6)))
      out.push_back(int64_t(i)), dims.push_back(x.dims[i]);
  }
  for (size_t j = 0; j < y.dims.size(); ++j) {
    if (right[j] >= 0)
      continue;
    right[j] = next++;
    if (y.dims[j].hasBatch() && xHasBatch && !isBatchShared)
      return false; // would pair every sample with every sample
    if (y.dims[j].hasBatch() || !oneIn(6))
      out.push_back(right[j]), dims.push_back(y.dims[j]);
  }
  if (elementsOf(dims) > maxElements || dims.size() > maxDims)
    return false;
  return keep(op("einsum", {x, y}, dims, labelsText(left, right, out)));
}

bool RandomModelMaker::attention() {
  RandomValue q = pick();
  if (q.dims.size() == 3 && q.dims[0].isBatch()) { // one head
    q = regroup(q, {q.dims[0].parts, {1, q.dims[1].size()}, q.dims[2].parts},
                {1, 1, 1, int64_t(q.dims[2].parts.size())});
  }
  if (q.dims.size() != 4 || !q.dims[0].isBatch())
    return false;
  auto other = [&] {
    int64_t like = findLike(q.dims);
    return like >= 0 && oneIn(2) ? use(like) : op("tanh", {q}, q.dims);
  };
  RandomValue k = other(), v = other();
  RandomDims statistics(q.dims.begin(), q.dims.end() - 1);
  return keep(ops("attention", {q, k, v}, {q.dims, statistics, statistics},
                  std::string("scale = 0.5 : f64, causal = ") + (oneIn(2) ? "true" : "false"))[0]);
}

bool RandomModelMaker::experts() {
  RandomValue x = pick();
  if (x.dims.size() != 2 || !x.dims[0].hasBatch() || x.dims[1].hasBatch())
    return false;
  RandomDim h = x.dims[1], e{{oneIn(2) ? 2 : 4}}, f{{oneIn(2) ? 4 : 6}}, o{{someSize()}};
  bool isGated = oneIn(2);
  RandomDim inner{{isGated ? 2 * f.size() : f.size()}};
  RandomValue scores =
      op("einsum", {x, parameter({h, e})}, {x.dims[0], e}, labelsText({0, 1}, {1, 2}, {0, 2}));
  RandomValue weights = op("softmax", {scores}, scores.dims, number("dim", 1));
  return keep(op("routed_experts", {x, weights, parameter({e, inner, h}), parameter({e, o, f})},
                 {x.dims[0], o},
                 std::string("activation = \"silu\", gated = ") + (isGated ? "true" : "false") +
                     ", " + number("top", e.size())));
}

bool RandomModelMaker::convolution() {
  RandomValue x = pick();
  if (x.dims.size() != 3 || !x.dims[0].isBatch() || x.dims[2].size() < 3)
    return false;
  RandomDim channels{{oneIn(2) ? 4 : 6}};
  int64_t low = below(2);
  RandomDim length{{x.dims[2].size() + low - 2}};
  RandomValue y =
      op("conv", {x, parameter({channels, x.dims[1], {{3}}})}, {x.dims[0], channels, length},
         "strides = array<i64: 1>, pads = " + arrayText({low, 0}) +
             ", dilations = array<i64: 1>, groups = 1 : i64");
  if (length.size() >= 2 && oneIn(2))
    y = op("max_pool", {y}, {x.dims[0], channels, {{length.size() - 1}}},
           "kernel = array<i64: 2>, strides = array<i64: 1>, pads = array<i64: 0, 0>, "
           "dilations = array<i64: 1>");
  return keep(y);
}

//===----------------------------------------------------------------------===//
// Norms and reductions
//===----------------------------------------------------------------------===//

bool RandomModelMaker::softmax() {
  RandomValue x = pick();
  std::vector<int64_t> free = freeDims(x.dims);
  return !free.empty() && keep(op("softmax", {x}, x.dims, number("dim", oneOf(free))));
}

bool RandomModelMaker::norm() {
  RandomValue x = pick();
  if (x.dims.empty() || x.dims.back().hasBatch())
    return false;
  RandomDims rows(x.dims.begin(), x.dims.end() - 1);
  RandomValue weight = parameter({x.dims.back()});
  if (oneIn(2))
    return keep(ops("rms_norm", {x, weight}, {x.dims, rows}, "epsilon = 1.0e-05 : f64")[0]);
  return keep(ops("layer_norm", {x, weight, parameter({x.dims.back()})}, {x.dims, rows, rows},
                  "epsilon = 1.0e-05 : f64")[0]);
}

bool RandomModelMaker::batchNorm() {
  RandomValue x = pick();
  if (x.dims.size() < 2 || !x.dims[0].isBatch() || x.dims[1].hasBatch())
    return false;
  RandomDims channels{x.dims[1]};
  RandomValue scale = parameter(channels), shift = parameter(channels);
  RandomValue mean = newParameter(channels, true), variance = newParameter(channels, true);
  return keep(op("batch_norm", {x, scale, shift, mean, variance}, x.dims,
                 "epsilon = 1.0e-05 : f64, momentum = 0.9 : f64"));
}

bool RandomModelMaker::reduction() {
  RandomValue x = pick();
  std::vector<int64_t> dims;
  RandomDims left;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    // Rarely over the batch: a value shared by all samples.
    if (x.dims[i].hasBatch() ? oneIn(12) : oneIn(2))
      dims.push_back(int64_t(i));
    else
      left.push_back(x.dims[i]);
  }
  if (dims.empty())
    return false;
  return keep(op(oneIn(4) ? "reduce_max" : "reduce_sum", {x}, left, "dims = " + arrayText(dims)));
}

bool RandomModelMaker::runningSum() {
  RandomValue x = pick();
  std::vector<int64_t> free = freeDims(x.dims);
  return !free.empty() &&
         keep(op("running_sum", {x}, x.dims,
                 number("dim", oneOf(free)) + ", exclusive = false, reverse = false"));
}

//===----------------------------------------------------------------------===//
// Movement
//===----------------------------------------------------------------------===//

RandomValue RandomModelMaker::regroup(const RandomValue &value,
                                      const std::vector<std::vector<int64_t>> &in,
                                      const std::vector<int64_t> &out) {
  std::vector<int64_t> sizes, numIn;
  for (const std::vector<int64_t> &parts : in) {
    sizes.insert(sizes.end(), parts.begin(), parts.end());
    numIn.push_back(int64_t(parts.size()));
  }
  RandomDims dims;
  size_t at = 0;
  for (int64_t count : out) {
    RandomDim dim;
    for (int64_t i = 0; i < count; ++i)
      if (int64_t part = sizes[at++]; part != 1)
        dim.parts.push_back(part);
    dims.push_back(std::move(dim));
  }
  return op("reshape", {value}, dims,
            "sizes = " + arrayText(sizes) + ", in = " + arrayText(numIn) +
                ", out = " + arrayText(out));
}

bool RandomModelMaker::reshape() {
  RandomValue x = pick();
  std::vector<std::vector<int64_t>> in;
  std::vector<int64_t> out;
  for (const RandomDim &dim : x.dims) {
    in.push_back(dim.parts);
    // Splits a part in two.
    for (size_t i = 0; i < in.back().size() && oneIn(3); ++i)
      for (int64_t divisor : {2, 3})
        if (int64_t part = in.back()[i];
            part != batch && part % divisor == 0 && part > divisor && oneIn(2)) {
          in.back()[i] = part / divisor;
          in.back().insert(in.back().begin() + int64_t(i), divisor);
          break;
        }
  }
  size_t all = 0;
  for (const std::vector<int64_t> &parts : in)
    all += parts.size();
  std::vector<int64_t> flat;
  for (const std::vector<int64_t> &parts : in)
    flat.insert(flat.end(), parts.begin(), parts.end());
  for (size_t at = 0; at < all; at += size_t(out.back())) {
    int64_t count = std::min<int64_t>(int64_t(all - at), 1 + oneIn(3) + oneIn(6));
    if (!mergesBatch)
      for (int64_t i = 0; i < count; ++i)
        if (flat[at + size_t(i)] == batch)
          count = i == 0 ? 1 : i;
    out.push_back(count);
  }
  if (out.empty() || out.size() > maxDims)
    return false;
  return keep(regroup(x, in, out));
}

bool RandomModelMaker::transpose() {
  RandomValue x = pick();
  if (x.dims.size() < 2)
    return false;
  std::vector<int64_t> order = shuffled(int64_t(x.dims.size()));
  RandomDims dims;
  for (int64_t dim : order)
    dims.push_back(x.dims[size_t(dim)]);
  return keep(op("transpose", {x}, dims, "permutation = " + arrayText(order)));
}

bool RandomModelMaker::concat() {
  if (mergesBatch)
    return false;
  RandomValue x = pick();
  std::vector<int64_t> free = freeDims(x.dims);
  if (free.empty())
    return false;
  size_t dim = size_t(oneOf(free));
  std::vector<int64_t> candidates;
  for (size_t i = 0; i < values.size(); ++i) {
    RandomDims dims = values[i].dims;
    if (dims.size() != x.dims.size() || dims[dim].hasBatch())
      continue;
    dims[dim] = x.dims[dim];
    if (areSame(dims, x.dims))
      candidates.push_back(int64_t(i));
  }
  std::vector<RandomValue> parts{x};
  int64_t size = x.dims[dim].size();
  for (int64_t i = 0, n = 1 + oneIn(4); i < n; ++i) {
    parts.push_back(use(oneOf(candidates)));
    size += parts.back().dims[dim].size();
  }
  RandomDims dims = x.dims;
  dims[dim] = {{size}};
  if (elementsOf(dims) > maxElements)
    return false;
  return keep(op("concat", parts, dims, number("dim", int64_t(dim))));
}

bool RandomModelMaker::slice() {
  if (mergesBatch)
    return false;
  RandomValue x = pick();
  std::vector<int64_t> free = freeDims(x.dims);
  if (free.empty())
    return false;
  int64_t dim = oneOf(free), size = x.dims[size_t(dim)].size();
  if (size < 2)
    return false;
  auto part = [&](int64_t offset, int64_t count) {
    RandomDims dims = x.dims;
    dims[size_t(dim)] = {{count}};
    return op("slice", {x}, dims,
              number("dim", dim) + ", " + number("offset", offset) + ", " + number("size", count));
  };
  if (oneIn(2)) { // a split
    int64_t at = size % 2 == 0 ? size / 2 : 1 + below(size - 1);
    return keep(part(0, at)) && keep(part(at, size - at));
  }
  int64_t count = 1 + below(size - 1);
  return keep(part(below(size - count + 1), count));
}

bool RandomModelMaker::pad() {
  if (mergesBatch)
    return false;
  RandomValue x = pick();
  std::vector<int64_t> free = freeDims(x.dims);
  if (free.empty() || 2 * elementsOf(x.dims) > maxElements)
    return false;
  int64_t dim = oneOf(free), low = below(3), high = below(3) + (low == 0);
  RandomDims dims = x.dims;
  dims[size_t(dim)] = {{x.dims[size_t(dim)].size() + low + high}};
  return keep(op("pad", {x}, dims,
                 number("dim", dim) + ", " + number("low", low) + ", " + number("high", high)));
}

//===----------------------------------------------------------------------===//
// Tables and sources
//===----------------------------------------------------------------------===//

bool RandomModelMaker::embedding() {
  if (integerInputs.empty())
    return false;
  const RandomValue &indices = oneOf(integerInputs);
  RandomDims row{{{someSize()}}}, table{{{oneOf(std::vector<int64_t>{5, 8, 12, 16, 127})}}};
  if (oneIn(5))
    row.push_back({{2}});
  table.insert(table.end(), row.begin(), row.end());
  RandomDims result = indices.dims;
  result.insert(result.end(), row.begin(), row.end());
  return elementsOf(result) <= maxElements &&
         keep(op("gather", {parameter(table), indices}, result, number("dim", 0)));
}

/// Rows of a table by position: a branch without a batch.
bool RandomModelMaker::positions() {
  RandomDim rows{{8}}, s{{2 + below(7)}}, h{{someSize()}};
  RandomValue counted = op("iota", {}, {s}, number("dim", 0), "i64");
  return keep(op("gather", {parameter({rows, h}), counted}, {s, h}, number("dim", 0)));
}

/// Takes elements of a dim of a computed value by constant indices.
bool RandomModelMaker::gather() {
  RandomValue x = pick();
  std::vector<int64_t> free = freeDims(x.dims);
  if (free.empty())
    return false;
  int64_t dim = oneOf(free), size = x.dims[size_t(dim)].size();
  RandomDims dims = x.dims;
  dims[size_t(dim)] = {{1 + below(size)}};
  RandomDims chosen{dims[size_t(dim)]};
  RandomValue counted = op("iota", {}, chosen, number("dim", 0), "i64");
  return keep(op("gather", {x, counted}, dims, number("dim", dim)));
}

bool RandomModelMaker::constant() {
  RandomValue x = pick();
  RandomDims scalar;
  RandomValue half =
      op("constant", {}, scalar,
         std::string("value = dense<") + (oneIn(2) ? "0.5" : "-2.0") + "> : tensor<f32>");
  return keep(op("mul", {x, broadcast(half, x.dims, {})}, x.dims));
}

bool RandomModelMaker::parameterValue() {
  RandomDims dims{{{someSize()}}};
  if (oneIn(2))
    dims.push_back({{someSize()}});
  RandomValue p = parameter(dims);
  return keep(op("tanh", {p}, dims));
}

} // namespace tbc::test
