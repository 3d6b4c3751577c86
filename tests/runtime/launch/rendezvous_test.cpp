//===- rendezvous_test.cpp - Ranks find and check each other ---------------===//

#include "runtime/launch/Rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <filesystem>
#include <functional>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace tbc::launch {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

/// A store of each kind, with threads as ranks.
class Stores : public testing::TestWithParam<bool> {
protected:
  void SetUp() override {
    folder = (std::filesystem::temp_directory_path() / "tbc-store-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    if (!GetParam())
      return;
    auto listening = StoreServer::listen("127.0.0.1", 0, "secret");
    ASSERT_TRUE(bool(listening));
    server = std::move(*listening);
    server->start();
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  Result<std::unique_ptr<comm::Store>> open(const std::string &token = "secret") {
    return GetParam() ? connectStore("127.0.0.1", server->port(), token, milliseconds(60000))
                      : openFileStore(folder + "/job", token);
  }
  /// Calls `checkIn` for one rank per list of facts, each in a thread. `ofSome`: facts known to
  /// some ranks only.
  std::vector<Status> checkAll(const std::vector<std::pair<int64_t, Facts>> &ranks,
                               int64_t numRanks, const std::vector<Facts> &ofSome = {},
                               milliseconds timeout = milliseconds(60000)) {
    std::vector<Status> results(ranks.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks.size(); ++i)
      threads.emplace_back([&, i] {
        auto store = open();
        results[i] = store ? checkIn(**store, ranks[i].first, numRanks, ranks[i].second, timeout,
                                     ofSome.empty() ? Facts() : ofSome[i])
                           : Status(store.error());
      });
    for (std::thread &thread : threads)
      thread.join();
    return results;
  }

  std::string folder;
  std::unique_ptr<StoreServer> server;
};

TEST_P(Stores, TheFirstValueCounts) {
  auto a = open(), b = open();
  ASSERT_TRUE(a && b);
  EXPECT_EQ(*(*a)->claim("k/1", "one"), "one");
  EXPECT_EQ(*(*b)->claim("k/1", "two"), "one");
  EXPECT_EQ(*(*b)->get("k/1", milliseconds(0)), "one");
  std::string binary("\0\n\xff", 3);
  EXPECT_EQ(*(*a)->claim("binary", binary), binary);
}

TEST_P(Stores, AGetWaits) {
  auto a = open(), b = open();
  ASSERT_TRUE(a && b);
  std::thread later([&] {
    usleep(100000);
    (void)(*b)->claim("late", "here");
  });
  EXPECT_EQ(*(*a)->get("late", milliseconds(60000)), "here");
  later.join();
  auto never = (*a)->get("never", milliseconds(50));
  EXPECT_EQ(never.error().code, ErrorCode::HangDetected);
  EXPECT_THAT(never.error().message, HasSubstr("never"));
}

TEST_P(Stores, AnAbortEndsEveryWait) {
  auto a = open(), b = open();
  ASSERT_TRUE(a && b);
  std::thread later([&] {
    usleep(100000);
    (*b)->abort({ErrorCode::Usage, "no good"});
  });
  auto never = (*a)->get("never", milliseconds(60000));
  later.join();
  EXPECT_EQ(never.error().code, ErrorCode::Usage);
  EXPECT_EQ(never.error().message, "no good");
}

TEST_P(Stores, AnotherTokenIsRefused) {
  auto mine = open();
  ASSERT_TRUE(bool(mine));
  ASSERT_TRUE(bool((*mine)->claim("k", "v")));
  auto store = open("wrong");
  Error error = store ? (*store)->get("k", milliseconds(10)).error() : store.error();
  EXPECT_EQ(error.code, ErrorCode::RankFailed);
  EXPECT_THAT(error.message, HasSubstr("token"));
}

TEST_P(Stores, RanksThatAgreeGoOn) {
  Facts facts = {{"program", "abc"}, {"world size", "3"}};
  for (const Status &status : checkAll({{0, facts}, {1, facts}, {2, facts}}, 3))
    EXPECT_TRUE(bool(status)) << status.error().message;
}

TEST_P(Stores, RanksThatDisagreeAllStop) {
  Facts facts = {{"program", "abc"}}, others = {{"program", "xyz"}};
  for (const Status &status : checkAll({{0, facts}, {1, others}, {2, facts}}, 3)) {
    ASSERT_FALSE(bool(status));
    EXPECT_EQ(status.error().code, ErrorCode::Usage);
    for (const char *word : {"abc", "xyz", "rank 1"})
      EXPECT_THAT(status.error().message, HasSubstr(word));
  }
}

TEST_P(Stores, FactsOfSomeAreComparedAmongThose) {
  Facts facts = {{"program", "abc"}}, a = {{"device a", "H100"}}, b = {{"device b", "L4"}};
  for (const Status &status : checkAll({{0, facts}, {1, facts}, {2, facts}}, 3, {a, a, b}))
    EXPECT_TRUE(bool(status)) << status.error().message;
}

TEST_P(Stores, FactsOfSomeThatDifferStopAll) {
  Facts facts = {{"program", "abc"}}, a = {{"device a", "H100"}}, b = {{"device b", "L4"}},
        other = {{"device a", "A100"}};
  for (const Status &status : checkAll({{0, facts}, {1, facts}, {2, facts}}, 3, {a, b, other})) {
    ASSERT_FALSE(bool(status));
    EXPECT_EQ(status.error().code, ErrorCode::Usage);
    for (const char *word : {"device a", "H100", "A100"})
      EXPECT_THAT(status.error().message, HasSubstr(word));
  }
}

TEST_P(Stores, ARankTwiceIsRefused) {
  Facts facts = {{"program", "abc"}};
  auto results = checkAll({{0, facts}, {0, facts}}, 1);
  ASSERT_NE(bool(results[0]), bool(results[1])) << "one of them goes on";
  const Status &refused = results[0] ? results[1] : results[0];
  EXPECT_THAT(refused.error().message, HasSubstr("rank 0 is taken by"));
}

TEST_P(Stores, ARankThatDoesNotComeIsNamed) {
  auto results = checkAll({{0, {}}}, 2, {}, milliseconds(200));
  EXPECT_EQ(results[0].error().code, ErrorCode::HangDetected);
  EXPECT_THAT(results[0].error().message, HasSubstr("rank 1 of 2 did not come within 200 ms"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Stores, testing::Bool(),
                         [](const auto &info) { return info.param ? "Tcp" : "File"; });

TEST(FileStores, AFolderThatOthersMayWriteToIsRefused) {
  std::string folder = (std::filesystem::temp_directory_path() / "tbc-store-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  EXPECT_TRUE(bool(openFileStore(folder, "secret")));
  std::filesystem::permissions(folder, std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  auto store = openFileStore(folder, "secret");
  std::filesystem::remove_all(folder);
  ASSERT_FALSE(bool(store));
  EXPECT_THAT(store.error().message, HasSubstr("can be written by others"));
}

TEST(StoreServers, ATakenPortIsAnError) {
  auto first = StoreServer::listen("127.0.0.1", 0, "a");
  ASSERT_TRUE(bool(first));
  auto second = StoreServer::listen("127.0.0.1", (*first)->port(), "a");
  ASSERT_FALSE(bool(second));
  EXPECT_THAT(second.error().message, HasSubstr("in use"));
  EXPECT_THAT(second.error().message, HasSubstr(std::to_string((*first)->port())));
}

TEST(StoreServers, NobodyThereIsAnError) {
  auto first = StoreServer::listen("127.0.0.1", 0, "a");
  int port = (*first)->port();
  first->reset();
  auto store = connectStore("127.0.0.1", port, "a", milliseconds(100));
  ASSERT_FALSE(bool(store));
  EXPECT_THAT(store.error().message, HasSubstr("refused"));
}

int connectTo(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
  return fd;
}

TEST(StoreServers, StrangersAreCutOff) {
  auto server = StoreServer::listen("127.0.0.1", 0, "a");
  (*server)->start();
  for (const std::string &sent :
       {std::string("GET / HTTP/1.0\r\n\r\n"), std::string("\xff\xff\xff\xff", 4),
        std::string("\0\0\0\0", 4), std::string("\x09\0\0\0\x05\0\0\0claim", 13)}) {
    int fd = connectTo((*server)->port());
    ASSERT_EQ(write(fd, sent.data(), sent.size()), ssize_t(sent.size()));
    std::string answer;
    char chunk[512];
    ssize_t count = 0;
    while ((count = read(fd, chunk, sizeof chunk)) > 0)
      answer.append(chunk, size_t(count));
    close(fd); // the server has closed its end: read reached the end
    EXPECT_EQ(answer.find("welcome"), std::string::npos);
  }
  // The server still accepts ranks of its own run.
  auto store = connectStore("127.0.0.1", (*server)->port(), "a", milliseconds(60000));
  ASSERT_TRUE(bool(store));
  EXPECT_EQ(*(*store)->claim("k", "v"), "v");
}

TEST(StoreServers, IdleStrangersDoNotKeepRanksOut) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = std::min<rlim_t>(512, before.rlim_max); // including both ends of every connection
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    auto server = StoreServer::listen("127.0.0.1", 0, "a");
    ASSERT_TRUE(bool(server));
    (*server)->start();
    // More connections than the server has descriptors, if it kept them.
    std::vector<int> strangers;
    for (int i = 0; i < 300; ++i)
      strangers.push_back(connectTo((*server)->port()));
    auto store = connectStore("127.0.0.1", (*server)->port(), "a", milliseconds(60000));
    ASSERT_TRUE(bool(store)) << store.error().message;
    EXPECT_EQ(*(*store)->claim("k", "v"), "v");
    // The oldest connections were closed first.
    char chunk[256];
    ssize_t count = 0;
    while ((count = read(strangers[0], chunk, sizeof chunk)) > 0)
      ;
    EXPECT_LE(count, 0);
    for (int fd : strangers)
      close(fd);
  }
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(StoreServers, ARankThatIsCutOffConnectsAgain) {
  // Closes the first connections, as a server does with too many strangers.
  int listening = socket(AF_INET, SOCK_STREAM, 0);
  int on = 1; // so that another process can listen on the port at once
  ASSERT_EQ(setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(listening, reinterpret_cast<sockaddr *>(&address), length), 0);
  ASSERT_EQ(listen(listening, 8), 0);
  getsockname(listening, reinterpret_cast<sockaddr *>(&address), &length);
  int port = ntohs(address.sin_port);
  std::unique_ptr<StoreServer> server;
  std::thread first([&] {
    for (int i = 0; i < 3; ++i)
      close(accept(listening, nullptr, nullptr));
    close(listening);
    for (int i = 0; i < 6000 && !server; ++i) { // the port may be free a little later
      auto later = StoreServer::listen("127.0.0.1", port, "a");
      if (later)
        server = std::move(*later);
      else
        usleep(10000);
    }
    if (server)
      server->start();
  });
  auto store = connectStore("127.0.0.1", port, "a", milliseconds(60000));
  first.join();
  ASSERT_TRUE(server != nullptr);
  ASSERT_TRUE(bool(store)) << store.error().message;
  EXPECT_EQ(*(*store)->claim("k", "v"), "v");
}

/// Connects to a service that never says anything.
Result<std::unique_ptr<comm::Store>> connectToSilence(milliseconds timeout) {
  int listening = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(bind(listening, reinterpret_cast<sockaddr *>(&address), length), 0);
  EXPECT_EQ(listen(listening, 8), 0);
  getsockname(listening, reinterpret_cast<sockaddr *>(&address), &length);
  auto store = connectStore("127.0.0.1", ntohs(address.sin_port), "a", timeout);
  close(listening);
  return store;
}

TEST(StoreServers, WhoNeverAnswersIsGivenUpWithinTheTimeout) {
  auto store = connectToSilence(milliseconds(300));
  ASSERT_FALSE(bool(store));
  EXPECT_EQ(store.error().code, ErrorCode::RankFailed);
  EXPECT_THAT(store.error().message, HasSubstr("no greeting within "));
  EXPECT_THAT(store.error().message, HasSubstr(": another program has this port; choose a free"));
}

TEST(StoreServers, ASilentServiceIsGivenUpLongBeforeALongTimeout) {
  auto store = connectToSilence(std::chrono::minutes(10));
  ASSERT_FALSE(bool(store));
  EXPECT_EQ(store.error().code, ErrorCode::RankFailed);
  EXPECT_THAT(store.error().message, HasSubstr("no greeting within 10000 ms: another program has"));
}

TEST(StoreServers, ATakenPortIsSaidWithARemedy) {
  auto first = StoreServer::listen("127.0.0.1", 0, "a");
  ASSERT_TRUE(bool(first));
  auto second = StoreServer::listen("127.0.0.1", (*first)->port(), "a");
  ASSERT_FALSE(bool(second));
  EXPECT_EQ(second.error().code, ErrorCode::Other);
  EXPECT_THAT(second.error().message,
              HasSubstr(": Address already in use: another program has this port; choose a free"));
}

} // namespace
} // namespace tbc::launch
