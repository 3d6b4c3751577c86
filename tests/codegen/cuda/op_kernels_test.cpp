//===- op_kernels_test.cpp - Kernels of single ops for GPUs, without a GPU --===//
//
// Ops without a loop nest. Their threads run one after the other on the CPU and are compared with
// the reference kernels. Warp shuffles are left out there; ptxas assembles them.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/LowerPtx.h"
#include "ir/Interpreter.h"
#include "tests/codegen/cuda/Assemble.h"
#include "tests/codegen/cuda/OpKernelCheck.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace tbc;
using kernels::Arith;
using kernels::Tensor;

namespace {

/// Checks the cases with a kernel. Returns the number of cases per op.
std::map<std::string, int> checkAll(const std::vector<OpCase> &cases) {
  std::vector<OpKernelCase> calls;
  std::vector<region::KernelSource> sources;
  std::map<std::string, int> ops;
  for (const OpCase &opCase : cases) {
    OpKernelCase call(opCase);
    auto source = call.source(cuda::Form::Host, int(sources.size()));
    if (!source)
      continue;
    ++ops[opCase.mnemonic];
    sources.push_back(*source);
    calls.push_back(std::move(call));
  }
  auto target = cpu::findCpuTarget("native");
  EXPECT_TRUE(target);
  KernelLibrary library(sources, *target);
  for (size_t i = 0; library.isOpen() && i < calls.size(); ++i)
    check(
        calls[i],
        [&](const KernelRun &how, const auto &operands, const auto &types) {
          return runKernel(library.find(sources[i].symbol, calls[i].kernel), how, operands, types);
        },
        /*inPieces=*/true);
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

/// A row whose scores are all -inf by a bias is NaN, and one with some of them is a number.
TEST(CudaOpKernels, ABiasMayHideKeys) {
  constexpr int64_t queries = 5, keys = 37;
  OpKernelCase one({"attention", "1x1x5x8xf32, 1x1x37x8xf32, 1x1x37x3xf32, 5x37xf32",
                    "1x1x5x3xf32, 1x1x5xf32, 1x1x5xf32",
                    "scale = 0.3 : f64, causal = false, biases = \"st\""});
  auto source = one.source(cuda::Form::Host, 0);
  ASSERT_TRUE(source);
  std::vector<Tensor> operands = one.operands(Arith::Native);
  std::vector<double> bias = operands[3].toDoubles();
  std::fill_n(bias.begin(), keys, -INFINITY);            // all of the first row
  std::fill_n(bias.begin() + keys, keys - 1, -INFINITY); // all but one of the second
  operands[3] = Tensor::fromDoubles(operands[3].type(), Arith::Native, bias);
  auto target = cpu::findCpuTarget("native");
  ASSERT_TRUE(target);
  KernelLibrary library({*source}, *target);
  ASSERT_TRUE(library.isOpen());
  KernelRun run;
  run.extent = one.kernel.extent;
  std::vector<Tensor> made =
      runKernel(library.find(source->symbol, one.kernel), run, operands, one.call.results);
  auto exact = evaluateFunction(one.module->function("f"), operands, Arith::Native);
  ASSERT_TRUE(succeeded(exact)) << one.module->messages;
  for (size_t result : {0, 2}) { // o and l
    std::vector<double> here = made[result].toDoubles(), there = (*exact)[result].toDoubles();
    const size_t width = here.size() / queries;
    for (size_t i = 0; i < here.size(); ++i) {
      EXPECT_EQ(std::isnan(here[i]), i < width) << result << " " << i;
      EXPECT_EQ(std::isnan(there[i]), i < width) << result << " " << i;
      if (i >= width)
        EXPECT_NEAR(here[i], there[i], 1e-5);
    }
  }
}

TEST(CudaOpKernels, AgreeWithTheReference) {
  std::map<std::string, int> ops = checkAll(opKernelCases());
  for (const auto &[op, least] : std::map<std::string, int>{{"attention", 13},
                                                            {"attention_grad", 5},
                                                            {"attention_bias_grad", 2},
                                                            {"attention_merge", 1},
                                                            {"packed_attention", 1},
                                                            {"packed_attention_grad", 1},
                                                            {"cast", 8},
                                                            {"constant", 3},
                                                            {"avg_pool", 2},
                                                            {"avg_pool_grad", 2},
                                                            {"class_sums", 1},
                                                            {"concat", 1},
                                                            {"conv", 3},
                                                            {"conv_grad_input", 2},
                                                            {"conv_grad_weight", 2},
                                                            {"max_pool", 1},
                                                            {"max_pool_grad", 4},
                                                            {"reduce_max", 2},
                                                            {"reduce_sum", 2},
                                                            {"rotary", 5},
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
  // Cases with the attribute `hidden_rows` are refused, not computed wrongly.
  for (const OpCase &opCase : allCases())
    if (opCase.attributes.find("hidden_rows") != std::string::npos) {
      EXPECT_FALSE(OpKernelCase(opCase).source(cuda::Form::Device, 0))
          << testing::PrintToString(opCase);
    }
}

/// Sums by rows of 32, 100, 2,048, 2,049 and 40,000 updates: without sorting, and with 0 to 3
/// merges.
std::vector<OpCase> rowSumCases() {
  std::vector<OpCase> cases;
  for (const char *count : {"32", "100", "2048", "2049", "40000"}) {
    const std::string tokens = count;
    cases.push_back(
        {"embedding_grad", tokens + "x6xbf16, " + tokens + "xi64, 7xi64, i64", "7x6xbf16"});
    cases.push_back({"scatter_add", "2x" + tokens + "x6xf32, " + tokens + "xi64", "2x7x6xf32",
                     "dim = 1 : i64"});
  }
  return cases;
}

/// The same kernels for devices, assembled by the rules of cuda_kernels_test.cpp.
TEST(CudaOpKernels, AreLoweredWithoutALibrary) {
  std::vector<std::string> texts;
  for (const OpCase &opCase : opKernelCases()) {
    OpKernelCase call(opCase);
    if (auto source = call.source(cuda::Form::Device, int(texts.size())))
      texts.push_back(source->text);
  }
  EXPECT_GE(texts.size(), 40u);
  auto ptx = cuda::lowerToPtx(texts, 80);
  ASSERT_TRUE(ptx) << ptx.error().message;
  EXPECT_THAT(*ptx, ::testing::Not(::testing::HasSubstr(".extern")));
  // Plain kernels; the gradient of attention spills a register.
  assemblePtx(*ptx, 80, /*mostSpilledBytes=*/12);
}

/// Their sums and fragments stay in registers, but for a few of the widest heads.
TEST(CudaOpKernels, TiledAttentionIsAssembled) {
  std::vector<std::string> texts;
  for (const OpCase &opCase : tiledAttentionCases()) {
    OpKernelCase call(opCase);
    auto source = call.source(cuda::Form::Device, int(texts.size()));
    ASSERT_TRUE(source) << testing::PrintToString(opCase);
    EXPECT_THAT(source->text, ::testing::HasSubstr("nvvm.mma.m16n8k16"))
        << testing::PrintToString(opCase);
    texts.push_back(source->text);
  }
  auto ptx = cuda::lowerToPtx(texts, 80);
  ASSERT_TRUE(ptx) << ptx.error().message;
  assemblePtx(*ptx, 80, /*mostSpilledBytes=*/40);
}

/// Returns the shapes of the operands of an op.
std::vector<std::vector<int64_t>> operandShapes(Operation *op) {
  std::vector<std::vector<int64_t>> shapes;
  for (Value operand : op->getOperands())
    shapes.push_back(tensorType(operand).getShape().vec());
  return shapes;
}

/// The planner prices as many launches as there are, and counts the memory between them, if it is
/// not little (WorkspaceFn). Libraries have the other ops of matrix classes.
TEST(CudaOpKernels, LaunchesAndWorkspaceAreThoseOfTheInterface) {
  std::vector<OpCase> cases = tiledAttentionCases();
  for (const std::vector<OpCase> &others : {opKernelCases(), rowSumCases()})
    cases.insert(cases.end(), others.begin(), others.end());
  constexpr int64_t littleBytes = 4096;
  std::map<size_t, int> counts;
  std::map<std::string, int> withWorkspace;
  for (const OpCase &opCase : cases) {
    OpKernelCase call(opCase);
    Operation *op = theOp(*call.module);
    auto cost = cast<CostOpInterface>(op);
    const KernelClass kernelClass = cost.getKernelClass();
    if (!call.source(cuda::Form::Device, 0) ||
        (reshard::isMatrixClass(kernelClass) && !reshard::isOwnClass(kernelClass)))
      continue;
    const reshard::OwnKernel own = cost.getOwnKernel();
    const WorkspaceFn workspace = cost.getWorkspace();
    const size_t launches = 1 + call.kernel.then.size();
    EXPECT_EQ(own.launchesOf ? double(own.launchesOf(operandShapes(op))) : own.launches,
              double(launches))
        << testing::PrintToString(opCase);
    if (workspace || call.kernel.workspaceBytes > littleBytes)
      EXPECT_EQ(workspace ? workspace(operandShapes(op)) : 0, call.kernel.workspaceBytes)
          << testing::PrintToString(opCase);
    ++counts[launches];
    withWorkspace[opCase.mnemonic] += call.kernel.workspaceBytes > 0;
  }
  for (size_t launches : {1, 2, 3, 4, 5, 6, 7, 10})
    EXPECT_GE(counts[launches], 1) << launches;
  for (const char *op : {"embedding_grad", "scatter_add", "max_pool_grad", "routed_experts"})
    EXPECT_GE(withWorkspace[op], 1) << op;
}

TEST(CudaOpKernels, NanIsNotLost) {
  std::map<std::string, int> ops = checkAll(nanOpCases());
  for (const char *op : {"topk", "max_pool", "max_pool_grad", "cross_entropy", "attention",
                         "class_max", "class_sums", "routed_experts", "square_sum"})
    EXPECT_GE(ops[op], 1) << op;
}

TEST(CudaOpKernels, InBFloat16) { EXPECT_GE(checkAll(inBFloat16(allCases())).size(), 8u); }

/// Returns the first result of the host form of a kernel.
Tensor runOnHost(OpKernelCase &call, const std::vector<Tensor> &operands) {
  auto source = call.source(cuda::Form::Host, 0);
  auto target = cpu::findCpuTarget("native");
  EXPECT_TRUE(source && target);
  KernelLibrary library({*source}, *target);
  EXPECT_TRUE(library.isOpen());
  KernelRun run;
  run.extent = call.kernel.extent;
  return runKernel(library.find("op_0", call.kernel), run, operands, call.call.results)[0];
}

TEST(CudaOpKernels, WhatIsOutOfRangeIsNoNumber) {
  std::map<unsigned, std::vector<int64_t>> indices = {{1, {6, 0}}, {2, {0, 1, 2, 3}}, {3, {3}}};
  OpKernelCase call(
      {"embedding", "4x3xf32, 2xi64, 4xi64, i64", "2x3xf32", "", false, std::nullopt, indices});
  std::vector<Tensor> operands = operandsFor(call.opCase, *call.module, Arith::Native);
  std::vector<double> made = runOnHost(call, operands).toDoubles();
  EXPECT_TRUE(std::isnan(made[0]) && std::isnan(made[2]));
  EXPECT_EQ(made[3], operands[0].toDoubles()[0]);
}

/// A device refuses kernels with more than 4 KiB of parameters, so these have no kernel.
TEST(CudaOpKernels, ManyOperandsHaveNoKernel) {
  for (auto [count, hasKernel] : {std::pair(500, true), {600, false}}) {
    std::string operands;
    for (int i = 0; i < count; ++i)
      operands += std::string(i ? ", " : "") + "1xf32";
    OpKernelCase call({"concat", operands, std::to_string(count) + "xf32", "dim = 0 : i64"});
    EXPECT_EQ(call.source(cuda::Form::Device, 0).has_value(), hasKernel) << count;
  }
}

/// The rule of `castOfTooLarge`: the lowest of the wide types, else 0.
TEST(CudaOpKernels, FloatsWithoutAnInteger) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (auto [type, integer] : {std::pair("i64", std::numeric_limits<int64_t>::min()),
                               {"i32", int64_t(std::numeric_limits<int32_t>::min())},
                               {"i16", 0},
                               {"i8", 0},
                               {"ui8", 0}}) {
    OpKernelCase call({"cast", "5xf32", std::string("5x") + type});
    Tensor operand = Tensor::fromDoubles(call.call.operands[0], Arith::Native,
                                         {2.75, infinity, std::nan(""), -1e20, 7.9});
    EXPECT_EQ(runOnHost(call, {operand}).data<int64_t>(),
              (std::vector<int64_t>{2, integer, integer, integer, 7}))
        << type;
  }
}

} // namespace
