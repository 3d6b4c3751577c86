//===- Driver.h - The used functions of the CUDA driver --------------------===//
//
// Part of tbc. Plain C++. Own declarations of a part of cuda.h. A test compares them with it if it
// is installed. Tests replace the table by another one (tests/runtime/cuda/FakeDriver.h).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_DRIVER_H
#define TBC_RUNTIME_CUDA_DRIVER_H

#include "runtime/abi/Status.h"

#include <cstddef>
#include <string>

namespace tbc::cuda {

/// CUresult: the codes used by name; a driver may return others.
enum class DriverCode : int {
  Success = 0,
  InvalidValue = 1,
  OutOfMemory = 2,
  NotInitialized = 3,
  NoDevice = 100,
  InvalidDevice = 101,
  InvalidImage = 200,
  InvalidContext = 201,
  NoBinaryForGpu = 209,
  InvalidHandle = 400,
  NotFound = 500,
  NotReady = 600,
  IllegalAddress = 700,
  LaunchOutOfResources = 701,
  LaunchFailed = 719,
  CaptureUnsupported = 900, // not allowed while a stream is captured
  CaptureInvalidated = 901, // by an earlier error
  CaptureUnjoined = 904,    // a captured stream was not joined
  CaptureIsolation = 905,   // captured work depends on work outside
  CapturedEvent = 907,      // the event was recorded last in a captured stream
};

/// CUdevice_attribute.
enum class DeviceAttribute : int {
  MaxThreadsPerBlock = 1,
  MaxGridDimX = 5,
  MultiprocessorCount = 16,
  ComputeCapabilityMajor = 75,
  ComputeCapabilityMinor = 76,
  MaxSharedMemoryPerBlockOptin = 97,
};

/// CUfunction_attribute.
enum class FunctionAttribute : int {
  MaxThreadsPerBlock = 0,
  StaticSharedBytes = 1,
  NumRegisters = 4,
  MaxDynamicSharedBytes = 8,
};

using DeviceId = int;                      // CUdevice
using DeviceAddress = unsigned long long;  // CUdeviceptr
using ContextHandle = struct ContextTag *; // CUcontext
using StreamHandle = struct StreamTag *;   // CUstream
using EventHandle = struct EventTag *;     // CUevent
using ModuleHandle = struct ModuleTag *;   // CUmodule
using FunctionHandle = struct FunctionTag *;
using GraphHandle = struct GraphTag *;         // CUgraph
using GraphExecHandle = struct GraphExecTag *; // CUgraphExec
using GraphNodeHandle = struct GraphNodeTag *; // CUgraphNode

inline constexpr unsigned streamNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
inline constexpr unsigned eventDefault = 0;       // CU_EVENT_DEFAULT
inline constexpr unsigned eventDisableTiming = 2; // CU_EVENT_DISABLE_TIMING
inline constexpr unsigned hostMemoryPortable = 1; // CU_MEMHOSTALLOC_PORTABLE

/// CUstreamCaptureMode.
enum class CaptureMode : int { Global = 0, ThreadLocal = 1, Relaxed = 2 };

/// CUmemorytype.
enum class MemoryType : int { Device = 2 };

/// CUDA_MEMCPY2D: copies `rows` rows of `widthBytes` within device memory.
struct Copy2D {
  size_t fromXBytes = 0, fromY = 0;
  MemoryType fromType = MemoryType::Device;
  const void *fromHost = nullptr;
  DeviceAddress from = 0;
  void *fromArray = nullptr;
  size_t fromPitchBytes = 0;
  size_t toXBytes = 0, toY = 0;
  MemoryType toType = MemoryType::Device;
  void *toHost = nullptr;
  DeviceAddress to = 0;
  void *toArray = nullptr;
  size_t toPitchBytes = 0;
  size_t widthBytes = 0, rows = 0;
};

/// X(name here, symbol of the driver, parameters ...). The symbols are those behind the macros of
/// cuda.h; drivers keep them forever.
#define TBC_CUDA_DRIVER_FUNCTIONS(X)                                                               \
  X(init, cuInit, unsigned flags)                                                                  \
  X(driverGetVersion, cuDriverGetVersion, int *version)                                            \
  X(getErrorName, cuGetErrorName, DriverCode code, const char **text)                              \
  X(getErrorString, cuGetErrorString, DriverCode code, const char **text)                          \
  X(deviceGetCount, cuDeviceGetCount, int *count)                                                  \
  X(deviceGet, cuDeviceGet, DeviceId *device, int ordinal)                                         \
  X(deviceGetName, cuDeviceGetName, char *name, int length, DeviceId device)                       \
  X(deviceGetAttribute, cuDeviceGetAttribute, int *value, DeviceAttribute attribute,               \
    DeviceId device)                                                                               \
  X(deviceTotalMem, cuDeviceTotalMem_v2, size_t *bytes, DeviceId device)                           \
  X(deviceCanAccessPeer, cuDeviceCanAccessPeer, int *can, DeviceId device, DeviceId peer)          \
  X(primaryContextRetain, cuDevicePrimaryCtxRetain, ContextHandle *context, DeviceId device)       \
  X(primaryContextRelease, cuDevicePrimaryCtxRelease_v2, DeviceId device)                          \
  X(contextSetCurrent, cuCtxSetCurrent, ContextHandle context)                                     \
  X(memAlloc, cuMemAlloc_v2, DeviceAddress *address, size_t bytes)                                 \
  X(memFree, cuMemFree_v2, DeviceAddress address)                                                  \
  X(memGetInfo, cuMemGetInfo_v2, size_t *freeBytes, size_t *totalBytes)                            \
  X(memHostAlloc, cuMemHostAlloc, void **memory, size_t bytes, unsigned flags)                     \
  X(memFreeHost, cuMemFreeHost, void *memory)                                                      \
  X(copyToDevice, cuMemcpyHtoDAsync_v2, DeviceAddress to, const void *from, size_t bytes,          \
    StreamHandle stream)                                                                           \
  X(copyToHost, cuMemcpyDtoHAsync_v2, void *to, DeviceAddress from, size_t bytes,                  \
    StreamHandle stream)                                                                           \
  X(copyWithin, cuMemcpyDtoDAsync_v2, DeviceAddress to, DeviceAddress from, size_t bytes,          \
    StreamHandle stream)                                                                           \
  X(copyRows, cuMemcpy2DAsync_v2, const Copy2D *copy, StreamHandle stream)                         \
  X(fillBytes, cuMemsetD8Async, DeviceAddress to, unsigned char value, size_t bytes,               \
    StreamHandle stream)                                                                           \
  X(streamCreate, cuStreamCreate, StreamHandle *stream, unsigned flags)                            \
  X(streamDestroy, cuStreamDestroy_v2, StreamHandle stream)                                        \
  X(streamSynchronize, cuStreamSynchronize, StreamHandle stream)                                   \
  X(streamWaitEvent, cuStreamWaitEvent, StreamHandle stream, EventHandle event, unsigned flags)    \
  X(streamBeginCapture, cuStreamBeginCapture_v2, StreamHandle stream, CaptureMode mode)            \
  X(streamEndCapture, cuStreamEndCapture, StreamHandle stream, GraphHandle *graph)                 \
  X(graphInstantiate, cuGraphInstantiateWithFlags, GraphExecHandle *exec, GraphHandle graph,       \
    unsigned long long flags)                                                                      \
  X(graphGetNodes, cuGraphGetNodes, GraphHandle graph, GraphNodeHandle *nodes, size_t *count)      \
  X(graphDestroy, cuGraphDestroy, GraphHandle graph)                                               \
  X(graphLaunch, cuGraphLaunch, GraphExecHandle exec, StreamHandle stream)                         \
  X(graphExecDestroy, cuGraphExecDestroy, GraphExecHandle exec)                                    \
  X(eventCreate, cuEventCreate, EventHandle *event, unsigned flags)                                \
  X(eventDestroy, cuEventDestroy_v2, EventHandle event)                                            \
  X(eventRecord, cuEventRecord, EventHandle event, StreamHandle stream)                            \
  X(eventQuery, cuEventQuery, EventHandle event)                                                   \
  X(eventSynchronize, cuEventSynchronize, EventHandle event)                                       \
  X(eventElapsedTime, cuEventElapsedTime, float *milliseconds, EventHandle begin, EventHandle end) \
  X(moduleLoadData, cuModuleLoadDataEx, ModuleHandle *module, const void *image,                   \
    unsigned numOptions, int *options, void **values)                                              \
  X(moduleUnload, cuModuleUnload, ModuleHandle module)                                             \
  X(moduleGetFunction, cuModuleGetFunction, FunctionHandle *function, ModuleHandle module,         \
    const char *name)                                                                              \
  X(functionGetAttribute, cuFuncGetAttribute, int *value, FunctionAttribute attribute,             \
    FunctionHandle function)                                                                       \
  X(functionSetAttribute, cuFuncSetAttribute, FunctionHandle function,                             \
    FunctionAttribute attribute, int value)                                                        \
  X(launchKernel, cuLaunchKernel, FunctionHandle function, unsigned gridX, unsigned gridY,         \
    unsigned gridZ, unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes,       \
    StreamHandle stream, void **arguments, void **extra)

/// The driver as a table of functions. NVIDIA's "CUDA Driver API" describes them.
struct Driver {
#define TBC_DECLARE(name, symbol, ...) DriverCode (*name)(__VA_ARGS__) = nullptr;
  TBC_CUDA_DRIVER_FUNCTIONS(TBC_DECLARE)
#undef TBC_DECLARE
};

/// Checks for a usable driver without starting it, so that processes may still be forked. Errors:
/// Other, if it is missing or older than CUDA 12.0.
Status findDriver();

/// Loads and initializes the machine's driver. Errors: Other, if it is missing, is older than CUDA
/// 12.0, or it finds no device.
Result<Driver> loadDriver();

/// Returns the latest CUDA supported by the driver, e.g. "CUDA 12.4"; empty if it is unknown.
std::string versionOf(const Driver &driver);

/// Returns success or RankFailed. The message has `what`, the driver's name and sentence for the
/// code, and a remedy if one is known.
Status checkDriver(const Driver &driver, DriverCode code, const std::string &what);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_DRIVER_H
