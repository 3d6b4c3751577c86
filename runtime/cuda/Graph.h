//===- Graph.h - Operations that are launched together -----------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_GRAPH_H
#define TBC_RUNTIME_CUDA_GRAPH_H

#include "runtime/cuda/Device.h"

namespace tbc::cuda {

/// What was captured from streams, to be launched any number of times. Errors are of code
/// RankFailed. Source: NVIDIA's "CUDA Driver API", Stream Management and Graph Management.
class Graph {
public:
  /// From now on what is put into `origin`, and into streams that wait for what was put there, is
  /// not executed but captured. Meanwhile this thread may neither allocate memory nor give it back
  /// nor wait for the device nor ask it anything; other threads may.
  static Status beginCapture(const DevicePtr &device, const Stream &origin);
  /// Ends it, whatever else fails; `origin` has to wait for all streams that were captured along.
  static Result<Graph> endCapture(const DevicePtr &device, const Stream &origin);

  Graph() = default;
  Graph(Graph &&other) noexcept { *this = std::move(other); }
  Graph &operator=(Graph &&other) noexcept;
  ~Graph();

  /// After what is in the stream, and after the launch before.
  Status launch(const Stream &stream) const;
  int64_t numNodes() const { return nodes; }

private:
  DevicePtr device;
  GraphExecHandle exec = nullptr;
  int64_t nodes = 0;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_GRAPH_H
