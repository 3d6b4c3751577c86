//===- npz_test.cpp - The reader of reference values ----------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "tests/support/Npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

using namespace tbc::test;
using testing::ElementsAre;
using testing::HasSubstr;

static const std::string references = TBC_SOURCE_DIR "/models/reference/";

/// The bytes of an .npy file with format 1.0.
static std::string npy(const std::string &descr, const std::string &shape, const std::string &data,
                       const std::string &fortran = "False") {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size());
  bytes += '\0';
  return bytes + header + data;
}

static std::string errorOf(const std::string &bytes) {
  try {
    parseNpy(bytes, "a.npy");
  } catch (const std::runtime_error &error) {
    return error.what();
  }
  return "no error";
}

TEST(Npy, FloatsInRowMajorOrder) {
  std::string data("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8); // 1.0f, -2.0f
  NpyArray array = parseNpy(npy("<f4", "(1, 2)", data), "a.npy");
  EXPECT_EQ(array.dtype, "f4");
  EXPECT_TRUE(array.isFloat());
  EXPECT_THAT(array.shape, ElementsAre(1, 2));
  EXPECT_THAT(array.values, ElementsAre(1.0, -2.0));
  EXPECT_TRUE(array.ints.empty());
}

TEST(Npy, IntegersAndScalars) {
  NpyArray scalar =
      parseNpy(npy("<i8", "()", std::string("\xfe\xff\xff\xff\xff\xff\xff\xff", 8)), "a");
  EXPECT_TRUE(scalar.shape.empty());
  EXPECT_THAT(scalar.ints, ElementsAre(-2));
  EXPECT_THAT(parseNpy(npy("|b1", "(3,)", std::string("\0\1\1", 3)), "a").ints,
              ElementsAre(0, 1, 1));
  EXPECT_THAT(parseNpy(npy("|u1", "(1,)", "\xff"), "a").ints, ElementsAre(255));
}

TEST(Npy, HalvesWithSubnormalsAndInfinity) {
  std::string data("\x00\x3c\x01\x00\x00\xfc\x00\x80", 8); // 1, 2^-24, -inf, -0
  EXPECT_THAT(parseNpy(npy("<f2", "(4,)", data), "a").values,
              ElementsAre(1.0, std::ldexp(1.0, -24), -INFINITY, 0.0));
}

TEST(Npy, ErrorsNameTheFile) {
  EXPECT_EQ(errorOf("PNG"), "a.npy: is truncated");
  EXPECT_EQ(errorOf("not a numpy file"), "a.npy: is not an .npy file");
  EXPECT_THAT(errorOf(npy("<f4", "(2,)", "1234")), HasSubstr("another number of bytes"));
  EXPECT_THAT(errorOf(npy("<c8", "(1,)", "12345678")), HasSubstr("unsupported dtype 'c8'"));
  EXPECT_THAT(errorOf(npy(">f4", "(1,)", "1234")), HasSubstr("big-endian"));
  EXPECT_THAT(errorOf(npy("<f4", "(1,)", "1234", "True")), HasSubstr("Fortran order"));
}

TEST(Npz, ReadsDeflatedReferenceGradients) {
  auto grads = readNpz(references + "tiny-mlp/grads_step1.npz");
  ASSERT_EQ(grads.size(), 6u);
  const NpyArray &weight = grads.at("fc2.weight");
  EXPECT_EQ(weight.dtype, "f4");
  EXPECT_THAT(weight.shape, ElementsAre(64, 64));

  // Both files hold the same gradient in two precisions, so a fault of either reader shows.
  auto exact = readNpz(references + "tiny-mlp/grads_step1_f64.npz");
  double squares = 0;
  for (const auto &[name, array] : exact) {
    ASSERT_EQ(array.dtype, "f8") << name;
    ASSERT_EQ(array.shape, grads.at(name).shape) << name;
    for (size_t i = 0; i < array.values.size(); ++i) {
      EXPECT_NEAR(array.values[i], grads.at(name).values[i], 1e-7) << name << " element " << i;
      squares += array.values[i] * array.values[i];
    }
  }
  EXPECT_NEAR(std::sqrt(squares), 0.59636396, 1e-6); // "grad_norm_step1" of reference.json
}

TEST(Npz, ReadsIntegerInputs) {
  auto inputs = readNpz(references + "tiny-gpt2/inputs.npz");
  EXPECT_EQ(inputs.size(), 40u);
  const NpyArray &labels = inputs.at("label_20");
  EXPECT_EQ(labels.dtype, "i8");
  EXPECT_THAT(labels.shape, ElementsAre(8, 32));
  EXPECT_EQ(labels.ints.size(), 256u);
}

TEST(Npz, DamagedFilesAreErrors) {
  EXPECT_THROW(readNpz(references + "no-such-file.npz"), std::runtime_error);
  std::string path = testing::TempDir() + "/tbc_damaged.npz";
  {
    std::ifstream good(references + "tiny-mlp/logits_step1.npz", std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(good)), std::istreambuf_iterator<char>());
    bytes[100] ^= 1; // inside the first member's data
    std::ofstream(path, std::ios::binary) << bytes;
  }
  EXPECT_THROW(readNpz(path), std::runtime_error);
}

TEST(Csv, ColumnsByName) {
  auto losses = readCsv(references + "tiny-mlp/losses_sgd_f64.csv");
  ASSERT_EQ(losses.at("loss").size(), 20u);
  EXPECT_EQ(losses.at("step").front(), 1);
  EXPECT_NEAR(losses.at("loss").front(), 2.31945, 1e-5);
}
