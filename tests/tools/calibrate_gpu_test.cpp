//===- calibrate_gpu_test.cpp - Measuring fake GPUs -----------------------===//

#include "planner/devices/Cluster.h"
#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/NcclCommunicator.h"
#include "runtime/cuda/Progress.h"
#include "runtime/launch/Stores.h"
#include "tests/runtime/cuda/FakeCublasLt.h"
#include "tests/runtime/cuda/FakeNccl.h"
#include "tools/calibrate/Gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <thread>

namespace tbc::test {
namespace {

using calibrate::Measurements;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CalibrateGpu : public testing::Test {
protected:
  CalibrateGpu() {
    folder = (std::filesystem::temp_directory_path() / "tbc-calibrate-XXXXXX").string();
    EXPECT_TRUE(mkdtemp(folder.data()));
  }
  ~CalibrateGpu() override { std::filesystem::remove_all(folder); }

  /// Returns the measurements of each rank.
  std::vector<Result<Measurements>> measure(int numRanks) {
    std::vector<Result<Measurements>> all(static_cast<size_t>(numRanks), Measurements{});
    std::vector<std::thread> threads;
    for (int rank = 0; rank < numRanks; ++rank)
      threads.emplace_back([&, rank] {
        auto store = launch::openFileStore(folder, "shared");
        auto device = cuda::Device::open(FakeDriver::table(), rank);
        auto communicator = cuda::connectNccl(rank, numRanks, **store, FakeNccl::table(), *device,
                                              cuda::NcclOptions());
        Measurements measured;
        Status status = calibrate::measureGpu(*device, FakeCublasLt::table(), /*isQuick=*/true,
                                              **communicator, measured);
        all[size_t(rank)] =
            status ? Result<Measurements>(measured) : Result<Measurements>(status.error());
      });
    for (std::thread &thread : threads)
      thread.join();
    return all;
  }

  static FakeOptions options(int numRanks) {
    FakeOptions options;
    options.numDevices = numRanks;
    return options;
  }

  std::string folder;
};

TEST_F(CalibrateGpu, MeasuresCopiesProductsAndCollectives) {
  constexpr int numRanks = 4;
  FakeDriver driver(options(numRanks));
  FakeNccl nccl(driver);
  FakeCublasLt cublas(driver);
  auto all = measure(numRanks);
  for (const auto &measured : all)
    ASSERT_TRUE(measured) << measured.error().message;
  Measurements m = *all[0];
  m.ranks = numRanks;
  EXPECT_EQ(m.device, "Fake, sm_90");
  EXPECT_EQ(m.memoryBytes, double(size_t(1) << 26));
  EXPECT_GT(m.bytesPerSecond, 0);
  EXPECT_GT(m.hostBytesPerSecond, 0);
  EXPECT_GT(m.kernelFloor, 0);
  std::set<std::pair<std::string, int64_t>> products;
  for (const calibrate::KernelPoint &point : m.matmuls) {
    products.insert({point.dtype, point.size});
    EXPECT_EQ(point.flops, 2.0 * double(point.size * point.size * point.size));
    EXPECT_GT(point.seconds, 0);
  }
  EXPECT_EQ(products.size(), 6u);
  EXPECT_EQ(m.rows.size(), 3u);
  // Over 2 and 4 ranks, both kinds, two sizes.
  EXPECT_EQ(m.collectives.size(), 8u);
  for (const calibrate::CollectivePoint &point : m.collectives)
    EXPECT_GT(point.seconds, 0) << point.kind << " " << point.ranks;
  // All ranks agree.
  for (const auto &other : all)
    EXPECT_EQ(other->collectives.back().seconds, m.collectives.back().seconds);
  EXPECT_THAT(driver.complaints(), IsEmpty());
  EXPECT_THAT(driver.leaks(), IsEmpty());

  std::string text = clusterText(m, "mine");
  auto cluster = planner::parseCluster(text, "text");
  ASSERT_TRUE(cluster) << cluster.error().message << text;
  EXPECT_EQ(cluster->devicesPerNode, numRanks);
  EXPECT_THAT(text, HasSubstr("4 x Fake, sm_90, measured"));
  EXPECT_THAT(text, HasSubstr("#   all_reduce of 2048 bytes over 4 ranks"));
}

TEST_F(CalibrateGpu, OneGpuHasNoCollectivesAndSaysSo) {
  FakeDriver driver(options(1));
  FakeNccl nccl(driver);
  FakeCublasLt cublas(driver);
  auto all = measure(1);
  ASSERT_TRUE(all[0]) << all[0].error().message;
  all[0]->ranks = 1;
  EXPECT_THAT(all[0]->collectives, IsEmpty());
  std::string text = clusterText(*all[0], "mine");
  ASSERT_TRUE(planner::parseCluster(text, "text")) << text;
  EXPECT_THAT(text, HasSubstr("# Not measured with one GPU"));
}

TEST_F(CalibrateGpu, NoWayToMultiplyIsAnError) {
  FakeDriver driver(options(1));
  FakeNccl nccl(driver);
  FakeCublasLt cublas(driver);
  cublas.hasNoWay();
  auto all = measure(1);
  ASSERT_FALSE(all[0]);
  EXPECT_THAT(all[0].error().message, HasSubstr("cuBLASLt has no way to multiply f32"));
}

TEST(CalibrateGpus, WithoutADriverItSaysWhatToInstall) {
  if (cuda::findDriver())
    GTEST_SKIP() << "there is a driver";
  auto measured = calibrate::measureGpus({1, true});
  ASSERT_FALSE(measured);
  EXPECT_THAT(measured.error().message, HasSubstr("install NVIDIA's driver"));
}

// The device context's memory in plans is an assumption (docs/clusters.md). Its lower end must hold
// the runtime's allocations beside the memory plan, and half a GiB for NCCL.
TEST(ContextOfGpus, HasRoomForWhatTheRuntimeWorksIn) {
  int numPresets = 0;
  for (const std::string &name : planner::clusterPresets()) {
    if (name == "cpu-local" || name == "gaudi3" || name == "mi300x" || name.rfind("tpu", 0) == 0)
      continue;
    SCOPED_TRACE(name);
    auto cluster = planner::loadCluster(name);
    ASSERT_TRUE(cluster);
    int64_t numbers = cuda::Progress::most * int64_t(sizeof(int32_t));
    EXPECT_GE(cluster->contextBytes - cluster->contextUncertaintyBytes,
              cuda::cublasWorkspaceBytes + numbers + (int64_t(512) << 20));
    ++numPresets;
  }
  EXPECT_GE(numPresets, 10);
}

} // namespace
} // namespace tbc::test
