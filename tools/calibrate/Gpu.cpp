//===- Gpu.cpp - Measure GPUs ----------------------------------------------===//

#include "tools/calibrate/Gpu.h"

#include "runtime/cuda/Matmuls.h"
#include "runtime/cuda/Streams.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <random>

namespace tbc::calibrate {

using Clock = std::chrono::steady_clock;
using cuda::DeviceAddress;
using kernels::DType;
using program::Stream;

namespace {

/// Measures on one device.
class Gpu {
public:
  Gpu(const cuda::DevicePtr &device, std::shared_ptr<cuda::Streams> streams,
      std::shared_ptr<cuda::Matmuls> products, bool isQuick, comm::Communicator &communicator,
      Measurements &measurements)
      : device(device), streams(std::move(streams)), products(std::move(products)),
        isQuick(isQuick), communicator(communicator), m(measurements) {}

  Status memory();
  Status fillRandomly(DType dtype);
  Status copies();
  Status matmuls();
  Status collectives();

private:
  /// Returns the seconds of one call: the shortest of several rounds, each with `count` calls
  /// enqueued at once; the mean over the ranks.
  Result<double> time(int count, const std::function<Status(const cuda::Stream &)> &enqueue);
  Result<double> timeOfMine(int count, const std::function<Status(const cuda::Stream &)> &enqueue);
  Status addMatmul(std::vector<KernelPoint> &points, int64_t rows, int64_t size, DType dtype);

