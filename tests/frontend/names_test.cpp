//===- names_test.cpp - Module paths from the names of exporters ------------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;

namespace {

using Metadata = std::vector<std::pair<std::string, std::string>>;

/// Returns the display name of a weight with a generated name, read by a MatMul called `node`.
std::string displayName(const std::string &node, const Metadata &metadata,
                        const std::string &type = "MatMul") {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  if (type == "MatMul")
    b.floats("val_7", {2, 2}, {1, 2, 3, 4});
  else
    b.floats("val_7", {2}, {1, 2});
  onnx::NodeProto &product = b.node(type, {"x", "val_7"}, {"y"}, node);
  for (const auto &[key, value] : metadata) {
    onnx::StringStringEntryProto &entry = *product.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }
  b.output("y");
  ModelRunner runner;
  runner.options.parameters = {"*"};
  runner.run(b);
  return runner.model->parameters.at(0).displayName;
}

const std::string outside = "_empty_nn_module_stack_from_metadata_hook";

TEST(DisplayName, OfNameScopes) {
  Metadata scopes{{"pkg.torch.onnx.name_scopes",
                   "['', 'model', 'model.layers.0', 'model.layers.0.q_proj', 'linear_1']"}};
  EXPECT_EQ(displayName("node_linear_1", scopes), "model.layers.0.q_proj.weight");
  EXPECT_EQ(displayName("node_add", scopes, "Add"), "model.layers.0.q_proj.bias");
  EXPECT_EQ(displayName("node_mul", scopes, "Mul"), "model.layers.0.q_proj.val_7");
}

TEST(DisplayName, OfTheNamespace) {
  EXPECT_EQ(displayName("node_linear",
                        {{"namespace", ": __main__.TinyMLP/fc1: torch.nn.modules.linear.Linear/"
                                       "linear: aten.linear.default"}}),
            "fc1.weight");
  EXPECT_EQ(displayName("node_linear",
                        {{"namespace", ": models.Llama/model: models.LlamaModel/model.layers.0: "
                                       "models.Layer/model.layers.0.up: torch.nn.Linear/"
                                       "linear_3: aten.linear.default"}}),
            "model.layers.0.up.weight");
}

TEST(DisplayName, NameScopesComeBeforeTheNamespaceWhateverTheOrder) {
  std::pair<std::string, std::string> list{"pkg.torch.onnx.name_scopes", "['', 'right', 'linear']"};
  std::pair<std::string, std::string> text{"namespace", ": M/wrong: Linear/linear: aten.linear"};
  EXPECT_EQ(displayName("n", {list, text}), "right.weight");
  EXPECT_EQ(displayName("n", {text, list}), "right.weight");
}

TEST(DisplayName, OfNodesOutsideOfModules) {
  EXPECT_EQ(displayName("node_mm", {{"pkg.torch.onnx.name_scopes", "['" + outside + "', 'mm']"},
                                    {"namespace", outside + ": " + outside + "/mm: aten.mm"}}),
            "val_7");
  EXPECT_EQ(displayName("node_mm", {{"pkg.torch.onnx.name_scopes", "['', 'mm']"}}), "val_7");
}

TEST(DisplayName, OfMetadataThatIsNone) {
  for (const char *text : {"", "[", "['", "['a", "[]", "''", "/", ": ", "no list"}) {
    EXPECT_EQ(displayName("node_mm", {{"pkg.torch.onnx.name_scopes", text}}), "val_7") << text;
    EXPECT_EQ(displayName("node_mm", {{"namespace", text}}), "val_7") << text;
  }
  EXPECT_EQ(displayName("node_mm", {{"pkg.torch.onnx.class_hierarchy", "['M', 'Linear', 'mm']"}}),
            "val_7");
}

TEST(DisplayName, OfScopedNodeNames) {
  EXPECT_EQ(displayName("/layer1/layer1.0/conv1/MatMul", {}), "layer1.0.conv1.weight");
  EXPECT_EQ(displayName("/transformer/h.0/attn/c_attn/MatMul", {}),
            "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(displayName("/experts.3/w1/MatMul", {}), "experts.3.w1.weight");
  EXPECT_EQ(displayName("/MatMul", {}), "val_7");
  EXPECT_EQ(displayName("MatMul_3", {}), "val_7");
}

} // namespace
