//===- OpKernelCheck.cpp - Kernels of single ops for GPUs against the reference ===//

#include "tests/codegen/cuda/OpKernelCheck.h"

#include "ir/Evaluate.h"
#include "ir/Interpreter.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace mlir;

namespace tbc {

using kernels::Arith;
using kernels::Tensor;

/// Keeps `top` weights of each token. Token t goes to the experts from t * t on, so some experts
/// get more tokens than others and the last of many gets no token.
static Tensor routed(const Tensor &weights, int64_t top, Arith arith) {
  std::vector<double> values = weights.toDoubles();
  int64_t experts = weights.shape()[1];
  for (int64_t t = 0; t < weights.shape()[0]; ++t)
    for (int64_t e = 0; e < experts; ++e) {
      int64_t distance = (e - t * t % experts + experts) % experts;
      if (distance >= top || (experts > top + 1 && e == experts - 1))
        values[size_t(t * experts + e)] = 0;
    }
  return Tensor::fromDoubles(weights.type(), arith, values);
}

static bool isCastToInteger(const cuda::OpCall &call) {
  return call.op == "cast" && kernels::isFloat(call.operands[0].dtype) &&
         !kernels::isFloat(call.results[0].dtype);
}

/// Puts floats at the begin that no integer, or no narrow one, can hold.
static Tensor beyondIntegers(const Tensor &x, Arith arith) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double floats[] = {infinity, -infinity, std::nan(""), 1e20,   -1e20, 0x1p63, -0x1p63,
                           3e9,      -3e9,      40000,        -40000, 300,   -300};
  std::vector<double> values = x.toDoubles();
  std::copy(std::begin(floats), std::end(floats), values.begin());
  return Tensor::fromDoubles(x.type(), arith, values);
}

/// The reference refuses NaN; kernels take it to the integer of an infinity.
static Tensor withInfinityForNan(const Tensor &x, Arith arith) {
  std::vector<double> values = x.toDoubles();
  for (double &value : values)
    value = std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
  return Tensor::fromDoubles(x.type(), arith, values);
}

OpKernelCase::OpKernelCase(const OpCase &opCase)
    : opCase(opCase), module(std::make_unique<ParsedModule>(opCase.module())) {
  if (!*module)
    return;
  cuda::prepareContext(module->context);
  Operation *op = theOp(*module);
  auto attrs = toKernelAttrs(op);
  if (failed(attrs))
    return;
  call.op = opCase.mnemonic;
  call.attrs = *attrs;
  for (Value operand : op->getOperands()) {
    call.operandBuffers.push_back(call.numBuffers++);
    call.operands.push_back(*toKernelType(operand.getType()));
  }
  for (Value result : op->getResults()) {
    call.resultBuffers.push_back(call.numBuffers++);
    call.results.push_back(*toKernelType(result.getType()));
  }
  isRead = true;
}

std::optional<region::KernelSource> OpKernelCase::source(cuda::Form form, int number) {
  if (!isRead)
    return std::nullopt;
  auto made = cuda::emitOpKernel(module->context, call, form);
  if (failed(made))
    return std::nullopt;
  kernel = std::move(*made);
  std::string symbol = "op_" + std::to_string(number);
  region::nameFunctions(*kernel.module, symbol);
  std::string text;
  llvm::raw_string_ostream stream(text);
  kernel.module->print(stream);
  return region::KernelSource{symbol, text};
}

std::vector<Tensor> OpKernelCase::operands(Arith arith) {
  std::vector<Tensor> made = operandsFor(opCase, *module, arith);
  for (auto [op, weights] : {std::pair("routed_experts", 1), std::pair("routed_experts_grad", 2)})
    if (opCase.mnemonic == op)
      made[size_t(weights)] = routed(made[size_t(weights)], call.attrs.getInt("top"), arith);
  if (isCastToInteger(call))
    made[0] = beyondIntegers(made[0], arith);
  return made;
}

std::vector<Tensor> OpKernelCase::evaluate(Arith arith) {
  std::vector<Tensor> given = operands(arith);
  if (isCastToInteger(call))
    given[0] = withInfinityForNan(given[0], arith);
  auto results = evaluateFunction(module->function("f"), given, arith);
  if (failed(results)) {
    ADD_FAILURE() << module->messages;
    return {};
  }
  return {results->begin(), results->end()};
}

