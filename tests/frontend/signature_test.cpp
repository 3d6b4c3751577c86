//===- signature_test.cpp - The signature of an exported program -----------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

/// x [batch, 2] w + shift, where the exporter has computed `shift` from `sources`.
ModelBuilder folded(const std::string &sources, const std::string &signature,
                    const std::string &shift = "shift") {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.output("y");
  b.floats("fc.weight", {2, 2}, {1, 2, 3, 5});
  b.floats(shift, {2}, {0.25, 4});
  b.node("MatMul", {"x", "fc.weight"}, {"h"});
  b.node("Add", {"h", shift}, {"y"});
  onnx::ValueInfoProto &info = *b.proto.mutable_graph()->add_value_info();
  info.set_name(shift);
  onnx::StringStringEntryProto &from = *info.add_metadata_props();
  from.set_key("pkg.onnxscript.optimizer.folded_from");
  from.set_value(sources);
  onnx::StringStringEntryProto &all = *b.proto.mutable_graph()->add_metadata_props();
  all.set_key("pkg.torch.export.ExportedProgram.graph_signature");
  all.set_value("\n# inputs\np_fc_weight: PARAMETER target='fc.weight'\n" + signature +
                "x: USER_INPUT\n\n# outputs\nadd: USER_OUTPUT\n");
  return b;
}

std::vector<std::string> parametersOf(ModelRunner &runner, const ModelBuilder &b) {
  runner.run(b);
  std::vector<std::string> names;
  for (const frontend::ParameterSource &source : runner.model->parameters)
    names.push_back(source.name);
  return names;
}

/// Knots of a spline: the buffer itself and values on the way are no initializers any more.
TEST(Signature, TensorsFoldedFromBuffersAreConstants) {
  ModelRunner runner;
  EXPECT_THAT(parametersOf(runner, folded("['fc.knots', 'slice_4', 'val_2']",
                                          "b_fc_knots: BUFFER target='fc.knots' "
                                          "persistent=True\n")),
              ElementsAre("fc.weight"));
  EXPECT_THAT(runner.model->warnings, Each(Not(HasSubstr("shift"))));
}

TEST(Signature, TensorsFoldedFromAParameterAreTrained) {
  ModelRunner runner;
  EXPECT_THAT(parametersOf(runner, folded("['fc.scale', 'val_2']",
                                          "p_fc_scale: PARAMETER target='fc.scale'\n", "slice_3")),
              ElementsAre("fc.weight", "slice_3"));
  EXPECT_THAT(runner.model->warnings, Each(Not(HasSubstr("optimize=False"))));
}

/// (x + p) w + (x + q) v, where p and q are parts of one parameter, and w and v transposes
/// of another. `isOther`: v has other elements.
ModelBuilder parts(const std::vector<std::vector<float>> &vectors, bool isOther = false) {
  ModelBuilder b;
  b.input("x", {"batch", "4"});
  b.output("y");
  std::string signature = "\n# inputs\np_p: PARAMETER target='p'\np_w: PARAMETER target='w'\n";
  for (int i = 0; i < 2; ++i) {
    const std::string n = std::to_string(i);
    b.floats("slice_" + n, {int64_t(vectors[size_t(i)].size()) / 4, 4}, vectors[size_t(i)]);
    b.floats("val_" + n, {4, 2}, {1, 2, 3, 4, 5, 6, 7, isOther && i ? 9.f : 8.f});
    for (const auto &[name, from] :
         {std::pair("slice_" + n, "['p', 'val_7']"), std::pair("val_" + n, "['w']")}) {
      onnx::ValueInfoProto &info = *b.proto.mutable_graph()->add_value_info();
      info.set_name(name);
      onnx::StringStringEntryProto &entry = *info.add_metadata_props();
      entry.set_key("pkg.onnxscript.optimizer.folded_from");
      entry.set_value(from);
    }
    ModelBuilder::attr(b.node("ReduceMean", {"slice_" + n}, {"m" + n}), "keepdims", int64_t(1));
    b.node("Add", {"x", "m" + n}, {"h" + n});
    b.node("MatMul", {"h" + n, "val_" + n}, {"y" + n});
  }
  b.node("Add", {"y0", "y1"}, {"y"});
  onnx::StringStringEntryProto &all = *b.proto.mutable_graph()->add_metadata_props();
  all.set_key("pkg.torch.export.ExportedProgram.graph_signature");
  all.set_value(signature + "x: USER_INPUT\n\n# outputs\nadd: USER_OUTPUT\n");
  return b;
}

