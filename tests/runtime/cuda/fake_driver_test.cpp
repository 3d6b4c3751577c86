//===- fake_driver_test.cpp - The fake driver finds faults -----------------===//

#include "tests/runtime/cuda/FakeDriver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tbc::test {
namespace {

using cuda::DeviceAddress;
using cuda::DriverCode;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// One device with two streams and some memory, accessed through the bare table.
class FakeDriverTest : public testing::Test {
public:
  explicit FakeDriverTest(uint64_t seed = 1) : fake(options(seed)) {
    EXPECT_EQ(cu.primaryContextRetain(&context, 0), DriverCode::Success);
    EXPECT_EQ(cu.contextSetCurrent(context), DriverCode::Success);
    for (cuda::StreamHandle *stream : {&first, &second})
      EXPECT_EQ(cu.streamCreate(stream, cuda::streamNonBlocking), DriverCode::Success);
    EXPECT_EQ(cu.eventCreate(&event, cuda::eventDisableTiming), DriverCode::Success);
    EXPECT_EQ(cu.memAlloc(&memory, count * sizeof(int)), DriverCode::Success);
    EXPECT_EQ(cu.memHostAlloc(&pinned, count * sizeof(int), 0), DriverCode::Success);
    EXPECT_EQ(cu.moduleLoadData(&module, "image", 0, nullptr, nullptr), DriverCode::Success);
    fake.addKernel("write", {{sizeof(DeviceAddress), sizeof(int)}, [](FakeLaunch &launch) {
                               int *to = launch.memory.write<int>(launch.argument<DeviceAddress>(0),
                                                                  count);
                               std::fill(to, to + count, launch.argument<int>(1));
                             }});
    EXPECT_EQ(cu.moduleGetFunction(&write, module, "write"), DriverCode::Success);
  }

protected:
  static constexpr int count = 4;

  static FakeOptions options(uint64_t seed) {
    FakeOptions options;
    options.seed = seed;
    return options;
  }

  DriverCode launch(int value, cuda::StreamHandle stream) {
    void *arguments[] = {&memory, &value};
    return cu.launchKernel(write, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr);
  }
  DriverCode download(cuda::StreamHandle stream) {
    return cu.copyToHost(pinned, memory, count * sizeof(int), stream);
  }

