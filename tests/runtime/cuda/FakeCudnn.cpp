//===- FakeCudnn.cpp - cuDNN computed in this process ----------------------===//

#include "tests/runtime/cuda/FakeCudnn.h"

#include "runtime/kernels/Tensor.h"

#include <cmath>
#include <cstring>
#include <functional>

namespace tbc::test {

using cuda::CudnnAttribute;
using cuda::CudnnAttributeType;
using cuda::CudnnCode;
using cuda::CudnnKind;
using cuda::CudnnPointwise;
using cuda::CudnnType;
using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using Dims = std::vector<int64_t>;
using Numbers = std::vector<double>;

namespace {

FakeCudnn *theCudnn = nullptr;

struct Descriptor {
  CudnnKind kind;
  bool isFinished = false;
  std::map<CudnnAttribute, std::pair<CudnnAttributeType, std::vector<unsigned char>>> attributes =
      {};
  int way = -1;                      // of an engine or a config
  const Descriptor *graph = nullptr; // of a config

  bool has(CudnnAttribute attribute) const { return attributes.count(attribute) > 0; }
  template <typename T> std::vector<T> list(CudnnAttribute attribute) const {
    const std::vector<unsigned char> &bytes = attributes.at(attribute).second;
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(static_cast<void *>(values.data()), bytes.data(), bytes.size());
    return values;
  }
  template <typename T> T one(CudnnAttribute attribute) const { return list<T>(attribute).at(0); }
  const Descriptor &other(CudnnAttribute attribute) const {
    return *static_cast<const Descriptor *>(one<cuda::CudnnDescriptor>(attribute));
  }
};

Descriptor &of(cuda::CudnnDescriptor descriptor) { return *static_cast<Descriptor *>(descriptor); }

/// Returns the type and the width in bytes of an attribute's elements.
std::pair<CudnnAttributeType, size_t> typeOf(CudnnAttribute attribute) {
  switch (attribute) {
  case CudnnAttribute::TensorType:
  case CudnnAttribute::PointwiseType:
  case CudnnAttribute::MatmulType:
  case CudnnAttribute::ReductionType:
  case CudnnAttribute::ConvolutionType:
    return {CudnnAttributeType::DataType, sizeof(int)};
  case CudnnAttribute::PointwiseMode:
    return {CudnnAttributeType::PointwiseMode, sizeof(int)};
  case CudnnAttribute::ReductionOperator:
    return {CudnnAttributeType::ReductionOperator, sizeof(int)};
  case CudnnAttribute::ConvolutionMode:
    return {CudnnAttributeType::ConvolutionMode, sizeof(int)};
  case CudnnAttribute::HeuristicMode:
    return {CudnnAttributeType::Heuristic, sizeof(int)};
  case CudnnAttribute::TensorIsVirtual:
  case CudnnAttribute::TensorIsByValue:
    return {CudnnAttributeType::Boolean, sizeof(bool)};
  case CudnnAttribute::ForwardAlpha:
  case CudnnAttribute::ForwardBeta:
  case CudnnAttribute::DataAlpha:
  case CudnnAttribute::DataBeta:
  case CudnnAttribute::FilterAlpha:
  case CudnnAttribute::FilterBeta:
  case CudnnAttribute::PointwiseAlpha1:
  case CudnnAttribute::PointwiseAlpha2:
    return {CudnnAttributeType::Float, sizeof(float)};
  case CudnnAttribute::GraphHandle:
    return {CudnnAttributeType::Handle, sizeof(void *)};
  case CudnnAttribute::PackPointers:
  case CudnnAttribute::PackWorkspace:
    return {CudnnAttributeType::Pointer, sizeof(void *)};
  case CudnnAttribute::PointwiseAxis:
  case CudnnAttribute::ConvolutionDilations:
  case CudnnAttribute::ConvolutionStrides:
  case CudnnAttribute::ConvolutionPostPads:
  case CudnnAttribute::ConvolutionPrePads:
  case CudnnAttribute::ConvolutionSpatialDims:
  case CudnnAttribute::TensorAlignment:
  case CudnnAttribute::TensorDims:
  case CudnnAttribute::TensorStrides:
  case CudnnAttribute::TensorId:
  case CudnnAttribute::PackIds:
    return {CudnnAttributeType::Int64, sizeof(int64_t)};
  default:
    return {CudnnAttributeType::Descriptor, sizeof(void *)};
  }
}

/// Returns the attributes that a finished descriptor of this kind must have.
std::vector<CudnnAttribute> neededOf(CudnnKind kind) {
  using A = CudnnAttribute;
  switch (kind) {
  case CudnnKind::Tensor:
    return {A::TensorType, A::TensorDims, A::TensorStrides, A::TensorId, A::TensorAlignment};
  case CudnnKind::Pointwise:
    return {A::PointwiseMode, A::PointwiseType};
  case CudnnKind::OperationPointwise:
    return {A::PointwiseDescriptor, A::PointwiseX, A::PointwiseY};
  case CudnnKind::Matmul:
    return {A::MatmulType};
  case CudnnKind::OperationMatmul:
    return {A::MatmulDescriptor, A::MatmulA, A::MatmulB, A::MatmulC};
  case CudnnKind::Reduction:
    return {A::ReductionType, A::ReductionOperator};
  case CudnnKind::OperationReduction:
    return {A::ReductionDescriptor, A::ReductionX, A::ReductionY};
  case CudnnKind::OperationReshape:
    return {A::ReshapeX, A::ReshapeY};
  case CudnnKind::Convolution:
    return {A::ConvolutionType,     A::ConvolutionMode,    A::ConvolutionSpatialDims,
            A::ConvolutionPrePads,  A::ConvolutionStrides, A::ConvolutionPostPads,
            A::ConvolutionDilations};
  case CudnnKind::ConvolutionForward:
    return {A::ForwardX,           A::ForwardW,     A::ForwardY,
            A::ForwardConvolution, A::ForwardAlpha, A::ForwardBeta};
  case CudnnKind::ConvolutionBackwardData:
    return {A::DataDx, A::DataW, A::DataDy, A::DataConvolution, A::DataAlpha, A::DataBeta};
  case CudnnKind::ConvolutionBackwardFilter:
    return {A::FilterX,           A::FilterDw,    A::FilterDy,
            A::FilterConvolution, A::FilterAlpha, A::FilterBeta};
  case CudnnKind::OperationGraph:
    return {A::GraphOperations, A::GraphHandle};
  case CudnnKind::EngineHeuristic:
    return {A::HeuristicGraph, A::HeuristicMode};
  case CudnnKind::ExecutionPlan:
    return {A::PlanConfig};
  case CudnnKind::VariantPack:
    return {A::PackIds, A::PackPointers, A::PackWorkspace};
  default:
    return {};
  }
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

int64_t product(const Dims &dims) {
  int64_t count = 1;
  for (int64_t dim : dims)
    count *= dim;
  return count;
}

/// Returns the indices of element `number` in row-major order. Example: element 4 of [2, 3] is at
/// (1, 1).
Dims indexOf(int64_t number, const Dims &dims) {
  Dims index(dims.size());
  for (size_t d = dims.size(); d-- > 0;) {
    index[d] = number % dims[d];
    number /= dims[d];
  }
  return index;
}

/// Elements in row-major order of the dims. The order does not depend on the strides.
struct Value {
  CudnnType type = CudnnType::F32;
  Dims dims, strides;
  bool isVirtual = false, isByValue = false;
  Numbers elements;

  explicit Value(const Descriptor &tensor)
      : type(tensor.one<CudnnType>(CudnnAttribute::TensorType)),
        dims(tensor.list<int64_t>(CudnnAttribute::TensorDims)),
        strides(tensor.list<int64_t>(CudnnAttribute::TensorStrides)),
        isVirtual(tensor.has(CudnnAttribute::TensorIsVirtual)),
        isByValue(tensor.has(CudnnAttribute::TensorIsByValue)), elements(size_t(product(dims)), 0) {
  }

  DType dtype() const {
    return type == CudnnType::BF16 ? DType::BF16 : type == CudnnType::F16 ? DType::F16 : DType::F32;
  }
  int64_t offsetOf(const Dims &index) const {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d)
      offset += index[d] * strides[d];
    return offset;
  }
  /// Returns the element that broadcasting repeats at `index` of the larger dims `ofDims`.
  const double &at(const Dims &index, const Dims &ofDims) const {
    int64_t number = 0;
    for (size_t d = 0; d < dims.size(); ++d)
      number = number * dims[d] + index[d] / (ofDims[d] / dims[d]);
    return elements[size_t(number)];
  }
  int64_t extent() const {
    int64_t last = 0;
    for (size_t d = 0; d < dims.size(); ++d)
      last += (dims[d] - 1) * strides[d];
    return last + 1;
  }
  /// Rounds the elements to the type.
  void round() {
    if (type == CudnnType::I32 || type == CudnnType::Boolean)
      return;
    elements = Tensor::fromDoubles({dtype(), {int64_t(elements.size())}}, Arith::Native, elements)
                   .toDoubles();
  }
  void read(FakeAccess &memory, cuda::DeviceAddress address) {
    auto bytes = size_t(extent() * kernels::byteWidth(dtype()));
    Numbers all =
        Tensor::fromBytes({dtype(), {extent()}}, Arith::Native, memory.read<char>(address, bytes))
            .toDoubles();
    for (size_t i = 0; i < elements.size(); ++i)
      elements[i] = all[size_t(offsetOf(indexOf(int64_t(i), dims)))];
  }
  /// Leaves the bytes between its elements as they are.
  void write(FakeAccess &memory, cuda::DeviceAddress address) const {
    const auto width = ptrdiff_t(kernels::byteWidth(dtype()));
    const std::vector<unsigned char> bytes =
        Tensor::fromDoubles({dtype(), {int64_t(elements.size())}}, Arith::Native, elements)
            .toBytes();
    unsigned char *to = memory.write<unsigned char>(address, size_t(extent() * width));
    for (size_t i = 0; i < elements.size(); ++i)
      std::copy_n(bytes.begin() + ptrdiff_t(i) * width, width,
                  to + offsetOf(indexOf(int64_t(i), dims)) * width);
  }
};

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

/// The execution of one graph.
class Run {
public:
  Run(FakeAccess &memory, std::map<int64_t, const void *> pointers,
      std::map<int64_t, float> constants)
      : memory(memory), pointers(std::move(pointers)), constants(std::move(constants)) {}

