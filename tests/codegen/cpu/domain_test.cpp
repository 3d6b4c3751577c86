//===- domain_test.cpp - The loops of kernels -------------------------------===//

#include "codegen/region/Domain.h"
#include "codegen/region/KernelOp.h"
#include "codegen/region/RegionFunction.h"
#include "tests/ir/ParsedModule.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace tbc;

namespace {

/// Returns "rows x reduced x vector" of the function's loop nest, with a * if the vector is
/// reduced, or "" without a nest.
std::string nestOf(const std::string &text) {
  ParsedModule module(text);
  EXPECT_TRUE(module) << module.messages;
  if (!module)
    return "";
  region::prepareContext(module.context);
  func::FuncOp function = module.function("f");
  SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front().without_terminator())
    ops.push_back(&op);
  auto region = region::makeRegionFunction(
      ops, function.getArguments(), function.getBody().front().getTerminator()->getOperands());
  if (!region)
    return "not compiled";
  auto domain = region::findDomain(region::functionOf(*region));
  if (failed(domain))
    return "";
  auto product = [&](ArrayRef<int> loops) { return std::to_string(domain->product(loops)); };
  return product(domain->rows) + " x " + product(domain->reduced) + " x " +
         product(domain->vector) + (domain->isVectorReduced ? "*" : "") +
         (domain->columnSums.empty() ? "" : " +" + std::to_string(domain->columnSums.size()));
}

TEST(Domain, ElementwiseIsOneVector) {
  EXPECT_EQ(nestOf(R"(func.func @f(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>) -> tensor<24xf32> {
    %0 = tbc.add %x, %y : tensor<4x6xf32>
    %1 = tbc.reshape %0 {sizes = array<i64: 4, 6>, in = array<i64: 1, 1>, out = array<i64: 2>}
         : (tensor<4x6xf32>) -> tensor<24xf32>
    return %1 : tensor<24xf32> })"),
            "1 x 1 x 24");
}

TEST(Domain, BroadcastVectorLeavesRows) {
  EXPECT_EQ(nestOf(R"(func.func @f(%x: tensor<4x6xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32> {
    %0 = tbc.broadcast %b {dims = array<i64: 1>} : (tensor<6xf32>) -> tensor<4x6xf32>
    %1 = tbc.add %x, %0 : tensor<4x6xf32>
    return %1 : tensor<4x6xf32> })"),
            "4 x 1 x 6");
}

/// The rows of columns lie apart, so the vector ends with the columns.
TEST(Domain, ColumnsAreCutAndJoinedInPlace) {
  const std::string gate = R"(func.func @f(%x: tensor<4x12xf32>) -> tensor<4x6xf32> {
    %u = tbc.slice %x {dim = 1 : i64, offset = 0 : i64, size = 6 : i64}
         : (tensor<4x12xf32>) -> tensor<4x6xf32>
    %v = tbc.slice %x {dim = 1 : i64, offset = 6 : i64, size = 6 : i64}
         : (tensor<4x12xf32>) -> tensor<4x6xf32>
    %y = tbc.mul %u, %v : tensor<4x6xf32>
    return %y : tensor<4x6xf32> })";
  EXPECT_EQ(nestOf(gate), "4 x 1 x 6");
  EXPECT_EQ(nestOf(R"(func.func @f(%u: tensor<4x6xf32>, %v: tensor<4x6xf32>) -> tensor<4x12xf32> {
    %w = tbc.neg %v : tensor<4x6xf32>
    %y = tbc.concat %u, %w {dim = 1 : i64}
         : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x12xf32>
    return %y : tensor<4x12xf32> })"),
            "4 x 1 x 6");
  // The elements of one column lie apart.
  EXPECT_EQ(nestOf(R"(func.func @f(%x: tensor<4x3xf32>) -> tensor<4x1xf32> {
    %u = tbc.slice %x {dim = 1 : i64, offset = 1 : i64, size = 1 : i64}
         : (tensor<4x3xf32>) -> tensor<4x1xf32>
    %y = tbc.neg %u : tensor<4x1xf32>
    return %y : tensor<4x1xf32> })"),
            "");
  // Rows, and columns of a value that the kernel makes itself.
  EXPECT_EQ(nestOf(R"(func.func @f(%x: tensor<8x6xf32>) -> tensor<4x6xf32> {
    %u = tbc.slice %x {dim = 0 : i64, offset = 0 : i64, size = 4 : i64}
         : (tensor<8x6xf32>) -> tensor<4x6xf32>
    %y = tbc.neg %u : tensor<4x6xf32>
    return %y : tensor<4x6xf32> })"),
            "not compiled");
  EXPECT_EQ(nestOf(R"(func.func @f(%x: tensor<4x12xf32>) -> tensor<4x6xf32> {
    %n = tbc.neg %x : tensor<4x12xf32>
    %u = tbc.slice %n {dim = 1 : i64, offset = 0 : i64, size = 6 : i64}
         : (tensor<4x12xf32>) -> tensor<4x6xf32>
    %y = tbc.neg %u : tensor<4x6xf32>
    return %y : tensor<4x6xf32> })"),
            "not compiled");
}

