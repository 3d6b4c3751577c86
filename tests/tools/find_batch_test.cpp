//===- find_batch_test.cpp - The largest batch, and unlike devices --------===//

#include "tests/tools/CliFixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <regex>
#include <string>
#include <utility>

using tbc::test::Cli;
using tbc::test::Outcome;
using tbc::test::readAll;
using testing::HasSubstr;

namespace {

/// Returns the batch of the plan in `text`, a number in JSON.
int64_t batchOf(const std::string &text) {
  size_t at = text.find("\"batch\":");
  return at == std::string::npos ? 0 : std::strtoll(text.c_str() + at + 8, nullptr, 10);
}

TEST_F(Cli, FindsTheLargestBatch) {
  for (const char *mesh : {"dp=2", "pp=2", "fsdp=2,tp=2"}) {
    bool isPipeline = std::string(mesh) == "pp=2";
    std::string flags = "plan " + model("tiny-gpt2") + " --cluster cpu-local --seq 16 " +
                        "--precision f32 --recompute none --memory-limit 1GiB --mesh " + mesh +
                        " --gpus " + (std::string(mesh).size() > 5 ? "4" : "2");
    Outcome found = tbc(flags + " --find-batch-size -o plan.json");
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.out, HasSubstr("the largest that fits without accumulation"));
    EXPECT_THAT(found.out, HasSubstr("of 1.00 GiB per device, most of it "));
    int64_t batch = batchOf(readAll(folder / "plan.json"));
    ASSERT_GT(batch, 2);
    // Two more units do not fit; the batch itself does.
    for (int64_t more : {0, 4}) {
      std::string all = std::to_string(batch + more);
      Outcome plan =
          tbc(flags + " --batch " + all + " --pin accumulation=" + (isPipeline ? "2" : "1"));
      EXPECT_EQ(plan.code, more ? 4 : 0) << mesh << " " << all << plan.err;
    }
  }
}

TEST_F(Cli, FindBatchSizeRefusals) {
  std::string flags = "plan " + model("tiny-gpt2") + " --gpus 2 --mesh dp=2 --seq 16 ";
  EXPECT_EQ(tbc(flags + "--find-batch-size --batch 4").code, 2);
  EXPECT_EQ(tbc(flags + "--find-batch-size --micro-batch 4").code, 2);
  EXPECT_EQ(tbc(flags + "--trial").code, 2);
  Outcome small = tbc(flags + "--cluster cpu-local --memory-limit 1MiB --find-batch-size");
  EXPECT_EQ(small.code, 4);
  EXPECT_THAT(small.err, HasSubstr("a batch of 2 would take"));
  // Plans for other devices are not tried on this machine.
  Outcome large = tbc(flags + "--cluster b200 --find-batch-size --trial");
  EXPECT_EQ(large.code, 2);
  EXPECT_THAT(large.err, HasSubstr("this machine has"));
}

TEST_F(Cli, ABatchIsTriedBeforeItIsAnsweredWith) {
  Outcome found = tbc("plan " + model("tiny-gpt2") +
                      " --gpus 2 --mesh dp=2 --cluster cpu-local --seq 16 --precision f32 "
                      "--memory-limit 300MiB --find-batch-size --trial -o plan.json");
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_THAT(found.out, HasSubstr("a trial of batch " +
                                   std::to_string(batchOf(readAll(folder / "plan.json")))));
  EXPECT_THAT(found.out, HasSubstr("on the fullest rank, predicted"));
}

/// One stage on each of two device types: planned, read, verified and run on this machine.
TEST_F(Cli, StagesOnUnlikeDevices) {
  std::ofstream(folder / "mixed.toml")
      << "name = \"mixed\"\ndescription = \"two types\"\n[[nodes]]\ncluster = \"l40s\"\ncount = 1\n"
         "devices_per_node = 2\n[[nodes]]\ncluster = \"l4\"\ncount = 1\ndevices_per_node = 2\n";
  const std::string flags = "plan " + model("tiny-mlp") + " --cluster mixed.toml --gpus 4 ";
  Outcome whole = tbc(flags + "--batch 16 --mesh dp=4");
  EXPECT_EQ(whole.code, 2);
  EXPECT_THAT(whole.err, HasSubstr("ranks 0 to 3, would be 2 x l40s and 2 x l4"));
  EXPECT_THAT(whole.err, HasSubstr("pp=2"));
  Outcome plan = tbc(flags + "--batch 16 --micro-batch 4 --mesh pp=4 --precision f32 -o plan.json");
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out,
              HasSubstr("  stages 0 to 1 on 1 x l40s each\n  stages 2 to 3 on 1 x l4 each\n"));
  EXPECT_EQ(tbc("explain plan.json --memory").code, 0);
  for (const char *ranks : {"", " --ranks 2"}) { // merged stages, possibly of several types
    Outcome verify = tbc(std::string("verify plan.json") + ranks);
    EXPECT_EQ(verify.code, 0) << verify.err << verify.out;
    EXPECT_THAT(verify.out, HasSubstr("verified"));
  }
  Outcome many = tbc(flags + "--gpus 8");
  EXPECT_EQ(many.code, 2);
}

#if defined(__SANITIZE_ADDRESS__)
static constexpr bool isSanitized = true;
#elif defined(__has_feature)
static constexpr bool isSanitized = __has_feature(address_sanitizer);
#else
static constexpr bool isSanitized = false;
#endif

/// A trial on heterogeneous devices holds each rank to its own stage's limit. The first has twice
/// the memory of the second, which is nearer to its limit.
TEST_F(Cli, TrialsOnUnlikeDevices) {
  if (isSanitized)
    GTEST_SKIP() << "ranks hold what a sanitizer takes besides";
  const std::string own = tbc("cluster cpu-local").out;
  const std::string memory = "memory_bytes = ";
  for (const auto &[name, bytes] : {std::pair("large", "300000000"), {"small", "150000000"}}) {
    std::string text = own;
    size_t at = text.find("\n" + memory) + 1;
    text.replace(at, text.find('\n', at) - at, memory + bytes);
    text.replace(text.find("\"cpu-local\""), 11, "\"" + std::string(name) + "\"");
    write(std::string(name) + ".toml", text);
  }
  write("mixed.toml", "name = \"mixed\"\ndescription = \"two types\"\n"
                      "[[nodes]]\ncluster = \"large.toml\"\ncount = 1\ndevices_per_node = 1\n"
                      "[[nodes]]\ncluster = \"small.toml\"\ncount = 1\ndevices_per_node = 1\n");
  Outcome found = tbc("plan " + model("tiny-gpt2") +
                      " --gpus 2 --mesh pp=2 --cluster mixed.toml --seq 16 --precision f32 "
                      "--recompute none --schedule 1f1b --find-batch-size --trial -o plan.json");
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_THAT(found.out, HasSubstr("of 140 MiB on the fullest rank"));
  std::smatch stage;
  const std::regex bytes("\n  stage 0 from .*, ([0-9]+) MiB\n");
  ASSERT_TRUE(std::regex_search(found.out, stage, bytes)) << found.out;
  EXPECT_GT(std::stoi(stage[1]), 140) << found.out;
}

} // namespace
