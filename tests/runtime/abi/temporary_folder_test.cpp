#include "runtime/abi/TemporaryFolder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

namespace fs = std::filesystem;
using tbc::TemporaryFolder;
using testing::HasSubstr;

TEST(TemporaryFolder, IsRemovedWithItsContent) {
  std::string file, folder;
  {
    auto made = TemporaryFolder::make("tbc-test");
    ASSERT_TRUE(made);
    const TemporaryFolder moved = std::move(*made);
    file = moved.file("a");
    folder = moved.file("");
    std::ofstream(file) << "text";
    EXPECT_TRUE(fs::is_regular_file(file));
    EXPECT_THAT(file, HasSubstr("/tbc-test-"));
  }
  EXPECT_FALSE(fs::exists(folder));
}

TEST(TemporaryFolder, ErrorsNameTheFolder) {
  const char *before = getenv("TMPDIR");
  const std::optional<std::string> kept =
      before ? std::optional<std::string>(before) : std::nullopt;
  setenv("TMPDIR", "/no/such/folder", 1);
  auto made = TemporaryFolder::make("tbc-test");
  kept ? setenv("TMPDIR", kept->c_str(), 1) : unsetenv("TMPDIR");
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("TMPDIR"));
}
