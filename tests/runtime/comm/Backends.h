//===- Backends.h - The same calls on every backend ------------------------===//

#ifndef TBC_TESTS_RUNTIME_COMM_BACKENDS_H
#define TBC_TESTS_RUNTIME_COMM_BACKENDS_H

#include "runtime/comm/Communicator.h"

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace tbc::test {

/// What a rank does; the result comes back to the test.
using RankFn = std::function<Result<kernels::Tensor>(comm::Communicator &)>;

enum class Backend { Simulated, Gloo };
std::string name(Backend backend);

struct RunOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(20);
  /// The token of each rank, if they are not to be the same (Gloo).
  std::function<std::string(int64_t rank)> token;
};

/// Runs `function` on each of `numRanks` ranks: as threads, or as processes that meet in a folder
/// of their own. A rank whose process dies gives an error "died".
std::vector<Result<kernels::Tensor>> runRanks(Backend backend, int64_t numRanks,
                                              const RankFn &function, RunOptions options = {});

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_COMM_BACKENDS_H
