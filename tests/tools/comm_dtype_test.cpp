//===- comm_dtype_test.cpp - Gradients sent as bf16 -----------------------===//
//
// Each rank is a process over Gloo. It trains once with gradients summed in f32 and once with
// gradients sent as bf16.
//
// The bound: let u = 2^-8. bf16 rounds the term g of rank r to g (1 + d), |d| <= u, and rounds the
// sum once more. So the sum of the terms is off by at most ((1 + u)^2 - 1) sum_r |g_r|. A step of
// gradient descent moves a parameter off by at most rate * factor * this; the factor turns the mean
// over all labels into the mean over those not ignored. Example: terms of 1 and 1 are off by at
// most 0.016.
//
//===----------------------------------------------------------------------===//

#include "runtime/exec/Executor.h"
#include "runtime/exec/Packing.h"
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

/// A plan of tiny-gpt2 with gradient descent, and its training data.
struct Training {
  test::Model model;
  driver::CompiledPlan compiled;
  std::unique_ptr<driver::RunData> data;
  const program::Program &program() const { return compiled.program; }
};

Result<Training> trainingOf(const std::string &mesh, const std::string &strategy,
                            int64_t microBatch) {
  Training training{test::loadModel("tiny-gpt2", "sgd"), {}, {}};
  test::PlanRequest request{mesh, strategy};
  request.microBatch = microBatch;
  auto plan = test::makePlan(training.model, request);
  if (!plan)
    return plan.error();
  auto compiled = driver::compilePlan(*training.model.step, *plan);
  if (!compiled)
    return compiled.error();
  auto data = driver::makeRunData(*training.model.step, *plan, 2, Arith::Native, 1);
  if (!data)
    return data.error();
  training.compiled = std::move(*compiled);
  training.data = std::make_unique<driver::RunData>(std::move(*data));
  return training;
}

Result<runtime::Executor> executorOf(const Training &training, int64_t rank, bool isNarrow) {
  auto executor =
      runtime::Executor::create(training.program(), rank, kernels::KernelContext(Arith::Native));
  if (!executor)
    return executor;
  Status status =
      executor->load([&](const std::string &name) { return training.data->initial.at(name); });
  if (status && isNarrow)
    status = executor->sumGradientsInBF16();
  return status ? std::move(executor) : Result<runtime::Executor>(status.error());
}

/// Runs a step and returns the bytes that this rank sent in it.
Result<int64_t> step(const Training &training, runtime::Executor &executor, size_t number,
                     comm::Communicator &communicator) {
  runtime::StepInputs inputs;
  inputs.microBatches = training.data->steps[number];
  inputs.learningRate = training.data->learningRate;
  comm::SentBytes before = *communicator.sent();
  if (Status status = executor.runStep(communicator, inputs); !status)
    return status.error();
  comm::SentBytes after = *communicator.sent();
  return after.withinHost + after.acrossHosts - before.withinHost - before.acrossHosts;
}

/// Returns the bytes of all_reduce and reduce_scatter.
int64_t reducedBytes(const runtime::Executor &executor) {
  int64_t bytes = 0;
  for (const auto &[key, count] : executor.collectives())
    if (key.kind == program::InstructionKind::AllReduce ||
        key.kind == program::InstructionKind::ReduceScatter)
      bytes += key.bytes * count;
  return bytes;
}

/// Returns the elementwise sum of magnitudes over all ranks.
Result<Doubles> sumOfMagnitudes(const Tensor &tensor, comm::Communicator &communicator) {
  Doubles values = tensor.toDoubles();
  for (double &value : values)
    value = std::fabs(value);
  comm::Group all;
  for (int64_t rank = 0; rank < communicator.numRanks(); ++rank)
    all.push_back(rank);
  Result<Tensor> sum =
      communicator
          .allReduce(all, comm::ReduceKind::Sum,
                     Tensor::fromDoubles({DType::F64, tensor.shape()}, Arith::Native, values),
                     "the test")
          ->wait();
  return sum ? Result<Doubles>(sum->toDoubles()) : Result<Doubles>(sum.error());
}

/// Calls fn(parameter, gradient) with the tensor indices of every parameter and its gradient.
template <typename Fn> Status forParameters(const program::Program &program, Fn fn) {
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    if (program.tensors[t].role != program::Role::Parameter)
      continue;
    int gradient = program.tensorIndex(program.tensors[t].name + ".grad");
    if (gradient < 0)
      return Error{ErrorCode::Other, program.tensors[t].name + " has no gradient"};
    if (Status status = fn(int(t), gradient); !status)
      return status;
  }
  return Status::ok();
}