TEST(Domain, TransposeIsReadInRuns) {
  EXPECT_EQ(nestOf(R"(func.func @f(%x: tensor<2x3x4x5xf32>) -> tensor<2x4x3x5xf32> {
    %0 = tbc.transpose %x {permutation = array<i64: 0, 2, 1, 3>}
         : (tensor<2x3x4x5xf32>) -> tensor<2x4x3x5xf32>
    return %0 : tensor<2x4x3x5xf32> })"),
            "24 x 1 x 5");
  EXPECT_EQ(nestOf(R"(func.func @f(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {
    %0 = tbc.transpose %x {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
    return %0 : tensor<3x2xf32> })"),
            "");
}

TEST(Domain, ReductionsSplitTheNest) {
  auto sum = [](const std::string &dims, const std::string &type) {
    return nestOf("func.func @f(%x: tensor<4x6x8xf32>) -> tensor<" + type +
                  "> {\n%0 = tbc.reduce_sum %x {dims = array<i64: " + dims +
                  ">} : (tensor<4x6x8xf32>) -> tensor<" + type + ">\nreturn %0 : tensor<" + type +
                  "> }");
  };
  EXPECT_EQ(sum("2", "4x6xf32"), "24 x 1 x 8*");
  EXPECT_EQ(sum("0", "6x8xf32"), "1 x 4 x 48");
  EXPECT_EQ(sum("0, 2", "6xf32"), "6 x 4 x 8*");
  EXPECT_EQ(sum("0, 1, 2", "f32"), "1 x 1 x 192*");
}

/// Sums of values that no op relates are one nest if their loops have the same sizes.
TEST(Domain, UnrelatedSumsOfOneShapeAreOneNest) {
  auto sums = [](const std::string &dimOfX, const std::string &x, const std::string &y,
                 const std::string &resultOfY) {
    return nestOf(
        "func.func @f(%x: tensor<" + x + ">, %y: tensor<" + y + ">) -> (tensor<6xf32>, tensor<" +
        resultOfY + ">) {\n%0 = tbc.reduce_sum %x {dims = array<i64: " + dimOfX + ">} : (tensor<" +
        x + ">) -> tensor<6xf32>\n%1 = tbc.reduce_sum %y {dims = array<i64: 0>} : (tensor<" + y +
        ">) -> tensor<" + resultOfY + ">\nreturn %0, %1 : tensor<6xf32>, tensor<" + resultOfY +
        "> }");
  };
  EXPECT_EQ(sums("0", "4x6xf32", "4x6xf32", "6xf32"), "1 x 4 x 6");
  EXPECT_EQ(sums("0", "4x6xf32", "4x2x3xf32", "2x3xf32"), "1 x 4 x 6");
  EXPECT_EQ(sums("0", "4x6xf32", "5x6xf32", "6xf32"), "");
  EXPECT_EQ(sums("0", "4x6xf32", "4x12xf32", "12xf32"), "");
  // The sums run along different loops: rows of x, and beside these columns of y.
  EXPECT_EQ(sums("1", "6x6xf32", "6x6xf32", "6xf32"), "6 x 1 x 6* +1");
}

