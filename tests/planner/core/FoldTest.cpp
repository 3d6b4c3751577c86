//===- FoldTest.cpp - Repeated blocks and short lists of names -------------===//

#include "planner/graph/Fold.h"
#include "planner/graph/Recompute.h"
#include "planner/plan/ModelNames.h"
#include "planner/report/BlockNames.h"
#include "planner/support/IdList.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

using namespace tbc::planner;
using namespace tbc::planner::test;

TEST(Fold, FindsTheLayers) {
  Graph graph = makeChain({12});
  std::vector<Block> blocks = foldBlocks(graph);
  int covered = 0, repeated = 0;
  for (const Block &block : blocks) {
    EXPECT_EQ(block.first, covered);
    covered += block.length * block.count;
    repeated = std::max(repeated, block.count);
    if (block.count > 1)
      EXPECT_EQ(block.length, 12);
  }
  EXPECT_EQ(covered, numForwardOps(graph));
  // The first layer reads the embedding where others read a sum: same distance, so all twelve fold.
  EXPECT_EQ(repeated, 12);
}

TEST(Fold, NamesDoNotEnter) {
  Graph graph = makeChain({3});
  std::vector<uint64_t> before = structuralHashes(graph);
  for (auto &op : graph.ops)
    op.id = "x" + op.id;
  for (auto &value : graph.values) {
    value.name += "y";
    for (auto &dim : value.layout.dims)
      for (auto &segment : dim.segments)
        for (auto &factor : segment.factors)
          factor.id += 1000;
  }
  for (auto &op : graph.ops)
    for (auto &loop : op.loops)
      loop.factor += 1000;
  EXPECT_EQ(structuralHashes(graph), before);
}

TEST(Fold, DifferentSizesAreDifferentBlocks) {
  Graph graph = makeMlp(8, {16, 32, 64, 16});
  for (const Block &block : foldBlocks(graph))
    EXPECT_EQ(block.count, 1);
  graph = makeMlp(8, {16, 16, 16, 16, 16});
  bool repeats = false;
  for (const Block &block : foldBlocks(graph))
    repeats |= block.count >= 3;
  EXPECT_TRUE(repeats);
}

/// The names of the blocks of a chain with forward ops in `moduleOf(layer, op of the layer)`. Ops
/// before and behind the layers have layer -1 and the number of layers.
static std::vector<std::string> namesOf(int layers,
                                        const std::function<std::string(int, int)> &moduleOf) {
  Graph graph = makeChain({layers});
  const std::vector<Block> blocks = foldBlocks(graph);
  int first = 0;
  for (const Block &block : blocks)
    if (block.count > 1)
      first = block.first;
  auto modules = std::make_shared<ModelNames>();
  for (int op = 0; op < numForwardOps(graph); ++op) {
    int at = op - first;
    modules->modules[graph.ops[op].id] = at < 0 ? moduleOf(-1, 0) : moduleOf(at / 12, at % 12);
  }
  Job job;
  job.names = modules;
  BlockNames names(graph, job);
  std::vector<std::string> result;
  for (const Block &block : blocks)
    result.push_back(names.modulesOf(block));
  return result;
}

TEST(BlockNames, RepeatsHaveAStarAndTheOthersTheirModules) {
  auto module = [](int layer, int op) -> std::string {
    if (layer < 0)
      return "transformer.wte";
    if (layer >= 4)
      return "head";
    std::string base = "transformer.h." + std::to_string(layer);
    return base + (op < 6 ? ".attn.proj" : ".mlp");
  };
  std::vector<std::string> names = namesOf(4, module);
  ASSERT_EQ(names.size(), 3u);
  EXPECT_EQ(names[0], "transformer.wte");
  EXPECT_EQ(names[1], "transformer.h.*");
  EXPECT_EQ(names[2], "head");
}

TEST(BlockNames, AShiftedPeriodIsStillTheLayers) {
  // The last third of each repeat belongs to the next layer, and modules end in numbers.
  auto module = [](int layer, int op) {
    return layer < 0 ? std::string("stem") : "layer" + std::to_string(layer + (op >= 8));
  };
  EXPECT_EQ(namesOf(4, module)[1], "layer*");
}

TEST(BlockNames, WithoutModulesThereIsNoName) {
  for (const std::string &name : namesOf(3, [](int, int) { return std::string(); }))
    EXPECT_EQ(name, "");
}

TEST(BlockNames, RepeatsOfTheSameModuleAreNamedByIt) {
  // Repeats with shared weights have no number to tell them apart.
  EXPECT_EQ(
      namesOf(3, [](int layer, int) { return layer < 0 || layer >= 3 ? "a" : "shared.block"; })[1],
      "shared");
}

namespace {

/// x -> stem -> add_7, then norm -> mul_3 -> out beside query -> tail, and the loss of their sum.
struct Placed {
  Graph graph;
  ModelNames names;

