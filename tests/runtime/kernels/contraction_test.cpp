//===- contraction_test.cpp - Einsum, convolution, pooling -----------------===//
//
// Part of tbc. Compares with naive loops, exactly: operands are small integers, so every arithmetic
// gives the same sums.
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/kernels/TestSupport.h"

#include <map>

using namespace tbc::kernels;

namespace {

Doubles smallIntegers(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  Doubles values(count);
  for (double &value : values)
    value = double(int(generator() % 9) - 4);
  return values;
}

/// Returns the indices of `shape` in row-major order.
std::vector<Shape> indices(const Shape &shape) {
  std::vector<Shape> all;
  for (int64_t flat = 0; flat < numElements(shape); ++flat) {
    Shape index(shape.size());
    for (int64_t dim = int64_t(shape.size()) - 1, rest = flat; dim >= 0; rest /= shape[dim--])
      index[dim] = rest % shape[dim];
    all.push_back(index);
  }
  return all;
}

/// An array with value 0 outside its shape.
struct Array {
  Shape shape;
  Doubles values;

  Array(Shape s, unsigned seed)
      : shape(std::move(s)), values(smallIntegers(numElements(shape), seed)) {}
  Array(Shape s, Doubles v) : shape(std::move(s)), values(std::move(v)) {}

  double &at(const Shape &index) {
    static double outside;
    outside = 0;
    int64_t flat = 0;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      if (index[dim] < 0 || index[dim] >= shape[dim])
        return outside;
      flat = flat * shape[dim] + index[dim];
    }
    return values[flat];
  }
  Tensor tensor(Arith arith) const { return floats(arith, shape, values); }
};

class Contraction : public ::testing::TestWithParam<Arith> {
protected:
  Arith arith = GetParam();
};

//===----------------------------------------------------------------------===//
// Einsum
//===----------------------------------------------------------------------===//

struct EinsumCase {
  Ints lhs, rhs, out;
};

