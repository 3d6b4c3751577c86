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

/// What a rank does; the result comes back to the test.
using RankFn = std::function<Result<kernels::Tensor>(comm::Communicator &)>;

/// Gloo's ranks share memory, those of GlooSockets do not; each two of GlooHosts say that they are
/// a host. Nccl is this project's half of it, on a
/// NCCL and GPUs that are faked; NcclDevices is all of it, the ranks processes that share the
/// machine's GPUs.
enum class Backend { Simulated, Gloo, GlooSockets, GlooHosts, Nccl, NcclDevices };
std::string name(Backend backend);
/// Those that this machine has. NcclDevices is asked for by TBC_GPU_TESTS=1.
std::vector<Backend> allBackends();

struct RunOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  /// The token of each rank, if they are not to be the same (Gloo).
  std::function<std::string(int64_t rank)> token;
  /// What each rank says its host is (Gloo).
  std::function<std::string(int64_t rank)> hostKey = {};
  comm::ByHost byHost = comm::ByHost::Always; // Gloo
};

/// Runs `function` on each of `numRanks` ranks: as threads, or as processes that meet in a folder
/// of their own. A rank whose process dies gives an error "died". Where all ranks of Nccl end well
/// and yet the fakes complain, rank 0 gives an error that says so.
std::vector<Result<kernels::Tensor>> runRanks(Backend backend, int64_t numRanks,
                                              const RankFn &function, RunOptions options = {});

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_COMM_BACKENDS_H
