//===- DeriveSimulationTest.cpp - Derived programs compute the same --------===//
//
// Random steps under random strategies: the derived program, executed on all ranks, equals the
// serial run bit for bit. This tests the rules together; the tests of single rules are in
// DeriveTest.cpp.
//
//===----------------------------------------------------------------------===//

#include "tests/planner/reshard/GraphBuilder.h"
#include "tests/planner/reshard/GraphSimulator.h"
#include "tests/planner/reshard/RandomShardings.h"

#include "gtest/gtest.h"

#include <algorithm>

namespace tbc::reshard {
namespace {

using test::GraphBuilder;
using test::RandomShardings;

/// Random forward ops on one to three stages, then random backward ops on the stages in reverse,
/// with a gradient for every parameter; some parameters have parts of their gradient on several
/// stages.
class RandomStep {
public:
  RandomStep(RandomShardings &random, int numStages)
      : random(random), g({{'a', 4}, {'b', 8}, {'c', 3}, {'d', 4}}) {
    g.graph.batchFactor = 'b';
    pool = {g.input("x", "ab"), g.input("y", "bd"), g.generator("mask", "a")};
    for (int p = 0; p < 3; ++p)
      parameters.push_back(g.parameter("w" + std::to_string(p), letters()));
    pool.insert(pool.end(), parameters.begin(), parameters.end());
    int state = g.state("state", "d");
    pool.push_back(state);
    for (g.stage = 0; g.stage < numStages; ++g.stage)
      for (int i = 0; i < 5; ++i)
        pool.push_back(op(Phase::Forward));
    g.stage = numStages - 1;
    int fresh = g.forward("fresh", g.dims(pool.back()) + ",d->d", {pool.back(), state});
    g.graph.stateUpdates.push_back({state, fresh});
    g.graph.loss = g.forward("loss", g.dims(pool.back()) + "->", {pool.back()});
    std::vector<std::vector<int>> parts(parameters.size());
    for (g.stage = numStages - 1; g.stage >= 0; --g.stage) {
      for (int i = 0; i < 4; ++i)
        pool.push_back(op(Phase::Backward));
      for (size_t p = 0; p < parameters.size(); ++p)
        if (usedHere(parameters[p]) && (parts[p].empty() || random.below(3)))
          parts[p].push_back(gradientPart(parameters[p]));
    }
    g.stage = 0;
    for (size_t p = 0; p < parameters.size(); ++p)
      addGradient(parameters[p], parts[p]);
  }

  RandomShardings &random;
  GraphBuilder g;

private:
  /// Dims of a new tensor: different letters.
  std::string letters() {
    std::string all = "abcd", result;
    for (char letter : all)
      if (random.below(2))
        result += letter;
    if (result.empty())
      result = "b";
    if (random.below(2))
      std::reverse(result.begin(), result.end());
    return result;
  }
  int any() { return pool[random.below(static_cast<int64_t>(pool.size()))]; }

  int op(Phase phase) {
    std::string id = (phase == Phase::Forward ? "f" : "g") + std::to_string(count++);
    int x = any();
    if (random.below(4) == 0) { // a sum of values with the same dims
      std::vector<int> alike;
      for (int value : pool)
        if (g.dims(value) == g.dims(x) && g.graph.values[value].producer >= 0)
          alike.push_back(value);
      if (alike.size() >= 2)
        return g.sum(id, phase, {alike.back(), alike[alike.size() - 2]});
    }
    std::string in = g.dims(x), dims;
    std::vector<int> operands = {x};
    if (random.below(3)) {
      operands.push_back(any());
      in += "," + g.dims(operands[1]);
    }
    for (char letter : std::string("abcd"))
      if (in.find(letter) != std::string::npos && random.below(4))
        dims += letter;
    if (phase == Phase::Forward)
      return g.forward(id, in + "->" + dims, operands);
    int of = g.graph.ops.front().results[0];
    return g.backward(id, of, in + "->" + dims, operands);
  }

