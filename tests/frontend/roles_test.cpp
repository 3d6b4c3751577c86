//===- roles_test.cpp - Trained and constant initializers ------------------===//
//
// Models as exporters write them: torch's newer exporter with metadata of values, its older one
// with names alone, and others with neither.
//
//===----------------------------------------------------------------------===//

#include "tests/frontend/RolesFixture.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>
#include <limits>

using namespace tbc;
using namespace tbc::test;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

//===- masks ---------------------------------------------------------------===//

/// 0 if key <= query + `ahead` and key >= query - `behind`, else `hidden`.
std::vector<float> mask(float hidden, int64_t ahead = 0, int64_t behind = kLength) {
  std::vector<float> values;
  for (int64_t i = 0; i < kLength; ++i)
    for (int64_t j = 0; j < kLength; ++j)
      values.push_back(j <= i + ahead && j >= i - behind ? 0 : hidden);
  return values;
}

/// softmax(x x^T + bias) x; "bias" is computed from the initializer "C_49".
ModelBuilder attention(const std::vector<int64_t> &dims, const std::vector<float> &values,
                       bool isPlain = true) {
  ModelBuilder b;
  b.input("x", {"batch", "6", "8"});
  b.output("y");
  b.floats("C_49", dims, values);
  if (isPlain)
    b.node("Identity", {"C_49"}, {"bias"});
  ModelBuilder::attr(b.node("Transpose", {"x"}, {"t"}), "perm", std::vector<int64_t>{0, 2, 1});
  b.node("MatMul", {"x", "t"}, {"scores"});
  b.node("Add", {"scores", "bias"}, {"masked"});
  ModelBuilder::attr(b.node("Softmax", {"masked"}, {"weights"}), "axis", int64_t(-1));
  b.node("MatMul", {"weights", "x"}, {"y"});
  return b;
}

TEST(RolesOfMasks, AreConstantWhateverHides) {
  for (float hidden : {-1e4f, -1e9f, -65504.0f, -3.4028235e38f, -kInfinity}) {
    Roles roles = rolesOf(attention({kLength, kLength}, mask(hidden)));
    EXPECT_THAT(roles.parameters, IsEmpty()) << hidden;
    EXPECT_THAT(roles.constants, ElementsAre("C_49"));
    EXPECT_THAT(roles.reasons["C_49"], HasSubstr("a mask"));
    EXPECT_THAT(roles.warnings, Not(Contains(HasSubstr("C_49"))));
  }
}

TEST(RolesOfMasks, WhatIsNoMaskIsTrained) {
  std::vector<float> values = mask(-1e9f);
  values[7] = -0.5f; // a bias by distance
  EXPECT_THAT(rolesOf(attention({kLength, kLength}, values)).parameters, ElementsAre("C_49"));
  EXPECT_THAT(rolesOf(attention({kLength, kLength}, mask(-30))).parameters, ElementsAre("C_49"));
  // A table that hides all keys, or no key, is no mask.
  EXPECT_THAT(rolesOf(attention({kLength, kLength}, std::vector<float>(kLength * kLength, -1e9f)))
                  .parameters,
              ElementsAre("C_49"));
}

/// The function computes the same for a mask as positions, as a table and as a parameter.
TEST(RolesOfMasks, MeanTheSame) {
  std::vector<float> gaps = mask(-1e9f);
  gaps[6 * 5 + 2] = -1e9f;
  for (const std::vector<float> &values :
       {mask(-1e9f), mask(-1e9f, 0, 2), mask(-1e9f, 1, 1), mask(-1e9f, 2, kLength), gaps}) {
    ModelBuilder b = attention({1, 1, kLength, kLength}, values);
    ModelRunner runner;
    std::vector<double> found = runner.run(b);
    bool isTable = values == gaps;
    EXPECT_EQ(runner.count("iota") > 0, !isTable);
    runner.options.parameters = {"C_49"};
    std::vector<double> expected = runner.run(b);
    ASSERT_EQ(runner.model->parameters.size(), 1u);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-12 * std::fabs(expected[i])) << i;
  }
}

