//===- AttentionCases.cpp - Cases of the tiled kernels of attention ---------===//

#include "tests/codegen/cuda/OpKernelCheck.h"

#include <array>

namespace tbc {

namespace {

/// A case of attention and its gradients in a 16-bit type.
struct Config {
  /// `sizes`: batch, heads, key heads, queries, keys, width, value width. `attributes`: beside the
  /// scale. `masks`: types of the operands after the tensors.
  Config(const std::array<int64_t, 7> &sizes, std::string attributes,
         std::vector<std::string> masks = {})
      : batch(sizes[0]), heads(sizes[1]), keyHeads(sizes[2]), queries(sizes[3]), keys(sizes[4]),
        width(sizes[5]), valueWidth(sizes[6]), attributes(std::move(attributes)),
        masks(std::move(masks)) {}

  Config &tokenMajor() {
    isTokenMajor = true;
    return *this;
  }
  /// Adds the packed forms, of q, k and v as columns of one tensor.
  Config &alsoPacked() {
    isPacked = true;
    return *this;
  }
  Config &inHalf() {
    type = "f16";
    return *this;
  }
  /// Adds the gradient of the first bias.
  Config &withBias() {
    hasBias = true;
    return *this;
  }
  Config &withIntegers(std::map<unsigned, std::vector<int64_t>> byMask) {
    integers = std::move(byMask);
    return *this;
  }

  int64_t batch, heads, keyHeads, queries, keys, width, valueWidth;
  std::string attributes;
  std::vector<std::string> masks;
  bool isTokenMajor = false, hasBias = false, isPacked = false;
  std::string type = "bf16";
  std::map<unsigned, std::vector<int64_t>> integers;
};

std::string shapeOf(const std::vector<int64_t> &sizes, const std::string &type) {
  std::string text;
  for (int64_t size : sizes)
    text += std::to_string(size) + "x";
  return text + type;
}

void addPackedCases(const Config &c, const std::string &masks, std::vector<OpCase> &cases) {
  const int64_t columns = (c.heads + c.keyHeads) * c.width + c.keyHeads * c.valueWidth;
  const std::string x = shapeOf({c.batch, c.queries, columns}, c.type),
                    o = shapeOf({c.batch, c.queries, c.heads * c.valueWidth}, c.type),
                    rows = shapeOf({c.batch, c.heads, c.queries}, "f32"), comma = ", ";
  const std::string attributes =
      "scale = 0.3 : f64, token_major = \"O\", heads = " + std::to_string(c.heads) +
      " : i64, key_heads = " + std::to_string(c.keyHeads) +
      " : i64, packed_width = " + std::to_string(c.width) + " : i64, " + c.attributes;
  cases.push_back({"packed_attention", x + masks, o + comma + rows + comma + rows, attributes});
  cases.push_back({"packed_attention_grad",
                   o + comma + x + comma + o + comma + rows + comma + rows + masks, x, attributes,
                   true});
}

void addCases(const Config &c, std::vector<OpCase> &cases) {
  auto tensor = [&](int64_t heads, int64_t tokens, int64_t width) {
    return c.isTokenMajor ? shapeOf({c.batch, tokens, heads, width}, c.type)
                          : shapeOf({c.batch, heads, tokens, width}, c.type);
  };
  std::string q = tensor(c.heads, c.queries, c.width), k = tensor(c.keyHeads, c.keys, c.width),
              v = tensor(c.keyHeads, c.keys, c.valueWidth),
              o = tensor(c.heads, c.queries, c.valueWidth),
              rows = shapeOf({c.batch, c.heads, c.queries}, "f32"), masks;
  for (const std::string &mask : c.masks)
    masks += ", " + mask;
  std::string attributes = "scale = 0.3 : f64, " + c.attributes;
  if (c.isTokenMajor)
    attributes += ", token_major = \"qkvo\"";
  auto integersFrom = [&](unsigned first) {
    std::map<unsigned, std::vector<int64_t>> moved;
    for (const auto &[mask, values] : c.integers)
      moved[first + mask] = values;
    return moved;
  };
  const std::string comma = ", ";
  cases.push_back({"attention", q + comma + k + comma + v + masks, o + comma + rows + comma + rows,
                   attributes, false, std::nullopt, integersFrom(3)});
  cases.push_back(
      {"attention_grad",
       o + comma + q + comma + k + comma + v + comma + o + comma + rows + comma + rows + masks,
       q + comma + k + comma + v, attributes, true, std::nullopt, integersFrom(7)});
  if (c.isPacked)
    addPackedCases(c, masks, cases);
  if (c.hasBias)
    cases.push_back({"attention_bias_grad", std::string(cases.back().operands), c.masks[0],
                     attributes + ", bias = 0 : i64", true, std::nullopt, integersFrom(7)});
}

std::vector<int64_t> count(int64_t from, int64_t number, int64_t step = 1) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < number; ++i)
    values.push_back(from + i * step);
  return values;
}

} // namespace