  void compute(const Descriptor &o) {
    using A = CudnnAttribute;
    switch (o.kind) {
    case CudnnKind::OperationPointwise:
      return pointwise(o);
    case CudnnKind::OperationMatmul:
      return matmul(o);
    case CudnnKind::OperationReduction:
      return reduce(o);
    case CudnnKind::OperationReshape:
      return reshape(o);
    case CudnnKind::ConvolutionForward:
      return convolve(o, A::ForwardX, A::ForwardW, A::ForwardY, A::ForwardConvolution, 2);
    case CudnnKind::ConvolutionBackwardData:
      return convolve(o, A::DataDx, A::DataW, A::DataDy, A::DataConvolution, 0);
    case CudnnKind::ConvolutionBackwardFilter:
      return convolve(o, A::FilterX, A::FilterDw, A::FilterDy, A::FilterConvolution, 1);
    default:
      std::abort();
    }
  }

private:
  int64_t idOf(const Descriptor &tensor) const {
    return tensor.one<int64_t>(CudnnAttribute::TensorId);
  }
  cuda::DeviceAddress addressOf(int64_t id) const {
    return cuda::DeviceAddress(reinterpret_cast<uintptr_t>(pointers.at(id)));
  }
  const Value &input(const Descriptor &o, CudnnAttribute role) {
    const Descriptor &tensor = o.other(role);
    int64_t id = idOf(tensor);
    auto found = values.find(id);
    if (found != values.end())
      return found->second;
    Value value(tensor);
    if (value.isByValue)
      value.elements = {double(constants.at(id))};
    else
      value.read(memory, addressOf(id));
    return values.emplace(id, std::move(value)).first->second;
  }
  void finish(const Descriptor &tensor, Value value) {
    value.round();
    int64_t id = idOf(tensor);
    if (!value.isVirtual)
      value.write(memory, addressOf(id));
    values.insert_or_assign(id, std::move(value));
  }