  bool usedHere(int value) const {
    const std::vector<int> &users = g.graph.values[value].users;
    return std::any_of(users.begin(), users.end(),
                       [&](int op) { return g.graph.ops[op].chunk == g.stage; });
  }
  int gradientPart(int parameter) {
    int x = any(), y = any();
    std::string in = g.dims(x) + "," + g.dims(y), missing;
    std::vector<int> operands = {x, y};
    for (char letter : g.dims(parameter))
      if (in.find(letter) == std::string::npos)
        missing += letter;
    if (!missing.empty()) {
      operands.push_back(g.generator("ones" + std::to_string(count++), missing));
      in += "," + missing;
    }
    return g.backward("part" + std::to_string(count++), g.graph.ops.front().results[0],
                      in + "->" + g.dims(parameter), operands, {parameter});
  }
  void addGradient(int parameter, std::vector<int> parts) {
    while (parts.size() > 1) {
      int last = parts.back();
      parts.pop_back();
      parts.back() = g.sum("tie" + std::to_string(count++), Phase::Backward, {parts.back(), last});
    }
    if (!parts.empty())
      g.gradient(parameter, parts[0]);
  }

  std::vector<int> pool, parameters;
  int count = 0;
};

/// Random strategies from those of the library; data-independent ops in backward keep their phase.
Assignment randomAssignment(RandomShardings &random, const Graph &graph, const Mesh &mesh,
                            int numStages) {
  Assignment a = test::replicated(graph, mesh);
  a.numStages = numStages;
  std::vector<AxisRef> axes;
  for (size_t i = 0; i < mesh.axes.size(); ++i)
    axes.push_back(wholeAxis(mesh, static_cast<int>(i)));
  bool batch = random.below(2);
  a.microBatches = 1 + random.below(2);
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    if (batch)
      a.strategies[op] = batchStrategy(graph, static_cast<int>(op), {axes[0]});
    for (size_t i = batch ? 1 : 0; i < axes.size(); ++i) {
      auto options = enumerateStrategies(graph, static_cast<int>(op), a.strategies[op], axes[i]);
      a.strategies[op] = options[random.below(static_cast<int64_t>(options.size()))];
    }
  }
  for (ParameterPlan &plan : a.parameterPlans) {
    plan.zero = static_cast<int>(random.below(4));
    plan.keepGathered = random.below(2);
    for (const AxisRef &axis : axes)
      if (int64_t choice = random.below(3); choice < 2)
        (choice ? plan.zeroAxes : plan.reduceAxes).push_back(axis);
  }
  return a;
}

/// Puts the chunks on fewer stages, in any order.
void placeChunks(RandomShardings &random, Assignment &a) {
  int numChunks = a.numStages;
  a.numStages = 1 + static_cast<int>(random.below(numChunks));
  for (int chunk = 0; chunk < numChunks; ++chunk)
    a.chunkStage.push_back(static_cast<int>(random.below(a.numStages)));
}

/// Moves some backward ops that no other block depends on to the phase wgt. Returns their number.
int partBackward(RandomShardings &random, Graph &graph) {
  std::vector<bool> isSkipped(graph.ops.size(), false);
  for (size_t p = 0; p < graph.parameters.size(); ++p)
    for (int op : gradientParts(graph, static_cast<int>(p)).skippedAdds)
      isSkipped[op] = true;
  int parted = 0;
  for (size_t i = graph.ops.size(); i-- > 0;) {
    GraphOp &op = graph.ops[i];
    if (op.phase != Phase::Backward || op.generator || isSkipped[i] || random.below(3) == 0)
      continue;
    bool isWaitedFor = false;
    for (int value : op.results)
      for (int user : graph.values[value].users)
        isWaitedFor |= !isSkipped[user] && (graph.ops[user].phase != Phase::Weight ||
                                            graph.ops[user].chunk != op.chunk);
    if (!isWaitedFor)
      op.phase = Phase::Weight;
    parted += !isWaitedFor;
  }
  return parted;
}

class DeriveSimulation : public testing::TestWithParam<int> {};

TEST_P(DeriveSimulation, EqualsTheSerialStep) {
  RandomShardings random(GetParam() * 7919 + 1);
  const std::vector<Mesh> meshes = {
      {{{"dp", 2}, {"tp", 2}}}, {{{"dp", 4}}}, {{{"dp", 2}, {"fsdp", 2}, {"tp", 2}}}};
  int64_t reshards = 0;
  for (int i = 0; i < 40; ++i) {
    int numStages = 1 + static_cast<int>(random.below(3));
    RandomStep step(random, numStages);
    const Mesh &mesh = meshes[random.below(3)];
    Assignment a = randomAssignment(random, step.g.graph, mesh, numStages);
    ASSERT_EQ(whyInvalid(step.g.graph, a), "");
    Derivation d = derive(step.g.graph, a);
    ASSERT_EQ(test::GraphSimulator(step.g.graph, a, d).run(), "") << "case " << i;
    reshards += static_cast<int64_t>(d.reshards.size());
  }
  EXPECT_GT(reshards, 400);
}

// Chunks of one stage hand values to each other; the wgrad phase reads values kept by the others.
TEST_P(DeriveSimulation, EqualsTheSerialStepWithVirtualStages) {
  RandomShardings random(GetParam() * 104729 + 3);
  const std::vector<Mesh> meshes = {{{{"dp", 2}, {"tp", 2}}}, {{{"dp", 4}}}};
  int parted = 0, handed = 0;
  for (int i = 0; i < 40; ++i) {
    int numChunks = 2 + static_cast<int>(random.below(4));
    RandomStep step(random, numChunks);
    const Mesh &mesh = meshes[random.below(2)];
    Assignment a = randomAssignment(random, step.g.graph, mesh, numChunks);
    placeChunks(random, a);
    if (random.below(3))
      parted += partBackward(random, step.g.graph);
    ASSERT_EQ(whyInvalid(step.g.graph, a), "");
    Derivation d = derive(step.g.graph, a);
    ASSERT_EQ(test::GraphSimulator(step.g.graph, a, d).run(), "") << "case " << i;
    for (const Residual &r : d.residuals)
      handed += r.phase != Phase::Forward;
  }
  EXPECT_GT(parted, 50);
  EXPECT_GT(handed, 50);
}

INSTANTIATE_TEST_SUITE_P(Seeds, DeriveSimulation, testing::Range(0, 8));

/// The derivation of the MLP on two data ranks, for planting errors.
struct Planted {
  GraphBuilder g = test::mlp(8, 2, 4, 2);
  Mesh mesh{{{"dp", 2}}};
  Assignment a = test::dataParallel(g.graph, mesh, {wholeAxis(mesh, 0)});
  Derivation d;
  explicit Planted(int zero, int64_t microBatches = 2, bool reducesInLastBackward = true) {
    a.microBatches = microBatches;
    a.reducesInLastBackward = reducesInLastBackward;
    for (ParameterPlan &plan : a.parameterPlans)
      plan = {zero, false, {wholeAxis(mesh, 0)}, {}};
    d = derive(g.graph, a);
  }
  std::string run() { return test::GraphSimulator(g.graph, a, d).run(); }
  Reshard &first(Where where) {
    return *std::find_if(d.reshards.begin(), d.reshards.end(),
                         [&](const Reshard &r) { return r.where == where; });
  }
};

TEST(GraphSimulator, NoticesPlantedErrors) {
  for (int zero = 0; zero <= 3; ++zero)
    for (int64_t microBatches : {1, 2})
      for (bool reducesInLastBackward : {false, true})
        EXPECT_EQ(Planted(zero, microBatches, reducesInLastBackward).run(), "");
  Planted atOnce(0, 1);
  atOnce.first(Where::GradientMicro).steps.clear();
  EXPECT_NE(atOnce.run(), "");
  Planted dropped(0);
  dropped.first(Where::GradientLast).steps.clear();
  EXPECT_NE(dropped.run(), "");
  Planted droppedLater(0, 2, false);
  droppedLater.first(Where::GradientStep).steps.clear();
  EXPECT_NE(droppedLater.run(), "");
  Planted loss(0);
  loss.first(Where::Loss).steps.clear();
  EXPECT_NE(loss.run(), "");
  Planted gather(3);
  gather.first(Where::ParameterUse).to.flat = {wholeAxis(gather.mesh, 0)};
  EXPECT_NE(gather.run(), "");
  Planted residual(0);
  residual.d.residuals.pop_back();
  EXPECT_NE(residual.run(), "");
  Planted twice(0);
  Reshard &r = twice.first(Where::GradientLast);
  r.steps.push_back(r.steps[0]);
  EXPECT_NE(twice.run(), "");
}

} // namespace
} // namespace tbc::reshard