/// p[:1] and p[:2] are trained apart, p[:1] and p[1:] as one parameter would be.
TEST(Signature, PartsWithCommonElementsAreWarnedOf) {
  ModelRunner shared, apart;
  auto isNamed = Contains(AllOf(HasSubstr("('slice_0', 'slice_1') with common elements"),
                                HasSubstr("('p')"), HasSubstr("optimize=False")));
  shared.run(parts({{1, 2, 3, 4}, {1, 2, 3, 4, 5, 6, 7, 8}}));
  EXPECT_THAT(shared.model->warnings, isNamed);
  apart.run(parts({{1, 2, 3, 4}, {5, 6, 7, 8, 9, 10, 11, 12}}));
  EXPECT_THAT(apart.model->warnings, Not(isNamed));
}

/// A layer that is called twice: its weight is in the file as two transposes.
TEST(Signature, TransposesOfOneWeightAreOneParameter) {
  ModelRunner runner;
  EXPECT_THAT(parametersOf(runner, parts({{1, 2, 3, 4}, {5, 6, 7, 8}})),
              ElementsAre("slice_0", "val_0", "slice_1"));
  EXPECT_THAT(runner.model->notes,
              Contains(HasSubstr("'val_1' and 'val_0' of 'w' are copies, as the file says")));
  ModelRunner other; // an inconsistent file: nothing is joined
  EXPECT_THAT(parametersOf(other, parts({{1, 2, 3, 4}, {5, 6, 7, 8}}, true)),
              ElementsAre("slice_0", "val_0", "slice_1", "val_1"));
}

/// A part of a split is moved; a result of a batch norm, which standardizes a weight, is computed.
TEST(Signature, AnItemOfManySteps) {
  const std::string scale = "p_fc_scale: PARAMETER target='fc.scale'\n";
  ModelRunner split, norm;
  split.run(folded("['fc.scale', 'getitem', 'val_1', 'view']", scale, "view_1"));
  EXPECT_THAT(split.model->warnings, Each(Not(HasSubstr("optimize=False"))));
  std::string steps;
  for (int i = 1; i < 23; ++i)
    steps += ", 'val_" + std::to_string(i) + "'";
  norm.run(folded("['fc.scale', 'getitem'" + steps + ", 'view']", scale, "view_1"));
  EXPECT_THAT(norm.model->warnings, Contains(HasSubstr("optimize=False")));
}

/// A bias that torch.autocast casts to bf16. A second cast leaves the module's own type open, and
/// buffers are not trained.
TEST(Signature, RoundedParametersAreWarnedOf) {
  auto warnings = [](const std::string &name, const std::string &sources, bool isBF16,
                     const std::string &kind = "PARAMETER") {
    ModelBuilder b = folded(sources, "b: " + kind + " target='fc.bias' persistent=True\n", name);
    onnx::TensorProto &bias = *b.proto.mutable_graph()->mutable_initializer(1);
    if (isBF16) {
      bias.clear_float_data();
      bias.clear_raw_data();
      bias.set_data_type(onnx::TensorProto::BFLOAT16);
      for (int bits : {0x3e80, 0x4080}) // 0.25, 4
        bias.add_int32_data(bits);
    }
    ModelBuilder::attr(b.node("Cast", {name}, {"wide"}), "to", int64_t(onnx::TensorProto::FLOAT));
    b.node("Add", {"h", "wide"}, {"y"});
    b.proto.mutable_graph()->mutable_node()->DeleteSubrange(1, 1); // the Add of f32
    ModelRunner runner;
    runner.run(b);
    return runner.model->warnings;
  };
  auto isNamed = Contains(AllOf(HasSubstr("1 parameter of the module ('fc.bias') in bf16"),
                                HasSubstr("optimize=False")));
  EXPECT_THAT(warnings("_to_copy_3", "['fc.bias']", true), isNamed);
  EXPECT_THAT(warnings("val_4", "['_to_copy_1', 'fc.bias']", true), isNamed);
  EXPECT_THAT(warnings("val_4", "['fc.bias']", true), Not(isNamed));
  EXPECT_THAT(warnings("_to_copy_3", "['fc.bias']", false), Not(isNamed));
  EXPECT_THAT(warnings("_to_copy_3", "['_to_copy_2', 'fc.bias']", true), Not(isNamed));
  EXPECT_THAT(warnings("_to_copy_3", "['fc.bias']", true, "BUFFER"), Not(isNamed));
}

