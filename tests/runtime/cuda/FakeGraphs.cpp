//===- FakeGraphs.cpp - Events and graphs of the fake driver ---------------===//

#include "tests/runtime/cuda/FakeCalls.h"

#include <algorithm>

namespace tbc::test {

using cuda::CaptureMode;
using cuda::DriverCode;

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

/// Returns the capture begun by this thread.
FakeDriver::Capture *FakeDriver::captureOfThread() {
  for (auto &[index, capture] : captures)
    if (capture.thread == std::this_thread::get_id())
      return &capture;
  return nullptr;
}

/// Records the present position of the lane.
FakeDriver::EventState FakeDriver::record(int lane) {
  pushTo(lane, {"event", {}, {}, {}});
  const Stream &stream = *streams[size_t(lane)];
  return {lane, stream.clock.of(lane), stream.clock, -1, 0, stream.seconds};
}

void FakeDriver::pass(cuda::StreamHandle stream, double seconds) {
  find(stream)->seconds += seconds;
}

/// Makes later operations of the lane wait for `state`.
void FakeDriver::waitIn(int lane, const EventState &state) {
  streams[size_t(lane)]->clock.join(state.clock);
  Stream *other = streams[size_t(state.lane)].get();
  pushTo(lane, {"wait", {}, [other, state] { return other->numDone >= state.number; }, {}});
}

DriverCode FakeGraphCalls::eventRecord(cuda::EventHandle event, cuda::StreamHandle handle) {
  TBC_ENTER(cuEventRecord, true);
  FakeDriver::Stream *stream = fake.find(handle);
  if (!stream)
    return DriverCode::InvalidHandle;
  int lane = indexOf(handle);
  if (stream->capture < 0) {
    fake.events[indexOf(event)] = fake.record(lane);
    return DriverCode::Success;
  }
  FakeDriver::Capture &capture = fake.captures.at(stream->capture);
  capture.items.push_back({lane, -1, "event", {}});
  capture.clocks[lane].tick(lane);
  fake.events[indexOf(event)] = {
      lane, 0, capture.clocks[lane], stream->capture, int(capture.items.size()) - 1, 0};
  return DriverCode::Success;
}

DriverCode FakeGraphCalls::streamWaitEvent(cuda::StreamHandle handle, cuda::EventHandle event,
                                           unsigned) {
  TBC_ENTER(cuStreamWaitEvent, true);
  FakeDriver::Stream *stream = fake.find(handle);
  auto found = fake.events.find(indexOf(event));
  if (!stream || found == fake.events.end())
    return DriverCode::InvalidHandle;
  // The latest record counts. An event that was never recorded is no wait.
  FakeDriver::EventState state = found->second;
  if (state.lane < 0) {
    fake.complain("a stream waits for an event that was never recorded");
    return DriverCode::Success;
  }
  bool isIgnored = fake.options.ignoresWaits || fake.numWaits++ == fake.ignoredWait;
  int lane = indexOf(handle);
  if (state.capture < 0 && stream->capture < 0) {
    if (!isIgnored)
      fake.waitIn(lane, state);
    return DriverCode::Success;
  }
  if (state.capture < 0) {
    fake.captures.at(stream->capture).isValid = false;
    return DriverCode::CaptureIsolation;
  }
  if (!fake.captures.count(state.capture)) // that capture is over
    return DriverCode::CapturedEvent;
  FakeDriver::Capture &capture = fake.captures.at(state.capture);
  stream->capture = state.capture;
  capture.lanes.insert(lane);
  if (isIgnored)
    return DriverCode::Success;
  capture.clocks[lane].join(state.clock);
  capture.items.push_back({lane, state.item, "wait", {}});
  capture.clocks[lane].tick(lane);
  return DriverCode::Success;
}

//===----------------------------------------------------------------------===//
// Capture
//===----------------------------------------------------------------------===//

DriverCode FakeGraphCalls::streamBeginCapture(cuda::StreamHandle handle, CaptureMode mode) {
  TBC_ENTER(cuStreamBeginCapture_v2, true);
  FakeDriver::Stream *stream = fake.find(handle);
  if (!stream || stream->capture >= 0 || fake.captureOfThread())
    return DriverCode::InvalidValue;
  if (mode != CaptureMode::ThreadLocal)
    fake.complain("a capture that other threads can spoil");
  FakeDriver::Capture capture;
  capture.origin = indexOf(handle);
  capture.lanes = {capture.origin};
  capture.thread = std::this_thread::get_id();
  stream->capture = fake.numCaptures;
  fake.captures[fake.numCaptures++] = std::move(capture);
  return DriverCode::Success;
}

DriverCode FakeGraphCalls::streamEndCapture(cuda::StreamHandle handle, cuda::GraphHandle *graph) {
  TBC_ENTER(cuStreamEndCapture, true);
  FakeDriver::Stream *stream = fake.find(handle);
  *graph = nullptr;
  if (!stream || stream->capture < 0)
    return DriverCode::InvalidValue;
  int index = stream->capture;
  FakeDriver::Capture capture = std::move(fake.captures.at(index));
  if (capture.thread != std::this_thread::get_id() || capture.origin != indexOf(handle))
    return DriverCode::InvalidValue;
  fake.captures.erase(index);
  for (int lane : capture.lanes)
    fake.streams[size_t(lane)]->capture = -1;
  if (!capture.isValid)
    return DriverCode::CaptureInvalidated;
  for (int lane : capture.lanes)
    if (capture.clocks[capture.origin].of(lane) < capture.clocks[lane].of(lane))
      return DriverCode::CaptureUnjoined;
  fake.graphs[index] = std::make_shared<const FakeDriver::Capture>(std::move(capture));
  *graph = handleOf<cuda::GraphHandle>(index);
  return DriverCode::Success;
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

DriverCode FakeGraphCalls::graphGetNodes(cuda::GraphHandle graph, cuda::GraphNodeHandle *nodes,
                                         size_t *count) {
  TBC_ENTER(cuGraphGetNodes, true);
  auto found = fake.graphs.find(indexOf(graph));
  if (found == fake.graphs.end() || nodes)
    return DriverCode::InvalidValue;
  *count = 0;
  for (const FakeDriver::Capture::Item &item : found->second->items)
    *count += item.make ? 1 : 0;
  return DriverCode::Success;
}

DriverCode FakeGraphCalls::graphDestroy(cuda::GraphHandle graph) {
  TBC_ENTER(cuGraphDestroy, true);
  return fake.graphs.erase(indexOf(graph)) ? DriverCode::Success : DriverCode::InvalidHandle;
}

DriverCode FakeGraphCalls::graphInstantiate(cuda::GraphExecHandle *exec, cuda::GraphHandle graph,
                                            unsigned long long flags) {
  TBC_ENTER(cuGraphInstantiateWithFlags, true);
  auto found = fake.graphs.find(indexOf(graph));
  if (found == fake.graphs.end() || flags != 0)
    return DriverCode::InvalidValue;
  FakeDriver::Executable executable{found->second, currentDevice, {}};
  for (int lane : found->second->lanes) {
    executable.lanes[lane] = int(fake.streams.size());
    fake.streams.push_back(std::make_unique<FakeDriver::Stream>());
    fake.streams.back()->device = currentDevice;
    fake.streams.back()->isAlive = false; // it has no handle
  }
  *exec = handleOf<cuda::GraphExecHandle>(fake.numExecutables);
  fake.executables[fake.numExecutables++] = std::move(executable);
  return DriverCode::Success;
}

/// Runs the graph after the present operations of the lane and before later ones. Its own lanes
/// order it behind the previous launch.
void FakeDriver::launch(const Executable &executable, int lane) {
  EventState begin = record(lane);
  for (auto [captured, own] : executable.lanes)
    waitIn(own, begin);
  std::vector<EventState> states(executable.graph->items.size());
  for (size_t i = 0; i < states.size(); ++i) {
    const Capture::Item &item = executable.graph->items[i];
    int own = executable.lanes.at(item.lane);
    if (item.make) {
      Work work = item.make();
      pushTo(own, {item.name + " of a graph", {}, std::move(work.isReady), std::move(work.run)});
    } else if (item.event >= 0) {
      waitIn(own, states[size_t(item.event)]);
    } else {
      states[i] = record(own);
    }
  }
  for (auto [captured, own] : executable.lanes)
    waitIn(lane, record(own));
}

DriverCode FakeGraphCalls::graphLaunch(cuda::GraphExecHandle exec, cuda::StreamHandle handle) {
  TBC_ENTER(cuGraphLaunch, true);
  FakeDriver::Stream *stream = fake.find(handle);
  auto found = fake.executables.find(indexOf(exec));
  if (!stream || stream->capture >= 0 || found == fake.executables.end())
    return DriverCode::InvalidValue;
  fake.launch(found->second, indexOf(handle));
  return DriverCode::Success;
}

DriverCode FakeGraphCalls::graphExecDestroy(cuda::GraphExecHandle exec) {
  TBC_ENTER(cuGraphExecDestroy, true);
  auto found = fake.executables.find(indexOf(exec));
  if (found == fake.executables.end())
    return DriverCode::InvalidHandle;
  // A running graph is freed when it has ended. The caller does not wait for this.
  if (fake.isUnderWay(found->second))
    fake.dying.push_back(std::move(found->second));
  fake.executables.erase(found);
  return DriverCode::Success;
}

bool FakeDriver::isUnderWay(const Executable &executable) const {
  return std::any_of(executable.lanes.begin(), executable.lanes.end(), [&](const auto &lane) {
    return !streams[size_t(lane.second)]->queue.empty();
  });
}

void FakeDriver::bury() {
  dying.erase(std::remove_if(dying.begin(), dying.end(),
                             [&](const Executable &one) { return !isUnderWay(one); }),
              dying.end());
}

} // namespace tbc::test
