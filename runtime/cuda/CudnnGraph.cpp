//===- CudnnGraph.cpp - Graphs of cuDNN operations -------------------------===//

#include "runtime/cuda/CudnnGraph.h"

#include <algorithm>
#include <cstring>

namespace tbc::cuda {

using Dims = CudnnGraph::Dims;

//===----------------------------------------------------------------------===//
// A graph
//===----------------------------------------------------------------------===//

void CudnnGraph::pointwise(CudnnPointwise mode, const std::vector<int> &xbt, int y,
                           CudnnType type) {
  Operation operation{CudnnKind::OperationPointwise, int(mode), type};
  operation.tensors = {y};
  operation.tensors.insert(operation.tensors.end(), xbt.begin(), xbt.end());
  operations.push_back(operation);
}

void CudnnGraph::index(int x, int64_t axis, int y) {
  pointwise(CudnnPointwise::Index, {x}, y);
  operations.back().axis = axis;
}

void CudnnGraph::matmul(int a, int b, int c) {
  operations.push_back({CudnnKind::OperationMatmul, 0, CudnnType::F32, -1, {a, b, c}});
}

void CudnnGraph::reduce(CudnnReduction mode, int x, int y) {
  operations.push_back({CudnnKind::OperationReduction, int(mode), CudnnType::F32, -1, {x, y}});
}

void CudnnGraph::reshape(int x, int y) {
  operations.push_back({CudnnKind::OperationReshape, 0, CudnnType::F32, -1, {x, y}});
}

void CudnnGraph::convolve(CudnnKind kind, int x, int w, int y, const Window &window) {
  operations.push_back({kind,
                        0,
                        CudnnType::F32,
                        -1,
                        {x, w, y},
                        window.strides,
                        window.prePads,
                        window.postPads,
                        window.dilations});
}

/// Returns the bits as text, because equal decimal texts may stand for different numbers.
static std::string bitsOf(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return std::to_string(bits);
}

std::string CudnnGraph::key() const {
  std::string text = isDeterministic ? "d" : "";
  text += isExact ? "e" : "";
  auto list = [&](const auto &numbers) {
    for (auto number : numbers)
      text += std::to_string(number) + ",";
    text += ";";
  };
  for (const Tensor &tensor : tensors) {
    text += "t" + std::to_string(int(tensor.type)) + ":" + std::to_string(int(tensor.where)) + ":" +
            bitsOf(tensor.value) + ":";
    list(tensor.dims);
    list(tensor.strides);
  }
  for (const Operation &operation : operations) {
    text += "o" + std::to_string(int(operation.kind)) + ":" + std::to_string(operation.mode) + ":" +
            std::to_string(int(operation.type)) + ":" + std::to_string(operation.axis) + ":";
    list(operation.tensors);
    for (const Dims *dims :
         {&operation.strides, &operation.prePads, &operation.postPads, &operation.dilations})
      list(*dims);
  }
  return text;
}

Dims denseStrides(const Dims &dims) {
  Dims strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;)
    strides[d - 1] = strides[d] * dims[d];
  return strides;
}

//===----------------------------------------------------------------------===//
// Descriptors
//===----------------------------------------------------------------------===//

namespace {

/// Makes descriptors in sequence; stops at the first refusal.
class Maker {
public:
  Maker(const Cudnn &library, std::vector<CudnnDescriptor> &made) : library(library), made(made) {}

