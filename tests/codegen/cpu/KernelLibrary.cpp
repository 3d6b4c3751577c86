//===- KernelLibrary.cpp - Compiles kernels and runs them on tensors --------===//

#include "tests/codegen/cpu/KernelLibrary.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <set>
#include <unistd.h>

namespace tbc {

KernelLibrary::KernelLibrary(const std::vector<region::KernelSource> &sources,
                             const cpu::CpuTarget &target) {
  char name[] = "/tmp/tbc-kernels-XXXXXX";
  int file = mkstemp(name);
  if (file >= 0)
    close(file);
  path = name;
  auto status = cpu::compileKernels(sources, target, programHash, path);
  if (!status) {
    ADD_FAILURE() << status.error().message;
    return;
  }
  handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
}

KernelLibrary::~KernelLibrary() {
  if (handle)
    dlclose(handle);
  unlink(path.c_str());
}

program::CompiledKernel KernelLibrary::find(const std::string &symbol) const {
  return reinterpret_cast<program::CompiledKernel>(dlsym(handle, symbol.c_str()));
}

LoadedKernel KernelLibrary::find(const std::string &symbol, const region::Kernel &kernel) const {
  LoadedKernel loaded;
  loaded.first = find(symbol);
  for (size_t i = 0; i < kernel.then.size(); ++i)
    loaded.then.emplace_back(find(region::symbolOfLaunch(symbol, i + 1)), kernel.then[i].extent);
  loaded.workspaceBytes = kernel.workspaceBytes;
  return loaded;
}

std::string KernelLibrary::text(const char *symbol) const {
  const void *address = dlsym(handle, symbol);
  return address ? static_cast<const char *>(address) : "";
}

namespace {

/// A buffer with guards on both sides.
class Buffer {
public:
  explicit Buffer(const std::vector<unsigned char> &bytes) : size(bytes.size()) {
    size_t rounded = (size + 2 * guard + guard - 1) / guard * guard;
    memory.reset(static_cast<unsigned char *>(std::aligned_alloc(guard, rounded)));
    std::memset(memory.get(), pattern, rounded);
    std::memcpy(data(), bytes.data(), size);
    before = bytes;
  }

  unsigned char *data() const { return memory.get() + guard; }
  bool isGuarded() const {
    for (size_t i = 0; i < guard; ++i)
      if (memory.get()[i] != pattern || data()[size + i] != pattern)
        return false;
    return true;
  }
  bool isUnchanged() const { return std::memcmp(data(), before.data(), size) == 0; }

private:
  static constexpr size_t guard = 64;
  static constexpr unsigned char pattern = 0xa5;

  struct Free {
    void operator()(unsigned char *bytes) const { std::free(bytes); }
  };
  size_t size;
  std::unique_ptr<unsigned char, Free> memory;
  std::vector<unsigned char> before;
};

} // namespace

std::vector<kernels::Tensor> runKernel(const LoadedKernel &kernel, const KernelRun &run,
                                       const std::vector<kernels::Tensor> &operands,
                                       const std::vector<kernels::TensorType> &results) {
  std::vector<Buffer> buffers;
  for (const kernels::Tensor &operand : operands)
    buffers.emplace_back(operand.toBytes());
  for (const kernels::TensorType &type : results)
    buffers.emplace_back(std::vector<unsigned char>(
        size_t(kernels::numElements(type.shape) * kernels::byteWidth(type.dtype)), 0xff));
  if (kernel.workspaceBytes > 0)
    buffers.emplace_back(std::vector<unsigned char>(size_t(kernel.workspaceBytes), 0xff));
  std::vector<void *> pointers;
  for (const Buffer &buffer : buffers)
    pointers.push_back(buffer.data());
  std::set<int> overwritten; // operands
  for (auto [result, operand] : run.inPlace) {
    pointers[operands.size() + size_t(result)] = pointers[size_t(operand)];
    overwritten.insert(operand);
  }

  auto launch = [&](program::CompiledKernel function, int64_t extent) {
    int64_t pieces = (extent + run.step - 1) / run.step;
    for (int64_t i = 0; i < pieces; ++i) {
      int64_t piece = run.backwards ? pieces - 1 - i : i;
      function(pointers.data(), piece * run.step, std::min(extent, (piece + 1) * run.step));
    }
  };
  launch(kernel.first, run.extent);
  for (auto [function, extent] : kernel.then)
    launch(function, extent);

  std::vector<kernels::Tensor> made;
  for (size_t r = 0; r < results.size(); ++r)
    made.push_back(kernels::Tensor::fromBytes(results[r], kernels::Arith::Native,
                                              pointers[operands.size() + r]));
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_TRUE(buffers[i].isGuarded()) << "buffer " << i << " was written beyond its ends";
    if (i < operands.size() && overwritten.count(int(i)) == 0)
      EXPECT_TRUE(buffers[i].isUnchanged()) << "operand " << i << " was written";
  }
  return made;
}

double ErrorBound::of(kernels::DType type) const {
  double ulp = type == kernels::DType::BF16  ? 0x1p-7
               : type == kernels::DType::F16 ? 0x1p-10
                                             : 0x1p-23;
  return 4 * referenceError + ulp * magnitude + 4 * steps * 0x1p-24 * stepMagnitude;
}

double largestDifference(const kernels::Tensor &a, const kernels::Tensor &b) {
  std::vector<double> x = a.toDoubles(), y = b.toDoubles();
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    bool same = x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]));
    double difference = std::abs(x[i] - y[i]);
    if (!same)
      largest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                       : std::max(largest, difference);
  }
  return largest;
}

double largestMagnitude(const kernels::Tensor &a) {
  double largest = 0;
  for (double value : a.toDoubles())
    if (std::isfinite(value))
      largest = std::max(largest, std::abs(value));
  return largest;
}

} // namespace tbc
