//===- residue251_test.cpp - Arithmetic modulo 251 --------------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Residue251.h"
#include "tests/runtime/kernels/TestSupport.h"

#include <set>

using namespace tbc::kernels;

namespace {

std::vector<Residue251> all() {
  std::vector<Residue251> values;
  for (uint32_t v = 0; v < Residue251::modulus; ++v)
    values.push_back(Residue251(uint8_t(v)));
  return values;
}

TEST(Residue251, FieldAxioms) {
  for (Residue251 a : all()) {
    EXPECT_EQ(a + -a, Residue251{0});
    EXPECT_EQ(a - a, Residue251{0});
    EXPECT_EQ(a * inverse(a), Residue251(a.v != 0));
    EXPECT_EQ(Residue251::fromInt(a.centered()), a);
    for (Residue251 b : all()) {
      EXPECT_LT((a + b).v, Residue251::modulus);
      EXPECT_EQ((a / b) * b, b.v ? a : Residue251{0});
      EXPECT_EQ(a * (b + Residue251{3}), a * b + a * Residue251{3});
    }
  }
}

TEST(Residue251, FloatsAreExactDyadics) {
  EXPECT_EQ(Residue251::fromDouble(-3), -Residue251{3});
  EXPECT_EQ(Residue251::fromDouble(0.75), Residue251{3} / Residue251{4});
  EXPECT_EQ(Residue251::fromDouble(0x1.8p200), Residue251{3} * power(Residue251{2}, 199));
  EXPECT_EQ(Residue251::fromDouble(0x1p-1074), inverse(power(Residue251{2}, 1074)));
  EXPECT_EQ(Residue251::fromInt(INT64_MIN), -power(Residue251{2}, 63));
  EXPECT_THROW(Residue251::fromDouble(NAN), KernelError);
}

TEST(Residue251, OrderIsTotalAndOdd) {
  std::set<int64_t> keys;
  for (Residue251 a : all()) {
    keys.insert(orderKey(a));
    EXPECT_EQ(orderKey(-a), -orderKey(a));
  }
  EXPECT_EQ(keys.size(), Residue251::modulus);
  EXPECT_EQ(orderKey(Residue251{0}), 0);
}

TEST(Residue251, InfinitiesAreTheEndsOfTheOrder) {
  Residue251 low = Residue251::fromDouble(-INFINITY), high = Residue251::fromDouble(INFINITY);
  EXPECT_EQ(low, -high);
  EXPECT_EQ(orderKey(high), int64_t(Residue251::modulus / 2));
  for (int64_t i = 0; i < 250; ++i) {
    EXPECT_LE(orderKey(low), orderKey(Residue251::fromInt(i)));
    EXPECT_GE(orderKey(high), orderKey(Residue251::fromInt(i)));
  }
  EXPECT_EQ(applyHash(FunctionKey::Exp, low), Residue251::fromInt(0));
}

TEST(Residue251, HashesKeepTheValueAtZero) {
  EXPECT_EQ(applyHash(FunctionKey::Exp, Residue251{0}), Residue251{1});
  EXPECT_EQ(applyHash(FunctionKey::Sqrt, Residue251{0}), Residue251{0});
  std::set<uint8_t> seen;
  for (Residue251 a : all())
    seen.insert(applyHash(FunctionKey::Tanh, a).v);
  EXPECT_GT(seen.size(), 100u);
}

TEST(Residue251, LongSumsDoNotOverflow) {
  int64_t k = 200'001; // more than a 32-bit total holds without reduction
  Tensor largest = floats(Arith::Residue251, {k}, {-1});
  Tensor sum = run(Arith::Residue251, "einsum",
                   {{"lhs_labels", Ints{0}}, {"rhs_labels", Ints{0}}, {"out_labels", Ints{}}},
                   {largest, largest}, {DType::F32, {}});
  EXPECT_EQ(sum.data<Residue251>()[0], Residue251::fromInt(k));
}

TEST(Residue251, TakeTheBytesOfTheirType) {
  for (DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
    TensorType type{dtype, {int64_t(Residue251::modulus)}};
    Tensor tensor(type, all());
    std::vector<unsigned char> bytes = tensor.toBytes();
    EXPECT_EQ(int64_t(bytes.size()), type.shape[0] * byteWidth(dtype));
    EXPECT_TRUE(bitwiseEqual(Tensor::residuesFromBytes(type, bytes.data()), tensor));
    EXPECT_EQ(tensor.toResidues()[250], 250u);
  }
  for (float other : {251.0f, 0.5f, -1.0f, NAN})
    EXPECT_THROW(Tensor::residuesFromBytes({DType::F32, {}}, &other), KernelError);
}

TEST(Residue251, DoNotMixWithOthers) {
  Tensor small = floats(Arith::Residue251, {1}, {2});
  EXPECT_THROW(run(Arith::Residue61, "cast", {}, {small}, {DType::F64, {1}}), KernelError);
  EXPECT_THROW(run(Arith::F64, "cast", {}, {small}, {DType::F64, {1}}), KernelError);
  EXPECT_EQ(run(Arith::Residue251, "cast", {}, {small}, {DType::I64, {1}}).data<int64_t>()[0], 2);
}

} // namespace
