//===- gradient_test.cpp - Gradient kernels against finite differences -----===//
//
// Part of tbc. Differentiates <dy, f(x)> by central differences in f64, independently of the
// gradient formulas.
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/kernels/TestSupport.h"

#include <functional>

using namespace tbc::kernels;

namespace {

using Function = std::function<Tensor(const std::vector<Tensor> &inputs)>;

Tensor random64(Shape shape, unsigned seed, double low = -1, double high = 1) {
  return randomTensor(Arith::F64, std::move(shape), seed, low, high, DType::F64);
}

TensorType like(Shape shape) { return {DType::F64, std::move(shape)}; }

double inner(const Tensor &a, const Tensor &b) {
  double sum = 0;
  for (int64_t i = 0; i < a.numElements(); ++i)
    sum += a.data<double>()[i] * b.data<double>()[i];
  return sum;
}

/// Expects `gradient` to be d<dy, f(inputs)> / d inputs[which].
void expectGradient(const Function &f, std::vector<Tensor> inputs, size_t which, const Tensor &dy,
                    const Tensor &gradient) {
  const double h = 1e-5;
  ASSERT_EQ(gradient.shape(), inputs[which].shape());
  for (int64_t i = 0; i < gradient.numElements(); ++i) {
    auto shifted = [&](double by) {
      std::vector<Tensor> moved = inputs;
      moved[which].mutableData<double>()[i] += by;
      return inner(dy, f(moved));
    };
    EXPECT_NEAR(gradient.data<double>()[i], (shifted(h) - shifted(-h)) / (2 * h), 1e-8)
        << "element " << i << " of operand " << which;
  }
}

Tensor run64(const std::string &op, const Attrs &attrs, const std::vector<Tensor> &inputs,
             Shape shape) {
  return run(Arith::F64, op, attrs, inputs, like(std::move(shape)));
}

TEST(Gradient, Activations) {
  Tensor x = random64({12}, 1, -3, 3), dy = random64({12}, 2);
  auto check = [&](const std::string &op, const Attrs &attrs) {
    SCOPED_TRACE(op);
    auto f = [&](const std::vector<Tensor> &in) { return run64(op, attrs, in, {12}); };
    expectGradient(f, {x}, 0, dy, run64(op + "_grad", attrs, {x, dy}, {12}));
  };
  check("relu", {});
  check("silu", {});
  check("gelu", {{"approximate", "none"}});
  check("gelu", {{"approximate", "tanh"}});
}

TEST(Gradient, Swiglu) {
  Tensor gate = random64({12}, 1, -3, 3), up = random64({12}, 2), dy = random64({12}, 3);
  auto f = [&](const std::vector<Tensor> &in) { return run64("swiglu", {}, in, {12}); };
  std::vector<Tensor> gradients =
      runAll(Arith::F64, "swiglu_grad", {}, {gate, up, dy}, {like({12}), like({12})});
  for (size_t which : {0, 1})
    expectGradient(f, {gate, up}, which, dy, gradients[which]);
}

TEST(Gradient, Softmax) {
  Shape shape = {3, 4};
  Attrs attrs = {{"dim", int64_t(0)}};
  Tensor x = random64(shape, 3), dy = random64(shape, 4);
  auto f = [&](const std::vector<Tensor> &in) { return run64("softmax", attrs, in, shape); };
  expectGradient(f, {x}, 0, dy, run64("softmax_grad", attrs, {f({x}), dy}, shape));
}

TEST(Gradient, LayerNorm) {
  Shape shape = {3, 5};
  Attrs attrs = {{"epsilon", 1e-3}};
  std::vector<Tensor> inputs = {random64(shape, 5), random64({5}, 6), random64({5}, 7)};
  Tensor dy = random64(shape, 8);
  auto all = [&](const std::vector<Tensor> &in) {
    return runAll(Arith::F64, "layer_norm", attrs, in, {like(shape), like({3}), like({3})});
  };
  auto f = [&](const std::vector<Tensor> &in) { return all(in)[0]; };
  std::vector<Tensor> saved = all(inputs);
  expectGradient(
      f, inputs, 0, dy,
      run64("layer_norm_grad", {}, {dy, inputs[0], inputs[1], saved[1], saved[2]}, shape));
  expectGradient(f, inputs, 1, dy,
                 run64("norm_scale_grad", {}, {dy, inputs[0], saved[1], saved[2]}, {5}));
}

TEST(Gradient, RmsNorm) {
  Shape shape = {3, 5};
  Attrs attrs = {{"epsilon", 1e-3}};
  std::vector<Tensor> inputs = {random64(shape, 9), random64({5}, 10)};
  Tensor dy = random64(shape, 11);
  auto all = [&](const std::vector<Tensor> &in) {
    return runAll(Arith::F64, "rms_norm", attrs, in, {like(shape), like({3})});
  };
  auto f = [&](const std::vector<Tensor> &in) { return all(in)[0]; };
  Tensor rstd = all(inputs)[1];
  expectGradient(f, inputs, 0, dy,
                 run64("rms_norm_grad", {}, {dy, inputs[0], inputs[1], rstd}, shape));
  expectGradient(f, inputs, 1, dy, run64("rms_scale_grad", {}, {dy, inputs[0], rstd}, {5}));
}

TEST(Gradient, Rotary) {
  Shape shape = {2, 3, 4};
  Tensor x = random64(shape, 12), cos = random64({3, 2}, 13), sin = random64({3, 2}, 14);
  Tensor dy = random64(shape, 15);
  auto f = [&](const std::vector<Tensor> &in) {
    return run64("rotary", {{"inverse", false}}, {in[0], cos, sin}, shape);
  };
  expectGradient(f, {x}, 0, dy, run64("rotary", {{"inverse", true}}, {dy, cos, sin}, shape));
}

TEST(Gradient, Attention) {
  for (bool causal : {false, true}) {
    Attrs attrs = {{"scale", 0.5}, {"causal", causal}};
    Shape q = {1, 4, 3, 2}, k = {1, 2, 4, 2}, v = {1, 2, 4, 3}, o = {1, 4, 3, 3}, rows = {1, 4, 3};
    std::vector<Tensor> inputs = {random64(q, 16), random64(k, 17), random64(v, 18)};
    Tensor dy = random64(o, 19);
    auto all = [&](const std::vector<Tensor> &in) {
      return runAll(Arith::F64, "attention", attrs, in, {like(o), like(rows), like(rows)});
    };
    auto f = [&](const std::vector<Tensor> &in) { return all(in)[0]; };
    std::vector<Tensor> saved = all(inputs);
    std::vector<Tensor> grads =
        runAll(Arith::F64, "attention_grad", attrs,
               {dy, inputs[0], inputs[1], inputs[2], saved[0], saved[1], saved[2]},
               {like(q), like(k), like(v)});
    for (size_t which : {0, 1, 2})
      expectGradient(f, inputs, which, dy, grads[which]);
  }
}

TEST(Gradient, CrossEntropy) {
  Attrs attrs = {{"ignore_index", int64_t(-100)}};
  Shape shape = {3, 5}, rows = {3};
  Tensor x = random64(shape, 20, -2, 2), labels = ints(rows, {4, -100, 0}),
         dloss = random64(rows, 21);
  auto all = [&](const std::vector<Tensor> &in) {
    return runAll(Arith::F64, "cross_entropy", attrs, {in[0], labels},
                  {like(rows), like(rows), like(rows)});
  };
  auto f = [&](const std::vector<Tensor> &in) { return all(in)[0]; };
  std::vector<Tensor> saved = all({x});
  expectGradient(f, {x}, 0, dloss,
                 run64("cross_entropy_grad", attrs, {x, labels, saved[1], saved[2], dloss}, shape));
}

TEST(Gradient, Convolution) {
  Attrs attrs = {{"strides", Ints{2, 1}},
                 {"pads", Ints{1, 0, 1, 1}},
                 {"dilations", Ints{1, 2}},
                 {"groups", int64_t(2)}};
  Shape x = {2, 4, 4, 5}, w = {6, 2, 3, 2}, y = {2, 6, 2, 4};
  std::vector<Tensor> inputs = {random64(x, 22), random64(w, 23)};
  Tensor dy = random64(y, 24);
  auto f = [&](const std::vector<Tensor> &in) { return run64("conv", attrs, in, y); };
  expectGradient(f, inputs, 0, dy, run64("conv_grad_input", attrs, {dy, inputs[1]}, x));
  expectGradient(f, inputs, 1, dy, run64("conv_grad_weight", attrs, {inputs[0], dy}, w));
}

TEST(Gradient, Pooling) {
  Attrs attrs = {{"kernel", Ints{3, 2}}, {"strides", Ints{1, 2}}, {"pads", Ints{1, 0, 1, 1}}};
  Shape x = {2, 2, 4, 5}, y = {2, 2, 4, 3};
  std::vector<Tensor> inputs = {random64(x, 25)};
  Tensor dy = random64(y, 26);
  auto maxPool = [&](const std::vector<Tensor> &in) { return run64("max_pool", attrs, in, y); };
  expectGradient(maxPool, inputs, 0, dy, run64("max_pool_grad", attrs, {inputs[0], dy}, x));
  for (bool countPad : {false, true}) {
    attrs.set("count_include_pad", countPad);
    auto avgPool = [&](const std::vector<Tensor> &in) { return run64("avg_pool", attrs, in, y); };
    expectGradient(avgPool, inputs, 0, dy, run64("avg_pool_grad", attrs, {dy}, x));
  }
}

TEST(Gradient, Gather) {
  Attrs attrs = {{"dim", int64_t(1)}};
  Tensor table = random64({2, 4, 3}, 27), indices = ints({3}, {2, 0, 2}),
         dy = random64({2, 3, 3}, 28);
  auto f = [&](const std::vector<Tensor> &in) {
    return run64("gather", attrs, {in[0], indices}, {2, 3, 3});
  };
  expectGradient(f, {table}, 0, dy, run64("scatter_add", attrs, {dy, indices}, {2, 4, 3}));
}

} // namespace