/// Treats every element of a result as a sum with as many terms as the largest operand has
/// elements. A term has 8 steps and the magnitude of a product of two operands, or of a result.
static ErrorBound boundOf(const std::vector<Tensor> &operands, const std::vector<Tensor> &exact) {
  constexpr double stepsPerTerm = 8;
  ErrorBound bound;
  double largest = 1;
  for (const Tensor &operand : operands) {
    bound.steps =
        std::max(bound.steps, stepsPerTerm * double(kernels::numElements(operand.shape())));
    if (kernels::isFloat(operand.dtype()))
      largest = std::max(largest, largestMagnitude(operand));
  }
  bound.stepMagnitude = largest * largest;
  for (const Tensor &result : exact)
    bound.stepMagnitude = std::max(bound.stepMagnitude, largestMagnitude(result));
  return bound;
}

void check(OpKernelCase &one, const RunFn &runKernel, bool inPieces) {
  SCOPED_TRACE(testing::PrintToString(one.opCase));
  std::vector<Tensor> exact = one.evaluate(Arith::F64), reference = one.evaluate(Arith::Native);
  std::vector<Tensor> operands = one.operands(Arith::Native);
  KernelRun run;
  run.extent = one.kernel.extent;
  std::vector<Tensor> whole = runKernel(run, operands, one.call.results);
  ErrorBound bound = boundOf(operands, exact);
  for (size_t r = 0; r < whole.size(); ++r) {
    if (!kernels::isFloat(one.call.results[r].dtype)) {
      EXPECT_TRUE(kernels::bitwiseEqual(whole[r], reference[r])) << "result " << r;
      continue;
    }
    bound.referenceError = largestDifference(reference[r], exact[r]);
    bound.magnitude = largestMagnitude(exact[r]);
    EXPECT_LE(largestDifference(whole[r], exact[r]), bound.of(one.call.results[r].dtype))
        << "result " << r;
  }
  if (!inPieces)
    return;
  run.step = 1, run.backwards = true;
  std::vector<Tensor> pieces = runKernel(run, operands, one.call.results);
  for (size_t r = 0; r < whole.size(); ++r)
    EXPECT_TRUE(kernels::bitwiseEqual(whole[r], pieces[r])) << "in pieces, result " << r;
}

/// Ops that move 16 bytes an instruction where sizes and offsets allow it, and less where not. Of
/// 24 classes the rank has 19, and 5 are padding.
static std::vector<OpCase> wideCases() {
  std::vector<int64_t> some, all;
  for (int64_t i = 0; i < 24; ++i) {
    some.push_back(i < 19 ? 3 + i : -1);
    all.push_back(i);
  }
  std::map<unsigned, std::vector<int64_t>> part = {{2, {4, -100, 30}}, {3, some}, {4, {40}}},
                                           whole = {{2, {23, 0, 7}}, {3, all}, {4, {23}}},
                                           rows = {{1, {22, 1, -1}}, {2, some}, {3, {40}}};
  const std::string weights =
      "ignore_index = -100 : i64, label_weight = 0.75 : f64, class_weight = 0.03125 : f64";
  std::vector<OpCase> cases;
  for (const char *type : {"i64", "i32", "ui32", "i16", "ui8", "i1"}) {
    std::string x = std::string("3x32x") + type, y = std::string("3x16x") + type;
    cases.push_back({"slice", x, y, "dim = 1 : i64, size = 16 : i64, offset = 8 : i64"});
    cases.push_back({"concat", y + ", " + y, x, "dim = 1 : i64"});
  }
  for (const char *type : {"f32", "bf16"}) {
    auto shape = [&](const std::string &sizes) { return sizes + "x" + type; };
    auto add = [&](const char *op, const std::string &operands, const std::string &results,
                   const std::string &attributes = "",
                   const std::map<unsigned, std::vector<int64_t>> &integers = {}) {
      cases.push_back({op, operands, results, attributes, false, std::nullopt, integers});
    };
    for (const char *offset : {"8", "4", "3", "0"})
      add("slice", shape("3x32x2"), shape("3x16x2"),
          std::string("dim = 1 : i64, size = 16 : i64, offset = ") + offset + " : i64");
    add("slice", shape("2x48"), shape("2x20"), "dim = 1 : i64, offset = 8 : i64, size = 20 : i64");
    add("pad", shape("3x16"), shape("3x40"), "dim = 1 : i64, low = 8 : i64, high = 16 : i64");
    add("pad", shape("3x16"), shape("3x40"), "dim = 1 : i64, low = 7 : i64, high = 17 : i64");
    add("concat", shape("3x8x2") + ", " + shape("3x24x2") + ", " + shape("3x4x2"), shape("3x36x2"),
        "dim = 1 : i64");
    add("concat", shape("3x5") + ", " + shape("3x11"), shape("3x16"), "dim = 1 : i64");
    add("embedding", shape("24x16") + ", 3xi64, 24xi64, i64", shape("3x16"), "", rows);
    for (const auto &numbers : {part, whole}) {
      add("class_sums", shape("3x24") + ", 3xf32, 3xi64, 24xi64, i64", "3xf32, 3xf32", weights,
          numbers);
      add("class_sums_grad", shape("3x24") + ", 3xf32, 3xi64, 24xi64, i64, 3xf32, 3xf32",
          shape("3x24"), weights, numbers);
      add("class_max", shape("3x24") + ", 24xi64", "3xf32", "", {{1, numbers.at(3)}});
    }
  }
  return cases;
}

