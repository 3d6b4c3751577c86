//===- Matmuls.cpp - Einsums by cuBLASLt ----------------------------------===//

#include "runtime/cuda/Matmuls.h"

#include <algorithm>

namespace tbc::cuda {

using kernels::DType;
using kernels::MatmulLoop;
using kernels::MatmulPlan;

Status checkCublas(const CublasLt &library, CublasCode code, const std::string &what) {
  if (code == CublasCode::Success)
    return Status::ok();
  const char *text = library.getStatusString(code);
  return Error{ErrorCode::RankFailed,
               what + ": cuBLASLt says " + (text ? text : "error " + std::to_string(int(code)))};
}

//===----------------------------------------------------------------------===//
// Einsums
//===----------------------------------------------------------------------===//

static bool isMultiplied(DType input, DType result) {
  bool isNarrow = input == DType::BF16 || input == DType::F16;
  return (input == DType::F32 && result == DType::F32) ||
         (isNarrow && (result == input || result == DType::F32));
}

static MatmulShape shapeOf(const MatmulPlan &plan) {
  // The stride of a dim of one element is irrelevant, but the library requires a valid one.
  auto stride = [](int64_t stride, int64_t columns) { return std::max(stride, columns); };
  MatmulShape shape;
  shape.m = plan.m.size, shape.n = plan.n.size, shape.k = plan.k.size;
  shape.transposedA = !kernels::isDense(plan.m.size, plan.m.lhs, plan.k.size, plan.k.lhs);
  shape.transposedB = !kernels::isDense(plan.k.size, plan.k.rhs, plan.n.size, plan.n.rhs);
  shape.strideA = shape.transposedA ? stride(plan.k.lhs, shape.m) : stride(plan.m.lhs, shape.k);
  shape.strideB = shape.transposedB ? stride(plan.n.rhs, shape.k) : stride(plan.k.rhs, shape.n);
  shape.strideC = stride(plan.m.out, shape.n);
  if (!plan.around.empty()) {
    const MatmulLoop &batch = plan.around[0];
    shape.batch = batch.size;
    shape.batchA = batch.lhs, shape.batchB = batch.rhs, shape.batchC = batch.out;
  }
  return shape;
}

Result<EinsumMatmul> matmulOf(const kernels::Attrs &attrs, const kernels::TensorType &lhs,
                              const kernels::TensorType &rhs, const kernels::TensorType &result) {
  auto none = [](const std::string &why) { return Error{ErrorCode::Usage, why}; };
  if (lhs.dtype != rhs.dtype || !isMultiplied(lhs.dtype, result.dtype))
    return none("no matmul of " + std::string(name(lhs.dtype)) + " and " +
                std::string(name(rhs.dtype)) + " to " + std::string(name(result.dtype)));
  if (kernels::numElements(lhs.shape) == 0 || kernels::numElements(rhs.shape) == 0)
    return none("nothing to multiply");
  kernels::MatmulRoles roles = kernels::matmulRoles(attrs, lhs, rhs, result);
  if (roles.sumsOneOperand)
    return none("a sum over one operand");
  bool isAny = false;
  for (bool swaps : {false, true}) {
    MatmulPlan plan;
    if (!choose(swaps ? swapped(roles) : roles, /*maySum=*/false, plan))
      continue;
    isAny = true;
    if (plan.around.size() > 1)
      continue;
    EinsumMatmul matmul{shapeOf(plan), swaps};
    matmul.shape.input = lhs.dtype, matmul.shape.result = result.dtype;
    return matmul;
  }
  return none(isAny ? "several loops around a matmul" : "no dims that make matrices");
}

//===----------------------------------------------------------------------===//
// A matmul
//===----------------------------------------------------------------------===//

static CudaType typeOf(DType dtype, std::optional<program::fp8::Format> format = {}) {
  if (format)
    return *format == program::fp8::Format::E4M3 ? CudaType::E4M3 : CudaType::E5M2;
  return dtype == DType::BF16  ? CudaType::BF16
         : dtype == DType::F16 ? CudaType::F16
                               : CudaType::F32;
}

Matmul::~Matmul() {
  for (LayoutHandle layout : {layoutA, layoutB, layoutC})
    if (layout)
      library.layoutDestroy(layout);
  if (matmul)
    library.matmulDestroy(matmul);
}

static const void *pointerTo(DeviceAddress address) {
  return reinterpret_cast<const void *>(static_cast<uintptr_t>(address));
}

static bool hasBias(CublasEpilogue epilogue) {
  return epilogue == CublasEpilogue::Bias || epilogue == CublasEpilogue::GeluBias ||
         epilogue == CublasEpilogue::GeluAuxiliaryBias;
}
static bool hasAuxiliary(CublasEpilogue epilogue) {
  return epilogue == CublasEpilogue::GeluAuxiliary ||
         epilogue == CublasEpilogue::GeluAuxiliaryBias || epilogue == CublasEpilogue::GeluGradient;
}

Status Matmul::place(const MatmulAddresses &at) const {
  auto set = [&](MatmulAttribute attribute, DeviceAddress address) {
    const void *pointer = pointerTo(address);
    return checkCublas(library, library.matmulSet(matmul, attribute, &pointer, sizeof pointer),
                       "describing an epilogue");
  };
  Status status = Status::ok();
  if (hasBias(epilogue))
    status = set(MatmulAttribute::BiasPointer, at.bias);
  if (status && hasAuxiliary(epilogue))
    status = set(MatmulAttribute::AuxiliaryPointer, at.auxiliary);
  // Column-major matrices are transposed row-major ones: c' = b' a'.
  if (status && isScaled)
    status = set(MatmulAttribute::ScalePointerA, at.scaleB);
  return status && isScaled ? set(MatmulAttribute::ScalePointerB, at.scaleA) : status;
}

Status Matmul::enqueue(const Stream &stream, const MatmulAddresses &at) {
  // Several matmuls may share one shape; a call uses the descriptor's current addresses.
  Status status = place(at);
  if (status && !candidates.empty() && !timedIn->isRecording())
    status = chooseFastest(stream, at);
  if (!status)
    return status;
  ++numCalls;
  return checkCublas(library, multiply(stream, at), "a matmul");
}

void Matmul::take(const MatmulChoice &choice) {
  algorithm = choice.algorithm;
  workspaceBytes = choice.workspaceBytes;
}

/// Enqueues the matmul. Bias and auxiliary matrix are in the descriptor.
CublasCode Matmul::multiply(const Stream &stream, const MatmulAddresses &at) const {
  const float one = 1, beta = at.added ? 1 : 0;
  void *out = const_cast<void *>(pointerTo(at.c));
  const void *added = at.added ? pointerTo(at.added) : out;
  return library.matmul(handle, matmul, &one, pointerTo(at.b), layoutB, pointerTo(at.a), layoutA,
                        &beta, added, layoutC, out, layoutC, &algorithm,
                        const_cast<void *>(pointerTo(workspace)), workspaceBytes, stream.handle());
}

/// Describes a matrix to cuBLASLt: the rows of a row-major one are its columns.
static Status makeLayout(const CublasLt &library, LayoutHandle &layout, CudaType type,
                         int64_t memoryRows, int64_t memoryColumns, int64_t stride, int64_t batch,
                         int64_t batchStride) {
  Status status = checkCublas(
      library,
      library.layoutCreate(&layout, type, uint64_t(memoryColumns), uint64_t(memoryRows), stride),
      "describing a matrix");
  if (!status || batch == 1)
    return status;
  int32_t count = int32_t(batch);
  status = checkCublas(library,
                       library.layoutSet(layout, LayoutAttribute::BatchCount, &count, sizeof count),
                       "describing a batch");
  return status ? checkCublas(library,
                              library.layoutSet(layout, LayoutAttribute::StridedBatchOffset,
                                                &batchStride, sizeof batchStride),
                              "describing a batch")
                : status;
}

/// Sets the epilogue, if any. The library checks the alignment of pointers when it chooses an
/// algorithm, so they get the workspace's alignment, which all tensors share.
Status Matmuls::describeEpilogue(Matmul &matmul, const MatmulShape &s) const {
  matmul.epilogue = s.epilogue;
  MatmulAddresses somewhere;
  for (DeviceAddress *address :
       {&somewhere.bias, &somewhere.auxiliary, &somewhere.scaleA, &somewhere.scaleB})
    *address = workspace.address();
  if (s.epilogue == CublasEpilogue::Default)
    return matmul.place(somewhere);
  auto set = [&](MatmulAttribute attribute, const void *value, size_t bytes) {
    return checkCublas(library, library.matmulSet(matmul.matmul, attribute, value, bytes),
                       "describing an epilogue");
  };
  auto epilogue = uint32_t(s.epilogue);
  Status status = set(MatmulAttribute::Epilogue, &epilogue, sizeof epilogue);
  int64_t stride = s.strideC;
  if (status && hasAuxiliary(s.epilogue))
    status = set(MatmulAttribute::AuxiliaryStride, &stride, sizeof stride);
  return status ? matmul.place(somewhere) : status;
}

Result<std::unique_ptr<Matmul>> Matmuls::make(const MatmulShape &s) {
  std::unique_ptr<Matmul> matmul(new Matmul(library));
  matmul->handle = handle;
  matmul->workspace = workspace.address();
  matmul->isScaled = s.formatA.has_value();
  CudaType typeA = typeOf(s.input, s.formatA), typeB = typeOf(s.input, s.formatB);
  Status status =
      checkCublas(library, library.matmulCreate(&matmul->matmul, CublasCompute::F32, CudaType::F32),
                  "describing a matmul");
  auto transpose = [&](MatmulAttribute which, bool isTransposed) {
    int32_t operation = int32_t(isTransposed ? CublasOperation::Transpose : CublasOperation::None);
    if (status)
      status = checkCublas(library,
                           library.matmulSet(matmul->matmul, which, &operation, sizeof operation),
                           "describing a matmul");
  };
  transpose(MatmulAttribute::TransposeA, s.transposedB);
  transpose(MatmulAttribute::TransposeB, s.transposedA);
  if (status)
    status = describeEpilogue(*matmul, s);
  if (status)
    status =
        s.transposedA
            ? makeLayout(library, matmul->layoutA, typeA, s.k, s.m, s.strideA, s.batch, s.batchA)
            : makeLayout(library, matmul->layoutA, typeA, s.m, s.k, s.strideA, s.batch, s.batchA);
  if (status)
    status =
        s.transposedB
            ? makeLayout(library, matmul->layoutB, typeB, s.n, s.k, s.strideB, s.batch, s.batchB)
            : makeLayout(library, matmul->layoutB, typeB, s.k, s.n, s.strideB, s.batch, s.batchB);
  if (status)
    status = makeLayout(library, matmul->layoutC, typeOf(s.result), s.m, s.n, s.strideC, s.batch,
                        s.batchC);
  if (!status)
    return status.error();
  matmul->resultBytes =
      ((s.batch - 1) * s.batchC + (s.m - 1) * s.strideC + s.n) * kernels::byteWidth(s.result);
  matmul->device = device;
  matmul->timedIn = timedIn;
  Result<bool> hasWay = chooseAlgorithm(*matmul);
  if (!hasWay)
    return hasWay.error();
  return *hasWay ? std::move(matmul) : nullptr;
}

/// Returns false if the library has no algorithm.
Result<bool> Matmuls::chooseAlgorithm(Matmul &matmul) const {
  const char *what = "asking how to multiply";
  PreferenceHandle preference = nullptr;
  uint64_t most = uint64_t(workspace.bytes());
  Status status = checkCublas(library, library.preferenceCreate(&preference), what);
  if (!status)
    return status.error();
  status = checkCublas(
      library,
      library.preferenceSet(preference, PreferenceAttribute::MaxWorkspaceBytes, &most, sizeof most),
      what);
  if (status && isDeterministic)
    status = checkCublas(library,
                         library.preferenceSet(preference, PreferenceAttribute::ReductionSchemeMask,
                                               &reductionSchemeNone, sizeof reductionSchemeNone),
                         what);
  constexpr size_t mostTimed = 8;
  std::vector<MatmulChoice> choices(timedIn ? mostTimed : 1);
  int numFound = 0;
  CublasCode code =
      !status ? CublasCode::Success
              : library.chooseAlgorithms(handle, matmul.matmul, matmul.layoutB, matmul.layoutA,
                                         matmul.layoutC, matmul.layoutC, preference,
                                         int(choices.size()), choices.data(), &numFound);
  library.preferenceDestroy(preference);
  if (!status)
    return status.error();
  // A missing algorithm is no error, because plain kernels are the fallback. For some combinations
  // of types, sizes and epilogues the library returns InvalidValue instead of NotSupported.
  if (code == CublasCode::NotSupported || code == CublasCode::InvalidValue)
    return false;
  if (status = checkCublas(library, code, what); !status)
    return status.error();
  choices.resize(size_t(numFound));
  choices.erase(std::remove_if(
                    choices.begin(), choices.end(),
                    [](const MatmulChoice &choice) { return choice.state != CublasCode::Success; }),
                choices.end());
  if (choices.empty())
    return false;
  matmul.take(choices[0]);
  if (choices.size() > 1)
    matmul.candidates = std::move(choices);
  return true;
}

//===----------------------------------------------------------------------===//
// All of a device
//===----------------------------------------------------------------------===//

Result<std::shared_ptr<Matmuls>> Matmuls::create(const DevicePtr &device, const CublasLt &library,
                                                 bool isDeterministic,
                                                 std::shared_ptr<Streams> timedIn) {
  if (Status status = device->makeCurrent(); !status)
    return status.error();
  std::shared_ptr<Matmuls> matmuls(
      new Matmuls(device, library, isDeterministic, std::move(timedIn)));
  auto memory = DeviceMemory::allocate(device, cublasWorkspaceBytes, "the workspace of cuBLASLt");
  if (!memory)
    return memory.error();
  matmuls->workspace = std::move(*memory);
  if (Status status = checkCublas(library, library.create(&matmuls->handle),
                                  device->name() + ", starting cuBLASLt");
      !status)
    return status.error();
  return matmuls;
}

Matmuls::~Matmuls() {
  matmuls.clear();
  if (handle && !device->isGivenUp())
    library.destroy(handle);
}

Result<Matmul *> Matmuls::find(const MatmulShape &shape) {
  auto [found, isNew] = matmuls.try_emplace(shape);
  if (isNew) {
    auto made = make(shape);
    if (!made)
      return made.error();
    found->second = std::move(*made);
  }
  return found->second.get();
}

} // namespace tbc::cuda
