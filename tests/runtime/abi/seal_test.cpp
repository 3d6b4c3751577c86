//===- seal_test.cpp - The seal of a Program's folder ----------------------===//

#include "runtime/abi/Seal.h"
#include "runtime/abi/Sha256.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sys/stat.h>

namespace tbc::program {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// A folder with files "a" and "b", sealed.
class SealTest : public testing::Test {
protected:
  void SetUp() override {
    folder = (fs::temp_directory_path() / "tbc-seal-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    write("a", "the first file");
    write("b", "another");
    write(sealFile, writeSeal(sealed()));
  }
  void TearDown() override { fs::remove_all(folder); }

  void write(const std::string &name, const std::string &text) {
    std::ofstream(folder + "/" + name, std::ios::binary) << text;
  }
  Seal sealed(int64_t largestHashed = largestHashedBytes) {
    Seal seal;
    for (const char *name : {"a", "b"})
      seal.files.push_back(*sealOf(*OpenFile::open(folder + "/" + name), name, largestHashed));
    seal.sources = {{"../model.onnx", 3, sha256Hex("abc")}, {"../large.bin", 1 << 30, "", 77}};
    return seal;
  }
  /// Returns the error of opening the folder and checking every file, or an empty text.
  std::string errorOf() {
    Result<SealedFolder> opened = SealedFolder::open(folder);
    Status status = opened ? opened->checkAll() : Status(opened.error());
    if (status)
      return "";
    EXPECT_EQ(status.error().code, ErrorCode::Usage);
    return status.error().message;
  }

  std::string folder;
};

TEST_F(SealTest, ComesBackAsItWasWritten) {
  std::string text = writeSeal(sealed());
  auto read = readSeal(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(writeSeal(*read), text);
  EXPECT_EQ(read->files[0].bytes, 14);
  EXPECT_EQ(read->sources[1].modifiedNanoseconds, 77);
  EXPECT_FALSE(read->sources[1].isHashed());
}

TEST_F(SealTest, EveryBitOfTheSealCounts) {
  std::string text = writeSeal(sealed());
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = char(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(readSeal(damaged)) << "bit " << bit;
  }
  EXPECT_FALSE(readSeal(text.substr(0, text.size() - 1)));
  EXPECT_FALSE(readSeal(text + "\n"));
}

TEST_F(SealTest, HandsOutWhatItChecked) {
  auto opened = SealedFolder::open(folder);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(*opened->text("a"), "the first file");
  EXPECT_FALSE(opened->text("c"));
  // Replacing the file under this name does not change the open file.
  auto file = opened->file("b");
  ASSERT_TRUE(file);
  fs::remove(folder + "/b");
  write("b", "swapped");
  std::ifstream through(file->descriptorPath());
  std::string content;
  through >> content;
  EXPECT_EQ(content, "another");
  EXPECT_EQ(*opened->text("b"), "another");
}

TEST_F(SealTest, WhatDiffersIsNamed) {
  EXPECT_EQ(errorOf(), "");
  write("b", "anothes");
  EXPECT_THAT(errorOf(), AllOf(HasSubstr(folder + "/b is not what tbc compile wrote"),
                               HasSubstr("its SHA-256 begins with "), HasSubstr("compile again")));
  write("b", "longer than it was");
  EXPECT_THAT(errorOf(),
              HasSubstr("/b is not what tbc compile wrote: it has 18 bytes, sealed were 7"));
  fs::remove(folder + "/b");
  EXPECT_THAT(errorOf(), HasSubstr("/b is missing, which seal.json lists"));
  fs::remove(folder + "/" + sealFile);
  EXPECT_THAT(errorOf(), HasSubstr("it has no seal.json"));
}

TEST_F(SealTest, WrittenToWhileItIsOpenIsNoticed) {
  auto opened = SealedFolder::open(folder);
  ASSERT_TRUE(opened);
  write("a", "the first fild"); // in place
  EXPECT_FALSE(opened->text("a"));
  EXPECT_FALSE(opened->file("a"));
}

TEST_F(SealTest, PipesAreRefusedAndNotWaitedFor) {
  fs::remove(folder + "/a");
  ASSERT_EQ(mkfifo((folder + "/a").c_str(), 0600), 0);
  EXPECT_THAT(errorOf(), HasSubstr("it is no regular file"));
}

TEST_F(SealTest, LargeFilesBySizeAndTime) {
  auto file = OpenFile::open(folder + "/a");
  ASSERT_TRUE(file);
  auto seal = sealOf(*file, "a", /*largestHashed=*/8);
  ASSERT_TRUE(seal);
  EXPECT_FALSE(seal->isHashed());
  EXPECT_EQ(*differenceFrom(*seal, *file), "");
  seal->modifiedNanoseconds -= 1;
  EXPECT_EQ(*differenceFrom(*seal, *file), "it was written after it was sealed");
}

} // namespace
} // namespace tbc::program
