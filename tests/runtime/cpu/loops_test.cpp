//===- loops_test.cpp - Native loops over elements and rows -------------------===//

#include "tests/runtime/cpu/NativeCase.h"

using namespace tbc;
using kernels::DType;
using kernels::Shape;
using kernels::Tensor;
using kernels::TensorType;

namespace {

Tensor scalar(double value, DType dtype = DType::F32) {
  return Tensor::fromDoubles({dtype, {}}, kernels::Arith::Native, {value});
}

const Tensor one = scalar(1);

struct Elementwise {
  const char *op;
  int numInputs, numOutputs;
  double low, high;
  double slack; // |error| <= slack * u * magnitude
  double magnitude;
  const char *approximate = "";
};

/// Slacks: a few roundings and 2 ulp of exp, each of values of at most `magnitude`.
const Elementwise elementwise[] = {{"add", 2, 1, -4, 4, 0, 0},
                                   {"sub", 2, 1, -4, 4, 0, 0},
                                   {"mul", 2, 1, -4, 4, 0, 0},
                                   {"div", 2, 1, 0.1, 4, 1, 40},
                                   {"neg", 1, 1, -4, 4, 0, 0},
                                   {"abs", 1, 1, -4, 4, 0, 0},
                                   {"relu", 1, 1, -4, 4, 0, 0},
                                   {"relu_grad", 2, 1, -4, 4, 0, 0},
                                   {"exp", 1, 1, -20, 5, 4, 149},
                                   {"tanh", 1, 1, -9, 9, 8, 1},
                                   {"erf", 1, 1, -5, 5, 8, 1},
                                   {"sigmoid", 1, 1, -9, 9, 8, 1},
                                   {"sqrt", 1, 1, 0, 9, 2, 3},
                                   {"rsqrt", 1, 1, 0.1, 9, 4, 4},
                                   {"reciprocal", 1, 1, 0.1, 9, 2, 10},
                                   {"silu", 1, 1, -9, 9, 8, 9},
                                   {"silu_grad", 2, 1, -9, 9, 32, 81},
                                   {"swiglu", 2, 1, -4, 4, 16, 16},
                                   {"swiglu_grad", 3, 2, -4, 4, 64, 64},
                                   {"gelu", 1, 1, -5, 5, 16, 5, "none"},
                                   {"gelu", 1, 1, -5, 5, 16, 5, "tanh"},
                                   {"gelu_grad", 2, 1, -5, 5, 64, 25, "none"},
                                   {"gelu_grad", 2, 1, -5, 5, 128, 25, "tanh"}};

TEST(NativeLoops, Elementwise) {
  for (const Elementwise &e : elementwise)
    for (DType dtype : {DType::F32, DType::BF16})
      for (int64_t size : {0, 1, 15, 16, 17, 5000, 200000}) {
        if (size > 5000 && std::string(e.op) != "add")
          continue;
        test::NativeCase testCase;
        testCase.op = e.op;
        if (*e.approximate)
          testCase.attrs = {{"approximate", std::string(e.approximate)}};
        for (int i = 0; i < e.numInputs; ++i)
          testCase.operands.push_back(
              test::randomFloats({dtype, {size}}, unsigned(i), e.low, e.high));
        testCase.results.assign(size_t(e.numOutputs), {dtype, {size}});
        auto native = test::runNative(testCase), exact = test::runExact(testCase);
        ASSERT_EQ(native.size(), exact.size());
        for (size_t r = 0; r < native.size(); ++r)
          test::expectClose(native[r], exact[r], one, e.slack * 0x1p-24 * e.magnitude,
                            std::string(e.op) + " " + e.approximate + " " +
                                std::string(name(dtype)));
      }
}

TEST(NativeLoops, ExtremesOfExp) {
  test::NativeCase testCase;
  testCase.op = "exp";
  testCase.operands = {Tensor::fromDoubles({DType::F32, {7}}, kernels::Arith::Native,
                                           {-INFINITY, -1e30, -90, 0, 88, INFINITY, std::nan("")})};
  testCase.results = {{DType::F32, {7}}};
  std::vector<double> got = test::runNative(testCase)[0].toDoubles();
  EXPECT_EQ(got[0], 0);
  EXPECT_EQ(got[1], 0);
  EXPECT_LT(got[2], 1.2e-38);
  EXPECT_EQ(got[3], 1);
  EXPECT_NEAR(got[4] / std::exp(88.0), 1, 1e-6);
  EXPECT_EQ(got[5], INFINITY);
  EXPECT_TRUE(std::isnan(got[6]));
}

/// Activations pass NaN on, so that a NaN loss is noticed.
TEST(NativeLoops, ReluLetsNanPass) {
  const std::vector<double> numbers = {-1, -0.0, 0, 2, std::nan(""), -INFINITY, INFINITY};
  auto operand = [&](const std::vector<double> &values) {
    return Tensor::fromDoubles({DType::F32, {7}}, kernels::Arith::Native, values);
  };
  test::NativeCase testCase;
  testCase.results = {{DType::F32, {7}}};
  for (const char *op : {"relu", "relu_grad"}) {
    testCase.op = op;
    testCase.operands = {operand(numbers)};
    if (testCase.op == "relu_grad")
      testCase.operands.push_back(operand(std::vector<double>(7, 5)));
    auto expected = kernels::findKernel(op)({kernels::Arith::Native}, {}, testCase.operands,
                                            testCase.results)[0];
    Tensor made = test::runNative(testCase)[0];
    EXPECT_TRUE(bitwiseEqual(made, expected)) << op;
    EXPECT_TRUE(testCase.op == "relu" ? std::isnan(made.toDoubles()[4]) : made.toDoubles()[4] == 5);
    EXPECT_EQ(made.toDoubles()[1], 0);
  }
}

TEST(NativeLoops, CastsRoundAsTheReference) {
  for (auto [from, to] :
       {std::pair(DType::F32, DType::BF16), {DType::BF16, DType::F32}, {DType::F32, DType::F32}}) {
    test::NativeCase testCase;
    testCase.op = "cast";
    testCase.operands = {test::randomFloats({from, {1003}}, 3, -1e3, 1e3)};
    testCase.results = {{to, {1003}}};
    auto expected = kernels::findKernel("cast")({kernels::Arith::Native}, {}, testCase.operands,
                                                testCase.results);
    EXPECT_TRUE(bitwiseEqual(test::runNative(testCase)[0], expected[0]));
  }
  test::NativeCase special;
  special.op = "cast";
  special.operands = {Tensor::fromDoubles({DType::F32, {4}}, kernels::Arith::Native,
                                          {INFINITY, -INFINITY, std::nan(""), 3.4e38})};
  special.results = {{DType::BF16, {4}}};
  std::vector<double> got = test::runNative(special)[0].toDoubles();
  EXPECT_EQ(got[0], INFINITY);
  EXPECT_EQ(got[1], -INFINITY);
  EXPECT_TRUE(std::isnan(got[2]));
  EXPECT_EQ(got[3], INFINITY);
}

TEST(NativeLoops, Adam) {
  for (const char *op : {"adamw", "adam"})
    for (double decay : {0.0, 0.1}) {
      TensorType type{DType::F32, {1000}};
      test::NativeCase step;
      step.op = op;
      step.attrs = {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", decay}};
      step.operands = {test::randomFloats(type, 1),
                       test::randomFloats(type, 2),
                       test::randomFloats(type, 3, -0.1, 0.1),
                       test::randomFloats(type, 4, 0.01, 1),
                       scalar(1e-2),
                       Tensor::fromInts({DType::I64, {}}, {7})};
      step.results = {type, type, type};
      auto native = test::runNative(step), exact = test::runExact(step);
      ASSERT_EQ(native.size(), 3u);
      // p' moves by at most lr / 0.52 * 0.2 / 0.1 (m', sqrt(v')): 8 roundings of 0.2, 3 of p.
      test::expectClose(native[0], exact[0], one, 6 * 0x1p-24, std::string(op) + " p");
      test::expectClose(native[1], exact[1], one, 3 * 0x1p-24, std::string(op) + " m");
      test::expectClose(native[2], exact[2], one, 3 * 0x1p-24, std::string(op) + " v");
    }
}

TEST(NativeLoops, ScalesAndChoices) {
  test::NativeCase scale;
  scale.op = "scale_by";
  scale.operands = {test::randomFloats({DType::F32, {77}}, 1), scalar(0.3)};
  scale.results = {{DType::F32, {77}}};
  test::expectClose(test::runNative(scale)[0], test::runExact(scale)[0], one, 0, "scale_by");
  for (int64_t isNew : {0, 1}) {
    test::NativeCase choice;
    choice.op = "update_if";
    choice.operands = {test::randomFloats({DType::BF16, {300}}, 1),
                       test::randomFloats({DType::BF16, {300}}, 2),
                       Tensor::fromInts({DType::Bool, {}}, {isNew})};
    choice.results = {{DType::BF16, {300}}};
    EXPECT_TRUE(bitwiseEqual(test::runNative(choice)[0], choice.operands[size_t(isNew)]));
  }
}

/// Rows of n elements in [-1, 1]. Sums have an error of (n / 16 + 5) u times the sum of magnitudes.
TEST(NativeLoops, LayerNorm) {
  for (DType dtype : {DType::F32, DType::BF16})
    for (Shape shape : {Shape{3, 1}, {5, 17}, {2, 3, 64}, {300, 96}, {0, 8}}) {
      int64_t n = shape.back();
      Shape rows(shape.begin(), shape.end() - 1);
      test::NativeCase norm;
      norm.op = "layer_norm";
      norm.attrs = {{"epsilon", 1e-2}};
      norm.operands = {test::randomFloats({dtype, shape}, 1), test::randomFloats({dtype, {n}}, 2),
                       test::randomFloats({dtype, {n}}, 3)};
      norm.results = {{dtype, shape}, {DType::F32, rows}, {DType::F32, rows}};
      auto native = test::runNative(norm), exact = test::runExact(norm);
      ASSERT_EQ(native.size(), 3u);
      // rstd <= 10, |x - mean| <= 2; the error of var, <= (n / 16 + 8) u * 4, counts 10^3 / 2.
      double sums = (double(n) / 16 + 8) * 0x1p-24, rstd = 2000 * sums;
      test::expectClose(native[1], exact[1], one, sums, "mean");
      test::expectClose(native[2], exact[2], one, rstd, "rstd");
      test::expectClose(native[0], exact[0], one, 2 * rstd + 40 * sums, "y");

      test::NativeCase grad;
      grad.op = "layer_norm_grad";
      grad.operands = {test::randomFloats({dtype, shape}, 4), norm.operands[0], norm.operands[1],
                       native[1], native[2]};
      grad.results = {{dtype, shape}};
      // |h| <= 20, |g| <= 1: two sums of terms up to 20, times 20, times rstd.
      test::expectClose(test::runNative(grad)[0], test::runExact(grad)[0], one, 10 * 450 * sums,
                        "dx");

      test::NativeCase scale;
      scale.op = "norm_scale_grad";
      scale.operands = {grad.operands[0], norm.operands[0], native[1], native[2]};
      scale.results = {{dtype, {n}}};
      double m = double(kernels::numElements(rows));
      test::expectClose(test::runNative(scale)[0], test::runExact(scale)[0], one,
                        20 * m * (m / 64 + 72) * 0x1p-24, "dw");
    }
}

TEST(NativeLoops, Sums) {
  struct Case {
    Shape shape;
    std::vector<int64_t> dims;
    Shape result;
  };
  for (const Case &c : {Case{{5, 7}, {0}, {7}},
                        {{5, 7}, {1}, {5}},
                        {{5, 7}, {0, 1}, {}},
                        {{5, 7}, {}, {5, 7}},
                        {{300, 4, 70}, {0, 1}, {70}},
                        {{3, 4, 9000}, {2}, {3, 4}},
                        {{0, 4}, {0}, {4}},
                        {{4, 0}, {1}, {4}}})
    for (DType dtype : {DType::F32, DType::BF16}) {
      test::NativeCase sum;
      sum.op = "reduce_sum";
      sum.attrs = {{"dims", c.dims}};
      sum.operands = {test::randomFloats({dtype, c.shape}, 1)};
      sum.results = {{dtype, c.result}};
      double terms = double(kernels::numElements(c.shape)) /
                     double(std::max<int64_t>(1, kernels::numElements(c.result)));
      test::expectClose(test::runNative(sum)[0], test::runExact(sum)[0],
                        test::runExact(test::withMagnitudes(sum))[0], (terms / 16 + 72) * 0x1p-24,
                        "reduce_sum");
    }
}

//===----------------------------------------------------------------------===//
// Vocabularies
//===----------------------------------------------------------------------===//

/// Returns numbers 10, 12, 14 ... and two of padding, as for a part of a vocabulary.
Tensor numbersOf(int64_t size) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < size; ++i)
    numbers.push_back(i + 2 < size ? 10 + 2 * i : -1);
  return Tensor::fromInts({DType::I64, {size}}, numbers);
}