/// Returns a constant of 1,031 numbers, more than a thread chooses of; an i64 has wide ones.
static std::string tableOf(const std::string &type, const std::string &fraction) {
  std::string text = "dense<[";
  for (int64_t i = 0; i < 1031; ++i)
    text += (i == 0 ? "" : ", ") +
            std::to_string(type == "i64" && i % 7 == 0 ? (i << 40) - 5 : i * i % 97 - 40) +
            fraction;
  return text + "]> : tensor<1031x" + type + ">";
}

static std::vector<OpCase> moreCases() {
  std::string labels = "lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, "
                       "out_labels = array<i64: 0, 2>";
  std::map<unsigned, std::vector<int64_t>> rows = {
      {1, {0, 5, -1, 5, 2, 5, 4}}, {2, {0, 1, 2, 3, 4, 5}}, {3, {5}}};
  std::vector<OpCase> cases = {
      {"einsum", "1x1xf32, 1x1xf32", "1x1xf32", labels},
      {"einsum", "33x65xf32, 65x17xf32", "33x17xf32", labels},
      {"embedding_grad", "7x9xf32, 7xi64, 6xi64, i64", "6x9xf32", "", false, std::nullopt, rows},
      {"embedding_grad", "7x16xbf16, 7xi64, 6xi64, i64", "6x16xbf16", "", false, std::nullopt,
       rows},
      {"square_sum", "700xf32, 3x5xf32, 1xf32", "f32"},
      {"square_sum", "70001xf32, 40000xbf16, 5x7xf32, 1xbf16, 65536xf32", "f32"},
      {"count_not_finite", "30011xbf16, 1031xf32", "f32"},
      {"square_sum", "33xbf16", "f32"},
      {"count_not_finite", "700xf32, 3x5xbf16", "f32"},
      {"step_total", "f32, f32", "f32, f32"},
      {"reduce_max", "3x4x5xi64", "4xi64", "dims = array<i64: 0, 2>"},
      {"reduce_sum", "3x4xi32", "3xi32", "dims = array<i64: 1>"},
      {"conv_grad_weight", "2x4x5x6xf32, 2x3x3x2xf32", "3x4x3x2xf32",
       "strides = array<i64: 2, 3>, pads = array<i64: 1, 0, 1, 2>, dilations = array<i64: 1, 2>, "
       "groups = 1 : i64"},
      {"conv_grad_weight", "2x4x6xf32, 2x6x4xf32", "6x2x3xf32",
       "strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, "
       "groups = 2 : i64"},
      {"max_pool_grad", "2x2x5x5xf32, 2x2x3x2xf32", "2x2x5x5xf32",
       "kernel = array<i64: 3, 2>, strides = array<i64: 2, 2>, pads = array<i64: 1, 0, 1, 0>, "
       "dilations = array<i64: 1, 2>"},
      // A thread has 8 elements of a row, or 4.
      {"max_pool_grad", "1x2x6x16xbf16, 1x2x3x8xbf16", "1x2x6x16xbf16",
       "kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, "
       "dilations = array<i64: 1, 1>"},
      {"max_pool_grad", "2x1x3x8xf32, 2x1x3x6xf32", "2x1x3x8xf32",
       "kernel = array<i64: 1, 2>, strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, "
       "dilations = array<i64: 1, 2>"},
      {"max_pool_grad", "2x3x16xf32, 2x3x8xf32", "2x3x16xf32",
       "kernel = array<i64: 2>, strides = array<i64: 2>, pads = array<i64: 0, 0>, "
       "dilations = array<i64: 1>"},
      {"avg_pool_grad", "2x2x3x2xf32", "2x2x5x5xf32",
       "kernel = array<i64: 3, 2>, strides = array<i64: 2, 2>, pads = array<i64: 1, 0, 1, 0>, "
       "count_include_pad = true"},
      {"avg_pool_grad", "2x2x3x2xf32", "2x2x5x5xf32",
       "kernel = array<i64: 3, 2>, strides = array<i64: 2, 2>, pads = array<i64: 1, 0, 1, 0>, "
       "count_include_pad = false"},
      {"cross_entropy", "3x70xf32, 3xi64", "3xf32, 3xf32, 3xf32", "ignore_index = -100 : i64"},
      {"attention", "1x2x37x40xf32, 1x1x37x40xf32, 1x1x37x33xf32",
       "1x2x37x33xf32, 1x2x37xf32, 1x2x37xf32", "scale = 0.1 : f64, causal = true"},
      {"attention", "1x2x37x40xf32, 1x1x37x40xf32, 1x1x37x33xf32, 2x37x37xf32, 37xf32, 2xf32",
       "1x2x37x33xf32, 1x2x37xf32, 1x2x37xf32",
       "scale = 0.1 : f64, causal = true, biases = \"hst,t\", soft_cap = 2.0 : f64, sink = true"},
      // Columns of one tensor: 3 x 10 of queries, 10 of the keys and 7 of the values of one head.
      {"packed_attention", "2x37x47xf32, 2x37xi1", "2x37x21xf32, 2x3x37xf32, 2x3x37xf32",
       "scale = 0.1 : f64, causal = true, key_mask = true, token_major = \"O\", heads = 3 : i64, "
       "key_heads = 1 : i64, packed_width = 10 : i64"},
      {"packed_attention_grad", "2x37x21xf32, 2x37x47xf32, 2x37x21xf32, 2x3x37xf32, 2x3x37xf32",
       "2x37x47xf32",
       "scale = 0.1 : f64, causal = true, token_major = \"O\", heads = 3 : i64, "
       "key_heads = 1 : i64, packed_width = 10 : i64",
       true},
      {"constant", "", "1031xi64", "value = " + tableOf("i64", "")},
      {"constant", "", "1031xi32", "value = " + tableOf("i32", "")},
      {"constant", "", "1031xf32", "value = " + tableOf("f32", ".25")},
      {"cast", "7x37xf32", "7x37xi64"},
      {"cast", "259xbf16", "259xi32"},
      {"cast", "33xf16", "33xui8", "", /*positive=*/true},
      {"cast", "35xf32", "35xi32"},
      {"cast", "35xf32", "35xi16"},
      {"cast", "35xf32", "35xi8"},
      {"cast", "35xbf16", "35xui8"},
      {"cast", "35xf16", "35xi64"},
      {"topk", "2x70x3xf32", "2x5x3xf32, 2x5x3xi64", "dim = 1 : i64, largest = true"},
      {"topk", "3x9xi64", "3x9xi64, 3x9xi64", "dim = 1 : i64, largest = false"},
      {"gather_elements",
       "3x5xi32, 3x2xi64",
       "3x2xi32",
       "dim = 1 : i64",
       false,
       std::nullopt,
       {{0, {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9}}, {1, {0, -1, 4, 3, -5, 2}}}},
      {"scatter_elements_add",
       "4x3xf32, 4x3xi64",
       "6x3xf32",
       "dim = 0 : i64",
       false,
       std::nullopt,
       {{1, {5, 0, -1, 5, 3, 2, -1, 3, 2, 0, 0, 0}}}},
      {"routed_experts", "5x7xf32, 5x3xf32, 3x8x7xf32, 3x19x4xf32", "5x19xf32",
       "activation = \"gelu\", gated = true, top = 2 : i64"},
      {"routed_experts_grad", "5x19xf32, 5x17xf32, 5x3xf32, 3x8x17xf32, 3x19x4xf32",
       "5x17xf32, 5x3xf32, 3x8x17xf32, 3x19x4xf32",
       "activation = \"gelu_tanh\", gated = true, top = 2 : i64"},
      {"routed_experts_grad", "4x3xf32, 4x5xf32, 4x2xf32, 2x6x5xf32, 2x3x6xf32",
       "4x5xf32, 4x2xf32, 2x6x5xf32, 2x3x6xf32",
       "activation = \"relu\", gated = false, top = 2 : i64"},
      {"dispatch", "2x40x9xf32, 2x40x3xf32", "2x3x37x9xf32",
       "capacity = 37 : i64, weighted = true"},
      {"dispatch", "1x5x3xf32, 1x5x2xf32", "1x2x8x3xf32", "capacity = 8 : i64, weighted = false"},
      {"combine", "2x3x37x11xf32, 2x40x3xf32", "2x40x11xf32", "weighted = true"},
      {"combine_weights_grad", "2x40x11xf32, 2x3x37x11xf32, 2x40x3xf32", "2x40x3xf32"},
      {"combine_weights_grad", "1x5x4xf32, 1x2x8x4xf32, 1x5x2xf32", "1x5x2xf32"},
      {"attention_merge", "1x2x3x5xf32, 1x2x3xf32, 1x2x3xf32, 1x2x3x5xf32, 1x2x3xf32, 1x2x3xf32",
       "1x2x3x5xf32, 1x2x3xf32, 1x2x3xf32", "", true},
      {"attention_merge", "2x3x4x5xf32, 2x4x3xf32, 2x4x3xf32, 2x3x4x5xf32, 2x4x3xf32, 2x4x3xf32",
       "2x3x4x5xf32, 2x4x3xf32, 2x4x3xf32", "token_major = true", true},
  };
  return cases;
}

