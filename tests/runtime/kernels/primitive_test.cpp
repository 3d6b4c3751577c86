//===- primitive_test.cpp - Elementwise, movement, reduction, indexing -----===//
//
// Part of tbc. Small cases with hand-computed results, in every arithmetic.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Random.h"
#include "tests/runtime/kernels/TestSupport.h"

#include <cmath>
#include <limits>
#include <numeric>

using namespace tbc::kernels;
using ::testing::Each;
using ::testing::ElementsAre;

namespace {

const TensorType f32x3 = {DType::F32, {3}}, bool3 = {DType::Bool, {3}};

class Primitive : public ::testing::TestWithParam<Arith> {
protected:
  Arith arith = GetParam();

  Tensor x(const Doubles &values) { return floats(arith, {int64_t(values.size())}, values); }
  /// Runs an op and expects small exact results.
  void expect(const std::string &op, const std::vector<Doubles> &operands, const Doubles &expected,
              const Attrs &attrs = {}) {
    SCOPED_TRACE(op);
    std::vector<Tensor> inputs;
    for (const Doubles &operand : operands)
      inputs.push_back(x(operand));
    TensorType type = {DType::F32, {int64_t(expected.size())}};
    expectValues(arith, run(arith, op, attrs, inputs, type), expected);
  }
};

TEST_P(Primitive, FieldOperations) {
  expect("neg", {{1, -2, 0.5}}, {-1, 2, -0.5});
  expect("add", {{1, -2, 0.5}, {2, 2, 2}}, {3, 0, 2.5});
  expect("sub", {{1, -2, 0.5}, {2, 2, 2}}, {-1, -4, -1.5});
  expect("mul", {{1, -2, 0.5}, {2, 2, 2}}, {2, -4, 1});
  expect("div", {{1, -2, 0.5, 0}, {2, 4, 4, 3}}, {0.5, -0.5, 0.125, 0});
  expect("reciprocal", {{1, -2, 0.5}}, {1, -0.5, 2});
  expect("pow", {{2, -3, 0.5, 2}, {3, 2, -2, 0}}, {8, 9, 4, 1});
}

TEST_P(Primitive, FunctionsAtZero) {
  expect("exp", {{0}}, {1});
  expect("cos", {{0}}, {1});
  expect("sqrt", {{0}}, {0});
  expect("tanh", {{0}}, {0});
  expect("erf", {{0}}, {0});
  expect("sin", {{0}}, {0});
}

TEST_P(Primitive, RsqrtIsOneOverSqrt) {
  Tensor values = x({1, 4, 0.25, 3});
  Tensor roots = run(arith, "sqrt", {}, {values}, values.type());
  expectSame(arith, run(arith, "rsqrt", {}, {values}, values.type()),
             run(arith, "reciprocal", {}, {roots}, values.type()), "rsqrt");
}

TEST_P(Primitive, OrderedOperationsAgree) {
  Tensor a = randomTensor(arith, {50}, 1), b = randomTensor(arith, {50}, 2);
  TensorType type = a.type(), boolType = {DType::Bool, {50}};
  Tensor isLess = run(arith, "compare", {{"predicate", "lt"}}, {a, b}, boolType);
  auto select = [&](const Tensor &p, const Tensor &u, const Tensor &v) {
    return run(arith, "select", {}, {p, u, v}, type);
  };
  expectSame(arith, run(arith, "maximum", {}, {a, b}, type), select(isLess, b, a), "maximum");
  expectSame(arith, run(arith, "minimum", {}, {a, b}, type), select(isLess, a, b), "minimum");
  // Both branches are taken, also in residues.
  EXPECT_THAT(isLess.data<int64_t>(), ::testing::Contains(0));
  EXPECT_THAT(isLess.data<int64_t>(), ::testing::Contains(1));

  Tensor zeros = Tensor::zeros(type, arith);
  Tensor positive = run(arith, "compare", {{"predicate", "gt"}}, {a, zeros}, boolType);
  Tensor negated = run(arith, "neg", {}, {a}, type);
  expectSame(arith, run(arith, "relu", {}, {a}, type), select(positive, a, zeros), "relu");
  expectSame(arith, run(arith, "abs", {}, {a}, type), select(positive, a, negated), "abs");
  expectSame(arith, run(arith, "relu_grad", {}, {a, b}, type), select(positive, b, zeros),
             "relu_grad");
}

TEST_P(Primitive, ComparePredicates) {
  auto compare = [&](const char *predicate) {
    Tensor result =
        run(arith, "compare", {{"predicate", predicate}}, {x({1, 5, 0}), x({1, 2, 0})}, bool3);
    return result.data<int64_t>();
  };
  EXPECT_THAT(compare("eq"), ElementsAre(1, 0, 1));
  EXPECT_THAT(compare("ne"), ElementsAre(0, 1, 0));
  EXPECT_THAT(compare("le")[0], 1);
  EXPECT_THAT(compare("ge")[0], 1);
  EXPECT_THAT(compare("lt")[0], 0);
  EXPECT_NE(compare("lt")[1], compare("gt")[1]);
  EXPECT_THROW(compare("less"), KernelError);
}

TEST_P(Primitive, Cast) {
  TensorType i32 = {DType::I32, {3}}, f32 = f32x3;
  EXPECT_THAT(run(arith, "cast", {}, {x({3, -2, 0})}, i32).data<int64_t>(), ElementsAre(3, -2, 0));
  EXPECT_THAT(run(arith, "cast", {}, {x({0.5, 0, 2})}, bool3).data<int64_t>(),
              ElementsAre(1, 0, 1));
  expectValues(arith, run(arith, "cast", {}, {ints({3}, {3, -2, 0})}, f32), {3, -2, 0});
  EXPECT_THAT(run(arith, "cast", {}, {ints({3}, {300, -1, 0})}, {DType::U8, {3}}).data<int64_t>(),
              ElementsAre(44, 255, 0));
}

/// Buckets of relative positions cast log(0), and take another bucket there.
TEST_P(Primitive, CastsOfInfinitiesAreAsOnX86) {
  if (arith != Arith::Native)
    return;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Tensor large = x({-infinity, infinity, -0x1p63});
  for (auto [dtype, lowest] :
       {std::pair(DType::I64, std::numeric_limits<int64_t>::min()),
        std::pair<DType, int64_t>(DType::I32, INT32_MIN), std::pair<DType, int64_t>(DType::I8, 0),
        std::pair<DType, int64_t>(DType::U8, 0)}) {
    Tensor cast = run(arith, "cast", {}, {large}, {dtype, {3}});
    EXPECT_EQ(cast.data<int64_t>()[0], lowest);
    EXPECT_EQ(cast.data<int64_t>()[1], lowest);
  }
  EXPECT_THROW(run(arith, "cast", {}, {x({std::nan(""), 1, 2})}, {DType::I64, {3}}), KernelError);
}

TEST_P(Primitive, FloatToFloatCastsAreTheIdentityOutsideNative) {
  Tensor source = floats(arith, {1}, {1 + 0x1p-8 + 0x1p-20});
  Tensor cast = run(arith, "cast", {}, {source}, {DType::BF16, {1}});
  if (arith == Arith::Native)
    EXPECT_EQ(cast.toDoubles()[0], 1 + 0x1p-7);
  else
    EXPECT_EQ(cast.toDoubles(), source.toDoubles());
}

TEST_P(Primitive, Movement) {
  Tensor a = floats(arith, {2, 3}, {1, 2, 3, 4, 5, 6});
  auto moved = [&](const std::string &op, const Attrs &attrs, Shape shape) {
    return run(arith, op, attrs, {a}, {DType::F32, shape});
  };
  expectValues(arith, moved("transpose", {{"permutation", Ints{1, 0}}}, {3, 2}),
               {1, 4, 2, 5, 3, 6});
  expectValues(arith, moved("broadcast", {{"dims", Ints{0, 2}}}, {2, 2, 3}),
               {1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6});
  expectValues(arith, moved("broadcast", {{"dims", Ints{1, 0}}}, {3, 2}), {1, 4, 2, 5, 3, 6});
  expectValues(arith, moved("reshape", {}, {3, 2}), {1, 2, 3, 4, 5, 6});
  expectValues(
      arith,
      moved("slice", {{"dim", int64_t(1)}, {"offset", int64_t(1)}, {"size", int64_t(2)}}, {2, 2}),
      {2, 3, 5, 6});
  expectValues(
      arith,
      moved("slice", {{"dim", int64_t(0)}, {"offset", int64_t(1)}, {"size", int64_t(1)}}, {1, 3}),
      {4, 5, 6});
  expectValues(
      arith, moved("pad", {{"dim", int64_t(1)}, {"low", int64_t(1)}, {"high", int64_t(0)}}, {2, 4}),
      {0, 1, 2, 3, 0, 4, 5, 6});
  expectValues(arith,
               run(arith, "concat", {{"dim", int64_t(1)}}, {a, floats(arith, {2, 1}, {7, 8})},
                   {DType::F32, {2, 4}}),
               {1, 2, 3, 7, 4, 5, 6, 8});
  EXPECT_THROW(moved("transpose", {{"permutation", Ints{0, 0}}}, {2, 2}), KernelError);
  EXPECT_THROW(
      moved("slice", {{"dim", int64_t(1)}, {"offset", int64_t(2)}, {"size", int64_t(2)}}, {2, 2}),
      KernelError);
}

TEST_P(Primitive, Generators) {
  EXPECT_THAT(run(arith, "iota", {{"dim", int64_t(0)}}, {}, {DType::I64, {2, 2}}).data<int64_t>(),
              ElementsAre(0, 0, 1, 1));
  expectValues(arith, run(arith, "constant", {{"value", Doubles{0.5}}}, {}, f32x3),
               {0.5, 0.5, 0.5});
  expectValues(arith, run(arith, "constant", {{"value", Doubles{1, 2, 3}}}, {}, f32x3), {1, 2, 3});
  EXPECT_THAT(run(arith, "constant", {{"value", Ints{4}}}, {}, {DType::I64, {2}}).data<int64_t>(),
              Each(4));
  expectValues(arith,
               run(arith, "factor_size", {{"count", int64_t(4)}, {"samples", int64_t(3)}}, {},
                   {DType::F32, {}}),
               {12});
}

TEST_P(Primitive, Reductions) {
  Tensor a = floats(arith, {2, 3}, {1, 2, 3, 4, 5, 6});
  auto reduced = [&](const char *op, Ints dims, Shape shape) {
    return run(arith, op, {{"dims", dims}}, {a}, {DType::F32, shape});
  };
  expectValues(arith, reduced("reduce_sum", {0}, {3}), {5, 7, 9});
  expectValues(arith, reduced("reduce_sum", {1}, {2}), {6, 15});
  expectValues(arith, reduced("reduce_sum", {0, 1}, {}), {21});
  expectValues(arith, reduced("reduce_sum", {}, {2, 3}), {1, 2, 3, 4, 5, 6});
  bool residues = isModular(arith);
  expectValues(arith, reduced("stabilizer_max", {1}, {2}),
               residues ? Doubles{0, 0} : Doubles{3, 6});
  // The maximum of a row is the fold of `maximum`.
  Tensor largest = x({1, 4});
  for (int64_t column : {1, 2})
    largest = run(arith, "maximum", {}, {largest, x({double(column + 1), double(column + 4)})},
                  {DType::F32, {2}});
  expectSame(arith, reduced("reduce_max", {1}, {2}), largest, "reduce_max");
  EXPECT_THROW(reduced("reduce_sum", {2}, {2}), KernelError);
}

/// Vocabulary rows 3 to 5 of 8, and one row of padding.
TEST_P(Primitive, ShardsOfVocabularies) {
  Tensor table = floats(arith, {4, 2}, {1, 2, 3, 4, 5, 6, 9, 9});
  Tensor numbers = ints({4}, {3, 4, 5, -1}), last = ints({}, {7});
  Tensor indices = ints({4}, {5, 0, -4, 7}); // -4 is row 4
  expectValues(arith,
               run(arith, "embedding", {}, {table, indices, numbers, last}, {DType::F32, {4, 2}}),
               {5, 6, 0, 0, 3, 4, 0, 0});
  Tensor updates = floats(arith, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  expectValues(arith,
               run(arith, "embedding_grad", {}, {updates, indices, numbers, last}, table.type()),
               {0, 0, 5, 6, 1, 2, 0, 0});
  for (int64_t outside : {-9, 8})
    if (!isModular(arith))
      EXPECT_THROW(run(arith, "embedding", {}, {table, ints({1}, {outside}), numbers, last},
                       {DType::F32, {1, 2}}),
                   KernelError);
  for (Ints unsorted : {Ints{3, 5, 4, -1}, Ints{3, 4, -1, 5}, Ints{3, 3, 4, 5}})
    EXPECT_THROW(run(arith, "embedding", {}, {table, indices, ints({4}, unsorted), last},
                     {DType::F32, {4, 2}}),
                 KernelError);
  Tensor logits = floats(arith, {2, 4}, {-3, -1, -2, 9, 4, 2, 3, 9});
  bool residues = isModular(arith);
  expectValues(arith, run(arith, "class_max", {}, {logits, numbers}, {DType::F32, {2}}),
               residues ? Doubles{0, 0} : Doubles{-1, 4});
  expectValues(
      arith, run(arith, "class_max", {}, {logits, ints({4}, {-1, -1, -1, -1})}, {DType::F32, {2}}),
      residues ? Doubles{0, 0} : Doubles(2, std::numeric_limits<float>::lowest()));
}

TEST_P(Primitive, GatherAndScatterAdd) {
  Tensor table = floats(arith, {3, 2}, {1, 2, 3, 4, 5, 6}), indices = ints({2, 2}, {2, 0, 0, 0});
  Attrs dim0 = {{"dim", int64_t(0)}}, dim1 = {{"dim", int64_t(1)}};
  expectValues(arith, run(arith, "gather", dim0, {table, indices}, {DType::F32, {2, 2, 2}}),
               {5, 6, 1, 2, 1, 2, 1, 2});
  expectValues(arith, run(arith, "gather", dim1, {table, ints({1}, {1})}, {DType::F32, {3, 1}}),
               {2, 4, 6});
  expectValues(arith, run(arith, "gather", dim1, {table, ints({}, {1})}, {DType::F32, {3}}),
               {2, 4, 6});
  Tensor updates = floats(arith, {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  expectValues(arith, run(arith, "scatter_add", dim0, {updates, indices}, table.type()),
               {15, 18, 0, 0, 1, 2});
  expectValues(arith, run(arith, "gather", dim1, {table, ints({1}, {-1})}, {DType::F32, {3, 1}}),
               {2, 4, 6});
  for (int64_t outside : {-4, 3})
    if (!isModular(arith))
      EXPECT_THROW(run(arith, "gather", dim0, {table, ints({1}, {outside})}, {DType::F32, {1, 2}}),
                   KernelError);
}

/// As torch.maximum, minimum, amax, round and topk do.
TEST(PrimitiveFloats, NanIsTheLargestAndNotLost) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (Arith arith : {Arith::Native, Arith::F64}) {
    Tensor a = floats(arith, {4}, {nan, 1, nan, 2}), b = floats(arith, {4}, {1, nan, nan, 3});
    for (const char *op : {"maximum", "minimum"}) {
      Doubles made = run(arith, op, {}, {a, b}, a.type()).toDoubles();
      EXPECT_TRUE(std::isnan(made[0]) && std::isnan(made[1]) && std::isnan(made[2])) << op;
      EXPECT_EQ(made[3], op == std::string("maximum") ? 3 : 2);
    }
    for (const Doubles &row : {Doubles{nan, 1, 2}, {1, nan, 2}, {1, 2, nan}})
      EXPECT_TRUE(std::isnan(
          run(arith, "reduce_max", {{"dims", Ints{0}}}, {floats(arith, {3}, row)}, {DType::F32, {}})
              .toDoubles()[0]));
    EXPECT_THAT(run(arith, "round", {}, {floats(arith, {3}, {infinity, -infinity, 2.5})}, f32x3)
                    .toDoubles(),
                ElementsAre(infinity, -infinity, 2));
    Tensor x = floats(arith, {6}, {3, nan, 1, infinity, nan, 2});
    std::vector<TensorType> types = {{DType::F32, {6}}, {DType::I64, {6}}};
    for (auto [largest, order] :
         {std::pair(true, Ints{1, 4, 3, 0, 5, 2}), std::pair(false, Ints{2, 5, 0, 3, 1, 4})})
      EXPECT_EQ(runAll(arith, "topk", {{"dim", int64_t(0)}, {"largest", largest}}, {x}, types)[1]
                    .data<int64_t>(),
                order);
  }
}

TEST_P(Primitive, TopKTakesTheLowerIndexOfEquals) {
  Tensor a = floats(arith, {2, 4}, {0, 0, 0, 0, 0, 0, 0, 0});
  std::vector<TensorType> types = {{DType::F32, {2, 2}}, {DType::I64, {2, 2}}};
  auto attrs = [](bool largest) { return Attrs{{"dim", int64_t(1)}, {"largest", largest}}; };
  for (bool largest : {false, true})
    EXPECT_THAT(runAll(arith, "topk", attrs(largest), {a}, types)[1].data<int64_t>(),
                ElementsAre(0, 1, 0, 1));
  // Residues have their own order. So the test checks that the values are the ones at the indices.
  Tensor b = floats(arith, {2, 4}, {3, 1, 4, 1, 5, 9, 2, 6});
  std::vector<Tensor> top = runAll(arith, "topk", attrs(true), {b}, types);
  expectSame(arith, run(arith, "gather_elements", {{"dim", int64_t(1)}}, {b, top[1]}, types[0]),
             top[0], "topk");
  if (!isModular(arith)) {
    EXPECT_THAT(top[1].data<int64_t>(), ElementsAre(2, 0, 1, 3));
    EXPECT_THAT(runAll(arith, "topk", attrs(false), {b}, types)[1].data<int64_t>(),
                ElementsAre(1, 3, 2, 0));
  }
}

TEST_P(Primitive, GatherAndScatterElements) {
  Tensor table = floats(arith, {3, 2}, {1, 2, 3, 4, 5, 6}), indices = ints({2, 2}, {2, 0, 2, 1});
  Attrs dim0 = {{"dim", int64_t(0)}};
  expectValues(arith, run(arith, "gather_elements", dim0, {table, indices}, {DType::F32, {2, 2}}),
               {5, 2, 5, 4});
  Tensor updates = floats(arith, {2, 2}, {1, 2, 3, 4});
  expectValues(arith, run(arith, "scatter_elements_add", dim0, {updates, indices}, table.type()),
               {0, 2, 0, 4, 4, 0});
  if (!isModular(arith))
    EXPECT_THROW(
        run(arith, "gather_elements", dim0, {table, ints({1, 2}, {3, 0})}, {DType::F32, {1, 2}}),
        KernelError);
  EXPECT_THROW(
      run(arith, "gather_elements", dim0, {table, ints({1, 1}, {0})}, {DType::F32, {1, 1}}),
      KernelError);
}

/// Floats cast to integers are hashes in residues, so there an index counts modulo the size.
TEST_P(Primitive, IndicesOfHashesAreInRange) {
  Tensor table = floats(arith, {4}, {1, 2, 3, 4}), indices = ints({3}, {9, -9, int64_t(1) << 60});
  Attrs dim0 = {{"dim", int64_t(0)}};
  auto gathered = [&] { return run(arith, "gather", dim0, {table, indices}, {DType::F32, {3}}); };
  if (isModular(arith))
    expectValues(arith, gathered(), {2, 4, 1});
  else
    EXPECT_THROW(gathered(), KernelError);
}

/// Sums the contributions of ranks to the result and to the token gradient. A rank has some of the
/// experts, or a part of each (of the gate and of the rest).
TEST_P(Primitive, PartsOfRoutedExpertsAddUp) {
  constexpr int64_t t = 5, h = 3, e = 4, f = 2, o = 3;
  Attrs attrs = {{"activation", std::string("silu")}, {"gated", true}, {"top", int64_t(2)}};
  Tensor x = randomTensor(arith, {t, h}, 1), in = randomTensor(arith, {e, 2 * f, h}, 2),
         out = randomTensor(arith, {e, o, f}, 3), dy = randomTensor(arith, {t, o}, 4);
  Doubles routed(t * e, 0); // two of four experts each
  for (int64_t i = 0; i < t; ++i)
    routed[i * e + i % e] = 0.75, routed[i * e + (i + 1) % e] = 0.25;
  Tensor weights = floats(arith, {t, e}, routed);
  auto cut = [&](const Tensor &tensor, int64_t dim, int64_t offset, int64_t size) {
    Shape shape = tensor.shape();
    shape[dim] = size;
    return run(arith, "slice", {{"dim", dim}, {"offset", offset}, {"size", size}}, {tensor},
               {DType::F32, shape});
  };
  auto both = [&](const Tensor &w, const Tensor &first, const Tensor &second) {
    Tensor y = run(arith, "routed_experts", attrs, {x, w, first, second}, dy.type());
    Tensor dx = runAll(arith, "routed_experts_grad", attrs, {dy, x, w, first, second},
                       {x.type(), w.type(), first.type(), second.type()})[0];
    return std::pair(y, dx);
  };
  auto plus = [&](const Tensor &a, const Tensor &b) {
    return run(arith, "add", {}, {a, b}, a.type());
  };
  auto [y, dx] = both(weights, in, out);
  auto [y1, dx1] = both(cut(weights, 1, 0, 1), cut(in, 0, 0, 1), cut(out, 0, 0, 1));
  auto [y2, dx2] = both(cut(weights, 1, 1, 3), cut(in, 0, 1, 3), cut(out, 0, 1, 3));
  expectSame(arith, plus(y1, y2), y, "experts");
  expectSame(arith, plus(dx1, dx2), dx, "experts, tokens");
  auto part = [&](int64_t i) {
    Tensor gate = cut(in, 1, i, 1), up = cut(in, 1, f + i, 1);
    Tensor first = run(arith, "concat", {{"dim", int64_t(1)}}, {gate, up}, {DType::F32, {e, 2, h}});
    return both(weights, first, cut(out, 2, i, 1));
  };
  expectSame(arith, plus(part(0).first, part(1).first), y, "inner dims");
  expectSame(arith, plus(part(0).second, part(1).second), dx, "inner dims, tokens");
}

TEST_P(Primitive, FullExpertsDropTheTokensThatComeLast) {
  Arith arith = GetParam();
  constexpr int64_t g = 2, t = 4, e = 2, c = 2, h = 2;
  // In group 0, tokens 0, 2 and 3 choose expert 0, and tokens 1 and 3 expert 1. In group 1, all
  // tokens choose expert 1.
  Tensor weights = floats(arith, {g, t, e}, {2, 0, 0, 3, 4, 0, 5, 6, 0, 0.5, 0, 0.25, 0, 1, 0, 1});
  Tensor x = floats(arith, {g, t, h}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  auto dispatch = [&](bool weighted) {
    return run(arith, "dispatch", {{"capacity", c}, {"weighted", weighted}}, {x, weights},
               {DType::F32, {g, e, c, h}});
  };
  expectSame(arith, dispatch(false),
             floats(arith, {g, e, c, h}, {1, 2, 5, 6, 3, 4, 7, 8, 0, 0, 0, 0, 9, 10, 11, 12}),
             "slots");
  expectSame(
      arith, dispatch(true),
      floats(arith, {g, e, c, h}, {2, 4, 20, 24, 9, 12, 42, 48, 0, 0, 0, 0, 4.5, 5, 2.75, 3}),
      "weighted slots");
  Tensor slots = floats(arith, {g, e, c, h}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9, 1, 2, 3, 4});
  auto combine = [&](bool weighted) {
    return run(arith, "combine", {{"weighted", weighted}}, {slots, weights}, x.type());
  };
  expectSame(arith, combine(false),
             floats(arith, {g, t, h}, {1, 2, 5, 6, 3, 4, 7, 8, 1, 2, 3, 4, 0, 0, 0, 0}), "tokens");
  expectSame(arith, combine(true),
             floats(arith, {g, t, h}, {2, 4, 15, 18, 12, 16, 42, 48, 0.5, 1, 0.75, 1, 0, 0, 0, 0}),
             "weighted tokens");
  expectSame(arith, run(arith, "combine_weights_grad", {}, {x, slots, weights}, weights.type()),
             floats(arith, {g, t, e}, {5, 0, 0, 39, 39, 0, 0, 113, 0, 29, 0, 81, 0, 0, 0, 0}),
             "weights");
}

INSTANTIATE_TEST_SUITE_P(Ariths, Primitive, ::testing::ValuesIn(allAriths),
                         [](const auto &info) { return nameOf(info.param); });

TEST(Elementwise, NativeFunctionsAreTheCLibrarys) {
  Tensor a = floats(Arith::F64, {3}, {0.3, 1.7, 2.9});
  auto expectFunction = [&](const char *op, double (*function)(double)) {
    Tensor y = run(Arith::F64, op, {}, {a}, a.type());
    for (int i = 0; i < 3; ++i)
      EXPECT_DOUBLE_EQ(y.data<double>()[i], function(a.data<double>()[i])) << op;
  };
  expectFunction("exp", std::exp);
  expectFunction("log", std::log);
  expectFunction("sqrt", std::sqrt);
  expectFunction("tanh", std::tanh);
  expectFunction("erf", std::erf);
  expectFunction("sin", std::sin);
  expectFunction("cos", std::cos);
  expectFunction("atan", std::atan);
  expectFunction("sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); });
}

TEST(Elementwise, SigmoidDoesNotOverflow) {
  Tensor y = run(Arith::Native, "sigmoid", {}, {floats(Arith::Native, {2}, {-200, 200})},
                 {DType::F32, {2}});
  EXPECT_THAT(y.toDoubles(), ElementsAre(0, 1));
}

TEST(Elementwise, NaNIsUnordered) {
  Tensor nan = floats(Arith::Native, {1}, {NAN}), one = floats(Arith::Native, {1}, {1});
  TensorType type = {DType::Bool, {1}};
  EXPECT_THAT(run(Arith::Native, "is_nan", {}, {nan}, type).data<int64_t>(), ElementsAre(1));
  EXPECT_THAT(run(Arith::Native, "is_nan", {}, {one}, type).data<int64_t>(), ElementsAre(0));
  for (const char *predicate : {"eq", "lt", "le", "gt", "ge"})
    EXPECT_EQ(run(Arith::Native, "compare", {{"predicate", predicate}}, {nan, one}, type)
                  .data<int64_t>()[0],
              0);
  EXPECT_EQ(
      run(Arith::Native, "compare", {{"predicate", "ne"}}, {nan, nan}, type).data<int64_t>()[0], 1);
}

TEST(Elementwise, IntegersWrapAndDivideTowardsZero) {
  TensorType type = {DType::I32, {3}};
  Tensor a = ints({3}, {7, -7, INT32_MAX}, DType::I32), b = ints({3}, {2, 2, 1}, DType::I32);
  EXPECT_THAT(run(Arith::Native, "div", {}, {a, b}, type).data<int64_t>(),
              ElementsAre(3, -3, INT32_MAX));
  EXPECT_THAT(run(Arith::Native, "add", {}, {a, b}, type).data<int64_t>(),
              ElementsAre(9, -5, INT32_MIN));
  EXPECT_THAT(run(Arith::Native, "pow", {}, {a, b}, type).data<int64_t>(),
              ElementsAre(49, 49, INT32_MAX));
  EXPECT_THROW(run(Arith::Native, "div", {}, {a, ints({3}, {1, 0, 1}, DType::I32)}, type),
               KernelError);
}

TEST(Elementwise, Booleans) {
  Tensor a = ints({4}, {0, 0, 1, 1}, DType::Bool), b = ints({4}, {0, 1, 0, 1}, DType::Bool);
  EXPECT_THAT(run(Arith::Native, "and", {}, {a, b}, a.type()).data<int64_t>(),
              ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(run(Arith::Native, "or", {}, {a, b}, a.type()).data<int64_t>(),
              ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(run(Arith::Native, "not", {}, {a}, a.type()).data<int64_t>(),
              ElementsAre(1, 1, 0, 0));
}

TEST(Elementwise, BF16IsRoundedAfterEachOp) {
  Tensor a = floats(Arith::Native, {1}, {1}, DType::BF16),
         b = floats(Arith::Native, {1}, {0x1p-8}, DType::BF16);
  Tensor sum = run(Arith::Native, "add", {}, {a, b}, a.type());
  EXPECT_EQ(sum.toDoubles()[0], 1);
  EXPECT_EQ(run(Arith::F64, "add", {},
                {floats(Arith::F64, {1}, {1}, DType::BF16),
                 floats(Arith::F64, {1}, {0x1p-8}, DType::BF16)},
                a.type())
                .toDoubles()[0],
            1 + 0x1p-8);
}

TEST(Elementwise, F16IsRoundedAfterEachOp) {
  Tensor a = floats(Arith::Native, {1}, {1}, DType::F16);
  Tensor b = floats(Arith::Native, {1}, {0x1p-11}, DType::F16);
  EXPECT_EQ(run(Arith::Native, "add", {}, {a, b}, a.type()).toDoubles()[0], 1);
}

TEST(Elementwise, ResiduePowersOfNonIntegersAreHashed) {
  Tensor half = floats(Arith::Residue61, {1}, {0.5}), two = floats(Arith::Residue61, {1}, {2});
  Residue power = run(Arith::Residue61, "pow", {}, {two, half}, two.type()).data<Residue>()[0];
  EXPECT_EQ(power, applyHash(FunctionKey::Pow, {2}, Residue::fromDouble(0.5)));
}

TEST(Elementwise, MismatchedOperandsAreNamed) {
  Tensor a = floats(Arith::Native, {2}, {1, 2}), b = floats(Arith::Native, {3}, {1, 2, 3});
  try {
    run(Arith::Native, "add", {}, {a, b}, a.type());
    FAIL() << "expected a KernelError";
  } catch (const KernelError &error) {
    EXPECT_STREQ(error.what(), "the second operand has shape [3], expected [2]");
  }
  EXPECT_THROW(run(Arith::Native, "exp", {}, {ints({1}, {1})}, {DType::F32, {1}}), KernelError);
}

TEST(Reduction, FloatSumsAreAccumulatedInDouble) {
  Doubles values(1 << 12, 1);
  values[0] = 0x1p25; // in float, adding 1 to it changes nothing
  Tensor sum = run(Arith::Native, "reduce_sum", {{"dims", Ints{0}}},
                   {floats(Arith::Native, {1 << 12}, values)}, {DType::F32, {}});
  EXPECT_EQ(sum.toDoubles()[0], 0x1p25 + 4096); // 4095 rounds to the float grid of 4
}

/// Known answers of the authors' library (Random123, kat_vectors, philox 4x32 10).
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomUniform, AreTheUpperBitsOfTheWords) {
  Attrs attrs = {{"seed", int64_t(3)}, {"key", int64_t(17)}};
  std::vector<int64_t> rows = {0, 40}, columns = {5, 0, 1000000007};
  for (Arith arith : allAriths) {
    Tensor drawn = run(arith, "random_uniform_train", attrs,
                       {ints({}, {9}), ints({2}, rows), ints({3}, columns)}, {DType::F32, {2, 3}});
    std::vector<double> expected;
    for (int64_t row : rows)
      for (int64_t column : columns) {
        auto number = uint64_t(row + column);
        auto words = philox({uint32_t(number / 4), 0, 9, 17}, {3, 0});
        expected.push_back(double(words[number % 4] >> 8) / 16777216.0);
      }
    // In residues too: the quotient is exact.
    Tensor exact = Tensor::fromDoubles({DType::F32, {2, 3}}, arith, expected);
    EXPECT_TRUE(bitwiseEqual(drawn, exact)) << nameOf(arith);
  }
}

TEST(RandomUniform, OfTheModelIsStepZeroInRowMajorOrder) {
  Tensor like = randomTensor(Arith::Native, {3, 5}, 1, 0, 1);
  Tensor byItself =
      run(Arith::Native, "random_uniform", {{"key", int64_t(4)}}, {like}, {DType::F32, {3, 5}});
  Tensor trained =
      run(Arith::Native, "random_uniform_train", {{"seed", int64_t(0)}, {"key", int64_t(4)}},
          {ints({}, {0}), ints({3}, {0, 5, 10}), ints({5}, {0, 1, 2, 3, 4})}, {DType::F32, {3, 5}});
  EXPECT_TRUE(bitwiseEqual(byItself, trained));
}

TEST(Dropout, OfStepZeroIsNothing) {
  Attrs attrs = {{"ratio", 0.25}, {"seed", int64_t(3)}, {"key", int64_t(17)}};
  for (Arith arith : allAriths) {
    Tensor x = randomTensor(arith, {64}, 5, 1, 2);
    std::vector<int64_t> numbers(64);
    std::iota(numbers.begin(), numbers.end(), int64_t(0));
    auto dropped = [&](int64_t step) {
      return run(arith, "dropout_train", attrs, {x, ints({}, {step}), ints({64}, numbers)},
                 x.type());
    };
    EXPECT_TRUE(bitwiseEqual(dropped(0), x)) << nameOf(arith);
    EXPECT_FALSE(bitwiseEqual(dropped(1), x)) << nameOf(arith);
  }
}

} // namespace
