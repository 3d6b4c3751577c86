//===- diagnosis_test.cpp - Finding the rank that others wait for ------------===//

#include "runtime/comm/Diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

namespace tbc::comm {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Standing waiting(std::vector<int64_t> ranks) {
  Standing standing;
  standing.numCalls = 3;
  standing.call = "step 2, all_reduce";
  standing.isInCall = true;
  standing.waitsFor = std::move(ranks);
  standing.seconds = 5;
  return standing;
}

Standing busy(double seconds) {
  Standing standing = waiting({});
  standing.isInCall = false;
  standing.seconds = standing.cpuSeconds = seconds;
  return standing;
}

Culprits find(const Standings &known, int64_t self, const std::vector<int64_t> &waitsFor) {
  Standings answers;
  return findCulprits(self, waitsFor, [&](int64_t rank) { return known.at(rank); }, answers);
}

TEST(Culprits, AreAtTheEndOfWhoWaitsForWhom) {
  // Two replicas with tensor parallelism: ranks 0-1 and 2-3. Rank 3 is stopped.
  Standings known = {{0, waiting({1})}, {1, waiting({3})}, {2, waiting({3})}, {3, std::nullopt}};
  Culprits culprits = find(known, 0, {1});
  EXPECT_THAT(culprits.silent, ElementsAre(3));
  EXPECT_THAT(culprits.busy, ElementsAre());
  EXPECT_THAT(culprits.path, ElementsAre(1, 3));
  EXPECT_THAT(find(known, 2, {3}).path, ElementsAre(3));
}

TEST(Culprits, ThatAnswerAreBusy) {
  Standings known = {{1, busy(30)}, {2, waiting({1})}, {3, busy(0.001)}};
  Culprits culprits = find(known, 0, {2, 3});
  EXPECT_THAT(culprits.busy, ElementsAre(1)); // 3 has been busy for 1 ms only
  EXPECT_THAT(culprits.path, ElementsAre(2, 1));
  // A rank without an answer counts more.
  known[3] = std::nullopt;
  EXPECT_THAT(find(known, 0, {2, 3}).silent, ElementsAre(3));
}

TEST(Culprits, MayBeACycle) {
  Standings known = {{1, waiting({2})}, {2, waiting({0})}};
  EXPECT_THAT(find(known, 0, {1}).cycle, ElementsAre(0, 1, 2));
}

TEST(Standings, AreReadAsTheyWereWritten) {
  Standing standing = waiting({4, 7});
  standing.cpuSeconds = 0.25;
  auto read = parseStanding(toText(standing));
  ASSERT_TRUE(read);
  EXPECT_EQ(toText(*read), toText(standing));
  EXPECT_EQ(describe(*read), "in call 3 (step 2, all_reduce) for 5.0 s; it waits for rank 4 and "
                             "rank 7");
  for (const char *text : {"", "x", "1 1 1", "1 1 1 1 99999999999 1", "1 1 1 1 2 7"})
    EXPECT_FALSE(parseStanding(text)) << text;
}

TEST(FlightRecorders, KeepTheLastEvents) {
  FlightRecorder recorder(5, 4);
  for (int i = 1; i <= 10; ++i) {
    RecordedCall call(&recorder, "call \"" + std::to_string(i) + "\"");
    recorder.waitFor({i});
  }
  EXPECT_EQ(recorder.standing().numCalls, 10);
  EXPECT_FALSE(recorder.standing().isInCall);
  auto path = recorder.write();
  ASSERT_TRUE(bool(path)) << path.error().message;
  std::ifstream file(*path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    lines.push_back(line);
  std::remove(path->c_str());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[0], HasSubstr("{\"rank\":5,\"call\":9,\"event\":\"begin\""));
  EXPECT_THAT(lines[3], HasSubstr("\"what\":\"call \\\"10\\\"\",\"waited_for\":[10]}"));
}

/// A store shared by threads.
class MemoryStore : public Store {
public:
  Result<std::string> claim(const std::string &key, const std::string &value) override {
    std::lock_guard<std::mutex> lock(mutex);
    return values.emplace(key, value).first->second;
  }
  Result<std::string> get(const std::string &key, milliseconds timeout) override {
    auto deadline = std::chrono::steady_clock::now() + timeout;
    while (true) {
      {
        std::lock_guard<std::mutex> lock(mutex);
        if (auto found = values.find(key); found != values.end())
          return found->second;
      }
      if (std::chrono::steady_clock::now() >= deadline)
        return Error{ErrorCode::HangDetected, "waited"};
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  void abort(const Error &) override {}

private:
  std::mutex mutex;
  std::map<std::string, std::string> values;
};

/// One of three ranks that diagnose.
struct Rank {
  Rank(int64_t rank, MemoryStore &store)
      : recorder(rank), diagnosis(rank, 3, -1, store, recorder, milliseconds(100),
                                  [this](const std::string &text) { said = text; }) {
    recorder.begin("all_reduce");
  }
  std::string said;
  FlightRecorder recorder;
  Diagnosis diagnosis;
};

TEST(Diagnoses, AreTheSameOnAllRanks) {
  MemoryStore store;
  Rank zero(0, store), one(1, store); // and rank 2 is stopped
  one.recorder.waitFor({2});
  zero.diagnosis.start();
  one.diagnosis.start();
  Error first = zero.diagnosis.timedOut("step 3", {1});
  EXPECT_EQ(first.code, ErrorCode::HangDetected);
  EXPECT_THAT(first.message, HasSubstr("rank 0 at step 3: no answer from rank 2 for 100 ms"));
  EXPECT_THAT(first.message, HasSubstr("waits for it by way of rank 1"));
  EXPECT_THAT(zero.said, HasSubstr("rank 2  gives no answer"));
  EXPECT_THAT(zero.said, HasSubstr("rank 1  in call 1 (all_reduce)"));
  Error second = one.diagnosis.lost("step 3", 0, true);
  EXPECT_EQ(second.code, ErrorCode::HangDetected);
  EXPECT_THAT(second.message, HasSubstr("stops, for no answer from rank 2"));
  EXPECT_THAT(second.message, HasSubstr("(found by rank 0)"));
  EXPECT_THAT(second.message, Not(HasSubstr("gone")));
}

TEST(Diagnoses, ARankThatIsGoneWithoutAWordHasFailed) {
  MemoryStore store;
  Rank zero(0, store), one(1, store);
  zero.diagnosis.start();
  one.diagnosis.start();
  Error first = zero.diagnosis.lost("step 3", 2, true);
  EXPECT_EQ(first.code, ErrorCode::RankFailed);
  EXPECT_THAT(first.message, HasSubstr("the connection to rank 2 is gone; it has failed"));
  EXPECT_THAT(one.diagnosis.lost("step 3", 0, true).message, HasSubstr("for rank 2 is gone"));
}

TEST(Diagnoses, BeforeTheyStartErrorsAreWhatTheyAre) {
  MemoryStore store;
  Rank zero(0, store);
  EXPECT_EQ(zero.diagnosis.timedOut("the start", {1, 2}).message,
            "rank 0 at the start: no answer from rank 1 and rank 2 for 100 ms");
  EXPECT_EQ(zero.diagnosis.failed({ErrorCode::Usage, "so"}).message, "so");
}

} // namespace
} // namespace tbc::comm