  Placed() {
    StepBuilder builder;
    FactorId batch = builder.factor(4), wide = builder.factor(8);
    int x = builder.input("x", {{batch}, {wide}});
    int stem = builder.unary("stem", x), sum = builder.unary("add_7", stem);
    int norm = builder.unary("norm", sum), query = builder.unary("query", sum);
    int out = builder.unary("out", builder.unary("mul_3", norm));
    int join = builder.add("join", out, builder.unary("tail", query));
    builder.loss("loss", join, builder.input("labels", {{batch}}));
    graph = builder.finish(batch);
  }

  std::string shown(const std::string &id) {
    placeByReaders(graph, names);
    Job job;
    job.names = std::make_shared<ModelNames>(names);
    for (size_t op = 0; op < graph.ops.size(); ++op)
      if (graph.ops[op].id == id)
        return shownModuleOf(job, graph, int(op));
    return "no such op";
  }
};

} // namespace

TEST(ModelNames, AnOpWithoutAModuleIsShownAroundItsReaders) {
  Placed placed;
  placed.names.modules = {{"stem", "embed"},
                          {"norm", "h.1.ln_1"},
                          {"query", "h.1.attn"},
                          {"out", "h.1.mlp"},
                          {"tail", "head"}};
  EXPECT_EQ(placed.shown("add_7"), "h.1");
  EXPECT_EQ(placed.shown("mul_3"), "h.1.mlp");
  EXPECT_EQ(placed.shown("stem"), "embed"); // the exporter's own
}

TEST(ModelNames, PlacesAreFoundThroughOpsWithoutAModule) {
  Placed placed;
  placed.names.modules = {{"out", "h.1.mlp"}};
  for (const char *id : {"stem", "add_7", "norm", "mul_3"})
    EXPECT_EQ(placed.shown(id), "h.1.mlp") << id;
  // Behind the last reader of a module the producers tell it.
  EXPECT_EQ(placed.shown("tail"), "h.1.mlp");
}

TEST(ModelNames, ReadersThatShareNoModuleLeaveItToTheProducers) {
  Placed placed;
  placed.names.modules = {{"stem", "embed"}, {"norm", "left"}, {"query", "right"}};
  EXPECT_EQ(placed.shown("add_7"), "embed");
  placed.names.modules.erase("stem");
  placed.names.placed.clear();
  EXPECT_EQ(placed.shown("add_7"), "");
}

TEST(ModelNames, StagesThatBeginInOneModuleHaveNamesOfTheirOwn) {
  Placed placed;
  placed.names.modules = {{"stem", "embed"}, {"norm", "h.1"}, {"mul_3", "h.1"}};
  Job job;
  job.names = std::make_shared<ModelNames>(placed.names);
  EXPECT_EQ(stageNames(placed.graph, job, {"stem", "norm", "mul_3", "tail"}),
            (std::vector<std::string>{"embed", "h.1 (norm)", "h.1 (mul_3)", "tail"}));
}

static std::vector<std::string> roundTrip(const std::vector<std::string> &ids) {
  auto expanded = expandIds(compressIds(ids));
  EXPECT_TRUE(expanded);
  return expanded ? *expanded : std::vector<std::string>();
}

TEST(IdList, FoldsProgressions) {
  EXPECT_EQ(compressIds({"h.0.fc", "h.1.fc", "h.2.fc", "h.3.fc"}),
            (std::vector<std::string>{"h.{0..3}.fc"}));
  EXPECT_EQ(compressIds({"n3", "n12", "n21", "n30"}), (std::vector<std::string>{"n{3..30..9}"}));
  EXPECT_EQ(compressIds({"a", "b{1}", "n1", "n2"}),
            (std::vector<std::string>{"a", "b{{1}}", "n1", "n2"}));
}

TEST(IdList, RoundTripsAnySet) {
  std::mt19937_64 random(5);
  const std::vector<std::string> pieces = {"h.", "0",  "1",   "2",           "10", "007", "{",
                                           "}",  "..", "/a_", "99999999999", "x",  "-"};
  for (int round = 0; round < 300; ++round) {
    std::set<std::string> ids;
    for (size_t i = 0; i < random() % 40; ++i) {
      std::string id;
      for (size_t k = 0; k < 1 + random() % 5; ++k)
        id += pieces[random() % pieces.size()];
      ids.insert(id);
    }
    std::vector<std::string> list(ids.begin(), ids.end());
    EXPECT_EQ(roundTrip(list), list);
    std::vector<std::string> reversed(ids.rbegin(), ids.rend());
    EXPECT_EQ(compressIds(reversed), compressIds(list));
  }
}

TEST(IdList, RefusesNonsense) {
  for (const char *pattern : {"{", "}", "{0..}", "{..3}", "{3..1}", "{0..3..0}", "{0..3}{0..3}",
                              "{0..999999999}", "{a}", "{0..3"})
    EXPECT_FALSE(expandIds({pattern})) << pattern;
}