/// A layer under torch.no_grad(): its nodes have no module path, and its weight was transposed.
TEST(Signature, AFoldedTensorHasTheNameOfItsSource) {
  ModelRunner runner;
  runner.run(
      folded("['teacher.fc.bias']", "p_bias: PARAMETER target='teacher.fc.bias'\n", "val_7"));
  ASSERT_EQ(runner.model->parameters.size(), 2u);
  EXPECT_EQ(runner.model->parameters[1].displayName, "teacher.fc.bias");
}

/// A batch norm that was folded into the convolution before it. A table at the positions of a
/// buffer is one parameter.
TEST(Signature, JoinedParametersAreWarnedOf) {
  ModelRunner runner;
  EXPECT_THAT(
      parametersOf(runner, folded("['bn.weight', 'conv.weight', 'bn.running_var', 'val_2']",
                                  "p_bn_weight: PARAMETER target='bn.weight'\n"
                                  "p_conv_weight: PARAMETER target='conv.weight'\n"
                                  "b_bn_var: BUFFER target='bn.running_var' persistent=True\n")),
      ElementsAre("fc.weight", "shift"));
  EXPECT_THAT(runner.model->warnings,
              Contains(AllOf(HasSubstr("folded into each other 2 parameters of the module "
                                       "('bn.weight' and others)"),
                             HasSubstr("optimize=False"))));
  parametersOf(runner, folded("['table.weight', 'ids', 'val_2']",
                              "p_table: PARAMETER target='table.weight'\n"
                              "b_ids: BUFFER target='ids' persistent=False\n",
                              "embedding_1"));
  EXPECT_THAT(runner.model->warnings, Each(Not(HasSubstr("optimize=False"))));
}

/// The norm of a weight in a loss, which the exporter takes for a number.
TEST(Signature, NumbersOfParametersThatAreStillThereAreWarnedOf) {
  ModelRunner runner;
  EXPECT_THAT(parametersOf(runner, folded("['fc.weight', 'val_2']", "")),
              ElementsAre("fc.weight", "shift"));
  EXPECT_THAT(
      runner.model->warnings,
      Contains(AllOf(HasSubstr("no gradient passes, from 1 parameter"), HasSubstr("'fc.weight'"))));
}

/// exp(scale) is trained as it is, where the module trains its logarithm. 1 + weight is trained as
/// the weight is.
TEST(Signature, ComputedTensorsAreWarnedOf) {
  auto warnings = [](const char *name, const char *sources) {
    ModelRunner runner;
    parametersOf(runner, folded(sources, "p_scale: PARAMETER target='fc.scale'\n", name));
    return runner.model->warnings;
  };
  auto isNamed = Contains(AllOf(HasSubstr("no gradient passes, from 1 parameter of the module"),
                                HasSubstr("'fc.scale'"), HasSubstr("optimize=False")));
  EXPECT_THAT(warnings("exp", "['fc.scale']"), isNamed);
  EXPECT_THAT(warnings("view_2", "['fc.scale', 'mul_3', 'val_2']"), isNamed);
  EXPECT_THAT(warnings("add_7", "['fc.scale', 'val_2']"), Not(isNamed));
  EXPECT_THAT(warnings("permute_1", "['fc.scale', 'view', '_to_copy_3']"), Not(isNamed));
}

