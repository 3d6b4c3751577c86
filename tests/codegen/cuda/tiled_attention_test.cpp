//===- tiled_attention_test.cpp - What is priced of tiled attention is emitted ===//
//
// Device tests and op_kernels_test.cpp compare its numbers with the reference.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/LowerPtx.h"
#include "runtime/cuda/CudnnOps.h"
#include "tests/codegen/cuda/OpKernelCheck.h"
#include "tests/gate/Sample.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace tbc;

namespace {

/// Returns the FLOPs of `mma` that a kernel executes in all its launches, counted by the executor
/// of PTX.
double matrixFlops(OpKernelCase &one) {
  auto source = one.source(cuda::Form::Device, 0);
  EXPECT_TRUE(source) << testing::PrintToString(one.opCase);
  auto ptx = cuda::lowerToPtx({source->text}, 80);
  EXPECT_TRUE(ptx) << ptx.error().message;
  auto threadsOf = [](int threads) { return threads > 0 ? threads : cuda::threadsPerBlock; };
  program::CudaKernel kernel{source->symbol, one.kernel.extent, threadsOf(one.kernel.threads)};
  kernel.workspaceBytes = one.kernel.workspaceBytes;
  for (const region::LaterLaunch &launch : one.kernel.then)
    kernel.then.push_back({region::symbolOfLaunch(source->symbol, kernel.then.size() + 1),
                           launch.extent, threadsOf(launch.threads)});
  std::vector<gate::Buffer> buffers;
  for (const auto *types : {&one.call.operands, &one.call.results})
    for (const kernels::TensorType &type : *types)
      buffers.push_back({type});
  double flops = 0;
  for (const gate::Sample &launch : gate::Sampler(*ptx).samples(kernel, buffers))
    flops += launch.ofAll(launch.counts.matrixFlops);
  return flops;
}

/// At widths and lengths of whole tiles.
TEST(TiledAttention, ExecutesTheFlopsThatArePriced) {
  for (auto [width, valueWidth] :
       {std::pair(64, 64), {128, 128}, {32, 64}, {192, 128}, {256, 256}}) {
    auto tensor = [](int tokens, int columns) {
      return "1x2x" + std::to_string(tokens) + "x" + std::to_string(columns) + "xbf16";
    };
    constexpr int queries = 128, keys = 256;
    std::string q = tensor(queries, width), k = tensor(keys, width), v = tensor(keys, valueWidth),
                o = tensor(queries, valueWidth), rows = "1x2x128xf32",
                attributes = "scale = 0.1 : f64, causal = false, soft_cap = 5.0 : f64";
    const std::string comma = ", ";
    std::string inputs = q + comma + k + comma + v;
    for (const OpCase &opCase :
         {OpCase{"attention", inputs, o + comma + rows + comma + rows, attributes},
          OpCase{"attention_grad", o + comma + inputs + comma + o + comma + rows + comma + rows,
                 inputs, attributes}}) {
      OpKernelCase one(opCase);
      auto cost = cast<CostOpInterface>(theOp(*one.module));
      EXPECT_TRUE(reshard::isOwnClass(cost.getKernelClass()));
      EXPECT_NEAR(matrixFlops(one), cost.getFlops() * cost.getOwnKernel().work,
                  1e-9 * cost.getFlops())
          << testing::PrintToString(opCase);
    }
  }
}

/// The planner prices cuDNN's kernels where cuDNN is asked, and tbc's elsewhere.
TEST(TiledAttention, IsAClassOfItsOwnWhereCudnnIsNotAsked) {
  int numOwn = 0, numCudnn = 0;
  for (const OpCase &opCase : tiledAttentionCases()) {
    if (opCase.mnemonic != "attention")
      continue;
    OpKernelCase one(opCase);
    cuda::CudnnRequest request{
        one.call.op, one.call.attrs, one.call.operands, one.call.results, {true, true, true}};
    request.version = 91600, request.capability = 90;
    bool isOwn = reshard::isOwnClass(cast<CostOpInterface>(theOp(*one.module)).getKernelClass());
    Result<cuda::CudnnWork> work = cuda::cudnnWorkOf(request);
    EXPECT_EQ(isOwn, !work) << testing::PrintToString(opCase)
                            << (work ? "" : ": " + work.error().message);
    ++(isOwn ? numOwn : numCudnn);
  }
  EXPECT_GE(numOwn, 10);
  EXPECT_GE(numCudnn, 5);
}

} // namespace
