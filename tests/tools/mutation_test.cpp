//===- mutation_test.cpp - The referee catches planted miscompiles --------===//
//
// Mutants of compiled Programs. A mutant with another f64 result is a miscompile. Each one must be
// caught: rejected by the checkers that read only the Program, refused by the ranks, or found by
// the residues.
//
//===----------------------------------------------------------------------===//

#include "codegen/AssignStreams.h"
#include "runtime/verify/Verify.h"
#include "tests/runtime/support/FullTests.h"
#include "tests/tools/Mutations.h"
#include "tests/tools/PlanSupport.h"
#include "tools/driver/Shrink.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

using namespace tbc;

namespace {

constexpr uint64_t seed = 20241;

bool differ(const driver::RunRecord &a, const driver::RunRecord &b) {
  for (const auto &[name, value] : a) {
    auto it = b.find(name);
    if (it == b.end())
      return true;
    std::vector<double> x = value.toDoubles(), y = it->second.toDoubles();
    if (x.size() != y.size())
      return true;
    double largest = 0, difference = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      largest = std::max(largest, std::abs(x[i]));
      difference = std::max(difference, std::abs(x[i] - y[i]));
    }
    // f64 rounding is far below this bound, a miscompile far above.
    if (!(difference <= 1e-9 * std::max(largest, 1e-12)))
      return true;
  }
  return false;
}

bool allEqual(const std::vector<driver::Comparison> &lines) {
  for (const driver::Comparison &line : lines)
    if (!line.equal)
      return false;
  return true;
}

struct Case {
  const char *model;
  test::PlanRequest request;
  size_t sample; // mutants tried per kind
  /// If set, trains in f16 with an overflow in the first of two steps. Only the gradient of this
  /// parameter overflows; the parameter is 0 and multiplies the input.
  const char *overflow = nullptr;
  std::map<std::string, double> settings = {};
};

struct Tally {
  int miscompiles = 0, byCheckers = 0, malformed = 0, harmless = 0;
  std::map<std::string, int> byKind;
};

/// Sets an element of each sample of the first step so high that its product with the scaled
/// cotangent is not finite in f64. Forward stays finite, because it multiplies the element by 0.
void overflow(driver::RunData &data, const std::string &parameter) {
  kernels::Tensor &weight = data.initial.at(parameter);
  weight = kernels::Tensor::fromDoubles(weight.type(), kernels::Arith::F64, {0});
  for (auto &microBatch : data.steps[0]) {
    kernels::Tensor &x = microBatch.at("input");
    std::vector<double> values = x.toDoubles();
    for (size_t i = 0; i < values.size(); i += size_t(x.shape()[1]))
      values[i] = 1.7e308;
    x = kernels::Tensor::fromDoubles(x.type(), kernels::Arith::F64, values);
  }
}

