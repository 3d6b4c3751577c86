//===- residue_test.cpp - The field Z/(2^61 - 1) ---------------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/kernels/TestSupport.h"

#include <set>

using namespace tbc::kernels;

namespace {

std::vector<Residue> samples() {
  std::mt19937_64 generator(7);
  std::vector<Residue> values = {{0}, {1}, {2}, {Residue::modulus - 1}, {Residue::modulus / 2}};
  for (int i = 0; i < 40; ++i)
    values.push_back(Residue::reduce(generator()));
  return values;
}

TEST(Residue, FieldAxioms) {
  for (Residue a : samples()) {
    EXPECT_EQ(a + -a, Residue{0});
    EXPECT_EQ(a - a, Residue{0});
    EXPECT_EQ(a * inverse(a), Residue{a.v != 0});
    for (Residue b : samples()) {
      EXPECT_EQ(a + b, b + a);
      EXPECT_EQ(a * b, b * a);
      EXPECT_EQ(a - b, -(b - a));
      EXPECT_EQ((a / b) * b, b.v ? a : Residue{0});
      for (Residue c : samples()) {
        EXPECT_EQ((a + b) + c, a + (b + c));
        EXPECT_EQ((a * b) * c, a * (b * c));
        EXPECT_EQ(a * (b + c), a * b + a * c);
      }
    }
  }
}

TEST(Residue, ReducesAllOf128Bits) {
  unsigned __int128 largest = ~(unsigned __int128)0;
  // 2^128 - 1 = 2^(128 mod 61) - 1 = 2^6 - 1.
  EXPECT_EQ(Residue::reduce(largest), Residue{63});
  EXPECT_EQ(Residue::reduce(Residue::modulus), Residue{0});
  EXPECT_EQ(Residue::reduce((unsigned __int128)1 << 122), Residue{1});
}

TEST(Residue, InverseOfZeroIsZero) {
  EXPECT_EQ(inverse(Residue{0}), Residue{0});
  EXPECT_EQ(Residue{5} / Residue{0}, Residue{0});
}

TEST(Residue, FloatsAreExactDyadics) {
  EXPECT_EQ(Residue::fromDouble(0.0), Residue{0});
  EXPECT_EQ(Residue::fromDouble(-3), -Residue{3});
  EXPECT_EQ(Residue::fromDouble(0.75), Residue{3} / Residue{4});
  EXPECT_EQ(Residue::fromDouble(0x1p-60), inverse(power({2}, 60)));
  EXPECT_EQ(Residue::fromDouble(0x1.8p200), Residue{3} * power({2}, 199));
  EXPECT_EQ(Residue::fromDouble(0x1p-1074), inverse(power({2}, 1074)));
  EXPECT_EQ(Residue::fromDouble(0.1) * power({2}, 56), Residue::fromDouble(0.1 * 0x1p56));
  EXPECT_THROW(Residue::fromDouble(NAN), KernelError);
  EXPECT_THROW(Residue::fromDouble(NAN), KernelError);
}

TEST(Residue, IntegersComeBackCentered) {
  for (int64_t n : {int64_t(0), int64_t(-1), int64_t(7), -(int64_t(1) << 59)})
    EXPECT_EQ(Residue::fromInt(n).centered(), n);
  EXPECT_EQ(Residue::fromInt(INT64_MIN), -power({2}, 63));
}

TEST(Residue, PowerIsRepeatedMultiplication) {
  Residue a{123456789};
  EXPECT_EQ(power(a, 0), Residue{1});
  EXPECT_EQ(power(a, 5), a * a * a * a * a);
  EXPECT_EQ(power(a, -2), inverse(a * a));
}

TEST(Residue, OrderTakesBothSidesOfZeroAndIsOdd) {
  int positive = 0;
  std::vector<Residue> values = samples();
  for (Residue a : values) {
    positive += orderKey(a) > 0;
    EXPECT_EQ(orderKey(-a), -orderKey(a));
  }
  EXPECT_EQ(orderKey({0}), 0);
  EXPECT_GT(positive, 10);
  EXPECT_LT(positive, int(values.size()) - 10);
}

TEST(Residue, InfinitiesAreTheEndsOfTheOrder) {
  Residue low = Residue::fromDouble(-INFINITY), high = Residue::fromDouble(INFINITY);
  EXPECT_EQ(low, -high);
  EXPECT_EQ(orderKey(high), int64_t(Residue::modulus / 2));
  for (int64_t i = 0; i < 250; ++i) {
    EXPECT_LE(orderKey(low), orderKey(Residue::fromInt(i)));
    EXPECT_GE(orderKey(high), orderKey(Residue::fromInt(i)));
  }
  EXPECT_EQ(applyHash(FunctionKey::Exp, low), Residue::fromInt(0));
}

TEST(Residue, HashesKeepTheValueAtZero) {
  EXPECT_EQ(applyHash(FunctionKey::Exp, {0}), Residue{1});
  EXPECT_EQ(applyHash(FunctionKey::Cos, {0}), Residue{1});
  for (FunctionKey key :
       {FunctionKey::Sqrt, FunctionKey::Tanh, FunctionKey::Erf, FunctionKey::Sin, FunctionKey::Atan,
        FunctionKey::Floor, FunctionKey::Ceil, FunctionKey::Round})
    EXPECT_EQ(applyHash(key, {0}), Residue{0});
  EXPECT_GT(applyHash(FunctionKey::Log, {0}).v, 1u);
  EXPECT_GT(applyHash(FunctionKey::Sigmoid, {0}).v, 1u);
}

TEST(Residue, HashesDifferByFunctionAndArgument) {
  std::set<uint64_t> seen;
  int count = 0;
  for (FunctionKey key :
       {FunctionKey::Exp, FunctionKey::Log, FunctionKey::Sqrt, FunctionKey::Tanh, FunctionKey::Erf,
        FunctionKey::Sigmoid, FunctionKey::Sin, FunctionKey::Cos, FunctionKey::Pow,
        FunctionKey::Atan, FunctionKey::Floor, FunctionKey::Ceil, FunctionKey::Round})
    for (uint64_t x = 1; x <= 100; ++x, ++count) {
      Residue hash = applyHash(key, {x});
      EXPECT_LT(hash.v, Residue::modulus);
      seen.insert(hash.v);
    }
  EXPECT_EQ(int(seen.size()), count);
  EXPECT_NE(applyHash(FunctionKey::Pow, {2}, {3}), applyHash(FunctionKey::Pow, {3}, {2}));
}

} // namespace