/// The rounding error of a weight, which the exporter takes for constant: `weight` is there too.
TEST(Signature, ErrorsOfParametersThatAreStillThereAreWarnedOf) {
  ModelRunner runner;
  ModelBuilder b =
      folded("['fc.bias', 'round_2', 'val_2']", "p_fc_bias: PARAMETER target='fc.bias'\n", "sub_8");
  b.floats("fc.bias", {2}, {0.5, 3});
  b.node("Add", {"y", "fc.bias"}, {"z"});
  b.proto.mutable_graph()->mutable_output(0)->set_name("z");
  runner.run(b);
  EXPECT_THAT(runner.model->warnings,
              Contains(AllOf(HasSubstr("from 1 parameter"), HasSubstr("'fc.bias'"))));
}

/// The exporter orders the gates of a recurrence and puts its biases side by side, which changes no
/// training. A weight that is computed in another way does.
TEST(Signature, WeightsOfRecurrencesAreAsTheModuleHasThem) {
  auto warnings = [](const std::string &weight) {
    ModelBuilder b;
    b.input("x", {"batch", "3", "2"});
    b.output("y");
    ModelBuilder::attr(b.node("Transpose", {"x"}, {"steps"}), "perm",
                       std::vector<int64_t>{1, 0, 2});
    b.floats("val_30", {1, 6, 2}, std::vector<float>(12, 0.5f));
    b.floats("val_31", {1, 6, 2}, std::vector<float>(12, 0.25f));
    b.floats("val_47", {1, 12}, std::vector<float>(12, 0.125f));
    ModelBuilder::attr(b.node("GRU", {"steps", "val_30", "val_31", "val_47"}, {"y"}), "hidden_size",
                       int64_t(2));
    std::string signature;
    for (const std::string &name : {std::string("weight_ih_l0"), weight, std::string("bias_ih_l0"),
                                    std::string("bias_hh_l0")})
      signature += "p_" + name + ": PARAMETER target='g." + name + "'\n";
    for (auto [name, sources] :
         {std::pair<std::string, std::string>{"val_30", "['g.weight_ih_l0', 'val_10', 'zeros']"},
          {"val_31", "['g." + weight + "', 'val_10', 'zeros']"},
          {"val_47", "['g.bias_hh_l0', 'g.bias_ih_l0', 'val_10']"}}) {
      onnx::ValueInfoProto &info = *b.proto.mutable_graph()->add_value_info();
      info.set_name(name);
      onnx::StringStringEntryProto &from = *info.add_metadata_props();
      from.set_key("pkg.onnxscript.optimizer.folded_from");
      from.set_value(sources);
    }
    onnx::StringStringEntryProto &all = *b.proto.mutable_graph()->add_metadata_props();
    all.set_key("pkg.torch.export.ExportedProgram.graph_signature");
    all.set_value("\n# inputs\n" + signature + "x: USER_INPUT\n\n# outputs\ngru: USER_OUTPUT\n");
    ModelRunner runner;
    runner.run(b);
    return runner.model->warnings;
  };
  const auto isWarned = Contains(HasSubstr("optimize=False"));
  EXPECT_THAT(warnings("weight_hh_l0"), Not(isWarned));
  EXPECT_THAT(warnings("weight_hh_l0_g"), isWarned);
}

/// A batch norm of inference mode that a rewriter merged with the matmul before it leaves no
/// tensor. A batch norm that is there has its running statistics.
TEST(Signature, MergedBatchNormsAreWarnedOf) {
  const char *norm = "p_bn_weight: PARAMETER target='bn.weight'\n"
                     "p_bn_bias: PARAMETER target='bn.bias'\n"
                     "b_bn_running_mean: BUFFER target='bn.running_mean' persistent=True\n";
  ModelRunner runner;
  parametersOf(runner, folded("['ids']", norm));
  EXPECT_THAT(runner.model->warnings,
              Contains(AllOf(HasSubstr("folded into each other 2 parameters of the module "
                                       "('bn.bias' and others)"),
                             HasSubstr("optimize=False"))));
  parametersOf(runner, folded("['fc.scale']",
                              "p_scale: PARAMETER target='fc.scale'\n"
                              "p_tied: PARAMETER target='tied.weight'\n",
                              "val_1"));
  EXPECT_THAT(runner.model->warnings, Each(Not(HasSubstr("optimize=False"))));
}

