//===- DeviceArena.cpp - The memory plan of a rank on its GPU --------------===//

#include "runtime/cuda/DeviceArena.h"

#include <algorithm>
#include <cstring>

namespace tbc::cuda {

// Large enough for a link's full speed, small enough that packing the next piece overlaps.
static constexpr int64_t stageBytes = int64_t(4) << 20;
static constexpr int numStages = 3;

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

/// Sets `to` to what `result` holds.
template <typename T> static Status take(Result<T> result, T &to) {
  if (!result)
    return result.error();
  to = std::move(*result);
  return Status::ok();
}

Result<std::shared_ptr<Streams>> Streams::create(const DevicePtr &device) {
  auto streams = std::make_shared<Streams>();
  streams->device = device;
  streams->stages.resize(numStages);
  Status status;
  for (Stage &stage : streams->stages) {
    if (status = take(PinnedMemory::allocate(device, stageBytes), stage.memory); !status)
      return status.error();
    if (status = take(Event::create(device), stage.done); !status)
      return status.error();
  }
  if (status = take(Event::create(device), streams->computed); !status)
    return status.error();
  if (status = take(Event::create(device), streams->copied); !status)
    return status.error();
  if (status = take(Stream::create(device, "compute"), streams->computeStream); !status)
    return status.error();
  if (status = take(Stream::create(device, "copy"), streams->copyStream); !status)
    return status.error();
  return streams;
}

Status Streams::order(const Stream &before, const Event &event, const Stream &after) const {
  if (Status status = before.record(event); !status)
    return status;
  return after.waitFor(event);
}

/// The next piece of pinned memory, when nothing uses it any longer.
Result<Streams::Stage *> Streams::nextStage() {
  Stage &stage = stages[numStaged++ % stages.size()];
  if (Status status = stage.done.wait(); !status)
    return status.error();
  return &stage;
}

/// A failure of what was launched shows when somebody waits: says which it may be.
Status Streams::explain(const Status &status) const {
  if (status || numUnderWay == 0)
    return status;
  return Error{status.error().code,
               status.error().message + "; " +
                   (numUnderWay == 1 ? "launched since the last wait: " + *oldest
                                     : "one of the " + std::to_string(numUnderWay) +
                                           " kernels launched since the last wait, from " +
                                           *oldest + " to " + *newest)};
}

void Streams::note(const std::string &what) {
  oldest = numUnderWay++ == 0 ? &what : oldest;
  newest = &what;
}

Status Streams::wait() {
  Status status = device->makeCurrent();
  if (status)
    status = explain(computeStream.synchronize());
  numUnderWay = status ? 0 : numUnderWay;
  return status;
}

Status Streams::upload(DeviceAddress to, const unsigned char *from, int64_t bytes) {
  if (Status status = device->makeCurrent(); !status)
    return status;
  return explain(uploadPieces(to, from, bytes));
}

Status Streams::download(unsigned char *to, DeviceAddress from, int64_t bytes) {
  if (Status status = device->makeCurrent(); !status)
    return status;
  Status status = explain(downloadPieces(to, from, bytes));
  numUnderWay = status ? 0 : numUnderWay;
  return status;
}

Status Streams::uploadPieces(DeviceAddress to, const unsigned char *from, int64_t bytes) {
  if (Status status = order(computeStream, computed, copyStream); !status)
    return status;
  for (int64_t done = 0; done < bytes; done += stageBytes) {
    int64_t count = std::min(stageBytes, bytes - done);
    Result<Stage *> stage = nextStage();
    if (!stage)
      return stage.error();
    std::memcpy((*stage)->memory.data(), from + done, size_t(count));
    Status status =
        copyStream.copyToDevice(to + DeviceAddress(done), (*stage)->memory.data(), count);
    if (status)
      status = copyStream.record((*stage)->done);
    if (!status)
      return status;
  }
  return order(copyStream, copied, computeStream);
}

Status Streams::downloadPieces(unsigned char *to, DeviceAddress from, int64_t bytes) {
  if (Status status = order(computeStream, computed, copyStream); !status)
    return status;
  struct Piece {
    Stage *stage;
    int64_t begin, count;
  };
  std::vector<Piece> pieces; // under way, the oldest first
  auto finish = [&]() -> Status {
    Piece piece = pieces.front();
    pieces.erase(pieces.begin());
    if (Status status = piece.stage->done.wait(); !status)
      return status;
    std::memcpy(to + piece.begin, piece.stage->memory.data(), size_t(piece.count));
    return Status::ok();
  };
  for (int64_t done = 0; done < bytes; done += stageBytes) {
    if (pieces.size() == stages.size())
      if (Status status = finish(); !status)
        return status;
    Piece piece = {nullptr, done, std::min(stageBytes, bytes - done)};
    Result<Stage *> stage = nextStage();
    if (!stage)
      return stage.error();
    piece.stage = *stage;
    Status status =
        copyStream.copyToHost(piece.stage->memory.data(), from + DeviceAddress(done), piece.count);
    if (status)
      status = copyStream.record(piece.stage->done);
    if (!status)
      return status;
    pieces.push_back(piece);
  }
  while (!pieces.empty())
    if (Status status = finish(); !status)
      return status;
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// DeviceArena
//===----------------------------------------------------------------------===//

static void require(const Status &status) {
  if (!status)
    throw kernels::KernelError(status.error().message);
}

Result<std::unique_ptr<DeviceArena>> DeviceArena::create(const DevicePtr &device,
                                                         std::shared_ptr<Streams> streams,
                                                         int64_t bytes, const std::string &what) {
  Result<DeviceMemory> memory = DeviceMemory::allocate(device, bytes, what);
  if (!memory)
    return memory.error();
  return std::unique_ptr<DeviceArena>(new DeviceArena(std::move(*memory), std::move(streams)));
}

void DeviceArena::store(int64_t offset, const kernels::Tensor &tensor) {
  std::vector<unsigned char> bytes = tensor.toBytes();
  require(streams->upload(at(offset), bytes.data(), int64_t(bytes.size())));
}

kernels::Tensor DeviceArena::load(int64_t offset, const kernels::TensorType &type) const {
  std::vector<unsigned char> bytes(size_t(program::sizeBytes(type)));
  require(streams->download(bytes.data(), at(offset), int64_t(bytes.size())));
  return kernels::Tensor::fromBytes(type, kernels::Arith::Native, bytes.data());
}

} // namespace tbc::cuda
