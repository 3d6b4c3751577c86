//===- OmitRepeatsTest.cpp - Repeated blocks that a smaller model leaves out ===//

#include "planner/graph/OmitRepeats.h"
#include "planner/graph/Recompute.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

#include <functional>
#include <tuple>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;
using namespace tbc::reshard;

namespace {

constexpr int opsOfLayer = 12;

/// The layer of an op "h.N.name", or -1.
int layerOf(const GraphOp &op) {
  return op.id.rfind("h.", 0) == 0 ? std::stoi(op.id.substr(2)) : -1;
}

OmittedRepeats omitFrom(const Graph &graph, const std::function<int(int)> &decisionOfLayer,
                        const std::function<int(int)> &chunkOfLayer) {
  OpDecisions decisions;
  const int numForward = numForwardOps(graph);
  for (int op = 0; op < numForward; ++op) {
    const int layer = layerOf(graph.ops[size_t(op)]);
    decisions.numbers.push_back(layer < 0 ? 0 : uint64_t(decisionOfLayer(layer)));
    decisions.chunks.push_back(layer < 0 ? 0 : chunkOfLayer(layer));
  }
  return omitRepeats(graph, std::vector<uint64_t>(size_t(numForward), 0), decisions);
}

int none(int) { return 0; }

std::set<int> keptLayers(const Graph &graph, const OmittedRepeats &omitted) {
  std::set<int> layers;
  for (size_t op = 0; op < omitted.isOmitted.size(); ++op)
    if (!omitted.isOmitted[op])
      layers.insert(layerOf(graph.ops[op]));
  layers.erase(-1);
  return layers;
}

/// An operand: the number of its producer among the kept ops and of its result there, or -1 and the
/// role of an argument.
using Read = std::tuple<int, int>;
using ForwardOp = std::pair<std::string, std::vector<Read>>;

/// The kept ops with what they read.
std::vector<ForwardOp> forwardOf(const Graph &graph, const OmittedRepeats &omitted) {
  std::vector<int> number(graph.ops.size(), -1);
  std::map<std::pair<int, int>, int> reads;
  for (const OmittedRepeats::Read &read : omitted.reads)
    reads[{read.op, read.operand}] = read.value;
  std::vector<ForwardOp> ops;
  for (int op = 0; op < numForwardOps(graph); ++op) {
    if (omitted.isOmitted[size_t(op)])
      continue;
    number[size_t(op)] = int(ops.size());
    std::vector<Read> operands;
    for (int i = 0; i < int(graph.ops[size_t(op)].operands.size()); ++i) {
      const auto other = reads.find({op, i});
      const GraphValue &value = graph.values[size_t(
          other == reads.end() ? graph.ops[size_t(op)].operands[size_t(i)] : other->second)];
      if (value.producer >= 0)
        EXPECT_GE(number[size_t(value.producer)], 0) << graph.ops[size_t(op)].id;
      operands.emplace_back(value.producer < 0 ? -1 : number[size_t(value.producer)],
                            value.producer < 0 ? int(value.role) : value.producerResult);
    }
    ops.emplace_back(graph.ops[size_t(op)].kind, operands);
  }
  return ops;
}

OmittedRepeats nothing(const Graph &graph) {
  OmittedRepeats omitted;
  omitted.isOmitted.assign(size_t(numForwardOps(graph)), false);
  return omitted;
}

/// What stays of a chain is the chain with that many layers.
TEST(OmitRepeats, LeaveAShorterChain) {
  for (bool tied : {false, true})
    for (int64_t layers : {4, 7, 12}) {
      ChainSizes sizes, three;
      sizes.tied = three.tied = tied;
      sizes.layers = layers;
      three.layers = 3;
      const Graph graph = makeChain(sizes), shorter = makeChain(three);
      const OmittedRepeats omitted = omitFrom(graph, none, none);
      EXPECT_EQ(keptLayers(graph, omitted), (std::set<int>{0, 1, int(layers) - 1}));
      ASSERT_EQ(omitted.blocks.size(), 1U);
      EXPECT_EQ(omitted.blocks[0].block.length, opsOfLayer);
      EXPECT_EQ(omitted.blocks[0].block.count, layers);
      EXPECT_EQ(omitted.blocks[0].kept, 3);
      EXPECT_EQ(forwardOf(graph, omitted), forwardOf(shorter, nothing(shorter)));
    }
}

TEST(OmitRepeats, KeepTheEndsOfEveryRun) {
  const Graph graph = makeChain({16});
  // Uneven chunks of 5, 8 and 3 layers; the first two layers of each are recomputed.
  auto chunkOf = [](int layer) { return layer < 5 ? 0 : layer < 13 ? 1 : 2; };
  auto recomputed = [](int layer) {
    return int(layer < 2 || layer == 5 || layer == 6 || layer > 12);
  };
  const OmittedRepeats omitted = omitFrom(graph, recomputed, chunkOf);
  // Runs: 0-1 and 13-15, recomputed, 5-6 too; 2-4; 7-12, the longest that is not recomputed.
  EXPECT_EQ(keptLayers(graph, omitted), (std::set<int>{0, 1, 2, 4, 5, 6, 7, 8, 12, 13, 14, 15}));
  forwardOf(graph, omitted);
}

TEST(OmitRepeats, JoinAlternatingDecisions) {
  const Graph graph = makeChain({12});
  const OmittedRepeats omitted = omitFrom(graph, [](int layer) { return layer % 2; }, none);
  EXPECT_EQ(keptLayers(graph, omitted), (std::set<int>{0, 1, 2, 3, 10, 11}));
  EXPECT_EQ(omitted.blocks.at(0).kept, 6);
  const Graph six = makeChain({6});
  EXPECT_EQ(forwardOf(graph, omitted), forwardOf(six, nothing(six)));
}

/// Every layer has a decision of its own, or another kind.
TEST(OmitRepeats, LeaveNothingOutThatDiffers) {
  const Graph graph = makeChain({9});
  EXPECT_TRUE(omitFrom(graph, [](int layer) { return layer; }, none).blocks.empty());
  EXPECT_TRUE(omitFrom(graph, none, [](int layer) { return layer; }).blocks.empty());
  std::vector<uint64_t> kinds;
  for (int op = 0; op < numForwardOps(graph); ++op)
    kinds.push_back(uint64_t(layerOf(graph.ops[size_t(op)]) + 1));
  const OpDecisions same{std::vector<uint64_t>(kinds.size(), 0), std::vector<int>(kinds.size(), 0)};
  EXPECT_TRUE(omitRepeats(graph, kinds, same).blocks.empty());
}

/// Adds the first result of the forward op `from` to the operands of the forward op `to`.
void connect(Graph &graph, const std::string &from, const std::string &to) {
  auto find = [&](const std::string &id) {
    return int(std::find_if(graph.ops.begin(), graph.ops.end(),
                            [&](const GraphOp &op) { return op.id == id; }) -
               graph.ops.begin());
  };
  const int value = graph.ops.at(size_t(find(from))).results[0], user = find(to);
  graph.ops.at(size_t(user)).operands.push_back(value);
  std::vector<int> &users = graph.values[size_t(value)].users;
  users.insert(std::upper_bound(users.begin(), users.end(), user), user);
}

TEST(OmitRepeats, StayWhereAValueSkipsBlocks) {
  const Graph chain = makeChain({9});
  // The last op reads the fifth layer, which would be gone.
  Graph read = chain;
  connect(read, "h.4.add1", read.ops[size_t(numForwardOps(read) - 1)].id);
  EXPECT_TRUE(omitFrom(read, none, none).blocks.empty());
  // Every layer also reads the layer before the last one. Layer 8 then reads layer 0 instead.
  Graph skips = chain;
  for (int layer = 2; layer < 9; ++layer)
    connect(skips, "h." + std::to_string(layer - 2) + ".add1",
            "h." + std::to_string(layer) + ".add1");
  const OmittedRepeats omitted = omitFrom(skips, none, none);
  EXPECT_FALSE(omitted.blocks.empty());
  forwardOf(skips, omitted);
}

/// A parameter of the layers 2 and 5 alone: both stay, and what is between them.
TEST(OmitRepeats, StayWhereSomeLayersShareAParameter) {
  Graph graph = makeChain({9});
  std::map<int, int> weight; // by layer: the parameter of its first matmul
  std::map<int, std::pair<int, int>> place;
  for (int op = 0; op < numForwardOps(graph); ++op)
    for (int i = 0; i < int(graph.ops[size_t(op)].operands.size()); ++i) {
      const int value = graph.ops[size_t(op)].operands[size_t(i)];
      if (graph.values[size_t(value)].role == ValueRole::Parameter &&
          graph.values[size_t(value)].layout.dims.size() == 2 &&
          weight.emplace(layerOf(graph.ops[size_t(op)]), value).second)
        place[layerOf(graph.ops[size_t(op)])] = {op, i};
    }
  const auto [op, operand] = place.at(5);
  graph.ops[size_t(op)].operands[size_t(operand)] = weight.at(2);
  graph.values[size_t(weight.at(2))].users.push_back(op);
  const std::set<int> kept = keptLayers(graph, omitFrom(graph, none, none));
  for (int layer : {2, 5})
    EXPECT_TRUE(kept.count(layer)) << layer;
}

} // namespace
