//===- OpCases.cpp - One small example of every interesting op -------------===//

#include "tests/ir/OpCases.h"

#include "ir/Evaluate.h"

#include "llvm/ADT/StringExtras.h"

#include <cmath>
#include <random>

using namespace mlir;

namespace tbc {

const std::vector<OpCase> &differentiableCases() {
  static const std::vector<OpCase> cases = {
      {"neg", "2x3xf32", "2x3xf32"},
      {"abs", "2x3xf32", "2x3xf32"},
      {"exp", "2x3xf32", "2x3xf32"},
      {"log", "2x3xf32", "2x3xf32", "", true},
      {"sqrt", "2x3xf32", "2x3xf32", "", true},
      {"rsqrt", "2x3xf32", "2x3xf32", "", true},
      {"reciprocal", "2x3xf32", "2x3xf32"},
      {"tanh", "2x3xf32", "2x3xf32"},
      {"erf", "2x3xf32", "2x3xf32"},
      {"sigmoid", "2x3xf32", "2x3xf32"},
      {"relu", "2x3xf32", "2x3xf32"},
      {"sin", "2x3xf32", "2x3xf32"},
      {"cos", "2x3xf32", "2x3xf32"},
      {"atan", "2x3xf32", "2x3xf32"},
      {"floor", "2x3xf32", "2x3xf32"},
      {"ceil", "2x3xf32", "2x3xf32"},
      {"round", "2x3xf32", "2x3xf32"},
      {"cast", "2x3xf32", "2x3xf64"},
      {"add", "2x3xf32, 2x3xf32", "2x3xf32"},
      {"sub", "2x3xf32, 2x3xf32", "2x3xf32"},
      {"mul", "2x3xf32, 2x3xf32", "2x3xf32"},
      {"div", "2x3xf32, 2x3xf32", "2x3xf32"},
      {"pow", "2x3xf32, 2x3xf32", "2x3xf32", "", true},
      {"maximum", "2x3xf32, 2x3xf32", "2x3xf32"},
      {"minimum", "2x3xf32, 2x3xf32", "2x3xf32"},
      {"select", "2x3xi1, 2x3xf32, 2x3xf32", "2x3xf32"},

      {"broadcast", "3x1xf32", "2x3x4x1xf32", "dims = array<i64: 1, 3>"},
      {"transpose", "2x3x4xf32", "3x4x2xf32", "permutation = array<i64: 1, 2, 0>"},
      {"reshape", "6x4x1xf32", "2x12xf32",
       "sizes = array<i64: 2, 3, 4>, in = array<i64: 2, 1, 0>, out = array<i64: 1, 2>"},
      {"slice", "2x5xf32", "2x3xf32", "dim = 1 : i64, offset = 1 : i64, size = 3 : i64"},
      {"concat", "2x1xf32, 2x3xf32", "2x4xf32", "dim = 1 : i64"},
      {"pad", "2x3xf32", "2x6xf32", "dim = 1 : i64, low = 1 : i64, high = 2 : i64"},

      {"reduce_sum", "2x3x4xf32", "3xf32", "dims = array<i64: 0, 2>"},
      {"reduce_max", "2x3x4xf32", "3xf32", "dims = array<i64: 0, 2>"},
      {"running_sum", "2x3x4xf32", "2x3x4xf32",
       "dim = 1 : i64, exclusive = false, reverse = false"},
      {"running_sum", "2x4xf32", "2x4xf32", "dim = 1 : i64, exclusive = true, reverse = true"},
      {"einsum", "2x3x4xf32, 5x4xf32", "2x3x5xf32",
       "lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 3, 2>, "
       "out_labels = array<i64: 0, 1, 3>"},
      {"einsum", "2x3x4xf32, 2x4x5xf32", "5x2x3xf32",
       "lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 2, 3>, "
       "out_labels = array<i64: 3, 0, 1>"},
      {"einsum", "2x3x4xf32, 4xf32", "2xf32",
       "lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 2>, out_labels = array<i64: 0>"},
      {"gather", "3x4xf32, 2x2xi64", "2x2x4xf32", "dim = 0 : i64"},
      {"gather", "2x3x4xf32, 5xi64", "2x5x4xf32", "dim = 1 : i64"},

      {"scatter_add", "2x2x4xf32, 2x2xi64", "3x4xf32", "dim = 0 : i64"},
      {"topk", "3x5xf32", "3x2xf32, 3x2xi64", "dim = 1 : i64, largest = true"},
      {"topk", "5x2xf32", "4x2xf32, 4x2xi64", "dim = 0 : i64, largest = false"},
      {"gather_elements", "2x3x4xf32, 2x5x4xi64", "2x5x4xf32", "dim = 1 : i64"},
      {"scatter_elements_add", "2x5x4xf32, 2x5x4xi64", "2x3x4xf32", "dim = 1 : i64"},

      {"conv", "2x4x5x6xf32, 3x4x3x2xf32", "2x3x3x2xf32",
       "strides = array<i64: 2, 3>, pads = array<i64: 1, 0, 1, 2>, dilations = array<i64: 1, 2>, "
       "groups = 1 : i64"},
      {"conv", "2x4x6xf32, 6x2x3xf32", "2x6x4xf32",
       "strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, "
       "groups = 2 : i64"},
      {"conv", "1x3x4x4xf32, 3x1x3x3xf32", "1x3x4x4xf32",
       "strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, "
       "groups = 3 : i64"},
      {"conv_grad_input", "2x3x3x2xf32, 3x4x3x2xf32", "2x4x5x6xf32",
       "strides = array<i64: 2, 3>, pads = array<i64: 1, 0, 1, 2>, dilations = array<i64: 1, 2>, "
       "groups = 1 : i64"},
      {"conv_grad_input", "2x6x4xf32, 6x2x3xf32", "2x4x6xf32",
       "strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, "
       "groups = 2 : i64"},
      {"max_pool", "2x2x5x5xf32", "2x2x3x2xf32",
       "kernel = array<i64: 3, 2>, strides = array<i64: 2, 2>, pads = array<i64: 1, 0, 1, 0>, "
       "dilations = array<i64: 1, 2>"},
      {"avg_pool", "2x2x5x5xf32", "2x2x3x2xf32",
       "kernel = array<i64: 3, 2>, strides = array<i64: 2, 2>, pads = array<i64: 1, 0, 1, 0>, "
       "count_include_pad = true"},
      {"avg_pool", "2x2x5x5xf32", "2x2x3x2xf32",
       "kernel = array<i64: 3, 2>, strides = array<i64: 2, 2>, pads = array<i64: 1, 0, 1, 0>, "
       "count_include_pad = false"},

      {"dropout", "2x3xf32", "2x3xf32", "ratio = 0.25 : f64"},
      {"dropout_train", "4x6xf32, i64, 4xi64, 6xi64", "4x6xf32",
       "ratio = 0.25 : f64, seed = 3 : i64, key = 17 : i64"},
      {"random_uniform", "2x3xf32", "2x3xf32", "key = 17 : i64"},

      {"softmax", "2x3x4xf32", "2x3x4xf32", "dim = 2 : i64"},
      {"softmax", "2x3x4xf32", "2x3x4xf32", "dim = 1 : i64"},
      {"layer_norm", "2x3x6xf32, 6xf32, 6xf32", "2x3x6xf32, 2x3xf32, 2x3xf32",
       "epsilon = 1.0e-5 : f64"},
      {"rms_norm", "2x3x6xf32, 6xf32", "2x3x6xf32, 2x3xf32", "epsilon = 1.0e-5 : f64"},
      {"batch_norm", "2x3x4xf32, 3xf32, 3xf32, 3xf32, 3xf32", "2x3x4xf32",
       "epsilon = 1.0e-5 : f64, momentum = 0.9 : f64", true},
      {"gelu", "2x3xf32", "2x3xf32", "approximate = \"none\""},
      {"gelu", "2x3xf32", "2x3xf32", "approximate = \"tanh\""},
      {"silu", "2x3xf32", "2x3xf32"},
      {"swiglu", "2x3xf32, 2x3xf32", "2x3xf32"},
      {"rotary", "2x2x3x4xf32, 3x2xf32, 3x2xf32", "2x2x3x4xf32", "inverse = false", false,
       std::vector<unsigned>{0}},
      {"rotary", "2x2x3x4xf32, 2x3x2xf32, 2x3x2xf32", "2x2x3x4xf32", "inverse = false", false,
       std::vector<unsigned>{0}},
      {"rotary", "3x4xf32, 3x2xf32, 3x2xf32", "3x4xf32", "inverse = true", false,
       std::vector<unsigned>{0}},
      {"rotary", "2x3x5x4xf32, 3x2xf32, 3x2xf32", "2x3x5x4xf32",
       "inverse = false, token_major = true", false, std::vector<unsigned>{0}},
      {"rotary", "2x3x5x4xf32, 2x3x2xf32, 2x3x2xf32", "2x3x5x4xf32",
       "inverse = true, token_major = true", false, std::vector<unsigned>{0}},
      {"rotary", "2x3x20xf32, 2x3x2xf32, 2x3x2xf32", "2x3x20xf32",
       "inverse = false, token_major = true", false, std::vector<unsigned>{0}},
      {"rotary", "2x2x3x6xf32, 2x3x3xf32, 2x3x3xf32", "2x2x3x6xf32",
       "inverse = false, interleaved = true", false, std::vector<unsigned>{0}},
      {"rotary", "2x3x30xf32, 3x3xf32, 3x3xf32", "2x3x30xf32",
       "inverse = true, token_major = true, interleaved = true", false, std::vector<unsigned>{0}},
      {"attention", "2x4x3x5xf32, 2x2x4x5xf32, 2x2x4x6xf32", "2x4x3x6xf32, 2x4x3xf32, 2x4x3xf32",
       "scale = 0.4 : f64, causal = true"},
      {"attention", "1x2x3x4xf32, 1x2x3x4xf32, 1x2x3x4xf32", "1x2x3x4xf32, 1x2x3xf32, 1x2x3xf32",
       "scale = 0.5 : f64, causal = false"},
      {"attention", "2x2x3x4xf32, 2x1x5x4xf32, 2x1x5x6xf32", "2x2x3x6xf32, 2x2x3xf32, 2x2x3xf32",
       "scale = 0.5 : f64, causal = true, left = 1 : i64"},
      {"attention", "2x4x3x5xf32, 2x2x4x5xf32, 2x2x4x6xf32, 2x4xi1",
       "2x4x3x6xf32, 2x4x3xf32, 2x4x3xf32", "scale = 0.4 : f64, causal = true, key_mask = true"},
      {"attention", "3x1x2x4xf32, 3x1x2x4xf32, 3x1x2x4xf32, 3x2xi1",
       "3x1x2x4xf32, 3x1x2xf32, 3x1x2xf32",
       "scale = 0.5 : f64, causal = true, key_mask = true, hidden_rows = \"mean\""},
      {"attention", "3x1x2x4xf32, 3x1x2x4xf32, 3x1x2x4xf32, 3x2xi1",
       "3x1x2x4xf32, 3x1x2xf32, 3x1x2xf32",
       "scale = 0.5 : f64, causal = true, key_mask = true, hidden_rows = \"scores\""},
      {"attention", "3x1x2x4xf32, 3x1x3x4xf32, 3x1x3x4xf32, 3x3xi1",
       "3x1x2x4xf32, 3x1x2xf32, 3x1x2xf32",
       "scale = 0.5 : f64, causal = true, left = 0 : i64, key_mask = true, "
       "hidden_rows = \"window\""},
      {"attention", "2x2x4x3xf32, 2x1x4x3xf32, 2x1x4x3xf32, 2x4xi64, 2x4xi64",
       "2x2x4x3xf32, 2x2x4xf32, 2x2x4xf32", "scale = 0.4 : f64, causal = true, segments = true"},
      {"attention",
       "2x2x3x4xf32, 2x1x5x4xf32, 2x1x5x4xf32, 2x5xi1, i64, 2xi64, 2xi64, 3xi64, 5xi64",
       "2x2x3x4xf32, 2x2x3xf32, 2x2x3xf32",
       "scale = 0.5 : f64, causal = true, key_mask = true, dropout = 0.25 : f64, drops_out = true, "
       "dropout_seed = 3 : i64, dropout_key = 17 : i64"},
      {"attention", "2x2x3x3xf32, 2x1x4x3xf32, 2x1x4x3xf32, 2x4xi1, 2x3xi64, 2x4xi64",
       "2x2x3x3xf32, 2x2x3xf32, 2x2x3xf32",
       "scale = 0.4 : f64, causal = false, key_mask = true, ordered = true, "
       "hidden_rows = \"nearest\""},
      {"attention", "2x2x4x3xf32, 2x1x4x3xf32, 2x1x4x3xf32, 2x4xi1, 2x4xi32, 2x4xi64",
       "2x2x4x3xf32, 2x2x4xf32, 2x2x4xf32",
       "scale = 0.4 : f64, causal = false, left = 1 : i64, right = 1 : i64, key_mask = true, "
       "segments = true, hidden_rows = \"nearest\""},
      // Biases over some of the dims, a cap, a sink.
      {"attention", "2x4x3x5xf32, 2x2x4x5xf32, 2x2x4x6xf32, 4x3x4xf32, 2x4xf32",
       "2x4x3x6xf32, 2x4x3xf32, 2x4x3xf32",
       "scale = 0.4 : f64, causal = true, biases = \"hst,bt\""},
      {"attention",
       "2x4x3x5xf32, 2x2x4x5xf32, 2x2x4x6xf32, 2x3x4xf32, 4x4xf32, 2x4x3x4xf32, 2x4xi1",
       "2x4x3x6xf32, 2x4x3xf32, 2x4x3xf32",
       "scale = 0.4 : f64, causal = false, key_mask = true, biases = \"bst,ht,bhst\", "
       "soft_cap = 1.5 : f64"},
      {"attention", "2x4x3x5xf32, 2x2x4x5xf32, 2x2x4x6xf32", "2x4x3x6xf32, 2x4x3xf32, 2x4x3xf32",
       "scale = 0.4 : f64, causal = true, soft_cap = 0.7 : f64"},
      {"attention", "2x4x3x5xf32, 2x2x4x5xf32, 2x2x4x6xf32, 4xf32, 2x4xi1",
       "2x4x3x6xf32, 2x4x3xf32, 2x4x3xf32",
       "scale = 0.4 : f64, causal = true, key_mask = true, sink = true"},
      {"attention", "3x1x2x4xf32, 3x1x2x4xf32, 3x1x2x4xf32, 1x2x2xf32, 3x2xi1",
       "3x1x2x4xf32, 3x1x2xf32, 3x1x2xf32",
       "scale = 0.5 : f64, causal = true, key_mask = true, biases = \"hst\", "
       "hidden_rows = \"mean\""},
      // Token-major tensors: all, some, and with every kind of mask.
      {"attention", "2x3x4x5xf32, 2x4x2x5xf32, 2x4x2x6xf32", "2x3x4x6xf32, 2x4x3xf32, 2x4x3xf32",
       "scale = 0.4 : f64, causal = true, token_major = \"qkvo\""},
      {"attention", "2x4x3x5xf32, 2x4x2x5xf32, 2x2x4x6xf32", "2x3x4x6xf32, 2x4x3xf32, 2x4x3xf32",
       "scale = 0.4 : f64, causal = false, token_major = \"ko\""},
      {"attention",
       "2x3x4x5xf32, 2x4x2x5xf32, 2x4x2x6xf32, 2x3x4xf32, 4xf32, 2x4xi1, i64, 2xi64, 4xi64, 3xi64, "
       "4xi64",
       "2x3x4x6xf32, 2x4x3xf32, 2x4x3xf32",
       "scale = 0.4 : f64, causal = true, key_mask = true, biases = \"bst\", sink = true, "
       "dropout = 0.25 : f64, drops_out = true, dropout_seed = 3 : i64, dropout_key = 17 : i64, "
       "token_major = \"qkvo\""},
      // Merged heads.
      {"attention", "2x3x20xf32, 2x4x10xf32, 2x4x12xf32", "2x3x24xf32, 2x4x3xf32, 2x4x3xf32",
       "scale = 0.4 : f64, causal = true, token_major = \"QKVO\", heads = 4 : i64, "
       "key_heads = 2 : i64"},
      {"attention", "2x3x20xf32, 2x4x2x5xf32, 2x2x4x6xf32, 4xf32, 2x4xi1",
       "2x3x24xf32, 2x4x3xf32, 2x4x3xf32",
       "scale = 0.4 : f64, causal = true, key_mask = true, sink = true, token_major = \"QkO\", "
       "heads = 4 : i64, key_heads = 2 : i64"},
      {"cross_entropy", "2x3x4xf32, 2x3xi64", "2x3xf32, 2x3xf32, 2x3xf32",
       "ignore_index = -100 : i64, label_smoothing = 0.25 : f64"},
      {"cross_entropy", "2x3x4xf32, 2x3xi64", "2x3xf32, 2x3xf32, 2x3xf32",
       "ignore_index = -100 : i64"},
      // Shards of vocabularies of 8: some rows and labels are elsewhere, and the last is padding.
      {"embedding",
       "4x3xf32, 2x2xi64, 4xi64, i64",
       "2x2x3xf32",
       "",
       false,
       std::nullopt,
       {{1, {-4, 3, 7, 5}}, {2, {3, 4, 5, -1}}, {3, {7}}}},
      {"class_sums",
       "2x3x4xf32, 2x3xf32, 2x3xi64, 4xi64, i64",
       "2x3xf32, 2x3xf32",
       "ignore_index = -100 : i64, label_weight = 0.75 : f64, class_weight = 0.03125 : f64",
       false,
       std::vector<unsigned>{0},
       {{2, {-100, 3, 7, 5, 4, 0}}, {3, {3, 4, 5, -1}}, {4, {7}}}},
      {"class_sums",
       "3x4xf64, 3xf64, 3xi64, 4xi64, i64",
       "3xf64, 3xf64",
       "ignore_index = -100 : i64, label_weight = 1.0 : f64, class_weight = 0.0 : f64",
       false,
       std::vector<unsigned>{0},
       {{2, {1, -100, 3}}, {3, {0, 1, 2, 3}}, {4, {3}}}},
      {"routed_experts", "3x4xf32, 3x2xf32, 2x10x4xf32, 2x6x5xf32", "3x6xf32",
       "activation = \"silu\", gated = true, top = 2 : i64"},
      {"routed_experts", "3x4xf32, 3x2xf32, 2x5x4xf32, 2x6x5xf32", "3x6xf32",
       "activation = \"gelu_tanh\", gated = false, top = 2 : i64"},
      {"routed_experts", "3x4xf32, 3x2xf32, 2x5x4xf32, 2x6x5xf32", "3x6xf32",
       "activation = \"relu\", gated = false, top = 2 : i64"},
      {"dispatch", "2x3x4xf32, 2x3x2xf32", "2x2x2x4xf32", "capacity = 2 : i64, weighted = true"},
      {"dispatch", "2x3x4xf32, 2x3x2xf32", "2x2x4x4xf32", "capacity = 4 : i64, weighted = false",
       false, std::vector<unsigned>{0}},
      {"combine", "2x2x2x4xf32, 2x3x2xf32", "2x3x4xf32", "weighted = true"},
      {"combine", "2x2x4x4xf32, 2x3x2xf32", "2x3x4xf32", "weighted = false", false,
       std::vector<unsigned>{0}},
      {"lstm", "3x2x12xf32, 12x3xf32, 2x3xf32, 2x3xf32", "3x2x3xf32, 3x2x3xf32, 3x2x12xf32",
       "reverse = false"},
      {"lstm", "2x2x8xf32, 8x2xf32, 2x2xf32, 2x2xf32", "2x2x2xf32, 2x2x2xf32, 2x2x8xf32",
       "reverse = true"},
      {"gru", "3x2x9xf32, 9x3xf32, 3xf32, 2x3xf32", "3x2x3xf32, 3x2x9xf32, 3x2x3xf32",
       "reverse = false, reset_after = true"},
      {"gru", "2x3x6xf32, 6x2xf32, 2xf32, 3x2xf32", "2x3x2xf32, 2x3x6xf32, 2x3x2xf32",
       "reverse = true, reset_after = false"},
      {"gru", "1x2x6xf32, 6x2xf32, 2xf32, 2x2xf32", "1x2x2xf32, 1x2x6xf32, 1x2x2xf32",
       "reverse = true, reset_after = true"},
  };
  return cases;
}

const std::vector<OpCase> &compositeCases() {
  static const std::vector<OpCase> cases = [] {
    std::vector<OpCase> result = {
        {"softmax", "2x3x4xbf16", "2x3x4xbf16", "dim = 0 : i64"},
        {"softmax_grad", "2x3x4xf32, 2x3x4xf32", "2x3x4xf32", "dim = 1 : i64"},
        {"layer_norm", "3x6xbf16, 6xbf16, 6xbf16", "3x6xbf16, 3xf32, 3xf32",
         "epsilon = 1.0e-5 : f64"},
        {"layer_norm", "3x6xf64, 6xf64, 6xf64", "3x6xf64, 3xf64, 3xf64", "epsilon = 1.0e-5 : f64"},
        {"layer_norm_grad", "2x3x6xf32, 2x3x6xf32, 6xf32, 2x3xf32, 2x3xf32", "2x3x6xf32"},
        {"layer_norm_grad", "3x6xbf16, 3x6xbf16, 6xbf16, 3xf32, 3xf32", "3x6xbf16"},
        {"norm_scale_grad", "2x3x6xf32, 2x3x6xf32, 2x3xf32, 2x3xf32", "6xf32"},
        {"rms_norm", "3x6xbf16, 6xbf16", "3x6xbf16, 3xf32", "epsilon = 1.0e-5 : f64"},
        {"rms_norm_grad", "2x3x6xf32, 2x3x6xf32, 6xf32, 2x3xf32", "2x3x6xf32"},
        {"rms_scale_grad", "2x3x6xf32, 2x3x6xf32, 2x3xf32", "6xf32"},
        {"batch_norm_train", "3x2x4xf32, 2xf32, 2xf32, 2xf32, 2xf32", "3x2x4xf32, 2xf32, 2xf32",
         "epsilon = 1.0e-5 : f64, momentum = 0.9 : f64, unbiased = false"},
        {"batch_norm_train", "3x2x4xf32, 2xf32, 2xf32, 2xf32, 2xf32", "3x2x4xf32, 2xf32, 2xf32",
         "epsilon = 1.0e-5 : f64, momentum = 0.9 : f64", true},
        {"batch_norm_train", "3x2x4xbf16, 2xf32, 2xf32, 2xf32, 2xf32", "3x2x4xbf16, 2xf32, 2xf32",
         "epsilon = 1.0e-5 : f64, momentum = 0.9 : f64", true},
        {"gelu_grad", "2x3xf32, 2x3xf32", "2x3xf32", "approximate = \"none\""},
        {"gelu_grad", "2x3xf32, 2x3xf32", "2x3xf32", "approximate = \"tanh\""},
        {"gelu", "2x3xbf16", "2x3xbf16", "approximate = \"tanh\""},
        {"silu_grad", "2x3xf32, 2x3xf32", "2x3xf32"},
        {"swiglu_grad", "2x3xf32, 2x3xf32, 2x3xf32", "2x3xf32, 2x3xf32"},
        {"swiglu", "2x3xbf16, 2x3xbf16", "2x3xbf16"},
        {"attention_grad",
         "2x4x3x6xf32, 2x4x3x5xf32, 2x2x4x5xf32, 2x2x4x6xf32, 2x4x3x6xf32, 2x4x3xf32, 2x4x3xf32",
         "2x4x3x5xf32, 2x2x4x5xf32, 2x2x4x6xf32", "scale = 0.4 : f64, causal = true", true},
        {"attention_grad",
         "2x2x4x3xf32, 2x2x4x3xf32, 2x1x4x3xf32, 2x1x4x3xf32, 2x2x4x3xf32, 2x2x4xf32, 2x2x4xf32, "
         "2x4xi1, 2x4xi64, 2x4xi64, 2x4xi64, 2x4xi64",
         "2x2x4x3xf32, 2x1x4x3xf32, 2x1x4x3xf32",
         "scale = 0.4 : f64, causal = true, key_mask = true, segments = true, ordered = true",
         true},
        {"attention_grad",
         "2x2x4x3xf32, 2x2x4x3xf32, 2x1x4x3xf32, 2x1x4x3xf32, 2x2x4x3xf32, 2x2x4xf32, 2x2x4xf32, "
         "2x4xi1, 2x4xi64, 2x4xi64",
         "2x2x4x3xf32, 2x1x4x3xf32, 2x1x4x3xf32",
         "scale = 0.4 : f64, causal = true, key_mask = true, segments = true, "
         "hidden_rows = \"nearest\"",
         true},
        {"attention_grad",
         "2x2x4x3xf32, 2x2x4x3xf32, 2x1x4x3xf32, 2x1x4x3xf32, 2x2x4x3xf32, 2x2x4xf32, 2x2x4xf32, "
         "2x4xi1",
         "2x2x4x3xf32, 2x1x4x3xf32, 2x1x4x3xf32",
         "scale = 0.4 : f64, causal = true, key_mask = true, hidden_rows = \"window\"", true},
        {"attention_grad",
         "2x2x3x4xf32, 2x2x3x4xf32, 2x1x3x4xf32, 2x1x3x4xf32, 2x2x3x4xf32, 2x2x3xf32, 2x2x3xf32, "
         "i64, 2xi64, 2xi64, 3xi64, 3xi64",
         "2x2x3x4xf32, 2x1x3x4xf32, 2x1x3x4xf32",
         "scale = 0.5 : f64, causal = false, dropout = 0.25 : f64, drops_out = true, "
         "dropout_seed = 3 : i64, dropout_key = 17 : i64",
         true},
        {"attention_grad",
         "2x2x3x4xf32, 2x2x3x4xf32, 2x1x4x4xf32, 2x1x4x4xf32, 2x2x3x4xf32, 2x2x3xf32, 2x2x3xf32, "
         "3xi64, 4xi64",
         "2x2x3x4xf32, 2x1x4x4xf32, 2x1x4x4xf32",
         "scale = 0.5 : f64, causal = true, left = 1 : i64, placed = true", true},
        {"attention_grad",
         "2x4x3x6xf32, 2x4x3x5xf32, 2x2x4x5xf32, 2x2x4x6xf32, 2x4x3x6xf32, 2x4x3xf32, 2x4x3xf32, "
         "4x3x4xf32, 2x4xf32, 4xf32, 2x4xi1",
         "2x4x3x5xf32, 2x2x4x5xf32, 2x2x4x6xf32",
         "scale = 0.4 : f64, causal = true, key_mask = true, biases = \"hst,bt\", "
         "soft_cap = 1.5 : f64, sink = true",
         true},
        {"attention_bias_grad",
         "2x4x3x6xf32, 2x4x3x5xf32, 2x2x4x5xf32, 2x2x4x6xf32, 2x4x3x6xf32, 2x4x3xf32, 2x4x3xf32, "
         "4x3x4xf32, 2x4xf32, 4xf32, 2x4xi1",
         "4x3x4xf32",
         "scale = 0.4 : f64, causal = true, key_mask = true, biases = \"hst,bt\", "
         "soft_cap = 1.5 : f64, sink = true, bias = 0 : i64",
         true},
        {"attention_grad",
         "2x3x4x6xf32, 2x3x4x5xf32, 2x4x2x5xf32, 2x4x2x6xf32, 2x3x4x6xf32, 2x4x3xf32, 2x4x3xf32",
         "2x3x4x5xf32, 2x4x2x5xf32, 2x4x2x6xf32",
         "scale = 0.4 : f64, causal = true, token_major = \"qkvo\"", true},
        {"attention_grad",
         "2x4x3x6xf32, 2x3x4x5xf32, 2x2x4x5xf32, 2x4x2x6xf32, 2x4x3x6xf32, 2x4x3xf32, 2x4x3xf32, "
         "4x3x4xf32, 2x4xf32, 4xf32, 2x4xi1",
         "2x3x4x5xf32, 2x2x4x5xf32, 2x4x2x6xf32",
         "scale = 0.4 : f64, causal = true, key_mask = true, biases = \"hst,bt\", "
         "soft_cap = 1.5 : f64, sink = true, token_major = \"qv\"",
         true},
        {"attention_grad",
         "2x3x24xf32, 2x3x20xf32, 2x4x2x5xf32, 2x4x12xf32, 2x3x24xf32, 2x4x3xf32, 2x4x3xf32",
         "2x3x20xf32, 2x4x2x5xf32, 2x4x12xf32",
         "scale = 0.4 : f64, causal = true, token_major = \"QkVO\", heads = 4 : i64, "
         "key_heads = 2 : i64",
         true},
        {"attention_bias_grad",
         "2x3x4x6xf32, 2x3x4x5xf32, 2x4x2x5xf32, 2x4x2x6xf32, 2x3x4x6xf32, 2x4x3xf32, 2x4x3xf32, "
         "4x3x4xf32, 2x4xf32",
         "4x3x4xf32",
         "scale = 0.4 : f64, causal = true, biases = \"hst,bt\", token_major = \"qkvo\", "
         "bias = 0 : i64",
         true},
        {"attention_bias_grad",
         "2x4x3x6xf32, 2x4x3x5xf32, 2x2x4x5xf32, 2x2x4x6xf32, 2x4x3x6xf32, 2x4x3xf32, 2x4x3xf32, "
         "4x3x4xf32, 2x4xf32",
         "2x4xf32", "scale = 0.4 : f64, causal = false, biases = \"hst,bt\", bias = 1 : i64", true},
        {"attention", "2x2x3x4xf32, 2x1x4x4xf32, 2x1x4x6xf32, 3xi64, 4xi64",
         "2x2x3x6xf32, 2x2x3xf32, 2x2x3xf32",
         "scale = 0.5 : f64, causal = true, left = 2 : i64, placed = true", true},
        {"attention", "1x2x3x4xbf16, 1x1x3x4xbf16, 1x1x3x4xbf16",
         "1x2x3x4xbf16, 1x2x3xf32, 1x2x3xf32", "scale = 0.5 : f64, causal = true"},
        {"cross_entropy_grad", "2x3x4xf32, 2x3xi64, 2x3xf32, 2x3xf32, 2x3xf32", "2x3x4xf32",
         "ignore_index = -100 : i64, label_smoothing = 0.1 : f64"},
        {"cross_entropy_grad", "2x3x4xf32, 2x3xi64, 2x3xf32, 2x3xf32, 2x3xf32", "2x3x4xf32",
         "ignore_index = -100 : i64", true},
        {"routed_experts_grad", "3x6xf32, 3x4xf32, 3x2xf32, 2x10x4xf32, 2x6x5xf32",
         "3x4xf32, 3x2xf32, 2x10x4xf32, 2x6x5xf32",
         "activation = \"silu\", gated = true, top = 2 : i64"},
        {"routed_experts_grad", "3x6xbf16, 3x4xbf16, 3x2xbf16, 2x5x4xbf16, 2x6x5xbf16",
         "3x4xbf16, 3x2xbf16, 2x5x4xbf16, 2x6x5xbf16",
         "activation = \"gelu\", gated = false, top = 2 : i64"},
        {"lstm_grad", "3x2x3xf32, 3x2x3xf32, 12x3xf32, 2x3xf32, 3x2x3xf32, 3x2x12xf32",
         "3x2x12xf32, 2x3xf32, 2x3xf32", "reverse = true"},
        {"lstm", "2x2x8xbf16, 8x2xbf16, 2x2xbf16, 2x2xbf16", "2x2x2xbf16, 2x2x2xbf16, 2x2x8xbf16",
         "reverse = false"},
        {"gru_grad", "3x2x3xf32, 9x3xf32, 2x3xf32, 3x2x3xf32, 3x2x9xf32, 3x2x3xf32",
         "3x2x9xf32, 3x2x3xf32, 2x3xf32", "reverse = false, reset_after = false"},
        {"gru_grad", "3x2x3xbf16, 9x3xbf16, 2x3xbf16, 3x2x3xbf16, 3x2x9xbf16, 3x2x3xbf16",
         "3x2x9xbf16, 3x2x3xbf16, 2x3xbf16", "reverse = true, reset_after = true"},
        {"cross_entropy", "3x4xbf16, 3xi64", "3xf32, 3xf32, 3xf32", "ignore_index = -100 : i64"},
    };
    MLIRContext context;
    context.loadDialect<TbcDialect>();
    for (const OpCase &opCase : differentiableCases()) {
      OperationName name("tbc." + opCase.mnemonic, &context);
      if (name.hasInterface<CompositeOpInterface>())
        result.push_back(opCase);
    }
    return result;
  }();
  return cases;
}

/// "tensor<2x3xf32>", and so on.
static std::vector<std::string> types(llvm::StringRef list) {
  std::vector<std::string> result;
  if (list.empty())
    return result;
  for (llvm::StringRef type : llvm::split(list, ", "))
    result.push_back("tensor<" + type.str() + ">");
  return result;
}

std::string OpCase::module() const {
  std::vector<std::string> operandTypes = types(operands), resultTypes = types(results);
  std::vector<std::string> arguments, operandNames, resultNames;
  for (auto [i, type] : llvm::enumerate(operandTypes)) {
    operandNames.push_back("%arg" + std::to_string(i));
    arguments.push_back(operandNames.back() + ": " + type);
  }
  for (size_t i = 0; i < resultTypes.size(); ++i)
    resultNames.push_back("%r" + std::to_string(i));
  std::string properties = attributes.empty() ? "" : " <{" + attributes + "}>";
  std::string resultList = llvm::join(resultTypes, ", ");
  return "func.func @f(" + llvm::join(arguments, ", ") + ") -> (" + resultList + ") {\n  " +
         llvm::join(resultNames, ", ") + " = \"tbc." + mnemonic + "\"(" +
         llvm::join(operandNames, ", ") + ")" + properties + " : (" +
         llvm::join(operandTypes, ", ") + ") -> (" + resultList + ")\n  return " +
         llvm::join(resultNames, ", ") + " : " + resultList + "\n}\n";
}

void PrintTo(const OpCase &opCase, std::ostream *stream) {
  *stream << opCase.mnemonic << "(" << opCase.operands << ") {" << opCase.attributes << "}";
}

Operation *theOp(ParsedModule &module) { return &module.function("f").getBody().front().front(); }

std::vector<kernels::Tensor> operandsFor(const OpCase &opCase, ParsedModule &module,
                                         kernels::Arith arith) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> magnitude(0.2, 1.5);
  std::vector<kernels::Tensor> tensors;
  for (auto [operand, type] : llvm::enumerate(module.function("f").getArgumentTypes())) {
    kernels::TensorType kernelType = *toKernelType(type);
    size_t count = kernels::numElements(kernelType.shape);
    if (!kernels::isFloat(kernelType.dtype)) {
      std::vector<int64_t> ints(count);
      for (int64_t &value : ints)
        value = random() % (kernelType.dtype == kernels::DType::Bool ? 2 : 3);
      if (opCase.attributes.find("ignore_index") != std::string::npos)
        ints[0] = -100;
      if (auto given = opCase.integers.find(operand); given != opCase.integers.end())
        ints = given->second;
      tensors.push_back(kernels::Tensor::fromInts(kernelType, ints));
      continue;
    }
    std::vector<double> doubles(count);
    for (double &value : doubles) {
      value = float(magnitude(random));
      if (!opCase.positive && random() % 2)
        value = -value;
    }
    for (size_t i = 0; opCase.nanEvery && i < count; ++i)
      if (i < 3 || (i + 5 * operand) % opCase.nanEvery == 0)
        doubles[i] = std::nan("");
    tensors.push_back(kernels::Tensor::fromDoubles(kernelType, arith, doubles));
  }
  return tensors;
}

SmallVector<Value> addArguments(func::FuncOp function, ArrayRef<Type> types) {
  SmallVector<Value> values;
  for (Type type : types) {
    unsigned index = function.getNumArguments();
    function.insertArgument(index, type, {}, function.getLoc());
    values.push_back(function.getArgument(index));
  }
  return values;
}

void setResults(func::FuncOp function, ArrayRef<Value> values) {
  function.getBody().front().getTerminator()->setOperands(values);
  function.setType(FunctionType::get(function.getContext(), function.getArgumentTypes(),
                                     llvm::to_vector(ValueRange(values).getTypes())));
}

} // namespace tbc
