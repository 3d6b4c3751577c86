//===- CublasLt.h - The used functions of cuBLASLt -------------------------===//
//
// Part of tbc. Plain C++. Own declarations of a part of cublasLt.h. A test compares them with it if
// it is installed.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_CUBLASLT_H
#define TBC_RUNTIME_CUDA_CUBLASLT_H

#include "runtime/cuda/Driver.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::cuda {

/// cublasStatus_t: 0 is success.
enum class CublasCode : int { Success = 0, InvalidValue = 7, NotSupported = 15 };

/// cudaDataType.
enum class CudaType : int { F32 = 0, F64 = 1, F16 = 2, BF16 = 14, E4M3 = 28, E5M2 = 29 };

/// cublasComputeType_t.
enum class CublasCompute : int { F32 = 68, F64 = 70, FastTF32 = 77 };

/// cublasOperation_t.
enum class CublasOperation : int { None = 0, Transpose = 1 };

/// cublasLtMatmulDescAttributes_t.
enum class MatmulAttribute : int {
  TransposeA = 3,
  TransposeB = 4,
  Epilogue = 7,
  BiasPointer = 8,
  AuxiliaryPointer = 11,
  AuxiliaryStride = 12, // CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD
  // For fp8 matrices: the f32 on the device that scales the result.
  ScalePointerA = 17,
  ScalePointerB = 18,
};

/// cublasLtEpilogue_t. Its gelu is the tanh form. `Auxiliary`: the input of gelu is written as
/// another matrix, for the gradient to read.
enum class CublasEpilogue : uint32_t {
  Default = 1,
  Bias = 4,
  Gelu = 32,
  GeluBias = 36,
  GeluAuxiliary = 160,
  GeluAuxiliaryBias = 164,
  GeluGradient = 192,
};

/// cublasLtMatrixLayoutAttribute_t.
enum class LayoutAttribute : int { Order = 1, BatchCount = 5, StridedBatchOffset = 6 };

/// cublasLtMatmulPreferenceAttributes_t.
enum class PreferenceAttribute : int { MaxWorkspaceBytes = 1, ReductionSchemeMask = 3 };

/// cublasLtReductionScheme_t for sums split over thread blocks: only no splitting is requested.
inline constexpr uint32_t reductionSchemeNone = 0;

/// The workspace of matmuls on every device, in bytes: the size that NVIDIA's "cuBLAS" recommends
/// for Hopper, and enough for older devices. Plans count it as part of the device context.
inline constexpr int64_t cublasWorkspaceBytes = int64_t(32) << 20;

using CublasHandle = struct CublasTag *;         // cublasLtHandle_t
using MatmulHandle = struct MatmulTag *;         // cublasLtMatmulDesc_t
using LayoutHandle = struct LayoutTag *;         // cublasLtMatrixLayout_t
using PreferenceHandle = struct PreferenceTag *; // cublasLtMatmulPreference_t

/// cublasLtMatmulAlgo_t.
struct MatmulAlgorithm {
  uint64_t data[8];
};

/// cublasLtMatmulHeuristicResult_t.
struct MatmulChoice {
  MatmulAlgorithm algorithm;
  size_t workspaceBytes;
  CublasCode state;
  float wavesCount;
  int reserved[4];
};

/// X(name here, symbol, parameters ...); all return cublasStatus_t.
#define TBC_CUBLASLT_FUNCTIONS(X)                                                                  \
  X(create, cublasLtCreate, CublasHandle *handle)                                                  \
  X(destroy, cublasLtDestroy, CublasHandle handle)                                                 \
  X(matmulCreate, cublasLtMatmulDescCreate, MatmulHandle *matmul, CublasCompute compute,           \
    CudaType scaleType)                                                                            \
  X(matmulDestroy, cublasLtMatmulDescDestroy, MatmulHandle matmul)                                 \
  X(matmulSet, cublasLtMatmulDescSetAttribute, MatmulHandle matmul, MatmulAttribute attribute,     \
    const void *value, size_t bytes)                                                               \
  X(layoutCreate, cublasLtMatrixLayoutCreate, LayoutHandle *layout, CudaType type, uint64_t rows,  \
    uint64_t columns, int64_t leadingDimension)                                                    \
  X(layoutDestroy, cublasLtMatrixLayoutDestroy, LayoutHandle layout)                               \
  X(layoutSet, cublasLtMatrixLayoutSetAttribute, LayoutHandle layout, LayoutAttribute attribute,   \
    const void *value, size_t bytes)                                                               \
  X(preferenceCreate, cublasLtMatmulPreferenceCreate, PreferenceHandle *preference)                \
  X(preferenceDestroy, cublasLtMatmulPreferenceDestroy, PreferenceHandle preference)               \
  X(preferenceSet, cublasLtMatmulPreferenceSetAttribute, PreferenceHandle preference,              \
    PreferenceAttribute attribute, const void *value, size_t bytes)                                \
  X(chooseAlgorithms, cublasLtMatmulAlgoGetHeuristic, CublasHandle handle, MatmulHandle matmul,    \
    LayoutHandle a, LayoutHandle b, LayoutHandle c, LayoutHandle d, PreferenceHandle preference,   \
    int numAsked, MatmulChoice *choices, int *numFound)                                            \
  X(matmul, cublasLtMatmul, CublasHandle handle, MatmulHandle matmul, const void *alpha,           \
    const void *aData, LayoutHandle a, const void *bData, LayoutHandle b, const void *beta,        \
    const void *cData, LayoutHandle c, void *dData, LayoutHandle d,                                \
    const MatmulAlgorithm *algorithm, void *workspace, size_t workspaceBytes, StreamHandle stream)

/// cuBLASLt as a table of functions. NVIDIA's "cuBLAS" describes them.
struct CublasLt {
#define TBC_DECLARE(name, symbol, ...) CublasCode (*name)(__VA_ARGS__) = nullptr;
  TBC_CUBLASLT_FUNCTIONS(TBC_DECLARE)
#undef TBC_DECLARE
  size_t (*getVersion)() = nullptr;                          // cublasLtGetVersion
  const char *(*getStatusString)(CublasCode code) = nullptr; // cublasLtGetStatusString
};

/// Loads the first of these sonames that the machine has, without starting it (StartLibraries.h).
/// Errors: Other, if it is missing or older than 12.0.
Result<CublasLt> loadCublasLt(const std::vector<std::string> &sonames);

/// Returns, for example, "12.4.5".
std::string versionOf(const CublasLt &library);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_CUBLASLT_H
