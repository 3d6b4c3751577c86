//===- OptionKernels.cpp - Kernels for options of a run -----------------------===//

#include "tests/runtime/cuda/OptionKernels.h"

#include "runtime/abi/Fp8Kernels.h"
#include "runtime/abi/SparseKernels.h"

#include <algorithm>

namespace tbc::test {

namespace sparse = program::sparse;
using program::CompiledKernel;

namespace {

/// A launch whose arguments are device addresses. The kernel gets the host memory behind them.
struct Call {
  FakeLaunch &launch;
  std::vector<void *> buffers = {};

  const void *read(int64_t bytes) {
    const char *data = launch.memory.read<char>(next(), size_t(bytes));
    buffers.push_back(const_cast<char *>(data));
    return data;
  }
  void write(int64_t bytes) { buffers.push_back(launch.memory.write<char>(next(), size_t(bytes))); }
  /// Reads element `number` of an argument that is not added yet.
  int64_t peek(size_t argument, size_t number) {
    auto address = launch.argument<cuda::DeviceAddress>(argument);
    return launch.memory.read<int64_t>(address, number + 1)[number];
  }
  void run(CompiledKernel kernel) { kernel(buffers.data(), 0, int64_t(launch.gridX)); }

private:
  cuda::DeviceAddress next() { return launch.argument<cuda::DeviceAddress>(buffers.size()); }
};

/// Returns one more than the largest index in the slice's entries. Example: indices 0, 7, 3 give 8.
int64_t lengthOf(const int32_t *words, int64_t numRanks, int64_t numEntries, int64_t stride,
                 int64_t first) {
  int64_t length = 0;
  for (int64_t rank = 0; rank < numRanks; ++rank)
    for (int64_t e = 0; e < numEntries; ++e)
      length = std::max(length, int64_t(words[rank * stride + first + e]) + 1);
  return length;
}

/// Adds the kernel of this symbol, if it was compiled. `touch` declares its reads and writes.
void add(FakeDriver &driver, const std::string &symbol, CompiledKernel compiled,
         size_t numArguments, std::function<void(Call &)> touch) {
  if (!compiled)
    return;
  FakeKernel kernel;
  kernel.argumentBytes.assign(numArguments, sizeof(cuda::DeviceAddress));
  kernel.run = [touch, compiled](FakeLaunch &launch) {
    Call call{launch};
    touch(call);
    call.run(compiled);
  };
  driver.addKernel(symbol, kernel);
}

} // namespace

void addSparseKernels(FakeDriver &driver,
                      const std::function<CompiledKernel(const std::string &)> &find,
                      int64_t numThreads) {
  auto add = [&](const char *symbol, size_t numArguments, std::function<void(Call &)> touch) {
    test::add(driver, symbol, find(symbol), numArguments, std::move(touch));
  };
  constexpr int64_t sizesBytes = 2 * 8, stateBytes = 3 * 8, sumBytes = 5 * 8;
  int64_t countBytes = numThreads * sparse::numDigits * 4, tallyBytes = numThreads * 2 * 4;
  add(sparse::add, 3, [=](Call &call) {
    int64_t count = call.peek(1, 0);
    call.read(count * 4);
    call.read(sizesBytes);
    call.write(count * 4);
  });
  add(sparse::count, 4, [=](Call &call) {
    call.read(call.peek(2, 0) * 4);
    call.read(stateBytes);
    call.read(sizesBytes);
    call.write(countBytes);
  });
  add(sparse::choose, 2, [=](Call &call) {
    call.read(countBytes);
    call.write(stateBytes);
  });
  add(sparse::tally, 5, [=](Call &call) {
    call.read(call.peek(2, 0) * 4);
    call.read(stateBytes);
    call.read(sizesBytes);
    call.write(tallyBytes);
    call.write(tallyBytes);
  });
  add(sparse::take, 7, [=](Call &call) {
    int64_t count = call.peek(3, 0), numTaken = std::min(count, call.peek(3, 1));
    call.read(tallyBytes);
    call.read(tallyBytes);
    call.read(stateBytes);
    call.read(sizesBytes);
    call.write(count * 4);
    call.write(numTaken * 4);
    call.write(numTaken * 4);
  });
  add(sparse::sum, 4, [=](Call &call) {
    int64_t numRanks = call.peek(2, 0), numEntries = call.peek(2, 1);
    int64_t stride = call.peek(2, 2), first = call.peek(2, 3);
    auto *words = static_cast<const int32_t *>(call.read(numRanks * stride * 4));
    call.read(numRanks * stride * 4);
    call.read(sumBytes);
    call.write(lengthOf(words, numRanks, numEntries, stride, first) * 4);
  });
}

void addFp8Kernels(FakeDriver &driver,
                   const std::function<CompiledKernel(const std::string &)> &find,
                   int64_t numThreads) {
  namespace fp8 = program::fp8;
  using kernels::DType;
  constexpr int64_t sizesBytes = fp8::numSizes * 8, scalesBytes = 2 * 4;
  for (DType type : {DType::F32, DType::BF16, DType::F16}) {
    int64_t width = kernels::byteWidth(type);
    std::string amax = fp8::amaxSymbol(type);
    add(driver, amax, find(amax), 3, [=](Call &call) {
      call.read(call.peek(1, 0) * width);
      call.read(sizesBytes);
      call.write(numThreads * 4);
    });
    for (fp8::Format format : fp8::formats) {
      std::string quantise = fp8::quantiseSymbol(format, type);
      add(driver, quantise, find(quantise), 4, [=](Call &call) {
        int64_t bytes = call.peek(1, 1) * call.peek(1, 2) * call.peek(1, 3);
        call.read(call.peek(1, 0) * width);
        call.read(sizesBytes);
        call.read(scalesBytes);
        call.write(bytes);
      });
    }
  }
  for (fp8::Format format : fp8::formats) {
    std::string scale = fp8::scaleSymbol(format);
    add(driver, scale, find(scale), 2, [=](Call &call) {
      call.read(numThreads * 4);
      call.write(scalesBytes);
    });
  }
}

} // namespace tbc::test
