//===- CudnnGraph.h - Operations that cuDNN does at once -------------------===//
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

/// Operations on tensors, in the order in which each needs the others, as cuDNN's graphs have them.
/// Tensors are numbers here; all arithmetic is in f32 unless said.
class CudnnGraph {
public:
  using Dims = std::vector<int64_t>;
  enum class Where { Given, Virtual, Constant };
  struct Tensor {
    CudnnType type;
    Dims dims, strides;
    Where where;
    float value; // of a constant
  };
  struct Operation {
    CudnnKind kind;
    int mode = 0; // of a pointwise operation or reduction
    CudnnType type = CudnnType::F32;
    int64_t axis = -1; // of an index
    std::vector<int> tensors = {};
    Dims strides = {}, prePads = {}, postPads = {}, dilations = {}; // of a convolution
  };

  /// In memory, at an address that an execution says.
  int given(CudnnType type, const Dims &dims, const Dims &strides) {
    return add({type, dims, strides, Where::Given, 0});
  }
  /// Known within the graph alone.
  int inner(const Dims &dims, const Dims &strides, CudnnType type = CudnnType::F32) {
    return add({type, dims, strides, Where::Virtual, 0});
  }
  /// A number, as a tensor of this rank with one element.
  int constant(float value, size_t rank) {
    return add({CudnnType::F32, Dims(rank, 1), Dims(rank, 1), Where::Constant, value});
  }

  /// y = mode(x), mode(x, b) or, of Select, t ? x : b.
  void pointwise(CudnnPointwise mode, const std::vector<int> &xbt, int y,
                 CudnnType type = CudnnType::F32);
  /// y = the index of each element of x along `axis`.
  void index(int x, int64_t axis, int y);
  /// c = a b, over the last two dims; others of one element are repeated.
  void matmul(int a, int b, int c);
  /// Along the dims of x that have one element in y.
  void reduce(CudnnReduction mode, int x, int y);
  /// The same bytes with other dims and strides.
  void reshape(int x, int y);
  struct Window {
    Dims strides, prePads, postPads, dilations;
  };
  /// Of tensors [n, c, ...]: y from x and w; dx from dy and w; dw from x and dy.
  void convolve(CudnnKind kind, int x, int w, int y, const Window &window);

  std::vector<Tensor> tensors;
  std::vector<Operation> operations;
  /// Engines are left out that give other bits on another run, or that round f32 to be faster.
  bool isDeterministic = true, isExact = false;

  /// The same for equal graphs.
  std::string key() const;

private:
  int add(Tensor tensor) {
    tensors.push_back(std::move(tensor));
    return int(tensors.size()) - 1;
  }
};

/// The strides of a dense row-major tensor.
CudnnGraph::Dims denseStrides(const CudnnGraph::Dims &dims);

/// A graph as cuDNN does it best.
class CudnnPlan {
public:
  ~CudnnPlan();
  CudnnPlan(const CudnnPlan &) = delete;
  CudnnPlan &operator=(const CudnnPlan &) = delete;

  int64_t workspaceBytes() const { return numBytes; }
  /// Puts it into the stream. `addresses`: of every given tensor, by its number.
  Status enqueue(const Stream &stream, const std::map<int, DeviceAddress> &addresses,
                 DeviceAddress workspace) const;

private:
  friend class CudnnPlans;
  CudnnPlan(DevicePtr device, const Cudnn &library) : device(std::move(device)), library(library) {}

  const DevicePtr device;
  const Cudnn library;
  CudnnHandle handle = nullptr; // of its CudnnPlans
  std::vector<CudnnDescriptor> descriptors;
  CudnnDescriptor plan = nullptr;
  int64_t numBytes = 0;
  std::map<int, float> constants;
};

/// The plans of a device, used in one stream: they share the memory that they work in.
class CudnnPlans {
public:
  /// Errors: RankFailed, what cuDNN refuses.
  static Result<std::shared_ptr<CudnnPlans>> create(const DevicePtr &device, const Cudnn &library);
  ~CudnnPlans();
  CudnnPlans(const CudnnPlans &) = delete;
  CudnnPlans &operator=(const CudnnPlans &) = delete;

  /// How to do it is asked once per graph; this keeps what it finds. An error of code Usage: the
  /// library has no way, and why. Others: RankFailed, what it refuses otherwise.
  Result<const CudnnPlan *> find(const CudnnGraph &graph);
  /// Sees to it that there is so much memory to work in. Nothing is under way that works in it.
  /// Errors: Usage, there is not so much: what there was is there again.
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