std::vector<OpCase> tiledAttentionCases() {
  const std::string all = "causal = false", causal = "causal = true";
  std::vector<Config> configs = {
      // One tile; several with parts of tiles; more than one block; few and many heads to a key.
      Config({1, 1, 1, 16, 64, 64, 64}, all),
      Config({2, 2, 1, 70, 70, 64, 64}, causal).alsoPacked(),
      Config({1, 3, 1, 131, 131, 16, 16}, causal).tokenMajor(),
      Config({1, 1, 1, 5, 3, 8, 8}, all),
      Config({1, 2, 2, 130, 200, 32, 32}, causal),
      // Widths that are no whole steps, that differ, and that two warps share.
      Config({1, 2, 1, 40, 50, 24, 40}, all).tokenMajor(),
      Config({1, 1, 1, 36, 48, 72, 128}, causal + ", key_mask = true", {"1x48xi1"}),
      Config({1, 1, 1, 40, 40, 128, 128}, causal).inHalf().alsoPacked(),
      Config({1, 2, 1, 33, 35, 192, 128}, causal).tokenMajor(),
      Config({1, 1, 1, 40, 70, 96, 256}, all),
      Config({1, 1, 1, 20, 40, 256, 256}, causal),
      // Windows, with tiles that no row reads.
      Config({1, 1, 1, 150, 150, 16, 16}, causal + ", left = 20 : i64"),
      Config({1, 1, 1, 140, 300, 16, 16}, all + ", left = 3 : i64, right = 9 : i64"),
      Config({1, 1, 1, 20, 300, 8, 8}, all + ", left = 30 : i64"),
      // Masks that are data.
      Config({2, 2, 2, 40, 70, 32, 32}, all + ", key_mask = true", {"2x70xi1"}),
      Config({2, 2, 1, 70, 70, 32, 32}, causal + ", key_mask = true, segments = true",
             {"2x70xi1", "2x70xi64", "2x70xi32"})
          .tokenMajor()
          .alsoPacked(),
      Config({1, 2, 1, 40, 66, 32, 32}, all + ", ordered = true", {"1x40xi64", "1x66xi64"}),
      Config({1, 1, 1, 40, 66, 32, 32}, causal + ", left = 11 : i64, placed = true",
             {"40xi64", "66xi64"})
          .withIntegers({{0, count(90, 40, -1)}, {1, count(30, 66)}}),
      // Scores. Biases with and without samples and heads, over odd and even numbers of keys.
      Config({2, 2, 1, 40, 66, 32, 32}, causal + ", soft_cap = 1.5 : f64").inHalf(),
      Config({2, 2, 1, 40, 66, 32, 32}, all + ", biases = \"hst,bt\"", {"2x40x66xbf16", "2x66xf32"})
          .withBias(),
      Config({2, 2, 1, 40, 66, 32, 32},
             all + ", biases = \"bhst\", sink = true, soft_cap = 0.7 : f64",
             {"2x2x40x66xf32", "2xf32"})
          .tokenMajor()
          .withBias(),
      Config({2, 3, 1, 139, 141, 16, 16}, causal + ", left = 50 : i64, biases = \"st\"",
             {"139x141xf32"})
          .tokenMajor()
          .inHalf()
          .withBias(),
      Config({2, 2, 2, 33, 33, 8, 24}, causal + ", key_mask = true, biases = \"bst\"",
             {"2x33x33xf32", "2x33xi1"})
          .withBias(),
      Config({2, 2, 1, 40, 66, 32, 32},
             causal + ", key_mask = true, sink = true, dropout = 0.25 : f64, drops_out = true, "
                      "dropout_seed = 3 : i64, dropout_key = 17 : i64",
             {"2xf32", "2x66xi1", "i64", "2xi64", "2xi64", "40xi64", "66xi64"})
          .withIntegers(
              {{2, {5}}, {3, {0, 5280}}, {4, {0, 2640}}, {5, count(0, 40, 66)}, {6, count(0, 66)}}),
  };
  std::vector<OpCase> cases;
  for (const Config &config : configs)
    addCases(config, cases);
  return cases;
}

} // namespace tbc
