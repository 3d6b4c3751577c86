//===- Network.cpp - Check that ranks can connect ----------------------------===//

#include "tools/doctor/Doctor.h"

#include "runtime/comm/Gloo.h"
#include "runtime/launch/Rendezvous.h"

#include <arpa/inet.h>
#include <cstdio>
#include <netdb.h>
#include <netinet/in.h>
#include <thread>
#include <unistd.h>

namespace tbc::doctor {

using kernels::Tensor;

/// Runs one of two ranks, which add 1 and 2. Returns the seconds of a small all-reduce.
static Result<double> runRank(int64_t rank, int port, const std::string &token) {
  constexpr std::chrono::milliseconds timeout(5000);
  auto store = launch::connectStore("127.0.0.1", port, token, timeout);
  if (!store)
    return store.error();
  comm::GlooOptions options;
  options.timeout = timeout;
  options.token = token;
  auto communicator = comm::connectGloo(rank, 2, **store, options);
  if (!communicator)
    return communicator.error();
  constexpr int count = 20;
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) {
    Tensor mine = Tensor::fromInts({kernels::DType::I64, {1}}, {rank + 1});
    auto sum = (*communicator)->allReduce({0, 1}, comm::ReduceKind::Sum, mine, "the check")->wait();
    if (!sum)
      return sum.error();
    if (sum->data<int64_t>()[0] != 3)
      return Error{ErrorCode::VerificationFailed, "1 + 2 arrived as another number"};
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / count;
}

static Finding ranksMeet() {
  Finding finding{"ranks over loopback", State::Ok, "", ""};
  auto failed = [&](const Error &error) {
    finding.state = State::Problem;
    finding.found = error.message;
    finding.advice = "ranks talk over TCP on 127.0.0.1; see that the interface lo is up (ip link) "
                     "and that no packet filter stops it";
    return finding;
  };
  Result<std::string> token = launch::randomToken();
  if (!token)
    return failed(token.error());
  auto server = launch::StoreServer::listen("127.0.0.1", 0, *token);
  if (!server)
    return failed(server.error());
  (*server)->start();
  int port = (*server)->port();
  Result<double> other = 0.0;
  std::thread thread([&] { other = runRank(1, port, *token); });
  Result<double> first = runRank(0, port, *token);
  thread.join();
  for (const Result<double> *result : {&first, &other})
    if (!*result)
      return failed(result->error());
  char text[64];
  std::snprintf(text, sizeof text, "two met; a small all_reduce takes %.0f us", *first * 1e6);
  finding.found = text;
  return finding;
}

static Finding hostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  Finding finding{"host name", State::Missing, name, ""};
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(name, nullptr, &hints, &list) != 0) {
    finding.found += " has no address";
    finding.advice = "only for jobs on several hosts: add it to DNS or /etc/hosts, or give --init "
                     "and --listen with addresses";
    return finding;
  }
  for (addrinfo *entry = list; entry; entry = entry->ai_next) {
    char text[INET6_ADDRSTRLEN] = "";
    const void *address =
        entry->ai_family == AF_INET
            ? static_cast<const void *>(&reinterpret_cast<sockaddr_in *>(entry->ai_addr)->sin_addr)
            : &reinterpret_cast<sockaddr_in6 *>(entry->ai_addr)->sin6_addr;
    inet_ntop(entry->ai_family, address, text, sizeof text);
    std::string found = text;
    finding.found += " " + found;
    if (found.rfind("127.", 0) != 0 && found != "::1")
      finding.state = State::Ok;
  }
  freeaddrinfo(list);
  if (finding.state != State::Ok)
    finding.advice = "only for jobs on several hosts: others cannot reach it by this name; give "
                     "--init and --listen with addresses";
  return finding;
}

std::vector<Finding> examineNetwork() { return {ranksMeet(), hostName()}; }

} // namespace tbc::doctor
