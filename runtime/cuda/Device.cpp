//===- Device.cpp - A GPU and its driver objects ---------------------------===//

#include "runtime/cuda/Device.h"

#include <algorithm>
#include <utility>

namespace tbc::cuda {

//===----------------------------------------------------------------------===//
// Device
//===----------------------------------------------------------------------===//

Result<DevicePtr> Device::open(const Driver &driver, int ordinal) {
  DeviceId id = 0;
  if (Status status = checkDriver(driver, driver.deviceGet(&id, ordinal),
                                  "opening GPU " + std::to_string(ordinal));
      !status)
    return status.error();
  DevicePtr device(new Device(driver, id));
  if (Status status = device->start(ordinal); !status)
    return status.error();
  return device;
}

Status Device::start(int ordinal) {
  text = "GPU " + std::to_string(ordinal);
  int major = 0, minor = 0;
  for (auto [value, attribute] :
       {std::pair(&major, DeviceAttribute::ComputeCapabilityMajor),
        std::pair(&minor, DeviceAttribute::ComputeCapabilityMinor),
        std::pair(&multiprocessors, DeviceAttribute::MultiprocessorCount),
        std::pair(&maxThreads, DeviceAttribute::MaxThreadsPerBlock),
        std::pair(&maxShared, DeviceAttribute::MaxSharedMemoryPerBlockOptin),
        std::pair(&maxGrid, DeviceAttribute::MaxGridDimX)})
    if (Status status = check(table.deviceGetAttribute(value, attribute, id), "its attributes");
        !status)
      return status;
  sm = 10 * major + minor;
  char label[128] = {};
  if (Status status = check(table.deviceGetName(label, sizeof label - 1, id), "its name"); !status)
    return status;
  modelText = std::string(label) + ", sm_" + std::to_string(sm);
  text += " (" + modelText + ")";
  if (Status status = check(table.primaryContextRetain(&context, id), "making its context");
      !status)
    return status;
  return makeCurrent();
}

Device::~Device() {
  if (context && !hasHung)
    table.primaryContextRelease(id);
}

void Device::addGraph(GraphExecHandle graph) {
  std::lock_guard<std::mutex> lock(graphMutex);
  graphs.insert(graph);
}

bool Device::removeGraph(GraphExecHandle graph) {
  std::lock_guard<std::mutex> lock(graphMutex);
  return graphs.erase(graph) > 0;
}

void Device::dropGraphs() {
  std::set<GraphExecHandle> dropped;
  {
    std::lock_guard<std::mutex> lock(graphMutex);
    dropped.swap(graphs);
  }
  if (dropped.empty() || !makeCurrent())
    return;
  for (GraphExecHandle graph : dropped)
    table.graphExecDestroy(graph);
}

Status Device::makeCurrent() const {
  return check(table.contextSetCurrent(context), "making its context current");
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static std::string mebibytes(size_t bytes) {
  return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB";
}

Result<DeviceMemory> DeviceMemory::allocate(DevicePtr device, int64_t bytes,
                                            const std::string &what) {
  DeviceMemory memory;
  if (bytes == 0)
    return memory;
  DriverCode code = device->driver().memAlloc(&memory.begin, size_t(bytes));
  if (code == DriverCode::OutOfMemory) {
    size_t freeBytes = 0, totalBytes = 0;
    device->driver().memGetInfo(&freeBytes, &totalBytes);
    return device
        ->check(code, what + " takes " + mebibytes(size_t(bytes)) + ", of its " +
                          mebibytes(totalBytes) + " " + mebibytes(freeBytes) + " are free")
        .error();
  }
  if (Status status = device->check(code, what); !status)
    return status.error();
  memory.size = bytes;
  memory.device = std::move(device);
  return memory;
}

DeviceMemory DeviceMemory::own(DevicePtr device, DeviceAddress begin, int64_t bytes,
                               ReleaseFn release) {
  DeviceMemory memory;
  memory.device = std::move(device);
  memory.begin = begin;
  memory.size = bytes;
  memory.release = std::move(release);
  return memory;
}

DeviceMemory &DeviceMemory::operator=(DeviceMemory &&other) noexcept {
  std::swap(release, other.release);
  std::swap(device, other.device);
  std::swap(begin, other.begin);
  std::swap(size, other.size);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (!device || device->isGivenUp())
    return;
  if (release)
    release(begin);
  else
    device->driver().memFree(begin);
}

Result<PinnedMemory> PinnedMemory::allocate(DevicePtr device, int64_t bytes) {
  PinnedMemory memory;
  void *begin = nullptr;
  if (Status status =
          device->check(device->driver().memHostAlloc(&begin, size_t(std::max<int64_t>(bytes, 1)),
                                                      hostMemoryPortable),
                        mebibytes(size_t(bytes)) + " of pinned host memory");
      !status)
    return status.error();
  memory.begin = static_cast<unsigned char *>(begin);
  memory.size = bytes;
  memory.device = std::move(device);
  return memory;
}

PinnedMemory &PinnedMemory::operator=(PinnedMemory &&other) noexcept {
  std::swap(device, other.device);
  std::swap(begin, other.begin);
  std::swap(size, other.size);
  return *this;
}

PinnedMemory::~PinnedMemory() {
  if (device && !device->isGivenUp())
    device->driver().memFreeHost(begin);
}

//===----------------------------------------------------------------------===//
// Events and streams
//===----------------------------------------------------------------------===//

Result<Event> Event::create(DevicePtr device, bool isTimed) {
  Event event;
  unsigned flags = isTimed ? eventDefault : eventDisableTiming;
  if (Status status =
          device->check(device->driver().eventCreate(&event.event, flags), "making an event");
      !status)
    return status.error();
  event.device = std::move(device);
  return event;
}

Event &Event::operator=(Event &&other) noexcept {
  std::swap(device, other.device);
  std::swap(event, other.event);
  return *this;
}

Event::~Event() {
  if (device && !device->isGivenUp())
    device->driver().eventDestroy(event);
}

Status Event::wait() const {
  return device->check(device->driver().eventSynchronize(event), "waiting for an event");
}

Result<bool> Event::hasPassed() const {
  DriverCode code = device->driver().eventQuery(event);
  if (code == DriverCode::NotReady)
    return false;
  if (Status status = device->check(code, "waiting for an event"); !status)
    return status.error();
  return true;
}

Result<double> Event::secondsSince(const Event &begin) const {
  float milliseconds = 0;
  if (Status status = device->check(
          device->driver().eventElapsedTime(&milliseconds, begin.handle(), event), "timing");
      !status)
    return status.error();
  return double(milliseconds) * 1e-3;
}

Result<Stream> Stream::create(DevicePtr device, std::string name) {
  Stream stream;
  if (Status status = device->check(
          device->driver().streamCreate(&stream.stream, streamNonBlocking), "making a stream");
      !status)
    return status.error();
  stream.device = std::move(device);
  stream.name = std::move(name);
  return stream;
}

Stream &Stream::operator=(Stream &&other) noexcept {
  std::swap(device, other.device);
  std::swap(stream, other.stream);
  std::swap(name, other.name);
  return *this;
}

Stream::~Stream() {
  if (!device || device->isGivenUp())
    return;
  device->driver().streamSynchronize(stream); // its memory may be freed next
  device->driver().streamDestroy(stream);
}

Status Stream::check(DriverCode code, const char *what) const {
  return device->check(code, name + " stream, " + what);
}

Status Stream::record(const Event &event) const {
  return check(device->driver().eventRecord(event.handle(), stream), "recording an event");
}

Status Stream::waitFor(const Event &event) const {
  return check(device->driver().streamWaitEvent(stream, event.handle(), 0), "waiting for an event");
}

Status Stream::synchronize() const {
  return check(device->driver().streamSynchronize(stream), "waiting for its end");
}

Status Stream::copyToDevice(DeviceAddress to, const void *pinned, int64_t bytes) const {
  return check(device->driver().copyToDevice(to, pinned, size_t(bytes), stream), "copy to device");
}

Status Stream::copyToHost(void *pinned, DeviceAddress from, int64_t bytes) const {
  return check(device->driver().copyToHost(pinned, from, size_t(bytes), stream), "copy to host");
}

Status Stream::copyWithin(DeviceAddress to, DeviceAddress from, int64_t bytes) const {
  return check(device->driver().copyWithin(to, from, size_t(bytes), stream), "copy within device");
}

Status Stream::copyRows(DeviceAddress to, int64_t toPitch, DeviceAddress from, int64_t fromPitch,
                        int64_t rowBytes, int64_t rows) const {
  Copy2D copy;
  copy.to = to, copy.toPitchBytes = size_t(toPitch);
  copy.from = from, copy.fromPitchBytes = size_t(fromPitch);
  copy.widthBytes = size_t(rowBytes), copy.rows = size_t(rows);
  return check(device->driver().copyRows(&copy, stream), "copy of rows within device");
}

Status Stream::fill(DeviceAddress to, unsigned char value, int64_t bytes) const {
  return check(device->driver().fillBytes(to, value, size_t(bytes), stream), "fill");
}

} // namespace tbc::cuda