TEST(NativeLoops, Embeddings) {
  const int64_t rows = 40, last = 200;
  for (DType dtype : {DType::F32, DType::BF16})
    for (int64_t width : {1, 19, 3000}) {
      test::NativeCase embedding;
      embedding.op = "embedding";
      embedding.operands = {test::randomFloats({dtype, {rows, width}}, 1),
                            test::randomInts({DType::I64, {4, 60}}, 2, -last - 1, last + 1),
                            numbersOf(rows), Tensor::fromInts({DType::I64, {}}, {last})};
      embedding.results = {{dtype, {4, 60, width}}};
      auto expected = kernels::findKernel("embedding")({kernels::Arith::Native}, {},
                                                       embedding.operands, embedding.results);
      EXPECT_TRUE(bitwiseEqual(test::runNative(embedding)[0], expected[0]));

      test::NativeCase grad = embedding;
      grad.op = "embedding_grad";
      grad.operands[0] = test::randomFloats({dtype, {4, 60, width}}, 3);
      grad.results = {{dtype, {rows, width}}};
      test::expectClose(test::runNative(grad)[0], test::runExact(grad)[0],
                        test::runExact(test::withMagnitudes(grad))[0], 240 * 0x1p-24, "dtable");
      embedding.operands[1] = Tensor::fromInts({DType::I64, {4, 60}}, {last + 1});
      EXPECT_THROW(test::runNative(embedding), kernels::KernelError);
    }
}

