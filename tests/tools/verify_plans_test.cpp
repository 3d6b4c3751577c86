//===- verify_plans_test.cpp - Parallel equals serial, plan by plan -------===//
//
// Every pinned mesh on every small model: residues bit for bit, floats within the bound, and the
// Program's collectives equal the predicted ones (`compilePlan` fails otherwise).
//
//===----------------------------------------------------------------------===//

#include "tests/tools/PlanSupport.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <tuple>

using namespace tbc;

namespace {

struct Case {
  const char *model;
  test::PlanRequest request;
  const char *optimizer = "adamw"; // with sgd, floats compare the updated parameters too
  std::map<std::string, double> settings = {};
  std::string kept = ""; // name of an input to keep
};

std::string describe(const driver::Comparison &line) {
  return line.name + ": error " + std::to_string(line.error) + ", bound " +
         std::to_string(line.bound);
}

std::string describe(const Case &testCase) {
  const test::PlanRequest &request = testCase.request;
  std::string text = testCase.model + std::string(" ") + request.mesh + " " + request.strategy +
                     " " + request.schedule + " " + request.recompute + " " + request.context +
                     " " + request.sequenceOrder;
  if (request.virtualStages > 0)
    text += " x" + std::to_string(request.virtualStages) + request.placement;
  return text;
}

/// Plans of one step. They are compared with the same serial runs, which take longer than a plan's.
using Group = std::vector<Case>;

/// For the test name in CTest.
void PrintTo(const Group &group, std::ostream *out) {
  *out << group.front().model << " " << group.front().optimizer << ", " << group.size() << " plans";
}

class VerifyPlans : public testing::TestWithParam<Group> {};

void verify(const test::Model &model, const Case &testCase,
            const std::shared_ptr<driver::SerialRuns> &serial) {
  SCOPED_TRACE(describe(testCase));
  auto plan = test::makePlan(model, testCase.request);
  ASSERT_TRUE(plan) << plan.error().message;
  driver::VerifyOptions options;
  options.serial = serial;
  auto report = driver::verifyPlan(*model.step, *plan, options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->residues.empty());
  EXPECT_FALSE(report->floats.empty());
  for (const driver::Comparison &line : report->residues)
    EXPECT_TRUE(line.equal) << "residue differs: " << line.name;
  for (const driver::Comparison &line : report->floats)
    EXPECT_TRUE(line.equal) << describe(line);
}

TEST_P(VerifyPlans, ParallelEqualsSerial) {
  const Case &first = GetParam().front();
  test::Model model = test::loadModel(first.model, first.optimizer, first.settings, first.kept);
  auto serial = std::make_shared<driver::SerialRuns>();
  for (const Case &testCase : GetParam())
    verify(model, testCase, serial);
}

/// A run that another plan or setting left behind is not taken for this one's.
TEST(SerialRuns, AreThoseOfThePlanAndTheSetting) {
  test::Model model = test::loadModel("tiny-mlp", "sgd");
  driver::SerialRuns runs;
  using Setting = driver::SerialRuns::Setting;
  for (const char *mesh : {"dp=2", "dp=4"}) {
    auto plan = test::makePlan(model, {mesh});
    ASSERT_TRUE(plan) << plan.error().message;
    for (const Setting &setting :
         {Setting{1, kernels::Arith::F64, 1}, Setting{2, kernels::Arith::F64, 1},
          Setting{1, kernels::Arith::Native, 1}, Setting{1, kernels::Arith::F64, 2},
          Setting{1, kernels::Arith::F64, 1, std::nullopt, driver::InputRange::positive()},
          Setting{1, kernels::Arith::F64, 1, std::nullopt, {}, 1},
          Setting{1, kernels::Arith::F64, 1, std::nullopt, {}, 2}}) {
      auto data = driver::makeRunData(*model.step, *plan, setting.steps, setting.arith,
                                      setting.seed, setting.range);
      ASSERT_TRUE(data) << data.error().message;
      if (setting.neighbour > 0)
        driver::moveParameters(*data, *model.step, setting.arith, setting.neighbour);
      auto expected = driver::runSerial(*model.step, *plan, *data, setting.arith);
      ASSERT_TRUE(expected) << expected.error().message;
      for (int time = 0; time < 2; ++time) {
        auto record = runs.run(*model.step, *plan, setting);
        ASSERT_TRUE(record) << record.error().message;
        ASSERT_EQ(record->size(), expected->size());
        for (const auto &[name, value] : *expected)
          EXPECT_TRUE(bitwiseEqual(record->at(name), value)) << mesh << " " << name;
      }
    }
  }
}

/// A neighbour has the inputs of its seed and parameters within an ulp, the same in both
/// arithmetics. Its roundings are others than those of the seed.
TEST(SerialRuns, NeighboursDifferByAnUlpAndRoundAnew) {
  test::Model model = test::loadModel("tiny-mlp", "sgd");
  auto plan = test::makePlan(model, {"dp=2"});
  ASSERT_TRUE(plan) << plan.error().message;
  std::map<std::string, std::vector<double>> moved;
  for (kernels::Arith arith : {kernels::Arith::F64, kernels::Arith::Native}) {
    auto data = driver::makeRunData(*model.step, *plan, 1, arith, 1);
    ASSERT_TRUE(data) << data.error().message;
    const driver::RunData before = *data;
    driver::moveParameters(*data, *model.step, arith, 1);
    for (const auto &[name, tensor] : data->initial) {
      const std::vector<double> old = before.initial.at(name).toDoubles(), now = tensor.toDoubles();
      size_t differing = 0;
      for (size_t i = 0; i < old.size(); ++i) {
        EXPECT_LE(std::abs(now[i] - old[i]), 0x1p-22 * std::abs(old[i])) << name;
        differing += now[i] != old[i];
      }
      EXPECT_GT(differing, old.size() / 3) << name;
      EXPECT_EQ(moved.try_emplace(name, now).first->second, now) << name;
    }
    EXPECT_TRUE(
        bitwiseEqual(data->steps[0][0].begin()->second, before.steps[0][0].begin()->second));
  }
  using Setting = driver::SerialRuns::Setting;
  driver::SerialRuns runs;
  auto errorOf = [&](uint64_t neighbour) {
    std::vector<double> losses;
    for (kernels::Arith arith : {kernels::Arith::F64, kernels::Arith::Native}) {
      auto run = runs.run(*model.step, *plan, Setting{1, arith, 1, std::nullopt, {}, neighbour});
      EXPECT_TRUE(run);
      losses.push_back(run ? run->at("loss 1").toDoubles()[0] : 0);
    }
    return losses[1] - losses[0];
  };
  EXPECT_NE(errorOf(0), errorOf(1));
  EXPECT_NE(errorOf(1), errorOf(2));
}

/// Several chunks per stage, looped and V-shaped, and a split backward. Covers tied weights, long
/// skips, states, experts and dropout.
void addSchedules(std::vector<Case> &cases) {
  struct Schedule {
    const char *name;
    int64_t virtualStages;
    const char *placement;
  };
  const Schedule schedules[] = {{"interleaved", 2, "loop"},
                                {"interleaved", 2, "v"},
                                {"zero-bubble", 1, ""},
                                {"zero-bubble", 2, "v"}};
  int number = 0;
  for (const char *model : {"gpt2-8l", "llama-8l", "resnet-8b", "unet-8l", "moe-8l"})
    for (const Schedule &schedule : schedules) {
      auto add = [&](const char *mesh, const char *recompute) {
        test::PlanRequest request{mesh, "auto", schedule.name, recompute};
        request.virtualStages = schedule.virtualStages;
        request.placement = schedule.placement;
        cases.push_back({model, request, "sgd"});
      };
      add("pp=2", "none");
      add("pp=4", "none");
      // The others in turn.
      add(number % 2 ? "pp=2,tp=2" : "pp=2,fsdp=2", number % 3 ? "none" : "full");
      ++number;
    }
  for (const Schedule &schedule : schedules)
    for (const char *mesh : {"pp=2,fsdp=2", "pp=2,tp=2"}) {
      test::PlanRequest request{mesh, "auto", schedule.name, "selective"};
      request.virtualStages = schedule.virtualStages;
      request.placement = schedule.placement;
      cases.push_back({"tiny-gpt2", request, "adamw", {{"clip_norm", 0.01}}});
    }
}

/// Sequences split in every form and order, alone and with each of the other axes. Covers grouped
/// heads and dropout.
void addContexts(std::vector<Case> &cases) {
  const char *others[] = {"dp=2,cp=2", "fsdp=2,cp=2", "cp=2,tp=2", "pp=2,cp=2"};
  int number = 0;
  auto add = [&](const char *model, const char *mesh, const char *form, const char *order) {
    test::PlanRequest request{mesh};
    request.context = form;
    request.sequenceOrder = order;
    cases.push_back({model, request, "sgd"});
  };
  for (const char *model : {"tiny-gpt2", "tiny-llama"})
    for (const char *form : {"ring", "all-gather", "all-to-all"})
      for (const char *order : {"contiguous", "zigzag"}) {
        // A table with a row for every position keeps the original order.
        if (model == std::string("tiny-gpt2") && order == std::string("zigzag"))
          continue;
        add(model, "cp=2", form, order);
        add(model, others[number % 4], form, order);
        add(model, others[(number + 1 + number / 4) % 4], form, order);
        ++number;
      }
  for (const char *form : {"ring", "all-gather"})
    for (const char *order : {"contiguous", "zigzag"}) {
      add("tiny-llama", "cp=4", form, order);
      add("llama-8l", "cp=2,tp=2", form, order);
    }
  for (const char *form : {"ring", "all-gather"})
    add("gpt2-8l", "cp=4", form, "contiguous"); // dropout
  add("gpt2-8l", "dp=2,cp=2", "all-to-all", "contiguous");
  // Every form of recompute, and sharded gradients.
  for (const char *recompute : {"selective", "full"}) {
    test::PlanRequest request{"cp=2,fsdp=2", "auto", "", recompute};
    request.context = "ring";
    cases.push_back({"tiny-llama", request});
  }
}

std::vector<Case> allCases() {
  std::vector<Case> cases;
  for (const char *model : {"tiny-mlp", "tiny-gpt2", "tiny-llama", "tiny-resnet"}) {
    for (const char *mesh : {"dp=4", "fsdp=4", "tp=4", "pp=2,dp=2", "fsdp=2,tp=2,pp=2"})
      cases.push_back({model, {mesh}});
    cases.push_back({model, {"pp=2,tp=2", "auto", "gpipe"}});
    cases.push_back({model, {"dp=2,fsdp=2", "auto", "", "full"}, "sgd"});
    cases.push_back({model, {"pp=2,fsdp=2", "auto", "1f1b", "selective"}, "sgd"});
    cases.push_back({model, {"fsdp=2,tp=2,pp=2"}, "sgd"});
  }
  for (const char *mesh : {"dp=2,tp=2", "tp=4", "pp=2,fsdp=2"})
    cases.push_back({"moe-8l", {mesh}, "sgd"});
  // Experts over ep: without a capacity, and with experts that drop tokens beyond their slots.
  for (const char *mesh : {"ep=2", "ep=4", "dp=2,ep=2", "fsdp=2,ep=2", "ep=2,tp=2", "ep=4,tp=2",
                           "pp=2,ep=2", "dp=2,fsdp=2,ep=2"}) {
    cases.push_back({"moe-8l", {mesh}, "sgd"});
    cases.push_back({"moe-8l", {mesh}, "sgd", {{"capacity_factor", 0.75}}});
  }
  cases.push_back(
      {"moe-8l", {"ep=2,dp=2", "auto", "", "full"}, "sgd", {{"capacity_factor", 1.25}}});
  cases.push_back(
      {"moe-8l", {"pp=2,ep=2", "auto", "zero-bubble"}, "sgd", {{"capacity_factor", 1}}});
  cases.push_back({"moe-8l", {"tp=2", "auto"}, "sgd", {{"capacity_factor", 1}}});
  // Some blocks recompute, the others keep more.
  cases.push_back({"tiny-gpt2", {"fsdp=2,tp=2"}, "muon", {{"clip_norm", 0.01}}});
  cases.push_back({"moe-8l", {"ep=2,fsdp=2"}, "muon", {{"match_rms", 1}}});
  for (const char *mesh : {"dp=4", "fsdp=2,tp=2", "pp=2,tp=2"})
    cases.push_back({"tiny-gpt2", {mesh}, "adafactor", {{"clip_norm", 0.01}}});
  for (const char *strategy : {"zero1", "zero2", "zero3"})
    cases.push_back({"tiny-mlp", {"fsdp=2", strategy}, "adafactor", {{"epsilon2", 0.5}}});
  cases.push_back({"moe-8l", {"ep=2,fsdp=2"}, "adafactor", {{"weight_decay", 0.1}}});
  cases.push_back({"tiny-resnet", {"dp=2,tp=2"}, "adafactor"});
  for (const char *mesh : {"dp=4", "fsdp=4", "tp=4", "fsdp=2,tp=2,pp=2"})
    cases.push_back({"tiny-llama", {mesh}, "rowwise-adagrad", {{"initial_accumulator", 0.5}}});
  cases.push_back({"tiny-mlp", {"fsdp=2,tp=2"}, "adagrad", {{"lr_decay", 0.5}}});
  cases.push_back({"gpt2-8l", {"pp=2", "auto", "1f1b", "full:5"}, "sgd"});
  cases.push_back({"llama-8l", {"dp=2,tp=2", "auto", "", "selective:3"}, "sgd"});
  cases.push_back({"unet-8l", {"fsdp=2", "auto", "", "full:2"}, "sgd"});
  for (const char *strategy : {"zero1", "zero2", "zero3", "shard-grad-op"})
    cases.push_back({"tiny-gpt2", {"fsdp=2", strategy}});
  cases.push_back({"tiny-gpt2", {"dp=2,fsdp=2", "hybrid-shard"}});
  // Clipping by norm: each element of each gradient counts once, even if replicated. One limit is
  // below the norm, one above.
  for (const char *mesh : {"dp=4", "fsdp=4", "tp=4", "pp=2,dp=2", "fsdp=2,tp=2,pp=2"})
    for (double norm : {0.01, 1000.0})
      cases.push_back({"tiny-gpt2", {mesh}, "sgd", {{"clip_norm", norm}}});
  for (const char *strategy : {"zero1", "zero2", "zero3"})
    cases.push_back({"tiny-mlp", {"fsdp=2", strategy}, "adam", {{"clip_norm", 0.01}}});
  cases.push_back({"tiny-resnet", {"dp=2,fsdp=2"}, "sgd", {{"clip_value", 0.001}}});
  for (const char *mesh : {"dp=2,fsdp=2", "pp=2,tp=2"})
    cases.push_back(
        {"tiny-llama", {mesh}, "adam", {{"label_smoothing", 0.1}, {"weight_decay", 1}}});
  // Dropout: the same masks under every plan.
  for (const char *model : {"gpt2-8l", "resnet-8b"})
    for (const char *mesh : {"dp=4", "fsdp=2,dp=2", "pp=2,dp=2", "fsdp=2,tp=2,pp=2"})
      cases.push_back({model, {mesh}, "sgd"});
  cases.push_back({"llama-8l", {"tp=4"}, "sgd"});
  // Padding and packed documents: masks that are data.
  for (const char *mesh : {"dp=4", "fsdp=4", "tp=4", "pp=2,dp=2", "fsdp=2,tp=2,pp=2"}) {
    cases.push_back({"masked-bert", {mesh}, "sgd", {}, "attention_mask"});
    cases.push_back({"packed-llama", {mesh}, "sgd", {}, "position_ids"});
  }
  addSchedules(cases);
  addContexts(cases);
  cases.push_back({"gpt2-8l", {"dp=2,tp=2", "auto", "", "full"}, "sgd"});
  return cases;
}

/// Returns the cases by step, in groups that take about as long as each other.
std::vector<Group> allGroups() {
  constexpr size_t most = 12;
  std::vector<Group> groups;
  std::map<std::tuple<std::string, std::string, std::map<std::string, double>, std::string>, size_t>
      open;
  for (const Case &one : allCases()) {
    auto [it, isNew] =
        open.try_emplace({one.model, one.optimizer, one.settings, one.kept}, groups.size());
    if (!isNew && groups[it->second].size() == most)
      it->second = groups.size();
    if (it->second == groups.size())
      groups.emplace_back();
    groups[it->second].push_back(one);
  }
  return groups;
}

std::string groupName(const testing::TestParamInfo<Group> &info) {
  const Case &first = info.param.front();
  std::string name = std::string(first.model) + "_" + first.optimizer;
  for (const auto &[setting, value] : first.settings)
    name += "_" + setting + "_" + std::to_string(value);
  name += "_" + std::to_string(info.index);
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)))
      c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Plans, VerifyPlans, testing::ValuesIn(allGroups()), groupName);

} // namespace
