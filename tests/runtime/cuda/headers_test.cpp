//===- headers_test.cpp - Our declarations against NVIDIA's headers --------===//
//
// Compiled only if the headers are installed. All checks happen at compile time: the values of
// enumerators, the layout of structures, and for every function the number of parameters and how
// each is passed.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/Driver.h"
#include "runtime/cuda/Nccl.h"
#include "tests/runtime/cuda/HeaderChecks.h"

#include <gtest/gtest.h>

#include <cublasLt.h>
#include <cuda.h>
#include <nccl.h>

namespace tbc::cuda {
namespace {

constexpr Driver driver;
#define TBC_CHECK(name, symbol, ...)                                                               \
  static_assert(isCalledAlike(decltype(driver.name)(), decltype (&::symbol)()), #symbol);
TBC_CUDA_DRIVER_FUNCTIONS(TBC_CHECK)
#undef TBC_CHECK

static_assert(sizeof(Copy2D) == sizeof(CUDA_MEMCPY2D));
#define TBC_CHECK(ours, theirs)                                                                    \
  static_assert(offsetof(Copy2D, ours) == offsetof(CUDA_MEMCPY2D, theirs) &&                       \
                sizeof(Copy2D::ours) == sizeof(CUDA_MEMCPY2D::theirs));
TBC_CHECK(fromXBytes, srcXInBytes)
TBC_CHECK(fromY, srcY)
TBC_CHECK(fromType, srcMemoryType)
TBC_CHECK(from, srcDevice)
TBC_CHECK(fromPitchBytes, srcPitch)
TBC_CHECK(toXBytes, dstXInBytes)
TBC_CHECK(toY, dstY)
TBC_CHECK(toType, dstMemoryType)
TBC_CHECK(to, dstDevice)
TBC_CHECK(toPitchBytes, dstPitch)
TBC_CHECK(widthBytes, WidthInBytes)
TBC_CHECK(rows, Height)
#undef TBC_CHECK
static_assert(int(MemoryType::Device) == CU_MEMORYTYPE_DEVICE);

constexpr Nccl nccl;
#define TBC_CHECK(name, symbol, ...)                                                               \
  static_assert(isCalledAlike(decltype(nccl.name)(), decltype (&::symbol)()), #symbol);
TBC_NCCL_FUNCTIONS(TBC_CHECK)
#if NCCL_VERSION_CODE >= 21900
TBC_NCCL_REGISTRATION(TBC_CHECK)
#endif
#undef TBC_CHECK
static_assert(isCalledAlike(decltype(nccl.getErrorString)(), &::ncclGetErrorString));
static_assert(isCalledAlike(decltype(nccl.getLastError)(), &::ncclGetLastError));

constexpr CublasLt cublas;
#define TBC_CHECK(name, symbol, ...)                                                               \
  static_assert(isCalledAlike(decltype(cublas.name)(), decltype (&::symbol)()), #symbol);
TBC_CUBLASLT_FUNCTIONS(TBC_CHECK)
#undef TBC_CHECK
static_assert(isCalledAlike(decltype(cublas.getVersion)(), &::cublasLtGetVersion));
static_assert(isCalledAlike(decltype(cublas.getStatusString)(), &::cublasLtGetStatusString));

static_assert(equal(DriverCode::Success, CUDA_SUCCESS));
static_assert(equal(DriverCode::InvalidValue, CUDA_ERROR_INVALID_VALUE));
static_assert(equal(DriverCode::OutOfMemory, CUDA_ERROR_OUT_OF_MEMORY));
static_assert(equal(DriverCode::NotInitialized, CUDA_ERROR_NOT_INITIALIZED));
static_assert(equal(DriverCode::NoDevice, CUDA_ERROR_NO_DEVICE));
static_assert(equal(DriverCode::InvalidDevice, CUDA_ERROR_INVALID_DEVICE));
static_assert(equal(DriverCode::InvalidImage, CUDA_ERROR_INVALID_IMAGE));
static_assert(equal(DriverCode::InvalidContext, CUDA_ERROR_INVALID_CONTEXT));
static_assert(equal(DriverCode::NoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU));
static_assert(equal(DriverCode::InvalidHandle, CUDA_ERROR_INVALID_HANDLE));
static_assert(equal(DriverCode::NotFound, CUDA_ERROR_NOT_FOUND));
static_assert(equal(DriverCode::NotReady, CUDA_ERROR_NOT_READY));
static_assert(equal(DriverCode::IllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS));
static_assert(equal(DriverCode::LaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES));
static_assert(equal(DriverCode::LaunchFailed, CUDA_ERROR_LAUNCH_FAILED));
static_assert(equal(DriverCode::CaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
static_assert(equal(DriverCode::CaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
static_assert(equal(DriverCode::CaptureUnjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
static_assert(equal(DriverCode::CaptureIsolation, CUDA_ERROR_STREAM_CAPTURE_ISOLATION));
static_assert(equal(DriverCode::CapturedEvent, CUDA_ERROR_CAPTURED_EVENT));
static_assert(equal(CaptureMode::Global, CU_STREAM_CAPTURE_MODE_GLOBAL));
static_assert(equal(CaptureMode::ThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
static_assert(equal(CaptureMode::Relaxed, CU_STREAM_CAPTURE_MODE_RELAXED));
static_assert(equal(DeviceAttribute::MaxThreadsPerBlock,
                    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
static_assert(equal(DeviceAttribute::MaxGridDimX, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X));
static_assert(equal(DeviceAttribute::MultiprocessorCount,
                    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
static_assert(equal(DeviceAttribute::ComputeCapabilityMajor,
                    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(equal(DeviceAttribute::ComputeCapabilityMinor,
                    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
static_assert(equal(DeviceAttribute::MaxSharedMemoryPerBlockOptin,
                    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
static_assert(equal(FunctionAttribute::MaxThreadsPerBlock,
                    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
static_assert(equal(FunctionAttribute::StaticSharedBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
static_assert(equal(FunctionAttribute::NumRegisters, CU_FUNC_ATTRIBUTE_NUM_REGS));
static_assert(equal(FunctionAttribute::MaxDynamicSharedBytes,
                    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
static_assert(equal(streamNonBlocking, CU_STREAM_NON_BLOCKING));
static_assert(equal(eventDefault, CU_EVENT_DEFAULT));
static_assert(equal(eventDisableTiming, CU_EVENT_DISABLE_TIMING));
static_assert(equal(hostMemoryPortable, CU_MEMHOSTALLOC_PORTABLE));

static_assert(equal(NcclCode::Success, ncclSuccess));
static_assert(equal(NcclCode::UnhandledCudaError, ncclUnhandledCudaError));
static_assert(equal(NcclCode::SystemError, ncclSystemError));
static_assert(equal(NcclCode::InternalError, ncclInternalError));
static_assert(equal(NcclCode::InvalidArgument, ncclInvalidArgument));
static_assert(equal(NcclCode::InvalidUsage, ncclInvalidUsage));
static_assert(equal(NcclCode::RemoteError, ncclRemoteError));
static_assert(equal(NcclCode::InProgress, ncclInProgress));
static_assert(equal(NcclType::I8, ncclInt8) && equal(NcclType::U8, ncclUint8));
static_assert(equal(NcclType::I32, ncclInt32) && equal(NcclType::U32, ncclUint32));
static_assert(equal(NcclType::I64, ncclInt64) && equal(NcclType::U64, ncclUint64));
static_assert(equal(NcclType::F16, ncclFloat16) && equal(NcclType::F32, ncclFloat32));
static_assert(equal(NcclType::F64, ncclFloat64) && equal(NcclType::BF16, ncclBfloat16));
static_assert(equal(NcclOp::Sum, ncclSum) && equal(NcclOp::Product, ncclProd));
static_assert(equal(NcclOp::Max, ncclMax) && equal(NcclOp::Min, ncclMin));
static_assert(equal(NcclOp::Avg, ncclAvg));
static_assert(equal(NcclResidence::Device, ncclScalarDevice) &&
              equal(NcclResidence::Host, ncclScalarHostImmediate));
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
// Our structure is a prefix of theirs, which grows at its end.
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
#define TBC_SAME_PLACE(ours, theirs)                                                               \
  static_assert(offsetof(NcclConfig, ours) == offsetof(ncclConfig_t, theirs) &&                    \
                    sizeof(NcclConfig::ours) == sizeof(ncclConfig_t::theirs),                      \
                #theirs)
TBC_SAME_PLACE(size, size);
TBC_SAME_PLACE(magic, magic);
TBC_SAME_PLACE(version, version);
TBC_SAME_PLACE(blocking, blocking);
TBC_SAME_PLACE(cgaClusterSize, cgaClusterSize);
TBC_SAME_PLACE(minCtas, minCTAs);
TBC_SAME_PLACE(maxCtas, maxCTAs);
TBC_SAME_PLACE(netName, netName);
TBC_SAME_PLACE(splitShare, splitShare);

static_assert(equal(CublasCode::Success, CUBLAS_STATUS_SUCCESS));
static_assert(equal(CublasCode::InvalidValue, CUBLAS_STATUS_INVALID_VALUE));
static_assert(equal(CublasCode::NotSupported, CUBLAS_STATUS_NOT_SUPPORTED));
static_assert(equal(CudaType::F32, CUDA_R_32F) && equal(CudaType::F64, CUDA_R_64F));
static_assert(equal(CudaType::F16, CUDA_R_16F) && equal(CudaType::BF16, CUDA_R_16BF));
static_assert(equal(CublasCompute::F32, CUBLAS_COMPUTE_32F));
static_assert(equal(CublasCompute::F64, CUBLAS_COMPUTE_64F));
static_assert(equal(CublasCompute::FastTF32, CUBLAS_COMPUTE_32F_FAST_TF32));
static_assert(equal(CublasOperation::None, CUBLAS_OP_N));
static_assert(equal(CublasOperation::Transpose, CUBLAS_OP_T));
static_assert(equal(MatmulAttribute::TransposeA, CUBLASLT_MATMUL_DESC_TRANSA));
static_assert(equal(MatmulAttribute::TransposeB, CUBLASLT_MATMUL_DESC_TRANSB));
static_assert(equal(MatmulAttribute::Epilogue, CUBLASLT_MATMUL_DESC_EPILOGUE));
static_assert(equal(MatmulAttribute::BiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER));
static_assert(equal(MatmulAttribute::AuxiliaryPointer, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER));
static_assert(equal(CudaType::E4M3, CUDA_R_8F_E4M3) && equal(CudaType::E5M2, CUDA_R_8F_E5M2));
static_assert(equal(MatmulAttribute::ScalePointerA, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER));
static_assert(equal(MatmulAttribute::ScalePointerB, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER));
static_assert(equal(MatmulAttribute::AuxiliaryStride, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD));
static_assert(equal(CublasEpilogue::Default, CUBLASLT_EPILOGUE_DEFAULT));
static_assert(equal(CublasEpilogue::Bias, CUBLASLT_EPILOGUE_BIAS));
static_assert(equal(CublasEpilogue::Gelu, CUBLASLT_EPILOGUE_GELU));
static_assert(equal(CublasEpilogue::GeluBias, CUBLASLT_EPILOGUE_GELU_BIAS));
static_assert(equal(CublasEpilogue::GeluAuxiliary, CUBLASLT_EPILOGUE_GELU_AUX));
static_assert(equal(CublasEpilogue::GeluAuxiliaryBias, CUBLASLT_EPILOGUE_GELU_AUX_BIAS));
static_assert(equal(CublasEpilogue::GeluGradient, CUBLASLT_EPILOGUE_DGELU));
static_assert(equal(LayoutAttribute::Order, CUBLASLT_MATRIX_LAYOUT_ORDER));
static_assert(equal(LayoutAttribute::BatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT));
static_assert(equal(LayoutAttribute::StridedBatchOffset,
                    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET));
static_assert(equal(PreferenceAttribute::MaxWorkspaceBytes,
                    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES));
static_assert(equal(PreferenceAttribute::ReductionSchemeMask,
                    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK));
static_assert(equal(reductionSchemeNone, CUBLASLT_REDUCTION_SCHEME_NONE));
static_assert(sizeof(MatmulAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(MatmulChoice) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(MatmulChoice, workspaceBytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(MatmulChoice, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

#define TBC_TEXT_OF(...) #__VA_ARGS__
#define TBC_TEXT(...) TBC_TEXT_OF(__VA_ARGS__)

TEST(Headers, SymbolsAreThoseOfTheHeadersMacros) {
  // cuda.h maps the old name of a function to a newer form by a macro. If our form is older, the
  // driver still exports it. The two must stay equal for the functions below.
  EXPECT_STREQ(TBC_TEXT(cuMemAlloc), "cuMemAlloc_v2");
  EXPECT_STREQ(TBC_TEXT(cuMemFree), "cuMemFree_v2");
  EXPECT_STREQ(TBC_TEXT(cuMemGetInfo), "cuMemGetInfo_v2");
  EXPECT_STREQ(TBC_TEXT(cuMemcpyHtoDAsync), "cuMemcpyHtoDAsync_v2");
  EXPECT_STREQ(TBC_TEXT(cuMemcpyDtoHAsync), "cuMemcpyDtoHAsync_v2");
  EXPECT_STREQ(TBC_TEXT(cuMemcpyDtoDAsync), "cuMemcpyDtoDAsync_v2");
  EXPECT_STREQ(TBC_TEXT(cuStreamDestroy), "cuStreamDestroy_v2");
  EXPECT_STREQ(TBC_TEXT(cuEventDestroy), "cuEventDestroy_v2");
  EXPECT_STREQ(TBC_TEXT(cuDeviceTotalMem), "cuDeviceTotalMem_v2");
  EXPECT_STREQ(TBC_TEXT(cuDevicePrimaryCtxRelease), "cuDevicePrimaryCtxRelease_v2");
  EXPECT_STREQ(TBC_TEXT(cuStreamBeginCapture), "cuStreamBeginCapture_v2");
  EXPECT_STREQ(TBC_TEXT(cuGraphInstantiate), "cuGraphInstantiateWithFlags");
}

} // namespace
} // namespace tbc::cuda