TEST_P(Contraction, EinsumEqualsNaiveLoops) {
  std::map<int64_t, int64_t> sizes = {{0, 2}, {1, 3}, {2, 5}, {3, 70}, {4, 4}};
  for (const EinsumCase &c : std::vector<EinsumCase>{
           {{1, 2}, {2, 3}, {1, 3}},             // matmul, several tiles wide
           {{1, 3}, {2, 3}, {1, 2}},             // a long sum
           {{3, 1}, {3, 2}, {2, 1}},             // transposed everything
           {{0, 1, 2}, {0, 2, 4}, {0, 1, 4}},    // batched
           {{0, 1, 2, 4}, {1, 3, 2}, {3, 0, 1}}, // 4 is summed in lhs alone, batch in the middle
           {{1}, {2}, {2, 1}},                   // outer product
           {{3}, {3}, {}},                       // inner product
           {{0, 1}, {}, {1}},                    // a scalar operand
           {{1}, {1}, {1}},                      // elementwise
           {{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {}}}) {
    auto shapeOf = [&](const Ints &labels) {
      Shape shape;
      for (int64_t label : labels)
        shape.push_back(sizes[label]);
      return shape;
    };
    Array x(shapeOf(c.lhs), 1), y(shapeOf(c.rhs), 2), z(shapeOf(c.out), Doubles());
    z.values.assign(numElements(z.shape), 0);
    Ints labels;
    for (const Ints &list : {c.lhs, c.rhs})
      for (int64_t label : list)
        if (std::find(labels.begin(), labels.end(), label) == labels.end())
          labels.push_back(label);
    for (const Shape &index : indices(shapeOf(labels))) {
      auto pick = [&](const Ints &wanted) {
        Shape picked;
        for (int64_t label : wanted)
          picked.push_back(index[std::find(labels.begin(), labels.end(), label) - labels.begin()]);
        return picked;
      };
      z.at(pick(c.out)) += x.at(pick(c.lhs)) * y.at(pick(c.rhs));
    }
    SCOPED_TRACE(::testing::PrintToString(c.lhs) + ::testing::PrintToString(c.rhs));
    expectValues(arith,
                 run(arith, "einsum",
                     {{"lhs_labels", c.lhs}, {"rhs_labels", c.rhs}, {"out_labels", c.out}},
                     {x.tensor(arith), y.tensor(arith)}, {DType::F32, z.shape}),
                 z.values);
  }
}

TEST_P(Contraction, EinsumRejectsImpossibleLabels) {
  Tensor a = floats(arith, {2, 3}, smallIntegers(6, 1)),
         b = floats(arith, {3, 2}, smallIntegers(6, 2));
  auto einsum = [&](Ints lhs, Ints rhs, Ints out, Shape shape) {
    return run(arith, "einsum", {{"lhs_labels", lhs}, {"rhs_labels", rhs}, {"out_labels", out}},
               {a, b}, {DType::F32, shape});
  };
  EXPECT_NO_THROW(einsum({0, 1}, {1, 2}, {0, 2}, {2, 2}));
  EXPECT_THROW(einsum({0, 1}, {0, 2}, {1, 2}, {3, 2}), KernelError); // sizes 2 and 3
  EXPECT_THROW(einsum({0, 0}, {1, 2}, {0, 2}, {2, 2}), KernelError);
  EXPECT_THROW(einsum({0, 1}, {1, 2}, {0, 5}, {2, 2}), KernelError);
  EXPECT_THROW(einsum({0, 1}, {1, 2}, {0, 2}, {2, 3}), KernelError);
  EXPECT_THROW(einsum({0}, {1, 2}, {0, 2}, {2, 2}), KernelError);
}

TEST(Einsum, LongResidueSumsDoNotOverflow) {
  // Largest residues, with more terms than 128 bits hold unreduced.
  int64_t k = 1000;
  Tensor largest = floats(Arith::Residue61, {k}, {-1});
  Tensor sum = run(Arith::Residue61, "einsum",
                   {{"lhs_labels", Ints{0}}, {"rhs_labels", Ints{0}}, {"out_labels", Ints{}}},
                   {largest, largest}, {DType::F32, {}});
  EXPECT_EQ(sum.data<Residue>()[0].v, uint64_t(k));
}

//===----------------------------------------------------------------------===//
// Convolution and pooling
//===----------------------------------------------------------------------===//

struct ConvCase {
  Shape x, w;
  Ints strides, pads, dilations;
  int64_t groups;

  Attrs attrs() const {
    return {{"strides", strides}, {"pads", pads}, {"dilations", dilations}, {"groups", groups}};
  }
  Shape y() const {
    Shape shape = {x[0], w[0]};
    for (size_t dim = 0, rank = strides.size(); dim < rank; ++dim)
      shape.push_back(
          (x[dim + 2] + pads[dim] + pads[rank + dim] - dilations[dim] * (w[dim + 2] - 1) - 1) /
              strides[dim] +
          1);
    return shape;
  }
};

const std::vector<ConvCase> convCases = {
    {{2, 3, 5, 6}, {4, 3, 3, 2}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},
    {{2, 3, 5, 6}, {4, 3, 3, 3}, {2, 1}, {1, 2, 1, 0}, {1, 2}, 1},
    {{1, 4, 7}, {6, 2, 3}, {2}, {1, 1}, {2}, 2},
    {{2, 4, 4, 4}, {4, 1, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 4}, // depthwise
    {{1, 2, 3, 4, 3}, {2, 2, 2, 2, 2}, {1, 2, 1}, {0, 1, 0, 0, 0, 1}, {1, 1, 1}, 1},
    {{2, 3, 4, 4}, {5, 3, 1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},
};

/// Calls fn(index into y, index into w, index into x) for every term of the convolution.
template <typename Fn> void forEachTerm(const ConvCase &c, Fn &&fn) {
  int64_t outPerGroup = c.w[0] / c.groups;
  for (const Shape &y : indices(c.y()))
    for (const Shape &tap : indices(Shape(c.w.begin() + 1, c.w.end()))) {
      Shape w = {y[1]}, x = {y[0], y[1] / outPerGroup * c.w[1] + tap[0]};
      w.insert(w.end(), tap.begin(), tap.end());
      for (size_t dim = 0; dim < c.strides.size(); ++dim)
        x.push_back(y[dim + 2] * c.strides[dim] + tap[dim + 1] * c.dilations[dim] - c.pads[dim]);
      fn(y, w, x);
    }
}

TEST_P(Contraction, ConvolutionEqualsNaiveLoops) {
  for (const ConvCase &c : convCases) {
    Array x(c.x, 1), w(c.w, 2), dy(c.y(), 3);
    Array y(c.y(), Doubles(dy.values.size(), 0)), dx(c.x, Doubles(x.values.size(), 0));
    Array dw(c.w, Doubles(w.values.size(), 0));
    forEachTerm(c, [&](const Shape &iy, const Shape &iw, const Shape &ix) {
      y.at(iy) += w.at(iw) * x.at(ix);
      dx.at(ix) += w.at(iw) * dy.at(iy);
      dw.at(iw) += dy.at(iy) * x.at(ix);
    });
    SCOPED_TRACE(::testing::PrintToString(c.x) + ::testing::PrintToString(c.w));
    auto expectKernel = [&](const char *op, const Array &a, const Array &b, const Array &expected) {
      SCOPED_TRACE(op);
      expectValues(arith,
                   run(arith, op, c.attrs(), {a.tensor(arith), b.tensor(arith)},
                       {DType::F32, expected.shape}),
                   expected.values);
    };
    expectKernel("conv", x, w, y);
    expectKernel("conv_grad_input", dy, w, dx);
    expectKernel("conv_grad_weight", x, dy, dw);
  }
}

TEST_P(Contraction, ConvolutionRejectsWhatDoesNotFit) {
  ConvCase c = convCases[0];
  Tensor x = Array(c.x, 1).tensor(arith), w = Array(c.w, 2).tensor(arith);
  Shape wrong = c.y();
  ++wrong[2];
  EXPECT_THROW(run(arith, "conv", c.attrs(), {x, w}, {DType::F32, wrong}), KernelError);
  c.groups = 2;
  EXPECT_THROW(run(arith, "conv", c.attrs(), {x, w}, {DType::F32, c.y()}), KernelError);
}

TEST_P(Contraction, AveragePooling) {
  Tensor x = floats(arith, {1, 1, 2, 2}, {1, 2, 3, 4});
  Attrs attrs = {{"kernel", Ints{2, 2}}, {"strides", Ints{1, 1}}, {"pads", Ints{1, 0, 0, 0}}};
  TensorType type = {DType::F32, {1, 1, 2, 1}};
  expectValues(arith, run(arith, "avg_pool", attrs, {x}, type), {1.5, 2.5});
  Tensor dy = floats(arith, {1, 1, 2, 1}, {4, 8});
  expectValues(arith, run(arith, "avg_pool_grad", attrs, {dy}, x.type()), {4, 4, 2, 2});
  attrs.set("count_include_pad", true);
  expectValues(arith, run(arith, "avg_pool", attrs, {x}, type), {0.75, 2.5});
  expectValues(arith, run(arith, "avg_pool_grad", attrs, {dy}, x.type()), {3, 3, 2, 2});
}

TEST_P(Contraction, MaxPoolingFoldsMaximum) {
  Tensor x = randomTensor(arith, {2, 3, 4}, 5);
  Attrs attrs = {
      {"kernel", Ints{2}}, {"strides", Ints{2}}, {"pads", Ints{0, 0}}, {"dilations", Ints{1}}};
  auto every2nd = [&](int64_t offset) { // x[.., offset::2] as slice of a reshape
    return run(arith, "slice", {{"dim", int64_t(3)}, {"offset", offset}, {"size", int64_t(1)}},
               {x.reshaped({2, 3, 2, 2})}, {DType::F32, {2, 3, 2, 1}})
        .reshaped({2, 3, 2});
  };
  TensorType type = {DType::F32, {2, 3, 2}};
  Tensor expected = run(arith, "maximum", {}, {every2nd(0), every2nd(1)}, type);
  EXPECT_TRUE(bitwiseEqual(run(arith, "max_pool", attrs, {x}, type), expected));
}

TEST_P(Contraction, MaxPoolGradientGoesToTheLowestOfEquals) {
  Tensor x = floats(arith, {1, 1, 4}, {7, 7, 7, 7}), dy = floats(arith, {1, 1, 3}, {1, 2, 4});
  Attrs attrs = {
      {"kernel", Ints{3}}, {"strides", Ints{1}}, {"pads", Ints{1, 0}}, {"dilations", Ints{1}}};
  expectValues(arith, run(arith, "max_pool_grad", attrs, {x, dy}, x.type()), {3, 4, 0, 0});
}

/// As torch.max_pool1d: the last NaN of a window is its largest element.
TEST(ContractionFloats, MaxPoolKeepsNan) {
  const double nan = std::nan("");
  Attrs attrs = {
      {"kernel", Ints{3}}, {"strides", Ints{1}}, {"pads", Ints{0, 0}}, {"dilations", Ints{1}}};
  for (Arith arith : {Arith::Native, Arith::F64}) {
    Tensor x = floats(arith, {1, 1, 6}, {1, nan, 2, nan, 3, 4});
    Tensor dy = floats(arith, {1, 1, 4}, {1, 2, 4, 8});
    for (double y : run(arith, "max_pool", attrs, {x}, dy.type()).toDoubles())
      EXPECT_TRUE(std::isnan(y));
    expectValues(arith, run(arith, "max_pool_grad", attrs, {x, dy}, x.type()), {0, 1, 0, 14, 0, 0});
  }
}

TEST_P(Contraction, PoolingWindowsMustMeetTheInput) {
  Tensor x = floats(arith, {1, 1, 2}, {1, 2});
  Attrs attrs = {{"kernel", Ints{1}}, {"strides", Ints{1}}, {"pads", Ints{1, 0}}};
  EXPECT_THROW(run(arith, "max_pool", attrs, {x}, {DType::F32, {1, 1, 3}}), KernelError);
}

INSTANTIATE_TEST_SUITE_P(Ariths, Contraction, ::testing::ValuesIn(allAriths),
                         [](const auto &info) { return nameOf(info.param); });

} // namespace