/// Tries `sample` mutants of each kind on one plan.
void tryMutants(const Case &testCase, Tally &tally) {
  test::Model model = test::loadModel(testCase.model, "sgd", testCase.settings, "",
                                      testCase.overflow ? "f16" : "f32");
  auto plan = test::makePlan(model, testCase.request);
  ASSERT_TRUE(plan) << plan.error().message;
  // Shrinks large models, like `tbc verify`.
  auto small = driver::shrink(*model.step, *plan, {16});
  ASSERT_TRUE(small) << small.error().message;
  driver::TrainingStep &step = *small->step;
  plan = small->plan;
  auto compiled = driver::compilePlan(step, *plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  // Mutants have new values, so the memory plan does not fit, and other instructions in regions.
  // Memory plans have their own mutants.
  for (program::Stage &stage : compiled->program.stages) {
    stage.memory = {};
    for (program::BlockId id : stage.blocks())
      stage.block(id).regions.clear();
  }
  auto residues = driver::makeRunData(step, *plan, 2, kernels::Arith::Residue61, seed);
  auto doubles = driver::makeRunData(step, *plan, 2, kernels::Arith::F64, seed);
  ASSERT_TRUE(residues && doubles);
  kernels::KernelContext context = kernels::Arith::Residue61;
  if (testCase.overflow) {
    overflow(*doubles, testCase.overflow);
    auto planted = driver::plantOverflow(step, *plan, *residues, seed, testCase.overflow);
    ASSERT_TRUE(planted) << planted.error().message;
    context = planted->context;
  }
  auto serial = driver::runSerial(step, *plan, *residues, context);
  auto right = driver::runParallel(compiled->program, *doubles, kernels::Arith::F64);
  ASSERT_TRUE(serial && right);
  auto rightResidues = driver::runParallel(compiled->program, *residues, context);
  ASSERT_TRUE(rightResidues) << rightResidues.error().message;
  ASSERT_TRUE(allEqual(driver::compareExactly(*serial, *rightResidues)));

  std::vector<test::Mutant> mutants = test::enumerateMutants(compiled->program);
  std::mt19937_64 random(seed);
  std::shuffle(mutants.begin(), mutants.end(), random);
  std::map<std::string, size_t> tried;
  for (const test::Mutant &mutant : mutants) {
    if (tried[mutant.kind]++ >= testCase.sample)
      continue;
    program::Program wrong = compiled->program;
    mutant.apply(wrong);
    // The instructions changed, so streams are assigned again.
    assignStreams(wrong);
    std::string where = std::string(testCase.model) + " " + testCase.request.mesh + ": " +
                        mutant.kind + " at " + mutant.place;
    if (!program::checkWellFormed(wrong)) {
      ++tally.malformed;
      continue;
    }
    // Runs it even if the checkers reject it. It is a miscompile if its f64 result differs, or if
    // ranks that should agree do not.
    auto result = driver::runParallel(wrong, *doubles, kernels::Arith::F64);
    if (result && !differ(*right, *result)) {
      ++tally.harmless;
      continue;
    }
    ++tally.miscompiles;
    ++tally.byKind[mutant.kind];
    if (!verify::verifyProgram(wrong)) {
      ++tally.byCheckers;
      continue;
    }
    if (!result) // the ranks themselves refused
      continue;
    auto parallel = driver::runParallel(wrong, *residues, context);
    EXPECT_FALSE(parallel && allEqual(driver::compareExactly(*serial, *parallel)))
        << "not caught: " << where;
  }
}

test::PlanRequest withContext(const char *mesh, const char *form, const char *order) {
  test::PlanRequest request{mesh};
  request.context = form;
  request.sequenceOrder = order;
  return request;
}

TEST(Mutation, EveryPlantedMiscompileIsCaught) {
  const Case cases[] = {
      {"tiny-mlp", {"dp=2", "zero1"}, 3},
      {"tiny-mlp", {"fsdp=2", "zero3"}, 3},
      {"tiny-mlp", {"dp=2,tp=2"}, 3},
      {"tiny-gpt2", {"dp=2", "zero1", "", "none", 4, 8}, 2},
      {"tiny-gpt2", {"pp=2", "auto", "zero-bubble", "none", 1, 8, 2}, 2},
      {"tiny-llama", {"pp=2,tp=2", "auto", "interleaved", "none", 1, 8, 2}, 1},
      {"tiny-gpt2", {"pp=2,tp=2", "auto", "gpipe"}, size_t(test::sampleSize(1, 3))},
      {"tiny-llama", {"fsdp=2,tp=2", "auto", "", "selective"}, size_t(test::sampleSize(1, 2))},
      {"tiny-resnet", {"dp=2"}, size_t(test::sampleSize(1, 2))},
      {"tiny-mlp", {"pp=2,dp=2"}, 4, "fc1.weight"},
      {"tiny-llama", withContext("cp=4", "ring", "zigzag"), size_t(test::sampleSize(1, 3))},
      {"tiny-llama", withContext("cp=2", "all-gather", "contiguous"), 2},
      {"gpt2-8l", {"pp=2,fsdp=2,tp=2", "auto", "", "none", 1, 8}, 1},
      {"moe-8l", {"dp=2,ep=2"}, 2, nullptr, {{"capacity_factor", 0.75}}},
  };
  Tally tally;
  for (const Case &testCase : cases)
    tryMutants(testCase, tally);
  RecordProperty("miscompiles", tally.miscompiles);
  std::printf(
      "%d miscompiles of %zu kinds, %d of them found before running; %d mutants malformed, %d "
      "without effect\n",
      tally.miscompiles, tally.byKind.size(), tally.byCheckers, tally.malformed, tally.harmless);
  for (const auto &[kind, count] : tally.byKind)
    std::printf("  %3d %s\n", count, kind.c_str());
  EXPECT_GE(tally.miscompiles, 50);
  EXPECT_GE(tally.byKind.size(), 12u);
  for (const char *kind :
       {"not reduced over stages", "overflow flag not reduced", "gradient not scaled",
        "step not skipped", "exchanged with the wrong ranks", "router's weight left out",
        "block not passed on", "block passed twice", "block passed the wrong way",
        "bucket member left out", "bucket member in the place of another",
        "bucket members at each other's offset"})
    EXPECT_GT(tally.byKind[kind], 0) << kind;
}

/// The kinds of miscompiles of a Program with their places, but for the number of the instruction
/// and its id. Example: "stage 1, fwd block, all_reduce): dropped".
std::set<std::string> kindsOfMutants(driver::TrainingStep &step, const planner::Plan &plan) {
  auto compiled = driver::compilePlan(step, plan);
  if (!compiled) {
    ADD_FAILURE() << compiled.error().message;
    return {};
  }
  std::set<std::string> kinds;
  for (const test::Mutant &mutant : test::enumerateMutants(compiled->program))
    kinds.insert(mutant.place.substr(0, mutant.place.find(" instruction")) +
                 mutant.place.substr(mutant.place.rfind(' ')) + ": " + mutant.kind);
  return kinds;
}

/// A step with fewer layers has every kind of miscompile of the whole one, in the same blocks of
/// the same stages. `EveryPlantedMiscompileIsCaught` shows that the kinds are caught there.
TEST(Mutation, FewerLayersHaveAllKinds) {
  const std::pair<const char *, test::PlanRequest> cases[] = {
      {"gpt2-8l", {"pp=2,fsdp=2,tp=2", "auto", "1f1b", "none", 1, 8}},
      {"gpt2-8l", {"fsdp=2", "zero3", "", "full:4"}},
      {"moe-8l", {"dp=2,ep=2"}}};
  for (const auto &[name, request] : cases) {
    SCOPED_TRACE(std::string(name) + " " + request.mesh);
    test::Model model = test::loadModel(name, "sgd");
    auto plan = test::makePlan(model, request);
    ASSERT_TRUE(plan) << plan.error().message;
    auto fewer = driver::shrink(*model.step, *plan, {16});
    auto all = driver::shrink(*model.step, *plan, {16, /*allLayers=*/true});
    ASSERT_TRUE(fewer && all);
    ASSERT_LT(fewer->step->step.graph.ops.size(), all->step->step.graph.ops.size());
    const std::set<std::string> kinds = kindsOfMutants(*all->step, all->plan);
    EXPECT_GT(kinds.size(), 10U);
    EXPECT_EQ(kindsOfMutants(*fewer->step, fewer->plan), kinds);
  }
}

} // namespace
