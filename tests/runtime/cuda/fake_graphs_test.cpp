//===- fake_graphs_test.cpp - The fake driver finds faults of graphs -------===//

#include "runtime/cuda/Graph.h"
#include "tests/runtime/cuda/FakeDriver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tbc::test {
namespace {

using cuda::DriverCode;
using cuda::Event;
using cuda::Graph;
using cuda::Stream;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A device with two streams, and bytes on the device and on the host.
class FakeGraphsTest : public testing::Test {
protected:
  static constexpr int64_t bytes = 16;

  FakeGraphsTest() {
    device = *cuda::Device::open(FakeDriver::table(), 0);
    take(Stream::create(device, "first"), first);
    take(Stream::create(device, "second"), second);
    take(Event::create(device), fork);
    take(Event::create(device), join);
    take(cuda::DeviceMemory::allocate(device, bytes, "memory"), memory);
    take(cuda::PinnedMemory::allocate(device, bytes), in);
    take(cuda::PinnedMemory::allocate(device, bytes), out);
    std::memset(out.data(), 0, size_t(bytes));
  }
  /// Captures a round trip through the device: the first stream copies in, the second copies out.
  Result<Graph> captured(bool isOrdered = true, bool isJoined = true) {
    EXPECT_TRUE(Graph::beginCapture(device, first));
    EXPECT_TRUE(first.record(fork));
    EXPECT_TRUE(second.waitFor(fork));
    EXPECT_TRUE(first.copyToDevice(memory.address(), in.data(), bytes));
    if (isOrdered) {
      EXPECT_TRUE(first.record(fork));
      EXPECT_TRUE(second.waitFor(fork));
    }
    EXPECT_TRUE(second.copyToHost(out.data(), memory.address(), bytes));
    if (isJoined) {
      EXPECT_TRUE(second.record(join));
      EXPECT_TRUE(first.waitFor(join));
    }
    return Graph::endCapture(device, first);
  }
  template <typename T> static void take(Result<T> made, T &to) {
    ASSERT_TRUE(made);
    to = std::move(*made);
  }
  static std::string codeOf(DriverCode code) { return "CUDA error " + std::to_string(int(code)); }

  FakeDriver fake;
  cuda::DevicePtr device;
  cuda::DeviceMemory memory;
  cuda::PinnedMemory in, out;
  Event fork, join;
  Stream first, second;
};

TEST_F(FakeGraphsTest, EveryLaunchDoesAllOfIt) {
  auto graph = captured();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(graph->numNodes(), 2);
  EXPECT_EQ(out.data()[0], 0); // not executed yet
  for (unsigned char value : {3, 5, 7}) {
    std::memset(in.data(), value, size_t(bytes));
    ASSERT_TRUE(graph->launch(first));
    ASSERT_TRUE(first.synchronize());
    EXPECT_EQ(out.data()[bytes - 1], value);
  }
  EXPECT_THAT(fake.complaints(), IsEmpty());
  *graph = Graph();
  EXPECT_THAT(fake.leaks(), ::testing::Not(Contains(HasSubstr("graph"))));
}

TEST_F(FakeGraphsTest, WhatComesAfterALaunchWaitsForAllOfIt) {
  auto graph = captured();
  ASSERT_TRUE(graph);
  std::memset(in.data(), 1, size_t(bytes));
  ASSERT_TRUE(graph->launch(first));
  ASSERT_TRUE(first.fill(memory.address(), 9, bytes));
  ASSERT_TRUE(first.synchronize());
  EXPECT_EQ(out.data()[0], 1);
  EXPECT_THAT(fake.complaints(), IsEmpty());
}

TEST_F(FakeGraphsTest, AMissingEventIsARace) {
  auto graph = captured(/*isOrdered=*/false);
  ASSERT_TRUE(graph);
  ASSERT_TRUE(graph->launch(first));
  ASSERT_TRUE(first.synchronize());
  EXPECT_THAT(fake.complaints(), Contains(AllOf(HasSubstr("race: "), HasSubstr("of a graph"))));
}

TEST_F(FakeGraphsTest, AStreamThatIsNotJoinedIsAnError) {
  auto graph = captured(true, /*isJoined=*/false);
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, HasSubstr(codeOf(DriverCode::CaptureUnjoined)));
  EXPECT_TRUE(first.fill(memory.address(), 0, bytes)); // the stream works as before
  EXPECT_TRUE(first.synchronize());
}

TEST_F(FakeGraphsTest, WaitingForTheDeviceSpoilsACapture) {
  ASSERT_TRUE(Graph::beginCapture(device, first));
  EXPECT_FALSE(first.synchronize());
  EXPECT_FALSE(cuda::DeviceMemory::allocate(device, bytes, "more"));
  auto graph = Graph::endCapture(device, first);
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, HasSubstr(codeOf(DriverCode::CaptureInvalidated)));
}

TEST_F(FakeGraphsTest, EventsOfACaptureAndOthersDoNotMix) {
  ASSERT_TRUE(second.record(join));
  ASSERT_TRUE(Graph::beginCapture(device, first));
  Status status = first.waitFor(join);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr(codeOf(DriverCode::CaptureIsolation)));
  EXPECT_FALSE(Graph::endCapture(device, first));
  ASSERT_TRUE(Graph::beginCapture(device, first));
  ASSERT_TRUE(first.record(fork));
  ASSERT_TRUE(Graph::endCapture(device, first));
  status = second.waitFor(fork);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr(codeOf(DriverCode::CapturedEvent)));
}

} // namespace
} // namespace tbc::test
