//===- Nccl.h - The used functions of NCCL ---------------------------------===//
//
// Part of tbc. Plain C++. Own declarations of a part of nccl.h. A test compares them with it if it
// is installed. Tests replace the table by another one (tests/runtime/cuda/FakeNccl.h).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_NCCL_H
#define TBC_RUNTIME_CUDA_NCCL_H

#include "runtime/cuda/Driver.h"

#include <climits>

namespace tbc::cuda {

/// ncclResult_t.
enum class NcclCode : int {
  Success = 0,
  UnhandledCudaError = 1,
  SystemError = 2,
  InternalError = 3,
  InvalidArgument = 4,
  InvalidUsage = 5,
  RemoteError = 6,
  InProgress = 7,
};

/// ncclDataType_t.
enum class NcclType : int {
  I8 = 0,
  U8 = 1,
  I32 = 2,
  U32 = 3,
  I64 = 4,
  U64 = 5,
  F16 = 6,
  F32 = 7,
  F64 = 8,
  BF16 = 9,
};

/// ncclRedOp_t; NCCL makes others.
enum class NcclOp : int { Sum = 0, Product = 1, Max = 2, Min = 3, Avg = 4 };

/// ncclScalarResidence_t.
enum class NcclResidence : int { Device = 0, Host = 1 };

using NcclHandle = struct NcclTag *; // ncclComm_t

struct NcclId {
  char bytes[128];
};

/// ncclConfig_t of version 2.18, the oldest that splits communicators. Newer versions also read
/// this form, by its size and version.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = INT_MIN; // INT_MIN: not set
  int cgaClusterSize = INT_MIN;
  int minCtas = INT_MIN;
  int maxCtas = INT_MIN;
  const char *netName = nullptr;
  int splitShare = INT_MIN;
};

/// X(name here, symbol, parameters ...); all return ncclResult_t.
#define TBC_NCCL_FUNCTIONS(X)                                                                      \
  X(getVersion, ncclGetVersion, int *version)                                                      \
  X(getUniqueId, ncclGetUniqueId, NcclId *id)                                                      \
  X(initRank, ncclCommInitRankConfig, NcclHandle *comm, int numRanks, NcclId id, int rank,         \
    NcclConfig *config)                                                                            \
  X(split, ncclCommSplit, NcclHandle comm, int color, int key, NcclHandle *part,                   \
    NcclConfig *config)                                                                            \
  X(destroy, ncclCommDestroy, NcclHandle comm)                                                     \
  X(abort, ncclCommAbort, NcclHandle comm)                                                         \
  X(getAsyncError, ncclCommGetAsyncError, NcclHandle comm, NcclCode *code)                         \
  X(createPremulSum, ncclRedOpCreatePreMulSum, NcclOp *op, void *scalar, NcclType type,            \
    NcclResidence residence, NcclHandle comm)                                                      \
  X(destroyOp, ncclRedOpDestroy, NcclOp op, NcclHandle comm)                                       \
  X(allReduce, ncclAllReduce, const void *from, void *to, size_t count, NcclType type, NcclOp op,  \
    NcclHandle comm, StreamHandle stream)                                                          \
  X(broadcast, ncclBroadcast, const void *from, void *to, size_t count, NcclType type, int root,   \
    NcclHandle comm, StreamHandle stream)                                                          \
  X(allGather, ncclAllGather, const void *from, void *to, size_t countOfOne, NcclType type,        \
    NcclHandle comm, StreamHandle stream)                                                          \
  X(reduceScatter, ncclReduceScatter, const void *from, void *to, size_t countOfOne,               \
    NcclType type, NcclOp op, NcclHandle comm, StreamHandle stream)                                \
  X(send, ncclSend, const void *from, size_t count, NcclType type, int peer, NcclHandle comm,      \
    StreamHandle stream)                                                                           \
  X(recv, ncclRecv, void *to, size_t count, NcclType type, int peer, NcclHandle comm,              \
    StreamHandle stream)                                                                           \
  X(groupStart, ncclGroupStart)                                                                    \
  X(groupEnd, ncclGroupEnd)

/// Missing in versions before 2.19.
#define TBC_NCCL_REGISTRATION(X)                                                                   \
  X(memAlloc, ncclMemAlloc, void **memory, size_t bytes)                                           \
  X(memFree, ncclMemFree, void *memory)                                                            \
  X(registerMemory, ncclCommRegister, NcclHandle comm, void *memory, size_t bytes, void **handle)  \
  X(deregister, ncclCommDeregister, NcclHandle comm, void *handle)

/// NCCL as a table of functions. NVIDIA's "NCCL API" describes them.
struct Nccl {
#define TBC_DECLARE(name, symbol, ...) NcclCode (*name)(__VA_ARGS__) = nullptr;
  TBC_NCCL_FUNCTIONS(TBC_DECLARE)
  TBC_NCCL_REGISTRATION(TBC_DECLARE) // all of them, or all null
#undef TBC_DECLARE
  const char *(*getErrorString)(NcclCode code) = nullptr; // ncclGetErrorString
  const char *(*getLastError)(NcclHandle comm) = nullptr; // ncclGetLastError
};

/// Loads the machine's NCCL. Errors: Other, if it is missing or older than 2.18.
Result<Nccl> loadNccl();

/// Returns, for example, "2.21.5"; empty if the version is unknown.
std::string versionOf(const Nccl &nccl);

/// Returns success, or RankFailed with `what`, NCCL's sentence for the code, and its last error
/// about the communicator (null: no communicator).
Status checkNccl(const Nccl &nccl, NcclCode code, NcclHandle comm, const std::string &what);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_NCCL_H