  void pointwise(const Descriptor &o) {
    const Descriptor &mode = o.other(CudnnAttribute::PointwiseDescriptor);
    auto kind = mode.one<CudnnPointwise>(CudnnAttribute::PointwiseMode);
    const Descriptor &to = o.other(CudnnAttribute::PointwiseY);
    Value y(to);
    auto element = [&](CudnnAttribute role, const Dims &index) {
      return input(o, role).at(index, y.dims);
    };
    for (size_t i = 0; i < y.elements.size(); ++i) {
      Dims index = indexOf(int64_t(i), y.dims);
      double x = element(CudnnAttribute::PointwiseX, index);
      double b = o.has(CudnnAttribute::PointwiseB) ? element(CudnnAttribute::PointwiseB, index) : 0;
      switch (kind) {
      case CudnnPointwise::Add:
        y.elements[i] = x + b;
        break;
      case CudnnPointwise::Sub:
        y.elements[i] = x - b;
        break;
      case CudnnPointwise::Mul:
        y.elements[i] = x * b;
        break;
      case CudnnPointwise::Div:
        y.elements[i] = x / b;
        break;
      case CudnnPointwise::Exp:
        y.elements[i] = std::exp(x);
        break;
      case CudnnPointwise::Log:
        y.elements[i] = std::log(x);
        break;
      case CudnnPointwise::Identity:
        y.elements[i] = x;
        break;
      case CudnnPointwise::GreaterOrEqual:
        y.elements[i] = x >= b;
        break;
      case CudnnPointwise::Index:
        y.elements[i] = double(index[size_t(mode.one<int64_t>(CudnnAttribute::PointwiseAxis))]);
        break;
      case CudnnPointwise::Select:
        y.elements[i] = element(CudnnAttribute::PointwiseT, index) != 0 ? x : b;
        break;
      }
    }
    finish(to, std::move(y));
  }

