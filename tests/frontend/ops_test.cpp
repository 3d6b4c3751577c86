//===- ops_test.cpp - Results of single nodes ------------------------------===//

#include "frontend/onnx/AttributeDefaults.h"
#include "ir/Interpreter.h"
#include "tests/frontend/ModelBuilder.h"
#include "tests/frontend/ModelRunner.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>
#include <limits>
#include <numeric>

using namespace tbc;
using namespace tbc::test;
using kernels::Arith;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

namespace {

/// Imports a model at batch `batch` and runs it on x = 0, 1, 2 ... and its own weights.
class Ops : public ::testing::Test {
protected:
  std::vector<double> run(const ModelBuilder &builder, int64_t batch = 2) {
    frontend::ImportOptions options;
    options.batch = batch;
    for (const onnx::ValueInfoProto &input : builder.proto.graph().input())
      options.fix[input.name()] = "input";
    TemporaryFolder folder;
    model = frontend::importOnnx(context, folder.write("model.onnx", builder.bytes()), options);
    if (!*model)
      throw std::runtime_error((*model).error().message);
    llvm::SmallVector<kernels::Tensor> arguments;
    for (const frontend::ModelValue &input : (*model)->inputs) {
      kernels::TensorType type{input.dtype, input.shape};
      std::vector<int64_t> numbers(kernels::numElements(input.shape));
      std::iota(numbers.begin(), numbers.end(), 0);
      arguments.push_back(
          kernels::isFloat(input.dtype)
              ? kernels::Tensor::fromDoubles(type, Arith::F64, {numbers.begin(), numbers.end()})
              : kernels::Tensor::fromInts(type, numbers));
    }
    for (const frontend::ParameterSource &source : (*model)->parameters)
      arguments.push_back(*frontend::loadParameter(source, Arith::F64));
    auto function = *(*model)->module->getOps<mlir::func::FuncOp>().begin();
    auto results = evaluateFunction(function, arguments, Arith::F64);
    if (mlir::failed(results))
      throw std::runtime_error("evaluation failed");
    shape = (*results)[0].shape();
    return (*results)[0].toDoubles();
  }

  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  std::optional<Result<frontend::ImportedModel>> model;
  kernels::Shape shape;
};

/// A model with input x[batch, dims...] and output y.
ModelBuilder withInput(const std::vector<std::string> &dims, int64_t opset = 18) {
  ModelBuilder builder(opset);
  std::vector<std::string> all{"batch"};
  all.insert(all.end(), dims.begin(), dims.end());
  builder.input("x", all);
  builder.output("y");
  return builder;
}

/// Corners, the middle, half an element outside, and far outside; a gather for each neighbour.
TEST_F(Ops, GridSampleInterpolatesAndPads) {
  for (const char *padding : {"zeros", "border", "reflection"}) {
    ModelBuilder b;
    b.input("x", {"batch", "1", "2", "2"});
    b.output("y");
    b.ints("start", {1}, {0});
    b.ints("end", {1}, {1});
    b.ints("rest", {3}, {1, 5, 2});
    b.floats("places", {1, 1, 5, 2}, {-1, -1, 1, -1, 0, 0, 2, -1, 7, 7});
    b.node("Shape", {"x"}, {"shape"});
    b.node("Slice", {"shape", "start", "end"}, {"count"});
    onnx::NodeProto &concat = b.node("Concat", {"count", "rest"}, {"all"});
    ModelBuilder::attr(concat, "axis", int64_t(0));
    b.node("Expand", {"places", "all"}, {"grid"});
    onnx::NodeProto &sample = b.node("GridSample", {"x", "grid"}, {"y"});
    ModelBuilder::attr(sample, "align_corners", int64_t(1));
    ModelBuilder::attr(sample, "padding_mode", padding);
    std::vector<double> y = run(b);
    EXPECT_EQ(shape, (kernels::Shape{2, 1, 1, 5}));
    std::string mode = padding;
    // (2, -1) is half an element to the right of element 1, and (7, 7) three elements outside.
    std::vector<double> outside = mode == "zeros"    ? std::vector<double>{0.5, 0}
                                  : mode == "border" ? std::vector<double>{1, 3}
                                                     : std::vector<double>{0.5, 0};
    EXPECT_THAT(y, ElementsAreArray({0.0, 1.0, 1.5, outside[0], outside[1], 4.0, 5.0, 5.5,
                                     mode == "zeros"    ? 2.5
                                     : mode == "border" ? 5
                                                        : 4.5,
                                     mode == "zeros"    ? 0.0
                                     : mode == "border" ? 7
                                                        : 4.0}))
        << padding;
  }
}

TEST_F(Ops, SliceWithStepsAndNegativeBounds) {
  ModelBuilder b = withInput({"5"});
  b.ints("starts", {1}, {-1});
  b.ints("ends", {1}, {INT64_MIN});
  b.ints("axes", {1}, {1});
  b.ints("steps", {1}, {-2});
  b.node("Slice", {"x", "starts", "ends", "axes", "steps"}, {"y"});
  EXPECT_THAT(run(b), ElementsAre(4, 2, 0, 9, 7, 5));
}

TEST_F(Ops, SplitWithARaggedLastPart) {
  ModelBuilder b = withInput({"5"});
  onnx::NodeProto &split = b.node("Split", {"x"}, {"a", "y"});
  ModelBuilder::attr(split, "axis", int64_t(1));
  ModelBuilder::attr(split, "num_outputs", int64_t(2));
  EXPECT_THAT(run(b), ElementsAre(3, 4, 8, 9));
}

TEST_F(Ops, ReshapeWithoutACommonSplit) {
  // [6, 4] to [8, 3]
  ModelBuilder b = withInput({"6", "4"});
  b.ints("shape", {3}, {-1, 8, 3});
  b.node("Reshape", {"x", "shape"}, {"r"});
  ModelBuilder::attr(b.node("Transpose", {"r"}, {"y"}), "perm", std::vector<int64_t>{0, 2, 1});
  std::vector<double> expected;
  for (int n = 0; n < 2; ++n)
    for (int j = 0; j < 3; ++j)
      for (int i = 0; i < 8; ++i)
        expected.push_back(24 * n + 3 * i + j);
  EXPECT_THAT(run(b), ElementsAreArray(expected));
}

TEST_F(Ops, ExpandThenReshapeRepeatsHeads) {
  ModelBuilder b = withInput({"2", "3"});
  b.ints("axis", {1}, {2});
  b.ints("expanded", {4}, {1, 2, 2, 3});
  b.ints("shape", {3}, {-1, 4, 3});
  b.node("Unsqueeze", {"x", "axis"}, {"u"});
  b.node("Expand", {"u", "expanded"}, {"e"});
  b.node("Reshape", {"e", "shape"}, {"y"});
  EXPECT_THAT(run(b, 1), ElementsAre(0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5));
}

/// A tracer's `x.expand(*x.shape, 2)` has the batch of its example, 5, as a number.
TEST_F(Ops, ExpandToTheSamplesOfTheExport) {
  ModelBuilder b = withInput({"1"});
  b.ints("expanded", {2}, {5, 2});
  b.node("Expand", {"x", "expanded"}, {"y"});
  EXPECT_THAT(run(b), ElementsAre(0, 0, 1, 1));
}

TEST_F(Ops, TileAndTrilu) {
  ModelBuilder b = withInput({"2"});
  b.ints("repeats", {2}, {1, 2});
  b.node("Tile", {"x", "repeats"}, {"y"});
  EXPECT_THAT(run(b), ElementsAre(0, 1, 0, 1, 2, 3, 2, 3));

  ModelBuilder t = withInput({"3", "3"});
  t.ints("k", {}, {1});
  t.node("Trilu", {"x", "k"}, {"y"});
  EXPECT_THAT(run(t, 1), ElementsAre(0, 1, 2, 0, 0, 5, 0, 0, 0));
}

TEST_F(Ops, TopKAndArgMax) {
  ModelBuilder b = withInput({"3", "2"});
  b.ints("k", {1}, {2});
  onnx::NodeProto &topk = b.node("TopK", {"x", "k"}, {"y", "indices"});
  ModelBuilder::attr(topk, "axis", int64_t(1));
  EXPECT_THAT(run(b), ElementsAre(4, 5, 2, 3, 10, 11, 8, 9));

  for (auto [last, expected] : {std::pair(int64_t(0), 0.0), std::pair(int64_t(1), 2.0)}) {
    // min(x, 0) is 0 everywhere: equal elements.
    ModelBuilder equal = withInput({"3"});
    equal.floats("zero", {}, {0});
    equal.node("Min", {"x", "zero"}, {"m"});
    onnx::NodeProto &arg = equal.node("ArgMax", {"m"}, {"y"});
    ModelBuilder::attr(arg, "axis", int64_t(-1));
    ModelBuilder::attr(arg, "keepdims", int64_t(0));
    ModelBuilder::attr(arg, "select_last_index", last);
    EXPECT_THAT(run(equal), ElementsAre(expected, expected));
  }
}

TEST_F(Ops, OneHotCountsNegativeIndicesFromTheEnd) {
  ModelBuilder b(18);
  b.input("x", {"batch"});
  b.output("y");
  b.ints("three", {}, {3});
  b.ints("depth", {}, {2});
  b.floats("values", {2}, {5, 7});
  ModelBuilder::attr(b.node("Cast", {"x"}, {"i"}), "to", int64_t(7));
  b.node("Sub", {"i", "three"}, {"shifted"}); // -3, -2, -1, 0
  b.node("OneHot", {"shifted", "depth", "values"}, {"y"});
  EXPECT_THAT(run(b, 4), ElementsAre(5, 5, 7, 5, 5, 7, 7, 5));
}

TEST_F(Ops, ScatterElementsReplacesAndAdds) {
  for (const auto &[reduction, expected] : {std::pair("none", std::vector<double>{9, 1, 8}),
                                            std::pair("add", std::vector<double>{9, 1, 10}),
                                            std::pair("max", std::vector<double>{9, 1, 8})}) {
    ModelBuilder b = withInput({"3"});
    b.ints("row", {1, 2}, {-1, 0});
    b.floats("update", {1, 2}, {8, 9});
    b.ints("two", {1}, {2});
    ModelBuilder::attr(b.node("Shape", {"x"}, {"batch_size"}), "end", int64_t(1));
    ModelBuilder::attr(b.node("Concat", {"batch_size", "two"}, {"shape"}), "axis", int64_t(0));
    b.node("Expand", {"row", "shape"}, {"i"});
    b.node("Expand", {"update", "shape"}, {"u"});
    onnx::NodeProto &scatter = b.node("ScatterElements", {"x", "i", "u"}, {"y"});
    ModelBuilder::attr(scatter, "axis", int64_t(1));
    ModelBuilder::attr(scatter, "reduction", std::string(reduction));
    EXPECT_THAT(run(b, 1), ElementsAreArray(expected)) << reduction;
  }
}

TEST_F(Ops, ScatterNdAndGatherNdTakeAnyCoordinates) {
  // Rows of x[batch, 2, 2]: coordinates in dims 1 and 2 of each sample.
  ModelBuilder b = withInput({"2", "2"});
  b.ints("places", {1, 2, 2}, {0, 1, -1, 0});
  b.ints("each", {2}, {2, 2});
  ModelBuilder::attr(b.node("Shape", {"x"}, {"batch_size"}), "end", int64_t(1));
  ModelBuilder::attr(b.node("Concat", {"batch_size", "each"}, {"shape"}), "axis", int64_t(0));
  b.node("Expand", {"places", "shape"}, {"i"});
  onnx::NodeProto &gather = b.node("GatherND", {"x", "i"}, {"y"});
  ModelBuilder::attr(gather, "batch_dims", int64_t(1));
  EXPECT_THAT(run(b), ElementsAre(1, 2, 5, 6));

  ModelBuilder s(18);
  s.input("x", {"batch", "2"});
  s.output("y");
  s.floats("zeros", {2, 2}, {1, 2, 3, 4});
  s.ints("i", {1, 2}, {1, 0});
  s.ints("axes", {1}, {0});
  ModelBuilder::attr(s.node("ReduceSum", {"x", "axes"}, {"sum"}), "keepdims", int64_t(0));
  s.ints("first", {1}, {0});
  s.node("Gather", {"sum", "first"}, {"u"});
  s.node("ScatterND", {"zeros", "i", "u"}, {"scattered"});
  s.node("MatMul", {"x", "scattered"}, {"y"});
  // x = [[0, 1], [2, 3]], sum 2: the matrix is [[1, 2], [2, 4]].
  EXPECT_THAT(run(s), ElementsAre(2, 4, 8, 16));
}

/// x[arange(batch), index]: an index of each sample into its own rows.
TEST_F(Ops, GatherNdInEachSample) {
  ModelBuilder b(18);
  b.input("x", {"batch", "3"});
  b.output("y");
  b.ints("last", {1}, {1});
  ModelBuilder::attr(b.node("Shape", {"x"}, {"sizes"}), "end", int64_t(1));
  b.ints("first", {}, {0});
  b.node("Gather", {"sizes", "first"}, {"size"});
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  b.node("Range", {"zero", "size", "one"}, {"samples"});
  onnx::NodeProto &least = b.node("ArgMin", {"x"}, {"index"});
  ModelBuilder::attr(least, "axis", int64_t(1));
  ModelBuilder::attr(least, "keepdims", int64_t(0));
  b.node("Unsqueeze", {"samples", "last"}, {"column"});
  b.node("Unsqueeze", {"index", "last"}, {"chosen"});
  ModelBuilder::attr(b.node("Concat", {"column", "chosen"}, {"i"}), "axis", int64_t(1));
  b.node("GatherND", {"x", "i"}, {"y"});
  // x = [[0, 1, 2], [3, 4, 5]]
  EXPECT_THAT(run(b), ElementsAre(0, 3));
}

/// x[:, 1:3] = u, as TorchScript exports it.
TEST_F(Ops, ScatterNdIntoASlice) {
  ModelBuilder b = withInput({"2", "4"});
  b.ints("i", {2, 2, 2}, {0, 1, 0, 2, 1, 1, 1, 2});
  b.floats("u", {2, 2}, {10, 20, 30, 40});
  b.ints("axes", {1}, {0});
  ModelBuilder::attr(b.node("ReduceSum", {"x", "axes"}, {"sum"}), "keepdims", int64_t(0));
  b.node("ScatterND", {"sum", "i", "u"}, {"scattered"});
  b.node("Sub", {"scattered", "x"}, {"y"});
  // One sample, 0 to 7; what is not written stays.
  EXPECT_THAT(run(b, 1), ElementsAre(0, 9, 18, 0, 0, 25, 34, 0));
}

TEST_F(Ops, CumSumBothWays) {
  for (const auto &[exclusive, reverse, expected] :
       {std::tuple(0, 0, std::vector<double>{0, 1, 3}),
        std::tuple(1, 0, std::vector<double>{0, 0, 1}),
        std::tuple(0, 1, std::vector<double>{3, 3, 2}),
        std::tuple(1, 1, std::vector<double>{3, 2, 0})}) {
    ModelBuilder b = withInput({"3"});
    b.ints("axis", {}, {1});
    onnx::NodeProto &sum = b.node("CumSum", {"x", "axis"}, {"y"});
    ModelBuilder::attr(sum, "exclusive", int64_t(exclusive));
    ModelBuilder::attr(sum, "reverse", int64_t(reverse));
    EXPECT_THAT(run(b, 1), ElementsAreArray(expected));
  }
}

TEST_F(Ops, PadTakesElementsOrANumber) {
  for (const auto &[mode, expected] :
       {std::pair("reflect", std::vector<double>{2, 1, 0, 1, 2, 1}),
        std::pair("edge", std::vector<double>{0, 0, 0, 1, 2, 2}),
        std::pair("wrap", std::vector<double>{1, 2, 0, 1, 2, 0}),
        std::pair("constant", std::vector<double>{5, 5, 0, 1, 2, 5})}) {
    ModelBuilder b = withInput({"3"});
    b.ints("pads", {4}, {0, 2, 0, 1});
    b.floats("value", {}, {5});
    ModelBuilder::attr(b.node("Pad", {"x", "pads", "value"}, {"y"}), "mode", std::string(mode));
    EXPECT_THAT(run(b, 1), ElementsAreArray(expected)) << mode;
  }
}

TEST_F(Ops, ResizeLinear) {
  ModelBuilder b = withInput({"1", "2"});
  b.floats("scales", {3}, {1, 1, 2});
  ModelBuilder::attr(b.node("Resize", {"x", "", "scales"}, {"y"}), "mode", std::string("linear"));
  EXPECT_THAT(run(b, 1), ElementsAre(0, 0.25, 0.75, 1));
}

/// The form of upsampling in U-Nets: attributes that only other modes read stand at their defaults.
TEST_F(Ops, ResizeNearestWithAttributesAtTheirDefaults) {
  for (std::string policy : {"stretch", "not_larger"}) {
    ModelBuilder b = withInput({"1", "2"});
    b.floats("scales", {3}, {1, 1, 2});
    onnx::NodeProto &resize = b.node("Resize", {"x", "", "scales"}, {"y"});
    ModelBuilder::attr(resize, "mode", std::string("nearest"));
    ModelBuilder::attr(resize, "coordinate_transformation_mode", std::string("asymmetric"));
    ModelBuilder::attr(resize, "nearest_mode", std::string("floor"));
    floatAttr(resize, "cubic_coeff_a", -0.75F);
    floatAttr(resize, "extrapolation_value", 0);
    ModelBuilder::attr(resize, "keep_aspect_ratio_policy", policy);
    if (policy == "stretch")
      EXPECT_THAT(run(b, 1), ElementsAre(0, 0, 1, 1));
    else
      EXPECT_THAT(importError(b.bytes()), HasSubstr("'keep_aspect_ratio_policy'"));
  }
}

/// A default differs between operator sets: LogSoftmax has axis 1 before 13, and -1 since.
TEST_F(Ops, DefaultsAreThoseOfTheOperatorSet) {
  onnx::AttributeProto axis;
  axis.set_name("axis");
  axis.set_type(onnx::AttributeProto::INT);
  for (int64_t value : {1, -1}) {
    axis.set_i(value);
    EXPECT_EQ(frontend::hasDefault("", "LogSoftmax", 12, axis), value == 1);
    EXPECT_EQ(frontend::hasDefault("ai.onnx", "LogSoftmax", 13, axis), value == -1);
    EXPECT_FALSE(frontend::hasDefault("com.example", "LogSoftmax", 13, axis));
  }
  axis.clear_type(); // as old exporters write it
  EXPECT_TRUE(frontend::hasDefault("", "LogSoftmax", 18, axis));
  axis.set_name("axes");
  EXPECT_FALSE(frontend::hasDefault("", "LogSoftmax", 18, axis));
}

TEST_F(Ops, MatMulBroadcastsBatchDims) {
  ModelBuilder b = withInput({"1", "1", "2"});
  b.floats("weight", {3, 2, 1}, {1, 0, 0, 1, 1, 1});
  b.node("MatMul", {"x", "weight"}, {"y"});
  EXPECT_THAT(run(b), ElementsAre(0, 1, 1, 2, 3, 5));
  EXPECT_THAT(shape, ElementsAre(2, 3, 1, 1));
}

TEST_F(Ops, MatMulSumsOverARepeatedDim) {
  // Both operands repeat along k = 3: every product counts three times.
  ModelBuilder b = withInput({"1"});
  b.ints("left", {2}, {1, 3});
  b.floats("weight", {1, 2}, {10, 100});
  b.ints("right", {2}, {3, 2});
  b.node("Expand", {"x", "left"}, {"l"});
  b.node("Expand", {"weight", "right"}, {"r"});
  b.node("MatMul", {"l", "r"}, {"y"});
  EXPECT_THAT(run(b), ElementsAre(0, 0, 30, 300));
}

TEST_F(Ops, GemmScalesAndTransposes) {
  ModelBuilder b = withInput({"2"});
  b.floats("weight", {1, 2}, {1, 10});
  b.floats("bias", {1}, {100});
  onnx::NodeProto &gemm = b.node("Gemm", {"x", "weight", "bias"}, {"y"});
  ModelBuilder::attr(gemm, "transB", int64_t(1));
  for (auto [name, value] : {std::pair("alpha", 2.0f), std::pair("beta", 0.5f)}) {
    onnx::AttributeProto &attribute = *gemm.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::FLOAT);
    attribute.set_f(value);
  }
  EXPECT_THAT(run(b), ElementsAre(70, 114));
}