/// Sums by rows of many updates: random rows, a row of half of them, all in one row, none.
static std::vector<OpCase> rowSumCases() {
  std::vector<OpCase> cases;
  std::mt19937 random(3);
  for (int64_t count : {33, 127, 300, 1031})
    for (int64_t rows : {1, 7, 509}) {
      std::vector<std::vector<int64_t>> choices(4, std::vector<int64_t>(size_t(count)));
      for (int64_t i = 0; i < count; ++i) {
        auto row = int64_t(random() % uint64_t(rows));
        choices[0][size_t(i)] = row;
        choices[1][size_t(i)] = random() % 2 == 0 ? rows - 1 : row - rows; // some from the end
        choices[2][size_t(i)] = rows / 2;
        choices[3][size_t(i)] = 0;
      }
      std::vector<int64_t> numbers;
      for (int64_t i = 0; i < rows; ++i)
        numbers.push_back(i);
      std::string n = std::to_string(count), r = std::to_string(rows);
      for (size_t i = 0; i < choices.size(); ++i) {
        std::string width = i % 2 == 0 ? "x8xbf16" : "x5xf32";
        cases.push_back({"embedding_grad",
                         n + width + ", " + n + "xi64, " + r + "xi64, i64",
                         r + width,
                         "",
                         false,
                         std::nullopt,
                         {{1, choices[i]}, {2, numbers}, {3, {rows - 1}}}});
        // Every other row is on this rank.
        std::vector<int64_t> part;
        for (int64_t j = 0; j < rows; ++j)
          part.push_back(2 * j);
        cases.push_back({"embedding_grad",
                         n + width + ", " + n + "xi64, " + r + "xi64, i64",
                         r + width,
                         "",
                         false,
                         std::nullopt,
                         {{1, choices[i]}, {2, part}, {3, {2 * rows}}}});
        cases.push_back({"scatter_add",
                         "3x" + n + width + ", " + n + "xi64",
                         "3x" + r + width,
                         "dim = 1 : i64",
                         false,
                         std::nullopt,
                         {{1, choices[i]}}});
      }
    }
  return cases;
}

