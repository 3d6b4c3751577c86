//===- Rendezvous.cpp - All ranks of a job find and check each other -------===//

#include "runtime/launch/Rendezvous.h"
#include "runtime/launch/Launcher.h"
#include "runtime/launch/Sockets.h"

#include <algorithm>
#include <netinet/in.h>
#include <sys/socket.h>

namespace tbc::launch {

using Clock = std::chrono::steady_clock;

static std::string rankKey(int64_t rank) { return "rank/" + std::to_string(rank); }

/// Returns "HOST, process 123".
static std::string describeProcess() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0)
    return "an unnamed host, process " + std::to_string(getpid());
  return std::string(name) + ", process " + std::to_string(getpid());
}

/// Returns the value of the line "NAME=value" in a rank's handshake; `otherwise` if there is no
/// such line.
static std::string factOf(const std::string &text, const std::string &name,
                          const std::string &otherwise = "nothing") {
  std::string lines = "\n" + text;
  size_t begin = lines.find("\n" + name + "=");
  if (begin == std::string::npos)
    return otherwise;
  begin += name.size() + 2;
  return lines.substr(begin, lines.find('\n', begin) - begin);
}

static Error giveUp(comm::Store &store, Error error) {
  store.abort(error);
  return error;
}

/// Returns the value of `key`, and looks for a request to stop every second. Errors: those of
/// `store`; StoppedOnRequest, which ends the job, with `whom` it waited for; HangDetected at
/// `deadline`.
static Result<std::string> await(comm::Store &store, const std::string &key,
                                 Clock::time_point deadline, const std::string &whom) {
  constexpr Timeout slice(1000);
  while (true) {
    const auto left = std::chrono::duration_cast<Timeout>(deadline - Clock::now());
    Result<std::string> value = store.get(key, std::clamp(left, Timeout(1), slice));
    const bool isTimeout =
        !value && value.error().code == ErrorCode::HangDetected && !store.givenUp();
    if (!isTimeout || left <= slice)
      return value;
    if (stopRequested())
      return giveUp(store,
                    {ErrorCode::StoppedOnRequest, "stopped on request, waiting for " + whom});
  }
}

Status checkIn(comm::Store &store, int64_t rank, int64_t numRanks, const Facts &facts,
               Timeout timeout, const Facts &factsOfSome,
               const std::function<void(int64_t rank)> &waitsFor) {
  Result<std::string> nonce = randomToken();
  if (!nonce)
    return nonce.error();
  std::string mine = "process=" + describeProcess() + "\nnonce=" + *nonce + "\n";
  for (const Facts *list : {&facts, &factsOfSome})
    for (const auto &[name, value] : *list)
      mine += name + "=" + value + "\n";
  Result<std::string> here = store.claim(rankKey(rank), mine);
  if (!here)
    return here.error();
  if (*here != mine)
    // The job of the first one continues.
    return Error{ErrorCode::Usage, "rank " + std::to_string(rank) + " is taken by " +
                                       factOf(*here, "process") + "; this is " + describeProcess()};
  Clock::time_point deadline = Clock::now() + timeout;
  for (int64_t other = 0; other < numRanks; ++other) {
    if (waitsFor)
      waitsFor(other);
    const std::string whom = "rank " + std::to_string(other);
    Result<std::string> theirs = await(store, rankKey(other), deadline, whom);
    if (!theirs && theirs.error().code == ErrorCode::HangDetected)
      return giveUp(store, {ErrorCode::HangDetected, whom + " of " + std::to_string(numRanks) +
                                                         " did not come within " +
                                                         std::to_string(timeout.count()) + " ms"});
    if (!theirs)
      return theirs.error();
    auto check = [&](const std::string &name, const std::string &value, bool isOfAll) -> Status {
      std::string fact = factOf(*theirs, name, isOfAll ? "nothing" : value);
      if (fact == value)
        return Status::ok();
      return giveUp(store,
                    {ErrorCode::Usage, "ranks disagree on the " + name + ": rank " +
                                           std::to_string(rank) + " has " + value + ", rank " +
                                           std::to_string(other) + " has " + fact});
    };
    for (const Facts *list : {&facts, &factsOfSome})
      for (const auto &[name, value] : *list)
        if (Status agreed = check(name, value, list == &facts); !agreed)
          return agreed;
  }
  // Every rank that gets this far has checked all ranks. Wait until all have.
  std::string all = "all/" + std::to_string(rank);
  if (Result<std::string> done = store.claim(all, "agreed"); !done)
    return done.error();
  for (int64_t other = 0; other < numRanks; ++other) {
    if (waitsFor)
      waitsFor(other);
    Result<std::string> agreed =
        await(store, "all/" + std::to_string(other),
              std::max(deadline, Clock::now() + Timeout(1000)), "rank " + std::to_string(other));
    if (!agreed)
      return agreed.error();
  }
  return Status::ok();
}

Result<JobStore> openJobStore(const MeetingPoint &point, int64_t rank, const std::string &token,
                              Timeout timeout) {
  JobStore job;
  if (point.kind == MeetingPoint::Kind::File) {
    auto store = openFileStore(point.path, token);
    if (!store)
      return store.error();
    job.store = std::move(*store);
    return job;
  }
  if (rank == 0) {
    auto server = StoreServer::listen(point.host, point.port, token);
    if (!server)
      return server.error();
    job.server = std::move(*server);
    job.server->start();
  }
  auto store = connectStore(point.host, point.port, token, timeout);
  if (!store)
    return store.error();
  job.store = std::move(*store);
  return job;
}

Result<std::string> ownAddress(const MeetingPoint &point) {
  if (point.kind == MeetingPoint::Kind::File || isLoopback(point.host))
    return std::string("127.0.0.1");
  // Connecting a datagram socket sends no packet; it makes the system choose an address.
  char text[NI_MAXHOST] = {};
  auto socket = firstOf(point.host, point.port, ErrorCode::RankFailed, "find a way to",
                        [&](const addrinfo &address) {
                          int fd = ::socket(address.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
                          sockaddr_storage own{};
                          socklen_t length = sizeof own;
                          if (fd >= 0 && ::connect(fd, address.ai_addr, address.ai_addrlen) == 0 &&
                              getsockname(fd, reinterpret_cast<sockaddr *>(&own), &length) == 0 &&
                              getnameinfo(reinterpret_cast<sockaddr *>(&own), length, text,
                                          sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
                            return fd;
                          if (fd >= 0)
                            ::close(fd);
                          return -1;
                        });
  if (!socket)
    return socket.error();
  return std::string(text);
}

} // namespace tbc::launch
