//===- attention_test.cpp - Native attention against the reference ------------===//
//
// Error bounds. u is the unit roundoff of f32 and w that of the operands. d and e are the widths, s
// and t the numbers of queries and keys. Q, K ... are the largest magnitudes.
//
// - A score has an error of dz <= (d + 2) u d Q K scale, and 4 u of its magnitude for each bias and
//   for the cap, whose slope is at most 1.
// - So p has a relative error of 2 dz + (t + 8) u, plus w if tiles are rounded.
// - The rest follows from sum_j p_ij = 1 (sum_i p_ij <= s for gradients of keys).
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/cpu/NativeCase.h"

#include <sstream>

using namespace tbc;
using kernels::DType;
using kernels::Tensor;

namespace {

struct Sizes {
  int64_t batch = 2, heads = 2, keyHeads = 2, queries = 5, keys = 5, width = 8, valueWidth = 8;
};

struct Masks {
  bool causal = false;
  int64_t left = -1, right = -1;
  bool keyMask = false, segments = false, ordered = false, placed = false;
  std::string hidden = "zero";
  double dropout = 0;
  int64_t step = 3;
  std::string biases;
  double softCap = 0;
  bool sink = false;
  std::string tokenMajor = {};
};

/// A shape [b, heads, tokens, width], or token-major or merged if the attribute lists the tensor.
kernels::Shape inOrder(const Masks &masks, char tensor, kernels::Shape shape) {
  if (masks.tokenMajor.find(char(std::toupper(tensor))) != std::string::npos)
    return {shape[0], shape[2], shape[1] * shape[3]};
  if (masks.tokenMajor.find(tensor) != std::string::npos)
    std::swap(shape[1], shape[2]);
  return shape;
}

/// The shape of a bias with these letters.
kernels::Shape biasShape(const Sizes &n, const std::string &letters) {
  kernels::Shape shape;
  for (char letter : letters)
    shape.push_back(letter == 'b'   ? n.batch
                    : letter == 'h' ? n.heads
                    : letter == 's' ? n.queries
                                    : n.keys);
  return shape;
}

std::vector<std::string> biasesOf(const Masks &masks) {
  std::vector<std::string> list;
  std::stringstream stream(masks.biases);
  for (std::string letters; std::getline(stream, letters, ',');)
    list.push_back(letters);
  return list;
}

kernels::Attrs attrsOf(const Sizes &sizes, const Masks &masks) {
  return {{"scale", 1 / std::sqrt(double(sizes.width))},
          {"causal", masks.causal},
          {"left", masks.left},
          {"right", masks.right},
          {"key_mask", masks.keyMask},
          {"segments", masks.segments},
          {"ordered", masks.ordered},
          {"placed", masks.placed},
          {"hidden_rows", masks.hidden},
          {"biases", masks.biases},
          {"soft_cap", masks.softCap},
          {"sink", masks.sink},
          {"token_major", masks.tokenMajor},
          {"heads", sizes.heads},
          {"key_heads", sizes.keyHeads},
          {"drops_out", masks.dropout > 0},
          {"dropout", masks.dropout},
          {"dropout_seed", int64_t(11)},
          {"dropout_key", int64_t(5)}};
}

Tensor ascending(int64_t count, int64_t first, int64_t step) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[size_t(i)] = first + i * step;
  return Tensor::fromInts({DType::I64, {count}}, values);
}