  CudnnDescriptor create(CudnnKind kind) {
    CudnnDescriptor descriptor = nullptr;
    if (code == CudnnCode::Success &&
        note(library.createDescriptor(kind, &descriptor), "a descriptor"))
      made.push_back(descriptor);
    return descriptor;
  }
  template <typename T>
  void set(CudnnDescriptor descriptor, CudnnAttribute attribute, CudnnAttributeType type,
           const std::vector<T> &values) {
    if (code == CudnnCode::Success)
      note(library.setAttribute(descriptor, attribute, type, int64_t(values.size()),
                                static_cast<const void *>(values.data())),
           "attribute " + std::to_string(int(attribute)));
  }
  void set(CudnnDescriptor descriptor, CudnnAttribute attribute, int64_t value) {
    set<int64_t>(descriptor, attribute, CudnnAttributeType::Int64, {value});
  }
  void set(CudnnDescriptor descriptor, CudnnAttribute attribute, const Dims &values) {
    set<int64_t>(descriptor, attribute, CudnnAttributeType::Int64, values);
  }
  void set(CudnnDescriptor descriptor, CudnnAttribute attribute, CudnnType value) {
    set<CudnnType>(descriptor, attribute, CudnnAttributeType::DataType, {value});
  }
  void set(CudnnDescriptor descriptor, CudnnAttribute attribute, float value) {
    set<float>(descriptor, attribute, CudnnAttributeType::Float, {value});
  }
  void set(CudnnDescriptor descriptor, CudnnAttribute attribute, CudnnDescriptor value) {
    set<CudnnDescriptor>(descriptor, attribute, CudnnAttributeType::Descriptor, {value});
  }
  void setTrue(CudnnDescriptor descriptor, CudnnAttribute attribute) {
    bool value = true;
    if (code == CudnnCode::Success)
      note(library.setAttribute(descriptor, attribute, CudnnAttributeType::Boolean, 1, &value),
           "attribute " + std::to_string(int(attribute)));
  }
  CudnnDescriptor finish(CudnnDescriptor descriptor, const char *what) {
    if (code == CudnnCode::Success)
      note(library.finalize(descriptor), what);
    return descriptor;
  }
  /// Keeps the first refusal.
  bool note(CudnnCode found, const std::string &what) {
    if (code == CudnnCode::Success && found != CudnnCode::Success) {
      code = found;
      culprit = what;
    }
    return code == CudnnCode::Success;
  }

