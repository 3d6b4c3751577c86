//===- op_kernels_test.cpp - Kernels of single ops for GPUs, without a GPU --===//
//
// Ops that are no nest of loops: their threads run one after the other on the CPU, against the
// reference kernels. Shuffles between the lanes of a warp are left out there; ptxas assembles them.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/LowerPtx.h"
#include "codegen/cuda/ThreadKernel.h"
#include "ir/Evaluate.h"
#include "ir/Interpreter.h"
#include "tests/codegen/cpu/KernelCheck.h"
#include "tests/codegen/cuda/Assemble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace mlir;
using namespace tbc;
using kernels::Arith;
using kernels::Tensor;

namespace {

/// A case as a call of its op.
struct Call {
  Call(const OpCase &opCase)
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

  /// The text of its kernel under the name of its number; nothing if it has none.
  std::optional<cpu::KernelSource> source(cuda::Form form, int number, int64_t &extent) {
    if (!isRead)
      return std::nullopt;
    auto kernel = cuda::emitOpKernel(module->context, call, form);
    if (failed(kernel))
      return std::nullopt;
    extent = kernel->extent;
    std::string symbol = "op_" + std::to_string(number);
    (*kernel->module->getOps<func::FuncOp>().begin()).setName(symbol);
    std::string text;
    llvm::raw_string_ostream stream(text);
    kernel->module->print(stream);
    return cpu::KernelSource{symbol, text};
  }

  std::vector<Tensor> evaluate(Arith arith) {
    auto results =
        evaluateFunction(module->function("f"), operandsFor(opCase, *module, arith), arith);
    if (failed(results)) {
      ADD_FAILURE() << module->messages;
      return {};
    }
    return {results->begin(), results->end()};
  }

