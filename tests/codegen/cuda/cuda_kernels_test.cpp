//===- cuda_kernels_test.cpp - Kernels for GPUs, without a GPU -------------===//
//
// Runs the threads of kernels one after the other on the CPU and compares with the reference
// kernels. Shuffles between the lanes of a warp are left out. If ptxas is installed, it assembles
// the same kernels as PTX.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/EmitCudaKernel.h"
#include "codegen/cuda/LowerPtx.h"
#include "codegen/cuda/NestEmitter.h"
#include "tests/codegen/cpu/KernelCheck.h"
#include "tests/codegen/cuda/Assemble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>

using namespace mlir;
using namespace tbc;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

region::EmitFn emitterFor(cuda::Form form) {
  return [form](func::FuncOp function, const region::Domain &domain) {
    return cuda::emitCudaKernel(function, domain, form);
  };
}

std::set<std::string> checkThreads(const std::vector<OpCase> &cases) {
  auto target = cpu::findCpuTarget("native");
  EXPECT_TRUE(target);
  return checkAll(cases, *target, emitterFor(cuda::Form::Host), /*lanes=*/1);
}

std::vector<OpCase> inBFloat16(std::vector<OpCase> cases) {
  for (OpCase &opCase : cases)
    opCase = withType(opCase, "xf32", "xbf16");
  return cases;
}

TEST(CudaThreads, EveryOpOfTheTables) {
  std::set<std::string> ops = checkThreads(allCases());
  for (const char *op : {"add",
                         "broadcast",
                         "dropout_train",
                         "erf",
                         "exp",
                         "gelu",
                         "gelu_grad",
                         "layer_norm",
                         "layer_norm_grad",
                         "log",
                         "norm_scale_grad",
                         "reduce_max",
                         "reduce_sum",
                         "rms_norm",
                         "rms_norm_grad",
                         "cos",
                         "pow",
                         "select",
                         "silu",
                         "sin",
                         "softmax",
                         "softmax_grad",
                         "swiglu",
                         "tanh"})
    EXPECT_EQ(ops.count(op), 1u) << op << " has no kernel for GPUs";
}

TEST(CudaThreads, OpsWithoutAGradient) {
  std::set<std::string> ops = checkThreads(otherCases());
  EXPECT_GE(ops.size(), 15u);
  EXPECT_EQ(ops.count("adam") + ops.count("adamw"), 2u);
}

TEST(CudaThreads, InBFloat16) { EXPECT_GE(checkThreads(inBFloat16(allCases())).size(), 25u); }

TEST(CudaThreads, NanIsNotLost) { EXPECT_EQ(checkThreads(nanCases()).size(), 22u); }

TEST(CudaThreads, ShapesOfAllKinds) { EXPECT_EQ(checkThreads(shapeCases()).size(), 9u); }

/// Returns the name of the code of a thread, which is the same for equal code; empty without one.
std::string codeOfThread(const std::string &function) {
  std::string symbol;
  compileFunction(
      "region", function,
      [&](func::FuncOp region, const region::Domain &domain) -> FailureOr<region::Kernel> {
        if (auto thread = cuda::emitThread(region, domain, cuda::Form::Device); succeeded(thread))
          symbol = region::symbolOf(*thread->module);
        return cuda::emitCudaKernel(region, domain);
      },
      0);
  return symbol;
}

std::string scaled(const std::string &shape, const std::string &type) {
  std::string tensor = "tensor<" + shape + "x" + type + ">";
  return "func.func @f(%x: " + tensor + ", %s: tensor<" + type + ">) -> " + tensor +
         " {\n  %0 = tbc.scale_by %x, %s : (" + tensor + ", tensor<" + type + ">) -> " + tensor +
         "\n  return %0 : " + tensor + "\n}";
}

