//===- StoreServer.cpp - Serves a store on a socket ------------------------===//

#include "runtime/abi/Sha256.h"
#include "runtime/launch/Frames.h"
#include "runtime/launch/Say.h"
#include "runtime/launch/Sockets.h"
#include "runtime/launch/Stores.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <list>
#include <map>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>

namespace tbc::launch {

using Clock = std::chrono::steady_clock;

Result<std::string> randomToken() {
  unsigned char bytes[32];
  if (getrandom(bytes, sizeof bytes, 0) != ssize_t(sizeof bytes)) // needs no file descriptor
    return Error{ErrorCode::Other, "cannot read random numbers of the system"};
  std::string text;
  for (unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

namespace {

/// The time limit for a client to prove the token. A rank that is cut off connects again
/// (connectStore).
constexpr std::chrono::seconds greetingTime(5);
/// The time for ranks to hear that the job was given up.
constexpr std::chrono::seconds farewellTime(2);
constexpr size_t maxClients = 4096;

/// Returns the limit for clients without a proven token: at most 256, and at most a quarter of the
/// process's file descriptors, to leave the rest to the job. Example: a limit of 128 descriptors
/// gives 32.
size_t maxStrangers() {
  rlimit limit{};
  bool isKnown = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return isKnown ? size_t(std::clamp<rlim_t>(limit.rlim_cur / 4, 1, 256)) : 256;
}

struct Client {
  Descriptor socket;
  std::string in, out, nonce;
  bool isTrusted = false, isClosing = false;
  Clock::time_point greetUntil;
  /// The key it waits for; empty if it does not wait.
  std::string key;
  Clock::time_point getUntil;
};

class Server : public StoreServer {
public:
  Server(Descriptor socket, int port, std::string token)
      : socket(std::move(socket)), boundPort(port), token(std::move(token)) {}
  ~Server() override {
    if (!thread.joinable())
      return;
    isStopping = true;
    if (::write(wakeWrite.get(), "", 1) < 0)
      std::perror("tbc: store"); // the next event would also wake the thread
    thread.join();
  }
  int port() const override { return boundPort; }
  void start() override {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
      return sayLimit(); // no descriptor left: clients will time out and say so
    wakeRead.reset(ends[0]);
    wakeWrite.reset(ends[1]);
    thread = std::thread([this] { serve(); });
  }
  void forget() override { socket.reset(); }

private:
  void serve();
  bool mayStop(Clock::time_point stopBegan) const;
  void accept();
  void sayLimit();
  bool acceptOne();
  bool dropOldestStranger();
  void read(Client &client);
  void greet(Client &client, const Fields &fields);
  void answer(Client &client, const Fields &fields);
  void answerGet(Client &client);
  void reply(Client &client, const Fields &fields);
  static void write(Client &client);

  Descriptor socket, wakeRead, wakeWrite;
  int boundPort;
  std::string token;
  std::thread thread;
  std::atomic<bool> isStopping{false};
  std::list<Client> clients; // oldest first
  const size_t strangerLimit = maxStrangers();
  bool hasSaidLimit = false;
  bool isFull = false; // no descriptor left for another client
  std::map<std::string, std::string> values;
  Fields aborted; // the reply after the job was given up
};

bool Server::mayStop(Clock::time_point stopBegan) const {
  // Waiting clients get the reason before the server stops.
  bool everyoneKnows = aborted.empty() || clients.empty();
  return everyoneKnows || Clock::now() - stopBegan > farewellTime;
}

void Server::serve() {
  Clock::time_point stopBegan{};
  while (true) {
    if (isStopping && stopBegan == Clock::time_point{})
      stopBegan = Clock::now();
    if (isStopping && mayStop(stopBegan))
      return;
    // poll ignores a negative descriptor. Otherwise clients that cannot be accepted would wake this
    // thread in vain.
    std::vector<pollfd> polled = {{isFull ? -1 : socket.get(), POLLIN, 0},
                                  {wakeRead.get(), POLLIN, 0}};
    isFull = false;
    for (Client &client : clients)
      polled.push_back(
          {client.socket.get(), short(POLLIN | (client.out.empty() ? 0 : POLLOUT)), 0});
    if (::poll(polled.data(), nfds_t(polled.size()), 50) < 0 && errno != EINTR)
      return;
    size_t i = 2;
    for (Client &client : clients) {
      short events = polled[i++].revents;
      if (events & (POLLIN | POLLHUP | POLLERR))
        read(client);
      if (!client.key.empty())
        answerGet(client);
      if (!client.out.empty())
        write(client);
      if (!client.isTrusted && Clock::now() > client.greetUntil)
        client.socket.reset();
    }
    clients.remove_if([](const Client &client) { return !client.socket; });
    if (polled[0].revents & POLLIN)
      accept();
    char drained[16];
    while (::read(wakeRead.get(), drained, sizeof drained) > 0)
      ;
  }
}

/// Accepts waiting clients in batches, so that greetings of earlier ones are read in between.
void Server::accept() {
  constexpr int most = 64;
  for (int i = 0; i < most && acceptOne(); ++i)
    ;
}

/// Closes the oldest connection without a proven token; returns false if there is none.
bool Server::dropOldestStranger() {
  auto oldest = std::find_if(clients.begin(), clients.end(),
                             [](const Client &client) { return !client.isTrusted; });
  if (oldest == clients.end())
    return false;
  clients.erase(oldest);
  return true;
}

/// Says once that ranks wait because of the limit of open files, which they cannot know.
void Server::sayLimit() {
  hasSaidLimit = true;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  say("the rendezvous takes no more ranks, because this process has too many open files for its "
      "limit of " +
      std::to_string(limit.rlim_cur) + "; raise the limit (ulimit -n)");
}

/// Returns whether a client was taken from the queue, so that there may be more.
bool Server::acceptOne() {
  int fd = accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    bool isOut = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (errno == EMFILE && !hasSaidLimit)
      sayLimit();
    if (isOut && dropOldestStranger())
      return true;
    isFull = isOut;
    return false;
  }
  Descriptor accepted(fd);
  auto numStrangers = size_t(std::count_if(clients.begin(), clients.end(),
                                           [](const Client &client) { return !client.isTrusted; }));
  if (numStrangers >= strangerLimit || clients.size() >= maxClients)
    if (!dropOldestStranger())
      return true; // already as many ranks as can be served
  Result<std::string> nonce = randomToken();
  if (!nonce)
    return true;
  Client &client = clients.emplace_back();
  client.socket = std::move(accepted);
  client.nonce = *nonce;
  client.greetUntil = Clock::now() + greetingTime;
  reply(client, {"tbc-store 1", client.nonce});
  return true;
}

void Server::read(Client &client) {
  char chunk[4096];
  while (client.socket) {
    ssize_t count = ::recv(client.socket.get(), chunk, sizeof chunk, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
      break;
    if (count <= 0)
      return client.socket.reset();
    client.in.append(chunk, size_t(count));
    uint32_t limit = client.isTrusted ? maxFrameBytes : maxGreetingBytes;
    while (client.socket && client.in.size() >= 4) {
      uint32_t length = lengthAt(client.in, 0);
      if (length > limit)
        return client.socket.reset();
      if (client.in.size() - 4 < length)
        break;
      std::optional<Fields> fields = fieldsOf(client.in.substr(4, length));
      client.in.erase(0, 4 + size_t(length));
      if (!fields || fields->empty() || client.isClosing)
        return client.socket.reset();
      client.isTrusted ? answer(client, *fields) : greet(client, *fields);
      limit = client.isTrusted ? maxFrameBytes : maxGreetingBytes;
    }
  }
}

void Server::greet(Client &client, const Fields &fields) {
  if (fields.size() != 2 ||
      !equalInConstantTime(fields[0], hmacSha256Hex(token, "client " + client.nonce))) {
    client.isClosing = true;
    return reply(client, {"refused"});
  }
  client.isTrusted = true;
  reply(client, {"welcome", hmacSha256Hex(token, "server " + fields[1])});
}

void Server::answer(Client &client, const Fields &fields) {
  if (fields[0] == "abort" && fields.size() == 3 && aborted.empty())
    aborted = {"aborted", fields[1], fields[2]};
  if (!aborted.empty())
    return reply(client, aborted);
  if (fields[0] == "claim" && fields.size() == 3)
    return reply(client, {"value", values.emplace(fields[1], fields[2]).first->second});
  if (fields[0] == "get" && fields.size() == 3 && client.key.empty() && !fields[1].empty()) {
    client.key = fields[1];
    client.getUntil = Clock::now() + Timeout(std::strtoll(fields[2].c_str(), nullptr, 10));
    return answerGet(client);
  }
  client.socket.reset();
}

void Server::answerGet(Client &client) {
  auto found = values.find(client.key);
  if (!aborted.empty())
    reply(client, aborted);
  else if (found != values.end())
    reply(client, {"value", found->second});
  else if (Clock::now() >= client.getUntil)
    reply(client, {"timeout"});
  else
    return;
  client.key.clear();
}

void Server::reply(Client &client, const Fields &fields) {
  client.out += frameOf(fields);
  write(client);
}

void Server::write(Client &client) {
  while (client.socket && !client.out.empty()) {
    ssize_t count = ::send(client.socket.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
      return;
    if (count <= 0)
      return client.socket.reset();
    client.out.erase(0, size_t(count));
  }
  if (client.isClosing)
    client.socket.reset();
}

} // namespace

Result<std::unique_ptr<StoreServer>> StoreServer::listen(const std::string &host, int port,
                                                         const std::string &token) {
  bool isTaken = false;
  auto socket = firstOf(host, port, ErrorCode::Other, "listen on", [&](const addrinfo &address) {
    int fd = ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol);
    int on = 1;
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, address.ai_addr, address.ai_addrlen) == 0 && ::listen(fd, 128) == 0 &&
        fcntl(fd, F_SETFL, O_NONBLOCK) == 0)
      return fd;
    int reason = errno;
    isTaken |= reason == EADDRINUSE;
    if (fd >= 0)
      ::close(fd);
    errno = reason;
    return -1;
  });
  if (!socket && isTaken)
    return Error{socket.error().code, socket.error().message + ": " + anotherHasThePort};
  if (!socket)
    return socket.error();
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  getsockname(socket->get(), reinterpret_cast<sockaddr *>(&bound), &length);
  int actual = bound.ss_family == AF_INET6
                   ? ntohs(reinterpret_cast<sockaddr_in6 &>(bound).sin6_port)
                   : ntohs(reinterpret_cast<sockaddr_in &>(bound).sin_port);
  return std::unique_ptr<StoreServer>(std::make_unique<Server>(std::move(*socket), actual, token));
}

} // namespace tbc::launch