std::vector<Tensor> maskOperands(const Sizes &n, const Masks &masks, DType dtype) {
  std::vector<Tensor> list;
  for (const std::string &letters : biasesOf(masks))
    list.push_back(test::randomFloats({dtype, biasShape(n, letters)}, 40 + unsigned(list.size())));
  if (masks.sink)
    list.push_back(test::randomFloats({dtype, {n.heads}}, 50));
  if (masks.keyMask)
    list.push_back(test::randomInts({DType::Bool, {n.batch, n.keys}}, 31, 0, 2));
  for (int64_t range : {masks.segments ? int64_t(3) : 0, masks.ordered ? n.keys : 0})
    if (range) {
      list.push_back(test::randomInts({DType::I64, {n.batch, n.queries}}, 32, 0, range));
      list.push_back(test::randomInts({DType::I64, {n.batch, n.keys}}, 33, 0, range));
    }
  if (masks.placed) {
    list.push_back(test::randomInts({DType::I64, {n.queries}}, 34, 0, n.keys + 3));
    list.push_back(masks.causal ? ascending(n.keys, 2, 1)
                                : test::randomInts({DType::I64, {n.keys}}, 35, 0, n.keys));
  }
  if (masks.dropout > 0) {
    list.push_back(Tensor::fromInts({DType::I64, {}}, {masks.step}));
    list.push_back(ascending(n.batch, 0, n.heads * n.queries * n.keys));
    list.push_back(ascending(n.heads, 0, n.queries * n.keys));
    list.push_back(ascending(n.queries, 0, n.keys));
    list.push_back(ascending(n.keys, 0, 1));
  }
  return list;
}

void append(std::vector<Tensor> &list, const std::vector<Tensor> &more) {
  list.insert(list.end(), more.begin(), more.end());
}

/// All operands are in [-1, 1].
void check(const Sizes &n, const Masks &masks, DType dtype, const std::string &what) {
  kernels::Shape q = inOrder(masks, 'q', {n.batch, n.heads, n.queries, n.width});
  kernels::Shape k = inOrder(masks, 'k', {n.batch, n.keyHeads, n.keys, n.width});
  kernels::Shape v = inOrder(masks, 'v', {n.batch, n.keyHeads, n.keys, n.valueWidth});
  kernels::Shape o = inOrder(masks, 'o', {n.batch, n.heads, n.queries, n.valueWidth});
  kernels::Shape rows = {n.batch, n.heads, n.queries};
  test::NativeCase forward;
  forward.op = "attention";
  forward.attrs = attrsOf(n, masks);
  forward.operands = {test::randomFloats({dtype, q}, 1), test::randomFloats({dtype, k}, 2),
                      test::randomFloats({dtype, v}, 3)};
  append(forward.operands, maskOperands(n, masks, dtype));
  forward.results = {{dtype, o}, {DType::F32, rows}, {DType::F32, rows}};
  std::vector<Tensor> native = test::runNative(forward), exact = test::runExact(forward);
  ASSERT_EQ(native.size(), 3u) << what;

  double u = 0x1p-24, d = double(n.width), e = double(n.valueWidth), t = double(n.keys);
  double scale = 1 / std::sqrt(d), kept = 1 / (1 - masks.dropout);
  double dz = (d + 2) * u * d * scale;
  dz += 4 * u * (d * scale + 1) * double(biasesOf(masks).size() + (masks.softCap > 0 ? 4 : 0));
  double relative = 2 * dz + (t + 8) * u + (dtype == DType::F32 ? 0 : 0x1p-8);
  Tensor one = Tensor::fromDoubles({DType::F32, {}}, kernels::Arith::Native, {1});
  test::expectClose(native[0], exact[0], one, relative * kept, what + " o");
  test::expectClose(native[1], exact[1], one, dz, what + " m");
  test::expectClose(native[2], exact[2], exact[2], 2 * dz + (t + 8) * u, what + " l");

  test::NativeCase backward;
  backward.op = "attention_grad";
  backward.attrs = forward.attrs;
  backward.operands = {test::randomFloats({dtype, o}, 4)};
  append(backward.operands, {forward.operands.begin(), forward.operands.begin() + 3});
  append(backward.operands, native);
  append(backward.operands, maskOperands(n, masks, dtype));
  backward.results = {{dtype, q}, {dtype, k}, {dtype, v}};
  native = test::runNative(backward), exact = test::runExact(backward);
  ASSERT_EQ(native.size(), 3u) << what;
  // |dp|, |D| <= e. The error of p is 2 dz. It counts twice: m and l come from the forward.
  double ds = 2 * e * kept * (2 * relative + (e + 8) * u);
  double queries = double(n.queries) * double(n.heads) / double(n.keyHeads);
  test::expectClose(native[0], exact[0], one, scale * ds, what + " dq");
  if (masks.softCap > 0)
    ds += 2 * e * kept * 16 * u; // the slope
  test::expectClose(native[1], exact[1], one, scale * ds * queries, what + " dk");
  test::expectClose(native[2], exact[2], one, queries * kept * (2 * relative + queries * u),
                    what + " dv");
  const std::vector<std::string> biases = biasesOf(masks);
  for (const std::string &letters : biases) {
    test::NativeCase bias = backward;
    bias.op = "attention_bias_grad";
    int64_t index = int64_t(&letters - biases.data());
    bias.attrs.set("bias", index);
    bias.results = {{dtype, biasShape(n, letters)}};
    native = test::runNative(bias), exact = test::runExact(bias);
    ASSERT_EQ(native.size(), 1u) << what;
    double terms = double(n.batch * n.heads * n.queries * n.keys) /
                   double(kernels::numElements(bias.results[0].shape));
    test::expectClose(native[0], exact[0], one,
                      terms * ds + (dtype == DType::F32 ? terms * u : terms * 0x1p-8),
                      what + " " + letters);
  }
}

