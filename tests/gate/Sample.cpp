//===- Sample.cpp - Runs some blocks of a kernel ---------------------------===//

#include "tests/gate/Sample.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace tbc::gate {

using kernels::DType;

static constexpr uint64_t firstGlobal = 0xc000000000000000, firstBuffer = 0xd000000000000000;

Sampler::Sampler(const std::string &text) {
  module = ptx::load(ptx::parse(text), memory, firstGlobal);
}

namespace {

/// Returns numbers in [0, below) without a pattern common to lanes. Source: Knuth, TAOCP 3, 6.4
/// (multiplicative hashing).
int64_t spread(uint64_t index, int64_t below) {
  constexpr uint64_t factor = 0x9e3779b97f4a7c15;
  constexpr int highBits = 33;
  return int64_t((index * factor) >> highBits) % std::max<int64_t>(below, 1);
}

/// Only the start of a larger tensor is filled. A few blocks read less than that.
int64_t numFilled(const Buffer &buffer) {
  constexpr int64_t most = 1 << 22;
  return std::min(kernels::numElements(buffer.type.shape), most);
}

template <typename T> void fill(const Buffer &buffer, unsigned char *bytes) {
  int64_t below = std::min<int64_t>(buffer.below, std::numeric_limits<T>::max());
  for (int64_t i = 0, count = numFilled(buffer); i < count; ++i) {
    T value = T(buffer.given.empty() ? spread(uint64_t(i), below) : buffer.given[size_t(i)]);
    std::memcpy(bytes + size_t(i) * sizeof value, &value, sizeof value);
  }
}

/// Fills a quarter with ones, like routing weights with two of eight experts.
template <typename T> void fillOnes(const Buffer &buffer, T one, unsigned char *bytes) {
  constexpr int64_t share = 4;
  for (int64_t i = 0, count = numFilled(buffer); i < count; ++i)
    if (spread(uint64_t(i), share) == 0)
      std::memcpy(bytes + size_t(i) * sizeof one, &one, sizeof one);
}

void fill(const Buffer &buffer, unsigned char *bytes) {
  switch (buffer.type.dtype) {
  case DType::I64:
    return fill<int64_t>(buffer, bytes);
  case DType::I32:
    return fill<int32_t>(buffer, bytes);
  case DType::I16:
    return fill<int16_t>(buffer, bytes);
  case DType::I8:
    return fill<int8_t>(buffer, bytes);
  case DType::U8:
    return fill<uint8_t>(buffer, bytes);
  case DType::U16:
    return fill<uint16_t>(buffer, bytes);
  case DType::U32:
    return fill<uint32_t>(buffer, bytes);
  case DType::Bool: // all true: the mask has no effect
    std::memset(bytes, 1, size_t(kernels::numElements(buffer.type.shape)));
    return;
  case DType::F32:
    return fillOnes<float>(buffer, 1, bytes);
  case DType::F64:
    return fillOnes<double>(buffer, 1, bytes);
  case DType::BF16:
    return fillOnes<uint16_t>(buffer, kernels::encodeBF16(1), bytes);
  case DType::F16:
    return fillOnes<uint16_t>(buffer, kernels::encodeF16(1), bytes);
  case DType::F8E4M3:
  case DType::F8E5M2:
    break; // not storable
  }
}

} // namespace

std::vector<Sample> Sampler::samples(const program::CudaKernel &kernel,
                                     const std::vector<Buffer> &buffers,
                                     const SampleOptions &options) {
  ptx::Launch launch;
  launch.checksRaces = false, launch.checksInitialization = false, launch.measures = true;
  uint64_t next = firstBuffer;
  std::vector<uint64_t> begins;
  auto add = [&](uint64_t bytes) {
    constexpr uint64_t alignment = 4096;
    begins.push_back(next);
    unsigned char *content = memory.add(next, size_t(bytes)).bytes.data();
    std::vector<unsigned char> argument(sizeof next);
    std::memcpy(argument.data(), &next, sizeof next);
    launch.arguments.push_back(argument);
    next += (bytes + 2 * alignment) / alignment * alignment;
    return content;
  };
  for (const Buffer &buffer : buffers)
    fill(buffer, add(uint64_t(kernels::numElements(buffer.type.shape)) *
                     uint64_t(kernels::byteWidth(buffer.type.dtype))));
  if (kernel.workspaceBytes > 0)
    add(uint64_t(kernel.workspaceBytes));
  std::vector<Sample> list;
  std::vector<program::CudaLaunch> launches = kernel.launches();
  for (const program::CudaLaunch &one : launches)
    list.push_back(sampleOf(one, launch, &one == &launches.back(), options));
  for (uint64_t begin : begins)
    memory.remove(begin);
  return list;
}

Sample Sampler::sampleOf(const program::CudaLaunch &kernel, ptx::Launch &launch, bool isLast,
                         const SampleOptions &options) {
  launch.blocks.x = uint32_t(kernel.blocks), launch.threads.x = uint32_t(kernel.threads);
  launch.dynamicSharedBytes = uint32_t(kernel.sharedBytes);
  Sample sample;
  sample.blocks = kernel.blocks, sample.threads = kernel.threads;
  auto found = module.module.kernels.find(kernel.symbol);
  if (found != module.module.kernels.end()) {
    sample.localBytes = found->second.localBytes;
    // All addresses in one array (runtime/abi/CudaKernels.h).
    if (found->second.parameters.size() == 1 && launch.arguments.size() > 1) {
      for (size_t i = 1; i < launch.arguments.size(); ++i)
        launch.arguments[0].insert(launch.arguments[0].end(), launch.arguments[i].begin(),
                                   launch.arguments[i].end());
      launch.arguments.resize(1);
    }
  }
  int64_t wanted = std::min<int64_t>(options.numBlocks, kernel.blocks);
  ptx::Executor executor(memory);
  for (int64_t k = 0; k < wanted && !sample.counts.isCut; ++k) {
    launch.firstBlock = uint64_t(k * kernel.blocks / wanted);
    launch.endBlock = launch.firstBlock + 1;
    launch.instructionBudget = options.budget - sample.counts.warpInstructions;
    sample.counts += executor.run(module, kernel.symbol, launch);
    ++sample.executed;
  }
  if (!isLast && !sample.counts.isCut &&
      sample.ofAll(sample.counts.warpInstructions) < double(options.wholeBudget)) {
    launch.firstBlock = 0, launch.endBlock = uint64_t(kernel.blocks);
    launch.instructionBudget = options.budget;
    executor.run(module, kernel.symbol, launch);
  }
  return sample;
}

} // namespace tbc::gate
