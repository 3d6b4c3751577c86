//===- start_libraries_test.cpp - Libraries that fail to start on a GPU ------===//

#include "runtime/cuda/StartLibraries.h"
#include "tests/runtime/cuda/FakeCublasLt.h"
#include "tests/runtime/cuda/FakeCudnn.h"
#include "tests/runtime/cuda/FakeNccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace tbc::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(CublasSonames, BeginWithTheMajorOfTheDriver) {
  EXPECT_THAT(cuda::cublasSonames(12040), ElementsAre("libcublasLt.so.12", "libcublasLt.so.13"));
  EXPECT_THAT(cuda::cublasSonames(13000), ElementsAre("libcublasLt.so.13", "libcublasLt.so.12"));
  // A driver executes code built for an older CUDA.
  EXPECT_THAT(cuda::cublasSonames(14000), ElementsAre("libcublasLt.so.13", "libcublasLt.so.12"));
}

class StartLibraries : public testing::Test {
protected:
  StartLibraries() : cublas(driver), cudnn(driver), nccl(driver) {
    auto opened = cuda::Device::open(FakeDriver::table(), 0);
    EXPECT_TRUE(opened);
    device = *opened;
  }
  ~StartLibraries() override {
    EXPECT_EQ(cublas.numAlive(), 0);
    EXPECT_EQ(nccl.numAlive(), 0);
    EXPECT_THAT(driver.complaints(), IsEmpty());
  }

  /// Returns a cuBLASLt whose handles cannot be created.
  static cuda::CublasLt refusing() {
    cuda::CublasLt library = FakeCublasLt::table();
    library.create = [](cuda::CublasHandle *) { return cuda::CublasCode(1); };
    return library;
  }
  /// Loads `library` for `soname` and the fake for all others. Records the sonames.
  cuda::CublasLoader loader(const std::string &soname, const Result<cuda::CublasLt> &library) {
    return [=](const std::string &asked) {
      tried.push_back(asked);
      return asked == soname ? library : Result<cuda::CublasLt>(FakeCublasLt::table());
    };
  }

  FakeDriver driver;
  FakeCublasLt cublas;
  FakeCudnn cudnn;
  FakeNccl nccl;
  cuda::DevicePtr device;
  std::vector<std::string> tried, refusals;
};

TEST_F(StartLibraries, OneThatStartsIsTakenAtOnce) {
  EXPECT_TRUE(cuda::startedCublasLt(device, refusals, loader("libcublasLt.so.13", refusing())));
  EXPECT_THAT(tried, ElementsAre("libcublasLt.so.12"));
  EXPECT_THAT(refusals, IsEmpty());
}

TEST_F(StartLibraries, TheNextOneIsTakenAndTheRefusalIsTold) {
  EXPECT_TRUE(cuda::startedCublasLt(device, refusals, loader("libcublasLt.so.12", refusing())));
  EXPECT_THAT(tried, ElementsAre("libcublasLt.so.12", "libcublasLt.so.13"));
  EXPECT_THAT(
      refusals,
      ElementsAre(
          AllOf(HasSubstr("GPU 0 (Fake, sm_90), starting cuBLASLt: cuBLASLt says not initialized"),
                HasSubstr("the driver is for CUDA 12.4"))));
}

TEST_F(StartLibraries, OneThatIsNotInstalledIsNoRefusal) {
  Error missing{ErrorCode::Other, "cannot be loaded"};
  EXPECT_TRUE(cuda::startedCublasLt(device, refusals, loader("libcublasLt.so.12", missing)));
  EXPECT_THAT(refusals, IsEmpty());
}

TEST_F(StartLibraries, IfNoneStartsAllReasonsAreTold) {
  cublas.isOfAnotherMajor();
  Error missing{ErrorCode::Other, "cannot be loaded"};
  auto found = cuda::startedCublasLt(device, refusals, loader("libcublasLt.so.12", missing));
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message,
              AllOf(HasSubstr("cannot be loaded; GPU 0"), HasSubstr("starting cuBLASLt")));
  EXPECT_EQ(refusals.size(), 1u);
}

/// Each soname is there, missing, or refuses to start: nine cases.
TEST_F(StartLibraries, EveryCombinationOfMissingAndRefusingIsNamed) {
  const std::vector<std::string> sonames{"libcublasLt.so.12", "libcublasLt.so.13"};
  enum State { There, Missing, Refuses };
  for (State first : {There, Missing, Refuses})
    for (State second : {There, Missing, Refuses}) {
      SCOPED_TRACE(std::to_string(first) + " " + std::to_string(second));
      const std::map<std::string, State> states{{sonames[0], first}, {sonames[1], second}};
      refusals.clear();
      auto found = cuda::startedCublasLt(device, refusals, [&](const std::string &soname) {
        switch (states.at(soname)) {
        case There:
          return Result<cuda::CublasLt>(FakeCublasLt::table());
        case Refuses:
          return Result<cuda::CublasLt>(refusing());
        case Missing:
          break;
        }
        return Result<cuda::CublasLt>(Error{ErrorCode::Other, soname + " cannot be loaded"});
      });
      bool isStarted = first == There || second == There;
      ASSERT_EQ(bool(found), isStarted);
      size_t numRefusals = first == There ? 0 : (first == Refuses) + (second == Refuses);
      EXPECT_EQ(refusals.size(), numRefusals);
      if (isStarted)
        continue;
      for (const auto &[soname, state] : states)
        EXPECT_THAT(found.error().message, HasSubstr(state == Missing ? soname + " cannot be loaded"
                                                                      : "starting cuBLASLt"));
    }
}

TEST_F(StartLibraries, ADriverWithoutAVersionIsAnError) {
  driver.failCall("cuDriverGetVersion", cuda::DriverCode::OutOfMemory);
  auto found = cuda::startedCublasLt(device, refusals);
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message, HasSubstr("the driver's version"));
}

TEST_F(StartLibraries, CudnnSaysWhyItDoesNotStart) {
  EXPECT_TRUE(cuda::tryCudnn(device, FakeCudnn::table()));
  cudnn.isOfAnotherMajor();
  Status status = cuda::tryCudnn(device, FakeCudnn::table());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::RankFailed);
  EXPECT_THAT(status.error().message,
              AllOf(HasSubstr("GPU 0 (Fake, sm_90), starting cuDNN: cuDNN says not initialized"),
                    HasSubstr("the driver is for CUDA 12.4")));
}

TEST_F(StartLibraries, NcclConnectsOneRank) {
  EXPECT_TRUE(cuda::tryNccl(device, FakeNccl::table(), std::chrono::minutes(1)));
  cuda::Nccl silent = FakeNccl::table();
  silent.getAsyncError = [](cuda::NcclHandle, cuda::NcclCode *code) {
    *code = cuda::NcclCode::InProgress;
    return cuda::NcclCode::Success;
  };
  Status status = cuda::tryNccl(device, silent, std::chrono::milliseconds(5));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::HangDetected);
  EXPECT_THAT(status.error().message, HasSubstr("not connected after 5 ms"));
}

} // namespace
} // namespace tbc::test