/// The sum of x + transpose(x) runs along a diagonal.
TEST(Domain, DiagonalIsNoNest) {
  EXPECT_EQ(nestOf(R"(func.func @f(%x: tensor<3x3xf32>) -> tensor<3x3xf32> {
    %0 = tbc.transpose %x {permutation = array<i64: 1, 0>} : (tensor<3x3xf32>) -> tensor<3x3xf32>
    %1 = tbc.add %x, %0 : tensor<3x3xf32>
    return %1 : tensor<3x3xf32> })"),
            "");
}

/// Each row would write the sum of the columns.
TEST(Domain, ResultsThatSeveralIterationsWouldWriteAreNone) {
  EXPECT_EQ(
      nestOf(
          R"(func.func @f(%x: tensor<4x6xf32>, %b: tensor<6xf32>) -> (tensor<4x6xf32>, tensor<6xf32>) {
    %n = tbc.neg %b : tensor<6xf32>
    %0 = tbc.broadcast %n {dims = array<i64: 1>} : (tensor<6xf32>) -> tensor<4x6xf32>
    %1 = tbc.add %x, %0 : tensor<4x6xf32>
    return %1, %n : tensor<4x6xf32>, tensor<6xf32> })"),
      "");
}

/// Rows that are reduced, and beside it sums over all rows.
std::string withColumns(const std::string &ops, const std::string &results,
                        const std::string &types) {
  return "func.func @f(%x: tensor<4x5x6xf32>, %y: tensor<4x5x6xf32>) -> (" + types + R"() {
    %s = tbc.softmax %x {dim = 2 : i64} : (tensor<4x5x6xf32>) -> tensor<4x5x6xf32>
)" + ops +
         "return " + results + " : " + types + "}";
}

TEST(Domain, ColumnSumsStandBesideReducedRows) {
  std::string sums = R"(
    %a = tbc.reduce_sum %s {dims = array<i64: 0, 1>} : (tensor<4x5x6xf32>) -> tensor<6xf32>
    %b = tbc.reduce_sum %y {dims = array<i64: 0, 1>} : (tensor<4x5x6xf32>) -> tensor<6xf32>
    %n = tbc.neg %b : tensor<6xf32>
)";
  EXPECT_EQ(
      nestOf(withColumns(sums, "%s, %a, %n", "tensor<4x5x6xf32>, tensor<6xf32>, tensor<6xf32>")),
      "20 x 1 x 6* +2");
  // Over some of the rows.
  EXPECT_EQ(nestOf(withColumns(R"(
    %a = tbc.reduce_sum %s {dims = array<i64: 0>} : (tensor<4x5x6xf32>) -> tensor<5x6xf32>
)",
                               "%s, %a", "tensor<4x5x6xf32>, tensor<5x6xf32>")),
            "");
  // Rows that wait for them.
  EXPECT_EQ(nestOf(withColumns(sums + R"(
    %w = tbc.broadcast %n {dims = array<i64: 2>} : (tensor<6xf32>) -> tensor<4x5x6xf32>
    %z = tbc.add %s, %w : tensor<4x5x6xf32>
)",
                               "%z, %a", "tensor<4x5x6xf32>, tensor<6xf32>")),
            "");
}

TEST(Domain, EmptyTensorsAndUnrelatedShapesAreNone) {
  EXPECT_EQ(nestOf(R"(func.func @f(%x: tensor<0x6xf32>) -> tensor<0x6xf32> {
    %0 = tbc.neg %x : tensor<0x6xf32>
    return %0 : tensor<0x6xf32> })"),
            "");
  EXPECT_EQ(
      nestOf(
          R"(func.func @f(%x: tensor<6xf32>, %y: tensor<4xf32>) -> (tensor<6xf32>, tensor<4xf32>) {
    %0 = tbc.neg %x : tensor<6xf32>
    %1 = tbc.neg %y : tensor<4xf32>
    return %0, %1 : tensor<6xf32>, tensor<4xf32> })"),
      "");
}

TEST(Domain, WhatKernelsDoNotHaveIsNotCompiled) {
  EXPECT_EQ(nestOf(R"(func.func @f(%x: tensor<6xf64>) -> tensor<6xf64> {
    %0 = tbc.neg %x : tensor<6xf64>
    return %0 : tensor<6xf64> })"),
            "not compiled");
}

} // namespace