  cuda::DevicePtr device;
  std::shared_ptr<cuda::Streams> streams;
  std::shared_ptr<cuda::Matmuls> products;
  bool isQuick;
  comm::Communicator &communicator;
  Measurements &m;
  cuda::DeviceMemory arena; // operands of copies and matmuls
};

} // namespace

Result<double> Gpu::timeOfMine(int count,
                               const std::function<Status(const cuda::Stream &)> &enqueue) {
  const cuda::Stream &stream = streams->of(Stream::Compute);
  double best = 1e30;
  const int numRounds = isQuick ? 2 : 5;
  for (int round = 0; round < numRounds; ++round) {
    if (Status status = streams->wait(); !status)
      return status.error();
    auto begin = Clock::now();
    for (int call = 0; call < count; ++call)
      if (Status status = enqueue(stream); !status)
        return status.error();
    if (Status status = streams->wait(); !status)
      return status.error();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best / count;
}

Result<double> Gpu::time(int count, const std::function<Status(const cuda::Stream &)> &enqueue) {
  Result<double> mine = timeOfMine(count, enqueue);
  return mine ? meanOf(communicator, *mine) : mine;
}

Status Gpu::memory() {
  size_t freeBytes = 0, totalBytes = 0;
  if (Status status =
          device->check(device->driver().memGetInfo(&freeBytes, &totalBytes), "its memory");
      !status)
    return status;
  // Includes the memory of the context, NCCL and cuBLASLt, and of other processes.
  m.memoryBytes = double(totalBytes);
  Result<double> taken = meanOf(communicator, double(totalBytes - freeBytes));
  if (!taken)
    return taken.error();
  m.processBytes = *taken;
  const int64_t most = isQuick ? int64_t(1) << 20 : int64_t(3) << 30;
  auto made = cuda::DeviceMemory::allocate(device, std::min<int64_t>(most, int64_t(freeBytes / 2)),
                                           "what calibrate works on");
  if (!made)
    return made.error();
  arena = std::move(*made);
  return fillRandomly(DType::F32);
}

/// Fills the arena with normal numbers of the type. On zeros, matmuls of a GPU at its power limit
/// are faster: an H200 multiplied bf16 matrices of 8192 at 892 TFLOP/s, in place of 790.
Status Gpu::fillRandomly(DType dtype) {
  const int64_t width = kernels::byteWidth(dtype);
  const int64_t period = std::min<int64_t>(arena.bytes() / width, (int64_t(1) << 20) + 64);
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<size_t>(period));
  for (float &number : numbers)
    number = normal(generator);
  std::vector<unsigned char> bytes =
      kernels::Tensor({dtype, {period}}, std::move(numbers)).toBytes();
  if (Status status = streams->upload(arena.address(), bytes.data(), int64_t(bytes.size()));
      !status)
    return status;
  // Doubles what is there, up to the whole.
  for (auto filled = int64_t(bytes.size()); filled < arena.bytes();) {
    int64_t more = std::min(filled, arena.bytes() - filled);
    if (Status status =
            streams->of(Stream::Compute)
                .copyWithin(arena.address() + DeviceAddress(filled), arena.address(), more);
        !status)
      return status;
    filled += more;
  }
  return Status::ok();
}

Status Gpu::copies() {
  Result<double> floor = time(isQuick ? 4 : 1000, [&](const cuda::Stream &stream) {
    return stream.copyWithin(arena.address() + 256, arena.address(), 4);
  });
  if (!floor)
    return floor.error();
  m.kernelFloor = *floor;
  const int64_t largest = arena.bytes() / 2;
  for (int64_t size = 1 << 12; 4 * size <= largest; size *= 4) {
    DeviceAddress to = arena.address() + DeviceAddress(largest / 256 * 256);
    Result<double> seconds = time(isQuick ? 2 : 20, [&](const cuda::Stream &stream) {
      return stream.copyWithin(to, arena.address(), 4 * size);
    });
    if (!seconds)
      return seconds.error();
    m.adds.push_back({"f32", size, double(size), 8 * double(size), *seconds});
  }
  // A copy reads and writes each byte.
  m.bytesPerSecond = m.adds.back().bytes / m.adds.back().seconds;
  std::vector<unsigned char> host(size_t(std::min<int64_t>(largest, int64_t(64) << 20)));
  Result<double> seconds = time(1, [&](const cuda::Stream &) {
    return streams->upload(arena.address(), host.data(), int64_t(host.size()));
  });
  if (!seconds)
    return seconds.error();
  m.hostBytesPerSecond = double(host.size()) / *seconds;
  return Status::ok();
}

/// Times a matmul [rows, size] x [size, size].
Status Gpu::addMatmul(std::vector<KernelPoint> &points, int64_t rows, int64_t size, DType dtype) {
  cuda::MatmulShape shape;
  shape.m = rows, shape.n = shape.k = size;
  shape.strideA = shape.strideB = shape.strideC = size;
  shape.input = shape.result = dtype;
  auto product = products->find(shape);
  if (!product)
    return product.error();
  if (!*product)
    return Error{ErrorCode::Other, device->name() + ": cuBLASLt has no way to multiply " +
                                       std::string(name(dtype)) + " matrices of " +
                                       std::to_string(size)};
  int64_t width = kernels::byteWidth(dtype);
  auto roundedUp = [](int64_t bytes) { return DeviceAddress((bytes + 255) / 256 * 256); };
  DeviceAddress a = arena.address(), b = a + roundedUp(rows * size * width);
  DeviceAddress c = b + roundedUp(size * size * width);
  Result<double> seconds = time(isQuick ? 2 : 10, [&](const cuda::Stream &stream) {
    return (*product)->enqueue(stream, a, b, c);
  });
  if (!seconds)
    return seconds.error();
  double flops = 2 * double(rows) * double(size) * double(size);
  double bytes = double(width) * double(size) * (2 * double(rows) + double(size));
  points.push_back({std::string(name(dtype)), size, flops, bytes, *seconds});
  return Status::ok();
}

Status Gpu::matmuls() {
  const int64_t largest = isQuick ? 64 : 8192;
  for (DType dtype : {DType::F32, DType::BF16}) {
    if (Status status = fillRandomly(dtype); !status)
      return status;
    for (int64_t size = isQuick ? 16 : 128; size <= largest; size *= 2)
      if (Status status = addMatmul(m.matmuls, size, size, dtype); !status)
        return status;
  }
  if (Status status = fillRandomly(DType::F32); !status) // results were written there
    return status;
  for (int64_t size = isQuick ? 16 : 1024; size <= largest; size *= 2)
    if (Status status = addMatmul(m.rows, 1, size, DType::F32); !status)
      return status;
  return Status::ok();
}

Status Gpu::collectives() {
  auto *calls = dynamic_cast<cuda::DeviceCommunicator *>(&communicator);
  const int64_t largest = isQuick ? 1 << 10 : 1 << 26;
  for (int64_t count = 2; calls && count <= communicator.numRanks(); count *= 2) {
    comm::Group group(static_cast<size_t>(count));
    std::iota(group.begin(), group.end(), int64_t(0));
    for (bool isReduce : {true, false})
      for (int64_t elements = 64; elements <= largest && 8 * elements <= arena.bytes();
           elements *= 8) {
        DeviceAddress from = arena.address();
        DeviceAddress own = from + DeviceAddress(communicator.rank() * (elements / count) * 4);
        auto call = [&](const cuda::Stream &stream) {
          return isReduce
                     ? calls->enqueueAllReduce(group, comm::ReduceKind::Sum,
                                               {{from, from, elements, DType::F32}}, stream,
                                               "calibrate")
                     : calls->enqueueAllGather(group, {{own, from, elements / count, DType::F32}},
                                               stream, "calibrate");
        };
        Result<double> mine =
            communicator.rank() < count ? timeOfMine(isQuick ? 2 : 20, call) : Result<double>(0.0);
        if (!mine)
          return mine.error();
        Result<double> mean = meanOf(communicator, *mine);
        if (!mean)
          return mean.error();
        m.collectives.push_back({isReduce ? "all_reduce" : "all_gather", count,
                                 4 * double(elements),
                                 *mean * double(communicator.numRanks()) / double(count)});
      }
  }
  return Status::ok();
}

Status measureGpu(const cuda::DevicePtr &device, const cuda::CublasLt &cublas, bool isQuick,
                  comm::Communicator &communicator, Measurements &measurements) {
  if (Status status = device->makeCurrent(); !status)
    return status;
  auto streams = cuda::Streams::create(device, std::chrono::minutes(1));
  if (!streams)
    return streams.error();
  auto products = cuda::Matmuls::create(device, cublas);
  if (!products)
    return products.error();
  if (auto *calls = dynamic_cast<cuda::DeviceCommunicator *>(&communicator))
    (*streams)->watch(*calls);
  measurements.device = device->model();
  Gpu gpu(device, *streams, *products, isQuick, communicator, measurements);
  for (auto part : {&Gpu::memory, &Gpu::copies, &Gpu::matmuls, &Gpu::collectives})
    if (Status status = (gpu.*part)(); !status)
      return status;
  return Status::ok();
}

} // namespace tbc::calibrate