  void matmul(const Descriptor &o) {
    const Value &a = input(o, CudnnAttribute::MatmulA), &b = input(o, CudnnAttribute::MatmulB);
    const Descriptor &to = o.other(CudnnAttribute::MatmulC);
    Value c(to);
    size_t rank = c.dims.size();
    int64_t depth = a.dims[rank - 1];
    Dims dimsA = c.dims, dimsB = c.dims;
    dimsA[rank - 1] = dimsB[rank - 2] = depth;
    for (size_t i = 0; i < c.elements.size(); ++i) {
      Dims index = indexOf(int64_t(i), c.dims), indexA = index, indexB = index;
      indexA[rank - 1] = indexB[rank - 2] = 0;
      const double *left = &a.at(indexA, dimsA), *right = &b.at(indexB, dimsB);
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k)
        sum += left[k] * right[k * b.dims[rank - 1]];
      c.elements[i] = sum;
    }
    finish(to, std::move(c));
  }

  void reduce(const Descriptor &o) {
    const Value &x = input(o, CudnnAttribute::ReductionX);
    const Descriptor &to = o.other(CudnnAttribute::ReductionY);
    auto mode = o.other(CudnnAttribute::ReductionDescriptor)
                    .one<cuda::CudnnReduction>(CudnnAttribute::ReductionOperator);
    bool isMax = mode == cuda::CudnnReduction::Max;
    Value y(to);
    std::fill(y.elements.begin(), y.elements.end(), isMax ? -INFINITY : 0);
    for (size_t i = 0; i < x.elements.size(); ++i) {
      Dims index = indexOf(int64_t(i), x.dims);
      int64_t number = 0;
      for (size_t d = 0; d < y.dims.size(); ++d)
        number = number * y.dims[d] + index[d] / (x.dims[d] / y.dims[d]);
      double &at = y.elements[size_t(number)];
      at = isMax ? std::max(at, x.elements[i]) : at + x.elements[i];
    }
    finish(to, std::move(y));
  }

  void reshape(const Descriptor &o) {
    const Value &x = input(o, CudnnAttribute::ReshapeX);
    const Descriptor &to = o.other(CudnnAttribute::ReshapeY);
    std::map<int64_t, double> byOffset;
    for (size_t i = 0; i < x.elements.size(); ++i)
      byOffset[x.offsetOf(indexOf(int64_t(i), x.dims))] = x.elements[i];
    Value y(to);
    for (size_t i = 0; i < y.elements.size(); ++i)
      y.elements[i] = byOffset.at(y.offsetOf(indexOf(int64_t(i), y.dims)));
    finish(to, std::move(y));
  }

