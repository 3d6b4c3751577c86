//===- external_test.cpp - Models with external data files ----------------===//

#include "frontend/onnx/ExternalData.h"
#include "tests/hostile/Corpus.h"
#include "tests/hostile/Import.h"

#include "mlir/IR/MLIRContext.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <iostream>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace tbc;
using namespace tbc::test;
using ::testing::HasSubstr;

namespace {

/// A model with one external weight of four floats at `location`, in its own folder.
class External : public ::testing::Test {
protected:
  std::string importWith(const std::string &location, const std::string &offset = "0",
                         const std::string &length = "16") {
    ModelBuilder model = reluModel();
    model.external("w", {4}, location, offset, length);
    model.node("Add", {"x", "w"}, {"z"}, "a");
    model.output("z");
    return importFileError(folder.write("m/model.onnx", model.bytes()), options);
  }
  TemporaryFolder folder;
  frontend::ImportOptions options;
  const std::string sixteen = std::string(16, 'd');
};

TEST_F(External, PresentOrAbsent) {
  EXPECT_EQ(importWith("w.bin"), "");
  folder.write("m/w.bin", sixteen);
  EXPECT_EQ(importWith("w.bin"), "");
  folder.write("m/sub/w.bin", sixteen);
  EXPECT_EQ(importWith("sub/w.bin"), "");
}

TEST_F(External, PathsThatLeave) {
  folder.write("secret", sixteen);
  folder.write("m/a/x", "");
  EXPECT_THAT(importWith("../secret"), HasSubstr("leaves the model's folder"));
  EXPECT_THAT(importWith("a/../../secret"), HasSubstr("leaves the model's folder"));
  EXPECT_THAT(importWith(folder.path("secret")), HasSubstr("absolute"));
  EXPECT_THAT(importWith("/dev/zero"), HasSubstr("absolute"));
  EXPECT_THAT(importWith(""), HasSubstr("no location"));
}

TEST_F(External, Links) {
  folder.write("secret", sixteen);
  folder.write("data/w.bin", sixteen);
  folder.write("m/x", "");
  ASSERT_EQ(::symlink("../secret", folder.path("m/soft").c_str()), 0);
  ASSERT_EQ(::symlink("../data", folder.path("m/folder").c_str()), 0);
  ASSERT_EQ(::link(folder.path("secret").c_str(), folder.path("m/hard").c_str()), 0);
  EXPECT_THAT(importWith("soft"), HasSubstr("symbolic link"));
  EXPECT_THAT(importWith("folder/w.bin"), HasSubstr("symbolic link"));
  EXPECT_THAT(importWith("hard"), HasSubstr("hard link"));

  // Links are permitted only beneath a root named by the user.
  options.externalDataRoot = folder.path("");
  EXPECT_EQ(importWith("hard"), "");
  EXPECT_EQ(importWith("soft"), "");
  ASSERT_EQ(::symlink("/etc/passwd", folder.path("m/out").c_str()), 0);
  EXPECT_THAT(importWith("out"), HasSubstr("lies outside"));
}

TEST_F(External, Devices) {
  folder.write("m/x", "");
  ASSERT_EQ(::mkfifo(folder.path("m/fifo").c_str(), 0600), 0);
  EXPECT_THAT(importWith("fifo"), HasSubstr("not a regular file"));
  EXPECT_THAT(importWith("."), HasSubstr("not a file"));
}

TEST_F(External, Ranges) {
  folder.write("m/w.bin", sixteen);
  EXPECT_THAT(importWith("w.bin", "-1"), HasSubstr("offset '-1'"));
  EXPECT_THAT(importWith("w.bin", "0", "-1"), HasSubstr("length '-1'"));
  EXPECT_THAT(importWith("w.bin", "4"), HasSubstr("outside 'w.bin', which has 16"));
  EXPECT_THAT(importWith("w.bin", "9223372036854775807"), HasSubstr("out of range"));
  EXPECT_THAT(importWith("w.bin", "0", "12"), HasSubstr("length is 12"));
  EXPECT_THAT(importWith("w.bin", "0x0"), HasSubstr("not a number"));
  EXPECT_THAT(importWith("w.bin", "99999999999999999999"), HasSubstr("not a number"));
}

TEST_F(External, Overlaps) {
  ModelBuilder model = reluModel();
  model.external("v", {4}, "w.bin", "0", "16");
  model.external("w", {4}, "./w.bin", "12", "16");
  std::string path = folder.write("m/model.onnx", model.bytes());
  EXPECT_THAT(importFileError(path), HasSubstr("overlap those of tensor 'v'"));
}

/// After the import, weights are read from the file opened by it, even if the path changes.
TEST_F(External, SwappedAfterTheImport) {
  folder.write("m/w.bin", sixteen);
  folder.write("secret", std::string(16, 's'));
  ModelBuilder model = reluModel();
  model.external("w", {4}, "w.bin", "0", "16");
  model.node("Add", {"x", "w"}, {"z"}, "a");
  model.output("z");
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  auto imported = frontend::importOnnx(context, folder.write("m/model.onnx", model.bytes()), {});
  ASSERT_TRUE(bool(imported)) << imported.error().message;
  const frontend::ParameterSource source = imported->parameters.at(0);
  auto before = frontend::loadParameter(source, kernels::Arith::Native);
  ASSERT_TRUE(bool(before)) << before.error().message;
  std::filesystem::remove(folder.path("m/w.bin"));
  ASSERT_EQ(::symlink("../secret", folder.path("m/w.bin").c_str()), 0);
  auto after = frontend::loadParameter(source, kernels::Arith::Native);
  ASSERT_TRUE(bool(after)) << after.error().message;
  EXPECT_EQ(before->toDoubles(), after->toDoubles());
  // A new import sees the link.
  EXPECT_THAT(importWith("w.bin"), HasSubstr("symbolic link"));
}

/// Exchanges the model's own file at a path with a foreign one, at any moment. Each open must give
/// the own file or fail.
class Exchanged : public External {
protected:
  void run(const std::string &foreign) {
    std::string own = folder.path("m/w.bin");
    std::atomic<bool> stop{false};
    std::atomic<int64_t> exchanges{0};
    std::thread attacker([&] {
      while (!stop) {
        exchanges +=
            ::renameat2(AT_FDCWD, own.c_str(), AT_FDCWD, foreign.c_str(), RENAME_EXCHANGE) == 0;
        if (exchanges % 61 == 0) // odd: either file may be at the path meanwhile
          std::this_thread::yield();
      }
    });
    int opened = 0, refused = 0, foreignRead = 0;
    // Runs for four seconds; on a busy machine until both threads have had their turns.
    using std::chrono::seconds;
    auto begin = std::chrono::steady_clock::now();
    auto isWithin = [&](seconds limit) { return std::chrono::steady_clock::now() < begin + limit; };
    auto isSeen = [&] { return opened > 0 && refused > 0 && exchanges > 100; };
    int tries = numberFromEnvironment("TBC_EXCHANGES", 20000);
    for (int i = 0; (i < tries && isWithin(seconds(4))) || (!isSeen() && isWithin(seconds(60)));
         ++i) {
      auto file = frontend::openExternal("w", folder.path("m"), "w.bin", "");
      if (!file || !*file) {
        ++refused;
        continue;
      }
      ++opened;
      const uint8_t *data = (**file).data();
      foreignRead += (**file).size() != 16 || std::string(data, data + 16) != sixteen;
    }
    stop = true;
    attacker.join();
    std::cout << opened << " opened, " << refused << " refused, " << exchanges << " exchanges\n";
    EXPECT_EQ(foreignRead, 0);
    // Both outcomes must have been seen, else the test was void.
    EXPECT_GT(opened, 0);
    EXPECT_GT(refused, 0);
    EXPECT_GT(exchanges.load(), 100);
  }
};

TEST_F(Exchanged, WithASymbolicLink) {
  folder.write("m/w.bin", sixteen);
  folder.write("secret", "secret secret secret");
  ASSERT_EQ(::symlink("../secret", folder.path("m/soft").c_str()), 0);
  run(folder.path("m/soft"));
}

TEST_F(Exchanged, WithAHardLink) {
  folder.write("m/w.bin", sixteen);
  std::string secret = folder.write("secret", "secret secret secret");
  ASSERT_EQ(::link(secret.c_str(), folder.path("m/hard").c_str()), 0);
  run(folder.path("m/hard"));
}

TEST_F(Exchanged, WithAFifo) {
  folder.write("m/w.bin", sixteen);
  ASSERT_EQ(::mkfifo(folder.path("m/fifo").c_str(), 0600), 0);
  run(folder.path("m/fifo"));
}

} // namespace
