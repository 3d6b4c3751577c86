//===- hostile_test.cpp - Files that are wrong, by accident or not ---------===//

#include "frontend/onnx/ExternalData.h"
#include "tests/frontend/ModelBuilder.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace tbc;
using namespace tbc::test;
using ::testing::HasSubstr;

namespace {

std::string readFile(const std::string &path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// relu(x)
ModelBuilder smallModel() {
  ModelBuilder model;
  model.input("x", {"batch", "4"});
  model.node("Relu", {"x"}, {"y"}, "the_relu");
  model.output("y");
  return model;
}

TEST(Hostile, SmallModelImports) { EXPECT_EQ(importError(smallModel().bytes()), ""); }

TEST(Hostile, EmptyFile) { EXPECT_THAT(importError(""), HasSubstr("empty")); }

TEST(Hostile, NotOnnx) {
  EXPECT_THAT(importError("this is a text file, not a model\n"), HasSubstr("not an ONNX model"));
  EXPECT_THAT(importError(std::string(100, '\0')), HasSubstr("not an ONNX model"));
  EXPECT_THAT(importError("\x7f"
                          "ELF\x02\x01\x01"),
              HasSubstr("at byte 0"));
}

/// Cut after every byte: each prefix is refused or, where it ends between two fields, a model.
TEST(Hostile, TruncatedAnywhere) {
  std::string whole = readFile(TBC_SOURCE_DIR "/models/tiny-mlp.onnx");
  ASSERT_GT(whole.size(), 1000u);
  unsigned refused = 0;
  for (size_t size = 0; size < whole.size(); size += size < 700 ? 1 : 97)
    refused += !importError(whole.substr(0, size)).empty();
  EXPECT_GT(refused, 900u);
  EXPECT_THAT(importError(whole.substr(0, whole.size() / 2)), HasSubstr("truncated"));
}

/// Any byte may change: the import says no or yes, and neither crashes nor hangs.
TEST(Hostile, MutatedBytes) {
  std::string whole = readFile(TBC_SOURCE_DIR "/models/tiny-mlp.onnx");
  uint64_t state = 1;
  for (int round = 0; round < 400; ++round) {
    std::string mutated = whole;
    for (int i = 0; i < 3; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      mutated[(state >> 33) % mutated.size()] = char(state >> 25);
    }
    importError(mutated);
  }
}

TEST(Hostile, Cycle) {
  ModelBuilder model;
  model.input("x", {"batch", "4"});
  model.node("Add", {"x", "c"}, {"a"}, "first");
  model.node("Relu", {"a"}, {"b"}, "second");
  model.node("Relu", {"b"}, {"c"}, "third");
  model.output("c");
  EXPECT_THAT(importError(model.bytes()), HasSubstr("cycle through node '"));
}

TEST(Hostile, Names) {
  ModelBuilder twice = smallModel();
  twice.node("Neg", {"x"}, {"y"}, "again");
  EXPECT_THAT(importError(twice.bytes()), HasSubstr("node 'again' (Neg) defines 'y'"));

  ModelBuilder missing = smallModel();
  missing.node("Neg", {"nowhere"}, {"z"}, "reader");
  EXPECT_THAT(importError(missing.bytes()), HasSubstr("node 'reader' (Neg) reads 'nowhere'"));

  ModelBuilder noOutput = smallModel();
  noOutput.proto.mutable_graph()->mutable_output(0)->set_name("nothing");
  EXPECT_THAT(importError(noOutput.bytes()), HasSubstr("graph output 'nothing'"));

  ModelBuilder longName = smallModel();
  longName.proto.mutable_graph()->mutable_node(0)->set_name(std::string(5000, 'n'));
  EXPECT_THAT(importError(longName.bytes()), HasSubstr("5000 bytes"));

  ModelBuilder notText = smallModel();
  notText.proto.mutable_graph()->mutable_node(0)->set_name("\xff\xfe");
  EXPECT_THAT(importError(notText.bytes()), HasSubstr("UTF-8"));
}

/// Names that differ only in what uniqueness adds must not take quadratic time.
TEST(Hostile, ManyNodesOfOneName) {
  ModelBuilder model;
  model.input("x", {"batch", "4"});
  std::string last = "x";
  for (int i = 0; i < 3000; ++i) {
    std::string next = "v" + std::to_string(i);
    model.node("Relu", {last}, {next}, "same");
    last = next;
  }
  model.output(last);
  EXPECT_EQ(importError(model.bytes()), "");
}

TEST(Hostile, AbsurdDims) {
  ModelBuilder input;
  input.input("x", {"batch", "9223372036854775807"});
  input.node("Relu", {"x"}, {"y"}, "r");
  input.output("y");
  EXPECT_THAT(importError(input.bytes()), HasSubstr("dim 1 of input 'x'"));

  ModelBuilder weight = smallModel();
  weight.external("w", {int64_t(1) << 40, int64_t(1) << 40}, "w.bin", "", "");
  weight.node("Add", {"x", "w"}, {"z"}, "a");
  EXPECT_THAT(importError(weight.bytes()), HasSubstr("tensor 'w' has more than 2^56 elements"));

  ModelBuilder negative = smallModel();
  negative.external("w", {-1, 4}, "w.bin", "", "");
  negative.node("Add", {"x", "w"}, {"z"}, "a");
  EXPECT_THAT(importError(negative.bytes()), HasSubstr("dim of size -1"));

  ModelBuilder expand = smallModel();
  expand.ints("shape", {3}, {int64_t(1) << 62, int64_t(1) << 62, 4});
  expand.node("Expand", {"y", "shape"}, {"huge"}, "the_expand");
  expand.node("Add", {"huge", "huge"}, {"sum"}, "the_sum");
  expand.node("Tanh", {"sum"}, {"z"}, "the_tanh");
  expand.output("huge");
  EXPECT_NE(importError(expand.bytes()), "");

  ModelBuilder range = smallModel();
  range.ints("zero", {}, {0});
  range.ints("limit", {}, {INT64_MAX});
  range.ints("one", {}, {1});
  range.node("Range", {"zero", "limit", "one"}, {"r"}, "the_range");
  EXPECT_THAT(importError(range.bytes()),
              HasSubstr("node 'the_range' (Range): counts through too many"));
}

/// Doubling a list of shapes forty times would take all memory.
TEST(Hostile, ExponentialConcat) {
  ModelBuilder model = smallModel();
  model.ints("c", {2}, {3, 5});
  std::string last = "c";
  for (int i = 0; i < 40; ++i) {
    std::string next = "c" + std::to_string(i);
    ModelBuilder::attr(model.node("Concat", {last, last}, {next}, "concat" + std::to_string(i)),
                       "axis", int64_t(0));
    last = next;
  }
  EXPECT_THAT(importError(model.bytes()), HasSubstr("concat"));
}

TEST(Hostile, WrongShapesAndTypes) {
  ModelBuilder gemm;
  gemm.input("x", {"batch", "4"});
  gemm.floats("w", {5, 2}, std::vector<float>(10, 1));
  gemm.node("Gemm", {"x", "w"}, {"y"}, "the_gemm");
  gemm.output("y");
  EXPECT_THAT(importError(gemm.bytes()), HasSubstr("node 'the_gemm' (Gemm): multiplies matrices of "
                                                   "shapes [batch, 4] and [5, 2]"));

  ModelBuilder data = smallModel();
  data.floats("w", {4}, {1, 2, 3});
  data.node("Add", {"x", "w"}, {"z"}, "a");
  EXPECT_THAT(importError(data.bytes()), HasSubstr("'w' has 12 bytes of data for shape"));

  ModelBuilder old(11);
  old.input("x", {"batch", "4"});
  old.node("Relu", {"x"}, {"y"});
  old.output("y");
  EXPECT_THAT(importError(old.bytes()), HasSubstr("operator set 11"));

  ModelBuilder noType = smallModel();
  noType.proto.mutable_graph()->mutable_node(0)->set_op_type("");
  EXPECT_THAT(importError(noType.bytes()), HasSubstr("node without an op type"));
}

TEST(Hostile, UnsupportedNodesAreAllNamed) {
  ModelBuilder model = smallModel();
  model.node("NonZero", {"x"}, {"a"}, "first");
  model.node("NonZero", {"x"}, {"b"}, "second");
  model.node("Mystery", {"x"}, {"c"}, "third").set_domain("com.example");
  std::string error = importError(model.bytes());
  EXPECT_THAT(error, HasSubstr("NonZero: first second"));
  EXPECT_THAT(error, HasSubstr("com.example.Mystery: third"));
}

TEST(Hostile, DeepNesting) {
  ModelBuilder model = smallModel();
  onnx::GraphProto *graph = model.proto.mutable_graph();
  for (int depth = 0; depth < 40; ++depth) {
    onnx::NodeProto &node = *graph->add_node();
    node.set_op_type("If");
    onnx::AttributeProto &attribute = *node.add_attribute();
    attribute.set_name("then_branch");
    graph = attribute.mutable_g();
    graph->set_name("g");
  }
  EXPECT_THAT(importError(model.bytes()), HasSubstr("nested more than 16 deep"));
}

/// Small objects that protobuf would blow up a hundredfold.
TEST(Hostile, TooManyObjects) {
  ModelBuilder model = smallModel();
  for (int i = 0; i < 400000; ++i)
    model.proto.mutable_graph()->add_initializer();
  EXPECT_THAT(importError(model.bytes()), HasSubstr("too many objects"));
}

TEST(Hostile, Options) {
  frontend::ImportOptions options;
  options.dims["sequenze"] = 4;
  EXPECT_THAT(importError(smallModel().bytes(), options), HasSubstr("it has batch"));
  options = {};
  options.fix["mask"] = "ones";
  EXPECT_THAT(importError(smallModel().bytes(), options), HasSubstr("no such input"));
}

TEST(Hostile, BatchAsANumberIsRefusedAtItsNode) {
  // y = x * batch: means something else at every batch size.
  ModelBuilder model;
  model.input("x", {"batch", "4"});
  ModelBuilder::attr(model.node("Shape", {"x"}, {"shape"}, "shape"), "end", int64_t(1));
  onnx::NodeProto &cast = model.node("Cast", {"shape"}, {"size"}, "cast");
  ModelBuilder::attr(cast, "to", int64_t(onnx::TensorProto::FLOAT));
  model.node("Mul", {"x", "size"}, {"y"}, "the_mul");
  model.output("y");
  EXPECT_THAT(importError(model.bytes()), HasSubstr("node 'the_mul' computes with the batch size"));
}

//===- external data -------------------------------------------------------===//

/// A model with one external weight of four floats at `location`, in a folder of its own.
class External : public ::testing::Test {
protected:
  std::string importWith(const std::string &location, const std::string &offset = "0",
                         const std::string &length = "16") {
    ModelBuilder model = smallModel();
    model.external("w", {4}, location, offset, length);
    model.node("Add", {"x", "w"}, {"z"}, "a");
    model.output("z");
    return importFileError(folder.write("m/model.onnx", model.bytes()), options);
  }
  TemporaryFolder folder;
  frontend::ImportOptions options;
  const std::string sixteen = std::string(16, 'd');
};

TEST_F(External, PresentOrAbsent) {
  EXPECT_EQ(importWith("w.bin"), "");
  folder.write("m/w.bin", sixteen);
  EXPECT_EQ(importWith("w.bin"), "");
  folder.write("m/sub/w.bin", sixteen);
  EXPECT_EQ(importWith("sub/w.bin"), "");
}

TEST_F(External, PathsThatLeave) {
  folder.write("secret", sixteen);
  folder.write("m/a/x", "");
  EXPECT_THAT(importWith("../secret"), HasSubstr("leaves the model's folder"));
  EXPECT_THAT(importWith("a/../../secret"), HasSubstr("leaves the model's folder"));
  EXPECT_THAT(importWith(folder.path("secret")), HasSubstr("absolute"));
  EXPECT_THAT(importWith("/dev/zero"), HasSubstr("absolute"));
  EXPECT_THAT(importWith(""), HasSubstr("no location"));
}

TEST_F(External, Links) {
  folder.write("secret", sixteen);
  folder.write("data/w.bin", sixteen);
  folder.write("m/x", "");
  ASSERT_EQ(::symlink("../secret", folder.path("m/soft").c_str()), 0);
  ASSERT_EQ(::symlink("../data", folder.path("m/folder").c_str()), 0);
  ASSERT_EQ(::link(folder.path("secret").c_str(), folder.path("m/hard").c_str()), 0);
  EXPECT_THAT(importWith("soft"), HasSubstr("symbolic link"));
  EXPECT_THAT(importWith("folder/w.bin"), HasSubstr("symbolic link"));
  EXPECT_THAT(importWith("hard"), HasSubstr("hard link"));

  // Permitted beneath a root that the user names, and only there.
  options.externalDataRoot = folder.path("");
  EXPECT_EQ(importWith("hard"), "");
  EXPECT_EQ(importWith("soft"), "");
  ASSERT_EQ(::symlink("/etc/passwd", folder.path("m/out").c_str()), 0);
  EXPECT_THAT(importWith("out"), HasSubstr("lies outside"));
}

TEST_F(External, Devices) {
  folder.write("m/x", "");
  ASSERT_EQ(::mkfifo(folder.path("m/fifo").c_str(), 0600), 0);
  EXPECT_THAT(importWith("fifo"), HasSubstr("not a regular file"));
  EXPECT_THAT(importWith("."), HasSubstr("not a file"));
}

TEST_F(External, Ranges) {
  folder.write("m/w.bin", sixteen);
  EXPECT_THAT(importWith("w.bin", "-1"), HasSubstr("offset '-1'"));
  EXPECT_THAT(importWith("w.bin", "0", "-1"), HasSubstr("length '-1'"));
  EXPECT_THAT(importWith("w.bin", "4"), HasSubstr("outside 'w.bin', which has 16"));
  EXPECT_THAT(importWith("w.bin", "9223372036854775807"), HasSubstr("out of range"));
  EXPECT_THAT(importWith("w.bin", "0", "12"), HasSubstr("length is 12"));
  EXPECT_THAT(importWith("w.bin", "0x0"), HasSubstr("not a number"));
  EXPECT_THAT(importWith("w.bin", "99999999999999999999"), HasSubstr("not a number"));
}

TEST_F(External, Overlaps) {
  ModelBuilder model = smallModel();
  model.external("v", {4}, "w.bin", "0", "16");
  model.external("w", {4}, "./w.bin", "12", "16");
  std::string path = folder.write("m/model.onnx", model.bytes());
  EXPECT_THAT(importFileError(path), HasSubstr("overlap those of tensor 'v'"));
}

/// The file is checked when it is opened to be read, not only when the model was imported.
TEST_F(External, SwappedAfterTheCheck) {
  std::string path = folder.write("m/w.bin", sixteen);
  folder.write("secret", sixteen);
  frontend::ParameterSource source;
  source.name = "w";
  source.shape = {4};
  source.bytes = 16;
  source.isExternal = true;
  source.directory = folder.path("m");
  source.location = "w.bin";
  EXPECT_TRUE(bool(frontend::loadParameter(source, kernels::Arith::Native)));
  std::filesystem::remove(path);
  ASSERT_EQ(::symlink("../secret", path.c_str()), 0);
  EXPECT_FALSE(bool(frontend::loadParameter(source, kernels::Arith::Native)));
  std::filesystem::remove(path);
  folder.write("m/w.bin", "short");
  EXPECT_FALSE(bool(frontend::loadParameter(source, kernels::Arith::Native)));
}

} // namespace