  OpCase opCase;
  std::unique_ptr<ParsedModule> module;
  cuda::OpCall call;
  bool isRead = false;
};

/// Every element of a result is taken for a sum of as many terms as the largest operand has
/// elements, each term of 8 steps and as large as a product of two operands, or as a result.
ErrorBound boundOf(const std::vector<Tensor> &operands, const std::vector<Tensor> &exact) {
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

void check(Call &one, program::CompiledKernel kernel, int64_t extent) {
  SCOPED_TRACE(testing::PrintToString(one.opCase));
  std::vector<Tensor> exact = one.evaluate(Arith::F64), reference = one.evaluate(Arith::Native);
  std::vector<Tensor> operands = operandsFor(one.opCase, *one.module, Arith::Native);
  KernelRun run;
  run.extent = extent;
  std::vector<Tensor> whole = runKernel(kernel, run, operands, one.call.results);
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
  run.step = 1, run.backwards = true;
  std::vector<Tensor> pieces = runKernel(kernel, run, operands, one.call.results);
  for (size_t r = 0; r < whole.size(); ++r)
    EXPECT_TRUE(kernels::bitwiseEqual(whole[r], pieces[r])) << "in pieces, result " << r;
}

/// Checks what has a kernel; returns the ops, with how many cases of each.
std::map<std::string, int> checkAll(const std::vector<OpCase> &cases) {
  std::vector<Call> calls;
  std::vector<cpu::KernelSource> sources;
  std::vector<int64_t> extents;
  std::map<std::string, int> ops;
  for (const OpCase &opCase : cases) {
    Call call(opCase);
    int64_t extent = 0;
    auto source = call.source(cuda::Form::Host, int(sources.size()), extent);
    if (!source)
      continue;
    ++ops[opCase.mnemonic];
    sources.push_back(*source);
    extents.push_back(extent);
    calls.push_back(std::move(call));
  }
  auto target = cpu::findCpuTarget("native");
  EXPECT_TRUE(target);
  KernelLibrary library(sources, *target);
  for (size_t i = 0; library.isOpen() && i < calls.size(); ++i)
    check(calls[i], library.find(sources[i].symbol), extents[i]);
  return ops;
}

std::vector<OpCase> inBFloat16(std::vector<OpCase> cases) {
  for (OpCase &opCase : cases)
    // Statistics stay f32.
    for (const char *op :
         {"einsum", "slice", "concat", "pad", "gather", "scatter_add", "embedding"})
      if (opCase.mnemonic == op)
        opCase = withType(opCase, "xf32", "xbf16");
  return cases;
}

/// Beside those of the tables: rows longer than a warp, sizes that nothing divides.
std::vector<OpCase> moreCases() {
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
      {"avg_pool_grad", "2x2x3x2xf32", "2x2x5x5xf32",
       "kernel = array<i64: 3, 2>, strides = array<i64: 2, 2>, pads = array<i64: 1, 0, 1, 0>, "
       "count_include_pad = true"},
      {"avg_pool_grad", "2x2x3x2xf32", "2x2x5x5xf32",
       "kernel = array<i64: 3, 2>, strides = array<i64: 2, 2>, pads = array<i64: 1, 0, 1, 0>, "
       "count_include_pad = false"},
      {"cross_entropy", "3x70xf32, 3xi64", "3xf32, 3xf32, 3xf32", "ignore_index = -100 : i64"},
      {"attention", "1x2x37x40xf32, 1x1x37x40xf32, 1x1x37x33xf32",
       "1x2x37x33xf32, 1x2x37xf32, 1x2x37xf32", "scale = 0.1 : f64, causal = true"},
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
  };
  return cases;
}

std::vector<OpCase> everyCase() {
  std::vector<OpCase> cases = allCases(), more = moreCases();
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

TEST(CudaOpKernels, AgreeWithTheReference) {
  std::map<std::string, int> ops = checkAll(everyCase());
  for (auto [op, least] : std::map<std::string, int>{{"attention", 8},
                                                     {"attention_grad", 4},
                                                     {"attention_merge", 1},
                                                     {"avg_pool", 2},
                                                     {"avg_pool_grad", 2},
                                                     {"class_sums", 1},
                                                     {"concat", 1},
                                                     {"conv", 3},
                                                     {"conv_grad_input", 2},
                                                     {"conv_grad_weight", 2},
                                                     {"max_pool", 1},
                                                     {"max_pool_grad", 1},
                                                     {"reduce_max", 2},
                                                     {"reduce_sum", 2},
                                                     {"rotary", 3},
                                                     {"transpose", 1},
                                                     {"count_not_finite", 1},
                                                     {"cross_entropy", 4},
                                                     {"cross_entropy_grad", 2},
                                                     {"einsum", 5},
                                                     {"combine", 3},
                                                     {"combine_weights_grad", 2},
                                                     {"dispatch", 4},
                                                     {"gather_elements", 2},
                                                     {"routed_experts", 4},
                                                     {"routed_experts_grad", 4},
                                                     {"scatter_elements_add", 2},
                                                     {"topk", 4},
                                                     {"embedding", 1},
                                                     {"embedding_grad", 2},
                                                     {"gather", 2},
                                                     {"pad", 1},
                                                     {"reshape", 1},
                                                     {"scatter_add", 1},
                                                     {"slice", 1},
                                                     {"square_sum", 2},
                                                     {"step_total", 1}})
    EXPECT_GE(ops[op], least) << op;
  // What masks may hide is read in other ways than nothing at all: refused, not done wrong.
  for (const OpCase &opCase : allCases())
    if (opCase.attributes.find("hidden_rows") != std::string::npos) {
      int64_t extent = 0;
      EXPECT_FALSE(Call(opCase).source(cuda::Form::Device, 0, extent))
          << testing::PrintToString(opCase);
    }
}

/// The same kernels for devices, assembled with the others' (cuda_kernels_test.cpp) rules.
TEST(CudaOpKernels, AreLoweredWithoutALibrary) {
  std::vector<std::string> texts;
  for (const OpCase &opCase : everyCase()) {
    Call call(opCase);
    int64_t extent = 0;
    if (auto source = call.source(cuda::Form::Device, int(texts.size()), extent))
      texts.push_back(source->text);
  }
  EXPECT_GE(texts.size(), 40u);
  auto ptx = cuda::lowerToPtx(texts, 80);
  ASSERT_TRUE(ptx) << ptx.error().message;
  EXPECT_THAT(*ptx, ::testing::Not(::testing::HasSubstr(".extern")));
  // Plain kernels: the gradient of attention spills a register.
  assemblePtx(*ptx, 80, /*mostSpilledBytes=*/8);
}

TEST(CudaOpKernels, InBFloat16) { EXPECT_GE(checkAll(inBFloat16(allCases())).size(), 8u); }

TEST(CudaOpKernels, WhatIsOutOfRangeIsNoNumber) {
  std::map<unsigned, std::vector<int64_t>> indices = {{1, {6, 0}}, {2, {0, 1, 2, 3}}, {3, {3}}};
  Call call(
      {"embedding", "4x3xf32, 2xi64, 4xi64, i64", "2x3xf32", "", false, std::nullopt, indices});
  int64_t extent = 0;
  auto source = call.source(cuda::Form::Host, 0, extent);
  ASSERT_TRUE(source);
  auto target = cpu::findCpuTarget("native");
  ASSERT_TRUE(target);
  KernelLibrary library({*source}, *target);
  ASSERT_TRUE(library.isOpen());
  KernelRun run;
  run.extent = extent;
  std::vector<Tensor> operands = operandsFor(call.opCase, *call.module, Arith::Native);
  std::vector<double> made =
      runKernel(library.find("op_0"), run, operands, call.call.results)[0].toDoubles();
  EXPECT_TRUE(std::isnan(made[0]) && std::isnan(made[2]));
  EXPECT_EQ(made[3], operands[0].toDoubles()[0]);
}

} // namespace
