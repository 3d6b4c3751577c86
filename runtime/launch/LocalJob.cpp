//===- LocalJob.cpp - A job with all ranks on this machine ------------------===//

#include "runtime/launch/LocalJob.h"

namespace tbc::launch {

Result<int> launchLocalJob(int64_t numRanks, Timeout timeout,
                           const std::function<int(const LocalRank &)> &body) {
  Result<std::string> token = randomToken();
  if (!token)
    return token.error();
  // The port is bound before it is announced.
  auto server = StoreServer::listen("127.0.0.1", 0, *token);
  if (!server)
    return server.error();
  int port = (*server)->port();
  auto inRank = [&](int64_t rank) {
    (*server)->forget();
    LocalRank start;
    start.rank = rank;
    start.token = *token;
    start.openStore = [&]() -> Result<JobStore> {
      auto store = connectStore("127.0.0.1", port, *token, timeout);
      if (!store)
        return store.error();
      JobStore job;
      job.store = std::move(*store);
      return job;
    };
    return body(start);
  };
  LaunchOptions options;
  options.numRanks = numRanks;
  return launch(options, inRank, [&] { (*server)->start(); });
}

} // namespace tbc::launch
