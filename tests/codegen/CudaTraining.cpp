//===- CudaTraining.cpp - Training a small program on fake GPUs -------------===//

#include "tests/codegen/CudaTraining.h"

#include "runtime/comm/SimulatedWorld.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace tbc::test {

using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using program::MlpOptions;
using program::Program;
using runtime::Executor;

/// Returns multiples of 1/8 between -1 and 1, the same for the same name.
static Tensor tensorOf(const std::string &name, const kernels::Shape &shape, Arith arith) {
  uint64_t state = std::hash<std::string>()(name);
  std::vector<double> values;
  for (int64_t i = 0; i < kernels::numElements(shape); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    values.push_back((double(state >> 40 & 15) - 7.5) / 8);
  }
  return Tensor::fromDoubles({DType::F32, shape}, arith, values);
}

runtime::StepInputs stepInputs(const MlpOptions &o, int step, Arith arith) {
  runtime::StepInputs inputs;
  inputs.learningRate = 0.0625 / (1 << step); // another rate in each step
  for (int64_t m = 0; m < o.microBatches; ++m) {
    auto &batch = inputs.microBatches.emplace_back();
    for (const char *name : {"x", "t"})
      batch[name] = tensorOf(name + std::to_string(step) + "." + std::to_string(m),
                             {o.samples, o.width}, arith);
  }
  return inputs;
}

kernels::Tensor initialValue(const MlpOptions &o, const std::string &name, Arith arith) {
  return tensorOf(name, {o.width, o.width}, arith);
}

Result<std::vector<Tensor>> trainRank(const Program &program, const MlpOptions &o, int64_t rank,
                                      comm::Communicator &communicator,
                                      const runtime::MachineMaker &machine, int numSteps,
                                      Arith arith) {
  auto executor = Executor::create(program, rank, {arith}, machine);
  if (!executor)
    return executor.error();
  Status status =
      executor->load([&](const std::string &name) { return initialValue(o, name, arith); });
  for (int step = 0; status && step < numSteps; ++step)
    status = executor->runStep(communicator, stepInputs(o, step, arith));
  if (!status)
    return status.error();
  try {
    std::vector<Tensor> held = {executor->loss()};
    for (int i = 0; i < int(program.tensors.size()); ++i)
      held.push_back(executor->held(i));
    // A rank stays until all others have read its messages.
    comm::Group all(static_cast<size_t>(communicator.numRanks()));
    std::iota(all.begin(), all.end(), int64_t(0));
    if (auto met = communicator.barrier(all, "the end of a run")->wait(); !met)
      return met.error();
    return held;
  } catch (const kernels::KernelError &error) {
    return Error{ErrorCode::Other, error.what()};
  }
}

Outcome trainAll(const Program &program, const MlpOptions &o,
                 const std::function<Result<runtime::MachineMaker>(int64_t rank)> &machineOf,
                 int numSteps, Arith arith) {
  int64_t numRanks = program.mesh.numRanks();
  comm::SimulatedWorld world(numRanks, std::chrono::seconds(30));
  Outcome outcome(numRanks, std::vector<Tensor>{});
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < numRanks; ++rank)
    threads.emplace_back([&, rank] {
      auto machine = machineOf(rank);
      outcome[rank] =
          machine ? trainRank(program, o, rank, world.communicator(rank), *machine, numSteps, arith)
                  : Result<std::vector<Tensor>>(machine.error());
      if (!outcome[rank])
        world.fail(rank, outcome[rank].error());
      world.finish(rank);
    });
  for (std::thread &thread : threads)
    thread.join();
  return outcome;
}

Outcome trainReference(const Program &program, const MlpOptions &o, int numSteps, Arith arith) {
  return trainAll(
      program, o,
      [](int64_t) -> Result<runtime::MachineMaker> {
        return runtime::MachineMaker(runtime::makeReferenceMachine);
      },
      numSteps, arith);
}

void expectEqual(const Outcome &gpu, const Outcome &reference) {
  ASSERT_EQ(gpu.size(), reference.size());
  for (size_t rank = 0; rank < gpu.size(); ++rank) {
    ASSERT_TRUE(gpu[rank]) << gpu[rank].error().message;
    ASSERT_TRUE(reference[rank]) << reference[rank].error().message;
    for (size_t i = 0; i < gpu[rank]->size(); ++i) {
      const Tensor &a = (*gpu[rank])[i], &b = (*reference[rank])[i];
      ASSERT_EQ(bool(a), bool(b));
      EXPECT_TRUE(!a || bitwiseEqual(a, b)) << "rank " << rank << ", tensor " << i;
    }
  }
}

} // namespace tbc::test
