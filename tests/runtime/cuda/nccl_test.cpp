//===- nccl_test.cpp - NCCL's own behaviour; see comm-conformance ----------===//

#include "runtime/cuda/NcclCommunicator.h"
#include "runtime/launch/Rendezvous.h"
#include "runtime/launch/Stores.h"
#include "tests/runtime/cuda/FakeNccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

namespace tbc::test {
namespace {

using comm::Communicator;
using comm::Group;
using comm::ReduceKind;
using kernels::DType;
using kernels::Tensor;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

using RankFn = std::function<Result<Tensor>(Communicator &, comm::Store &)>;

class NcclTest : public testing::Test {
protected:
  static constexpr int numRanks = 4;

  NcclTest() : driver(options()), nccl(driver) {
    folder = (std::filesystem::temp_directory_path() / "tbc-nccl-XXXXXX").string();
    EXPECT_TRUE(mkdtemp(folder.data()));
  }
  ~NcclTest() override { std::filesystem::remove_all(folder); }
  static FakeOptions options() {
    FakeOptions options;
    options.numDevices = numRanks;
    return options;
  }

  std::vector<Result<Tensor>> run(const RankFn &function, const cuda::NcclOptions &options) {
    std::vector<Result<Tensor>> results(numRanks, Tensor());
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < numRanks; ++rank)
      threads.emplace_back([&, rank] { results[rank] = runRank(rank, function, options); });
    for (std::thread &thread : threads)
      thread.join();
    return results;
  }
  Result<Tensor> runRank(int64_t rank, const RankFn &function, const cuda::NcclOptions &options) {
    auto store = launch::openFileStore(folder, "shared");
    auto device = cuda::Device::open(FakeDriver::table(), int(rank));
    if (!store || !device)
      return Error{ErrorCode::Other, "no store or device"};
    auto communicator =
        cuda::connectNccl(rank, numRanks, **store, FakeNccl::table(), *device, options);
    if (!communicator)
      return communicator.error();
    return function(**communicator, **store);
  }

  FakeDriver driver;
  FakeNccl nccl;
  std::string folder;
};

Tensor number(int64_t value) { return Tensor::fromInts({DType::I64, {1}}, {value}); }
Group all() { return {0, 1, 2, 3}; }

TEST_F(NcclTest, GroupsOfTheMeshAreSplitFromOne) {
  cuda::NcclOptions options;
  // The axes of a 2 x 2 mesh, and one axis along which only two ranks have neighbours.
  options.partitions = {{{0, 1}, {2, 3}}, {{0, 2}, {1, 3}}, {{3, 0}}, {all()}};
  auto results = run(
      [](Communicator &c, comm::Store &) -> Result<Tensor> {
        int64_t r = c.rank();
        Group row = r < 2 ? Group{0, 1} : Group{2, 3};
        Group column = r % 2 ? Group{1, 3} : Group{0, 2};
        auto sum = c.allReduce(row, ReduceKind::Sum, number(r), "row")->wait();
        if (sum)
          sum = c.allReduce(column, ReduceKind::Product, *sum, "column")->wait();
        if (sum && r % 3 == 0)
          sum = c.allGather({3, 0}, number(r), "corners")->wait();
        return sum;
      },
      options);
  for (int rank : {1, 2})
    EXPECT_THAT(results[rank]->toDoubles(), ElementsAre((0 + 1) * (2 + 3)));
  for (int rank : {0, 3})
    EXPECT_THAT(results[rank]->toDoubles(), ElementsAre(3, 0));
  EXPECT_EQ(nccl.numSplits(), 3 * numRanks); // ranks without a part do not take part
  EXPECT_EQ(nccl.numAlive(), 0);
  EXPECT_THAT(driver.complaints(), IsEmpty());
  EXPECT_THAT(driver.leaks(), IsEmpty());
}

TEST_F(NcclTest, CallsOverlapAndEndInAnyOrder) {
  auto results = run(
      [](Communicator &c, comm::Store &) -> Result<Tensor> {
        Group pair = c.rank() < 2 ? Group{0, 1} : Group{2, 3};
        auto wide = c.allReduce(all(), ReduceKind::Max, number(c.rank()), "wide");
        auto narrow = c.allReduce(pair, ReduceKind::Min, number(c.rank()), "narrow");
        Result<Tensor> first = narrow->wait();
        Result<Tensor> second = wide->wait();
        if (!first || !second)
          return first ? second : first;
        return number(int64_t(first->toDoubles()[0] * 10 + second->toDoubles()[0]));
      },
      {});
  EXPECT_THAT(results[1]->toDoubles(), ElementsAre(3));
  EXPECT_THAT(results[2]->toDoubles(), ElementsAre(23));
  EXPECT_THAT(driver.complaints(), IsEmpty());
}

TEST_F(NcclTest, ALostConnectionIsAnErrorOfTheCallAndStays) {
  auto results = run(
      [this](Communicator &c, comm::Store &) -> Result<Tensor> {
        if (auto here = c.barrier(all(), "start")->wait(); !here)
          return here;
        if (c.rank() == 3) { // dies
          nccl.failAll(cuda::NcclCode::RemoteError);
          return Tensor();
        }
        auto first = c.allReduce(all(), ReduceKind::Sum, number(1), "my place")->wait();
        auto second = c.barrier(all(), "another place")->wait();
        return first ? first : second;
      },
      {});
  for (int rank : {0, 1, 2}) {
    ASSERT_FALSE(results[rank]);
    EXPECT_EQ(results[rank].error().code, ErrorCode::RankFailed);
    EXPECT_THAT(results[rank].error().message,
                AllOf(HasSubstr("remote process exited"), HasSubstr("NCCL_DEBUG=INFO")));
  }
}

TEST_F(NcclTest, AJobThatIsGivenUpEndsEveryWaitSoon) {
  auto begin = std::chrono::steady_clock::now();
  auto results = run(
      [](Communicator &c, comm::Store &store) -> Result<Tensor> {
        if (c.rank() == 3) { // as a launcher does when rank 3 dies
          store.abort({ErrorCode::RankFailed, "rank 3 was killed by signal 9"});
          return Tensor();
        }
        return c.allReduce(all(), ReduceKind::Sum, number(1), "my place")->wait();
      },
      {});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 60s);
  for (int rank : {0, 1, 2}) {
    ASSERT_FALSE(results[rank]);
    EXPECT_EQ(results[rank].error().code, ErrorCode::RankFailed);
    EXPECT_THAT(results[rank].error().message, HasSubstr("rank 3 was killed by signal 9"));
  }
}

