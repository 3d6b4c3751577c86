//===- ties_test.cpp - Parameters stored twice -----------------------------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>

using namespace tbc;
using namespace tbc::test;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

constexpr int64_t vocabulary = 16, width = 8;

/// Embedding, a layer, and a head. If `isCopy`, the head is the embedding's transpose, stored once
/// more.
ModelBuilder tiedModel(const std::string &headName, bool isCopy) {
  ModelBuilder b;
  b.input("tokens", {"batch", "seq"}, /*isFloat=*/false);
  b.output("logits");
  std::vector<float> table(vocabulary * width), head(vocabulary * width), layer(width * width);
  for (int64_t i = 0; i < vocabulary; ++i)
    for (int64_t j = 0; j < width; ++j) {
      table[i * width + j] = float((i * 7 + j * 3) % 11) / 8 - 0.5f;
      head[j * vocabulary + i] = table[i * width + j];
    }
  if (!isCopy)
    head[5] += 0.5f;
  for (int64_t i = 0; i < width * width; ++i)
    layer[i] = float(i % 5) / 16;
  b.floats("table", {vocabulary, width}, table);
  b.floats("layer", {width, width}, layer);
  b.floats(headName, {width, vocabulary}, head);
  b.node("Gather", {"table", "tokens"}, {"e"}, "embed");
  b.node("MatMul", {"e", "layer"}, {"h"}, "hidden");
  b.node("Tanh", {"h"}, {"t"}, "tanh");
  b.node("MatMul", {"t", headName}, {"logits"}, "head");
  return b;
}

class Ties : public ::testing::Test {
protected:
  std::vector<double> run(const ModelBuilder &builder, const std::vector<std::string> &ties) {
    runner.options.seq = 4;
    runner.options.ties = ties;
    return runner.run(builder);
  }
  ModelRunner runner;
};

TEST_F(Ties, JoinATransposedCopy) {
  std::vector<double> apart = run(tiedModel("head_weight", true), {});
  EXPECT_EQ(runner.model->parameters.size(), 3u);
  EXPECT_THAT(runner.model->warnings,
              Contains(HasSubstr("'head_weight' holds the data of 'table' transposed")));
  std::vector<double> joined = run(tiedModel("head_weight", true), {"head_weight=table^T"});
  EXPECT_EQ(runner.model->parameters.size(), 2u);
  EXPECT_THAT(runner.model->warnings, Not(Contains(HasSubstr("holds the data"))));
  EXPECT_EQ(apart, joined);
}

TEST_F(Ties, DifferentDataIsNoCopy) {
  run(tiedModel("head_weight", false), {});
  EXPECT_THAT(runner.model->warnings, Not(Contains(HasSubstr("holds the data"))));
}

/// Without data only the tracing exporter's name for a transposed weight shows the tie.
TEST_F(Ties, NamesSuggestACopyWhereTheDataIsAbsent) {
  for (auto [name, isSuspect] : {std::pair("onnx::MatMul_99", true), std::pair("val_99", false)}) {
    ModelBuilder b = tiedModel(name, true);
    int number = 0;
    for (onnx::TensorProto &tensor : *b.proto.mutable_graph()->mutable_initializer()) {
      tensor.clear_raw_data();
      tensor.set_data_location(onnx::TensorProto::EXTERNAL);
      onnx::StringStringEntryProto &entry = *tensor.add_external_data();
      entry.set_key("location");
      entry.set_value(std::to_string(number++) + ".data");
    }
    frontend::ImportOptions options;
    options.seq = 4;
    mlir::MLIRContext context;
    TemporaryFolder folder;
    auto model = frontend::importOnnx(context, folder.write("m.onnx", b.bytes()), options);
    ASSERT_TRUE(bool(model)) << model.error().message;
    auto matcher = Contains(HasSubstr("may be a copy of 'table' transposed"));
    if (isSuspect) {
      EXPECT_THAT(model->warnings, matcher);
    } else {
      EXPECT_THAT(model->warnings, Not(matcher));
    }
  }
}