  const Cudnn &library;
  std::vector<CudnnDescriptor> &made;
  CudnnCode code = CudnnCode::Success;
  std::string culprit;
};

CudnnDescriptor makeTensor(Maker &maker, const CudnnGraph::Tensor &tensor, int number) {
  constexpr int64_t alignment = 16; // bytes; required by the library's fastest kernels
  CudnnDescriptor descriptor = maker.create(CudnnKind::Tensor);
  maker.set(descriptor, CudnnAttribute::TensorType, tensor.type);
  maker.set(descriptor, CudnnAttribute::TensorDims, tensor.dims);
  maker.set(descriptor, CudnnAttribute::TensorStrides, tensor.strides);
  maker.set(descriptor, CudnnAttribute::TensorId, int64_t(number) + 1);
  maker.set(descriptor, CudnnAttribute::TensorAlignment, alignment);
  if (tensor.where == CudnnGraph::Where::Virtual)
    maker.setTrue(descriptor, CudnnAttribute::TensorIsVirtual);
  if (tensor.where == CudnnGraph::Where::Constant)
    maker.setTrue(descriptor, CudnnAttribute::TensorIsByValue);
  return maker.finish(descriptor, "a tensor");
}

using Descriptors = std::vector<CudnnDescriptor>;

CudnnDescriptor makePointwise(Maker &maker, const CudnnGraph::Operation &o, const Descriptors &t) {
  CudnnDescriptor mode = maker.create(CudnnKind::Pointwise);
  maker.set<int>(mode, CudnnAttribute::PointwiseMode, CudnnAttributeType::PointwiseMode, {o.mode});
  maker.set(mode, CudnnAttribute::PointwiseType, o.type);
  if (o.axis >= 0)
    maker.set(mode, CudnnAttribute::PointwiseAxis, o.axis);
  maker.finish(mode, "a pointwise mode");
  CudnnDescriptor operation = maker.create(CudnnKind::OperationPointwise);
  maker.set(operation, CudnnAttribute::PointwiseDescriptor, mode);
  constexpr CudnnAttribute roles[] = {CudnnAttribute::PointwiseY, CudnnAttribute::PointwiseX,
                                      CudnnAttribute::PointwiseB, CudnnAttribute::PointwiseT};
  for (size_t i = 0; i < o.tensors.size(); ++i)
    maker.set(operation, roles[i], t[size_t(o.tensors[i])]);
  maker.set(operation, CudnnAttribute::PointwiseAlpha1, 1.0F);
  maker.set(operation, CudnnAttribute::PointwiseAlpha2, 1.0F);
  return operation;
}

CudnnDescriptor makeMatmul(Maker &maker, const CudnnGraph::Operation &o, const Descriptors &t) {
  CudnnDescriptor mode = maker.create(CudnnKind::Matmul);
  maker.set(mode, CudnnAttribute::MatmulType, o.type);
  maker.finish(mode, "a product");
  CudnnDescriptor operation = maker.create(CudnnKind::OperationMatmul);
  maker.set(operation, CudnnAttribute::MatmulA, t[size_t(o.tensors[0])]);
  maker.set(operation, CudnnAttribute::MatmulB, t[size_t(o.tensors[1])]);
  maker.set(operation, CudnnAttribute::MatmulC, t[size_t(o.tensors[2])]);
  maker.set(operation, CudnnAttribute::MatmulDescriptor, mode);
  return operation;
}

CudnnDescriptor makeReduction(Maker &maker, const CudnnGraph::Operation &o, const Descriptors &t) {
  CudnnDescriptor mode = maker.create(CudnnKind::Reduction);
  maker.set(mode, CudnnAttribute::ReductionType, o.type);
  maker.set<int>(mode, CudnnAttribute::ReductionOperator, CudnnAttributeType::ReductionOperator,
                 {o.mode});
  maker.finish(mode, "a reduction");
  CudnnDescriptor operation = maker.create(CudnnKind::OperationReduction);
  maker.set(operation, CudnnAttribute::ReductionDescriptor, mode);
  maker.set(operation, CudnnAttribute::ReductionX, t[size_t(o.tensors[0])]);
  maker.set(operation, CudnnAttribute::ReductionY, t[size_t(o.tensors[1])]);
  return operation;
}

CudnnDescriptor makeConvolution(Maker &maker, const CudnnGraph::Operation &o,
                                const Descriptors &t) {
  CudnnDescriptor window = maker.create(CudnnKind::Convolution);
  maker.set(window, CudnnAttribute::ConvolutionType, o.type);
  maker.set<CudnnConvolution>(window, CudnnAttribute::ConvolutionMode,
                              CudnnAttributeType::ConvolutionMode,
                              {CudnnConvolution::CrossCorrelation});
  maker.set(window, CudnnAttribute::ConvolutionSpatialDims, int64_t(o.strides.size()));
  maker.set(window, CudnnAttribute::ConvolutionPrePads, o.prePads);
  maker.set(window, CudnnAttribute::ConvolutionPostPads, o.postPads);
  maker.set(window, CudnnAttribute::ConvolutionDilations, o.dilations);
  maker.set(window, CudnnAttribute::ConvolutionStrides, o.strides);
  maker.finish(window, "a window");
  // X, W, Y, then the window and its factors.
  using A = CudnnAttribute;
  constexpr A forward[] = {A::ForwardX,           A::ForwardW,     A::ForwardY,
                           A::ForwardConvolution, A::ForwardAlpha, A::ForwardBeta};
  constexpr A data[] = {A::DataDx,          A::DataW,     A::DataDy,
                        A::DataConvolution, A::DataAlpha, A::DataBeta};
  constexpr A filter[] = {A::FilterX,           A::FilterDw,    A::FilterDy,
                          A::FilterConvolution, A::FilterAlpha, A::FilterBeta};
  const A *roles = o.kind == CudnnKind::ConvolutionForward        ? forward
                   : o.kind == CudnnKind::ConvolutionBackwardData ? data
                                                                  : filter;
  CudnnDescriptor operation = maker.create(o.kind);
  for (size_t i = 0; i < 3; ++i)
    maker.set(operation, roles[i], t[size_t(o.tensors[i])]);
  maker.set(operation, roles[3], window);
  maker.set(operation, roles[4], 1.0F);
  maker.set(operation, roles[5], 0.0F);
  return operation;
}

CudnnDescriptor makeReshape(Maker &maker, const CudnnGraph::Operation &o, const Descriptors &t) {
  CudnnDescriptor operation = maker.create(CudnnKind::OperationReshape);
  maker.set(operation, CudnnAttribute::ReshapeX, t[size_t(o.tensors[0])]);
  maker.set(operation, CudnnAttribute::ReshapeY, t[size_t(o.tensors[1])]);
  return operation;
}

CudnnDescriptor makeOperation(Maker &maker, const CudnnGraph::Operation &o, const Descriptors &t) {
  CudnnDescriptor made = o.kind == CudnnKind::OperationPointwise   ? makePointwise(maker, o, t)
                         : o.kind == CudnnKind::OperationMatmul    ? makeMatmul(maker, o, t)
                         : o.kind == CudnnKind::OperationReduction ? makeReduction(maker, o, t)
                         : o.kind == CudnnKind::OperationReshape   ? makeReshape(maker, o, t)
                                                                   : makeConvolution(maker, o, t);
  return maker.finish(made, "an operation");
}

} // namespace