TEST_F(Ops, ReductionsOldAndNew) {
  ModelBuilder old = withInput({"4"}, 13);
  onnx::NodeProto &mean = old.node("ReduceMean", {"x"}, {"y"});
  ModelBuilder::attr(mean, "axes", std::vector<int64_t>{-1});
  ModelBuilder::attr(mean, "keepdims", int64_t(0));
  EXPECT_THAT(run(old), ElementsAre(1.5, 5.5));

  ModelBuilder now = withInput({"4"});
  now.ints("axes", {1}, {1});
  now.node("ReduceMax", {"x", "axes"}, {"y"});
  EXPECT_THAT(run(now), ElementsAre(3, 7));
  EXPECT_THAT(shape, ElementsAre(2, 1));
}

/// A mean over the batch divides by a factor size, so it follows the batch.
TEST_F(Ops, MeanOverTheBatch) {
  ModelBuilder b = withInput({"2"});
  ModelBuilder::attr(b.node("ReduceMean", {"x"}, {"y"}), "keepdims", int64_t(0));
  EXPECT_THAT(run(b, 2), ElementsAre(1.5));
  EXPECT_THAT(run(b, 5), ElementsAre(4.5));
}

/// The index of the sample's own row disappears, as torch exports masks.
TEST_F(Ops, GatherNdOfTheOwnRowIsABroadcast) {
  ModelBuilder b;
  b.input("x", {"batch", "seq"}, /*isFloat=*/false);
  b.output("y");
  ModelBuilder::attr(b.node("Shape", {"x"}, {"b1"}), "end", int64_t(1));
  ModelBuilder::attr(b.node("Shape", {"x"}, {"s1"}), "start", int64_t(1));
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  b.ints("last", {1}, {-1});
  b.ints("axis1", {1}, {1});
  b.ints("axis0", {1}, {0});
  b.node("Squeeze", {"b1"}, {"b"});
  b.node("Squeeze", {"s1"}, {"s"});
  b.node("Range", {"zero", "b", "one"}, {"rows"});
  b.node("Range", {"zero", "s", "one"}, {"columns"});
  b.node("Unsqueeze", {"rows", "axis1"}, {"r"});
  b.node("Unsqueeze", {"columns", "axis0"}, {"c"});
  b.node("Max", {"r", "c"}, {"m"});
  b.node("Shape", {"m"}, {"shape"});
  for (std::string name : {"r", "c"}) {
    b.node("Expand", {name, "shape"}, {name + "e"});
    b.node("Unsqueeze", {name + "e", "last"}, {name + "u"});
  }
  ModelBuilder::attr(b.node("Concat", {"ru", "cu"}, {"coordinates"}), "axis", int64_t(-1));
  b.node("GatherND", {"x", "coordinates"}, {"y"}, "the_gather");
  frontend::ImportOptions options;
  options.seq = 3;
  TemporaryFolder folder;
  auto imported = frontend::importOnnx(context, folder.write("m.onnx", b.bytes()), options);
  ASSERT_TRUE(bool(imported)) << imported.error().message;
  auto function = *imported->module->getOps<mlir::func::FuncOp>().begin();
  auto returned = function.getBody().front().getTerminator()->getOperand(0);
  EXPECT_EQ(returned, function.getArgument(0));
}

