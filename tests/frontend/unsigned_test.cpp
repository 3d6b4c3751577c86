//===- unsigned_test.cpp - Tensors of unsigned integers ---------------------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

/// A model with the input x[batch, columns] of an element type, and y as f32 output.
struct UnsignedModel {
  ModelBuilder b{18};
  ModelRunner runner;

  UnsignedModel(int32_t type, const std::string &columns) {
    b.input("x", {"batch", columns}, /*isFloat=*/false);
    b.proto.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
        type);
  }
  std::vector<double> run(std::vector<double> x) {
    ModelBuilder::attr(b.node("Cast", {"y"}, {"out"}), "to", int64_t(onnx::TensorProto::FLOAT));
    b.output("out");
    runner.inputs["x"] = std::move(x);
    return runner.run(b);
  }
};

TEST(UnsignedTensors, IndicesAndMasks) {
  for (int32_t type :
       {onnx::TensorProto::UINT16, onnx::TensorProto::UINT32, onnx::TensorProto::UINT64}) {
    UnsignedModel m(type, "2");
    m.b.floats("table", {3, 1}, {5, 6, 7});
    ModelBuilder::attr(m.b.node("Cast", {"x"}, {"index"}), "to", int64_t(onnx::TensorProto::INT64));
    m.b.node("Gather", {"table", "index"}, {"rows"});
    m.b.ints("axes", {1}, {2});
    m.b.node("Squeeze", {"rows", "axes"}, {"found"});
    ModelBuilder::attr(m.b.node("Cast", {"x"}, {"keeps"}), "to", int64_t(onnx::TensorProto::BOOL));
    m.b.floats("none", {1}, {-1});
    m.b.node("Where", {"keeps", "found", "none"}, {"y"});
    EXPECT_THAT(m.run({0, 1, 2, 0}), ElementsAre(-1, 6, 7, -1)) << type;
  }
}

/// Arithmetic is modulo 2^16 and 2^32, and order is that of unsigned numbers.
TEST(UnsignedTensors, Wrap) {
  UnsignedModel narrow(onnx::TensorProto::UINT16, "3");
  narrow.b.node("Add", {"x", "x"}, {"y"});
  EXPECT_THAT(narrow.run({1, 40000, 65535, 0, 32768, 2}), ElementsAre(2, 14464, 65534, 0, 0, 4));
  UnsignedModel wide(onnx::TensorProto::UINT32, "2");
  wide.b.node("BitwiseNot", {"x"}, {"inverse"});
  wide.b.node("Max", {"x", "inverse"}, {"y"});
  EXPECT_THAT(wide.run({0, 1, 4294967295, 2147483647}),
              ElementsAre(4294967295, 4294967294, 4294967295, 2147483648));
}

onnx::TensorProto &addConstant(ModelBuilder &b, int32_t type, const std::vector<uint64_t> &values) {
  onnx::TensorProto &tensor = *b.proto.mutable_graph()->add_initializer();
  tensor.set_name("constant");
  tensor.set_data_type(type);
  tensor.add_dims(int64_t(values.size()));
  for (uint64_t value : values)
    tensor.add_uint64_data(value);
  return tensor;
}

TEST(UnsignedTensors, Constants) {
  for (auto [type, largest] : {std::pair<int32_t, uint64_t>(onnx::TensorProto::UINT32, 0xFFFFFFFF),
                               {onnx::TensorProto::UINT64, uint64_t(1) << 62}}) {
    UnsignedModel m(type, "2");
    addConstant(m.b, type, {3, largest});
    m.b.node("Min", {"x", "constant"}, {"y"});
    EXPECT_THAT(m.run({1, 9, 4, 1000}), ElementsAre(1, 9, 3, 1000));
  }
}

TEST(UnsignedTensors, NumbersThatI64LacksAreErrors) {
  UnsignedModel m(onnx::TensorProto::UINT64, "2");
  addConstant(m.b, onnx::TensorProto::UINT64, {3, ~uint64_t(0)});
  m.b.node("Min", {"x", "constant"}, {"y"}, "clamp");
  m.b.output("y");
  EXPECT_THAT(importError(m.b.bytes()),
              HasSubstr("node 'clamp' (Min): tensor 'constant' has the element "
                        "18446744073709551615; elements of u64 are computed as i64"));
}

TEST(UnsignedTensors, BitsOfOneWidth) {
  UnsignedModel m(onnx::TensorProto::UINT16, "3");
  ModelBuilder::attr(m.b.node("BitCast", {"x"}, {"y"}), "to", int64_t(onnx::TensorProto::INT16));
  EXPECT_THAT(m.run({1, 65535, 32768, 32767, 0, 2}), ElementsAre(1, -1, -32768, 32767, 0, 2));
  UnsignedModel wider(onnx::TensorProto::UINT16, "3");
  ModelBuilder::attr(wider.b.node("BitCast", {"x"}, {"y"}, "bits"), "to",
                     int64_t(onnx::TensorProto::INT32));
  wider.b.output("y");
  EXPECT_THAT(importError(wider.b.bytes()),
              HasSubstr("node 'bits' (BitCast): makes i32 of u16, which has another width"));
}

} // namespace
