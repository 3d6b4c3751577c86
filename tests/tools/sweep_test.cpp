//===- sweep_test.cpp - Every strategy equals the serial program ----------===//
//
// Every strategy on every model is compared with:
// - the serial program: residues bit for bit, floats within the bound;
// - the collectives and resident bytes that `IndependentCollectives` derives from the shardings
//   (signature_test has the closed forms);
// - PyTorch's losses, with dropout off; otherwise dropout and tied weights are on if the model has
//   them.
//
// A seeded sample; all cases with TBC_FULL_TESTS (ctest -C full -L full -R sweep).
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/support/FullTests.h"
#include "tests/support/Npz.h"
#include "tests/tools/IndependentCollectives.h"
#include "tests/tools/SweepCases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace tbc;

namespace {

struct Case {
  std::string model;
  const test::SweepRow *row;
};

/// For the test name in CTest.
void PrintTo(const Case &testCase, std::ostream *out) {
  *out << testCase.model << " " << testCase.row->name;
}

std::string describe(const driver::Comparison &line) {
  return line.name + ": error " + std::to_string(line.error) + ", bound " +
         std::to_string(line.bound);
}

constexpr int verifiedSteps = 2;
constexpr int numSeeds = 8; // docs/design.md, 4.2
constexpr uint64_t firstSeed = 1;

/// A model, and its serial runs by (samples per micro-batch on all ranks, micro-batches). Many rows
/// share them.
struct Serial {
  driver::RunRecord residues;
  std::vector<driver::RunRecord> native, exact;
};
struct Verified {
  test::Model model;
  std::map<std::pair<int64_t, int64_t>, Serial> serial;
};

Verified &verifiedModel(const std::string &name) {
  static std::map<std::string, Verified> models;
  Verified &entry = models[name];
  if (!entry.model.step)
    entry.model = test::loadModel(name, "sgd");
  return entry;
}

/// Returns the serial run in one arithmetic on the inputs of one seed.
driver::RunRecord runOnce(Verified &entry, const planner::Plan &plan, kernels::Arith arith,
                          uint64_t seed) {
  auto data = driver::makeRunData(*entry.model.step, plan, verifiedSteps, arith, seed);
  if (!data) {
    ADD_FAILURE() << data.error().message;
    return {};
  }
  auto record = driver::runSerial(*entry.model.step, plan, *data, arith);
  if (!record)
    ADD_FAILURE() << record.error().message;
  return record ? *record : driver::RunRecord();
}

const Serial &serialRuns(Verified &entry, const planner::Plan &plan) {
  std::pair<int64_t, int64_t> sizes{plan.microBatch * plan.mesh.dataRanks(), plan.accumulation};
  auto [found, isNew] = entry.serial.try_emplace(sizes);
  if (!isNew)
    return found->second;
  found->second.residues = runOnce(entry, plan, kernels::Arith::Residue61, firstSeed);
  for (int i = 0; i < numSeeds; ++i) {
    found->second.native.push_back(runOnce(entry, plan, kernels::Arith::Native, firstSeed + i));
    found->second.exact.push_back(runOnce(entry, plan, kernels::Arith::F64, firstSeed + i));
  }
  return found->second;
}

class Sweep : public testing::TestWithParam<Case> {};

TEST_P(Sweep, ParallelEqualsSerial) {
  Verified &entry = verifiedModel(GetParam().model);
  driver::TrainingStep &step = *entry.model.step;
  auto plan = test::sweepPlan(entry.model, *GetParam().row);
  ASSERT_TRUE(plan) << plan.error().message;
  auto compiled = driver::compilePlan(step, *plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  EXPECT_EQ(test::signatureDifference(*compiled, *plan), "");
  const Serial &serial = serialRuns(entry, *plan);
  ASSERT_FALSE(HasFailure());
  auto parallel = [&](kernels::Arith arith) -> Result<driver::RunRecord> {
    auto data = driver::makeRunData(step, *plan, verifiedSteps, arith, firstSeed);
    if (!data)
      return data.error();
    return driver::runParallel(compiled->program, *data, arith);
  };
  auto residues = parallel(kernels::Arith::Residue61), floats = parallel(kernels::Arith::Native);
  ASSERT_TRUE(residues) << residues.error().message;
  ASSERT_TRUE(floats) << floats.error().message;
  EXPECT_FALSE(serial.residues.empty());
  for (const driver::Comparison &line : driver::compareExactly(serial.residues, *residues))
    EXPECT_TRUE(line.equal) << "residue differs: " << line.name;
  for (const driver::Comparison &line : driver::compareFloats(compiled->program, serial.exact[0],
                                                              serial.native, serial.exact, *floats))
    EXPECT_TRUE(line.equal) << describe(line);
}

// PyTorch: SGD at 0.1 over batches of 8 samples.

constexpr int numSteps = 3;
constexpr int64_t batch = 8;

std::string referencePath(const std::string &model, const std::string &file) {
  return std::string(TBC_SOURCE_DIR) + "/models/reference/" + model + "/" + file;
}

/// Returns samples first .. first + count - 1 of an array, as a tensor.
kernels::Tensor samples(const test::NpyArray &array, int64_t first, int64_t count) {
  kernels::TensorType type{array.isFloat() ? kernels::DType::F32 : kernels::DType::I64,
                           array.shape};
  int64_t each = array.numElements() / array.shape[0];
  type.shape[0] = count;
  auto part = [&](const auto &values) {
    auto begin = values.begin() + first * each;
    return std::decay_t<decltype(values)>(begin, begin + count * each);
  };
  return array.isFloat()
             ? kernels::Tensor::fromDoubles(type, kernels::Arith::Native, part(array.values))
             : kernels::Tensor::fromInts(type, part(array.ints));
}

/// Replaces the inputs of `data` by PyTorch's.
void feedReference(driver::RunData &data, const driver::TrainingStep &step,
                   const planner::Plan &plan, std::map<std::string, test::NpyArray> &reference) {
  int64_t each = plan.microBatch * plan.mesh.dataRanks();
  for (int s = 0; s < numSteps; ++s) {
    std::string number = std::to_string(s + 1);
    for (int64_t m = 0; m < plan.accumulation; ++m) {
      auto &inputs = data.steps[s][m];
      inputs.at(step.model.inputs.front().name) =
          samples(reference["input_" + number], m * each, each);
      inputs.at("labels") = samples(reference["label_" + number], m * each, each);
    }
  }
}

TEST_P(Sweep, LossesArePyTorchs) {
  const std::string &name = GetParam().model;
  auto reference = test::readNpz(referencePath(name, "inputs.npz"));
  const std::vector<int64_t> &shape = reference["input_1"].shape;
  test::Model model =
      test::loadModel(name, "sgd", {{"dropout", 0}}, "", "f32", shape.size() == 2 ? shape[1] : 8);
  test::SweepRow row = *GetParam().row;
  row.request.globalBatch = batch;
  auto plan = test::sweepPlan(model, row);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->microBatch * plan->mesh.dataRanks() * plan->accumulation, batch);
  if (name == "resnet-8b" && plan->accumulation > 1)
    GTEST_SKIP() << "its batch statistics are those of a micro-batch; PyTorch's, of the batch";
  auto compiled = driver::compilePlan(*model.step, *plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  auto data = driver::makeRunData(*model.step, *plan, numSteps, kernels::Arith::Native, 1);
  ASSERT_TRUE(data) << data.error().message;
  feedReference(*data, *model.step, *plan, reference);
  data->learningRate = 0.1;
  auto run = driver::runParallel(compiled->program, *data, kernels::Arith::Native);
  ASSERT_TRUE(run) << run.error().message;

  std::vector<double> exact = test::readCsv(referencePath(name, "losses_sgd_f64.csv"))["loss"],
                      single = test::readCsv(referencePath(name, "losses_sgd.csv"))["loss"];
  double distance = 0, largest = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    distance = std::max(distance, std::abs(exact[i] - single[i]));
    largest = std::max(largest, exact[i]);
  }
  double bound = 4 * distance + std::ldexp(1, std::ilogb(largest) - 23);
  for (int s = 0; s < numSteps; ++s)
    EXPECT_NEAR(run->at("loss " + std::to_string(s + 1)).toDoubles()[0], exact[s], bound)
        << "step " << s + 1;
}

class SweepExcluded : public testing::TestWithParam<Case> {};

TEST_P(SweepExcluded, IsRefused) {
  test::Model model = test::loadModel(GetParam().model, "sgd");
  auto plan = test::sweepPlan(model, *GetParam().row);
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message,
              testing::HasSubstr(GetParam().row->excluded.at(GetParam().model)));
}

std::vector<Case> casesOf(bool isExcluded) {
  std::vector<Case> cases;
  for (const std::string &model : test::sweepModels())
    for (const test::SweepRow &row : test::sweepRows())
      if ((row.excluded.count(model) != 0) == isExcluded)
        cases.push_back({model, &row});
  return cases;
}

std::vector<Case> sampledCases() {
  std::vector<Case> cases = casesOf(false);
  if (test::isFullRun())
    return cases;
  std::mt19937_64 random(7);
  for (size_t i = cases.size(); i > 1; --i) // std::shuffle differs between libraries
    std::swap(cases[i - 1], cases[random() % i]);
  cases.resize(16);
  return cases;
}

std::string caseName(const testing::TestParamInfo<Case> &info) {
  std::string name = info.param.model + "_" + info.param.row->name;
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)))
      c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Table, Sweep, testing::ValuesIn(sampledCases()), caseName);
INSTANTIATE_TEST_SUITE_P(Table, SweepExcluded, testing::ValuesIn(casesOf(true)), caseName);

} // namespace
