//===- library_test.cpp - Missing, old or broken libraries -----------------===//

#include "runtime/cuda/Nccl.h"
#include "runtime/cuda/SharedLibrary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tbc::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

LibrarySpec spec(std::vector<std::string> sonames) {
  return {"the moon", std::move(sonames), "install a rocket"};
}

TEST(SharedLibrary, OneThatIsMissingSaysWhatWasTriedAndWhatToInstall) {
  auto library = SharedLibrary::open(spec({"libmoon.so.2", "libmoon.so.1"}));
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, ErrorCode::Other);
  EXPECT_THAT(library.error().message,
              AllOf(HasSubstr("the moon cannot be loaded"), HasSubstr("libmoon.so.2"),
                    HasSubstr("libmoon.so.1"), HasSubstr(": install a rocket")));
}

TEST(SharedLibrary, TheFirstThatIsThereIsTaken) {
  auto library = SharedLibrary::open(spec({"libmoon.so.2", TBC_OLD_NCCL}));
  ASSERT_TRUE(library);
  int (*function)(int *) = nullptr;
  ASSERT_TRUE(library->bind("ncclGetVersion", function));
  int version = 0;
  EXPECT_EQ(function(&version), 0);
  EXPECT_EQ(version, 21705);
}

TEST(SharedLibrary, AFunctionThatIsMissingIsNamed) {
  auto library = SharedLibrary::open(spec({TBC_OLD_NCCL}));
  ASSERT_TRUE(library);
  int (*function)() = nullptr;
  Status status = library->bind("ncclCommSplit", function);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message,
              AllOf(HasSubstr("has no function ncclCommSplit"), HasSubstr("install a rocket")));
}

TEST(SharedLibrary, AnOldVersionIsRefused) {
  auto library = SharedLibrary::open(spec({TBC_OLD_NCCL}));
  ASSERT_TRUE(library);
  EXPECT_TRUE(library->checkVersion(21800, "2.18.0", 21800, "2.18.0"));
  Status status = library->checkVersion(21705, "2.17.5", 21800, "2.18.0");
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message,
              AllOf(HasSubstr("is version 2.17.5, at least 2.18.0 is needed"),
                    HasSubstr("install a rocket")));
}

// The result depends on the machine: all functions, or a message that says how to fix it.
TEST(SharedLibrary, TheMachinesOwnLoadOrSayWhatToInstall) {
  if (auto driver = loadDriver())
    EXPECT_TRUE(driver->launchKernel);
  else
    EXPECT_THAT(driver.error().message, HasSubstr("the CUDA driver"));
  if (auto nccl = loadNccl())
    EXPECT_TRUE(nccl->allReduce);
  else
    EXPECT_THAT(nccl.error().message, AllOf(HasSubstr("NCCL"), HasSubstr("libnccl")));
}

} // namespace
} // namespace tbc::cuda
