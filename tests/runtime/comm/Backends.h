//===- Backends.h - The same calls on every backend ------------------------===//

#ifndef TBC_TESTS_RUNTIME_COMM_BACKENDS_H
#define TBC_TESTS_RUNTIME_COMM_BACKENDS_H

#include "runtime/comm/Communicator.h"
#include "runtime/comm/Gloo.h"

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace tbc::test {

/// The body of a rank. Its result is returned to the test.
using RankFn = std::function<Result<kernels::Tensor>(comm::Communicator &)>;

/// Backends:
///
/// - Gloo: ranks share memory. GlooSockets: they do not. GlooHosts: two ranks per host.
/// - Nccl: this project's part, on a faked NCCL and faked GPUs.
/// - NcclDevices: the real NCCL. Ranks are processes that share the machine's GPUs.
enum class Backend { Simulated, Gloo, GlooSockets, GlooHosts, Nccl, NcclDevices };
std::string name(Backend backend);
/// Returns the backends of this machine. NcclDevices also needs TBC_GPU_TESTS=1.
std::vector<Backend> allBackends();

struct RunOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  /// Returns the token of each rank, if they differ (Gloo).
  std::function<std::string(int64_t rank)> token;
  /// Returns the host key of each rank (Gloo).
  std::function<std::string(int64_t rank)> hostKey = {};
  comm::ByHost byHost = comm::ByHost::Always; // Gloo
};

/// Runs `function` on each of `numRanks` ranks, as threads or as processes that meet in a temporary
/// folder. A rank whose process dies gives an error "died". If all Nccl ranks succeed but the fakes
/// have complaints, rank 0 gives an error.
std::vector<Result<kernels::Tensor>> runRanks(Backend backend, int64_t numRanks,
                                              const RankFn &function, RunOptions options = {});

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_COMM_BACKENDS_H