/// As the dynamo exporter writes a tied table: a record says of which parameter the head is made.
ModelBuilder recordedModel(int64_t rows, const std::string &source, bool isCopy = true) {
  ModelBuilder b;
  b.input("tokens", {"batch", "seq"}, /*isFloat=*/false);
  b.output("logits");
  std::vector<float> table(rows * width), head(rows * width);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < width; ++j)
      table[i * width + j] = head[j * rows + i] = float((i * 7 + j * 3) % 11) / 8 - 0.5f;
  if (!isCopy)
    head[5] += 0.5f;
  b.floats("head.weight", {rows, width}, table);
  b.floats("val_2", {width, rows}, head);
  b.node("Gather", {"head.weight", "tokens"}, {"e"}, "embed");
  b.node("Tanh", {"e"}, {"t"}, "tanh");
  b.node("MatMul", {"t", "val_2"}, {"logits"}, "head");
  for (auto [name, key, value] :
       {std::tuple{"head.weight", "pkg.torch.export.graph_signature.InputSpec.kind",
                   std::string("PARAMETER")},
        {"val_2", "pkg.onnxscript.optimizer.folded_from", "['" + source + "']"}}) {
    onnx::ValueInfoProto &info = *b.proto.mutable_graph()->add_value_info();
    info.set_name(name);
    onnx::StringStringEntryProto &entry = *info.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }
  return b;
}

TEST_F(Ties, ARecordOfTheExporterJoinsATable) {
  const auto isNoted = Contains(HasSubstr("'val_2' is 'head.weight' transposed, as the file says"));
  const std::vector<double> joined = run(recordedModel(256, "head.weight"), {});
  EXPECT_EQ(runner.model->parameters.size(), 1u);
  EXPECT_THAT(runner.model->notes, isNoted);
  EXPECT_THAT(runner.model->warnings, Not(Contains(HasSubstr("holds the data"))));
  EXPECT_EQ(joined, run(recordedModel(256, "head.weight"), {"val_2=head.weight^T"}));
  EXPECT_THAT(runner.model->notes, Not(isNoted));
  // A head of its own, changed after the export, and small ones, which may be equal by chance.
  for (const ModelBuilder &b :
       {recordedModel(256, "lm_head.weight"), recordedModel(256, "head.weight", false),
        recordedModel(16, "head.weight")}) {
    run(b, {});
    EXPECT_EQ(runner.model->parameters.size(), 2u);
    EXPECT_THAT(runner.model->notes, Not(isNoted));
  }
}

TEST_F(Ties, MistakesAreErrors) {
  auto errorOf = [](const std::string &tie, bool isCopy = true) {
    frontend::ImportOptions options;
    options.seq = 4;
    options.ties = {tie};
    return importError(tiedModel("head_weight", isCopy).bytes(), options);
  };
  EXPECT_THAT(errorOf("head_weight"), HasSubstr("expected A=B"));
  EXPECT_THAT(errorOf("head_weight=tabel^T"), HasSubstr("no parameter 'tabel'"));
  EXPECT_THAT(errorOf("head_weight=table"),
              HasSubstr("'head_weight' is 8x16xf32, but 'table' is 16x8xf32"));
  EXPECT_THAT(errorOf("table=table"), HasSubstr("both names mean"));
  EXPECT_THAT(errorOf("head_weight=table^T", false), HasSubstr("different data"));
  frontend::ImportOptions chain;
  chain.ties = {"head_weight=table^T", "table=head_weight^T"};
  EXPECT_THAT(importError(tiedModel("head_weight", true).bytes(), chain),
              HasSubstr("tied to 'table' already"));
}

#ifdef TBC_PROGRAM // the rest of the compiler is there

/// A plan keeps the tie, and the parallel program of the tied model is the serial one.
TEST_F(Ties, PlanKeepsThemAndVerifies) {
  TemporaryFolder folder;
  folder.write("m.onnx", tiedModel("head_weight", true).bytes());
  auto tbc = [&](const std::string &arguments) {
    std::string line = "cd '" + folder.path("") + "' && " TBC_PROGRAM " " + arguments +
                       " >out.txt 2>&1 </dev/null";
    int code = std::system(line.c_str());
    std::ifstream file(folder.path("out.txt"));
    std::ostringstream text;
    text << file.rdbuf();
    EXPECT_EQ(code, 0) << text.str();
    return text.str();
  };
  tbc("plan m.onnx --gpus 4 --mesh fsdp=2,tp=2 --batch 8 --micro-batch 1 --seq 4 --precision f32 "
      "--tie 'head_weight=table^T' -o plan.json");
  std::ifstream plan(folder.path("plan.json"));
  std::stringstream text;
  text << plan.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("tie head_weight=table^T"));
  EXPECT_THAT(tbc("verify plan.json"), HasSubstr("verified"));
}

#endif

} // namespace
