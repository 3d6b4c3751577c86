//===- SimulatedCluster.cpp - All ranks of a Program in one process --------===//

#include "runtime/exec/SimulatedCluster.h"
#include "runtime/comm/Reduce.h"
#include "runtime/comm/SimulatedWorld.h"
#include "runtime/exec/Packing.h"

#include <algorithm>
#include <exception>
#include <thread>

namespace tbc::runtime {

using kernels::Tensor;

Result<SimulatedCluster> SimulatedCluster::create(program::Program program,
                                                  ClusterOptions options) {
  if (Status status = checkWellFormed(program); !status)
    return status.error();
  SimulatedCluster cluster;
  cluster.code = std::make_unique<const program::Program>(std::move(program));
  cluster.options = options;
  for (int64_t rank = 0; rank < cluster.code->mesh.numRanks(); ++rank) {
    Result<MachineMaker> machine =
        options.machineOf ? options.machineOf(rank) : Result<MachineMaker>(options.machine);
    if (!machine)
      return machine.error();
    Result<Executor> executor = Executor::create(*cluster.code, rank, options.context, *machine);
    if (!executor)
      return executor.error();
    cluster.executors.push_back(std::move(*executor));
  }
  return cluster;
}

Status SimulatedCluster::load(const TensorProvider &provider) {
  for (Executor &executor : executors) {
    if (Status status = executor.load(provider); !status)
      return Error{status.error().code,
                   "rank " + std::to_string(executor.rank()) + ": " + status.error().message};
  }
  return Status::ok();
}

/// Runs one rank on its thread. Any failure ends the waits of the others.
static void runRank(Executor &executor, ExecutorCall call, comm::SimulatedWorld &world,
                    const StepInputs &inputs) {
  try {
    Status status = (executor.*call)(world.communicator(executor.rank()), inputs);
    if (status)
      world.finish(executor.rank());
    else
      world.fail(executor.rank(), status.error());
  } catch (const std::exception &error) {
    world.fail(executor.rank(), {ErrorCode::RankFailed, error.what()});
  }
}

Result<Tensor> SimulatedCluster::step(const StepInputs &inputs) {
  return onAllRanks(&Executor::runStep, inputs);
}

Result<Tensor> SimulatedCluster::evaluate(const StepInputs &inputs) {
  return onAllRanks(&Executor::runForward, inputs);
}

Result<Tensor> SimulatedCluster::onAllRanks(ExecutorCall call, const StepInputs &inputs) {
  comm::SimulatedWorld world(numRanks(), options.timeout);
  std::vector<std::thread> threads;
  for (Executor &executor : executors)
    threads.emplace_back([&] { runRank(executor, call, world, inputs); });
  for (std::thread &thread : threads)
    thread.join();
  if (Status status = world.status(); !status)
    return status.error();

  Tensor loss;
  int64_t lossRank = -1;
  for (const Executor &executor : executors) {
    Tensor mine = executor.loss();
    if (mine && loss && !bitwiseEqual(mine, loss))
      return Error{ErrorCode::VerificationFailed, "ranks " + std::to_string(lossRank) + " and " +
                                                      std::to_string(executor.rank()) +
                                                      " disagree on the loss"};
    if (mine && !loss) {
      loss = mine;
      lossRank = executor.rank();
    }
  }
  return loss;
}

namespace {
/// One rank's part of a global tensor.
struct Part {
  int64_t rank = 0;
  Tensor tensor;
  Indices indices;
};
} // namespace

/// Returns the index of the first element in which two tensors of one type and arithmetic differ.
static int64_t firstDifference(const Tensor &a, const Tensor &b) {
  int64_t i = 0;
  while (i < a.numElements() && bitwiseEqual(comm::cutFlat(a, i, 1), comm::cutFlat(b, i, 1)))
    ++i;
  return i;
}

/// Joins the parts. Error if an element is in no part, or differs between the parts that hold it.
static Result<Tensor> join(const std::vector<Part> &parts, const kernels::TensorType &type) {
  std::vector<Tensor> tensors;
  std::vector<Indices> indices;
  std::vector<int64_t> holder(kernels::numElements(type.shape), -1);
  for (const Part &part : parts) {
    tensors.push_back(part.tensor);
    indices.push_back(part.indices);
    for (int64_t index : part.indices) {
      if (index >= 0)
        holder[index] = part.rank;
    }
  }
  auto missing = std::find(holder.begin(), holder.end(), -1);
  if (missing != holder.end())
    return Error{ErrorCode::VerificationFailed,
                 "no rank holds element " + std::to_string(missing - holder.begin())};

  Tensor whole = place(tensors, indices, type);
  for (const Part &part : parts) {
    // Both sides go through the same picks, so that padding is 0 on both.
    Tensor mine =
        pick(place({part.tensor}, {part.indices}, type), part.indices, part.tensor.type());
    Tensor all = pick(whole, part.indices, part.tensor.type());
    if (bitwiseEqual(mine, all))
      continue;
    int64_t index = part.indices[firstDifference(mine, all)];
    return Error{ErrorCode::VerificationFailed,
                 "ranks " + std::to_string(part.rank) + " and " + std::to_string(holder[index]) +
                     " disagree on element " + std::to_string(index)};
  }
  return whole;
}

/// Returns the sum over the ranks that hold partial sums of the same piece.
static Tensor completed(const std::vector<Executor> &executors, const program::Program &program,
                        const program::GlobalTensor &tensor, int index, int64_t rank) {
  std::vector<Tensor> terms;
  std::vector<int64_t> coordinates = program.mesh.coordinates(rank);
  for (int64_t other : program::groupRanks(program.mesh, tensor.partial, coordinates)) {
    if (Tensor term = executors[other].held(index))
      terms.push_back(term);
  }
  return comm::reduce(comm::ReduceKind::Sum, terms);
}

Result<Tensor> SimulatedCluster::gather(const std::string &name) const {
  int index = code->tensorIndex(name);
  if (index < 0)
    return Error{ErrorCode::Usage, "the program has no tensor \"" + name + "\""};
  const program::GlobalTensor &tensor = code->tensors[index];
  std::vector<Part> parts;
  for (const Executor &executor : executors) {
    if (!executor.held(index))
      continue;
    std::vector<int64_t> coordinates = code->mesh.coordinates(executor.rank());
    parts.push_back({executor.rank(), completed(executors, *code, tensor, index, executor.rank()),
                     program::ownedIndices(code->mesh, tensor.piece, coordinates)});
  }
  if (parts.empty())
    return Error{ErrorCode::Usage, "no rank holds tensor \"" + name + "\" after a step"};
  Result<Tensor> whole = join(parts, tensor.type);
  if (!whole)
    return Error{whole.error().code, "tensor \"" + name + "\": " + whole.error().message};
  return whole;
}

} // namespace tbc::runtime