//===----------------------------------------------------------------------===//
// A plan
//===----------------------------------------------------------------------===//

CudnnPlan::~CudnnPlan() {
  // Destroying a plan unloads its kernels, which waits for the device.
  for (size_t i = descriptors.size(); i-- > 0 && !device->isGivenUp();)
    library.destroyDescriptor(descriptors[i]);
}

Status CudnnPlan::enqueue(const Stream &stream, const std::map<int, DeviceAddress> &addresses,
                          DeviceAddress workspace) const {
  std::vector<int64_t> ids;
  std::vector<const void *> pointers;
  auto add = [&](int number, const void *pointer) {
    ids.push_back(int64_t(number) + 1);
    pointers.push_back(pointer);
  };
  for (auto [number, address] : addresses)
    add(number, reinterpret_cast<const void *>(uintptr_t(address)));
  for (const auto &[number, value] : constants)
    add(number, &value);
  std::vector<CudnnDescriptor> made;
  Maker maker(library, made);
  CudnnDescriptor pack = maker.create(CudnnKind::VariantPack);
  maker.set<const void *>(pack, CudnnAttribute::PackPointers, CudnnAttributeType::Pointer,
                          pointers);
  maker.set(pack, CudnnAttribute::PackIds, ids);
  maker.set<const void *>(pack, CudnnAttribute::PackWorkspace, CudnnAttributeType::Pointer,
                          {reinterpret_cast<const void *>(uintptr_t(workspace))});
  maker.finish(pack, "addresses");
  maker.note(library.setStream(handle, stream.handle()), "the stream");
  if (maker.code == CudnnCode::Success)
    maker.note(library.execute(handle, plan, pack), "executing a plan");
  Status status = checkCudnn(library, maker.code, maker.culprit);
  for (CudnnDescriptor descriptor : made)
    library.destroyDescriptor(descriptor);
  return status;
}

namespace {

/// Chooses the execution plan of a graph: the first allowed one in the library's order, best first.
class Chooser {
public:
  Chooser(Maker &maker, const CudnnGraph &graph, CudnnDescriptor descriptor)
      : maker(maker), graph(graph), descriptor(descriptor) {}