TEST(NativeLoops, ClassMaxIsNanIfAClassIs) {
  for (int64_t size : {3, 39, 5002}) // the last two are padding
    for (int64_t place : {int64_t(0), size / 2 - 1, size - 3}) {
      std::vector<double> row(size_t(size), 1.0);
      row[size_t(place)] = std::nan("");
      test::NativeCase most;
      most.op = "class_max";
      most.operands = {Tensor::fromDoubles({DType::F32, {1, size}}, kernels::Arith::Native, row),
                       numbersOf(size)};
      most.results = {{DType::F32, {1}}};
      EXPECT_TRUE(std::isnan(test::runNative(most)[0].toDoubles()[0])) << size << " " << place;
    }
}

TEST(NativeLoops, ClassSums) {
  for (DType dtype : {DType::F32, DType::BF16})
    for (int64_t size : {2, 3, 37, 5000})
      for (double onAll : {0.0, 0.01}) {
        int64_t rows = 11, last = 10 + 2 * size;
        Tensor numbers = numbersOf(size), lastOf = Tensor::fromInts({DType::I64, {}}, {last});
        std::vector<int64_t> labels;
        for (int64_t row = 0; row < rows; ++row)
          labels.push_back(row == 3 ? -100 : (row * 7919) % (last + 1));
        test::NativeCase most;
        most.op = "class_max";
        most.operands = {test::randomFloats({dtype, {rows, size}}, 1, -5, 5), numbers};
        most.results = {{DType::F32, {rows}}};
        auto m = test::runNative(most);
        test::expectClose(m[0], test::runExact(most)[0], one, 0, "class_max");

        test::NativeCase sums;
        sums.op = "class_sums";
        sums.attrs = {
            {"label_weight", 0.9}, {"class_weight", onAll}, {"ignore_index", int64_t(-100)}};
        sums.operands = {most.operands[0], m[0], Tensor::fromInts({DType::I64, {rows}}, labels),
                         numbers, lastOf};
        if (size == 2)
          sums.operands[1] = test::randomFloats({DType::F32, {rows}}, 9); // all padding: no maximum
        sums.results = {{DType::F32, {rows}}, {DType::F32, {rows}}};
        auto native = test::runNative(sums), exact = test::runExact(sums);
        ASSERT_EQ(native.size(), 2u);
        double u = 0x1p-24;
        // Exponents have an error of 10 u, and exp adds 2 ulp. Chunks are summed in double.
        test::expectClose(native[0], exact[0], exact[0], (4096.0 / 16 + 24) * u, "denominator");
        test::expectClose(native[1], exact[1], one, 5 * (1 + onAll * double(size)) * 300 * u,
                          "target");

        test::NativeCase grad = sums;
        grad.op = "class_sums_grad";
        grad.operands.push_back(test::randomFloats({DType::F32, {rows}}, 5));
        grad.operands.push_back(test::randomFloats({DType::F32, {rows}}, 6));
        grad.results = {{dtype, {rows, size}}};
        test::expectClose(test::runNative(grad)[0], test::runExact(grad)[0], one,
                          (size == 2 ? 1000 : 40) * u, "dx");
      }
}

} // namespace
