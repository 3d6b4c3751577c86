//===- StoreClient.cpp - A store behind a socket ---------------------------===//

#include "runtime/abi/Sha256.h"
#include "runtime/launch/Frames.h"
#include "runtime/launch/Launcher.h"
#include "runtime/launch/Sockets.h"
#include "runtime/launch/Stores.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <thread>

namespace tbc::launch {

using Clock = std::chrono::steady_clock;

namespace {

class Client : public comm::Store {
public:
  Client(Descriptor socket, std::string where)
      : socket(std::move(socket)), where(std::move(where)) {}

  /// Proves to each other that both know the token. Does not wait beyond `deadline`.
  Status greet(const std::string &token, Clock::time_point deadline);
  /// Returns whether the server closed the connection before it said anything of substance. It then
  /// had too many clients without a proven token, so the client should try again.
  bool wasCutOff() const { return isCutOff; }

  Result<std::string> claim(const std::string &key, const std::string &value) override {
    return ask({"claim", key, value}, Timeout(0), key);
  }
  Result<std::string> get(const std::string &key, Timeout timeout) override {
    return ask({"get", key, std::to_string(timeout.count())}, timeout, key);
  }
  std::optional<Error> givenUp() override { return aborted; }
  void abort(const Error &error) override {
    // Even if it is not heard, the job is over for this rank.
    (void)ask({"abort", std::to_string(int(error.code)), error.message}, Timeout(0), "");
  }

private:
  Result<std::string> ask(const Fields &request, Timeout timeout, const std::string &key);
  Result<Fields> exchange(const Fields &request, Timeout patience);
  Result<Fields> receive(Timeout patience);
  Error lost(const std::string &why) const {
    return {ErrorCode::RankFailed, "the rendezvous at " + where + ": " + why};
  }
  Error foreign() const {
    return lost(std::string("what answers there is not a rendezvous of tbc: ") + anotherHasThePort);
  }