TEST_F(NcclTest, ARankThatNeverConnectsIsNamed) {
  cuda::NcclOptions options;
  options.timeout = 2000ms;
  options.partitions = {{{0, 1}, {2, 3}}};
  std::vector<Result<Tensor>> results(2, Tensor());
  std::vector<std::thread> threads;
  for (int64_t rank : {0, 1})
    threads.emplace_back([&, rank] {
      results[rank] = runRank(
          rank, [](Communicator &, comm::Store &) -> Result<Tensor> { return Tensor(); }, options);
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const Result<Tensor> &result : results) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::HangDetected);
    EXPECT_THAT(result.error().message,
                AllOf(HasSubstr("connecting by NCCL"),
                      HasSubstr("no answer from rank 2 and rank 3 for 2000 ms")));
  }
  EXPECT_EQ(nccl.numAlive(), 0); // aborted, because destroying would wait
}

TEST(DeviceModels, RanksOnDevicesOfTwoModelsAreRefusedByName) {
  FakeOptions options;
  options.numDevices = 3;
  options.capabilities = {{1, 80}};
  FakeDriver driver(options);
  std::string folder = (std::filesystem::temp_directory_path() / "tbc-models-XXXXXX").string();
  ASSERT_TRUE(mkdtemp(folder.data()));
  std::vector<Status> results(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      auto device = cuda::Device::open(FakeDriver::table(), rank);
      auto store = launch::openFileStore(folder, "shared");
      results[size_t(rank)] =
          launch::checkIn(**store, rank, 3, {{"device", (*device)->model()}}, 60s);
    });
  for (std::thread &thread : threads)
    thread.join();
  std::filesystem::remove_all(folder);
  for (const Status &status : results) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::Usage);
    EXPECT_THAT(status.error().message, AllOf(HasSubstr("device"), HasSubstr("Fake, sm_90"),
                                              HasSubstr("Fake, sm_80"), HasSubstr("rank 1")));
  }
}

TEST_F(NcclTest, ADeviceThatRunsOutOfMemoryStopsAllRanks) {
  auto results = run(
      [this](Communicator &c, comm::Store &) -> Result<Tensor> {
        if (auto here = c.barrier(all(), "start")->wait(); !here)
          return here;
        if (c.rank() == 2)
          driver.failCall("cuMemAlloc_v2", cuda::DriverCode::OutOfMemory);
        else
          std::this_thread::sleep_for(300ms);
        // Larger than all before.
        Tensor large = Tensor::zeros({DType::F32, {1000}}, kernels::Arith::Native);
        return c.allReduce(all(), ReduceKind::Sum, large, "my place")->wait();
      },
      {});
  for (const Result<Tensor> &result : results) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::RankFailed);
    EXPECT_THAT(result.error().message,
                AllOf(HasSubstr("my place"), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY")));
  }
}

} // namespace
} // namespace tbc::test