/// Returns the step's factor on sums over all labels: labels / labels that are not ignored.
/// Example: 32 labels, 8 of them ignored, give 4/3.
double labelFactor(const Training &training, size_t number) {
  double all = 0, counted = 0;
  for (const auto &microBatch : training.data->steps[number])
    for (int64_t label : microBatch.at("labels").data<int64_t>()) {
      all += 1;
      counted += label >= 0;
    }
  return all / counted;
}

enum Figure { Worst, Largest, LossExcess, Reduced, ReducedNarrow, Sent, SentNarrow, NumFigures };

/// Runs both variants on a rank of a plan with whole replicas and returns figures by `Figure`.
/// These are the worst error of a parameter after a step, relative to its bound and absolute; the
/// excess of the second loss's error over its bound; and the bytes reduced and sent in the first
/// step. `zero1` trains the same: its ranks keep their own terms of the sums.
Result<Tensor> compare(const Training &training, const Training &zero1,
                       comm::Communicator &communicator) {
  auto ofTerms = executorOf(zero1, communicator.rank(), false);
  if (!ofTerms)
    return ofTerms.error();
  if (auto done = step(zero1, *ofTerms, 0, communicator); !done)
    return done.error();
  auto exact = executorOf(training, communicator.rank(), false),
       narrow = executorOf(training, communicator.rank(), true);
  if (!exact || !narrow)
    return exact ? narrow.error() : exact.error();
  auto sent = step(training, *exact, 0, communicator),
       sentNarrow = step(training, *narrow, 0, communicator);
  if (!sent || !sentNarrow)
    return sent ? sentNarrow.error() : sent.error();
  if (!bitwiseEqual(exact->loss(), narrow->loss()))
    return Error{ErrorCode::VerificationFailed, "the first losses differ"};
  Doubles figures(NumFigures);
  figures[Reduced] = double(reducedBytes(*exact));
  figures[ReducedNarrow] = double(reducedBytes(*narrow));
  figures[Sent] = double(*sent);
  figures[SentNarrow] = double(*sentNarrow);
  const double u = 0x1p-8, rate = training.data->learningRate * labelFactor(training, 0);
  std::map<int, Doubles> bounds; // by parameter
  Status status = forParameters(training.program(), [&](int parameter, int gradient) -> Status {
    const int terms = zero1.program().tensorIndex(training.program().tensors[gradient].name);
    auto magnitudes = sumOfMagnitudes(ofTerms->held(terms), communicator);
    if (!magnitudes)
      return magnitudes.error();
    Doubles one = exact->held(parameter).toDoubles(), other = narrow->held(parameter).toDoubles();
    for (size_t i = 0; i < one.size(); ++i) {
      double error = std::fabs(one[i] - other[i]);
      // Plus the roundings of the update, in f32.
      double bound = rate * ((1 + u) * (1 + u) - 1) * (*magnitudes)[i] +
                     0x1p-22 * (std::fabs(one[i]) + rate * (*magnitudes)[i]);
      bounds[parameter].push_back(bound);
      figures[Worst] = std::max(figures[Worst], bound > 0 ? error / bound : error);
      figures[Largest] = std::max(figures[Largest], error);
    }
    return Status::ok();
  });
  if (!status)
    return status.error();
  for (runtime::Executor *executor : {&*exact, &*narrow})
    if (auto done = step(training, *executor, 1, communicator); !done)
      return done.error();
  // To first order the loss is off by its gradient times the parameters' errors. Twice that leaves
  // headroom for the second order, for steps as short as these.
  double losses[] = {exact->loss().toDoubles()[0], narrow->loss().toDoubles()[0]};
  double bound = 1e-6 * std::fabs(losses[0]), factor = labelFactor(training, 1);
  status = forParameters(training.program(), [&](int parameter, int gradient) -> Status {
    const Doubles sums = exact->held(gradient).toDoubles(); // over all ranks
    for (size_t i = 0; i < sums.size(); ++i)
      bound += 2 * factor * std::fabs(sums[i]) * bounds[parameter][i];
    return Status::ok();
  });
  if (!status)
    return status.error();
  figures[LossExcess] = std::fabs(losses[0] - losses[1]) - bound;
  return Tensor::fromDoubles({DType::F64, {NumFigures}}, Arith::Native, figures);
}

class CommDType : public testing::TestWithParam<int64_t> {};

