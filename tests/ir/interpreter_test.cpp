#include "ir/ElementTypes.h"
#include "ir/Interpreter.h"
#include "tests/ir/ParsedModule.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tbc {
namespace {

using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor floats(kernels::Shape shape, std::vector<double> values, Arith arith = Arith::Native) {
  return Tensor::fromDoubles({DType::F32, shape}, arith, values);
}

constexpr const char *kMean = R"(
  func.func @mean(%x: tensor<2x3xf32>) -> (tensor<3xf32>, tensor<2x3xf32>) {
    %n = "tbc.factor_size"() {count = 1 : i64, samples = 2 : i64} : () -> tensor<f32>
    %all = tbc.broadcast %n {dims = array<i64>} : (tensor<f32>) -> tensor<3xf32>
    %sum = tbc.reduce_sum %x {dims = array<i64: 0>} : (tensor<2x3xf32>) -> tensor<3xf32>
    %mean = tbc.div %sum, %all {tbc.id = "mean"} : tensor<3xf32>
    return %mean, %x : tensor<3xf32>, tensor<2x3xf32>
  })";

TEST(Interpreter, RunsAFunctionInEveryArithmetic) {
  ParsedModule module(kMean);
  ASSERT_TRUE(module) << module.messages;
  for (Arith arith : {Arith::Native, Arith::F64, Arith::Residue61}) {
    Tensor x = floats({2, 3}, {1, 2, 3, 3, 6, 11}, arith);
    auto results = evaluateFunction(module.function("mean"), {x}, arith);
    ASSERT_TRUE(succeeded(results)) << module.messages;
    ASSERT_EQ(results->size(), 2u);
    EXPECT_TRUE(bitwiseEqual((*results)[0], floats({3}, {2, 4, 7}, arith)));
    EXPECT_TRUE(bitwiseEqual((*results)[1], x));
  }
}

TEST(ElementTypes, EveryDTypeHasOneOfItsWidth) {
  mlir::MLIRContext context;
  for (DType dtype : dtypes()) {
    mlir::Type type = elementTypeOf(dtype, &context);
    EXPECT_EQ(dtypeOf(type), dtype) << std::string(name(dtype));
    int64_t bits = type.getIntOrFloatBitWidth();
    EXPECT_EQ(std::max<int64_t>(bits, 8), 8 * byteWidth(dtype));
    EXPECT_EQ(mlir::isa<mlir::FloatType>(type), isFloat(dtype));
  }
  EXPECT_EQ(dtypeOf(mlir::IntegerType::get(&context, 4)), std::nullopt);
  EXPECT_EQ(dtypeOf(mlir::IndexType::get(&context)), std::nullopt);
}

TEST(Interpreter, NamesTheArgumentOfAnotherType) {
  ParsedModule module(kMean);
  EXPECT_TRUE(
      failed(evaluateFunction(module.function("mean"), {floats({3}, {1, 2, 3})}, Arith::Native)));
  EXPECT_THAT(module.messages, HasSubstr("argument 0 is of type 'tensor<2x3xf32>', got 3xf32"));
}

TEST(Interpreter, NamesTheOpThatHasNoKernel) {
  ParsedModule module(R"(
    func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
      %y = func.call @f(%x) : (tensor<2xf32>) -> tensor<2xf32>
      return %y : tensor<2xf32>
    })");
  EXPECT_TRUE(failed(evaluateFunction(module.function("f"), {floats({2}, {1, 2})}, Arith::Native)));
  EXPECT_THAT(module.messages, HasSubstr("'func.call' op has no reference kernel"));
}

TEST(Interpreter, PassesOnWhatTheKernelRefuses) {
  ParsedModule module(R"(
    func.func @f(%x: tensor<2xi64>) -> tensor<2xi64> {
      %y = tbc.div %x, %x : tensor<2xi64>
      return %y : tensor<2xi64>
    })");
  Tensor zeros = Tensor::zeros({DType::I64, {2}}, Arith::Native);
  EXPECT_TRUE(failed(evaluateFunction(module.function("f"), {zeros}, Arith::Native)));
  EXPECT_THAT(module.messages, HasSubstr("'tbc.div' op cannot be evaluated"));
}

//===- several ranks -------------------------------------------------------===//

/// Returns the result of `body` on every rank of a dp=2, tp=2 mesh; its argument %x is
/// inputs[rank].
std::vector<std::vector<double>> onFourRanks(const std::string &signature, const std::string &body,
                                             kernels::Shape shape,
                                             std::vector<std::vector<double>> inputs) {
  ParsedModule module("func.func @f" + signature + "{\n" + body + "}");
  EXPECT_TRUE(module) << module.messages;
  RankTensors argument;
  for (const std::vector<double> &input : inputs)
    argument.push_back(floats(shape, input));
  reshard::Mesh mesh{{{"dp", 2}, {"tp", 2}}};
  auto results = evaluateOnRanks(module.function("f"), {argument}, mesh, Arith::Native);
  EXPECT_TRUE(succeeded(results)) << module.messages;
  std::vector<std::vector<double>> values;
  for (const Tensor &tensor : results->front())
    values.push_back(tensor.toDoubles());
  return values;
}