  /// Null: there is no plan; `lastRefusal` is the code of the last refusal.
  CudnnDescriptor run() {
    for (CudnnHeuristic mode : {CudnnHeuristic::A, CudnnHeuristic::Fallback})
      for (CudnnDescriptor config : configs(mode))
        if (isAllowed(config))
          if (CudnnDescriptor plan = planOf(config))
            return plan;
    return nullptr;
  }
  CudnnCode lastRefusal = CudnnCode::NotSupported;

private:
  /// Checks a step of the search whose failure only rejects one candidate.
  bool succeeds(CudnnCode code) {
    if (code == CudnnCode::Success)
      return true;
    lastRefusal = code;
    return false;
  }

  std::vector<CudnnDescriptor> configs(CudnnHeuristic mode) {
    CudnnDescriptor heuristic = maker.create(CudnnKind::EngineHeuristic);
    maker.set(heuristic, CudnnAttribute::HeuristicGraph, descriptor);
    maker.set<CudnnHeuristic>(heuristic, CudnnAttribute::HeuristicMode,
                              CudnnAttributeType::Heuristic, {mode});
    if (maker.code != CudnnCode::Success || !succeeds(maker.library.finalize(heuristic)))
      return {};
    int64_t count = 0;
    if (!succeeds(maker.library.getAttribute(heuristic, CudnnAttribute::HeuristicResults,
                                             CudnnAttributeType::Descriptor, 0, &count, nullptr)))
      return {};
    std::vector<CudnnDescriptor> found;
    for (int64_t i = 0; i < count; ++i)
      found.push_back(maker.create(CudnnKind::EngineConfig));
    if (found.empty() || maker.code != CudnnCode::Success ||
        !succeeds(maker.library.getAttribute(heuristic, CudnnAttribute::HeuristicResults,
                                             CudnnAttributeType::Descriptor, count, &count,
                                             static_cast<void *>(found.data()))))
      return {};
    found.resize(size_t(std::min<int64_t>(count, int64_t(found.size()))));
    return found;
  }

  bool isAllowed(CudnnDescriptor config) {
    if (!graph.isDeterministic && !graph.isExact)
      return true;
    CudnnDescriptor engine = maker.create(CudnnKind::Engine);
    int64_t count = 0;
    if (!engine || !succeeds(maker.library.getAttribute(config, CudnnAttribute::ConfigEngine,
                                                        CudnnAttributeType::Descriptor, 1, &count,
                                                        static_cast<void *>(&engine))))
      return false;
    constexpr int64_t mostNotes = 32;
    std::vector<int> notes(size_t(mostNotes), -1);
    count = 0;
    if (!succeeds(maker.library.getAttribute(engine, CudnnAttribute::EngineNotes,
                                             CudnnAttributeType::Note, mostNotes, &count,
                                             notes.data())))
      return false;
    notes.resize(size_t(std::min(count, mostNotes)));
    auto has = [&](CudnnNote note) {
      return std::find(notes.begin(), notes.end(), int(note)) != notes.end();
    };
    bool rounds = has(CudnnNote::TensorCore) || has(CudnnNote::DownConvertInputs) ||
                  has(CudnnNote::ReducedPrecisionReduction);
    return !(graph.isDeterministic && has(CudnnNote::Nondeterministic)) &&
           !(graph.isExact && rounds);
  }

  CudnnDescriptor planOf(CudnnDescriptor config) {
    CudnnDescriptor plan = maker.create(CudnnKind::ExecutionPlan);
    maker.set(plan, CudnnAttribute::PlanConfig, config);
    return maker.code == CudnnCode::Success && succeeds(maker.library.finalize(plan)) ? plan
                                                                                      : nullptr;
  }

  Maker &maker;
  const CudnnGraph &graph;
  CudnnDescriptor descriptor;
};

} // namespace