TEST(RolesOfMasks, BehindSlicesCastsAndUnsqueezes) {
  ModelBuilder b = attention({kLength + 2, kLength + 2}, {}, /*isPlain=*/false);
  auto &tensor = *b.proto.mutable_graph()->mutable_initializer(0);
  std::vector<float> larger((kLength + 2) * (kLength + 2));
  for (int64_t i = 0; i < kLength + 2; ++i)
    for (int64_t j = 0; j < kLength + 2; ++j)
      larger[i * (kLength + 2) + j] = j <= i ? 0 : -kInfinity;
  tensor.set_raw_data(larger.data(), larger.size() * sizeof(float));
  b.ints("begin", {2}, {0, 0});
  b.ints("end", {2}, {kLength, kLength});
  b.ints("axis", {1}, {0});
  b.node("Slice", {"C_49", "begin", "end"}, {"part"});
  ModelBuilder::attr(b.node("Cast", {"part"}, {"cast"}), "to", int64_t(1));
  b.node("Unsqueeze", {"cast", "axis"}, {"bias"});
  EXPECT_THAT(rolesOf(b).constants, ElementsAre("C_49"));
}

/// A static export of torch keeps them in the file beside the model.
TEST(RolesOfMasks, InAFileBesideTheModel) {
  TemporaryFolder folder;
  ModelBuilder b = attention({kLength, kLength}, {});
  b.proto.mutable_graph()->clear_initializer();
  b.external("C_49", {kLength, kLength}, "m.data", "0", "144");
  std::vector<float> values = mask(-3.4028235e38f);
  std::string path = folder.write("m.onnx", b.bytes());
  folder.write("m.data", std::string(reinterpret_cast<const char *>(values.data()), 144));
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  auto model = frontend::importOnnx(context, path, {});
  ASSERT_TRUE(bool(model)) << model.error().message;
  EXPECT_TRUE(model->parameters.empty());
  ASSERT_EQ(model->constants.size(), 1u);
  // Without its data it cannot be recognised.
  std::filesystem::remove(folder.path("m.data"));
  auto absent = frontend::importOnnx(context, path, {});
  ASSERT_TRUE(bool(absent)) << absent.error().message;
  EXPECT_EQ(absent->parameters.size(), 1u);
}

/// Integers beside the model, used by a node `type` with the table as input 1. Returns the imported
/// model; the data is there if `isPresent`.
static Result<frontend::ImportedModel> withIntegers(mlir::MLIRContext &context,
                                                    const std::string &type, bool isPresent) {
  TemporaryFolder folder;
  ModelBuilder b;
  b.input("x", {"batch", "4"});
  b.output("y");
  b.external("table", {2}, "m.data", "0", "16").set_data_type(onnx::TensorProto::INT64);
  ModelBuilder::attr(b.node(type, {"x", "table"}, {"y"}), type == "Gather" ? "axis" : "allowzero",
                     int64_t(type == "Gather"));
  const int64_t values[] = {3, 1};
  if (isPresent)
    folder.write("m.data", std::string(reinterpret_cast<const char *>(values), sizeof(values)));
  return frontend::importOnnx(context, folder.write("m.onnx", b.bytes()), {});
}

/// Indices whose file is absent are opaque: a plan needs their shape alone.
TEST(RolesOfTables, IndicesWithoutTheirFileAreState) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  auto present = withIntegers(context, "Gather", true);
  ASSERT_TRUE(bool(present)) << present.error().message;
  EXPECT_TRUE(present->parameters.empty());
  auto absent = withIntegers(context, "Gather", false);
  ASSERT_TRUE(bool(absent)) << absent.error().message;
  ASSERT_EQ(absent->parameters.size(), 1u);
  EXPECT_TRUE(absent->parameters[0].isState);
  EXPECT_EQ(absent->parameters[0].dtype, kernels::DType::I64);
}

/// A shape must be known at import; the message names the node and the file.
TEST(RolesOfTables, AShapeWithoutItsFileIsRefusedByNode) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  auto absent = withIntegers(context, "Reshape", false);
  ASSERT_FALSE(bool(absent));
  EXPECT_THAT(absent.error().message, HasSubstr("(Reshape): tensor 'table' is needed at import"));
  EXPECT_THAT(absent.error().message, HasSubstr("put the file there"));
}

