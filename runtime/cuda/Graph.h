//===- Graph.h - A captured CUDA graph ---------------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_GRAPH_H
#define TBC_RUNTIME_CUDA_GRAPH_H

#include "runtime/cuda/Device.h"

namespace tbc::cuda {

/// Operations captured from streams, to be launched any number of times. Errors have code
/// RankFailed. Source: NVIDIA's "CUDA Driver API", Stream Management and Graph Management.
class Graph {
public:
  /// Captures later operations in `origin`, and in streams that wait for them, instead of executing
  /// them. Meanwhile this thread must not allocate or free memory, wait for the device or query it;
  /// other threads may.
  static Status beginCapture(const DevicePtr &device, const Stream &origin);
  /// Ends the capture, even after an error. `origin` must have waited for all streams that were
  /// captured along.
  static Result<Graph> endCapture(const DevicePtr &device, const Stream &origin);

  Graph() = default;
  Graph(Graph &&other) noexcept { *this = std::move(other); }
  Graph &operator=(Graph &&other) noexcept;
  ~Graph();

  /// Runs after the current work of the stream, and after the previous launch.
  Status launch(const Stream &stream) const;
  int64_t numNodes() const { return nodes; }

private:
  DevicePtr device;
  GraphExecHandle exec = nullptr;
  int64_t nodes = 0;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_GRAPH_H
