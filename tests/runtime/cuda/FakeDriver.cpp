//===- FakeDriver.cpp - A fake CUDA driver in this process -----------------===//

#include "tests/runtime/cuda/FakeCalls.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace tbc::test {

using cuda::DriverCode;

namespace {
/// The only instance.
FakeDriver *theDriver = nullptr;

/// Thrown when an operation accesses bytes outside of its memory.
struct OutsideOfMemory {};
} // namespace

/// The device whose context is current in this thread.
thread_local int currentDevice = -1;

//===----------------------------------------------------------------------===//
// Interface for tests
//===----------------------------------------------------------------------===//

FakeDriver::FakeDriver(FakeOptions options)
    : options(options), random(options.seed), usedBytes(options.numDevices, 0),
      nextAddress(0xd000000000000000ULL), contexts(options.numDevices, 0) {
  if (theDriver)
    throw std::logic_error("there is a FakeDriver already");
  theDriver = this;
}

FakeDriver::~FakeDriver() { theDriver = nullptr; }

FakeDriver &FakeDriver::current() { return *theDriver; }

void FakeDriver::addKernel(const std::string &name, FakeKernel kernel) {
  kernels[name] = std::move(kernel);
}

void FakeDriver::failCall(const std::string &symbol, DriverCode code, int skip) {
  std::deque<DriverCode> &codes = callFailures[symbol];
  codes.insert(codes.end(), skip, DriverCode::Success);
  codes.push_back(code);
}

void FakeDriver::failKernel(const std::string &name, DriverCode code) {
  kernelFailures[name] = code;
}

void FakeDriver::hangKernel(const std::string &name, int device) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  hangingKernels[name] = device;
}

void FakeDriver::ignoreWait(int number) { ignoredWait = number; }

std::vector<std::string> FakeDriver::calls() const {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  return callList;
}

std::vector<FakeDriver::Ran> FakeDriver::ran() const {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  return ranList;
}

int FakeDriver::numCalls(const std::string &symbol) const {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  return int(std::count(callList.begin(), callList.end(), symbol));
}

std::vector<std::string> FakeDriver::complaints() const {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  std::vector<std::string> all = complaintList;
  all.insert(all.end(), checker.races().begin(), checker.races().end());
  return all;
}

std::vector<std::string> FakeDriver::leaks() const {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  std::vector<std::string> all;
  for (const auto &[address, allocation] : allocations)
    all.push_back("device memory of " + std::to_string(allocation.size) + " bytes");
  for (const auto &[memory, bytes] : pinnedBytes)
    all.push_back("pinned memory of " + std::to_string(bytes) + " bytes");
  for (size_t lane = 0; lane < streams.size(); ++lane)
    if (streams[lane]->isAlive)
      all.push_back("stream " + std::to_string(lane));
  for (const auto &[index, event] : events)
    all.push_back("event " + std::to_string(index));
  for (int index : modules)
    all.push_back("module " + std::to_string(index));
  for (const auto &[index, graph] : graphs)
    all.push_back("graph " + std::to_string(index));
  for (const auto &[index, executable] : executables)
    all.push_back("executable graph " + std::to_string(index));
  for (const auto &[index, capture] : captures)
    all.push_back("capture " + std::to_string(index));
  for (size_t device = 0; device < contexts.size(); ++device)
    if (contexts[device])
      all.push_back("context of device " + std::to_string(device));
  return all;
}