TEST_F(Ops, ConvWithPadsStridesAndBias) {
  ModelBuilder b = withInput({"1", "4"});
  b.floats("weight", {1, 1, 3}, {1, 1, 1});
  b.floats("bias", {1}, {100});
  onnx::NodeProto &conv = b.node("Conv", {"x", "weight", "bias"}, {"y"});
  ModelBuilder::attr(conv, "pads", std::vector<int64_t>{1, 1});
  ModelBuilder::attr(conv, "strides", std::vector<int64_t>{2});
  EXPECT_THAT(run(b, 1), ElementsAre(101, 106));
}

TEST_F(Ops, PoolingSameUpper) {
  ModelBuilder b = withInput({"1", "5"});
  onnx::NodeProto &pool = b.node("MaxPool", {"x"}, {"y"});
  ModelBuilder::attr(pool, "kernel_shape", std::vector<int64_t>{2});
  ModelBuilder::attr(pool, "strides", std::vector<int64_t>{2});
  ModelBuilder::attr(pool, "auto_pad", std::string("SAME_UPPER"));
  EXPECT_THAT(run(b, 1), ElementsAre(1, 3, 4));
}

/// Attention of operator set 23 against softmax(q k / sqrt(d)) v by hand, with shared key heads.
TEST_F(Ops, AttentionSharesKeyHeadsAndIsCausal) {
  ModelBuilder b = withInput({"2", "2", "1"}, 23);
  b.ints("from", {1}, {0});
  b.ints("to", {1}, {1});
  b.ints("axis", {1}, {1});
  b.node("Slice", {"x", "from", "to", "axis"}, {"kv"});
  onnx::NodeProto &attention = b.node("Attention", {"x", "kv", "kv"}, {"y"});
  ModelBuilder::attr(attention, "is_causal", int64_t(1));
  std::vector<double> y = run(b, 1);
  // x = [[0, 1], [2, 3]]: keys and values 0, 1; the second query sees both.
  auto weighted = [](double q) { return std::exp(q) / (1 + std::exp(q)); };
  EXPECT_THAT(y, ElementsAre(0, ::testing::DoubleNear(weighted(1), 1e-6), 0,
                             ::testing::DoubleNear(weighted(3), 1e-6)));
}

