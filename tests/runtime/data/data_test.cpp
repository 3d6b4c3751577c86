//===- data_test.cpp - Training data ---------------------------------------===//

#include "runtime/data/Dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace tbc::data {
namespace {

using kernels::DType;
using testing::HasSubstr;

Field field(const std::string &name, DType dtype, int64_t elements, int64_t below = 0,
            bool isLabel = false) {
  Field result;
  result.name = name;
  result.dtype = dtype;
  result.elements = elements;
  result.below = below;
  result.isLabel = isLabel;
  return result;
}

/// Samples of 4 tokens from a vocabulary of 100, with labels.
std::vector<Field> language(int64_t below = 100) {
  return {field("ids", DType::I64, 4, below), field("labels", DType::I64, 4, below, true)};
}
std::vector<Field> classifier() {
  Field labels = field("labels", DType::I64, 1, 10, true);
  labels.ignored = -100;
  return {field("x", DType::F32, 3), labels};
}

class Files : public testing::Test {
protected:
  void SetUp() override {
    folder = (std::filesystem::temp_directory_path() / "tbc-data-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::string write(const std::string &name, const std::string &bytes) {
    std::ofstream(folder + "/" + name, std::ios::binary) << bytes;
    return folder + "/" + name;
  }
  template <typename T> std::string writeTokens(const std::string &name, std::vector<T> tokens) {
    return write(name, std::string(reinterpret_cast<const char *>(tokens.data()),
                                   tokens.size() * sizeof(T)));
  }
  /// An .npy file as NumPy writes it.
  template <typename T>
  std::string writeNpy(const std::string &name, const std::string &type, const std::string &shape,
                       std::vector<T> values, const std::string &order = "False") {
    std::string header =
        "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
    header.append(64 - (header.size() + 11) % 64, ' ');
    header += '\n';
    std::string bytes = std::string("\x93NUMPY\x01", 7) + '\0' + char(header.size() & 255) +
                        char(header.size() >> 8) + header;
    return write(name, bytes + std::string(reinterpret_cast<const char *>(values.data()),
                                           values.size() * sizeof(T)));
  }
  static std::string errorOf(const std::vector<std::string> &sources,
                             const std::vector<Field> &fields, bool wide = false) {
    auto opened = openDataset(sources, fields, wide, 1);
    if (opened)
      return "no error";
    EXPECT_EQ(opened.error().code, ErrorCode::Usage);
    return opened.error().message;
  }
  std::string folder;
};

TEST(Synthetic, LabelsOfALanguageModelAreTheNextTokens) {
  auto data = makeSynthetic(language(), 3);
  for (int64_t sample : {0, 1, 1000000}) {
    for (int64_t i = 0; i + 1 < 4; ++i)
      EXPECT_EQ(*data->value(1, sample, i), *data->value(0, sample, i + 1));
  }
}

TEST(Synthetic, NumbersStayInTheirBounds) {
  auto tokens = makeSynthetic(language(5), 3);
  auto numbers = makeSynthetic(classifier(), 3);
  std::vector<int> counts(5, 0);
  double least = 1, most = -1;
  for (int64_t sample = 0; sample < 500; ++sample) {
    double token = *tokens->value(0, sample, 2), number = *numbers->value(0, sample, 1);
    ASSERT_TRUE(token >= 0 && token < 5);
    ++counts[size_t(token)];
    least = std::min(least, number);
    most = std::max(most, number);
    EXPECT_EQ(number, double(float(number))) << "it is exact in f32";
  }
  for (int count : counts)
    EXPECT_GT(count, 50);
  EXPECT_TRUE(least >= -1 && least < -0.9 && most < 1 && most > 0.9);
}

TEST(Synthetic, TheSeedDecides) {
  auto a = makeSynthetic(language(), 3), b = makeSynthetic(language(), 3),
       c = makeSynthetic(language(), 4);
  int same = 0;
  for (int64_t sample = 0; sample < 100; ++sample) {
    EXPECT_EQ(*a->value(0, sample, 0), *b->value(0, sample, 0));
    same += *a->value(0, sample, 0) == *c->value(0, sample, 0);
  }
  EXPECT_LT(same, 20);
}

TEST_F(Files, TokensOfBothWidths) {
  std::vector<uint16_t> narrow = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<uint32_t> wide(narrow.begin(), narrow.end());
  for (bool isWide : {false, true}) {
    std::string path = isWide ? writeTokens("wide", wide) : writeTokens("narrow", narrow);
    auto data = openDataset({path}, language(), isWide, 1);
    ASSERT_TRUE(bool(data)) << data.error().message;
    EXPECT_EQ((*data)->numSamples(), 2);
    EXPECT_EQ(*(*data)->value(0, 1, 0), 4);
    EXPECT_EQ(*(*data)->value(1, 1, 3), 8);
  }
}

TEST_F(Files, ATokenBeyondTheVocabularyIsNamedWithItsPlace) {
  auto data = openDataset({writeTokens<uint16_t>("t", {1, 2, 3, 700, 5})}, language(), false, 1);
  ASSERT_TRUE(bool(data));
  auto value = (*data)->value(0, 0, 3);
  ASSERT_FALSE(bool(value));
  EXPECT_THAT(value.error().message, HasSubstr("token 700 at byte 6"));
  EXPECT_THAT(value.error().message, HasSubstr("vocabulary of 100"));
}

TEST_F(Files, PipesSocketsAndDevicesAreRefusedByName) {
  std::string pipe = folder + "/pipe", socketPath = folder + "/socket";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socketPath.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
  EXPECT_THAT(errorOf({pipe}, language()), HasSubstr(pipe + ": it is a pipe"));
  EXPECT_THAT(errorOf({socketPath}, language()), HasSubstr(socketPath + ": it is a socket"));
  EXPECT_THAT(errorOf({"/dev/zero"}, language()), HasSubstr("it is a character device"));
  close(fd);
}

TEST_F(Files, AFileThatIsTruncatedWhileItIsReadIsNamed) {
  std::string path = writeTokens<uint16_t>("t", std::vector<uint16_t>(100000, 7));
  auto data = openDataset({path}, language(), false, 1);
  ASSERT_TRUE(bool(data));
  EXPECT_EQ(*(*data)->value(0, 20000, 0), 7);
  std::filesystem::resize_file(path, 4096);
  EXPECT_EXIT((void)(*data)->value(0, 20000, 0), testing::ExitedWithCode(int(ErrorCode::Usage)),
              "tbc: " + path + " was truncated while it was read.* it had 200000 bytes");
  EXPECT_EQ(*(*data)->value(0, 0, 0), 7);
}

TEST_F(Files, OtherBusErrorsAreWhatTheyWere) {
  auto data = openDataset({writeTokens<uint16_t>("t", {1, 2, 3, 4, 5})}, language(), false, 1);
  ASSERT_TRUE(bool(data));
  EXPECT_DEATH(raise(SIGBUS), "");
}

TEST_F(Files, TokenFilesThatCannotBe) {
  EXPECT_THAT(errorOf({folder + "/none"}, language()), HasSubstr("No such file"));
  EXPECT_THAT(errorOf({folder}, language()), HasSubstr("it is a folder, not a regular file"));
  EXPECT_THAT(errorOf({write("odd", "12345")}, language()), HasSubstr("5 bytes"));
  EXPECT_THAT(errorOf({write("wide", "123456")}, language(), true), HasSubstr("6 bytes"));
  EXPECT_THAT(errorOf({write("empty", "")}, language()), HasSubstr("not enough"));
  EXPECT_THAT(errorOf({writeTokens<uint16_t>("short", {1, 2, 3, 4})}, language()),
              HasSubstr("4 tokens are not enough"));
  // Arrays of numpy would train on their headers.
  const std::string array = "\x93NUMPY" + std::string(506, '\1'), archive = "PK\x03\x04";
  EXPECT_THAT(errorOf({write("x.npy", array)}, language()),
              HasSubstr("it is a .npy array, not raw tokens; name its input: --data "));
  EXPECT_THAT(errorOf({write("x.npz", archive + array)}, language()),
              HasSubstr("it is an archive such as .npz, not raw tokens"));
  EXPECT_THAT(errorOf({write("x", "1234")}, classifier()), HasSubstr("NAME=FILE.npy"));
}

TEST_F(Files, ArraysPerInput) {
  std::string x = writeNpy<float>("x.npy", "<f4", "(2, 3)", {1, 2, 3, 4, 5, 6.5});
  std::string y = writeNpy<int32_t>("y.npy", "<i4", "(2,)", {9, -100});
  auto data = openDataset({"labels=" + y, "x=" + x}, classifier(), false, 1);
  ASSERT_TRUE(bool(data)) << data.error().message;
  EXPECT_EQ((*data)->numSamples(), 2);
  EXPECT_EQ(*(*data)->value(0, 1, 2), 6.5);
  EXPECT_EQ(*(*data)->value(1, 0, 0), 9);
  EXPECT_EQ(*(*data)->value(1, 1, 0), -100) << "the label that does not count";
}

TEST_F(Files, EveryTypeOfArray) {
  auto check = [&](const std::string &path, bool isFloat, double expected) {
    std::vector<Field> fields = {field("a", isFloat ? DType::F32 : DType::I64, 1)};
    auto data = openDataset({"a=" + path}, fields, false, 1);
    ASSERT_TRUE(bool(data)) << data.error().message;
    EXPECT_EQ(*(*data)->value(0, 1, 0), expected) << path;
  };
  check(writeNpy<double>("f8", "<f8", "(2,)", {0, 0.1}), true, 0.1);
  check(writeNpy<uint16_t>("f2", "<f2", "(2,)", {0, 0x3c00}), true, 1);
  check(writeNpy<int64_t>("i8", "<i8", "(2,)", {0, -5}), false, -5);
  check(writeNpy<int16_t>("i2", "<i2", "(2,)", {0, -5}), false, -5);
  check(writeNpy<int8_t>("i1", "|i1", "(2,)", {0, -5}), false, -5);
  check(writeNpy<uint64_t>("u8", "<u8", "(2,)", {0, uint64_t(1) << 62}), false, 0x1p62);
  check(writeNpy<uint32_t>("u4", "<u4", "(2,)", {0, 4000000000u}), false, 4000000000.0);
  check(writeNpy<uint16_t>("u2", "<u2", "(2,)", {0, 60000}), false, 60000);
  check(writeNpy<uint8_t>("u1", "|u1", "(2,)", {0, 200}), false, 200);
  check(writeNpy<uint8_t>("b1", "|b1", "(2,)", {0, 1}), false, 1);
}

TEST_F(Files, NumbersThatI64LacksAreNotRead) {
  std::string path = writeNpy<uint64_t>("u8", "<u8", "(2,)", {7, uint64_t(1) << 63});
  auto data = openDataset({"a=" + path}, {field("a", DType::I64, 1)}, false, 1);
  ASSERT_TRUE(bool(data)) << data.error().message;
  EXPECT_EQ(*(*data)->value(0, 0, 0), 7);
  Result<double> tooLarge = (*data)->value(0, 1, 0);
  ASSERT_FALSE(bool(tooLarge));
  EXPECT_THAT(tooLarge.error().message, HasSubstr("is 2^63 or more; input \"a\" is i64"));
}

/// The elements of a sample are those of the input in order: rows of numbers and dims of size 1
/// are.
TEST_F(Files, ArraysOfAnotherOrderAreRefused) {
  const std::vector<float> numbers(12, 1);
  Field images = field("x", DType::F32, 6);
  images.shape = {3, 1, 2};
  auto open = [&](const char *shape) {
    std::string path = writeNpy<float>("x.npy", "<f4", shape, numbers);
    return openDataset({"x=" + path}, {images}, false, 1);
  };
  for (const char *shape : {"(2, 3, 1, 2)", "(2, 3, 2)", "(2, 6)"})
    EXPECT_TRUE(bool(open(shape))) << shape;
  auto channelsLast = open("(2, 1, 2, 3)");
  ASSERT_FALSE(bool(channelsLast));
  EXPECT_THAT(channelsLast.error().message,
              HasSubstr("a sample has shape [1, 2, 3]; input \"x\" has [3, 1, 2]"));
}

TEST_F(Files, ArraysThatCannotBe) {
  std::string x = writeNpy<float>("x.npy", "<f4", "(2, 3)", {1, 2, 3, 4, 5, 6});
  std::string y = writeNpy<int32_t>("y.npy", "<i4", "(2,)", {9, 3});
  auto error = [&](const std::string &xPath, const std::string &yPath) {
    return errorOf({"x=" + xPath, "labels=" + yPath}, classifier());
  };
  EXPECT_THAT(errorOf({"x=" + x}, classifier()), HasSubstr("\"labels\" has no file"));
  EXPECT_THAT(errorOf({"x=" + x, "z=" + y}, classifier()), HasSubstr("names no input"));
  EXPECT_THAT(errorOf({"x=" + x, "x=" + x}, classifier()), HasSubstr("given twice"));
  EXPECT_THAT(error(write("no.npy", "nothing of the kind"), y), HasSubstr("no .npy file"));
  EXPECT_THAT(error(write("cut.npy", std::string("\x93NUMPY\x01\0\x76\0{'descr'", 18)), y),
              HasSubstr("cut off at byte 18"));
  EXPECT_THAT(error(writeNpy<float>("cut2", "<f4", "(2, 3)", {1, 2}), y),
              HasSubstr("8 bytes of elements"));
  EXPECT_THAT(error(writeNpy<float>("huge", "<f4", "(999999999999, 999999999999)", {1, 2}), y),
              HasSubstr("more than 2^63 bytes"));
  EXPECT_THAT(error(writeNpy<float>("big", ">f4", "(2, 3)", {1, 2, 3, 4, 5, 6}), y),
              HasSubstr("type >f4"));
  EXPECT_THAT(error(writeNpy<float>("f", "<f4", "(2, 3)", {1, 2, 3, 4, 5, 6}, "True"), y),
              HasSubstr("Fortran"));
  EXPECT_THAT(error(writeNpy<float>("two", "<f4", "(3, 2)", {1, 2, 3, 4, 5, 6}), y),
              HasSubstr("a sample has 2 elements; input \"x\" has 3"));
  EXPECT_THAT(error(writeNpy<int32_t>("i", "<i4", "(2, 3)", {1, 2, 3, 4, 5, 6}), y),
              HasSubstr("input \"x\" is f32"));
  EXPECT_THAT(error(x, writeNpy<int32_t>("n", "<i4", "(3,)", {1, 2, 3})), HasSubstr("3 samples"));
  auto data = openDataset({"x=" + x, "labels=" + writeNpy<int32_t>("l", "<i4", "(2,)", {3, 10})},
                          classifier(), false, 1);
  ASSERT_TRUE(bool(data));
  auto beyond = (*data)->value(1, 1, 0);
  ASSERT_FALSE(bool(beyond));
  EXPECT_THAT(beyond.error().message, HasSubstr("value 10 at byte "));
  EXPECT_THAT(beyond.error().message, HasSubstr("0 .. 9"));
}

} // namespace
} // namespace tbc::data
