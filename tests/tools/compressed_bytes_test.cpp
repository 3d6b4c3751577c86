//===- compressed_bytes_test.cpp - Bytes of compressed gradients on the wire -===//
//
// Each rank is a process over Gloo. It trains a step with whole gradients and one with their
// largest elements.
//
//===----------------------------------------------------------------------===//

#include "runtime/exec/Executor.h"
#include "tests/runtime/comm/Backends.h"
#include "tests/tools/PlanSupport.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace tbc;
using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using Doubles = std::vector<double>;

namespace {

constexpr double share = 0.01;

enum Figure { Dense, Sparse, CountedDense, CountedSparse, Given, Moved, NumFigures };

/// Returns the sum of `mine` over both ranks.
Result<double> sumOf(double mine, comm::Communicator &communicator) {
  Tensor value = Tensor::fromDoubles({DType::F64, {1}}, Arith::Native, {mine});
  auto sum = communicator.allReduce({0, 1}, comm::ReduceKind::Sum, value, "the test")->wait();
  return sum ? Result<double>(sum->toDoubles()[0]) : Result<double>(sum.error());
}

/// Returns the sum of all elements of all parameters that this rank holds.
double sumOfParameters(const program::Program &program, const runtime::Executor &executor) {
  double sum = 0;
  for (size_t t = 0; t < program.tensors.size(); ++t)
    if (program.tensors[t].role == program::Role::Parameter)
      for (double element : executor.held(int(t)).toDoubles())
        sum += element;
  return sum;
}

/// Returns the figures of a rank. For a step with whole and one with compressed gradients: the
/// bytes sent, and those counted by the executor. Also the sum of elements kept back, and the
/// difference of its parameters' movement.
Result<Tensor> measure(const program::Program &program, const driver::RunData &data,
                       comm::Communicator &communicator) {
  Doubles figures(NumFigures);
  for (bool isSparse : {false, true}) {
    auto executor = runtime::Executor::create(program, communicator.rank(),
                                              kernels::KernelContext(Arith::Native));
    if (!executor)
      return executor.error();
    Status status = executor->load([&](const std::string &name) { return data.initial.at(name); });
    if (status && isSparse)
      status = executor->compressGradients(share);
    runtime::StepInputs inputs;
    inputs.microBatches = data.steps[0];
    inputs.learningRate = data.learningRate;
    comm::SentBytes before = *communicator.sent();
    if (status)
      status = executor->runStep(communicator, inputs);
    if (!status)
      return status.error();
    comm::SentBytes after = *communicator.sent();
    figures[isSparse ? Sparse : Dense] =
        double(after.withinHost + after.acrossHosts - before.withinHost - before.acrossHosts);
    for (const auto &[key, count] : executor->collectives())
      figures[isSparse ? CountedSparse : CountedDense] += double(key.bytes * count);
    figures[Moved] += (isSparse ? 1 : -1) * sumOfParameters(program, *executor);
    for (const auto &[place, count] : executor->gradientResiduals())
      for (float element : executor->gradientResidual(place))
        figures[Given] += double(element);
  }
  auto given = sumOf(figures[Given], communicator);
  if (!given)
    return given.error();
  figures[Given] = *given;
  return Tensor::fromDoubles({DType::F64, {NumFigures}}, Arith::Native, figures);
}

TEST(CompressedGradients, SendLessAndKeepTheRest) {
  test::Model model = test::loadModel("tiny-gpt2", "sgd");
  test::PlanRequest request{"dp=2"};
  auto plan = test::makePlan(model, request);
  ASSERT_TRUE(plan) << plan.error().message;
  auto compiled = driver::compilePlan(*model.step, *plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  auto data = driver::makeRunData(*model.step, *plan, 1, Arith::Native, 1);
  ASSERT_TRUE(data) << data.error().message;
  // Each of two ranks sends the other a whole gradient, or the index and value of a hundredth of
  // it.
  double saved = 0;
  for (const program::GlobalTensor &tensor : compiled->program.tensors)
    if (tensor.role == program::Role::Gradient) {
      double count = double(kernels::numElements(tensor.type.shape));
      double numSent = std::ceil(share * count);
      saved += 2 * numSent < count ? 4 * count - 8 * numSent : 0;
    }
  EXPECT_GT(saved, 0);
  double labels = 0, counted = 0;
  for (const auto &microBatch : data->steps[0])
    for (int64_t label : microBatch.at("labels").data<int64_t>()) {
      labels += 1;
      counted += label >= 0;
    }
  auto results = test::runRanks(test::Backend::Gloo, 2, [&](comm::Communicator &communicator) {
    return measure(compiled->program, *data, communicator);
  });
  for (const Result<Tensor> &result : results) {
    ASSERT_TRUE(result) << result.error().message;
    Doubles figures = result->toDoubles();
    EXPECT_EQ(figures[Dense] - figures[Sparse], saved);
    EXPECT_EQ(figures[CountedDense] - figures[CountedSparse], saved);
    EXPECT_LT(figures[Sparse], 0.05 * figures[Dense]);
    // Parameters lack the part of their step that was kept back. Some 10^5 of them, of about 0.02,
    // are rounded: together about 10^-7.
    double expected = data->learningRate * labels / counted * figures[Given];
    EXPECT_GT(std::fabs(expected), 1e-4);
    EXPECT_NEAR(figures[Moved], expected, 1e-2 * std::fabs(expected));
  }
}

} // namespace