TEST_F(Ops, ConstantsOfHalfFloats) {
  ModelBuilder b = withInput({"1"});
  onnx::TensorProto &half = *b.proto.mutable_graph()->add_initializer();
  half.set_name("half");
  half.set_data_type(onnx::TensorProto::FLOAT16);
  half.add_dims(2);
  half.add_int32_data(0x3c00); // 1
  half.add_int32_data(0xc000); // -2
  ModelBuilder::attr(b.node("Cast", {"half"}, {"wide"}), "to", int64_t(onnx::TensorProto::FLOAT));
  b.node("Add", {"x", "wide"}, {"y"});
  EXPECT_THAT(run(b), ElementsAre(1, -2, 2, -1));
}

/// Slice, Unsqueeze and Softmax as operator set 9 had them: attributes, and the trailing dims as
/// one.
TEST_F(Ops, OldFormsAreUpgraded) {
  ModelBuilder b = withInput({"2", "2"}, 9);
  onnx::NodeProto &slice = b.node("Slice", {"x"}, {"s"});
  ModelBuilder::attr(slice, "starts", std::vector<int64_t>{0});
  ModelBuilder::attr(slice, "ends", std::vector<int64_t>{1});
  ModelBuilder::attr(slice, "axes", std::vector<int64_t>{2});
  ModelBuilder::attr(b.node("Unsqueeze", {"s"}, {"u"}), "axes", std::vector<int64_t>{3});
  b.node("Softmax", {"u"}, {"y"});
  // Each sample holds two numbers; their difference is 2.
  double low = 1 / (1 + std::exp(2)), high = 1 - low;
  EXPECT_THAT(run(b), ::testing::Pointwise(::testing::DoubleNear(1e-12),
                                           std::vector<double>{low, high, low, high}));
  EXPECT_EQ(shape, (kernels::Shape{2, 2, 1, 1}));
}