  /// Accumulates all products of x, w and y into the result. `made` is the result: 0 for x, 1 for
  /// w, 2 for y.
  void convolve(const Descriptor &o, CudnnAttribute roleX, CudnnAttribute roleW,
                CudnnAttribute roleY, CudnnAttribute roleWindow, int made) {
    const Descriptor &window = o.other(roleWindow);
    Dims strides = window.list<int64_t>(CudnnAttribute::ConvolutionStrides);
    Dims lows = window.list<int64_t>(CudnnAttribute::ConvolutionPrePads);
    Dims dilations = window.list<int64_t>(CudnnAttribute::ConvolutionDilations);
    CudnnAttribute roles[] = {roleX, roleW, roleY};
    Value all[] = {Value(o.other(roleX)), Value(o.other(roleW)), Value(o.other(roleY))};
    for (int i = 0; i < 3; ++i)
      if (i != made)
        all[i] = input(o, roles[i]);
    Value &x = all[0], &w = all[1], &y = all[2];
    int64_t groups = x.dims[1] / w.dims[1], outputs = w.dims[0] / groups;
    for (size_t i = 0; i < y.elements.size(); ++i)
      for (int64_t k = 0; k < product(w.dims) / w.dims[0]; ++k) {
        Dims at = indexOf(int64_t(i), y.dims);
        Dims tap = indexOf(at[1] * (product(w.dims) / w.dims[0]) + k, w.dims);
        Dims from = {at[0], at[1] / outputs * w.dims[1] + tap[1]};
        bool isInside = true;
        for (size_t d = 0; d < strides.size(); ++d) {
          from.push_back(at[d + 2] * strides[d] + tap[d + 2] * dilations[d] - lows[d]);
          isInside &= from.back() >= 0 && from.back() < x.dims[d + 2];
        }
        if (!isInside)
          continue;
        auto numberOf = [](const Dims &index, const Dims &dims) {
          int64_t number = 0;
          for (size_t d = 0; d < dims.size(); ++d)
            number = number * dims[d] + index[d];
          return size_t(number);
        };
        double *elements[] = {&x.elements[numberOf(from, x.dims)],
                              &w.elements[numberOf(tap, w.dims)], &y.elements[i]};
        *elements[made] += *elements[(made + 1) % 3] * *elements[(made + 2) % 3];
      }
    finish(o.other(roles[made]), all[made]);
  }

  FakeAccess &memory;
  std::map<int64_t, const void *> pointers;
  std::map<int64_t, float> constants;
  std::map<int64_t, Value> values;
};

/// Returns the descriptors referenced by a descriptor.
std::vector<const Descriptor *> othersOf(const Descriptor &descriptor) {
  std::vector<const Descriptor *> others;
  for (const auto &[attribute, value] : descriptor.attributes)
    if (value.first == CudnnAttributeType::Descriptor)
      for (cuda::CudnnDescriptor other : descriptor.list<cuda::CudnnDescriptor>(attribute))
        others.push_back(static_cast<const Descriptor *>(other));
  return others;
}

/// Returns the tensors of a graph by id.
std::map<int64_t, const Descriptor *> tensorsOf(const Descriptor &graph) {
  std::map<int64_t, const Descriptor *> tensors;
  for (const Descriptor *operation : othersOf(graph))
    for (const Descriptor *other : othersOf(*operation))
      if (other->kind == CudnnKind::Tensor)
        tensors[other->one<int64_t>(CudnnAttribute::TensorId)] = other;
  return tensors;
}

/// The numerical notes of each engine.
const std::vector<std::vector<cuda::CudnnNote>> notesOfWays = {
    {cuda::CudnnNote::Nondeterministic},
    {cuda::CudnnNote::TensorCore},
    {cuda::CudnnNote::DownConvertInputs},
    {cuda::CudnnNote::ReducedPrecisionReduction},
    {}};
const int numWays = int(notesOfWays.size());

} // namespace

