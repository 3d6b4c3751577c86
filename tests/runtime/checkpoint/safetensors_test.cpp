//===- safetensors_test.cpp - Tensors in a file ----------------------------===//

#include "runtime/checkpoint/Safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

namespace tbc::checkpoint {
namespace {

using kernels::Arith;
using kernels::DType;
using testing::HasSubstr;

class Safetensors : public testing::Test {
protected:
  void SetUp() override {
    folder = (std::filesystem::temp_directory_path() / "tbc-st-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    path = folder + "/a.safetensors";
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  Status write() {
    return writeSafetensors(
        path, {{"a", "F32", {2}, 0, 0}, {"e", "I64", {0, 3}, 0, 0}, {"b", "U8", {3}, 0, 0}},
        {{"step", "7"}}, [](size_t i) -> Result<std::vector<unsigned char>> {
          std::vector<std::vector<unsigned char>> contents = {
              {0, 0, 128, 63, 0, 0, 0, 64}, {}, {1, 2, 3}};
          return contents[i];
        });
  }
  std::string read() {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  void replace(const std::string &text) { std::ofstream(path, std::ios::binary) << text; }
  std::string errorOf(const std::string &text) {
    replace(text);
    auto file = readSafetensors(path);
    if (file)
      return "no error";
    EXPECT_EQ(file.error().code, ErrorCode::CheckpointUnreadable);
    EXPECT_THAT(file.error().message, HasSubstr(path));
    return file.error().message;
  }
  static std::string withHeader(const std::string &header, const std::string &elements) {
    std::string length(8, '\0');
    length[0] = char(header.size() & 255);
    length[1] = char(header.size() >> 8);
    return length + header + elements;
  }
  std::string folder, path;
};

TEST_F(Safetensors, ComeBackTheSame) {
  ASSERT_TRUE(bool(write()));
  auto file = readSafetensors(path);
  ASSERT_TRUE(bool(file)) << file.error().message;
  EXPECT_EQ(file->metadata.at("step"), "7");
  ASSERT_EQ(file->entries.size(), 3u);
  const Entry &a = file->entries.at("a");
  EXPECT_EQ(a.shape, kernels::Shape{2});
  float values[2];
  std::memcpy(values, file->elements(a), 8);
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], 2);
  EXPECT_EQ(file->elements(file->entries.at("b"))[2], 3);
  EXPECT_EQ(a.offset % 8, 0);
}

TEST_F(Safetensors, EveryCutIsFound) {
  ASSERT_TRUE(bool(write()));
  std::string whole = read();
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(errorOf(whole.substr(0, size)), "no error") << size;
  EXPECT_NE(errorOf(whole + "x"), "no error");
}

TEST_F(Safetensors, WrongHeadersAreRefused) {
  EXPECT_THAT(errorOf(withHeader("[]", "")), HasSubstr("JSON"));
  EXPECT_THAT(errorOf(withHeader("{\"a\":{}}", "")), HasSubstr("malformed"));
  for (const char *entry : {"\"F33\",\"shape\":[1],\"data_offsets\":[0,4]",
                            "\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]",
                            "\"F32\",\"shape\":[1],\"data_offsets\":[0,8]",
                            "\"F32\",\"shape\":[1],\"data_offsets\":[4,8]",
                            "\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]",
                            "\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]"})
    EXPECT_THAT(errorOf(withHeader("{\"a\":{\"dtype\":" + std::string(entry) + "}}", "1234")),
                HasSubstr("\"a\""))
        << entry;
}

TEST_F(Safetensors, AnyBytesAreReadOrRefused) {
  ASSERT_TRUE(bool(write()));
  std::string whole = read();
  size_t headerEnd = whole.find("}}") + 2;
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    std::string mutant = whole;
    for (int k = 0; k <= int(random() % 3); ++k)
      mutant[random() % headerEnd] = "0123456789-{}[],:\"FI\xff"[random() % 21];
    replace(mutant);
    auto file = readSafetensors(path);
    if (!file) {
      EXPECT_EQ(file.error().code, ErrorCode::CheckpointUnreadable);
      continue;
    }
    // All entries lie within the file.
    for (const auto &[name, entry] : file->entries)
      EXPECT_LE(entry.offset + entry.bytes, int64_t(mutant.size()));
  }
}

TEST_F(Safetensors, AFolderThatIsNotThereIsAnError) {
  path = folder + "/none/a";
  Status status = write();
  ASSERT_FALSE(bool(status));
  EXPECT_THAT(status.error().message, HasSubstr("cannot create"));
}

TEST(StoredTypes, OfEveryArithmetic) {
  EXPECT_EQ(storedType(DType::BF16, Arith::Native), "BF16");
  EXPECT_EQ(storedType(DType::BF16, Arith::F64), "F64");
  EXPECT_EQ(storedType(DType::BF16, Arith::Residue61), "U64");
  EXPECT_EQ(storedType(DType::I32, Arith::Residue61), "I32");
  EXPECT_EQ(storedType(DType::Bool, Arith::Native), "BOOL");
}

/// A file of another framework may hold types that no parameter has.
TEST_F(Safetensors, TypesOfOthersAreReadOrNamed) {
  for (const auto &[type, bytes] : std::map<std::string, int>{
           {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"U16", 2}, {"U32", 4}, {"C64", 8}}) {
    const std::string end = std::to_string(3 * bytes);
    const std::string content = withHeader(
        "{\"a\":{\"dtype\":\"" + type + "\",\"shape\":[3],\"data_offsets\":[0," + end + "]}}",
        std::string(size_t(3 * bytes), 'x'));
    EXPECT_EQ(errorOf(content), "no error") << type;
  }
  EXPECT_THAT(
      errorOf(withHeader("{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", "x")),
      HasSubstr("its entry \"a\" has elements of type F4, which tbc does not know"));
}

/// Two entries overlap and other bytes are unused; the sizes still add up.
TEST_F(Safetensors, AnOverlapDoesNotMakeUpForAHole) {
  std::string one = "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":";
  std::string header = "{\"a\":" + one + "[0,4]},\"b\":" + one + "[2,6]},\"c\":" + one + "[8,12]}}";
  EXPECT_THAT(errorOf(withHeader(header, std::string(12, 'x'))),
              HasSubstr("its entry \"b\" begins at byte"));
}

} // namespace
} // namespace tbc::checkpoint