/// One unit, no recurrence weights, the batch a symbol: y = sigmoid(x) tanh(c) with
/// c = sigmoid(x) c + sigmoid(x) tanh(x).
TEST_F(Ops, LstmOverASymbolicBatch) {
  ModelBuilder b = withInput({"2", "1"});
  b.floats("w", {1, 4, 1}, {1, 1, 1, 1});
  b.floats("r", {1, 4, 1}, {0, 0, 0, 0});
  onnx::NodeProto &lstm = b.node("LSTM", {"x", "w", "r"}, {"y"});
  ModelBuilder::attr(lstm, "hidden_size", int64_t(1));
  ModelBuilder::attr(lstm, "layout", int64_t(1));
  std::vector<double> y = run(b), expected;
  auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (int sample = 0; sample < 2; ++sample) {
    double c = 0;
    for (int t = 0; t < 2; ++t) {
      double x = 2 * sample + t;
      c = sigmoid(x) * c + sigmoid(x) * std::tanh(x);
      expected.push_back(sigmoid(x) * std::tanh(c));
    }
  }
  EXPECT_THAT(y, ::testing::Pointwise(::testing::DoubleNear(1e-12), expected));
  EXPECT_EQ(shape, (kernels::Shape{2, 2, 1, 1}));
}

/// Windows overlap by two: a convolution reads these elements twice, a transposed one writes them
/// twice.
TEST_F(Ops, ConvTransposeOverASymbolicBatch) {
  ModelBuilder b = withInput({"1", "2"});
  b.floats("w", {1, 1, 3}, {1, 10, 100});
  b.node("ConvTranspose", {"x", "w"}, {"y"});
  EXPECT_THAT(run(b), ElementsAre(0, 1, 10, 100, 2, 23, 230, 300));
}