//===- metadata of the exporter ---------------------------------------------===//

TEST(RolesByMetadata, AreDecisive) {
  for (auto [kind, isTrained] : {std::pair("PARAMETER", true), std::pair("BUFFER", false),
                                 std::pair("CONSTANT_TENSOR", false)}) {
    ModelBuilder b = combined("Add", "pe", {1, kLength, kWidth}, numbers(kLength * kWidth));
    declare(b, "pe", kind);
    Roles roles = rolesOf(b);
    EXPECT_EQ(roles.parameters.size(), isTrained ? 2u : 1u) << kind;
    EXPECT_EQ(roles.constants.size(), isTrained ? 0u : 1u) << kind;
  }
  // Metadata overrides the evidence of readers.
  ModelBuilder b = combined("MatMul", "basis", {kWidth, kWidth}, numbers(kWidth * kWidth));
  declare(b, "basis", "BUFFER");
  EXPECT_THAT(rolesOf(b).constants, ElementsAre("basis"));
}

TEST(RolesByMetadata, OfInitializersThemselves) {
  ModelBuilder b = combined("Add", "pe", {1, kLength, kWidth}, numbers(kLength * kWidth));
  auto &entry = *b.proto.mutable_graph()->mutable_initializer(1)->add_metadata_props();
  entry.set_key("pkg.torch.export.graph_signature.InputSpec.kind");
  entry.set_value("BUFFER");
  EXPECT_THAT(rolesOf(b).constants, ElementsAre("pe"));
}

TEST(RolesByMetadata, OfWhatWasComputed) {
  // From numbers and shapes alone.
  ModelBuilder b = combined("Add", "embedded", {1, kLength, kWidth}, numbers(kLength * kWidth));
  foldedFrom(b, "embedded", "['h', 'val_3', 'val_4']");
  EXPECT_THAT(rolesOf(b).constants, ElementsAre("embedded"));
  // From a removed weight.
  ModelBuilder positions =
      combined("Add", "embedding_1", {kLength, kWidth}, numbers(kLength * kWidth));
  foldedFrom(positions, "embedding_1", "['arange', 'p.weight', 'val_0']");
  Roles roles = rolesOf(positions);
  EXPECT_THAT(roles.parameters, Contains("embedding_1"));
  EXPECT_THAT(roles.warnings, Not(Contains(HasSubstr("embedding_1"))));
  // From a value that may be a parameter or a buffer: a warning.
  ModelBuilder open = combined("Add", "alias", {kLength, kWidth}, numbers(kLength * kWidth));
  foldedFrom(open, "alias", "['pe']");
  roles = rolesOf(open);
  EXPECT_THAT(roles.parameters, Contains("alias"));
  EXPECT_THAT(roles.warnings, Contains(HasSubstr("--constant 'alias'")));
  // A factor computed from one, such as exp(logit_scale).
  ModelBuilder factor = combined("Mul", "exp", {1}, {2.5f});
  foldedFrom(factor, "exp", "['logit_scale']");
  EXPECT_THAT(rolesOf(factor).warnings, Contains(HasSubstr("--constant 'exp'")));
  // The transposed weight of a matmul.
  ModelBuilder weight = combined("MatMul", "val_7", {kWidth, kWidth}, numbers(kWidth * kWidth));
  foldedFrom(weight, "val_7", "['q.weight']");
  EXPECT_EQ(rolesOf(weight).parameters.size(), 2u);
}

//===- tables --------------------------------------------------------------===//

std::vector<float> sinusoids(int64_t length, int64_t width, bool isInterleaved) {
  std::vector<float> values;
  for (int64_t p = 0; p < length; ++p)
    for (int64_t j = 0; j < width; ++j) {
      int64_t pair = isInterleaved ? j / 2 : j % (width / 2);
      double angle = double(p) * std::pow(10000.0, -2.0 * double(pair) / double(width));
      bool isSine = isInterleaved ? j % 2 == 0 : j < width / 2;
      values.push_back(float(isSine ? std::sin(angle) : std::cos(angle)));
    }
  return values;
}