void checkBoth(const Sizes &sizes, const Masks &masks, const std::string &what) {
  for (DType dtype : {DType::F32, DType::BF16})
    check(sizes, masks, dtype, what + " " + std::string(name(dtype)));
}

TEST(NativeAttention, Sizes) {
  checkBoth({}, {}, "small");
  checkBoth({1, 1, 1, 1, 1, 1, 1}, {}, "one");
  checkBoth({1, 6, 2, 7, 9, 5, 3}, {}, "grouped heads");
  checkBoth({1, 2, 1, 130, 70, 16, 24}, {}, "tiles of queries");
  checkBoth({1, 1, 1, 65, 600, 16, 8}, {}, "tiles of keys");
}

/// A NaN score makes the row's max, sum and result NaN, wherever it stands.
TEST(NativeAttention, ScoresThatAreNoNumbers) {
  for (size_t key : {0, 2}) {
    std::vector<double> keys(5, 1), ones(1, 1), values(5, 1);
    keys[key] = NAN;
    auto column = [](const std::vector<double> &elements) {
      return Tensor::fromDoubles({DType::F32, {1, 1, int64_t(elements.size()), 1}},
                                 kernels::Arith::Native, elements);
    };
    test::NativeCase one;
    one.op = "attention";
    one.attrs = attrsOf({1, 1, 1, 1, 5, 1, 1}, {});
    one.operands = {column(ones), column(keys), column(values)};
    one.results = {{DType::F32, {1, 1, 1, 1}}, {DType::F32, {1, 1, 1}}, {DType::F32, {1, 1, 1}}};
    for (const std::vector<Tensor> &results : {test::runNative(one), test::runExact(one)})
      for (const Tensor &result : results)
        EXPECT_TRUE(std::isnan(result.toDoubles()[0])) << "key " << key;
  }
}