  FakeDriver fake;
  const cuda::Driver &cu = FakeDriver::table();
  cuda::ContextHandle context = nullptr;
  cuda::StreamHandle first = nullptr, second = nullptr;
  cuda::EventHandle event = nullptr;
  DeviceAddress memory = 0;
  void *pinned = nullptr;
  cuda::ModuleHandle module = nullptr;
  cuda::FunctionHandle write = nullptr;
};

TEST_F(FakeDriverTest, AnEventOrdersTwoStreams) {
  EXPECT_EQ(launch(7, first), DriverCode::Success);
  EXPECT_EQ(cu.eventRecord(event, first), DriverCode::Success);
  EXPECT_EQ(cu.streamWaitEvent(second, event, 0), DriverCode::Success);
  EXPECT_EQ(download(second), DriverCode::Success);
  EXPECT_EQ(cu.streamSynchronize(second), DriverCode::Success);
  EXPECT_EQ(*static_cast<int *>(pinned), 7);
  EXPECT_THAT(fake.complaints(), IsEmpty());
}

TEST_F(FakeDriverTest, AMissingEventIsARaceByName) {
  EXPECT_EQ(launch(7, first), DriverCode::Success);
  EXPECT_EQ(download(second), DriverCode::Success);
  EXPECT_EQ(cu.streamSynchronize(first), DriverCode::Success);
  EXPECT_EQ(cu.streamSynchronize(second), DriverCode::Success);
  ASSERT_EQ(fake.complaints().size(), 1u);
  EXPECT_THAT(fake.complaints()[0], HasSubstr("kernel write in stream 0"));
  EXPECT_THAT(fake.complaints()[0], HasSubstr("copy to host in stream 1"));
}

TEST_F(FakeDriverTest, AnEventRecordedTooEarlyIsARace) {
  EXPECT_EQ(cu.eventRecord(event, first), DriverCode::Success);
  EXPECT_EQ(launch(7, first), DriverCode::Success);
  EXPECT_EQ(cu.streamWaitEvent(second, event, 0), DriverCode::Success);
  EXPECT_EQ(download(second), DriverCode::Success);
  EXPECT_EQ(cu.streamSynchronize(second), DriverCode::Success);
  EXPECT_EQ(cu.streamSynchronize(first), DriverCode::Success);
  EXPECT_THAT(fake.complaints(), Contains(HasSubstr("race")));
}

TEST_F(FakeDriverTest, TheHostOrdersWhatItWaitsFor) {
  EXPECT_EQ(launch(7, first), DriverCode::Success);
  EXPECT_EQ(cu.streamSynchronize(first), DriverCode::Success);
  EXPECT_EQ(download(second), DriverCode::Success);
  EXPECT_EQ(cu.streamSynchronize(second), DriverCode::Success);
  EXPECT_EQ(*static_cast<int *>(pinned), 7);
  EXPECT_THAT(fake.complaints(), IsEmpty());
}

TEST_F(FakeDriverTest, TwoReadsAreNoRace) {
  EXPECT_EQ(launch(7, first), DriverCode::Success);
  EXPECT_EQ(cu.streamSynchronize(first), DriverCode::Success);
  void *elsewhere = nullptr;
  EXPECT_EQ(cu.memHostAlloc(&elsewhere, count * sizeof(int), 0), DriverCode::Success);
  EXPECT_EQ(download(first), DriverCode::Success);
  EXPECT_EQ(cu.copyToHost(elsewhere, memory, count * sizeof(int), second), DriverCode::Success);
  EXPECT_EQ(cu.streamSynchronize(first), DriverCode::Success);
  EXPECT_EQ(cu.streamSynchronize(second), DriverCode::Success);
  EXPECT_THAT(fake.complaints(), IsEmpty());
  // But two unordered writes to the host are a race.
  EXPECT_EQ(download(first), DriverCode::Success);
  EXPECT_EQ(download(second), DriverCode::Success);
  EXPECT_EQ(cu.streamSynchronize(first), DriverCode::Success);
  EXPECT_EQ(cu.streamSynchronize(second), DriverCode::Success);
  EXPECT_THAT(fake.complaints(), Contains(HasSubstr("race")));
}

TEST_F(FakeDriverTest, AFailedKernelLosesTheDevice) {
  fake.failKernel("write", DriverCode::LaunchFailed);
  EXPECT_EQ(launch(7, first), DriverCode::Success); // not noticed yet
  EXPECT_EQ(cu.streamSynchronize(first), DriverCode::LaunchFailed);
  EXPECT_EQ(launch(7, second), DriverCode::LaunchFailed);
}

TEST_F(FakeDriverTest, WhatLeavesItsMemoryFails) {
  EXPECT_EQ(cu.fillBytes(memory, 0, count * sizeof(int) + 1, first), DriverCode::Success);
  EXPECT_EQ(cu.streamSynchronize(first), DriverCode::IllegalAddress);
  EXPECT_THAT(fake.complaints(), Contains(HasSubstr("fill in stream 0 leaves its memory")));
}

TEST_F(FakeDriverTest, ComplainsOfWhatIsSlowOrUndefined) {
  int unpinned[count];
  EXPECT_EQ(cu.copyToDevice(memory, unpinned, sizeof unpinned, first), DriverCode::Success);
  EXPECT_EQ(cu.memFree(memory), DriverCode::Success);
  EXPECT_EQ(launch(1, nullptr), DriverCode::InvalidHandle);
  EXPECT_THAT(fake.complaints(), ElementsAre(HasSubstr("not pinned"), HasSubstr("has yet to run"),
                                             HasSubstr("the default stream")));
}

TEST_F(FakeDriverTest, CallsFailWhenTheyAreTold) {
  fake.failCall("cuEventRecord", DriverCode::OutOfMemory, 1);
  EXPECT_EQ(cu.eventRecord(event, first), DriverCode::Success);
  EXPECT_EQ(cu.eventRecord(event, first), DriverCode::OutOfMemory);
  EXPECT_EQ(cu.eventRecord(event, first), DriverCode::Success);
  EXPECT_EQ(fake.numCalls("cuEventRecord"), 3);
}

// Without an event, both orders occur.
TEST(FakeDriver, OrdersAreRandom) {
  struct Case : FakeDriverTest {
    using FakeDriverTest::FakeDriverTest;
    void TestBody() override {}
    int run() {
      EXPECT_EQ(launch(7, first), DriverCode::Success);
      EXPECT_EQ(cu.streamSynchronize(first), DriverCode::Success);
      EXPECT_EQ(launch(8, first), DriverCode::Success);
      EXPECT_EQ(download(second), DriverCode::Success);
      EXPECT_EQ(cu.streamSynchronize(second), DriverCode::Success);
      return *static_cast<int *>(pinned);
    }
  };
  std::set<int> seen;
  for (uint64_t seed = 0; seed < 20; ++seed)
    seen.insert(Case(seed).run());
  EXPECT_THAT(seen, ElementsAre(7, 8));
}

} // namespace
} // namespace tbc::test
