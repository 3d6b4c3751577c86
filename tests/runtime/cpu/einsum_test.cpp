//===- einsum_test.cpp - Native einsum against the reference ------------------===//

#include "tests/runtime/cpu/NativeCase.h"

#include <algorithm>
#include <random>

using namespace tbc;
using kernels::DType;
using kernels::Shape;

namespace {

/// Returns an einsum such as "bsd,de->bse", with the size of each letter.
test::NativeCase einsum(const std::string &lhs, const std::string &rhs, const std::string &out,
                        const std::map<char, int64_t> &sizes, DType dtype, DType resultType,
                        unsigned seed) {
  auto labels = [](const std::string &text) {
    return std::vector<int64_t>(text.begin(), text.end());
  };
  auto shape = [&](const std::string &text) {
    Shape shape;
    for (char letter : text)
      shape.push_back(sizes.at(letter));
    return shape;
  };
  test::NativeCase testCase;
  testCase.op = "einsum";
  testCase.attrs = {
      {"lhs_labels", labels(lhs)}, {"rhs_labels", labels(rhs)}, {"out_labels", labels(out)}};
  testCase.operands = {test::randomFloats({dtype, shape(lhs)}, seed),
                       test::randomFloats({dtype, shape(rhs)}, seed + 1)};
  testCase.results = {{resultType, shape(out)}};
  return testCase;
}

/// Sums k products in f32, in any order. Each term has at most k roundings, so its relative error
/// is (1 + u)^k - 1. Source: Higham, Accuracy and Stability of Numerical Algorithms, section 3.1.
/// Example: k = 100 gives 6.0e-6.
void check(const test::NativeCase &testCase, int64_t terms, const std::string &what) {
  std::vector<kernels::Tensor> native = test::runNative(testCase);
  ASSERT_EQ(native.size(), 1u) << what;
  test::expectClose(native[0], test::runExact(testCase)[0],
                    test::runExact(test::withMagnitudes(testCase))[0],
                    double(terms + 1) * 0x1p-24 * 1.01, what);
}

void checkAll(const std::string &lhs, const std::string &rhs, const std::string &out,
              const std::map<char, int64_t> &sizes, unsigned seed = 1) {
  int64_t terms = 1;
  std::string what = lhs + "," + rhs + "->" + out;
  for (const auto &[letter, size] : sizes) {
    what += std::string(" ") + letter + "=" + std::to_string(size);
    terms *= out.find(letter) == std::string::npos ? size : 1;
  }
  for (auto [input, result] :
       {std::pair(DType::F32, DType::F32), {DType::BF16, DType::BF16}, {DType::BF16, DType::F32}})
    check(einsum(lhs, rhs, out, sizes, input, result, seed), terms,
          what + " " + std::string(name(input)) + " " + std::string(name(result)));
}

TEST(NativeEinsum, LayersOfATransformer) {
  std::map<char, int64_t> sizes = {{'b', 2}, {'s', 37}, {'d', 48}, {'e', 33}, {'h', 3}, {'k', 16}};
  checkAll("bsd", "de", "bse", sizes);   // a linear layer
  checkAll("bsd", "ed", "bse", sizes);   // weights stored by rows
  checkAll("bse", "de", "bsd", sizes);   // gradient of its input
  checkAll("bsd", "bse", "de", sizes);   // gradient of its weight
  checkAll("bsd", "bse", "ed", sizes);   // the same, transposed
  checkAll("bsd", "dhk", "bshk", sizes); // heads
  checkAll("bsd", "dhk", "bhsk", sizes); // heads first: a loop over them
  checkAll("bhsk", "hkd", "bsd", sizes); // summed over non-adjacent heads
  checkAll("bhsk", "bsd", "hkd", sizes);
  checkAll("bhsk", "bhdk", "bhsd", sizes); // scores
}

TEST(NativeEinsum, TilesOfLargeProducts) {
  checkAll("mk", "kn", "mn", {{'m', 1100}, {'k', 40}, {'n', 600}});
  checkAll("km", "nk", "mn", {{'m', 513}, {'k', 30}, {'n', 1030}});
}

/// Rows at strides of 1 KiB and 512 B, which AVX2's matmuls copy in slices of at most 1,024 of k.
TEST(NativeEinsum, RowsOnFewSetsOfTheCaches) {
  for (int64_t k : {1, 40}) {
    checkAll("mk", "kn", "mn", {{'m', 130}, {'k', k}, {'n', 256}});
    checkAll("km", "kn", "mn", {{'m', 256}, {'k', k}, {'n', 129}});
    checkAll("km", "kn", "mn", {{'m', 128}, {'k', k}, {'n', 384}});
    checkAll("km", "nk", "mn", {{'m', 384}, {'k', k}, {'n', 130}});
    for (int64_t uses : {95, 96}) // too few for a copy, and enough
      checkAll("km", "kn", "mn", {{'m', 128}, {'k', k}, {'n', uses}});
  }
  // Two slices; the second term of the summed loop around the matmul adds to the result.
  checkAll("akm", "kan", "mn", {{'a', 2}, {'m', 128}, {'k', 1025}, {'n', 128}});
  // Two tiles of rows.
  checkAll("km", "kn", "mn", {{'m', 1024}, {'k', 50}, {'n', 128}});
}

TEST(NativeEinsum, NastySizes) {
  for (int64_t size : {0, 1, 2, 65}) {
    checkAll("mk", "kn", "mn", {{'m', size}, {'k', 7}, {'n', 5}});
    checkAll("mk", "kn", "mn", {{'m', 3}, {'k', size}, {'n', 5}});
    checkAll("mk", "kn", "nm", {{'m', 3}, {'k', 7}, {'n', size}});
    checkAll("bmk", "bkn", "bmn", {{'b', size}, {'m', 3}, {'k', 7}, {'n', 5}});
  }
  checkAll("m", "n", "mn", {{'m', 19}, {'n', 21}});
  checkAll("k", "k", "", {{'k', 100}});
  checkAll("mk", "k", "m", {{'m', 19}, {'k', 21}});
  checkAll("b", "b", "b", {{'b', 33}});
}

TEST(NativeEinsum, RandomOrdersOfLabels) {
  std::mt19937 random(7);
  const std::string roles[] = {"ab", "cd", "ef", "gh"}; // batch, contracted, lhs alone, rhs alone
  for (unsigned round = 0; round < 60; ++round) {
    std::string lhs, rhs, out;
    std::map<char, int64_t> sizes;
    for (int role = 0; role < 4; ++role)
      for (char letter : roles[role]) {
        if (random() % 2)
          continue;
        sizes[letter] = 1 + int64_t(random() % 5);
        lhs += role == 3 ? "" : std::string(1, letter);
        rhs += role == 2 ? "" : std::string(1, letter);
        out += role == 1 ? "" : std::string(1, letter);
      }
    std::shuffle(lhs.begin(), lhs.end(), random);
    std::shuffle(rhs.begin(), rhs.end(), random);
    std::shuffle(out.begin(), out.end(), random);
    checkAll(lhs, rhs, out, sizes, round);
  }
}

} // namespace