/// A joint kernel has the code of alike segments once (codegen/cuda/JoinKernels.h).
TEST(CudaThreads, CodeDoesNotDependOnTheNumberOfElements) {
  std::string code = codeOfThread(scaled("768", "f32"));
  EXPECT_NE(code, "");
  EXPECT_EQ(codeOfThread(scaled("16x1024", "f32")), code);
  EXPECT_NE(codeOfThread(scaled("767", "f32")), code); // narrower accesses
  EXPECT_NE(codeOfThread(scaled("768", "bf16")), code);
  // A reduction and a broadcast along rows are no flat loops.
  EXPECT_EQ(codeOfThread("func.func @f(%x: tensor<8x4xf32>) -> tensor<4xf32> {\n  %0 = "
                         "tbc.reduce_sum %x {dims = array<i64: 0>} : (tensor<8x4xf32>) -> "
                         "tensor<4xf32>\n  return %0 : tensor<4xf32>\n}"),
            "");
}

//===----------------------------------------------------------------------===//
// PTX
//===----------------------------------------------------------------------===//

std::vector<std::string> textsOf(const std::vector<OpCase> &cases) {
  std::vector<std::string> texts;
  for (const OpCase &opCase : cases)
    if (auto compiled = compileCase(opCase, emitterFor(cuda::Form::Device), int(texts.size())))
      texts.push_back(sourceOf(*compiled).text);
  return texts;
}

std::string ptxOf(const std::vector<std::string> &texts, int architecture) {
  auto ptx = cuda::lowerToPtx(texts, architecture);
  EXPECT_TRUE(ptx) << ptx.error().message;
  return ptx ? *ptx : "";
}

TEST(Ptx, ElementsMoveSixteenBytesAtATime) {
  std::string f32 = ptxOf(textsOf({{"mul", "4096xf32, 4096xf32", "4096xf32"}}), 80);
  EXPECT_THAT(f32, HasSubstr("ld.global.v4"));
  EXPECT_THAT(f32, HasSubstr("st.global.v4"));
  EXPECT_THAT(f32, HasSubstr(".maxntid 256"));
  // Rows of 37 elements begin at unaligned addresses.
  std::string odd = ptxOf(textsOf({{"mul", "3x37xf32, 3x37xf32", "3x37xf32"}}), 80);
  EXPECT_THAT(odd, Not(HasSubstr("ld.global.v")));
}

TEST(Ptx, RowsAreReducedByShuffles) {
  std::string softmax =
      ptxOf(textsOf({{"softmax", "8x512xf32", "8x512xf32", "dim = 1 : i64"}}), 90);
  for (const char *distance : {"16", "8", "4", "2", "1"})
    EXPECT_TRUE(std::regex_search(softmax, std::regex("shfl\\.sync\\.bfly\\.b32[^;]*, " +
                                                      std::string(distance) + ", 31, -1;")))
        << distance;
}

/// Long rows have a block of 512 threads. Without a bound of its own a driver would refuse the
/// launch, and a thread could have registers that 512 threads have not.
TEST(Ptx, BlocksOfMoreThreadsHaveTheirOwnBound) {
  const std::string normGradients = R"(
func.func @f(%dy: tensor<4x16384xbf16>, %x: tensor<4x16384xbf16>, %w: tensor<16384xbf16>,
             %rstd: tensor<4xf32>) -> (tensor<4x16384xbf16>, tensor<16384xbf16>) {
  %dx = tbc.rms_norm_grad %dy, %x, %w, %rstd
      : (tensor<4x16384xbf16>, tensor<4x16384xbf16>, tensor<16384xbf16>, tensor<4xf32>) -> tensor<4x16384xbf16>
  %dw = tbc.rms_scale_grad %dy, %x, %rstd
      : (tensor<4x16384xbf16>, tensor<4x16384xbf16>, tensor<4xf32>) -> tensor<16384xbf16>
  return %dx, %dw : tensor<4x16384xbf16>, tensor<16384xbf16>
})";
  auto compiled = compileFunction("region", normGradients, emitterFor(cuda::Form::Device), 0);
  ASSERT_TRUE(compiled);
  EXPECT_EQ(compiled->kernel.threads, 512);
  std::string ptx = ptxOf({sourceOf(*compiled).text}, 80);
  EXPECT_THAT(ptx, HasSubstr(".maxntid 512"));
  EXPECT_THAT(ptx, Not(HasSubstr(".maxntid 256")));
  assemblePtx(ptx, 80, /*mostSpilledBytes=*/12); // a thread has 128 registers
}

