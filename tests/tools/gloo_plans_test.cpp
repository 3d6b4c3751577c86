//===- gloo_plans_test.cpp - Plans on real processes equal the serial program -===//
//
// Each rank is a process over Gloo. It compares its tensors with its pieces of the serial run's
// tensors, bit for bit in residues of both kinds. The interpreter computed them before the
// processes were forked. Residues modulo 251 lie in the arena and travel exactly as floats do, byte
// for byte. This checks transport, packing and schedule as in a real run.
//
//===----------------------------------------------------------------------===//

#include "runtime/exec/Executor.h"
#include "runtime/exec/Packing.h"
#include "tests/runtime/comm/Backends.h"
#include "tests/tools/PlanSupport.h"

#include <gtest/gtest.h>

using namespace tbc;
using kernels::Tensor;

namespace {

struct Case {
  const char *model;
  test::PlanRequest request;
  const char *precision = "f32";
};

void PrintTo(const Case &testCase, std::ostream *out) {
  *out << testCase.model << " " << testCase.request.mesh << " " << testCase.request.strategy << " "
       << testCase.request.schedule << " " << testCase.precision;
}

class GlooPlans : public testing::TestWithParam<std::tuple<Case, kernels::Arith>> {};

/// Returns this rank's part of `tensor`, summed over the ranks with partial sums of it.
Result<Tensor> completed(const runtime::Executor &executor, const program::Program &program,
                         int index, comm::Communicator &communicator) {
  const program::GlobalTensor &tensor = program.tensors[index];
  Tensor held = executor.held(index);
  std::vector<program::AxisRef> axes;
  // Stages hold other tensors, so only the ranks with this one may be called.
  for (const program::AxisRef &axis : tensor.partial)
    if (axis.axis != program.pipelineAxis)
      axes.push_back(axis);
  if (!held || axes.empty())
    return held;
  comm::Group group =
      program::groupRanks(program.mesh, axes, program.mesh.coordinates(communicator.rank()));
  return communicator.allReduce(group, comm::ReduceKind::Sum, held, "the test")->wait();
}

/// Runs all steps on a rank. Returns the number of compared tensors, or the first difference.
Result<Tensor> runRank(const program::Program &program, const driver::RunData &data,
                       const driver::RunRecord &serial, kernels::Arith arith,
                       comm::Communicator &communicator) {
  kernels::KernelContext context(arith);
  auto differs = [](const std::string &name) {
    return Error{ErrorCode::VerificationFailed, name + " differs"};
  };
  auto executor = runtime::Executor::create(program, communicator.rank(), context);
  if (!executor)
    return executor.error();
  Status loaded = executor->load([&](const std::string &name) { return data.initial.at(name); });
  if (!loaded)
    return loaded.error();
  int64_t numCompared = 0;
  for (size_t s = 0; s < data.steps.size(); ++s) {
    runtime::StepInputs inputs;
    inputs.microBatches = data.steps[s];
    inputs.learningRate = data.learningRate;
    if (Status status = executor->runStep(communicator, inputs); !status)
      return status.error();
    std::string name = "loss " + std::to_string(s + 1);
    if (Tensor loss = executor->loss()) {
      ++numCompared;
      if (!bitwiseEqual(loss, serial.at(name)))
        return differs(name);
    }
  }
  std::vector<int64_t> coordinates = program.mesh.coordinates(communicator.rank());
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    const program::GlobalTensor &tensor = program.tensors[t];
    bool spansStages = false;
    for (const program::AxisRef &axis : tensor.partial)
      spansStages |= axis.axis == program.pipelineAxis;
    if (tensor.role == program::Role::Input || spansStages)
      continue;
    Result<Tensor> mine = completed(*executor, program, int(t), communicator);
    if (!mine)
      return mine.error();
    if (!*mine)
      continue;
    std::vector<int64_t> indices = program::ownedIndices(program.mesh, tensor.piece, coordinates);
    Tensor whole = serial.at(tensor.name);
    Tensor expected = runtime::pick(whole, indices, mine->type());
    // Padding may have any content.
    Tensor cleaned =
        runtime::pick(runtime::place({*mine}, {indices}, tensor.type), indices, mine->type());
    ++numCompared;
    if (!bitwiseEqual(cleaned, expected))
      return differs(tensor.name);
  }
  return Tensor::fromInts({kernels::DType::I64, {1}}, {numCompared});
}

TEST_P(GlooPlans, EqualTheSerialProgram) {
  const auto &[testCase, arith] = GetParam();
  test::Model model = test::loadModel(testCase.model, "adamw", {}, "", testCase.precision);
  auto plan = test::makePlan(model, testCase.request);
  ASSERT_TRUE(plan) << plan.error().message;
  auto compiled = driver::compilePlan(*model.step, *plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  kernels::KernelContext context(arith);
  auto data = driver::makeRunData(*model.step, *plan, 2, context.arith, 1);
  ASSERT_TRUE(data) << data.error().message;
  auto serial = driver::runSerial(*model.step, *plan, *data, context);
  ASSERT_TRUE(serial) << serial.error().message;
  test::RunOptions options;
  options.timeout = std::chrono::seconds(60);
  auto results = test::runRanks(
      test::Backend::Gloo, compiled->program.mesh.numRanks(),
      [&, arith = arith](comm::Communicator &communicator) {
        return runRank(compiled->program, *data, *serial, arith, communicator);
      },
      options);
  for (size_t rank = 0; rank < results.size(); ++rank) {
    ASSERT_TRUE(results[rank]) << "rank " << rank << ": " << results[rank].error().message;
    // The loss of both steps, and parameters with their gradients and moments.
    EXPECT_GT(results[rank]->data<int64_t>()[0], 8);
  }
}

std::vector<Case> allCases() {
  std::vector<Case> cases;
  for (const char *mesh : {"dp=2", "fsdp=2", "tp=2", "pp=2", "dp=2,tp=2", "fsdp=4", "pp=2,fsdp=2"})
    cases.push_back({"tiny-gpt2", {mesh, "auto", ""}});
  cases.push_back({"tiny-gpt2", {"dp=2", "zero1", ""}});
  cases.push_back({"tiny-gpt2", {"dp=2,fsdp=2", "hybrid-shard", ""}});
  cases.push_back({"tiny-gpt2", {"fsdp=2,tp=2", "auto", ""}, "bf16"});
  cases.push_back({"tiny-gpt2", {"pp=4", "auto", "1f1b"}});
  cases.push_back({"tiny-llama", {"pp=2,tp=2", "auto", "gpipe"}});
  cases.push_back({"tiny-resnet", {"dp=2", "auto", ""}});
  cases.push_back({"tiny-mlp", {"dp=2,tp=2", "auto", ""}, "f16"});
  test::PlanRequest interleaved{"pp=2,tp=2", "auto", "interleaved"};
  interleaved.virtualStages = 2;
  cases.push_back({"gpt2-8l", interleaved});
  test::PlanRequest zeroBubble{"pp=2,fsdp=2", "auto", "zero-bubble"};
  cases.push_back({"llama-8l", zeroBubble});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Plans, GlooPlans,
                         testing::Combine(testing::ValuesIn(allCases()),
                                          testing::Values(kernels::Arith::Residue61,
                                                          kernels::Arith::Residue251)));

} // namespace