FakeCudnn::FakeCudnn(FakeDriver &driver) : driver(driver) { theCudnn = this; }
FakeCudnn::~FakeCudnn() { theCudnn = nullptr; }

int FakeCudnn::numOperations(CudnnKind kind) const {
  auto found = operations.find(kind);
  return found == operations.end() ? 0 : found->second;
}

struct FakeCudnnCalls {
#define TBC_ENTER(name)                                                                            \
  std::lock_guard<std::recursive_mutex> guard(theCudnn->driver.lock());                            \
  if (theCudnn->failing == #name)                                                                  \
  return CudnnCode(5000)

  static CudnnCode wrong(const std::string &why) {
    theCudnn->driver.complain("cuDNN: " + why);
    return CudnnCode::BadParameter;
  }
  static CudnnCode create(cuda::CudnnHandle *handle) {
    TBC_ENTER(create);
    if (theCudnn->startsNot)
      return CudnnCode(1001); // CUDNN_STATUS_NOT_INITIALIZED
    ++theCudnn->alive;
    *handle = reinterpret_cast<cuda::CudnnHandle>(++theCudnn->numCreated);
    return CudnnCode::Success;
  }
  static CudnnCode destroy(cuda::CudnnHandle handle) {
    TBC_ENTER(destroy);
    --theCudnn->alive;
    theCudnn->streams.erase(handle);
    return CudnnCode::Success;
  }
  static CudnnCode setStream(cuda::CudnnHandle handle, cuda::StreamHandle stream) {
    TBC_ENTER(setStream);
    theCudnn->streams[handle] = stream;
    return CudnnCode::Success;
  }
  static CudnnCode createDescriptor(CudnnKind kind, cuda::CudnnDescriptor *descriptor) {
    TBC_ENTER(createDescriptor);
    ++theCudnn->alive;
    *descriptor = new Descriptor{kind};
    return CudnnCode::Success;
  }
  static CudnnCode destroyDescriptor(cuda::CudnnDescriptor descriptor) {
    --theCudnn->alive;
    delete &of(descriptor);
    return CudnnCode::Success;
  }
  static CudnnCode setAttribute(cuda::CudnnDescriptor descriptor, CudnnAttribute attribute,
                                CudnnAttributeType type, int64_t count, const void *elements) {
    TBC_ENTER(setAttribute);
    std::string what = "attribute " + std::to_string(int(attribute));
    auto [expected, width] = typeOf(attribute);
    if (type != expected)
      return wrong(what + " has another type");
    if (of(descriptor).isFinished)
      return wrong(what + " comes after the end");
    const auto *bytes = static_cast<const unsigned char *>(elements);
    of(descriptor).attributes[attribute] = {type, {bytes, bytes + size_t(count) * width}};
    return CudnnCode::Success;
  }
  static CudnnCode finalize(cuda::CudnnDescriptor descriptor) {
    TBC_ENTER(finalize);
    Descriptor &d = of(descriptor);
    for (CudnnAttribute attribute : neededOf(d.kind))
      if (!d.has(attribute))
        return wrong("a descriptor lacks attribute " + std::to_string(int(attribute)));
    for (const Descriptor *other : othersOf(d))
      if (!other->isFinished)
        return wrong("a descriptor is used before its end");
    if (d.kind == CudnnKind::EngineHeuristic) {
      ++theCudnn->asked;
      if (theCudnn->isUnable)
        return CudnnCode(3001);
    }
    if (d.kind == CudnnKind::Tensor && Value(d).dims.size() != Value(d).strides.size())
      return wrong("a tensor has other strides than dims");
    d.isFinished = true;
    return CudnnCode::Success;
  }
  static CudnnCode getAttribute(const cuda::CudnnDescriptor descriptor, CudnnAttribute attribute,
                                CudnnAttributeType, int64_t asked, int64_t *count, void *elements) {
    TBC_ENTER(getAttribute);
    const Descriptor &d = of(descriptor);
    if (attribute == CudnnAttribute::HeuristicResults) {
      *count = numWays;
      for (int i = 0; i < std::min<int64_t>(asked, numWays); ++i) {
        Descriptor &config = of(static_cast<cuda::CudnnDescriptor *>(elements)[i]);
        config.way = i;
        config.graph = &d.other(CudnnAttribute::HeuristicGraph);
        config.isFinished = true;
      }
    } else if (attribute == CudnnAttribute::ConfigEngine) {
      *count = 1;
      of(*static_cast<cuda::CudnnDescriptor *>(elements)).way = d.way;
    } else if (attribute == CudnnAttribute::EngineNotes) {
      const std::vector<cuda::CudnnNote> &notes = notesOfWays.at(size_t(d.way));
      *count = int64_t(notes.size());
      std::copy(notes.begin(), notes.end(), static_cast<cuda::CudnnNote *>(elements));
    } else if (attribute == CudnnAttribute::PlanWorkspaceBytes) {
      *count = 1;
      *static_cast<int64_t *>(elements) = FakeCudnn::workspaceBytes;
    } else {
      return wrong("an attribute that it does not tell");
    }
    return CudnnCode::Success;
  }
  static CudnnCode execute(cuda::CudnnHandle handle, cuda::CudnnDescriptor plan,
                           cuda::CudnnDescriptor pack) {
    TBC_ENTER(execute);
    const Descriptor &config = of(plan).other(CudnnAttribute::PlanConfig);
    const Descriptor *graph = config.graph;
    auto ids = of(pack).list<int64_t>(CudnnAttribute::PackIds);
    auto list = of(pack).list<const void *>(CudnnAttribute::PackPointers);
    std::map<int64_t, const void *> pointers;
    std::map<int64_t, float> constants;
    for (size_t i = 0; i < ids.size(); ++i)
      pointers[ids[i]] = list.at(i);
    for (auto [id, tensor] : tensorsOf(*graph)) {
      Value value(*tensor);
      if (value.isVirtual)
        continue;
      if (!pointers.count(id))
        return wrong("a tensor has no address");
      if (value.isByValue)
        constants[id] = *static_cast<const float *>(pointers[id]);
      else if (uintptr_t(pointers[id]) % 16 != 0)
        return wrong("an address is no multiple of 16");
    }
    if (pointers.size() != ids.size())
      return wrong("a tensor has two addresses");
    auto workspace = cuda::DeviceAddress(
        reinterpret_cast<uintptr_t>(of(pack).one<const void *>(CudnnAttribute::PackWorkspace)));
    ++theCudnn->executed;
    theCudnn->way = config.way;
    for (const Descriptor *operation : othersOf(*graph))
      ++theCudnn->operations[operation->kind];
    std::vector<cuda::CudnnDescriptor> operations =
        graph->list<cuda::CudnnDescriptor>(CudnnAttribute::GraphOperations);
    theCudnn->driver.enqueue(theCudnn->streams[handle], "cuDNN", {}, [=](FakeAccess &memory) {
      memory.write<char>(workspace, size_t(FakeCudnn::workspaceBytes));
      Run run(memory, pointers, constants);
      for (cuda::CudnnDescriptor operation : operations)
        run.compute(of(operation));
    });
    return CudnnCode::Success;
  }
#undef TBC_ENTER
  static size_t getVersion() { return theCudnn ? theCudnn->version : FakeCudnn::newest; }
  static const char *getErrorString(CudnnCode code) {
    return int(code) == 1001           ? "not initialized"
           : cuda::isUnsupported(code) ? "not supported"
                                       : "execution failed";
  }
  static void getLastError(char *text, size_t bytes) {
    std::snprintf(text, bytes, "%s", theCudnn->isUnable ? "no engine" : "");
  }
};

const cuda::Cudnn &FakeCudnn::table() {
  static const cuda::Cudnn cudnn = [] {
    cuda::Cudnn table;
#define TBC_SET(name, symbol, ...) table.name = FakeCudnnCalls::name;
    TBC_CUDNN_FUNCTIONS(TBC_SET)
#undef TBC_SET
    table.getVersion = FakeCudnnCalls::getVersion;
    table.getErrorString = FakeCudnnCalls::getErrorString;
    table.getLastError = FakeCudnnCalls::getLastError;
    return table;
  }();
  return cudnn;
}

} // namespace tbc::test