/// The warps of a block have 4 KiB for what they reduce. 8 warps with 70 sums of a row took more.
TEST(Ptx, RowsWithManySumsStayWithinSharedMemory) {
  for (auto [count, isOne] : {std::pair(60, true), {70, false}}) {
    std::string arguments, body, last = "%x0";
    for (int i = 0; i < count; ++i) {
      std::string n = std::to_string(i), next = "%t" + n;
      arguments += ", %w" + n + ": tensor<16384xbf16>";
      body += "  %b" + n + " = tbc.broadcast %w" + n +
              " {dims = array<i64: 1>} : (tensor<16384xbf16>) -> tensor<4x16384xbf16>\n  %p" + n +
              " = tbc.mul %x, %b" + n + " : tensor<4x16384xbf16>\n  %s" + n +
              " = tbc.reduce_sum %p" + n +
              " {dims = array<i64: 1>} : (tensor<4x16384xbf16>) -> tensor<4xbf16>\n";
      if (i > 0)
        body += "  " + next + " = tbc.add " + last + ", %s" + n + " : tensor<4xbf16>\n";
      last = i > 0 ? next : "%s0";
    }
    const std::string text =
        "func.func @f(%x: tensor<4x16384xbf16>" + arguments +
        ") -> (tensor<4x16384xbf16>, tensor<16384xbf16>) {\n" + body + "  %all = tbc.broadcast " +
        last +
        " {dims = array<i64: 0>} : (tensor<4xbf16>) -> tensor<4x16384xbf16>\n"
        "  %y = tbc.mul %x, %all : tensor<4x16384xbf16>\n"
        "  %sum = tbc.reduce_sum %y {dims = array<i64: 0>} : (tensor<4x16384xbf16>) -> "
        "tensor<16384xbf16>\n  return %y, %sum : tensor<4x16384xbf16>, tensor<16384xbf16>\n}";
    EXPECT_EQ(compileFunction("region", text, emitterFor(cuda::Form::Device), 0).has_value(), isOne)
        << count;
  }
}

TEST(Ptx, AFunctionThatNoGpuHasIsNamed) {
  auto ptx = cuda::lowerToPtx(
      {"func.func @k(%p: !llvm.ptr) {\n  %x = llvm.load %p : !llvm.ptr -> f32\n"
       "  %y = math.powf %x, %x : f32\n  llvm.store %y, %p : f32, !llvm.ptr\n  return\n}\n"},
      80);
  ASSERT_FALSE(ptx);
  EXPECT_THAT(ptx.error().message, HasSubstr("pow"));
}

TEST(Ptx, AccumulatorsOfFloats) {
  using kernels::DType;
  ParsedModule any("func.func @f() { return }"); // a context with tbc's ops
  MLIRContext &context = any.context;
  cuda::prepareContext(context);
  std::vector<std::string> texts;
  for (auto [slot, value] : {std::pair(DType::F32, DType::F32),
                             {DType::F32, DType::BF16},
                             {DType::F32, DType::F16},
                             {DType::BF16, DType::BF16}}) {
    auto text = cuda::emitAccumulator(context, "add_" + std::to_string(texts.size()), slot, value);
    ASSERT_TRUE(text);
    texts.push_back(*text);
  }
  EXPECT_THAT(ptxOf(texts, 80), HasSubstr(".entry add_3("));
  EXPECT_FALSE(cuda::emitAccumulator(context, "no", DType::BF16, DType::F32));
  EXPECT_FALSE(cuda::emitAccumulator(context, "no", DType::I64, DType::I64));
}

TEST(Ptx, KernelsNeedNoLibraryAndAssemble) {
  std::vector<OpCase> cases = allCases();
  std::vector<OpCase> more = inBFloat16(cases);
  for (const std::vector<OpCase> &list : {otherCases(), shapeCases(), more})
    cases.insert(cases.end(), list.begin(), list.end());
  std::vector<std::string> texts = textsOf(cases);
  EXPECT_GE(texts.size(), 200u);
  for (int architecture : {80, 90}) {
    std::string ptx = ptxOf(texts, architecture);
    EXPECT_THAT(ptx, HasSubstr(".target sm_" + std::to_string(architecture)));
    EXPECT_THAT(ptx, Not(HasSubstr("__nv_")));
    EXPECT_THAT(ptx, Not(HasSubstr(".extern")));
    assemblePtx(ptx, architecture);
  }
}

} // namespace
