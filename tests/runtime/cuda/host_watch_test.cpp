//===- host_watch_test.cpp - Failures of a rank with a GPU -------------------===//

#include "runtime/comm/SharedStore.h"
#include "runtime/cuda/HostWatch.h"
#include "tests/runtime/cuda/FakeDriver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

namespace tbc::test {
namespace {

using cuda::HostWatch;
using cuda::WatchOptions;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// Records events in order.
class Events {
public:
  void add(const std::string &event) {
    std::lock_guard<std::mutex> lock(mutex);
    list.push_back(event);
  }
  std::vector<std::string> all() {
    std::lock_guard<std::mutex> lock(mutex);
    return list;
  }

private:
  std::mutex mutex;
  std::vector<std::string> list;
};

class ToldStore : public comm::Store {
public:
  explicit ToldStore(Events &events) : events(events) {}
  Result<std::string> claim(const std::string &, const std::string &value) override {
    std::lock_guard<std::mutex> lock(mutex);
    if (end)
      return *end;
    return isLost ? Result<std::string>(Error{ErrorCode::RankFailed, "the rendezvous is gone"})
                  : value;
  }
  Result<std::string> get(const std::string &key, std::chrono::milliseconds timeout) override {
    std::this_thread::sleep_for(timeout);
    return Error{ErrorCode::HangDetected, "no " + key};
  }
  void abort(const Error &error) override {
    events.add("store: " + error.message);
    giveUp(error);
  }
  std::optional<Error> givenUp() override {
    std::lock_guard<std::mutex> lock(mutex);
    return end;
  }
  void giveUp(const Error &error) {
    std::lock_guard<std::mutex> lock(mutex);
    end = error;
  }
  void lose() {
    std::lock_guard<std::mutex> lock(mutex);
    isLost = true;
  }

private:
  Events &events;
  std::mutex mutex;
  std::optional<Error> end;
  bool isLost = false;
};

class HostWatchTest : public testing::Test {
protected:
  HostWatchTest() : device(*cuda::Device::open(FakeDriver::table(), 0)), store(events) {
    nccl.abort = [](cuda::NcclHandle) { return cuda::NcclCode::Success; };
    nccl.getAsyncError = [](cuda::NcclHandle, cuda::NcclCode *code) {
      *code = cuda::NcclCode::Success;
      return cuda::NcclCode::Success;
    };
  }
  WatchOptions optionsOf(std::chrono::milliseconds timeout) {
    WatchOptions options;
    options.timeout = timeout;
    options.connectTimeout = timeout;
    options.patience = 50ms;
    options.report = [this](const Error &error) {
      events.add((device->isGivenUp() ? "report: " : "too early: ") + error.message);
    };
    return options;
  }
  HostWatch::Job job() {
    return {&store, &nccl,
            [](const std::string &what, std::chrono::milliseconds waited) {
              return Error{ErrorCode::HangDetected,
                           what + " for " + std::to_string(waited.count()) + " ms"};
            },
            [](const Error &error, bool isOfJob) {
              return Error{error.code, (isOfJob ? "job: " : "NCCL: ") + error.message};
            }};
  }
  /// Waits until the watch has failed.
  static void await(const HostWatch &watch) {
    while (!watch.hasFailed())
      std::this_thread::sleep_for(1ms);
  }