TEST(RolesOfTables, SinesAndCosinesAreConstant) {
  for (bool isInterleaved : {true, false}) {
    Roles roles = rolesOf(
        combined("Add", "pe", {1, kLength, kWidth}, sinusoids(kLength, kWidth, isInterleaved)));
    EXPECT_THAT(roles.constants, ElementsAre("pe"));
    EXPECT_THAT(roles.reasons["pe"], HasSubstr("sines and cosines"));
  }
  // Cosines alone, as rotary embeddings keep them.
  std::vector<float> cosines;
  for (int64_t p = 0; p < kLength; ++p)
    for (int64_t j = 0; j < kWidth; ++j)
      cosines.push_back(float(std::cos(double(p) * std::pow(0.1, double(j % 4)))));
  EXPECT_THAT(rolesOf(combined("Mul", "cos", {kLength, kWidth}, cosines)).constants,
              ElementsAre("cos"));
}

/// Rows of an image's table count along two sides, and may begin with a class token of zeros.
TEST(RolesOfTables, SinesOfTwoPositions) {
  std::vector<float> values(size_t(kWidth), 0.0f);
  for (int64_t p = 0; p < kLength - 1; ++p) {
    const int64_t row = p / 3, column = p % 3;
    for (int64_t position : {row, column})
      for (double frequency : {1.0, 0.01})
        for (bool isSine : {true, false}) {
          const double angle = double(position) * frequency;
          values.push_back(float(isSine ? std::sin(angle) : std::cos(angle)));
        }
  }
  EXPECT_THAT(rolesOf(combined("Add", "pos_embed", {1, kLength, kWidth}, values)).constants,
              ElementsAre("pos_embed"));
}

TEST(RolesOfTables, LearnedOnesAreTrained) {
  for (float scale : {0.02f, 1.0f}) {
    std::vector<float> values = numbers(kLength * kWidth);
    for (float &value : values)
      value *= scale;
    Roles roles = rolesOf(combined("Add", "pos_embed", {1, kLength, kWidth}, values));
    EXPECT_THAT(roles.parameters, UnorderedElementsAre("w.weight", "pos_embed"));
    EXPECT_THAT(roles.warnings, Not(Contains(HasSubstr("pos_embed"))));
  }
}

TEST(RolesOfTables, GeneratedNamesThatNoWeightHas) {
  Roles roles = rolesOf(combined("Add", "val_9", {kLength, kWidth}, numbers(kLength * kWidth)));
  EXPECT_THAT(roles.constants, ElementsAre("val_9"));
  roles = rolesOf(combined("Mul", "val_71", {1}, {0.5f}));
  EXPECT_THAT(roles.parameters, ElementsAre("w.weight"));
}

TEST(RolesOfTables, FreshOnesAreNamed) {
  Roles roles = rolesOf(
      combined("Add", "cls", {1, kLength, kWidth}, std::vector<float>(kLength * kWidth, 0)));
  EXPECT_THAT(roles.parameters, Contains("cls"));
  EXPECT_THAT(roles.warnings, Contains(HasSubstr("--constant 'cls' keeps it as it is, --freeze")));
}

//===- readers of weights ---------------------------------------------------===//

TEST(RolesByReaders, FreshWeightsAreTrained) {
  // The bias of a matmul, zeros under a meaningless name.
  std::vector<float> zeros(kWidth, 0), ones(kWidth, 1);
  EXPECT_EQ(rolesOf(combined("Add", "val_5", {kWidth}, zeros)).parameters.size(), 2u);
  // The factor of a branch.
  EXPECT_EQ(rolesOf(combined("Mul", "gamma", {kWidth}, ones)).parameters.size(), 2u);
  EXPECT_THAT(rolesOf(combined("Mul", "gamma", {kWidth}, ones)).warnings, IsEmpty());
  // One slope for all channels.
  EXPECT_EQ(rolesOf(combined("PRelu", "val_48", {1, 1, 1}, {0.25f})).parameters.size(), 2u);
  // A layer of one input and one output.
  ModelBuilder b;
  b.input("x", {"batch", "1"});
  b.floats("val_1", {1, 1}, {0.5f});
  b.node("MatMul", {"x", "val_1"}, {"y"});
  b.output("y");
  EXPECT_EQ(rolesOf(b).parameters.size(), 1u);
}