/// Experts in each type of kernels: sizes that fill no tile, no access of 16 bytes, several tiles
/// per expert, several tiles of columns and of the depth, and experts without tokens.
static std::vector<OpCase> expertCases() {
  struct Sizes {
    int64_t t, h, e, f, o, top;
    const char *activation;
    bool isGated;
  };
  std::vector<OpCase> cases;
  for (const Sizes &n :
       {Sizes{70, 40, 5, 24, 48, 2, "silu", true}, Sizes{33, 17, 6, 33, 19, 3, "gelu", true},
        Sizes{150, 24, 2, 72, 136, 2, "relu", false},
        Sizes{9, 136, 3, 136, 72, 2, "gelu_tanh", true}})
    for (std::string type : {"f32", "bf16", "f16"}) {
      if (type == "f16" ? n.e != 5 : type == "f32" && n.e == 2) // each takes seconds to compile
        continue;
      auto tensor = [&](std::initializer_list<int64_t> shape) {
        std::string text;
        for (int64_t size : shape)
          text += std::to_string(size) + "x";
        return text + type;
      };
      std::string attributes = "activation = \"" + std::string(n.activation) +
                               "\", gated = " + (n.isGated ? "true" : "false") +
                               ", top = " + std::to_string(n.top) + " : i64";
      std::string y = tensor({n.t, n.o});
      std::string layer = tensor({n.t, n.h}) + ", " + tensor({n.t, n.e}) + ", " +
                          tensor({n.e, (n.isGated ? 2 : 1) * n.f, n.h}) + ", " +
                          tensor({n.e, n.o, n.f});
      cases.push_back({"routed_experts", layer, y, attributes});
      cases.push_back({"routed_experts_grad", y + ", " + layer, layer, attributes});
    }
  return cases;
}

