//===- Cudnn.h - The used functions of cuDNN -------------------------------===//
//
// Part of tbc. Plain C++. Own declarations of a part of cudnn_graph.h. A test compares them with it
// if it is installed.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_CUDNN_H
#define TBC_RUNTIME_CUDA_CUDNN_H

#include "runtime/cuda/Driver.h"

#include <cstdint>

namespace tbc::cuda {

/// cudnnStatus_t: 0 is success; 3000 to 3999 are reasons for missing support.
enum class CudnnCode : int { Success = 0, BadParameter = 2000, NotSupported = 3000 };

/// cudnnDataType_t.
enum class CudnnType : int { F32 = 0, F16 = 2, I32 = 4, BF16 = 9, Boolean = 11 };

/// cudnnPointwiseMode_t.
enum class CudnnPointwise : int {
  Add = 0,
  Mul = 1,
  Div = 6,
  Sub = 9,
  Exp = 13,
  Log = 15,
  Identity = 21,
  GreaterOrEqual = 303,
  Index = 501,  // CUDNN_POINTWISE_GEN_INDEX
  Select = 601, // CUDNN_POINTWISE_BINARY_SELECT
};

/// cudnnReduceTensorOp_t.
enum class CudnnReduction : int { Add = 0, Max = 3 };

/// cudnnConvolutionMode_t.
enum class CudnnConvolution : int { CrossCorrelation = 1 };

/// cudnnBackendHeurMode_t.
enum class CudnnHeuristic : int { Fallback = 2, A = 3 };

/// cudnnBackendNumericalNote_t.
enum class CudnnNote : int {
  TensorCore = 0,
  DownConvertInputs = 1,
  ReducedPrecisionReduction = 2,
  Nondeterministic = 4,
};

/// cudnnBackendDescriptorType_t.
enum class CudnnKind : int {
  Pointwise = 0,
  Convolution = 1,
  Engine = 2,
  EngineConfig = 3,
  EngineHeuristic = 4,
  ExecutionPlan = 5,
  ConvolutionForward = 10,
  ConvolutionBackwardFilter = 11,
  ConvolutionBackwardData = 12,
  OperationPointwise = 13,
  OperationGraph = 15,
  VariantPack = 16,
  Tensor = 17,
  Matmul = 18,
  OperationMatmul = 19,
  Reduction = 21,
  OperationReduction = 22,
  OperationReshape = 31,
};

/// cudnnBackendAttributeName_t.
enum class CudnnAttribute : int {
  PointwiseMode = 0,
  PointwiseType = 1,
  PointwiseAxis = 9,
  ConvolutionType = 100,
  ConvolutionMode = 101,
  ConvolutionDilations = 102,
  ConvolutionStrides = 103,
  ConvolutionPostPads = 104,
  ConvolutionPrePads = 105,
  ConvolutionSpatialDims = 106,
  HeuristicMode = 200,
  HeuristicGraph = 201,
  HeuristicResults = 202,
  ConfigEngine = 300,
  PlanConfig = 401,
  PlanWorkspaceBytes = 402,
  ForwardAlpha = 700,
  ForwardBeta = 701,
  ForwardConvolution = 702,
  ForwardW = 703,
  ForwardX = 704,
  ForwardY = 705,
  DataAlpha = 706,
  DataBeta = 707,
  DataConvolution = 708,
  DataW = 709,
  DataDx = 710,
  DataDy = 711,
  FilterAlpha = 712,
  FilterBeta = 713,
  FilterConvolution = 714,
  FilterDw = 715,
  FilterX = 716,
  FilterDy = 717,
  PointwiseDescriptor = 750,
  PointwiseX = 751,
  PointwiseB = 752,
  PointwiseY = 753,
  PointwiseAlpha1 = 754,
  PointwiseAlpha2 = 755,
  PointwiseT = 758,
  GraphHandle = 800,
  GraphOperations = 801,
  TensorAlignment = 900,
  TensorType = 901,
  TensorDims = 902,
  TensorStrides = 903,
  TensorId = 906,
  TensorIsVirtual = 907,
  TensorIsByValue = 908,
  PackIds = 1000,
  PackPointers = 1001,
  PackWorkspace = 1003,
  EngineNotes = 1303,
  MatmulType = 1500,
  MatmulA = 1520,
  MatmulB = 1521,
  MatmulC = 1522,
  MatmulDescriptor = 1523,
  ReductionOperator = 1600,
  ReductionType = 1601,
  ReductionX = 1610,
  ReductionY = 1611,
  ReductionDescriptor = 1612,
  ReshapeX = 2200,
  ReshapeY = 2201,
};

/// cudnnBackendAttributeType_t.
enum class CudnnAttributeType : int {
  Handle = 0,
  DataType = 1,
  Boolean = 2,
  Int64 = 3,
  Float = 4,
  Pointer = 6,
  ConvolutionMode = 7,
  Heuristic = 8,
  Note = 11,
  PointwiseMode = 14,
  Descriptor = 15,
  ReductionOperator = 18,
};

using CudnnHandle = struct CudnnTag *; // cudnnHandle_t
using CudnnDescriptor = void *;        // cudnnBackendDescriptor_t

/// X(name here, symbol, parameters ...); all return cudnnStatus_t.
#define TBC_CUDNN_FUNCTIONS(X)                                                                     \
  X(create, cudnnCreate, CudnnHandle *handle)                                                      \
  X(destroy, cudnnDestroy, CudnnHandle handle)                                                     \
  X(setStream, cudnnSetStream, CudnnHandle handle, StreamHandle stream)                            \
  X(createDescriptor, cudnnBackendCreateDescriptor, CudnnKind kind, CudnnDescriptor *descriptor)   \
  X(destroyDescriptor, cudnnBackendDestroyDescriptor, CudnnDescriptor descriptor)                  \
  X(finalize, cudnnBackendFinalize, CudnnDescriptor descriptor)                                    \
  X(setAttribute, cudnnBackendSetAttribute, CudnnDescriptor descriptor, CudnnAttribute attribute,  \
    CudnnAttributeType type, int64_t count, const void *elements)                                  \
  X(getAttribute, cudnnBackendGetAttribute, const CudnnDescriptor descriptor,                      \
    CudnnAttribute attribute, CudnnAttributeType type, int64_t asked, int64_t *count,              \
    void *elements)                                                                                \
  X(execute, cudnnBackendExecute, CudnnHandle handle, CudnnDescriptor plan, CudnnDescriptor pack)

/// cuDNN as a table of functions. NVIDIA's "cuDNN backend API" describes them.
struct Cudnn {
#define TBC_DECLARE(name, symbol, ...) CudnnCode (*name)(__VA_ARGS__) = nullptr;
  TBC_CUDNN_FUNCTIONS(TBC_DECLARE)
#undef TBC_DECLARE
  size_t (*getVersion)() = nullptr;                         // cudnnGetVersion: 90600 for 9.6.0
  const char *(*getErrorString)(CudnnCode code) = nullptr;  // cudnnGetErrorString
  void (*getLastError)(char *text, size_t bytes) = nullptr; // cudnnGetLastErrorString
};

/// Loads the machine's cuDNN. Errors: Other, if it is missing or older than 9.6.
Result<Cudnn> loadCudnn();

/// Returns, for example, "9.6.0".
std::string versionOf(const Cudnn &library);

/// Returns whether the code means missing support rather than an error.
constexpr bool isUnsupported(CudnnCode code) { return int(code) / 1000 == 3; }

/// Returns "WHAT: cuDNN says SENTENCE (DETAILS)".
std::string cudnnRefusal(const Cudnn &library, CudnnCode code, const std::string &what);
/// Returns success, or RankFailed with that sentence.
Status checkCudnn(const Cudnn &library, CudnnCode code, const std::string &what);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_CUDNN_H