/// A group norm as exporters write it: an instance norm with ones and zeros, scaled.
ModelBuilder groupNorm(int64_t channels, int64_t groups) {
  ModelBuilder b;
  std::string size = std::to_string(channels);
  b.input("x", {"batch", size, "4"});
  b.output("y");
  b.floats("val_8", {groups}, std::vector<float>(size_t(groups), 1));
  b.floats("val_11", {groups}, std::vector<float>(size_t(groups), 0));
  b.floats("val_20", {channels, 1}, std::vector<float>(size_t(channels), 1));
  b.floats("val_22", {channels, 1}, std::vector<float>(size_t(channels), 0));
  b.ints("grouped", {3}, {0, groups, -1});
  b.ints("whole", {3}, {0, channels, 4});
  b.node("Reshape", {"x", "grouped"}, {"g"});
  b.node("InstanceNormalization", {"g", "val_8", "val_11"}, {"n"});
  b.node("Reshape", {"n", "whole"}, {"r"});
  b.node("Mul", {"r", "val_20"}, {"m"});
  b.node("Add", {"m", "val_22"}, {"y"});
  return b;
}

TEST(RolesByReaders, GroupNorms) {
  Roles roles = rolesOf(groupNorm(8, 4));
  EXPECT_THAT(roles.parameters, ElementsAre("val_20", "val_22"));
  EXPECT_THAT(roles.constants, ElementsAre("val_8", "val_11"));
  // One channel.
  roles = rolesOf(groupNorm(1, 1));
  EXPECT_THAT(roles.parameters, Contains("val_20"));
  // An instance norm with ones of its own.
  ModelBuilder b;
  b.input("x", {"batch", "3", "4"});
  b.output("y");
  b.floats("val_1", {3}, {1, 1, 1});
  b.floats("val_2", {3}, {0, 0, 0});
  b.node("InstanceNormalization", {"x", "val_1", "val_2"}, {"n"});
  b.node("Relu", {"n"}, {"y"});
  EXPECT_THAT(rolesOf(b).parameters, ElementsAre("val_1", "val_2"));
}