TEST_P(CommDType, KeepsToItsBoundAndHalvesTheBytes) {
  int64_t numRanks = GetParam();
  const std::string mesh = "dp=" + std::to_string(numRanks);
  auto training = trainingOf(mesh, "auto", 1), zero1 = trainingOf(mesh, "zero1", 1);
  ASSERT_TRUE(training) << training.error().message;
  ASSERT_TRUE(zero1) << zero1.error().message;
  int64_t gradientBytes = 0;
  for (const program::GlobalTensor &tensor : training->program().tensors)
    if (tensor.role == program::Role::Gradient)
      gradientBytes += program::sizeBytes(tensor.type);
  auto results =
      test::runRanks(test::Backend::Gloo, numRanks, [&](comm::Communicator &communicator) {
        return compare(*training, *zero1, communicator);
      });
  for (const Result<Tensor> &result : results) {
    ASSERT_TRUE(result) << result.error().message;
    Doubles figures = result->toDoubles();
    EXPECT_LE(figures[Worst], 1);
    EXPECT_GT(figures[Largest], 0); // it does round
    EXPECT_LE(figures[LossExcess], 0);
    // Only the gradients got narrower; the loss is still summed in f32.
    EXPECT_EQ(figures[Reduced] - figures[ReducedNarrow], double(gradientBytes) / 2);
    EXPECT_GT(figures[ReducedNarrow], double(gradientBytes) / 2);
    if (numRanks == 2) // each of two ranks sends the other as many bytes as a gradient has
      EXPECT_EQ(figures[Sent] - figures[SentNarrow], double(gradientBytes) / 2);
    else
      EXPECT_LT(figures[SentNarrow], 0.6 * figures[Sent]);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommDType, testing::Values(2, 4));

/// Returns all parameters of a rank after two steps, concatenated.
Result<Tensor> trained(const Training &training, comm::Communicator &communicator) {
  auto executor = executorOf(training, communicator.rank(), true);
  if (!executor)
    return executor.error();
  for (size_t number : {0, 1})
    if (auto done = step(training, *executor, number, communicator); !done)
      return done.error();
  Doubles values;
  Status status = forParameters(training.program(), [&](int parameter, int) {
    Doubles held = executor->held(parameter).toDoubles();
    values.insert(values.end(), held.begin(), held.end());
    return Status::ok();
  });
  if (!status)
    return status.error();
  int64_t count = int64_t(values.size());
  return Tensor::fromDoubles({DType::F64, {count}}, Arith::Native, values);
}

TEST(CommDTypePlans, ReplicasAndShardsHaveTheSameBits) {
  // With one micro-batch every plan sums each gradient once, over the same two ranks.
  auto replicas = trainingOf("dp=2", "auto", 4);
  ASSERT_TRUE(replicas) << replicas.error().message;
  auto whole = test::runRanks(test::Backend::Gloo, 2, [&](comm::Communicator &communicator) {
    return trained(*replicas, communicator);
  });
  ASSERT_TRUE(whole[0]) << whole[0].error().message;
  Doubles expected = whole[0]->toDoubles();
  for (const char *strategy : {"zero1", "zero3"}) {
    bool isSharded = strategy == std::string("zero3");
    auto shards = trainingOf(isSharded ? "fsdp=2" : "dp=2", isSharded ? "auto" : strategy, 4);
    ASSERT_TRUE(shards) << shards.error().message;
    auto pieces = test::runRanks(test::Backend::Gloo, 2, [&](comm::Communicator &communicator) {
      return trained(*shards, communicator);
    });
    const program::Program &program = shards->program();
    for (int64_t rank : {0, 1}) {
      ASSERT_TRUE(pieces[size_t(rank)]) << pieces[size_t(rank)].error().message;
      Doubles held = pieces[size_t(rank)]->toDoubles();
      size_t next = 0, first = 0;
      for (const program::GlobalTensor &tensor : program.tensors) {
        if (tensor.role != program::Role::Parameter)
          continue;
        for (int64_t index :
             program::ownedIndices(program.mesh, tensor.piece, program.mesh.coordinates(rank))) {
          if (index >= 0)
            ASSERT_EQ(held[next], expected[first + size_t(index)])
                << strategy << ", " << tensor.name << ", element " << index;
          ++next;
        }
        first += size_t(kernels::numElements(tensor.type.shape));
      }
      EXPECT_EQ(next, held.size());
      EXPECT_EQ(first, expected.size());
    }
  }
}

TEST(CommDTypePlans, ResiduesAreRefused) {
  auto training = trainingOf("dp=2", "auto", 4);
  ASSERT_TRUE(training) << training.error().message;
  for (Arith arith : {Arith::F64, Arith::Residue61, Arith::Residue251}) {
    auto executor =
        runtime::Executor::create(training->program(), 0, kernels::KernelContext(arith));
    ASSERT_TRUE(executor) << executor.error().message;
    Status status = executor->sumGradientsInBF16();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::Usage);
  }
}

} // namespace
