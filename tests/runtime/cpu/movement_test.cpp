//===- movement_test.cpp - Native copies against the reference ----------------===//

#include "tests/runtime/cpu/NativeCase.h"

using namespace tbc;
using kernels::DType;
using kernels::Shape;

namespace {

const DType allDTypes[] = {DType::F64, DType::F32, DType::BF16, DType::F16, DType::I64,
                           DType::I32, DType::I16, DType::I8,   DType::U8,  DType::Bool};

/// Expects the same bits as the reference kernel, for operands of these shapes in every dtype.
void check(const std::string &op, const kernels::Attrs &attrs, const std::vector<Shape> &operands,
           const Shape &result) {
  for (DType dtype : allDTypes) {
    test::NativeCase testCase;
    testCase.op = op;
    testCase.attrs = attrs;
    testCase.results = {{dtype, result}};
    for (size_t i = 0; i < operands.size(); ++i)
      testCase.operands.push_back(kernels::isFloat(dtype)
                                      ? test::randomFloats({dtype, operands[i]}, unsigned(i))
                                      : test::randomInts({dtype, operands[i]}, unsigned(i), 0,
                                                         dtype == DType::Bool ? 2 : 100));
    auto expected = kernels::findKernel(op)({kernels::Arith::Native}, attrs, testCase.operands,
                                            testCase.results);
    auto native = test::runNative(testCase);
    ASSERT_EQ(native.size(), 1u);
    EXPECT_TRUE(bitwiseEqual(native[0], expected[0])) << op << " of " << name(dtype);
  }
}

using Ints = std::vector<int64_t>;

TEST(NativeMovement, Transposes) {
  check("transpose", {{"permutation", Ints{1, 0}}}, {{3, 5}}, {5, 3});
  check("transpose", {{"permutation", Ints{1, 0}}}, {{70, 45}}, {45, 70});
  check("transpose", {{"permutation", Ints{0, 2, 1, 3}}}, {{2, 7, 3, 8}}, {2, 3, 7, 8});
  check("transpose", {{"permutation", Ints{3, 1, 0, 2}}}, {{2, 7, 3, 8}}, {8, 7, 2, 3});
  check("transpose", {{"permutation", Ints{2, 0, 1}}}, {{2, 0, 3}}, {3, 2, 0});
  check("transpose", {{"permutation", Ints{}}}, {{}}, {});
  check("transpose", {{"permutation", Ints{1, 0}}}, {{600, 520}}, {520, 600}); // many tiles
  // Wider than a tile in either direction, and several such planes.
  check("transpose", {{"permutation", Ints{1, 0}}}, {{9001, 70}}, {70, 9001});
  check("transpose", {{"permutation", Ints{1, 0}}}, {{70, 9001}}, {9001, 70});
  check("transpose", {{"permutation", Ints{0, 2, 1}}}, {{3, 5003, 6}}, {3, 6, 5003});
}

TEST(NativeMovement, Broadcasts) {
  check("broadcast", {{"dims", Ints{}}}, {{}}, {4, 3});
  check("broadcast", {{"dims", Ints{1}}}, {{3}}, {4, 3});
  check("broadcast", {{"dims", Ints{0}}}, {{4}}, {4, 3});
  check("broadcast", {{"dims", Ints{0, 2}}}, {{4, 5}}, {4, 3, 5});
  check("broadcast", {{"dims", Ints{1}}}, {{3}}, {0, 3});
  check("broadcast", {{"dims", Ints{2}}}, {{300}}, {9, 100, 300});
}

TEST(NativeMovement, Reshapes) {
  check("reshape", {{"sizes", Ints{}}, {"in", Ints{}}, {"out", Ints{}}}, {{4, 6}}, {3, 8});
  check("reshape", {{"sizes", Ints{}}, {"in", Ints{}}, {"out", Ints{}}}, {{0, 6}}, {0});
  check("reshape", {{"sizes", Ints{}}, {"in", Ints{}}, {"out", Ints{}}}, {{200, 700}}, {140000});
}

TEST(NativeMovement, PartsOfADim) {
  for (int64_t dim : {0, 1, 2}) {
    Shape shape = {4, 5, 6}, part = shape;
    part[dim] = 3;
    check("slice", {{"dim", dim}, {"offset", int64_t(1)}, {"size", int64_t(3)}}, {shape}, part);
    Shape padded = shape;
    padded[dim] += 5;
    check("pad", {{"dim", dim}, {"low", int64_t(2)}, {"high", int64_t(3)}}, {shape}, padded);
    Shape joined = shape;
    joined[dim] += 3;
    check("concat", {{"dim", dim}}, {shape, part}, joined);
    part[dim] = 0;
    check("concat", {{"dim", dim}}, {shape, part}, shape);
  }
}

} // namespace