/// (x - mean) * rsqrt(var + epsilon) * weight + bias, as torchvision's FrozenBatchNorm2d.
TEST(RolesByReaders, FrozenBatchNormsHaveBuffersAlone) {
  auto frozen = [](const std::string &module) {
    ModelBuilder b;
    b.input("x", {"batch", "3", "4"});
    b.output("y");
    for (const char *name : {"weight", "bias", "running_mean", "running_var"})
      b.floats(module + name, {1, 3, 1}, {0.5f, 1, 2});
    b.floats("epsilon", {}, {1e-5f});
    b.node("Sub", {"x", module + "running_mean"}, {"centred"});
    b.node("Add", {module + "running_var", "epsilon"}, {"variance"});
    b.node("Sqrt", {"variance"}, {"deviation"});
    b.node("Div", {"centred", "deviation"}, {"n"});
    b.node("Mul", {"n", module + "weight"}, {"m"});
    b.node("Add", {"m", module + "bias"}, {"y"});
    return b;
  };
  Roles roles = rolesOf(frozen("layer1.bn."));
  EXPECT_THAT(roles.parameters, IsEmpty());
  EXPECT_THAT(roles.constants,
              UnorderedElementsAre("layer1.bn.weight", "layer1.bn.bias", "layer1.bn.running_mean",
                                   "layer1.bn.running_var"));
  EXPECT_THAT(roles.reasons["layer1.bn.weight"], HasSubstr("frozen batch norm"));
  // At the top of the model.
  EXPECT_THAT(rolesOf(frozen("")).parameters, IsEmpty());
  // Folded by the newer exporter.
  ModelBuilder folded = combined("Mul", "mul_4", {1, 1, kWidth}, numbers(kWidth));
  foldedFrom(folded, "mul_4", "['add_9', 'bn1.running_var', 'bn1.weight', 'rsqrt']");
  EXPECT_THAT(rolesOf(folded).constants, ElementsAre("mul_4"));
  // The weights of a norm in training are no buffers, and an option has the last word.
  ModelBuilder b;
  b.input("x", {"batch", "3", "4"});
  b.output("y");
  for (const char *name : {"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"})
    b.floats(name, {3}, {0.5f, 1, 2});
  b.node("BatchNormalization", {"x", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"},
         {"y"});
  EXPECT_THAT(rolesOf(b).parameters, ElementsAre("bn.weight", "bn.bias"));
  frontend::ImportOptions options;
  options.parameters = {"layer1.bn.weight"};
  EXPECT_THAT(rolesOf(frozen("layer1.bn."), options).parameters, ElementsAre("layer1.bn.weight"));
}

/// h * logit_scale, as the older exporter of PyTorch writes it.
TEST(RolesByReaders, NumbersNamedByAModuleAreOpen) {
  auto scaled = [](const std::string &producer) {
    ModelBuilder b = combined("Mul", "logit_scale", {}, {2.5f});
    b.proto.set_producer_name(producer);
    return b;
  };
  Roles roles = rolesOf(scaled("pytorch"));
  EXPECT_THAT(roles.parameters, ElementsAre("w.weight", "logit_scale"));
  EXPECT_THAT(roles.warnings, ElementsAre(HasSubstr("'logit_scale' is trained as a parameter")));
  frontend::ImportOptions trained, kept;
  trained.parameters = kept.constants = {"logit_scale"};
  roles = rolesOf(scaled("pytorch"), trained);
  EXPECT_THAT(roles.parameters, ElementsAre("w.weight", "logit_scale"));
  EXPECT_THAT(roles.warnings, IsEmpty());
  roles = rolesOf(scaled("pytorch"), kept);
  EXPECT_THAT(roles.parameters, ElementsAre("w.weight"));
  EXPECT_THAT(roles.warnings, IsEmpty());
  // Other exporters name their own numbers, and metadata tells parameters.
  EXPECT_THAT(rolesOf(scaled("tf2onnx")).parameters, ElementsAre("w.weight"));
  EXPECT_THAT(rolesOf(scaled("tf2onnx")).warnings,
              ElementsAre(HasSubstr("tf2onnx has written the graph of inference")));
  ModelBuilder declared = scaled("pytorch");
  declare(declared, "w.weight", "PARAMETER");
  EXPECT_THAT(rolesOf(declared).warnings, IsEmpty());
}

/// masked_bias of GPT-2, and an epsilon: buffers that the older exporter writes like parameters.
TEST(RolesByReaders, NumbersThatHideOrAreTinyStay) {
  auto rolesWith = [](const std::string &op, float number) {
    ModelBuilder b = combined(op, "a.number", {}, {number});
    b.proto.set_producer_name("pytorch");
    return rolesOf(b);
  };
  for (float number : {-1e4f, 1e-6f}) {
    EXPECT_THAT(rolesWith("Add", number).parameters, ElementsAre("w.weight")) << number;
    EXPECT_THAT(rolesWith("Add", number).warnings, IsEmpty()) << number;
  }
  // A gain may be small, and a bias begins with zero.
  EXPECT_THAT(rolesWith("Mul", 1e-6f).parameters, ElementsAre("w.weight", "a.number"));
  EXPECT_THAT(rolesWith("Add", 0).parameters, ElementsAre("w.weight", "a.number"));
}

/// h * scale[0], which the newer exporter has folded to a number or to a tensor of one element.
TEST(RolesByReaders, ElementsOfParametersAreTrained) {
  for (std::string name : {"select", "val_7"})
    for (const std::vector<int64_t> &shape : {std::vector<int64_t>{}, std::vector<int64_t>{1}}) {
      ModelBuilder b = combined("Mul", name, shape, {2.5f});
      foldedFrom(b, name, "['scale', 'val_3']");
      EXPECT_THAT(rolesOf(b).parameters, Not(Contains("scale"))) << name;
      declare(b, "w.weight", "PARAMETER");
      declare(b, "scale", "PARAMETER");
      Roles roles = rolesOf(b);
      EXPECT_EQ(roles.parameters.size(), 2u) << name;
      EXPECT_THAT(roles.warnings, Not(Contains(HasSubstr("nothing in the file")))) << name;
    }
}

/// x @ lora_a.t(), which the newer exporter has transposed.
TEST(RolesByMetadata, TransposesHaveTheNameOfTheirParameter) {
  ModelBuilder b = combined("MatMul", "t", {kWidth, kWidth}, numbers(kWidth * kWidth));
  foldedFrom(b, "t", "['lora_a']");
  declare(b, "w.weight", "PARAMETER");
  declare(b, "lora_a", "PARAMETER");
  EXPECT_THAT(rolesOf(b).parameters, ElementsAre("w.weight", "lora_a"));
  // Arithmetic trains another tensor.
  ModelBuilder other = combined("Mul", "exp", {1}, {2.5f});
  foldedFrom(other, "exp", "['scale']");
  declare(other, "w.weight", "PARAMETER");
  declare(other, "scale", "PARAMETER");
  EXPECT_THAT(rolesOf(other).parameters, ElementsAre("w.weight", "exp"));
}

/// The number that fills a padding is known when the model is imported.
TEST(RolesByReaders, NumbersOfSettingsStay) {
  ModelBuilder b = combined("Add", "bias", {kWidth}, numbers(kWidth));
  b.proto.set_producer_name("pytorch");
  b.proto.mutable_graph()->clear_output();
  b.output("padded");
  b.ints("pads", {6}, {0, 0, 1, 0, 0, 1});
  b.floats("module.fill", {}, {2.5f});
  b.node("Pad", {"y", "pads", "module.fill"}, {"padded"});
  Roles roles = rolesOf(b);
  EXPECT_THAT(roles.parameters, ElementsAre("w.weight", "bias"));
  EXPECT_THAT(roles.warnings, Not(Contains(HasSubstr("module.fill"))));
}

/// A bias that only decides the choice of experts gets no gradient.
TEST(RolesByReaders, WhatNoGradientReachesIsHeld) {
  ModelBuilder b = combined("Add", "e_score_correction_bias", {kWidth}, numbers(kWidth));
  b.proto.mutable_graph()->clear_output();
  b.output("chosen");
  b.ints("k", {1}, {2});
  ModelBuilder::attr(b.node("TopK", {"y", "k"}, {"values", "indices"}), "axis", int64_t(-1));
  ModelBuilder::attr(b.node("GatherElements", {"h", "indices"}, {"chosen"}), "axis", int64_t(-1));
  Roles roles = rolesOf(b);
  EXPECT_THAT(roles.parameters, ElementsAre("w.weight"));
  EXPECT_THAT(roles.states, ElementsAre("e_score_correction_bias"));
  EXPECT_THAT(roles.reasons["e_score_correction_bias"], HasSubstr("no gradient"));
  // If the sums with it are an output too, it gets one.
  b.proto.mutable_graph()->clear_output();
  b.output("values");
  EXPECT_EQ(rolesOf(b).parameters.size(), 2u);
}

//===- options -------------------------------------------------------------===//

TEST(RolesByOption, SettleWhatIsOpen) {
  ModelBuilder b =
      combined("Add", "cls", {1, kLength, kWidth}, std::vector<float>(kLength * kWidth, 0));
  frontend::ImportOptions options;
  options.constants = {"c*"};
  Roles roles = rolesOf(b, options);
  EXPECT_THAT(roles.constants, ElementsAre("cls"));
  EXPECT_THAT(roles.warnings, IsEmpty());
  options.constants.clear();
  options.parameters = {"cls"};
  roles = rolesOf(b, options);
  EXPECT_EQ(roles.parameters.size(), 2u);
  EXPECT_THAT(roles.warnings, IsEmpty());
}

TEST(RolesByOption, MistakesAreUsageErrors) {
  TemporaryFolder folder;
  std::string path = folder.write("m.onnx", combined("Add", "cls", {kWidth}, numbers(8)).bytes());
  auto errorOf = [&](const std::vector<std::string> &constants,
                     const std::vector<std::string> &parameters) {
    frontend::ImportOptions options;
    options.constants = constants;
    options.parameters = parameters;
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    auto model = frontend::importOnnx(context, path, options);
    EXPECT_FALSE(bool(model));
    EXPECT_EQ(int(model.error().code), int(ErrorCode::Usage));
    return model.error().message;
  };
  EXPECT_THAT(errorOf({"clz"}, {}), HasSubstr("did you mean 'cls'?"));
  EXPECT_THAT(errorOf({}, {"w.wight"}), HasSubstr("did you mean 'w.weight'?"));
  EXPECT_THAT(errorOf({"[a"}, {}), HasSubstr("malformed"));
  EXPECT_THAT(errorOf({"cls"}, {"c*"}), HasSubstr("--constant and by --parameter"));
}

//===- merged --------------------------------------------------------------===//

/// Two norms in a row that read one weight and one bias, in nodes with names of scopes.
ModelBuilder twoNorms(const std::string &first, const std::string &second,
                      const std::vector<float> &weight, bool hasCopies) {
  ModelBuilder b;
  b.input("x", {"batch", "8"});
  b.output("y");
  b.floats("b.0.ln1.weight", {kWidth}, weight);
  b.floats("b.0.ln1.bias", {kWidth}, std::vector<float>(kWidth, 0));
  std::string name = "b.0.ln1.weight", other = name;
  if (hasCopies) {
    other = "b.0.ln2.weight";
    b.node("Identity", {name}, {other}, "Identity_76");
  }
  b.node("LayerNormalization", {"x", name, "b.0.ln1.bias"}, {"h"}, first);
  b.node("Relu", {"h"}, {"r"}, "relu");
  b.node("LayerNormalization", {"r", other, "b.0.ln1.bias"}, {"y"}, second);
  return b;
}

TEST(MergedParameters, AreTakenApart) {
  std::vector<float> ones(kWidth, 1);
  for (bool hasCopies : {false, true}) {
    ModelBuilder b = twoNorms("/b.0/ln1/Norm", "/b.0/ln2/Norm", ones, hasCopies);
    Roles roles = rolesOf(b);
    EXPECT_THAT(roles.parameters, UnorderedElementsAre("b.0.ln1.weight", "b.0.ln2.weight",
                                                       "b.0.ln1.bias", "b.0.ln2.bias"));
    EXPECT_THAT(roles.notes,
                Contains(HasSubstr("'b.0.ln1.weight' is read by 2 modules (b.0.ln1, b.0.ln2)")));
  }
}

TEST(MergedParameters, StayOneWhereTheyAreOne) {
  // The weights are shared, not merged for equal numbers.
  Roles roles = rolesOf(twoNorms("/b.0/ln1/Norm", "/b.0/ln2/Norm", numbers(kWidth), false));
  EXPECT_THAT(roles.parameters,
              UnorderedElementsAre("b.0.ln1.weight", "b.0.ln1.bias", "b.0.ln2.bias"));
  // One module that runs twice.
  std::vector<float> ones(kWidth, 1);
  roles = rolesOf(twoNorms("/b.0/ln1/Norm", "/b.0/ln1_1/Norm", ones, false));
  EXPECT_THAT(roles.parameters, UnorderedElementsAre("b.0.ln1.weight", "b.0.ln1.bias"));
  EXPECT_THAT(roles.notes, IsEmpty());
  // The module of the second norm is unknown.
  roles = rolesOf(twoNorms("/b.0/ln1/Norm", "norm_7", ones, false));
  EXPECT_EQ(roles.parameters.size(), 2u);
}

TEST(MergedParameters, KeepTheirNumbers) {
  std::vector<float> halves(kWidth, 0.5f);
  ModelRunner apart, together;
  std::vector<double> found = apart.run(twoNorms("/a/Norm", "/c/Norm", halves, false));
  EXPECT_EQ(apart.model->parameters.size(), 4u);
  std::vector<double> expected = together.run(twoNorms("", "", halves, false));
  EXPECT_EQ(together.model->parameters.size(), 2u);
  EXPECT_EQ(found, expected);
}

} // namespace