std::vector<OpCase> nanOpCases() {
  const std::string pool = "kernel = array<i64: 3>, strides = array<i64: 1>, "
                           "pads = array<i64: 1, 1>, dilations = array<i64: 1>";
  std::vector<OpCase> cases = {
      {"topk", "2x70x3xf32", "2x40x3xf32, 2x40x3xi64", "dim = 1 : i64, largest = true"},
      {"topk", "3x70xbf16", "3x70xbf16, 3x70xi64", "dim = 1 : i64, largest = false"},
      {"max_pool", "2x3x40xf32", "2x3x40xf32", pool},
      {"max_pool_grad", "2x3x40xf32, 2x3x40xf32", "2x3x40xf32", pool},
      {"cross_entropy", "9x70xf32, 9xi64", "9xf32, 9xf32, 9xf32", "ignore_index = -100 : i64"},
      {"attention", "1x2x37x40xf32, 1x1x37x40xf32, 1x1x37x33xf32",
       "1x2x37x33xf32, 1x2x37xf32, 1x2x37xf32", "scale = 0.1 : f64, causal = true"},
      {"attention", "1x1x80x32xbf16, 1x1x80x32xbf16, 1x1x80x32xbf16",
       "1x1x80x32xbf16, 1x1x80xf32, 1x1x80xf32", "scale = 0.1 : f64, causal = true"},
      {"routed_experts", "5x7xf32, 5x3xf32, 3x8x7xf32, 3x19x8xf32", "5x19xf32",
       "activation = \"relu\", gated = false, top = 2 : i64"},
      {"square_sum", "700xf32, 3x5xf32", "f32"},
      {"count_not_finite", "30011xbf16, 1031xf32", "f32"},
  };
  for (OpCase opCase : wideCases())
    if (opCase.mnemonic == "class_max" || opCase.mnemonic == "class_sums")
      cases.push_back(opCase);
  for (OpCase &opCase : cases)
    opCase.nanEvery = opCase.mnemonic == "attention" ? 1500 : 60; // some rows have none
  return cases;
}

std::vector<OpCase> opKernelCases() {
  std::vector<OpCase> cases = allCases(), more = moreCases(), sums = rowSumCases(),
                      experts = expertCases(), wide = wideCases(), tiled = tiledAttentionCases();
  cases.insert(cases.end(), experts.begin(), experts.end());
  cases.insert(cases.end(), sums.begin(), sums.end());
  cases.insert(cases.end(), more.begin(), more.end());
  cases.insert(cases.end(), wide.begin(), wide.end());
  return cases;
}

} // namespace tbc
