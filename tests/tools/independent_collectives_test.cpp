//===- independent_collectives_test.cpp - Two derivations of one list -----===//
//
// A plan without a named strategy has no closed form. So the collectives of the compiled Program
// (by kind, axes, bytes, count and stage) and its resident bytes per rank must equal those derived
// from the shardings of single ops. `IndependentCollectives` derives them a second time.
//
//===----------------------------------------------------------------------===//

#include "planner/plan/PlanApply.h"
#include "tests/tools/IndependentCollectives.h"
#include "tests/tools/PlanSupport.h"
#include "tests/tools/RandomPlan.h"
#include "tools/driver/Verify.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <set>

using namespace tbc;
using reshard::CollectiveCount;

namespace {

struct Case {
  const char *model;
  test::PlanRequest request;
  const char *optimizer = "adamw";
};

/// For the test name in CTest.
void PrintTo(const Case &testCase, std::ostream *out) {
  *out << testCase.model << " " << testCase.request.mesh << " " << testCase.request.strategy << " "
       << testCase.request.schedule << " " << testCase.request.recompute;
}

/// Returns the optimizer state in bytes per parameter element.
int64_t stateBytes(const planner::Plan &plan) { return plan.job.stateBytesPerElement(); }

/// Counts of compared things, over several plans.
struct Compared {
  int64_t lines = 0, executions = 0, ties = 0;
  std::set<reshard::CollectiveKind> kinds;
};

std::string movesText(const test::StepSignature &signature) {
  std::string text;
  for (const std::string &move : signature.moves)
    text += "  " + move + "\n";
  return text;
}

/// Compiles `plan` and compares its list and bytes.
void compare(driver::TrainingStep &step, const planner::Plan &plan, Compared &compared) {
  auto compiled = driver::compilePlan(step, plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  const reshard::Graph &graph = compiled->planned.graph;
  const reshard::Assignment &assignment = compiled->planned.assignment;

  test::StepSignature expected =
      test::expectedSignature(graph, assignment, stateBytes(plan), test::joinedSizes(plan));
  std::vector<CollectiveCount> actual = driver::countInstructions(compiled->program);
  std::string difference = test::difference(assignment.mesh, expected, actual);
  EXPECT_EQ(difference, "") << "expected moves:\n" << movesText(expected);
  compared.ties += int64_t(expected.ties.size());
  for (const CollectiveCount &line : actual) {
    ++compared.lines;
    compared.executions += line.count;
    compared.kinds.insert(line.kind);
  }

  ASSERT_EQ(expected.resident.size(), compiled->program.stages.size());
  for (size_t stage = 0; stage < expected.resident.size(); ++stage)
    EXPECT_EQ(expected.resident[stage], test::residentBytes(compiled->program.stages[stage]))
        << "stage " << stage;
}

/// Runs one step of `plan` in residues, serially and on all ranks.
void expectSerialResult(driver::TrainingStep &step, const planner::Plan &plan) {
  auto compiled = driver::compilePlan(step, plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  auto data = driver::makeRunData(step, plan, 1, kernels::Arith::Residue61, 7);
  ASSERT_TRUE(data) << data.error().message;
  auto serial = driver::runSerial(step, plan, *data, kernels::Arith::Residue61);
  ASSERT_TRUE(serial) << serial.error().message;
  auto parallel = driver::runParallel(compiled->program, *data, kernels::Arith::Residue61);
  ASSERT_TRUE(parallel) << parallel.error().message;
  for (const driver::Comparison &line : driver::compareExactly(*serial, *parallel))
    EXPECT_TRUE(line.equal) << "residue differs: " << line.name;
}

class IndependentCollectives : public testing::TestWithParam<Case> {};

TEST_P(IndependentCollectives, ProgramHasTheListAndTheBytes) {
  test::Model model = test::loadModel(GetParam().model, GetParam().optimizer);
  auto plan = test::makePlan(model, GetParam().request);
  ASSERT_TRUE(plan) << plan.error().message;
  Compared compared;
  compare(*model.step, *plan, compared);
  EXPECT_GT(compared.lines, 0);
  std::cout << "compared " << compared.lines << " lines, " << compared.executions << " executions, "
            << compared.ties << " ties\n";
}

// The planner's own choices are few and regular. Randomly edited plans reach the others.

class RandomlyEdited : public testing::TestWithParam<Case> {};

TEST_P(RandomlyEdited, ProgramHasTheListAndTheBytes) {
  test::Model model = test::loadModel(GetParam().model, GetParam().optimizer);
  auto plan = test::makePlan(model, GetParam().request);
  ASSERT_TRUE(plan) << plan.error().message;
  reshard::Graph graph =
      planner::withBatch(model.step->step.graph, plan->microBatch * plan->mesh.dataRanks());
  Compared compared;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    planner::Plan edited = test::withRandomDecisions(*plan, graph, seed);
    compare(*model.step, edited, compared);
    if (HasFatalFailure())
      return;
  }
  std::cout << "compared " << compared.lines << " lines, " << compared.executions << " executions, "
            << compared.kinds.size() << " kinds, " << compared.ties << " ties\n";
}

TEST_P(RandomlyEdited, ParallelEqualsSerial) {
  test::Model model = test::loadModel(GetParam().model, GetParam().optimizer);
  auto plan = test::makePlan(model, GetParam().request);
  ASSERT_TRUE(plan) << plan.error().message;
  reshard::Graph graph =
      planner::withBatch(model.step->step.graph, plan->microBatch * plan->mesh.dataRanks());
  // 2,000 plans with TBC_FULL_TESTS.
  const uint64_t count = std::getenv("TBC_FULL_TESTS") ? 100 : 5;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expectSerialResult(*model.step, test::withRandomDecisions(*plan, graph, seed));
    if (HasFatalFailure())
      return;
  }
}

// Checks that the comparison can fail.

using Noticed = testing::TestWithParam<const char *>;

TEST_P(Noticed, ALineMoreOrLess) {
  test::Model model = test::loadModel(GetParam());
  auto plan = test::makePlan(model, {"fsdp=2,tp=2,pp=2"});
  ASSERT_TRUE(plan) << plan.error().message;
  auto compiled = driver::compilePlan(*model.step, *plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  const reshard::Assignment &assignment = compiled->planned.assignment;
  test::StepSignature expected = test::expectedSignature(
      compiled->planned.graph, assignment, stateBytes(*plan), test::joinedSizes(*plan));
  std::vector<CollectiveCount> actual = driver::countInstructions(compiled->program);
  ASSERT_EQ(test::difference(assignment.mesh, expected, actual), "");
  for (size_t line = 0; line < actual.size(); ++line) {
    for (int change = 0; change < 4; ++change) {
      std::vector<CollectiveCount> wrong = actual;
      CollectiveCount &entry = wrong[line];
      if (change == 0)
        ++entry.count;
      else if (change == 1)
        wrong.erase(wrong.begin() + line);
      else if (change == 2)
        entry.bytes *= 2;
      else
        entry.axes = entry.axes == "tp" ? "fsdp" : "tp";
      EXPECT_NE(test::difference(assignment.mesh, expected, wrong), "");
    }
  }
}

TEST_P(Noticed, AnotherStrategyOfOneOp) {
  test::Model model = test::loadModel(GetParam());
  auto plan = test::makePlan(model, {"fsdp=2,tp=2,pp=2"});
  ASSERT_TRUE(plan) << plan.error().message;
  auto compiled = driver::compilePlan(*model.step, *plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  const reshard::Graph &graph = compiled->planned.graph;
  reshard::Assignment assignment = compiled->planned.assignment;
  std::vector<CollectiveCount> actual = driver::countInstructions(compiled->program);
  auto isNoticed = [&] {
    test::StepSignature expected =
        test::expectedSignature(graph, assignment, stateBytes(*plan), test::joinedSizes(*plan));
    return test::difference(assignment.mesh, expected, actual) != "";
  };
  ASSERT_FALSE(isNoticed());
  int changed = 0, noticed = 0;
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    if (graph.ops[op].generator || assignment.strategies[op].loopAxes.empty())
      continue;
    auto whole = assignment.strategies[op].loopAxes;
    assignment.strategies[op].loopAxes.clear();
    ++changed;
    noticed += isNoticed();
    assignment.strategies[op].loopAxes = whole;
  }
  // A broadcast (e.g. of a bias) is free to replicate, so its change is not seen.
  EXPECT_GE(noticed * 10, changed * 9) << noticed << " of " << changed;
  EXPECT_GT(changed, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Noticed,
                         testing::Values("tiny-mlp", "tiny-gpt2", "tiny-llama", "tiny-resnet"));

std::vector<Case> allCases() {
  std::vector<Case> cases;
  for (const char *model : {"tiny-mlp", "tiny-gpt2", "tiny-llama", "tiny-resnet"}) {
    for (const char *mesh : {"dp=4", "fsdp=4", "tp=4", "pp=2,dp=2", "fsdp=2,tp=2,pp=2"})
      cases.push_back({model, {mesh}});
    cases.push_back({model, {"pp=2,tp=2", "auto", "gpipe"}});
    cases.push_back({model, {"dp=2,fsdp=2", "auto", "", "full"}, "sgd"});
    cases.push_back({model, {"pp=2,fsdp=2", "auto", "1f1b", "selective"}, "sgd"});
    for (const char *mesh : {"pp=2,tp=2", "pp=2,fsdp=2"}) {
      cases.push_back({model, {mesh, "auto", "interleaved", "selective", 1, 8, 2}, "sgd"});
      cases.push_back({model, {mesh, "auto", "zero-bubble", "none", 1, 8, 1}, "sgd"});
      cases.push_back({model, {mesh, "auto", "zero-bubble", "full", 1, 8, 2}, "sgd"});
    }
  }
  return cases;
}

std::vector<Case> editedCases() {
  std::vector<Case> cases;
  for (const char *model : {"tiny-mlp", "tiny-gpt2", "tiny-llama", "tiny-resnet"})
    for (const char *mesh : {"tp=2", "dp=2,fsdp=2", "dp=2,tp=2", "fsdp=2,tp=2,pp=2", "pp=2,tp=2"})
      cases.push_back({model, {mesh}});
  return cases;
}

std::string caseName(const testing::TestParamInfo<Case> &info) {
  const test::PlanRequest &request = info.param.request;
  std::string name = std::string(info.param.model) + "_" + request.mesh + "_" + request.schedule +
                     "_" + request.recompute;
  if (request.virtualStages > 0)
    name += "_x" + std::to_string(request.virtualStages);
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)))
      c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Plans, IndependentCollectives, testing::ValuesIn(allCases()), caseName);
INSTANTIATE_TEST_SUITE_P(Plans, RandomlyEdited, testing::ValuesIn(editedCases()), caseName);

} // namespace