/// Keys that a bias hides by -inf have the weight 0, a whole tile of them too. A row of them is 0 /
/// 0, as in the reference and in PyTorch's softmax.
TEST(NativeAttention, BiasesHideKeys) {
  const int64_t keys = 300, tile = 256;
  auto column = [](const std::vector<double> &elements, const kernels::Shape &shape) {
    return Tensor::fromDoubles({DType::F32, shape}, kernels::Arith::Native, elements);
  };
  for (int64_t hidden : {int64_t(3), tile, keys - 1, keys})
    for (bool isBehind : {false, true}) {
      std::vector<double> bias(size_t(keys), 0), values(size_t(keys), 0);
      for (int64_t key = 0; key < keys; ++key)
        values[size_t(key)] = double(key);
      std::fill_n(bias.begin() + (isBehind ? keys - hidden : 0), hidden, -INFINITY);
      Masks masks;
      masks.biases = "t";
      test::NativeCase one;
      one.op = "attention";
      one.attrs = attrsOf({1, 1, 1, 1, keys, 1, 1}, masks);
      one.operands = {column({1}, {1, 1, 1, 1}),
                      column(std::vector<double>(size_t(keys), 1), {1, 1, keys, 1}),
                      column(values, {1, 1, keys, 1}), column(bias, {keys})};
      one.results = {{DType::F32, {1, 1, 1, 1}}, {DType::F32, {1, 1, 1}}, {DType::F32, {1, 1, 1}}};
      // The mean of the values of the keys that are left.
      const double first = isBehind ? 0 : double(hidden);
      const double mean = first + double(keys - hidden - 1) / 2;
      for (const std::vector<Tensor> &results : {test::runNative(one), test::runExact(one)}) {
        const double o = results[0].toDoubles()[0], l = results[2].toDoubles()[0];
        if (hidden == keys) {
          EXPECT_TRUE(std::isnan(o) && std::isnan(l));
        } else {
          EXPECT_NEAR(o, mean, 1e-4 * mean) << hidden << " of the keys, " << isBehind;
          EXPECT_NEAR(l, double(keys - hidden), 1e-3);
        }
      }
    }
}

TEST(NativeAttention, Windows) {
  Masks causal;
  causal.causal = true;
  checkBoth({}, causal, "causal");
  checkBoth({1, 2, 2, 200, 200, 16, 16}, causal, "causal tiles");
  checkBoth({1, 2, 2, 90, 300, 16, 16}, causal, "causal, more keys");
  checkBoth({1, 2, 2, 90, 40, 8, 8}, causal, "causal, rows that read nothing");
  Masks window = causal;
  window.left = 17;
  checkBoth({1, 2, 1, 150, 330, 8, 8}, window, "sliding");
  window.causal = false, window.right = 3;
  checkBoth({1, 2, 1, 150, 330, 8, 8}, window, "both sides");
  window.placed = true;
  checkBoth({1, 2, 1, 20, 33, 8, 8}, window, "places in any order");
  causal.placed = true;
  checkBoth({1, 2, 1, 20, 33, 8, 8}, causal, "places in order");
}

TEST(NativeAttention, ConditionsAndHiddenRows) {
  for (const char *hidden : {"zero", "mean", "window", "nearest", "scores"})
    for (int which = 0; which < 16; ++which) {
      Masks masks;
      masks.hidden = hidden;
      masks.causal = (which & 1) != 0;
      masks.keyMask = (which & 2) != 0;
      masks.segments = (which & 4) != 0;
      masks.ordered = (which & 8) != 0;
      checkBoth({2, 2, 1, 9, 7, 4, 4}, masks, std::string(hidden) + std::to_string(which));
    }
}

TEST(NativeAttention, Dropout) {
  Masks masks;
  masks.dropout = 0.25;
  masks.causal = true;
  checkBoth({2, 4, 2, 70, 70, 8, 8}, masks, "dropout");
  masks.step = 0;
  checkBoth({2, 4, 2, 70, 70, 8, 8}, masks, "dropout in evaluation");
}

TEST(NativeAttention, ScoreTerms) {
  for (const char *biases : {"t", "hst", "bst", "ht", "bhst,hs", "bt,hst"}) {
    Masks masks;
    masks.biases = biases;
    checkBoth({2, 4, 2, 70, 75, 8, 8}, masks, biases);
    masks.causal = masks.keyMask = true;
    checkBoth({2, 4, 2, 9, 11, 8, 8}, masks, std::string(biases) + " masked");
  }
  Masks capped;
  capped.softCap = 0.5;
  checkBoth({2, 4, 2, 70, 300, 8, 8}, capped, "cap");
  capped.sink = capped.causal = capped.keyMask = true;
  checkBoth({2, 4, 2, 70, 300, 8, 8}, capped, "cap and sink");
  capped.biases = "hst";
  checkBoth({2, 4, 2, 70, 300, 8, 8}, capped, "cap, sink and bias");
  capped.dropout = 0.25;
  checkBoth({2, 4, 2, 70, 70, 8, 8}, capped, "everything");
}