std::vector<std::string> FakeDriver::images() const {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  return imageList;
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

void *FakeAccess::touch(cuda::DeviceAddress address, size_t bytes, bool isWrite) {
  if (bytes == 0)
    return nullptr;
  auto next = driver.allocations.upper_bound(address);
  if (next == driver.allocations.begin())
    throw OutsideOfMemory();
  auto &[begin, allocation] = *std::prev(next);
  if (address + bytes > begin + allocation.size)
    throw OutsideOfMemory();
  if (driver.streams[lane]->device != allocation.device)
    driver.complain(name + " touches the memory of another device");
  driver.checker.touch(lane, clock, name, address, bytes, isWrite);
  driver.hearRaces();
  if (isWrite && driver.options.memory)
    driver.options.memory->willWrite(address, bytes);
  return allocation.data + (address - begin);
}

void FakeAccess::touchHost(const void *memory, size_t bytes, bool isWrite) {
  driver.checker.touch(lane, clock, name, reinterpret_cast<uintptr_t>(memory), bytes, isWrite);
  driver.hearRaces();
}

void FakeDriver::hearRaces() {
  const std::vector<std::string> &races = checker.races();
  for (; options.onComplaint && numRacesHeard < races.size(); ++numRacesHeard) {
    options.onComplaint(races[numRacesHeard]);
    lose(DriverCode::LaunchFailed);
  }
}

void FakeDriver::complain(const std::string &text) {
  if (std::find(complaintList.begin(), complaintList.end(), text) == complaintList.end())
    complaintList.push_back(text);
  if (options.onComplaint) {
    options.onComplaint(text);
    lose(DriverCode::LaunchFailed);
  }
}

FakeDriver::Stream *FakeDriver::find(cuda::StreamHandle handle) {
  int lane = indexOf(handle);
  if (lane < 0)
    complain("the default stream is used");
  return lane < 0 || lane >= int(streams.size()) || !streams[lane]->isAlive ? nullptr
                                                                            : streams[lane].get();
}

DriverCode FakeDriver::push(cuda::StreamHandle handle, Operation operation) {
  Stream *stream = find(handle);
  if (!stream)
    return DriverCode::InvalidHandle;
  int lane = indexOf(handle);
  if (stream->capture < 0) {
    pushTo(lane, std::move(operation));
    return DriverCode::Success;
  }
  Capture &capture = captures.at(stream->capture);
  Work work{operation.isReady, operation.run};
  capture.items.push_back({lane, -1, operation.name, [work] { return work; }});
  capture.clocks[lane].tick(lane);
  return DriverCode::Success;
}

void FakeDriver::pushTo(int lane, Operation operation) {
  Stream &stream = *streams[size_t(lane)];
  stream.clock.join(hostClock);
  stream.clock.tick(lane);
  operation.clock = stream.clock;
  operation.number = numOperations++;
  operation.name += " in stream " + std::to_string(lane);
  stream.queue.push_back(std::move(operation));
  changed.notify_all();
}

void FakeDriver::enqueue(cuda::StreamHandle handle, const std::string &name,
                         std::function<Work()> make) {
  callList.push_back(name);
  Stream *stream = find(handle);
  if (!stream)
    return;
  int lane = indexOf(handle);
  if (stream->capture < 0) {
    Work work = make();
    return pushTo(lane, {name, {}, std::move(work.isReady), std::move(work.run)});
  }
  Capture &capture = captures.at(stream->capture);
  capture.items.push_back({lane, -1, name, std::move(make)});
  capture.clocks[lane].tick(lane);
}

bool FakeDriver::isCapturing(cuda::StreamHandle handle) {
  Stream *stream = find(handle);
  return stream && stream->capture >= 0;
}

void FakeDriver::wake() { changed.notify_all(); }

std::vector<unsigned char> FakeDriver::peek(cuda::DeviceAddress address, size_t bytes) const {
  auto next = allocations.upper_bound(address);
  if (bytes == 0 || next == allocations.begin())
    return {};
  const auto &[begin, allocation] = *std::prev(next);
  size_t offset = size_t(address - begin);
  if (offset + bytes > allocation.size)
    return {};
  const unsigned char *from = allocation.data + offset;
  return std::vector<unsigned char>(from, from + bytes);
}

/// Runs one operation, taken at random from those ready. Returns false if there are none.
bool FakeDriver::runOne() {
  std::vector<int> lanes;
  for (int lane = 0; lane < int(streams.size()); ++lane)
    if (!streams[lane]->queue.empty())
      lanes.push_back(lane);
  std::shuffle(lanes.begin(), lanes.end(), random);
  for (int lane : lanes) {
    Stream &stream = *streams[lane];
    if (stream.queue.front().isReady && !stream.queue.front().isReady())
      continue;
    Operation operation = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (operation.run)
      ranList.push_back({operation.name, stream.device, operation.number});
    if (operation.run && sticky == DriverCode::Success) {
      FakeAccess access(*this, lane, operation.clock, operation.name);
      try {
        operation.run(access);
      } catch (const OutsideOfMemory &) {
        complain(operation.name + " leaves its memory");
        sticky = DriverCode::IllegalAddress;
      }
    }
    stream.numDone = operation.clock.of(lane);
    operation = Operation();
    bury();
    changed.notify_all();
    return true;
  }
  return false;
}

DriverCode FakeDriver::runUntil(const std::function<bool()> &isDone) {
  auto deadline = std::chrono::steady_clock::now() + options.patience;
  while (!isDone() && sticky == DriverCode::Success) {
    if (runOne())
      continue;
    if (std::chrono::steady_clock::now() > deadline)
      throw std::logic_error("a stream never gets on");
    changed.wait_for(mutex, options.poll);
  }
  return sticky;
}

void FakeDriver::runWhileWaiting(const std::function<bool()> &isDone) {
  while (!isDone() && sticky == DriverCode::Success)
    if (!runOne())
      changed.wait_for(mutex, options.poll);
}

bool FakeDriver::isPinned(const void *memory, size_t bytes) const {
  auto next = pinnedBytes.upper_bound(memory);
  if (next == pinnedBytes.begin())
    return false;
  const auto &[begin, size] = *std::prev(next);
  return static_cast<const char *>(memory) + bytes <= static_cast<const char *>(begin) + size;
}

DriverCode FakeDriver::enter(const char *symbol, bool needsContext) {
  callList.push_back(symbol);
  auto failures = callFailures.find(symbol);
  if (failures != callFailures.end() && !failures->second.empty()) {
    DriverCode code = failures->second.front();
    failures->second.pop_front();
    if (code != DriverCode::Success)
      return code;
  }
  if (sticky != DriverCode::Success)
    return sticky;
  // The functions used here that NVIDIA calls potentially unsafe during a capture.
  static const std::set<std::string> unsafe = {
      "cuMemAlloc_v2", "cuMemFree_v2",       "cuMemHostAlloc",     "cuMemFreeHost",
      "cuEventQuery",  "cuEventSynchronize", "cuModuleLoadDataEx", "cuStreamSynchronize"};
  if (Capture *capture = captureOfThread(); capture && unsafe.count(symbol)) {
    capture->isValid = false;
    return DriverCode::CaptureUnsupported;
  }
  return needsContext && (currentDevice < 0 || contexts[currentDevice] == 0)
             ? DriverCode::InvalidContext
             : DriverCode::Success;
}

//===----------------------------------------------------------------------===//
// The functions of the table
//===----------------------------------------------------------------------===//

struct FakeCalls : FakeGraphCalls {
  static DriverCode init(unsigned) {
    TBC_ENTER(cuInit, false);
    return DriverCode::Success;
  }
  static DriverCode driverGetVersion(int *version) {
    TBC_ENTER(cuDriverGetVersion, false);
    *version = 12040;
    return DriverCode::Success;
  }
  static DriverCode getErrorName(DriverCode code, const char **text) {
    *text = code == DriverCode::OutOfMemory      ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == DriverCode::LaunchFailed   ? "CUDA_ERROR_LAUNCH_FAILED"
            : code == DriverCode::IllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : code == DriverCode::NotFound       ? "CUDA_ERROR_NOT_FOUND"
                                                 : nullptr;
    return *text ? DriverCode::Success : DriverCode::InvalidValue;
  }
  static DriverCode getErrorString(DriverCode code, const char **text) {
    *text = code == DriverCode::OutOfMemory ? "out of memory" : nullptr;
    return *text ? DriverCode::Success : DriverCode::InvalidValue;
  }

  // -- Devices

  static DriverCode deviceGetCount(int *count) {
    TBC_ENTER(cuDeviceGetCount, false);
    *count = fake.options.numDevices;
    return DriverCode::Success;
  }
  static DriverCode deviceGet(int *device, int ordinal) {
    TBC_ENTER(cuDeviceGet, false);
    *device = ordinal;
    return ordinal >= 0 && ordinal < fake.options.numDevices ? DriverCode::Success
                                                             : DriverCode::InvalidDevice;
  }
  static DriverCode deviceGetName(char *name, int length, int) {
    TBC_ENTER(cuDeviceGetName, false);
    std::snprintf(name, size_t(length), "%s", fake.options.name.c_str());
    return DriverCode::Success;
  }
  static DriverCode deviceGetAttribute(int *value, cuda::DeviceAttribute attribute, int device) {
    TBC_ENTER(cuDeviceGetAttribute, false);
    auto other = fake.options.capabilities.find(device);
    int capability =
        other == fake.options.capabilities.end() ? fake.options.capability : other->second;
    switch (attribute) {
    case cuda::DeviceAttribute::MaxThreadsPerBlock:
      *value = 1024;
      break;
    case cuda::DeviceAttribute::MaxGridDimX:
      *value = 0x7fffffff;
      break;
    case cuda::DeviceAttribute::MultiprocessorCount:
      *value = 4;
      break;
    case cuda::DeviceAttribute::ComputeCapabilityMajor:
      *value = capability / 10;
      break;
    case cuda::DeviceAttribute::ComputeCapabilityMinor:
      *value = capability % 10;
      break;
    case cuda::DeviceAttribute::MaxSharedMemoryPerBlockOptin:
      *value = 232448;
      break;
    }
    return DriverCode::Success;
  }
  static DriverCode deviceTotalMem(size_t *bytes, int) {
    TBC_ENTER(cuDeviceTotalMem_v2, false);
    *bytes = fake.options.deviceBytes;
    return DriverCode::Success;
  }
  static DriverCode deviceCanAccessPeer(int *can, int device, int peer) {
    TBC_ENTER(cuDeviceCanAccessPeer, false);
    *can = device != peer && !fake.options.withoutPeerAccess.count({device, peer});
    return DriverCode::Success;
  }
  static DriverCode primaryContextRetain(cuda::ContextHandle *context, int device) {
    TBC_ENTER(cuDevicePrimaryCtxRetain, false);
    ++fake.contexts.at(device);
    *context = handleOf<cuda::ContextHandle>(device);
    return DriverCode::Success;
  }
  static DriverCode primaryContextRelease(int device) {
    TBC_ENTER(cuDevicePrimaryCtxRelease_v2, false);
    --fake.contexts.at(device);
    return DriverCode::Success;
  }
  static DriverCode contextSetCurrent(cuda::ContextHandle context) {
    TBC_ENTER(cuCtxSetCurrent, false);
    currentDevice = indexOf(context);
    return DriverCode::Success;
  }

  // -- Memory

  static DriverCode memAlloc(cuda::DeviceAddress *address, size_t bytes) {
    TBC_ENTER(cuMemAlloc_v2, true);
    if (bytes == 0)
      return DriverCode::InvalidValue;
    if (fake.usedBytes[currentDevice] + bytes > fake.options.deviceBytes)
      return DriverCode::OutOfMemory;
    fake.usedBytes[currentDevice] += bytes;
    *address = fake.nextAddress;
    fake.nextAddress += (bytes + 511) / 256 * 256;
    // Fresh memory is not zero.
    FakeDriver::Allocation &made = fake.allocations[*address];
    made = {currentDevice, bytes, nullptr, nullptr};
    if (fake.options.memory) {
      made.data = fake.options.memory->allocate(*address, bytes);
    } else {
      made.own = std::make_unique<unsigned char[]>(bytes);
      made.data = made.own.get();
      std::memset(made.data, 0xdb, bytes);
    }
    return DriverCode::Success;
  }
  static DriverCode memFree(cuda::DeviceAddress address) {
    TBC_ENTER(cuMemFree_v2, true);
    auto found = fake.allocations.find(address);
    if (found == fake.allocations.end())
      return DriverCode::InvalidValue;
    int device = found->second.device;
    auto hasWork = [&](const std::unique_ptr<FakeDriver::Stream> &stream) {
      return stream->device == device && !stream->queue.empty();
    };
    auto isIdle = [&] { return std::none_of(fake.streams.begin(), fake.streams.end(), hasWork); };
    if (fake.options.freeWaits) {
      if (DriverCode code = fake.runUntil(isIdle); code != DriverCode::Success)
        return code;
    } else if (!isIdle()) {
      auto stream = std::find_if(fake.streams.begin(), fake.streams.end(), hasWork);
      fake.complain("memory is freed while " + (*stream)->queue.front().name + " has yet to run");
    }
    fake.usedBytes[found->second.device] -= found->second.size;
    fake.checker.forget(address, found->second.size);
    if (fake.options.memory)
      fake.options.memory->release(address);
    fake.allocations.erase(found);
    return DriverCode::Success;
  }
  static DriverCode memGetInfo(size_t *freeBytes, size_t *totalBytes) {
    TBC_ENTER(cuMemGetInfo_v2, true);
    *totalBytes = fake.options.deviceBytes;
    *freeBytes = fake.options.deviceBytes - fake.usedBytes[currentDevice];
    return DriverCode::Success;
  }
  static DriverCode memHostAlloc(void **memory, size_t bytes, unsigned) {
    TBC_ENTER(cuMemHostAlloc, true);
    auto block = std::make_unique<unsigned char[]>(bytes);
    *memory = block.get();
    fake.pinnedBytes[block.get()] = bytes;
    fake.pinned[*memory] = std::move(block);
    return DriverCode::Success;
  }
  static DriverCode memFreeHost(void *memory) {
    TBC_ENTER(cuMemFreeHost, true);
    for (const auto &stream : fake.streams)
      if (fake.options.keepsHostMemoryWhileBusy && !stream->queue.empty() &&
          stream->device == currentDevice)
        fake.complain("host memory is freed while " + stream->queue.front().name +
                      " has yet to run");
    fake.checker.forget(reinterpret_cast<uintptr_t>(memory), fake.pinnedBytes[memory]);
    fake.pinnedBytes.erase(memory);
    return fake.pinned.erase(memory) ? DriverCode::Success : DriverCode::InvalidValue;
  }
  static DriverCode copyToDevice(cuda::DeviceAddress to, const void *from, size_t bytes,
                                 cuda::StreamHandle stream) {
    TBC_ENTER(cuMemcpyHtoDAsync_v2, true);
    if (!fake.isPinned(from, bytes))
      fake.complain("a copy to the device is from memory that is not pinned");
    return fake.push(stream, {"copy to device", {}, {}, [=](FakeAccess &memory) {
                                memory.touchHost(from, bytes, /*isWrite=*/false);
                                std::memcpy(memory.write<char>(to, bytes), from, bytes);
                              }});
  }
  static DriverCode copyToHost(void *to, cuda::DeviceAddress from, size_t bytes,
                               cuda::StreamHandle stream) {
    TBC_ENTER(cuMemcpyDtoHAsync_v2, true);
    if (!fake.isPinned(to, bytes))
      fake.complain("a copy to the host is to memory that is not pinned");
    return fake.push(stream, {"copy to host", {}, {}, [=](FakeAccess &memory) {
                                memory.touchHost(to, bytes, /*isWrite=*/true);
                                std::memcpy(to, memory.read<char>(from, bytes), bytes);
                              }});
  }
  static DriverCode copyWithin(cuda::DeviceAddress to, cuda::DeviceAddress from, size_t bytes,
                               cuda::StreamHandle stream) {
    TBC_ENTER(cuMemcpyDtoDAsync_v2, true);
    if (to < from + bytes && from < to + bytes)
      fake.complain("a copy within the device overlaps itself");
    return fake.push(stream, {"copy within device", {}, {}, [=](FakeAccess &memory) {
                                const char *source = memory.read<char>(from, bytes);
                                std::memmove(memory.write<char>(to, bytes), source, bytes);
                              }});
  }
  static DriverCode copyRows(const cuda::Copy2D *given, cuda::StreamHandle stream) {
    TBC_ENTER(cuMemcpy2DAsync_v2, true);
    cuda::Copy2D copy = *given;
    if (copy.fromType != cuda::MemoryType::Device || copy.toType != cuda::MemoryType::Device ||
        copy.widthBytes > copy.fromPitchBytes || copy.widthBytes > copy.toPitchBytes ||
        copy.fromPitchBytes > INT32_MAX || copy.toPitchBytes > INT32_MAX)
      return DriverCode::InvalidValue;
    return fake.push(stream,
                     {"copy of rows", {}, {}, [=](FakeAccess &memory) {
                        for (size_t row = 0; row < copy.rows; ++row) {
                          auto from = copy.from + (copy.fromY + row) * copy.fromPitchBytes;
                          auto to = copy.to + (copy.toY + row) * copy.toPitchBytes;
                          const char *source =
                              memory.read<char>(from + copy.fromXBytes, copy.widthBytes);
                          std::memmove(memory.write<char>(to + copy.toXBytes, copy.widthBytes),
                                       source, copy.widthBytes);
                        }
                      }});
  }
  static DriverCode fillBytes(cuda::DeviceAddress to, unsigned char value, size_t bytes,
                              cuda::StreamHandle stream) {
    TBC_ENTER(cuMemsetD8Async, true);
    return fake.push(stream, {"fill", {}, {}, [=](FakeAccess &memory) {
                                std::memset(memory.write<char>(to, bytes), value, bytes);
                              }});
  }

  // -- Streams and events

  static DriverCode streamCreate(cuda::StreamHandle *stream, unsigned flags) {
    TBC_ENTER(cuStreamCreate, true);
    if (flags != cuda::streamNonBlocking)
      fake.complain("a stream waits for the default stream");
    fake.streams.push_back(std::make_unique<FakeDriver::Stream>());
    fake.streams.back()->device = currentDevice;
    *stream = handleOf<cuda::StreamHandle>(int(fake.streams.size()) - 1);
    return DriverCode::Success;
  }
  static DriverCode streamDestroy(cuda::StreamHandle handle) {
    TBC_ENTER(cuStreamDestroy_v2, true);
    FakeDriver::Stream *stream = fake.find(handle);
    if (!stream)
      return DriverCode::InvalidHandle;
    stream->isAlive = false; // queued operations still run
    return DriverCode::Success;
  }
  static DriverCode streamSynchronize(cuda::StreamHandle handle) {
    TBC_ENTER(cuStreamSynchronize, true);
    FakeDriver::Stream *stream = fake.find(handle);
    if (!stream)
      return DriverCode::InvalidHandle;
    Clock clock = stream->clock;
    DriverCode code = fake.runUntil([&] { return stream->queue.empty(); });
    fake.hostClock.join(clock);
    return code;
  }
  static DriverCode eventCreate(cuda::EventHandle *event, unsigned flags) {
    TBC_ENTER(cuEventCreate, true);
    if (flags != cuda::eventDisableTiming)
      fake.timedEvents.insert(fake.numEvents);
    fake.events[fake.numEvents] = {};
    *event = handleOf<cuda::EventHandle>(fake.numEvents++);
    return DriverCode::Success;
  }
  static DriverCode eventDestroy(cuda::EventHandle event) {
    TBC_ENTER(cuEventDestroy_v2, true);
    return fake.events.erase(indexOf(event)) ? DriverCode::Success : DriverCode::InvalidHandle;
  }
  static bool isDone(FakeDriver &fake, const FakeDriver::EventState &state) {
    return state.lane < 0 || fake.streams[state.lane]->numDone >= state.number;
  }
  static DriverCode eventQuery(cuda::EventHandle event) {
    TBC_ENTER(cuEventQuery, true);
    FakeDriver::EventState state = fake.events.at(indexOf(event));
    if (state.capture >= 0)
      return DriverCode::CapturedEvent;
    fake.runOne(); // time passes
    if (fake.sticky != DriverCode::Success)
      return fake.sticky;
    if (!isDone(fake, state))
      return DriverCode::NotReady;
    fake.hostClock.join(state.clock);
    return DriverCode::Success;
  }
  static DriverCode eventSynchronize(cuda::EventHandle event) {
    TBC_ENTER(cuEventSynchronize, true);
    FakeDriver::EventState state = fake.events.at(indexOf(event));
    if (state.capture >= 0)
      return DriverCode::CapturedEvent;
    DriverCode code = fake.runUntil([&] { return isDone(fake, state); });
    fake.hostClock.join(state.clock);
    return code;
  }
  static DriverCode eventElapsedTime(float *milliseconds, cuda::EventHandle begin,
                                     cuda::EventHandle end) {
    TBC_ENTER(cuEventElapsedTime, true);
    const FakeDriver::EventState &from = fake.events.at(indexOf(begin));
    const FakeDriver::EventState &to = fake.events.at(indexOf(end));
    bool areTimed = fake.timedEvents.count(indexOf(begin)) && fake.timedEvents.count(indexOf(end));
    if (!areTimed || from.lane < 0 || to.lane < 0 || from.capture >= 0 || to.capture >= 0)
      return DriverCode::InvalidHandle;
    if (!isDone(fake, from) || !isDone(fake, to))
      return DriverCode::NotReady;
    if (from.lane != to.lane)
      fake.complain("a time between two streams");
    *milliseconds = float((to.seconds - from.seconds) * 1e3);
    return DriverCode::Success;
  }

  // -- Kernels

  static DriverCode moduleLoadData(cuda::ModuleHandle *module, const void *image, unsigned, int *,
                                   void **) {
    TBC_ENTER(cuModuleLoadDataEx, true);
    if (fake.options.load) {
      DriverCode code = fake.options.load(static_cast<const char *>(image), fake.kernels);
      if (code != DriverCode::Success)
        return code;
    }
    fake.imageList.push_back(static_cast<const char *>(image));
    fake.modules.insert(fake.numModules);
    *module = handleOf<cuda::ModuleHandle>(fake.numModules++);
    return DriverCode::Success;
  }
  static DriverCode moduleUnload(cuda::ModuleHandle module) {
    TBC_ENTER(cuModuleUnload, true);
    // As a driver does: until all that the context has under way has ended.
    auto isIdle = [&](const auto &stream) {
      return stream->device != currentDevice || stream->queue.empty();
    };
    if (DriverCode code = fake.runUntil(
            [&] { return std::all_of(fake.streams.begin(), fake.streams.end(), isIdle); });
        code != DriverCode::Success)
      return code;
    return fake.modules.erase(indexOf(module)) ? DriverCode::Success : DriverCode::InvalidHandle;
  }
  static DriverCode moduleGetFunction(cuda::FunctionHandle *function, cuda::ModuleHandle,
                                      const char *name) {
    TBC_ENTER(cuModuleGetFunction, true);
    if (!fake.kernels.count(name))
      return DriverCode::NotFound;
    fake.functions.push_back(name);
    *function = handleOf<cuda::FunctionHandle>(int(fake.functions.size()) - 1);
    return DriverCode::Success;
  }
  static DriverCode functionGetAttribute(int *value, cuda::FunctionAttribute attribute,
                                         cuda::FunctionHandle function) {
    TBC_ENTER(cuFuncGetAttribute, true);
    const FakeKernel &kernel = fake.kernels.at(fake.functions.at(indexOf(function)));
    *value = attribute == cuda::FunctionAttribute::MaxThreadsPerBlock  ? kernel.maxThreads
             : attribute == cuda::FunctionAttribute::StaticSharedBytes ? kernel.staticSharedBytes
                                                                       : 32;
    return DriverCode::Success;
  }
  static DriverCode functionSetAttribute(cuda::FunctionHandle, cuda::FunctionAttribute, int) {
    TBC_ENTER(cuFuncSetAttribute, true);
    return DriverCode::Success;
  }
  static DriverCode launchKernel(cuda::FunctionHandle function, unsigned gridX, unsigned gridY,
                                 unsigned gridZ, unsigned blockX, unsigned blockY, unsigned blockZ,
                                 unsigned sharedBytes, cuda::StreamHandle stream, void **arguments,
                                 void **) {
    TBC_ENTER(cuLaunchKernel, true);
    std::string name = fake.functions.at(indexOf(function));
    FakeKernel kernel = fake.kernels.at(name);
    if (!gridX || !gridY || !gridZ || !blockX || !blockY || !blockZ)
      return DriverCode::InvalidValue;
    if (blockX * blockY * blockZ > unsigned(kernel.maxThreads))
      return DriverCode::LaunchOutOfResources;
    std::vector<std::vector<unsigned char>> values; // they are copied by the call
    for (size_t i = 0; i < kernel.argumentBytes.size(); ++i) {
      auto *bytes = static_cast<const unsigned char *>(arguments[i]);
      values.emplace_back(bytes, bytes + kernel.argumentBytes[i]);
    }
    auto isReady = [&fake, name, device = currentDevice] {
      auto hanging = fake.hangingKernels.find(name);
      return hanging == fake.hangingKernels.end() ||
             (hanging->second >= 0 && hanging->second != device);
    };
    return fake.push(stream, {"kernel " + name, {}, isReady, [=, &fake](FakeAccess &memory) {
                                auto failure = fake.kernelFailures.find(name);
                                if (failure != fake.kernelFailures.end()) {
                                  fake.sticky = failure->second;
                                  return;
                                }
                                FakeLaunch launch{memory, gridX, blockX, sharedBytes, values};
                                kernel.run(launch);
                              }});
  }
};

const cuda::Driver &FakeDriver::table() {
  static const cuda::Driver driver = [] {
    cuda::Driver table;
#define TBC_SET(name, symbol, ...) table.name = FakeCalls::name;
    TBC_CUDA_DRIVER_FUNCTIONS(TBC_SET)
#undef TBC_SET
    return table;
  }();
  return driver;
}

} // namespace tbc::test