TEST(SimulatedRanks, AllReduceAddsWithinTheGroup) {
  EXPECT_THAT(
      onFourRanks("(%x: tensor<1xf32>) -> tensor<1xf32>",
                  R"(%y = tbc.all_reduce %x {axes = ["dp"], kind = "sum"}
                               : (tensor<1xf32>) -> tensor<1xf32>
                             return %y : tensor<1xf32>)",
                  {1}, {{1}, {10}, {100}, {1000}}),
      ElementsAre(ElementsAre(101), ElementsAre(1010), ElementsAre(101), ElementsAre(1010)));
}

TEST(SimulatedRanks, AllReduceTakesTheMaximum) {
  EXPECT_THAT(onFourRanks("(%x: tensor<1xf32>) -> tensor<1xf32>",
                          R"(%y = tbc.all_reduce %x {axes = ["dp", "tp"], kind = "max"}
                               : (tensor<1xf32>) -> tensor<1xf32>
                             return %y : tensor<1xf32>)",
                          {1}, {{1}, {10}, {-1}, {5}}),
              ElementsAre(ElementsAre(10), ElementsAre(10), ElementsAre(10), ElementsAre(10)));
}

TEST(SimulatedRanks, AllGatherJoinsEachSegment) {
  // The dim is q (one element per rank), then k (two per rank).
  EXPECT_THAT(onFourRanks("(%x: tensor<3xf32>) -> tensor<6xf32>",
                          R"(%y = tbc.all_gather %x {axes = ["tp"], dim = 0 : i64,
                                 segments = array<i64: 1, 1, 1, 1, 2, 1>}
                               : (tensor<3xf32>) -> tensor<6xf32>
                             return %y : tensor<6xf32>)",
                          {3}, {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10, 11}}),
              ElementsAre(ElementsAre(0, 3, 1, 2, 4, 5), ElementsAre(0, 3, 1, 2, 4, 5),
                          ElementsAre(6, 9, 7, 8, 10, 11), ElementsAre(6, 9, 7, 8, 10, 11)));
}

TEST(SimulatedRanks, TheFirstAxisIsTheSlowest) {
  EXPECT_THAT(onFourRanks("(%x: tensor<4xf32>) -> tensor<1xf32>",
                          R"(%y = tbc.shard_slice %x {axes = ["tp", "dp"], dim = 0 : i64,
                                 segments = array<i64: 1, 1, 1>}
                               : (tensor<4xf32>) -> tensor<1xf32>
                             return %y : tensor<1xf32>)",
                          {4}, {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}}),
              ElementsAre(ElementsAre(0), ElementsAre(2), ElementsAre(1), ElementsAre(3)));
}

TEST(SimulatedRanks, ReduceScatterPadsTheFlattenedTensor) {
  std::vector<double> ones{1, 2, 3};
  EXPECT_THAT(
      onFourRanks("(%x: tensor<3x1xf32>) -> tensor<2xf32>",
                  R"(%y = tbc.reduce_scatter %x {axes = ["dp"], dim = -1 : i64,
                                 segments = array<i64: 3>} : (tensor<3x1xf32>) -> tensor<2xf32>
                             return %y : tensor<2xf32>)",
                  {3, 1}, {ones, ones, ones, ones}),
      ElementsAre(ElementsAre(2, 4), ElementsAre(2, 4), ElementsAre(6, 0), ElementsAre(6, 0)));
}

TEST(SimulatedRanks, AllToAllMovesTheSharding) {
  // Before: rows of a 2x2 matrix over tp; after: columns.
  EXPECT_THAT(
      onFourRanks("(%x: tensor<1x2xf32>) -> tensor<2x1xf32>",
                  R"(%y = tbc.all_to_all %x {axes = ["tp"], dim = 0 : i64,
                                 segments = array<i64: 1, 1, 1>, split_dim = 1 : i64,
                                 split_segments = array<i64: 1, 1, 1>}
                               : (tensor<1x2xf32>) -> tensor<2x1xf32>
                             return %y : tensor<2x1xf32>)",
                  {1, 2}, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}),
      ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 6), ElementsAre(5, 7)));
}

TEST(SimulatedRanks, RefusesAnAxisThatTheMeshLacks) {
  ParsedModule module(R"(
    func.func @f(%x: tensor<1xf32>) -> tensor<1xf32> {
      %y = tbc.all_reduce %x {axes = ["ep"], kind = "sum"} : (tensor<1xf32>) -> tensor<1xf32>
      return %y : tensor<1xf32>
    })");
  EXPECT_TRUE(failed(evaluateFunction(module.function("f"), {floats({1}, {1})}, Arith::Native)));
  EXPECT_THAT(module.messages, HasSubstr("names the axis \"ep\", which the mesh lacks"));
}

TEST(SimulatedRanks, RefusesSegmentsThatDoNotFit) {
  ParsedModule module(R"(
    func.func @f(%x: tensor<4xf32>) -> tensor<2xf32> {
      %y = tbc.shard_slice %x {axes = ["dp"], dim = 0 : i64, segments = array<i64: 1, 1, 1>}
        : (tensor<4xf32>) -> tensor<2xf32>
      return %y : tensor<2xf32>
    })");
  Tensor x = floats({4}, {0, 1, 2, 3});
  EXPECT_TRUE(failed(
      evaluateOnRanks(module.function("f"), {RankTensors{x, x}}, {{{"dp", 2}}}, Arith::Native)));
  EXPECT_THAT(module.messages, HasSubstr("segments that do not cut"));
}

} // namespace
} // namespace tbc