TEST(NativeAttention, OrdersOfDims) {
  for (const char *order : {"q", "k", "v", "o", "qkvo", "QKVO", "kO"}) {
    Masks masks;
    masks.tokenMajor = order;
    checkBoth({2, 6, 2, 130, 300, 8, 12}, masks, order);
    masks.causal = masks.keyMask = masks.sink = true;
    masks.biases = "hst,bt", masks.softCap = 0.5;
    checkBoth({2, 4, 2, 9, 11, 5, 3}, masks, std::string(order) + " with score terms");
  }
}

TEST(NativeAttention, RotaryOfBothOrders) {
  for (int bits = 0; bits < 8; ++bits) {
    const bool isTokenMajor = bits & 1, isPerSample = bits & 2, isInterleaved = bits & 4;
    test::NativeCase rotary;
    rotary.op = "rotary";
    rotary.attrs = {
        {"inverse", isPerSample}, {"token_major", isTokenMajor}, {"interleaved", isInterleaved}};
    kernels::Shape x = {2, 3, 5, 8}, table = {isTokenMajor ? 3 : 5, 4};
    if (isPerSample)
      table.insert(table.begin(), 2);
    if (isTokenMajor && isPerSample)
      x = {2, 3, 40}; // merged
    rotary.operands = {test::randomFloats({DType::F32, x}, 1),
                       test::randomFloats({DType::F32, table}, 2),
                       test::randomFloats({DType::F32, table}, 3)};
    rotary.results = {{DType::F32, x}};
    std::vector<Tensor> native = test::runNative(rotary), exact = test::runExact(rotary);
    ASSERT_EQ(native.size(), 1u);
    Tensor one = Tensor::fromDoubles({DType::F32, {}}, kernels::Arith::Native, {1});
    test::expectClose(native[0], exact[0], one, 4 * 0x1p-24, isTokenMajor ? "[b, s, h, d]" : "");
  }
}

TEST(NativeAttention, MergesParts) {
  for (const auto &[dtype, isTokenMajor] :
       {std::pair(DType::F32, false), {DType::BF16, false}, {DType::F32, true}}) {
    kernels::Shape o = {2, 2, 9, 5}, rows = {2, 2, 9};
    if (isTokenMajor)
      o = {2, 9, 10}; // merged
    test::NativeCase merge;
    merge.op = "attention_merge";
    merge.attrs = {{"token_major", isTokenMajor}};
    for (unsigned part : {0, 10}) {
      merge.operands.push_back(test::randomFloats({dtype, o}, part));
      merge.operands.push_back(test::randomFloats({DType::F32, rows}, part + 1, -3, 3));
      std::vector<double> l = test::randomFloats({DType::F32, rows}, part + 2, 0.5, 4).toDoubles();
      l[part ? 3 : 4] = l[7] = 0; // one side is empty, or both are
      merge.operands.push_back(Tensor::fromDoubles({DType::F32, rows}, kernels::Arith::Native, l));
    }
    merge.results = {{dtype, o}, {DType::F32, rows}, {DType::F32, rows}};
    auto native = test::runNative(merge), exact = test::runExact(merge);
    ASSERT_EQ(native.size(), 3u);
    Tensor one = Tensor::fromDoubles({DType::F32, {}}, kernels::Arith::Native, {1});
    test::expectClose(native[0], exact[0], one, 16 * 0x1p-24, "o");
    test::expectClose(native[1], exact[1], one, 0, "m");
    test::expectClose(native[2], exact[2], exact[2], 16 * 0x1p-24, "l");
  }
}

} // namespace
