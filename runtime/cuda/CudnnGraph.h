//===- CudnnGraph.h - Graphs of cuDNN operations ---------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_CUDNNGRAPH_H
#define TBC_RUNTIME_CUDA_CUDNNGRAPH_H

#include "runtime/cuda/Cudnn.h"
#include "runtime/cuda/Device.h"

#include <map>
#include <optional>
#include <vector>

namespace tbc::cuda {

/// A cuDNN graph: operations on tensors in topological order. Tensors are numbers here. All
/// arithmetic is in f32 unless stated otherwise.
class CudnnGraph {
public:
  using Dims = std::vector<int64_t>;
  enum class Where { Given, Virtual, Constant };
  struct Tensor {
    CudnnType type;
    Dims dims, strides;
    Where where;
    float value; // for a constant
  };
  struct Operation {
    CudnnKind kind;
    int mode = 0; // for a pointwise operation or reduction
    CudnnType type = CudnnType::F32;
    int64_t axis = -1; // for an index
    std::vector<int> tensors = {};
    Dims strides = {}, prePads = {}, postPads = {}, dilations = {}; // for a convolution
  };

  /// Adds a tensor in memory; each execution gives its address.
  int given(CudnnType type, const Dims &dims, const Dims &strides) {
    return add({type, dims, strides, Where::Given, 0});
  }
  /// Adds a tensor that exists only within the graph.
  int inner(const Dims &dims, const Dims &strides, CudnnType type = CudnnType::F32) {
    return add({type, dims, strides, Where::Virtual, 0});
  }
  /// Adds a number, as a tensor of this rank with one element.
  int constant(float value, size_t rank) {
    return add({CudnnType::F32, Dims(rank, 1), Dims(rank, 1), Where::Constant, value});
  }

  /// y = mode(x), mode(x, b) or, for Select, t ? x : b.
  void pointwise(CudnnPointwise mode, const std::vector<int> &xbt, int y,
                 CudnnType type = CudnnType::F32);
  /// y = the index of each element of x along `axis`.
  void index(int x, int64_t axis, int y);
  /// c = a b, over the last two dims. Other dims of one element are broadcast.
  void matmul(int a, int b, int c);
  /// Reduces the dims of x that have one element in y.
  void reduce(CudnnReduction mode, int x, int y);
  /// y = the bytes of x with other dims and strides.
  void reshape(int x, int y);
  struct Window {
    Dims strides, prePads, postPads, dilations;
  };
  /// Adds a convolution of tensors [n, c, ...]: y from x and w; dx from dy and w; or dw from x and
  /// dy.
  void convolve(CudnnKind kind, int x, int w, int y, const Window &window);

  std::vector<Tensor> tensors;
  std::vector<Operation> operations;
  /// isDeterministic excludes engines with run-to-run differences; isExact those that round f32 to
  /// be faster.
  bool isDeterministic = true, isExact = false;

  /// Returns a key, the same for equal graphs.
  std::string key() const;

private:
  int add(Tensor tensor) {
    tensors.push_back(std::move(tensor));
    return int(tensors.size()) - 1;
  }
};

/// Returns the strides of a dense row-major tensor. Example: dims {2, 3, 4} give {12, 4, 1}.
CudnnGraph::Dims denseStrides(const CudnnGraph::Dims &dims);

/// The execution plan of a graph, chosen by cuDNN.
class CudnnPlan {
public:
  ~CudnnPlan();
  CudnnPlan(const CudnnPlan &) = delete;
  CudnnPlan &operator=(const CudnnPlan &) = delete;

  int64_t workspaceBytes() const { return numBytes; }
  /// Enqueues the graph in the stream. `addresses` has every given tensor, by number.
  Status enqueue(const Stream &stream, const std::map<int, DeviceAddress> &addresses,
                 DeviceAddress workspace) const;

private:
  friend class CudnnPlans;
  CudnnPlan(DevicePtr device, const Cudnn &library) : device(std::move(device)), library(library) {}

  const DevicePtr device;
  const Cudnn library;
  CudnnHandle handle = nullptr; // owned by its CudnnPlans
  std::vector<CudnnDescriptor> descriptors;
  CudnnDescriptor plan = nullptr;
  int64_t numBytes = 0;
  std::map<int, float> constants;
};

/// The plans of a device, used in one stream: they share one workspace.
class CudnnPlans {
public:
  /// Errors: RankFailed, for refusals of cuDNN.
  static Result<std::shared_ptr<CudnnPlans>> create(const DevicePtr &device, const Cudnn &library);
  ~CudnnPlans();
  CudnnPlans(const CudnnPlans &) = delete;
  CudnnPlans &operator=(const CudnnPlans &) = delete;

  /// Returns the plan of a graph. cuDNN is asked once per graph, and the answer is cached. Errors:
  /// Usage, if the library does not support it, with the reason; RankFailed for other refusals.
  Result<const CudnnPlan *> find(const CudnnGraph &graph);
  /// Ensures that the workspace has this size. No running work may use it. Errors: Usage, if memory
  /// is short; the old workspace is then restored.
  Status reserve(int64_t bytes);
  DeviceAddress workspace() const { return memory.address(); }

  size_t version() const { return library.getVersion(); }
  const Device &onDevice() const { return *device; }

private:
  CudnnPlans(DevicePtr device, const Cudnn &library)
      : device(std::move(device)), library(library) {}
  Result<std::unique_ptr<CudnnPlan>> make(const CudnnGraph &graph);

  DevicePtr device;
  const Cudnn library;
  CudnnHandle handle = nullptr;
  DeviceMemory memory;
  struct Found {
    std::unique_ptr<CudnnPlan> plan;
    std::string whyNot;
  };
  std::map<std::string, Found> plans;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_CUDNNGRAPH_H
