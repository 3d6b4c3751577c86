//===- open_roles_test.cpp - Initializers with weak or joint evidence ------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace tbc;
using namespace tbc::test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace {

std::vector<std::string> parametersOf(ModelRunner &runner, const ModelBuilder &b) {
  runner.run(b);
  std::vector<std::string> names;
  for (const frontend::ParameterSource &source : runner.model->parameters)
    names.push_back(source.name);
  return names;
}

/// h + cos(angles), as the older exporter of PyTorch writes it. Frequencies of rotary embeddings
/// descend; the angles of a state space model are trained.
TEST(OpenRoles, AnglesAreOpenUnlessTheyDescend) {
  auto withAngles = [](const std::vector<float> &elements) {
    ModelBuilder b;
    b.proto.set_producer_name("pytorch");
    b.input("x", {"batch", "3"});
    b.output("y");
    b.floats("w.weight", {3, 3}, std::vector<float>(9, 1));
    b.floats("mixer.theta", {3}, elements);
    b.node("MatMul", {"x", "w.weight"}, {"h"});
    b.node("Cos", {"mixer.theta"}, {"cos"});
    b.node("Add", {"h", "cos"}, {"y"});
    return b;
  };
  ModelRunner descending;
  EXPECT_THAT(parametersOf(descending, withAngles({1, 0.1F, 0.01F})), ElementsAre("w.weight"));
  EXPECT_THAT(descending.model->warnings, IsEmpty());
  ModelRunner open, trained, kept;
  EXPECT_THAT(parametersOf(open, withAngles({1, 3, 2})), ElementsAre("w.weight"));
  EXPECT_THAT(open.model->warnings, ElementsAre(HasSubstr("--parameter 'mixer.theta' trains it")));
  trained.options.parameters = kept.options.constants = {"mixer.theta"};
  EXPECT_THAT(parametersOf(trained, withAngles({1, 3, 2})), ElementsAre("w.weight", "mixer.theta"));
  EXPECT_THAT(trained.model->warnings, IsEmpty());
  EXPECT_THAT(parametersOf(kept, withAngles({1, 3, 2})), ElementsAre("w.weight"));
  EXPECT_THAT(kept.model->warnings, IsEmpty());
}

/// The buffer `tril` of a hand-written attention, in a file that does not tell buffers from
/// parameters. Its numbers are read at import, so that the mask is one of positions.
TEST(OpenRoles, TablesThatAreComparedAreKnown) {
  ModelBuilder b;
  b.proto.set_producer_name("pytorch");
  b.input("x", {"batch", "3", "3"});
  b.output("y");
  b.floats("head.tril", {4, 4}, {1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1});
  b.ints("start", {2}, {0, 0});
  b.ints("end", {2}, {3, 3});
  b.floats("zero", {}, {0});
  b.floats("hidden", {}, {-1e9F});
  b.node("Slice", {"head.tril", "start", "end"}, {"table"});
  b.node("Equal", {"table", "zero"}, {"later"});
  b.node("Where", {"later", "hidden", "x"}, {"y"});
  ModelRunner runner;
  runner.options.batch = 1;
  runner.inputs["x"] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_THAT(runner.run(b), ElementsAre(1, -1e9, -1e9, 4, 5, -1e9, 7, 8, 9));
  EXPECT_EQ(runner.count("compare"), 0u);
  EXPECT_THAT(runner.model->parameters, IsEmpty());
  EXPECT_THAT(runner.model->warnings, IsEmpty());
}

/// A rotary embedding of rows and columns: no row is one position, but cos^2 + sin^2 is 1.
TEST(OpenRoles, CosinesBesideSinesAreConstant) {
  for (float added : {0.0F, 0.2F}) {
    std::vector<float> cosines, sines;
    for (int64_t place = 0; place < 6; ++place)
      for (int64_t column = 0; column < 4; ++column) {
        float angle = float(column < 2 ? place / 3 : place % 3) * (column % 2 ? 0.1F : 1.0F);
        cosines.push_back(std::cos(angle) + added);
        sines.push_back(std::sin(angle));
      }
    ModelBuilder b;
    b.input("x", {"batch", "6", "4"});
    b.output("y");
    b.output("z");
    b.floats("rotary.cos", {6, 4}, cosines);
    b.floats("rotary.sin", {6, 4}, sines);
    b.node("Mul", {"x", "rotary.cos"}, {"y"});
    b.node("Mul", {"x", "rotary.sin"}, {"z"});
    ModelRunner runner;
    EXPECT_EQ(parametersOf(runner, b).size(), added == 0 ? 0U : 2U);
  }
}

/// A convolution as the older exporter of PyTorch writes it, whose weight is a parameter or a
/// buffer such as a blur. The newer one declares its buffers.
TEST(OpenRoles, FiltersOfAFormulaAreOpen) {
  auto withWindow = [](const std::vector<float> &elements, const std::string &name) {
    ModelBuilder b;
    b.proto.set_producer_name("pytorch");
    b.input("x", {"batch", "1", "8"});
    b.output("y");
    b.floats(name, {2, 1, 4}, elements);
    b.node("Conv", {"x", name}, {"y"});
    return b;
  };
  const std::vector<std::vector<float>> formulas = {{1, 3, 3, 1, 1, 3, 3, 1},        // a blur
                                                    {1, 2, 2, 1, 1, 2, -2, -1},      // and a slope
                                                    {1, 1, 1, 1, 2, 2, 2, 2},        // sums
                                                    {.5, .8, .2, 0, .5, .8, .2, 0}}; // one filter
  const std::vector<std::vector<float>> layers = {{1, 3, 3, 1, 1, 3, 2, 1}, // one end differs
                                                  {0, 1, 0, 0, 0, 1, 0, 0}, // an identity
                                                  {0, 0, 0, 0, 0, 0, 0, 0}};
  for (const std::vector<float> &elements : formulas) {
    ModelRunner open, kept;
    EXPECT_THAT(parametersOf(open, withWindow(elements, "loss.window")),
                ElementsAre("loss.window"));
    EXPECT_THAT(open.model->warnings, ElementsAre(HasSubstr("--constant 'loss.window' keeps it")));
    kept.options.constants = {"loss.window"};
    EXPECT_THAT(parametersOf(kept, withWindow(elements, "loss.window")), IsEmpty());
    EXPECT_THAT(kept.model->warnings, IsEmpty());
  }
  for (const std::vector<float> &elements : layers) {
    ModelRunner trained;
    EXPECT_THAT(parametersOf(trained, withWindow(elements, "layer.weight")),
                ElementsAre("layer.weight"));
    EXPECT_THAT(trained.model->warnings, IsEmpty());
  }
}

/// A matrix beside a product, as the older exporter of PyTorch writes a weight or a fixed graph.
TEST(OpenRoles, MatricesOfAFormulaAreOpen) {
  auto warningsOf = [](const std::vector<float> &elements) {
    ModelBuilder b;
    b.proto.set_producer_name("pytorch");
    b.input("x", {"batch", "4"});
    b.output("y");
    b.floats("graph", {4, 4}, elements);
    b.node("MatMul", {"x", "graph"}, {"y"});
    ModelRunner runner;
    EXPECT_THAT(parametersOf(runner, b), ElementsAre("graph"));
    return runner.model->warnings;
  };
  const std::vector<std::vector<float>> formulas = {
      {1, 1, 0, 0, 0, 1, 1, 0, .5, 0, 0, .5, 0, 1, 0, 1},       // neighbours
      {2, -1, 0, -1, -1, 2, -1, 0, 0, -1, 2, -1, -1, 0, -1, 2}, // a Laplacian
      {1, 1, 1, 1, 1, 0, -1, 0, 1, -1, 1, -1, 1, 0, -1, 0}};    // cosines
  for (const std::vector<float> &elements : formulas)
    EXPECT_THAT(warningsOf(elements), ElementsAre(HasSubstr("--constant 'graph' keeps it")));
  EXPECT_THAT(warningsOf({1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}), IsEmpty()); // identity
  EXPECT_THAT(warningsOf({.3, .1, -.2, 0, 0, .5, .9, 0, -.4, 0, .2, .1, 0, 0, .6, .7}), IsEmpty());
  EXPECT_THAT(warningsOf({.3, .1, .2, .4, .9, .5, .9, .8, .4, .2, .2, .1, .5, .7, .6, .7}),
              IsEmpty());
}

/// Group norms as the newer exporter of PyTorch writes them: instance norms share a scale of ones,
/// and the module's own weight has a name of the exporter's. The shared scale is split by module,
/// and takes no name of the module.
TEST(OpenRoles, SplitTensorsTakeNoNameOfTheModule) {
  ModelBuilder b;
  b.input("x", {"batch", "4", "2"});
  b.output("y");
  b.floats("ones", {4}, {1, 1, 1, 1});
  b.floats("zeros", {4}, {0, 0, 0, 0});
  auto foldedFrom = [&](const std::string &name, const std::string &sources) {
    onnx::ValueInfoProto &info = *b.proto.mutable_graph()->add_value_info();
    info.set_name(name);
    onnx::StringStringEntryProto &entry = *info.add_metadata_props();
    entry.set_key("pkg.onnxscript.optimizer.folded_from");
    entry.set_value(sources);
  };
  foldedFrom("ones", "['val_9']");
  foldedFrom("zeros", "['val_9']");
  std::string signature;
  std::string value = "x";
  for (std::string number : {"0", "1"}) {
    std::string module = "blocks." + number + ".norm", weight = "val_" + number;
    signature += "p_" + number + ": PARAMETER target='" + module + ".weight'\n";
    b.floats(weight, {4, 1}, {1, 2, 3, float(4 + std::stoi(number))});
    foldedFrom(weight, "['" + module + ".weight', 'val_9']");
    for (auto [type, inputs, output] :
         {std::tuple("InstanceNormalization", std::vector<std::string>{value, "ones", "zeros"},
                     "norm" + number),
          std::tuple("Mul", std::vector<std::string>{"norm" + number, weight}, "h" + number)}) {
      onnx::NodeProto &node = b.node(type, inputs, {output});
      onnx::StringStringEntryProto &scopes = *node.add_metadata_props();
      scopes.set_key("pkg.torch.onnx.name_scopes");
      scopes.set_value("['', '" + module + "', 'group_norm']");
    }
    value = "h" + number;
  }
  b.node("Identity", {value}, {"y"});
  onnx::StringStringEntryProto &entry = *b.proto.mutable_graph()->add_metadata_props();
  entry.set_key("pkg.torch.export.ExportedProgram.graph_signature");
  entry.set_value(signature);
  ModelRunner runner;
  EXPECT_THAT(parametersOf(runner, b), ElementsAre("val_0", "val_1"));
}

/// Trained, the weights of a loss would only make it small.
TEST(OpenRoles, WeightsOfClassesAreConstants) {
  for (const char *type : {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}) {
    ModelBuilder b;
    b.input("x", {"batch", "2"});
    b.input("labels", {"batch"}, /*isFloat=*/false);
    b.floats("w.weight", {2, 3}, {0.5f, -1, 2, 1.5f, -0.5f, 1});
    b.floats("weights", {3}, {0.5f, 1, 2});
    b.node("MatMul", {"x", "w.weight"}, {"h"});
    ModelBuilder::attr(b.node("LogSoftmax", {"h"}, {"scores"}), "axis", int64_t(-1));
    b.node(type, {"scores", "labels", "weights"}, {"loss"});
    b.output("loss");
    ModelRunner runner;
    EXPECT_THAT(parametersOf(runner, b), ElementsAre("w.weight")) << type;
  }
}

} // namespace
