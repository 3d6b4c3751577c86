//===- host_copies_test.cpp - Host copies concurrent with kernels ----------===//

#include "runtime/cuda/HostCopies.h"
#include "runtime/cuda/Streams.h"
#include "tests/runtime/cuda/FakeDriver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tbc::test {
namespace {

using cuda::DeviceRange;
using cuda::HostCopies;
using cuda::Stream;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Two halves of device memory, and one half of host memory.
class HostCopiesTest : public testing::Test {
protected:
  static constexpr int64_t half = 256;
  static constexpr auto compute = program::Stream::Compute;
  static constexpr auto communication = program::Stream::Communication;

  HostCopiesTest() {
    device = *cuda::Device::open(FakeDriver::table(), 0);
    take(cuda::DeviceMemory::allocate(device, 2 * half, "memory"), memory);
    take(cuda::PinnedMemory::allocate(device, half), host);
    take(HostCopies::create(device), copies);
    take(Stream::create(device, "compute"), stream);
    take(Stream::create(device, "communication"), other);
  }
  template <typename T> static void take(Result<T> made, T &to) {
    ASSERT_TRUE(made);
    to = std::move(*made);
  }
  DeviceRange range(int number) const {
    return {memory.address() + cuda::DeviceAddress(number * half), half};
  }
  void fill(const Stream &in, int number, unsigned char value) {
    EXPECT_TRUE(in.fill(range(number).begin, value, half));
  }
  void use(int number, bool isWrite) {
    EXPECT_TRUE(copies.beforeUse(compute, stream, range(number), isWrite));
  }
  void finish() {
    for (const Stream *each : {static_cast<const Stream *>(&stream), &copies.stream(),
                               static_cast<const Stream *>(&other)})
      EXPECT_TRUE(each->synchronize());
  }

  FakeDriver fake;
  cuda::DevicePtr device;
  cuda::DeviceMemory memory;
  cuda::PinnedMemory host;
  HostCopies copies;
  Stream stream, other;
};

TEST_F(HostCopiesTest, WhoWritesWaitsForACopyThatReads) {
  for (bool asks : {true, false}) {
    fill(stream, 0, 1);
    finish();
    EXPECT_TRUE(copies.toHost(host.data(), range(0)));
    if (asks)
      use(0, /*isWrite=*/true);
    fill(stream, 0, 2);
    finish();
    if (asks) {
      EXPECT_EQ(host.data()[half - 1], 1);
      EXPECT_THAT(fake.complaints(), IsEmpty());
    } else {
      EXPECT_THAT(fake.complaints(), Contains(HasSubstr("race: ")));
    }
  }
}

TEST_F(HostCopiesTest, OthersDoNotWait) {
  fill(stream, 0, 1);
  finish();
  EXPECT_TRUE(copies.toHost(host.data(), range(0)));
  use(0, /*isWrite=*/false); // both only read
  use(1, /*isWrite=*/true);  // the other half
  EXPECT_EQ(fake.numStreamWaits(), 0);
  use(0, /*isWrite=*/true);
  use(0, /*isWrite=*/true); // already waits
  EXPECT_EQ(fake.numStreamWaits(), 1);
  EXPECT_FALSE(copies.isAny());
  finish();
}

TEST_F(HostCopiesTest, WhoReadsWaitsForWhatIsFetched) {
  std::memset(host.data(), 7, size_t(half));
  EXPECT_TRUE(copies.toDevice(range(0), host.data()));
  use(0, /*isWrite=*/false);
  EXPECT_TRUE(stream.copyWithin(range(1).begin, range(0).begin, half));
  EXPECT_EQ(fake.numStreamWaits(), 1);
  finish();
  EXPECT_THAT(fake.complaints(), IsEmpty());
}

TEST_F(HostCopiesTest, AStreamThatComesAfterAnotherWaitsNoMore) {
  copies.noteOrder(compute, communication);
  fill(stream, 0, 1);
  finish();
  EXPECT_TRUE(copies.toHost(host.data(), range(0)));
  use(0, /*isWrite=*/true);
  EXPECT_TRUE(copies.isAny()); // the other stream does not wait yet
  EXPECT_TRUE(copies.beforeUse(communication, other, range(0), /*isWrite=*/true));
  EXPECT_EQ(fake.numStreamWaits(), 2);
  EXPECT_TRUE(copies.toHost(host.data(), range(0)));
  use(0, /*isWrite=*/true);
  copies.noteOrder(compute, communication);
  EXPECT_FALSE(copies.isAny());
  EXPECT_TRUE(copies.beforeUse(communication, other, range(0), /*isWrite=*/true));
  EXPECT_EQ(fake.numStreamWaits(), 3);
  finish();
}

/// The same with the graph of a step, which fills the first half.
class HostCopiesOfGraphsTest : public HostCopiesTest {
protected:
  HostCopiesOfGraphsTest() {
    take(cuda::Streams::create(device, std::chrono::milliseconds(0)), streams);
    take(cuda::Event::create(device), filled);
  }
  const Stream &kernels() const { return streams->of(compute); }
  HostCopies &aside() { return streams->hostCopies(); }
  /// `copies`: also copies it to the host, beside the kernels.
  void record(unsigned char value, bool copies) {
    ASSERT_TRUE(streams->beginRecording(0, 0));
    fill(kernels(), 0, value);
    if (copies) {
      EXPECT_TRUE(kernels().record(filled));
      EXPECT_TRUE(aside().stream().waitFor(filled));
      EXPECT_TRUE(aside().toHost(host.data(), range(0)));
    }
    ASSERT_TRUE(streams->endRecording());
  }
  void replay() {
    ASSERT_TRUE(streams->beginReplay());
    ASSERT_TRUE(streams->launch());
  }

  std::shared_ptr<cuda::Streams> streams;
  cuda::Event filled;
};

/// A copy of an executed step still reads what the graph of the next step overwrites.
TEST_F(HostCopiesOfGraphsTest, AGraphWaitsForCopiesBeforeIt) {
  record(2, /*copies=*/false);
  fill(kernels(), 0, 1);
  ASSERT_TRUE(streams->wait());
  EXPECT_TRUE(aside().toHost(host.data(), range(0)));
  replay();
  EXPECT_FALSE(aside().isAny());
  ASSERT_TRUE(streams->wait());
  EXPECT_EQ(host.data()[half - 1], 1);
  EXPECT_THAT(fake.complaints(), IsEmpty());
}

/// Example: a checkpoint of optimizer states that lie on the host.
TEST_F(HostCopiesOfGraphsTest, TheHostWaitsForCopiesWithinAGraph) {
  record(3, /*copies=*/true);
  for (unsigned char before : {0, 1}) {
    std::memset(host.data(), before, size_t(half));
    replay();
    ASSERT_TRUE(streams->finishHostCopies());
    EXPECT_EQ(host.data()[half - 1], 3);
  }
  EXPECT_THAT(fake.complaints(), IsEmpty());
}

TEST_F(HostCopiesTest, ManyCopiesAreNotKeptForGood) {
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(copies.toHost(host.data(), range(0)));
    use(1, /*isWrite=*/true);
  }
  EXPECT_LT(fake.numCalls("cuEventCreate"), 200);
  finish();
}

} // namespace
} // namespace tbc::test