TEST_F(Ops, EinsumOfThreeWithADiagonal) {
  ModelBuilder b = withInput({"2", "2"});
  b.floats("v", {2}, {1, 10});
  b.floats("w", {2}, {1, 2});
  onnx::NodeProto &einsum = b.node("Einsum", {"x", "v", "w"}, {"y"});
  ModelBuilder::attr(einsum, "equation", std::string("...ii, i, j -> ...j"));
  // Diagonals 0, 3 and 4, 7.
  EXPECT_THAT(run(b), ElementsAre(30, 60, 74, 148));
}

TEST_F(Ops, PowOfAnIntegerByAFloat) {
  ModelBuilder b = withInput({"5"});
  b.floats("half", {}, {0.5});
  ModelBuilder::attr(b.node("Cast", {"x"}, {"i"}), "to", int64_t(onnx::TensorProto::INT64));
  b.node("Pow", {"i", "half"}, {"roots"});
  ModelBuilder::attr(b.node("Cast", {"roots"}, {"y"}), "to", int64_t(onnx::TensorProto::FLOAT));
  EXPECT_THAT(run(b), ElementsAre(0, 1, 1, 1, 2, 2, 2, 2, 2, 3));
}

/// T5 takes the logarithm of distance 0 for an index, and does not use it.
TEST_F(Ops, WhatNoIntegerHoldsIsTheLowest) {
  for (auto [type, lowest] : {std::pair(onnx::TensorProto::INT32, -2147483648.0),
                              std::pair(onnx::TensorProto::INT64, -9223372036854775808.0)}) {
    ModelBuilder b = withInput({"1"});
    b.ints("distances", {2}, {0, 1});
    ModelBuilder::attr(b.node("Cast", {"distances"}, {"numbers"}), "to",
                       int64_t(onnx::TensorProto::FLOAT));
    b.node("Log", {"numbers"}, {"logarithms"});
    ModelBuilder::attr(b.node("Cast", {"logarithms"}, {"integers"}), "to", int64_t(type));
    ModelBuilder::attr(b.node("Cast", {"integers"}, {"back"}), "to",
                       int64_t(onnx::TensorProto::FLOAT));
    b.node("Mul", {"x", "back"}, {"y"});
    EXPECT_THAT(run(b), ElementsAre(0, 0, lowest, 0)); // x is 0 and 1
  }
}

/// An ignored input or attribute would change the node's meaning unseen.
TEST_F(Ops, UnknownInputsAndAttributesAreErrors) {
  ModelBuilder more = withInput({"1"});
  more.node("Relu", {"x", "x"}, {"y"}, "r");
  EXPECT_THAT(importError(more.bytes()),
              HasSubstr("node 'r' (Relu): has 2 inputs; what input 1 ('x') means is not known"));
  ModelBuilder leaky = withInput({"1"});
  floatAttr(leaky.node("Relu", {"x"}, {"y"}, "r"), "slope", 0.1f);
  EXPECT_THAT(importError(leaky.bytes()),
              HasSubstr("node 'r' (Relu): attribute 'slope' is not known to this op"));
}

} // namespace
