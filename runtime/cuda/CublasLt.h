//===- CublasLt.h - The functions of cuBLASLt that are used ----------------===//
//
// Part of tbc. Plain C++: own declarations of a part of cublasLt.h, which a test compares with it
// where it is installed.
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
  // Of matrices in fp8: the f32 on the device by which the product is multiplied.
  ScalePointerA = 17,
  ScalePointerB = 18,
};

/// cublasLtEpilogue_t. Its gelu is the tanh form. `Auxiliary`: what gelu is applied to is written,
/// as another matrix; its gradient reads that.
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

/// cublasLtReductionScheme_t, of sums in parts that are taken side by side: only this is asked for.
inline constexpr uint32_t reductionSchemeNone = 0;

/// What products work in on every device, in bytes: what NVIDIA's "cuBLAS" recommends for Hopper,
/// and enough for all before. Plans count it to the device's context.
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

/// cuBLASLt as a table of functions. Their meaning is in NVIDIA's "cuBLAS".
struct CublasLt {
#define TBC_DECLARE(name, symbol, ...) CublasCode (*name)(__VA_ARGS__) = nullptr;
  TBC_CUBLASLT_FUNCTIONS(TBC_DECLARE)
#undef TBC_DECLARE
  size_t (*getVersion)() = nullptr;                          // cublasLtGetVersion
  const char *(*getStatusString)(CublasCode code) = nullptr; // cublasLtGetStatusString
};

/// The first of these sonames that the machine has, started or not (StartLibraries.h). Errors:
/// Other; there is none, or it is older than 12.0.
Result<CublasLt> loadCublasLt(const std::vector<std::string> &sonames);

/// "12.4.5".
std::string versionOf(const CublasLt &library);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_CUBLASLT_H