/// The exporter's optimizer leaves out additions of zeros: fresh biases are in the signature, and
/// nowhere else. With sums, both layers add the one initializer of their equal biases.
TEST(Signature, BuffersThatForwardUpdatesAreWarnedOf) {
  auto warnings = [](const std::string &updated, const std::string &norm) {
    ModelBuilder b;
    b.input("x", {"batch", "2"});
    b.output("y");
    b.floats("fc.weight", {2, 2}, {1, 2, 3, 5});
    b.node("MatMul", {"x", "fc.weight"}, {norm.empty() ? "y" : "h"});
    for (const char *name : {"scale", "bias", "running_mean", "running_var"})
      if (!norm.empty())
        b.floats(norm + "." + name, {2}, {1, 2});
    if (!norm.empty())
      b.node("BatchNormalization",
             {"h", norm + ".scale", norm + ".bias", norm + ".running_mean", norm + ".running_var"},
             {"y"});
    onnx::StringStringEntryProto &all = *b.proto.mutable_graph()->add_metadata_props();
    all.set_key("pkg.torch.export.ExportedProgram.graph_signature");
    all.set_value("\n# inputs\np_fc_weight: PARAMETER target='fc.weight'\nx: USER_INPUT\n\n"
                  "# outputs\n" +
                  updated + "y: USER_OUTPUT\n");
    ModelRunner runner;
    runner.run(b);
    return runner.model->warnings;
  };
  const std::string center = "add: BUFFER_MUTATION target='center'\n",
                    norm = "add_1: BUFFER_MUTATION target='bn.num_batches_tracked'\n"
                           "getitem_3: BUFFER_MUTATION target='bn.running_mean'\n"
                           "getitem_4: BUFFER_MUTATION target='bn.running_var'\n";
  EXPECT_THAT(warnings(center, ""),
              Contains(AllOf(HasSubstr("updates 1 buffer ('center')"), HasSubstr("differs"))));
  EXPECT_THAT(warnings(center + "add_2: BUFFER_MUTATION target='n'\n", ""),
              Contains(HasSubstr("updates 2 buffers ('center' and others)")));
  for (const std::string &name : {std::string("bn"), std::string()}) // perhaps decomposed
    EXPECT_THAT(warnings(norm, name), Each(Not(HasSubstr("updates"))));
  EXPECT_THAT(warnings("", ""), Each(Not(HasSubstr("updates"))));
}

TEST(Signature, DroppedBiasesAreWarnedOf) {
  auto warnings = [](bool hasSums, const std::string &other) {
    ModelBuilder b;
    auto inModule = [&](const char *type, const std::string &module,
                        const std::vector<std::string> &inputs, const std::string &output) {
      onnx::StringStringEntryProto &scopes = *b.node(type, inputs, {output}).add_metadata_props();
      scopes.set_key("pkg.torch.onnx.name_scopes");
      scopes.set_value("['', '" + module + "', '" + output + "']");
    };
    b.input("x", {"batch", "2"});
    b.output("y");
    for (auto [name, number] :
         {std::pair<const char *, int64_t>{"zero", 0}, {"two", 2}, {"axis", 1}})
      b.ints(name, {1}, {number});
    std::string value = "x";
    for (const std::string layer : {"fc", "gc"}) {
      const bool isLast = layer == "gc";
      b.floats(layer + ".weight", {2, 2}, {1, 2, 3, 5});
      const std::string next = isLast && !hasSums ? "y" : layer + "_product";
      inModule("MatMul", layer, {value, layer + ".weight"}, layer + "_matmul");
      inModule("Slice", layer, {layer + "_matmul", "zero", "two", "axis"}, next);
      value = next;
      if (!hasSums)
        continue;
      const std::string sum = isLast ? "y" : layer + "_sum";
      inModule("Add", layer, {value, "fc.bias"}, sum);
      value = sum;
    }
    if (hasSums)
      b.floats("fc.bias", {2}, {0, 0});
    onnx::StringStringEntryProto &all = *b.proto.mutable_graph()->add_metadata_props();
    all.set_key("pkg.torch.export.ExportedProgram.graph_signature");
    all.set_value("\n# inputs\np_fc_weight: PARAMETER target='fc.weight'\n"
                  "p_gc_weight: PARAMETER target='gc.weight'\n" +
                  other + "x: USER_INPUT\n\n# outputs\nadd: USER_OUTPUT\n");
    ModelRunner runner;
    runner.run(b);
    return runner.model->warnings;
  };
  const std::string both = "p_fc_bias: PARAMETER target='fc.bias'\n"
                           "p_gc_bias: PARAMETER target='gc.bias'\n";
  const auto isWarned = Contains(HasSubstr("has dropped"));
  EXPECT_THAT(warnings(false, both),
              Contains(AllOf(HasSubstr("has dropped 2 biases of the module ('fc.bias' and others)"),
                             HasSubstr("optimize=False"))));
  EXPECT_THAT(warnings(true, both), Not(isWarned));
  EXPECT_THAT(warnings(false, ""), Not(isWarned));
  // Parameters that forward does not read, and buffers.
  EXPECT_THAT(warnings(false, "p_mask_token: PARAMETER target='mask_token'\n"
                              "p_head_bias: PARAMETER target='head.bias'\n"
                              "b_fc_bias: BUFFER target='fc.bias' persistent=True\n"),
              Not(isWarned));
}