  FakeDriver driver;
  cuda::DevicePtr device;
  cuda::Nccl nccl;
  Events events;
  ToldStore store;
};

TEST_F(HostWatchTest, AFailureIsReportedBeforeAnythingIsDoneAboutIt) {
  HostWatch watch(device, optionsOf(0ms));
  watch.join(job());
  EXPECT_TRUE(watch.status());
  EXPECT_EQ(watch.fail({ErrorCode::RankFailed, "first"}).message, "first");
  EXPECT_EQ(watch.fail({ErrorCode::HangDetected, "second"}).message, "first");
  EXPECT_EQ(watch.status().error().message, "first");
  EXPECT_THAT(events.all(), ElementsAre("report: first", "store: first"));
  watch.leave();
}

TEST_F(HostWatchTest, ACallThatDoesNotComeBackEndsTheProcess) {
  std::promise<ErrorCode> ended;
  WatchOptions options = optionsOf(200ms);
  options.exit = [&](ErrorCode code) { ended.set_value(code); };
  HostWatch watch(device, options);
  watch.join(job());
  std::string what = "launching slow";
  {
    HostWatch::Call call(&watch, what);
    std::future<ErrorCode> code = ended.get_future();
    ASSERT_EQ(code.wait_for(60s), std::future_status::ready);
    EXPECT_EQ(code.get(), ErrorCode::HangDetected);
  }
  EXPECT_THAT(events.all(),
              ElementsAre("report: launching slow for 200 ms", "store: launching slow for 200 ms"));
  watch.leave();
}

TEST_F(HostWatchTest, ACallThatGetsOnIsLeftAlone) {
  HostWatch watch(device, optionsOf(3000ms));
  std::string what = "waiting";
  HostWatch::Call call(&watch, what);
  for (int i = 0; i < 350; ++i, call.getOn())
    std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(watch.hasFailed());
}

TEST_F(HostWatchTest, TheFirstStepHasATimeOutOfItsOwn) {
  WatchOptions options = optionsOf(2000ms);
  options.connectTimeout = 5000ms;
  HostWatch watch(device, options);
  EXPECT_EQ(watch.limit(), 5000ms);
  watch.endFirstStep();
  EXPECT_EQ(watch.limit(), 2000ms);
  options.connectTimeout = 1000ms; // the minimum
  EXPECT_EQ(HostWatch(device, options).limit(), 2000ms);
  options.timeout = 0ms;
  EXPECT_EQ(HostWatch(device, options).limit(), 0ms);
}

TEST_F(HostWatchTest, AJobThatIsGivenUpEndsTheRank) {
  HostWatch watch(device, optionsOf(0ms));
  watch.join(job());
  store.giveUp({ErrorCode::HangDetected, "no answer from rank 2"});
  await(watch);
  EXPECT_EQ(watch.status().error().code, ErrorCode::HangDetected);
  EXPECT_EQ(watch.status().error().message, "job: no answer from rank 2");
  watch.leave();
}

TEST_F(HostWatchTest, AStoreThatIsGoneEndsTheRankOnlyAfterTheEndOfARun) {
  WatchOptions options = optionsOf(0ms);
  options.patience = 600s;
  ToldStore other(events); // not given up with `store`
  HostWatch::Job patientJob = job();
  patientJob.store = &other;
  HostWatch patient(device, options);
  patient.join(patientJob);
  store.lose();
  other.lose();
  HostWatch watch(device, optionsOf(0ms));
  watch.join(job());
  await(watch);
  EXPECT_THAT(watch.status().error().message, HasSubstr("the rendezvous is gone"));
  EXPECT_FALSE(patient.hasFailed()); // it has polled as often
  watch.leave();
  patient.leave();
}

TEST_F(HostWatchTest, AnErrorOfNcclIsSeenThoughNobodyAsks) {
  nccl.getAsyncError = [](cuda::NcclHandle, cuda::NcclCode *code) {
    *code = cuda::NcclCode::RemoteError;
    return cuda::NcclCode::Success;
  };
  nccl.getErrorString = [](cuda::NcclCode) { return "remote process exited"; };
  nccl.getLastError = [](cuda::NcclHandle) { return ""; };
  HostWatch watch(device, optionsOf(0ms));
  watch.join(job());
  watch.add(reinterpret_cast<cuda::NcclHandle>(uintptr_t(1)));
  await(watch);
  EXPECT_THAT(watch.status().error().message,
              AllOf(HasSubstr("NCCL: "), HasSubstr("remote process exited")));
  watch.leave();
}

std::atomic<int> numAborted = 0;
std::atomic<bool> mayAbort = false;

TEST_F(HostWatchTest, CommunicatorsThatDoNotAbortAreNotWaitedFor) {
  numAborted = 0, mayAbort = false;
  nccl.abort = [](cuda::NcclHandle handle) {
    while (handle == reinterpret_cast<cuda::NcclHandle>(uintptr_t(1)) && !mayAbort)
      std::this_thread::sleep_for(1ms);
    ++numAborted;
    return cuda::NcclCode::Success;
  };
  {
    HostWatch watch(device, optionsOf(0ms));
    watch.join(job());
    for (uintptr_t i = 1; i <= 3; ++i)
      watch.add(reinterpret_cast<cuda::NcclHandle>(i));
    EXPECT_TRUE(watch.remove(reinterpret_cast<cuda::NcclHandle>(uintptr_t(3))));
    watch.fail({ErrorCode::HangDetected, "slow"});
    EXPECT_FALSE(watch.remove(reinterpret_cast<cuda::NcclHandle>(uintptr_t(2)))); // already aborted
    watch.leave();
  }
  while (numAborted < 1) // the second, concurrently
    std::this_thread::sleep_for(1ms);
  mayAbort = true;
  while (numAborted < 2)
    std::this_thread::sleep_for(1ms);
}

TEST_F(HostWatchTest, ACommunicatorThatLeavesDuringAFailureIsAbortedOnce) {
  numAborted = 0;
  nccl.abort = [](cuda::NcclHandle) {
    ++numAborted;
    return cuda::NcclCode::Success;
  };
  auto handle = [](uintptr_t i) { return reinterpret_cast<cuda::NcclHandle>(i); };
  HostWatch *watched = nullptr;
  WatchOptions options = optionsOf(0ms);
  options.patience = 60s;
  // The failure is known and nothing is aborted yet: the rank's thread may end its links here.
  options.report = [&](const Error &) {
    EXPECT_FALSE(watched->remove(handle(1)));
    watched->add(handle(2)); // came too late to be watched: its owner aborts it
    EXPECT_TRUE(watched->remove(handle(2)));
  };
  HostWatch watch(device, options);
  watched = &watch;
  watch.join(job());
  watch.add(handle(1));
  watch.fail({ErrorCode::RankFailed, "lost"});
  EXPECT_EQ(numAborted, 1);
  watch.leave();
}

TEST_F(HostWatchTest, TheGiveUpOfAStoreIsHeardWhileAnotherThreadWaits) {
  comm::SharedStore shared(store);
  std::thread waiting([&] { EXPECT_FALSE(shared.get("never", 700ms)); });
  shared.abort({ErrorCode::RankFailed, "over"});
  EXPECT_EQ(shared.givenUp()->message, "over");
  waiting.join();
}

} // namespace
} // namespace tbc::test
