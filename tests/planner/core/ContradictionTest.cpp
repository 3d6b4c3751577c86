//===- ContradictionTest.cpp - Pins that cannot hold together --------------===//

#include "tests/planner/core/RefusedSearch.h"
#include "tests/planner/core/StepBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using testing::AllOf;
using testing::HasSubstr;

TEST(Pins, ImpossibleMeshesAreUsageErrors) {
  Graph graph = makeMlp(1, {8, 8, 8});
  Pins pins;
  pins.mesh = {{"dp", 3}};
  EXPECT_THAT(errorOf(graph, jobFor(4, 12), pins), HasSubstr("3 ranks, but --gpus is 4"));
  pins.mesh = {{"dp", 4}};
  EXPECT_THAT(errorOf(graph, jobFor(4, 6), pins), HasSubstr("do not divide --batch 6"));
  EXPECT_THAT(errorOf(graph, jobFor(0, 6), {}), HasSubstr("--gpus 0"));
  EXPECT_THAT(errorOf(graph, jobFor(4, 0), {}), HasSubstr("--batch 0"));
}

TEST(Pins, ContradictionsNameBoth) {
  Graph graph = makeMlp(1, {8, 8, 8});
  auto message = [&](auto edit) {
    Pins pins;
    edit(pins);
    return errorOf(graph, jobFor(4, 8), pins);
  };
  EXPECT_THAT(message([](Pins &p) {
                p.strategy = "ddp";
                p.zero = 2;
              }),
              AllOf(HasSubstr("--strategy ddp"), HasSubstr("--zero is 2")));
  EXPECT_THAT(message([](Pins &p) {
                p.strategy = "tp";
                p.mesh = {{"dp", 2}, {"tp", 2}};
              }),
              AllOf(HasSubstr("--strategy tp"), HasSubstr("--mesh dp=2,tp=2")));
  EXPECT_THAT(
      message([](Pins &p) {
        p.microBatch = 3;
        p.mesh = {{"dp", 4}};
      }),
      AllOf(HasSubstr("--micro-batch 3"), HasSubstr("--mesh dp=4"), HasSubstr("--batch 8")));
  EXPECT_THAT(message([](Pins &p) { p.strategy = "zero4"; }), HasSubstr("did you mean zero1?"));
  EXPECT_THAT(message([](Pins &p) { p.schedule = "1f2b"; }), HasSubstr("did you mean 1f1b?"));
  EXPECT_THAT(message([](Pins &p) { p.recompute = "selectiv"; }),
              HasSubstr("did you mean selective?"));
  EXPECT_THAT(message([](Pins &p) { p.zero = 4; }), HasSubstr("--zero 4"));
}

TEST(Pins, SchedulesThatContradictAreNamed) {
  Graph graph = makeChain({8});
  auto message = [&](const std::function<void(Pins &)> &pin, int64_t batch = 16) {
    Pins pins;
    pins.mesh = *parseMesh("pp=4");
    pin(pins);
    Result<SearchAnswer> answer = search(graph, jobFor(4, batch), smallCluster(), pins);
    return answer ? "no error" : answer.error().message;
  };
  EXPECT_THAT(message([](Pins &p) {
                p.schedule = "1f1b";
                p.virtualStages = 2;
              }),
              AllOf(HasSubstr("--schedule 1f1b"), HasSubstr("--virtual-stages 2")));
  EXPECT_THAT(message([](Pins &p) {
                p.schedule = "interleaved";
                p.virtualStages = 1;
              }),
              AllOf(HasSubstr("--schedule interleaved"), HasSubstr("--virtual-stages 1")));
  EXPECT_THAT(message([](Pins &p) { p.placement = "w"; }), HasSubstr("placements are loop, v"));
  EXPECT_THAT(message([](Pins &p) {
                p.mesh = *parseMesh("dp=4");
                p.schedule = "zero-bubble";
              }),
              HasSubstr("of which --mesh has none"));
  EXPECT_THAT(message(
                  [](Pins &p) {
                    p.schedule = "interleaved";
                    p.microBatch = 1;
                  },
                  6),
              HasSubstr("micro-batches that its 4 stages divide, not 6"));
}

TEST(Pins, ReadMeshesAndBytes) {
  EXPECT_EQ(parseMesh("dp=2,tp=4")->size(), 2u);
  for (const char *text : {"", "dp", "dp=", "dp=0", "dp=2,", "dp=2,dp=2", "xp=2", "dp=2;tp=2",
                           "dp=-1", "dp=99999999999999999999", "=2", "dp=2 "})
    EXPECT_FALSE(parseMesh(text)) << text;
  EXPECT_EQ(*parseBytes("40GiB"), int64_t(40) << 30);
  EXPECT_EQ(*parseBytes("1.5KiB"), 1536);
  EXPECT_EQ(*parseBytes("80GB"), 80000000000);
  EXPECT_EQ(*parseBytes("123"), 123);
  for (const char *text : {"", "GiB", "40gib", "-1GiB", "4O GiB", ".", "1e9", "0", "1.2.3GiB"})
    EXPECT_FALSE(parseBytes(text)) << text;
}

TEST(Pins, DefaultsOfPinnedMeshes) {
  Graph graph = makeMlp(1, {8, 8, 8});
  auto zeroOf = [&](const char *mesh) {
    Pins pins;
    pins.mesh = *parseMesh(mesh);
    return search(graph, jobFor(4, 8), smallCluster(), pins)->plan.parameterDefault.zero;
  };
  EXPECT_EQ(zeroOf("dp=4"), 0);
  EXPECT_EQ(zeroOf("fsdp=4"), 3);
  EXPECT_EQ(zeroOf("dp=2,fsdp=2"), 3);
}
