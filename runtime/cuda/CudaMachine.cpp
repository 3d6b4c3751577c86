//===- CudaMachine.cpp - The backend of a rank on a GPU --------------------===//

#include "runtime/cuda/CudaMachine.h"
#include "runtime/cuda/NcclCommunicator.h"
#include "runtime/cuda/RankOnDevice.h"

#include <algorithm>

namespace tbc::cuda {

using runtime::MachineSetting;

/// Returns the options without any computation on the device.
static CudaOptions onHost(CudaOptions options) {
  options.kernels = nullptr;
  options.allowHost = true;
  options.cublas.reset();
  options.cudnn.reset();
  options.multipliesInFp8 = false;
  return options;
}

runtime::MachineMaker cudaMachine(const CudaOptions &options) {
  return [given =
              options](const MachineSetting &setting) -> Result<std::unique_ptr<runtime::Machine>> {
    const kernels::Arith arith = setting.context.arith;
    const CudaOptions options = arith == kernels::Arith::Residue251 ? onHost(given) : given;
    const program::Stage &code = setting.program.stages[setting.stage];
    if (!setting.memory.hasArena())
      return Error{ErrorCode::Usage,
                   "the Program has no memory plan, which GPUs need; compile it again"};
    if (arith != kernels::Arith::Native && arith != kernels::Arith::Residue251)
      return Error{ErrorCode::Usage,
                   "GPUs hold numbers in the precision of their types, or modulo 251"};
    if (options.multipliesInFp8 && !options.cublas)
      return Error{ErrorCode::Usage, "cuBLASLt multiplies in fp8, and it is not there"};
    if (options.isBenchmark && options.isDeterministic)
      return Error{ErrorCode::Usage, "--benchmark picks kernels by measured time, which is not "
                                     "reproducible: it cannot be combined with --deterministic"};
    if (Status status = options.device->makeCurrent(); !status)
      return status.error();
    auto streams = Streams::create(options.device, options.timeout, options.watch);
    if (!streams)
      return streams.error();
    std::string what = "the memory plan of stage " + std::to_string(setting.stage);
    int64_t bytes = code.memory.arenaBytes;
    auto memory = options.registrar && options.registrar->memAlloc
                      ? allocateRegistrable(*options.registrar, options.device, bytes, what)
                      : DeviceMemory::allocate(options.device, bytes, what);
    if (!memory)
      return memory.error();
    auto arena = DeviceArena::create(std::move(*memory), *streams, arith);
    std::shared_ptr<Matmuls> matmuls;
    if (options.cublas) {
      auto made = Matmuls::create(options.device, *options.cublas, options.isDeterministic,
                                  options.isBenchmark ? *streams : nullptr);
      if (!made)
        return made.error();
      matmuls = std::move(*made);
    }
    std::shared_ptr<Fp8Matmuls> fp8;
    if (options.multipliesInFp8) {
      auto made = Fp8Matmuls::create(options.device, options.kernels, matmuls, *streams);
      if (!made)
        return made.error();
      fp8 = std::move(*made);
    }
    std::shared_ptr<CudnnPlans> plans;
    if (options.cudnn && !options.isDeterministic) {
      auto made = CudnnPlans::create(options.device, *options.cudnn);
      if (!made)
        return made.error();
      plans = std::move(*made);
    }
    auto isHostKernel = [&](const program::Block &block, int instruction) {
      return !options.kernels ||
             std::none_of(block.regions.begin(), block.regions.end(), [&](const auto &region) {
               return region.first <= instruction && instruction < region.first + region.count;
             });
    };
    std::string refusal = options.waitForEach ? "the run waits for each kernel"
                                              : whyNotRecorded(setting.program, isHostKernel);
    if (options.graphs == GraphUse::On && !refusal.empty())
      return Error{ErrorCode::Usage, "--cuda-graphs on: a step cannot be one: " + refusal};
    StepGraphs graphs(options.graphs, *streams, refusal,
                      stepInputBytes(setting.program, setting.stage), options.say);
    auto hostArena =
        PinnedArena::create(options.device, *streams, code.memory.hostArenaBytes, arith);
    if (!hostArena)
      return hostArena.error();
    const DeviceArena &place = *arena;
    const PinnedArena &hostPlace = **hostArena;
    setting.memory.useArena(std::move(arena));
    setting.memory.useHostArena(std::move(*hostArena));
    auto reference = runtime::makeReferenceMachine(setting);
    if (!reference)
      return reference.error();
    return std::unique_ptr<runtime::Machine>(std::make_unique<CudaMachine>(
        setting, options, *streams, place, std::move(*reference), std::move(matmuls),
        std::move(plans), std::move(fp8), std::move(graphs), hostPlace));
  };
}

} // namespace tbc::cuda
