//===- local_links_test.cpp - Shared memory between ranks of a host -----------===//

#include "runtime/comm/LocalLinks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

namespace tbc::test {
namespace {

using comm::LocalLinker;
using comm::LocalLinks;
using comm::Ring;

std::string proof(int64_t from, int64_t to) {
  return "secret " + std::to_string(from) + " " + std::to_string(to);
}

/// Returns the links of ranks 0 and 1, each made by a thread.
std::vector<Result<LocalLinks>>
linkTwo(const LocalLinker::ProofFn &proofOfOne,
        const std::function<void(const std::string &)> &before = {},
        std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  LocalLinker zero(0, proof, timeout), one(1, proofOfOne, timeout);
  std::map<int64_t, std::string> addresses = {{0, zero.listen()}, {1, one.listen()}};
  if (before)
    before(addresses[0]);
  std::vector<Result<LocalLinks>> results;
  results.emplace_back(LocalLinks());
  results.emplace_back(LocalLinks());
  std::thread other([&] { results[1] = one.link(addresses); });
  results[0] = zero.link(addresses);
  other.join();
  return results;
}

TEST(LocalLinks, CarryBytesBothWays) {
  auto results = linkTwo(proof);
  ASSERT_TRUE(bool(results[0])) << results[0].error().message;
  ASSERT_TRUE(bool(results[1])) << results[1].error().message;
  comm::LocalLink &zero = *results[0]->at(1), &one = *results[1]->at(0);
  // More than the ring holds, several times over.
  std::vector<unsigned char> sent(5 << 20), received(5 << 20);
  for (size_t i = 0; i < sent.size(); ++i)
    sent[i] = static_cast<unsigned char>(i * 31 + i / 997);
  for (auto [out, in] : {std::pair(&zero.out, &one.in), std::pair(&one.out, &zero.in)}) {
    int64_t written = 0, read = 0, size = int64_t(sent.size());
    while (read < size) {
      int64_t step = out->write(sent.data() + written, size - written);
      written += step;
      int64_t got = in->read(received.data() + read, std::min<int64_t>(size - read, 12345));
      ASSERT_GE(got, 0);
      read += got;
      ASSERT_TRUE(step > 0 || got > 0) << "after " << read;
    }
    EXPECT_TRUE(sent == received);
    std::fill(received.begin(), received.end(), 0);
  }
}

TEST(LocalLinks, TheEndOfARankShows) {
  auto results = linkTwo(proof);
  ASSERT_TRUE(bool(results[0]) && bool(results[1]));
  comm::LocalLink &zero = *results[0]->at(1);
  zero.drain();
  EXPECT_FALSE(zero.isGone);
  results[1]->at(0)->wake();
  zero.drain();
  EXPECT_FALSE(zero.isGone);
  results[1]->clear();
  zero.drain();
  EXPECT_TRUE(zero.isGone);
  zero.wake(); // which does no harm
}

TEST(LocalLinks, ARankWithAnotherSecretIsRefused) {
  auto results =
      linkTwo([](int64_t from, int64_t to) { return "Secret" + proof(from, to).substr(6); }, {},
              std::chrono::milliseconds(300));
  EXPECT_FALSE(bool(results[0]));
  EXPECT_FALSE(bool(results[1]));
}

TEST(LocalLinks, AStrangerIsSentAway) {
  int stranger = -1;
  auto knock = [&](const std::string &name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    stranger = socket(AF_UNIX, SOCK_STREAM, 0);
    ASSERT_EQ(connect(stranger, reinterpret_cast<sockaddr *>(&address),
                      socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
              0);
    std::string hello(100, 'x');
    ASSERT_EQ(send(stranger, hello.data(), hello.size(), 0), ssize_t(hello.size()));
  };
  auto results = linkTwo(proof, knock);
  EXPECT_TRUE(bool(results[0]));
  EXPECT_TRUE(bool(results[1]));
  char byte = 0;
  EXPECT_LE(recv(stranger, &byte, 1, 0), 0);
  close(stranger);
}

TEST(Ring, NonsenseOfTheOtherSideIsAnError) {
  alignas(64) static unsigned char memory[sizeof(comm::RingHead) + 256];
  Ring ring(memory, 256);
  unsigned char bytes[300] = {};
  EXPECT_EQ(ring.read(bytes, 10), 0);
  reinterpret_cast<comm::RingHead *>(memory)->written = 257;
  EXPECT_LT(ring.read(bytes, 10), 0);
  EXPECT_EQ(ring.write(bytes, 10), 0);
}

} // namespace
} // namespace tbc::test