  Descriptor socket;
  std::string where;
  bool isCutOff = false, isSilent = false;
  std::optional<Error> aborted; // as reported by the server
};

/// The extra time for an answer, beyond the time that the server was told to wait.
constexpr Timeout slack(10000);
/// The longest wait for the greeting. A rendezvous greets at once; others may wait for a request.
constexpr Timeout greetingPatience(10000);

Result<Fields> Client::receive(Timeout patience) {
  timeval limit{};
  limit.tv_sec = patience.count() / 1000;
  limit.tv_usec = patience.count() % 1000 * 1000;
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  auto readExactly = [&](size_t count) -> Result<std::string> {
    std::string text(count, '\0');
    for (size_t done = 0; done < count;) {
      ssize_t got = ::recv(socket.get(), text.data() + done, count - done, 0);
      if (got < 0 && errno == EINTR)
        continue;
      isCutOff = got == 0 || (got < 0 && errno == ECONNRESET);
      isSilent = got < 0 && errno == EAGAIN;
      if (got == 0)
        return lost("it has closed the connection");
      if (got < 0)
        return lost(isSilent ? "no answer" : strerror(errno));
      done += size_t(got);
    }
    return text;
  };
  Result<std::string> head = readExactly(4);
  if (!head)
    return head.error();
  uint32_t length = lengthAt(*head, 0);
  if (length > maxFrameBytes)
    return foreign();
  Result<std::string> body = readExactly(length);
  if (!body)
    return body.error();
  std::optional<Fields> fields = fieldsOf(*body);
  if (!fields || fields->empty())
    return foreign();
  return *fields;
}

Result<Fields> Client::exchange(const Fields &request, Timeout patience) {
  std::string frame = frameOf(request);
  for (size_t done = 0; done < frame.size();) {
    ssize_t count = ::send(socket.get(), frame.data() + done, frame.size() - done, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR)
      continue;
    isCutOff = count < 0 && (errno == EPIPE || errno == ECONNRESET);
    if (count < 0)
      return lost(strerror(errno));
    done += size_t(count);
  }
  return receive(patience);
}

Result<std::string> Client::ask(const Fields &request, Timeout timeout, const std::string &key) {
  Result<Fields> answer = exchange(request, timeout + slack);
  if (!answer)
    return answer.error();
  const Fields &fields = *answer;
  if (fields[0] == "value" && fields.size() == 2)
    return fields[1];
  if (fields[0] == "aborted" && fields.size() == 3) {
    aborted = Error{ErrorCode(std::atoi(fields[1].c_str())), fields[2]};
    return *aborted;
  }
  if (fields[0] == "timeout")
    return Error{ErrorCode::HangDetected,
                 "waited " + std::to_string(timeout.count()) + " ms for \"" + key + "\""};
  return lost("an answer that is none: " + fields[0]);
}

Status Client::greet(const std::string &token, Clock::time_point deadline) {
  auto left = [&] {
    auto time = std::chrono::duration_cast<Timeout>(deadline - Clock::now());
    return std::max(time, Timeout(1)); // 0 would mean forever
  };
  const Timeout patience = std::min(left(), greetingPatience);
  Result<Fields> hello = receive(patience);
  if (!hello && isSilent)
    return lost("no greeting within " + std::to_string(patience.count()) +
                " ms: " + anotherHasThePort);
  if (!hello)
    return hello.error();
  if (hello->size() != 2 || (*hello)[0] != "tbc-store 1")
    return foreign();
  Result<std::string> nonce = randomToken();
  if (!nonce)
    return nonce.error();
  Result<Fields> answer = exchange({hmacSha256Hex(token, "client " + (*hello)[1]), *nonce}, left());
  if (!answer)
    return answer.error();
  if ((*answer)[0] == "refused")
    return lost("it refuses the token of this rank: ranks of one job need the same "
                "TBC_JOB_TOKEN, or another job uses this port");
  if (answer->size() != 2 || (*answer)[0] != "welcome" ||
      !equalInConstantTime((*answer)[1], hmacSha256Hex(token, "server " + *nonce)))
    return lost("it does not know the token of this job");
  return Status::ok();
}

} // namespace

/// Returns whether a socket is connected to itself. If no server listens on a local port yet, the
/// system may choose this port for the client's end, which then keeps the server from it.
static bool isOwnEnd(int socket) {
  sockaddr_storage own{}, other{};
  socklen_t ownLength = sizeof own, otherLength = sizeof other;
  return getsockname(socket, reinterpret_cast<sockaddr *>(&own), &ownLength) == 0 &&
         getpeername(socket, reinterpret_cast<sockaddr *>(&other), &otherLength) == 0 &&
         ownLength == otherLength && std::memcmp(&own, &other, ownLength) == 0;
}

Result<std::unique_ptr<comm::Store>> connectStore(const std::string &host, int port,
                                                  const std::string &token, Timeout timeout) {
  Clock::time_point deadline = Clock::now() + timeout;
  while (true) {
    auto socket = firstOf(
        host, port, ErrorCode::RankFailed, "reach the rendezvous at", [](const addrinfo &address) {
          int fd =
              ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol);
          bool isConnected = fd >= 0 && ::connect(fd, address.ai_addr, address.ai_addrlen) == 0;
          if (isConnected && !isOwnEnd(fd))
            return fd;
          int reason = isConnected ? ECONNREFUSED : errno;
          if (fd >= 0)
            ::close(fd);
          errno = reason;
          return -1;
        });
    Error error;
    if (socket) {
      auto client = std::make_unique<Client>(std::move(*socket), host + ":" + std::to_string(port));
      Status status = client->greet(token, deadline);
      if (status)
        return std::unique_ptr<comm::Store>(std::move(client));
      if (!client->wasCutOff())
        return status.error();
      error = status.error();
      error.message += std::string(" again and again: it is full, or ") + anotherHasThePort;
    } else {
      error = socket.error();
    }
    if (Clock::now() >= deadline)
      return error;
    if (stopRequested())
      return Error{ErrorCode::StoppedOnRequest,
                   "stopped on request, waiting for the rendezvous at " + host + ":" +
                       std::to_string(port)};
    std::this_thread::sleep_for(Timeout(20)); // the server may not listen yet
  }
}

} // namespace tbc::launch