Result<std::unique_ptr<CudnnPlan>> CudnnPlans::make(const CudnnGraph &graph) {
  std::unique_ptr<CudnnPlan> made(new CudnnPlan(device, library));
  made->handle = handle;
  Maker maker(library, made->descriptors);
  auto failed = [&](CudnnCode code, const std::string &what) {
    return Error{isUnsupported(code) ? ErrorCode::Usage : ErrorCode::RankFailed,
                 cudnnRefusal(library, code, what)};
  };
  Descriptors tensors, operations;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    tensors.push_back(makeTensor(maker, graph.tensors[i], int(i)));
    if (graph.tensors[i].where == CudnnGraph::Where::Constant)
      made->constants[int(i)] = graph.tensors[i].value;
  }
  for (const CudnnGraph::Operation &operation : graph.operations)
    operations.push_back(makeOperation(maker, operation, tensors));
  CudnnDescriptor descriptor = maker.create(CudnnKind::OperationGraph);
  maker.set<CudnnDescriptor>(descriptor, CudnnAttribute::GraphOperations,
                             CudnnAttributeType::Descriptor, operations);
  maker.set<CudnnHandle>(descriptor, CudnnAttribute::GraphHandle, CudnnAttributeType::Handle,
                         {handle});
  maker.finish(descriptor, "a graph");
  if (maker.code != CudnnCode::Success)
    return failed(maker.code, maker.culprit);
  Chooser chooser(maker, graph, descriptor);
  made->plan = chooser.run();
  if (maker.code != CudnnCode::Success)
    return failed(maker.code, maker.culprit);
  if (!made->plan)
    return Error{ErrorCode::Usage, cudnnRefusal(library, chooser.lastRefusal, "no way to do it")};
  int64_t count = 0;
  CudnnCode code = library.getAttribute(made->plan, CudnnAttribute::PlanWorkspaceBytes,
                                        CudnnAttributeType::Int64, 1, &count, &made->numBytes);
  if (code != CudnnCode::Success)
    return failed(code, "asking for a workspace");
  return made;
}

//===----------------------------------------------------------------------===//
// All of a device
//===----------------------------------------------------------------------===//

Result<std::shared_ptr<CudnnPlans>> CudnnPlans::create(const DevicePtr &device,
                                                       const Cudnn &library) {
  if (Status status = device->makeCurrent(); !status)
    return status.error();
  std::shared_ptr<CudnnPlans> plans(new CudnnPlans(device, library));
  if (Status status =
          checkCudnn(library, library.create(&plans->handle), device->name() + ", starting cuDNN");
      !status)
    return status.error();
  return plans;
}

CudnnPlans::~CudnnPlans() {
  plans.clear();
  if (handle && !device->isGivenUp())
    library.destroy(handle);
}

Result<const CudnnPlan *> CudnnPlans::find(const CudnnGraph &graph) {
  auto [found, isNew] = plans.try_emplace(graph.key());
  if (isNew) {
    auto made = make(graph);
    if (!made && made.error().code != ErrorCode::Usage) {
      plans.erase(found);
      return made.error();
    }
    if (made)
      found->second.plan = std::move(*made);
    else
      found->second.whyNot = made.error().message;
  }
  if (!found->second.plan)
    return Error{ErrorCode::Usage, found->second.whyNot};
  return static_cast<const CudnnPlan *>(found->second.plan.get());
}

Status CudnnPlans::reserve(int64_t bytes) {
  int64_t before = memory.bytes();
  if (bytes <= before)
    return Status::ok();
  auto allocate = [&](int64_t size) {
    auto made = DeviceMemory::allocate(device, size, "the workspace of cuDNN");
    if (made)
      memory = std::move(*made);
    return made ? Status::ok() : Status(made.error());
  };
  memory = DeviceMemory(); // frees the old workspace first: both may exceed the memory
  Status status = allocate(bytes);
  if (status)
    return status;
  if (Status again = allocate(before); before > 0 && !again)
    return again;
  return Error{ErrorCode::Usage, status.error().message};
}

} // namespace tbc::cuda
