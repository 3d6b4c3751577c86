//===- Graph.cpp - A captured CUDA graph -------------------------------------===//

#include "runtime/cuda/Graph.h"

#include <utility>

namespace tbc::cuda {

Status Graph::beginCapture(const DevicePtr &device, const Stream &origin) {
  // Not Global: NCCL's threads, which enqueue its kernels in these streams, may allocate memory.
  return device->check(
      device->driver().streamBeginCapture(origin.handle(), CaptureMode::ThreadLocal),
      "beginning to capture a graph");
}

Result<Graph> Graph::endCapture(const DevicePtr &device, const Stream &origin) {
  const Driver &driver = device->driver();
  GraphHandle captured = nullptr;
  Status status = device->check(driver.streamEndCapture(origin.handle(), &captured),
                                "ending the capture of a graph");
  Graph graph;
  size_t count = 0;
  if (status)
    status = device->check(driver.graphGetNodes(captured, nullptr, &count),
                           "counting the nodes of a graph");
  if (status)
    status = device->check(driver.graphInstantiate(&graph.exec, captured, 0),
                           "making a graph of " + std::to_string(count) + " nodes");
  if (captured)
    driver.graphDestroy(captured);
  if (!status)
    return status.error();
  graph.device = device;
  device->addGraph(graph.exec);
  graph.nodes = int64_t(count);
  return graph;
}

Graph &Graph::operator=(Graph &&other) noexcept {
  std::swap(device, other.device);
  std::swap(exec, other.exec);
  std::swap(nodes, other.nodes);
  return *this;
}

Graph::~Graph() {
  if (device && !device->isGivenUp() && device->removeGraph(exec))
    device->driver().graphExecDestroy(exec);
}

Status Graph::launch(const Stream &stream) const {
  if (device->isGivenUp())
    return Error{ErrorCode::RankFailed, device->name() + ": it is given up"};
  return device->check(device->driver().graphLaunch(exec, stream.handle()),
                       "launching a graph of " + std::to_string(nodes) + " nodes");
}

} // namespace tbc::cuda
