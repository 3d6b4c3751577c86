//===- TinyCases.cpp - Ops of one row, one column or an odd width ------------===//

#include "tests/codegen/cuda/OpKernelCheck.h"

namespace tbc {

std::vector<OpCase> tinyOpCases() {
  std::vector<OpCase> cases;
  auto add = [&](const char *op, const std::string &operands, const std::string &results,
                 const std::string &attributes = "",
                 const std::map<unsigned, std::vector<int64_t>> &integers = {}) {
    cases.push_back({op, operands, results, attributes, false, std::nullopt, integers});
  };
  const std::string weights =
      "ignore_index = -100 : i64, label_weight = 0.75 : f64, class_weight = 0.03125 : f64";
  for (int64_t width : {1, 3, 17})
    for (int64_t count : {1, 33}) {
      const std::string w = std::to_string(width), n = std::to_string(count);
      const std::string x = n + "x" + w + "xf32", b = n + "x" + w + "xbf16";
      std::vector<int64_t> numbers, labels, rows;
      for (int64_t i = 0; i < width; ++i)
        numbers.push_back(i + 1 < width || width == 1 ? 2 * i : -1);
      for (int64_t i = 0; i < count; ++i) {
        labels.push_back(i % 5 == 4 ? -100 : 2 * (i % width));
        rows.push_back(i % 2 ? -1 : 0);
      }
      const std::map<unsigned, std::vector<int64_t>> classes = {
          {2, labels}, {3, numbers}, {4, {2 * width}}};
      add("class_max", b + ", " + w + "xi64", n + "xf32", "", {{1, numbers}});
      add("class_sums", x + ", " + n + "xf32, " + n + "xi64, " + w + "xi64, i64",
          n + "xf32, " + n + "xf32", weights, classes);
      add("class_sums_grad",
          b + ", " + n + "xf32, " + n + "xi64, " + w + "xi64, i64, " + n + "xf32, " + n + "xf32", b,
          weights, classes);
      std::vector<int64_t> zeros(size_t(count), 0);
      add("cross_entropy", x + ", " + n + "xi64", n + "xf32, " + n + "xf32, " + n + "xf32",
          "ignore_index = -100 : i64", {{1, zeros}});
      // A table of one row, with `count` tokens.
      add("embedding", "1x" + w + "xbf16, " + n + "xi64, 1xi64, i64", b, "",
          {{1, rows}, {2, {0}}, {3, {0}}});
      add("embedding_grad", b + ", " + n + "xi64, 1xi64, i64", "1x" + w + "xbf16", "",
          {{1, rows}, {2, {0}}, {3, {0}}});
      add("gather", "1x" + w + "xf32, " + n + "xi64", x, "dim = 0 : i64", {{1, rows}});
      add("scatter_add", x + ", " + n + "xi64", "1x" + w + "xf32", "dim = 0 : i64", {{1, rows}});
      add("topk", x, n + "x1xf32, " + n + "x1xi64", "dim = 1 : i64, largest = true");
      add("concat", b + ", " + b, n + "x" + std::to_string(2 * width) + "xbf16", "dim = 1 : i64");
      add("slice", b, "1x" + w + "xbf16",
          "dim = 0 : i64, size = 1 : i64, offset = " + std::to_string(count - 1) + " : i64");
      add("pad", b, n + "x" + std::to_string(width + 1) + "xbf16",
          "dim = 1 : i64, low = 1 : i64, high = 0 : i64");
      add("square_sum", x + ", 1xbf16", "f32");
      add("reduce_max", x, w + "xf32", "dims = array<i64: 0>");
      add("einsum", x + ", " + w + "x1xf32", n + "x1xf32",
          "lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, "
          "out_labels = array<i64: 0, 2>");
      add("transpose", b, w + "x" + n + "xbf16", "permutation = array<i64: 1, 0>");
      add("rotary", "1x1x" + n + "x" + std::to_string(2 * width) + "xf32, " + x + ", " + x,
          "1x1x" + n + "x" + std::to_string(2 * width) + "xf32", "inverse = false");
      const std::string pool = "kernel = array<i64: 1>, strides = array<i64: 1>, "
                               "pads = array<i64: 0, 0>, dilations = array<i64: 1>";
      add("max_pool", "1x" + x, "1x" + x, pool);
      add("max_pool_grad", "1x" + x + ", 1x" + x, "1x" + x, pool);
      for (const char *gated : {"true", "false"}) {
        // Not all, because the tiles of an expert take the executor long.
        if (width == 3 || (count == 1) == (gated[0] == 't'))
          continue;
        // `count` tokens of one expert, all widths the same.
        const std::string in = "1x" + std::to_string((gated[0] == 't' ? 2 : 1) * width) + "x" + w,
                          out = "1x" + w + "x" + w,
                          way = std::string("gated = ") + gated +
                                ", activation = \"silu\", top = 1 : i64";
        for (const std::string type : {"xf32", "xbf16"}) {
          const std::string t = n + "x" + w + type, route = n + "x1" + type;
          add("routed_experts", t + ", " + route + ", " + in + type + ", " + out + type, t, way);
          add("routed_experts_grad",
              t + ", " + t + ", " + route + ", " + in + type + ", " + out + type,
              t + ", " + route + ", " + in + type + ", " + out + type, way);
        }
      }
      add("dispatch", "1x" + x + ", 1x" + n + "x1xf32", "1x1x1x" + w + "xf32",
          "capacity = 1 : i64, weighted = true");
      add("combine", "1x1x1x" + w + "xf32, 1x" + n + "x1xf32", "1x" + x, "weighted = true");
      // One query, and one key; heads of an odd width have a warp per row, of 8 columns tiles.
      for (const std::string type : {"x" + w + "xf32", std::string("x8xbf16")})
        for (const char *causal : {"true", "false"}) {
          const bool isCausal = causal[0] == 't';
          const std::string q = "1x1x" + (isCausal ? n : "1") + type, k = "1x1x" + n + type,
                            row = "1x1x" + (isCausal ? n : std::string("1")) + "xf32",
                            way = std::string("scale = 0.4 : f64, causal = ") + causal;
          add("attention", q + ", " + k + ", " + k, q + ", " + row + ", " + row, way);
          cases.push_back({"attention_grad",
                           q + ", " + q + ", " + k + ", " + k + ", " + q + ", " + row + ", " + row,
                           q + ", " + k + ", " + k, way, true});
        }
    }
  return cases;
}

} // namespace tbc
