//===- crafted_test.cpp - Every corpus file is refused for its fault ------===//

#include "tests/hostile/Corpus.h"
#include "tests/hostile/Import.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

using namespace tbc;
using namespace tbc::test;
using ::testing::HasSubstr;

namespace {

std::string readWhole(const std::string &path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST(HostileCorpus, HasTwoHundredDifferentFiles) {
  std::set<std::string> names;
  int refused = 0;
  for (const HostileFile &file : hostileFiles()) {
    EXPECT_TRUE(names.insert(file.name).second) << file.name << " is there twice";
    refused += !file.expected.empty();
  }
  EXPECT_GE(refused, 200);
}

TEST(HostileCorpus, EachIsRefusedWithItsReason) {
  TemporaryFolder folder;
  double worst = 0;
  std::string slowest;
  for (const HostileFile &file : hostileFiles()) {
    SCOPED_TRACE(file.name);
    std::string path = folder.write("model.onnx", file.bytes);
    ImportOutcome outcome = importOutcome(path);
    if (file.expected.empty()) {
      EXPECT_EQ(outcome.code, 0) << outcome.message;
    } else {
      EXPECT_EQ(outcome.code, int(ErrorCode::ModelRejected)) << outcome.message;
      EXPECT_THAT(outcome.message, HasSubstr(file.expected));
      EXPECT_THAT(outcome.message, HasSubstr(path));
      EXPECT_TRUE(namesAPlace(outcome.message)) << outcome.message;
      EXPECT_LT(outcome.message.size(), 100000u);
    }
    EXPECT_LT(outcome.seconds, maxSeconds());
    if (outcome.seconds > worst) {
      worst = outcome.seconds;
      slowest = file.name;
    }
  }
  std::cout << "slowest: " << slowest << ", " << worst << " s\n";
}

/// Truncates after every byte. Each prefix is refused, or is a model if it ends between two fields.
TEST(HostileModel, TruncatedAnywhere) {
  std::string whole = readWhole(TBC_SOURCE_DIR "/models/tiny-mlp.onnx");
  ASSERT_GT(whole.size(), 1000u);
  unsigned refused = 0;
  for (size_t size = 0; size < whole.size(); size += size < 700 ? 1 : 97)
    refused += !importError(whole.substr(0, size)).empty();
  EXPECT_GT(refused, 900u);
  EXPECT_THAT(importError(whole.substr(0, whole.size() / 2)), HasSubstr("truncated"));
}

/// As many named nodes as in large exports are accepted.
TEST(HostileModel, LongChainsAreRead) {
  ModelBuilder chain;
  chain.input("v0", {"batch", "4"});
  const int length = 100000;
  for (int i = 0; i < length; ++i)
    chain.node("Relu", {"v" + std::to_string(i)}, {"v" + std::to_string(i + 1)},
               "node_" + std::to_string(i));
  chain.output("v" + std::to_string(length));
  EXPECT_EQ(importError(chain.bytes()), "");
}

TEST(HostileModel, Options) {
  frontend::ImportOptions options;
  options.dims["sequenze"] = 4;
  EXPECT_THAT(importError(reluModel().bytes(), options), HasSubstr("it has batch"));
  options = {};
  options.fix["mask"] = "ones";
  EXPECT_THAT(importError(reluModel().bytes(), options), HasSubstr("no such input"));
}

TEST(HostileModel, BatchAsANumberIsRefusedAtItsNode) {
  // y = x * batch has another meaning at every batch size.
  ModelBuilder model;
  model.input("x", {"batch", "4"});
  ModelBuilder::attr(model.node("Shape", {"x"}, {"shape"}, "shape"), "end", int64_t(1));
  onnx::NodeProto &cast = model.node("Cast", {"shape"}, {"size"}, "cast");
  ModelBuilder::attr(cast, "to", int64_t(onnx::TensorProto::FLOAT));
  model.node("Mul", {"x", "size"}, {"y"}, "the_mul");
  model.output("y");
  EXPECT_THAT(importError(model.bytes()), HasSubstr("node 'the_mul' computes with the batch size"));
}

/// Writes the corpus to the folder in TBC_CORPUS_FOLDER, for inspection or fuzzing.
TEST(HostileCorpus, CanBeWritten) {
  const char *folder = std::getenv("TBC_CORPUS_FOLDER");
  if (!folder)
    return;
  for (const HostileFile &file : hostileFiles())
    std::ofstream(std::string(folder) + "/" + file.name + ".onnx", std::ios::binary) << file.bytes;
}

} // namespace