/// Scales of scores, which the exporter computed from its own values and stored once: nothing is
/// trained apart.
TEST(Signature, NumbersOfTheExporterAreNotTakenApart) {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.output("y");
  b.floats("val_71", {1}, {0.5f});
  std::string value = "x";
  for (const std::string module : {"a", "c"}) {
    b.floats(module + ".weight", {2, 2}, {1, 2, 3, 5});
    b.node("MatMul", {value, module + ".weight"}, {module}, "/" + module + "/MatMul");
    value = module == "c" ? "y" : module + "_scaled";
    b.node("Mul", {module, "val_71"}, {value}, "/" + module + "/Mul");
  }
  onnx::ValueInfoProto &info = *b.proto.mutable_graph()->add_value_info();
  info.set_name("val_71");
  onnx::StringStringEntryProto &from = *info.add_metadata_props();
  from.set_key("pkg.onnxscript.optimizer.folded_from");
  from.set_value("['val_31', 'val_32']");
  ModelRunner runner;
  EXPECT_THAT(parametersOf(runner, b), ElementsAre("a.weight", "c.weight"));
  EXPECT_THAT(runner.model->notes, Each(Not(HasSubstr("trained apart"))));
}

/// The older exporter writes softmax(w)[0] as a number of its own, without a signature. A weight
/// that it has transposed for a MatMul trains as its source does.
TEST(Signature, TensorsThatTheOlderExporterComputedAreNamed) {
  auto traced = [](const std::string &weight, const std::string &number) {
    ModelBuilder b;
    b.proto.set_producer_name("pytorch");
    b.input("x", {"batch", "2"});
    b.output("y");
    b.floats(weight, {2, 2}, {1, 2, 3, 5});
    b.floats(number, {}, {0.25});
    b.node("MatMul", {"x", weight}, {"h"});
    b.node("Mul", {"h", number}, {"y"});
    return b;
  };
  auto isNamed = Contains(AllOf(HasSubstr("has computed 1 tensor ('onnx::Mul_61')"),
                                HasSubstr("do_constant_folding=False")));
  ModelRunner runner, kept;
  runner.run(traced("onnx::MatMul_4", "onnx::Mul_61"));
  EXPECT_THAT(runner.model->warnings, isNamed);
  kept.options.constants = {"onnx::Mul_61"};
  kept.run(traced("onnx::MatMul_4", "onnx::Mul_61"));
  EXPECT_THAT(kept.model->warnings, Not(isNamed));
  runner.run(traced("fc.weight", "scale"));
  EXPECT_THAT(runner.model->warnings, Each(Not(HasSubstr("has computed"))));
}

} // namespace
