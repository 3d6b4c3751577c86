//===- joint_test.cpp - Collectives of several tensors ----------------------===//

#include "runtime/comm/SimulatedWorld.h"
#include "runtime/exec/Collectives.h"

#include <functional>
#include <gtest/gtest.h>
#include <thread>

namespace tbc::runtime {
namespace {

using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using kernels::TensorType;
using program::InstructionKind;

constexpr int64_t numRanks = 3;

Tensor tensorOf(const TensorType &type, int64_t rank, int number) {
  std::vector<double> values;
  for (int64_t i = 0; i < kernels::numElements(type.shape); ++i)
    values.push_back(double(100 * number + 10 * rank + i));
  return Tensor::fromDoubles(type, Arith::F64, values);
}

/// Expects equal results on every rank for a joint collective and for one per tensor. The sizes are
/// not divisible by the number of ranks, so chunks are padded.
void expectJointIsSingle(InstructionKind kind) {
  const std::vector<kernels::Shape> wholes = {{5, 3}, {4}, {1}};
  std::vector<TensorType> inputTypes, resultTypes;
  for (const kernels::Shape &shape : wholes) {
    TensorType whole{DType::F32, shape};
    TensorType chunk{DType::F32, {(kernels::numElements(shape) + numRanks - 1) / numRanks}};
    inputTypes.push_back(kind == InstructionKind::AllGather ? chunk : whole);
    resultTypes.push_back(kind == InstructionKind::ReduceScatter ? chunk : whole);
  }
  program::Instruction instruction;
  instruction.kind = kind;
  comm::SimulatedWorld world(numRanks, std::chrono::seconds(20));
  auto runRank = [&](int64_t rank) {
    GroupPlace group{{0, 1, 2}, rank};
    std::vector<Tensor> inputs;
    for (size_t t = 0; t < inputTypes.size(); ++t)
      inputs.push_back(tensorOf(inputTypes[t], rank, int(t)));
    auto joint = communicate(world.communicator(rank), instruction, group, inputs, resultTypes, "");
    ASSERT_TRUE(joint) << joint.error().message;
    ASSERT_EQ(joint->size(), inputs.size());
    for (size_t t = 0; t < inputs.size(); ++t) {
      auto single = communicate(world.communicator(rank), instruction, group, {inputs[t]},
                                {resultTypes[t]}, "");
      ASSERT_TRUE(single) << single.error().message;
      EXPECT_EQ((*joint)[t].type(), resultTypes[t]);
      EXPECT_TRUE(bitwiseEqual((*joint)[t], single->front())) << "rank " << rank << " tensor " << t;
    }
    world.finish(rank);
  };
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < numRanks; ++rank)
    threads.emplace_back(runRank, rank);
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_TRUE(world.status());
}

TEST(JointCollective, AllReduceIsThatOfEach) { expectJointIsSingle(InstructionKind::AllReduce); }
TEST(JointCollective, AllGatherIsThatOfEach) { expectJointIsSingle(InstructionKind::AllGather); }
TEST(JointCollective, ReduceScatterIsThatOfEach) {
  expectJointIsSingle(InstructionKind::ReduceScatter);
}

} // namespace
} // namespace tbc::runtime
