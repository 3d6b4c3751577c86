//===- tiled_attention_test.cpp - What is priced of tiled attention is emitted ===//
//
// Device tests and op_kernels_test.cpp compare its numbers with the reference.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/FormCudaKernels.h"
#include "codegen/cuda/LowerPtx.h"
#include "runtime/cuda/CudnnOps.h"
#include "tests/codegen/cuda/OpKernelCheck.h"
#include "tests/gate/Sample.h"

#include <gtest/gtest.h>

#include <tuple>

using namespace mlir;
using namespace tbc;

namespace {

/// Returns the FLOPs of `mma` that a kernel executes in all its launches, counted by the executor
/// of PTX. `types`: of its operands and results.
double matrixFlops(const region::KernelSource &source, const program::CudaKernel &kernel,
                   const std::vector<kernels::TensorType> &types) {
  auto ptx = cuda::lowerToPtx({source.text}, 80);
  EXPECT_TRUE(ptx) << ptx.error().message;
  std::vector<gate::Buffer> buffers;
  for (const kernels::TensorType &type : types)
    buffers.push_back({type});
  double flops = 0;
  for (const gate::Sample &launch : gate::Sampler(*ptx).samples(kernel, buffers))
    flops += launch.ofAll(launch.counts.matrixFlops);
  return flops;
}

double matrixFlops(OpKernelCase &one) {
  auto source = one.source(cuda::Form::Device, 0);
  EXPECT_TRUE(source) << testing::PrintToString(one.opCase);
  auto threadsOf = [](int threads) { return threads > 0 ? threads : cuda::threadsPerBlock; };
  program::CudaKernel kernel{source->symbol, one.kernel.extent, threadsOf(one.kernel.threads)};
  kernel.workspaceBytes = one.kernel.workspaceBytes;
  for (const region::LaterLaunch &launch : one.kernel.then)
    kernel.then.push_back({region::symbolOfLaunch(source->symbol, kernel.then.size() + 1),
                           launch.extent, threadsOf(launch.threads)});
  std::vector<kernels::TensorType> types = one.call.operands;
  types.insert(types.end(), one.call.results.begin(), one.call.results.end());
  return matrixFlops(*source, kernel, types);
}

/// Returns the FLOPs of `mma` of a Program with an attention, or its gradient, whose position ids
/// are an iota.
double matrixFlopsInProgram(OpKernelCase &one) {
  program::Program program;
  program::Stage &stage = program.stages.emplace_back();
  program::Block &block = stage.chunks[0].forward;
  auto add = [&](const kernels::TensorType &type) {
    stage.values.push_back(type);
    return program::ValueId(stage.values.size() - 1);
  };
  program::Instruction iota, attention;
  iota.op = "iota", iota.attrs.set("dim", int64_t(0));
  iota.results = {add(one.call.operands.back())};
  attention.op = one.call.op, attention.attrs = one.call.attrs;
  for (size_t i = 0; i + 2 < one.call.operands.size(); ++i)
    attention.operands.push_back(add(one.call.operands[i]));
  attention.operands.insert(attention.operands.end(), 2, iota.results[0]);
  for (const kernels::TensorType &type : one.call.results) {
    attention.results.push_back(add(type));
    stage.slots.push_back({"r", program::Role::Residual, -1, type});
    block.results.push_back({attention.results.back(), int(stage.slots.size()) - 1});
  }
  block.instructions = {iota, attention};
  EmittedOps origins(1);
  for (program::BlockId id : stage.blocks())
    origins[0][id].resize(stage.block(id).instructions.size());
  cuda::CudaTarget target{{80}};
  target.allowsHostOps = true; // the iota has no IR
  auto sources = cuda::formCudaKernels(program, origins, one.module->context, target);
  EXPECT_TRUE(sources) << sources.error().message;
  std::vector<kernels::TensorType> types(one.call.operands.begin(), one.call.operands.end() - 1);
  types.insert(types.end(), one.call.results.begin(), one.call.results.end());
  const std::string &symbol = block.regions.back().symbol; // of the attention
  auto isOfIt = [&](const auto &one) { return one.symbol == symbol; };
  return matrixFlops(*llvm::find_if(sources->sources, isOfIt),
                     *llvm::find_if(sources->list.kernels, isOfIt), types);
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

/// Position ids that are indices hide no tile from the kernel. A window of 128 of 512 keys reads
/// the keys of 3 of 8 tiles for most blocks of queries.
TEST(TiledAttention, SkipsTheTilesThatAWindowHidesInAProgram) {
  const std::string q = "1x1x512x32xbf16", rows = "1x1x512xf32", comma = ", ",
                    inputs = q + comma + q + comma + q, places = ", 512xi64, 512xi64",
                    results = q + comma + rows + comma + rows,
                    given = q + comma + inputs + comma + q + comma + rows + comma + rows,
                    window = "scale = 0.1 : f64, causal = true, left = 127 : i64";
  for (auto [mnemonic, operands, made] :
       {std::tuple("attention", inputs, results), {"attention_grad", given, inputs}}) {
    OpKernelCase placed({mnemonic, operands + places, made, window + ", placed = true"});
    OpKernelCase plain({mnemonic, operands, made, window});
    ASSERT_TRUE(placed.isRead && plain.isRead) << placed.module->messages;
    double executed = matrixFlopsInProgram(placed), all = matrixFlops(placed);
    EXPECT_EQ(executed, matrixFlops(plain)) << mnemonic;
    EXPECT_LT(executed, 0.6 * all) << mnemonic;
    auto cost = cast<CostOpInterface>(theOp(*placed.module));
    EXPECT_GE(executed, cost.getFlops() * cost.getOwnKernel().work) << mnemonic;
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
