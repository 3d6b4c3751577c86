//===- memory_collectives_test.cpp - Collectives on tensors in memory --------===//
//
// Compares them with the form on tensors.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/SimulatedWorld.h"
#include "runtime/exec/MemoryCollectives.h"
#include "runtime/exec/Packing.h"

#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <thread>

namespace tbc::runtime {
namespace {

using kernels::Arith;
using kernels::DType;
using kernels::Shape;
using kernels::Tensor;
using kernels::TensorType;
using program::Communication;
using program::Instruction;
using program::InstructionKind;
using Types = std::vector<TensorType>;
using Bytes = std::vector<unsigned char>;

constexpr int64_t numRanks = 3;

TEST(ShardStretches, AreShardIndicesInBytes) {
  struct Cut {
    Shape full;
    int dim;
    std::vector<program::SegmentShape> segments;
  };
  std::vector<Cut> cuts = {{{6}, 0, {{1, 2, 1}}},
                           {{4, 6, 5}, 1, {{1, 2, 1}}},
                           {{4, 6, 5}, 1, {{2, 1, 1}}},
                           {{2, 18, 3}, 1, {{1, 1, 2}, {1, 2, 1}, {2, 1, 1}}},
                           {{7, 3}, Communication::flatDim, {}},
                           {{2}, Communication::flatDim, {}},
                           {{0, 3}, Communication::flatDim, {}}};
  for (const Cut &cut : cuts)
    for (int64_t index = 0; index < numRanks; ++index) {
      Indices expected, found;
      for (int64_t i : shardIndices(cut.full, cut.dim, cut.segments, numRanks, index))
        if (i >= 0)
          expected.push_back(i);
      for (const Stretch &stretch :
           shardStretches(cut.full, 4, cut.dim, cut.segments, numRanks, index))
        for (int64_t byte = 0; byte < stretch.bytes; byte += 4)
          found.push_back((stretch.offset + byte) / 4);
      EXPECT_EQ(found, expected) << "of " << cut.full.size() << " dims, index " << index;
    }
}

Tensor tensorOf(const TensorType &type, int64_t rank, size_t number) {
  std::vector<double> values;
  for (int64_t i = 0; i < kernels::numElements(type.shape); ++i)
    values.push_back(double(100 * int64_t(number) + 10 * rank + i % 64));
  return kernels::numElements(type.shape) ? Tensor::fromDoubles(type, Arith::Native, values)
                                          : Tensor::zeros(type, Arith::Native);
}

std::vector<PlacedTensor> placed(std::vector<Bytes> &memory, const Types &types) {
  std::vector<PlacedTensor> list;
  for (size_t t = 0; t < types.size(); ++t) {
    memory[t].resize(size_t(program::sizeBytes(types[t])), 0xab);
    list.push_back({memory[t].data(), types[t]});
  }
  return list;
}

/// Expects the same bytes from both forms on every rank. With `isOver` each result overlaps its
/// operand, as far as it fits.
void expectSame(const Instruction &instruction, const Types &inputTypes, const Types &resultTypes,
                bool isOver = false) {
  comm::SimulatedWorld world(numRanks, std::chrono::seconds(20));
  auto runRank = [&](int64_t rank) {
    GroupPlace group{{0, 1, 2}, rank};
    std::vector<Tensor> inputs;
    for (size_t t = 0; t < inputTypes.size(); ++t)
      inputs.push_back(tensorOf(inputTypes[t], rank, t));
    auto expected =
        communicate(world.communicator(rank), instruction, group, inputs, resultTypes, "");
    ASSERT_TRUE(expected) << expected.error().message;
    std::vector<Bytes> from(inputTypes.size()), to(resultTypes.size());
    std::vector<PlacedTensor> operands = placed(from, inputTypes),
                              results = placed(to, resultTypes);
    for (size_t t = 0; t < inputs.size(); ++t) {
      Bytes bytes = inputs[t].toBytes();
      unsigned char *place = isOver ? to[t].data() : from[t].data();
      if (isOver && bytes.size() > to[t].size()) { // the operand is the larger one
        std::copy(bytes.begin(), bytes.end(), from[t].begin());
        results[t].data = from[t].data();
        continue;
      }
      operands[t].data = place;
      std::copy(bytes.begin(), bytes.end(), place);
    }
    MemoryLayout layout = memoryLayout(instruction, group, inputTypes, resultTypes);
    Status status = communicateOnMemory(world.communicator(rank), instruction, group, layout,
                                        Arith::Native, operands, results, "");
    ASSERT_TRUE(status) << status.error().message;
    for (size_t t = 0; t < results.size(); ++t)
      EXPECT_EQ(Bytes(results[t].data, results[t].data + results[t].bytes()),
                (*expected)[t].toBytes())
          << "rank " << rank << ", tensor " << t;
    world.finish(rank);
  };
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < numRanks; ++rank)
    threads.emplace_back(runRank, rank);
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_TRUE(world.status());
}

Instruction instructionOf(InstructionKind kind, int dim = Communication::flatDim,
                          std::vector<program::SegmentShape> segments = {}) {
  Instruction instruction;
  instruction.kind = kind;
  instruction.comm.dim = dim;
  instruction.comm.segments = std::move(segments);
  return instruction;
}

/// Returns the f32 types with dtype bf16.
Types asBF16(Types types) {
  for (TensorType &type : types)
    type.dtype = DType::BF16;
  return types;
}

/// Expects sums sent as bf16 to equal the sums of the rounded operands.
void expectNarrowSums(const Instruction &instruction, const Types &inputTypes,
                      const Types &resultTypes) {
  comm::SimulatedWorld world(numRanks, std::chrono::seconds(20));
  auto runRank = [&](int64_t rank) {
    GroupPlace group{{0, 1, 2}, rank};
    std::vector<Tensor> rounded;
    std::vector<Bytes> from(inputTypes.size()), to(resultTypes.size());
    std::vector<PlacedTensor> operands = placed(from, inputTypes),
                              results = placed(to, resultTypes);
    for (size_t t = 0; t < inputTypes.size(); ++t) {
      std::vector<double> values;
      for (int64_t i = 0; i < kernels::numElements(inputTypes[t].shape); ++i)
        values.push_back((1 + double(t)) * std::sin(double(7 * i + 3 * rank)) * 1e-3);
      Tensor exact = Tensor::fromDoubles(inputTypes[t], Arith::Native, values);
      Bytes bytes = exact.toBytes();
      std::copy(bytes.begin(), bytes.end(), from[t].begin());
      rounded.push_back(
          Tensor::fromDoubles(asBF16({inputTypes[t]})[0], Arith::Native, exact.toDoubles()));
    }
    auto expected =
        communicate(world.communicator(rank), instruction, group, rounded, asBF16(resultTypes), "");
    ASSERT_TRUE(expected) << expected.error().message;
    MemoryLayout layout = memoryLayout(instruction, group, asBF16(inputTypes), asBF16(resultTypes));
    std::vector<Bytes> before = from;
    Status status = communicateNarrowly(world.communicator(rank), instruction, group, layout,
                                        Arith::Native, operands, results, "");
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(from, before);
    for (size_t t = 0; t < results.size(); ++t)
      EXPECT_EQ(Tensor::fromBytes(resultTypes[t], Arith::Native, to[t].data()).toDoubles(),
                (*expected)[t].toDoubles())
          << "rank " << rank << ", tensor " << t;
    world.finish(rank);
  };
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < numRanks; ++rank)
    threads.emplace_back(runRank, rank);
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_TRUE(world.status());
}

TEST(MemoryCollectives, NarrowSums) {
  TensorType full{DType::F32, {4, 18, 5}}, local{DType::F32, {4, 6, 5}};
  expectNarrowSums(instructionOf(InstructionKind::AllReduce), {full}, {full});
  expectNarrowSums(instructionOf(InstructionKind::ReduceScatter, 1, {{1, 2, 2}, {2, 1, 1}}), {full},
                   {local});
  // Flat with padding, and several tensors in one call.
  TensorType odd{DType::F32, {7, 3}}, third{DType::F32, {7}}, few{DType::F32, {2}},
      one{DType::F32, {1}};
  expectNarrowSums(instructionOf(InstructionKind::ReduceScatter), {odd}, {third});
  expectNarrowSums(instructionOf(InstructionKind::ReduceScatter), {odd, few}, {third, one});
  expectNarrowSums(instructionOf(InstructionKind::AllReduce), {odd, few}, {odd, few});
}

TEST(MemoryCollectives, OfDims) {
  TensorType full{DType::F32, {4, 18, 5}}, local{DType::F32, {4, 6, 5}};
  std::vector<program::SegmentShape> segments = {{1, 2, 2}, {2, 1, 1}};
  for (bool isOver : {false, true}) {
    expectSame(instructionOf(InstructionKind::AllGather, 1, segments), {local}, {full}, isOver);
    expectSame(instructionOf(InstructionKind::ReduceScatter, 1, segments), {full}, {local}, isOver);
    expectSame(instructionOf(InstructionKind::ShardSlice, 1, segments), {full}, {local}, isOver);
    expectSame(instructionOf(InstructionKind::AllReduce), {full}, {full}, isOver);
    expectSame(instructionOf(InstructionKind::Permute), {full}, {full}, isOver);
    Instruction swap = instructionOf(InstructionKind::AllToAll, 1, segments);
    swap.comm.splitDim = 0;
    swap.comm.splitSegments = {{1, 2, 1}};
    expectSame(swap, {{DType::BF16, {6, 6, 5}}}, {{DType::BF16, {2, 18, 5}}}, isOver);
  }
}

/// The last chunks are partly or fully padding.
TEST(MemoryCollectives, OfFlatChunks) {
  for (const Shape &shape : {Shape{5, 3}, Shape{4}, Shape{1}, Shape{0}}) {
    TensorType full{DType::F32, shape};
    TensorType chunk{DType::F32, {(kernels::numElements(shape) + numRanks - 1) / numRanks}};
    expectSame(instructionOf(InstructionKind::AllGather), {chunk}, {full});
    expectSame(instructionOf(InstructionKind::ReduceScatter), {full}, {chunk});
    expectSame(instructionOf(InstructionKind::ShardSlice), {full}, {chunk});
  }
}

TEST(MemoryCollectives, OfSeveralTensors) {
  Types fulls, chunks;
  for (const Shape &shape : {Shape{5, 3}, Shape{4}, Shape{1}}) {
    fulls.push_back({DType::BF16, shape});
    chunks.push_back({DType::BF16, {(kernels::numElements(shape) + numRanks - 1) / numRanks}});
  }
  for (bool isOver : {false, true}) {
    expectSame(instructionOf(InstructionKind::AllReduce), fulls, fulls, isOver);
    expectSame(instructionOf(InstructionKind::AllGather), chunks, fulls, isOver);
    expectSame(instructionOf(InstructionKind::ReduceScatter), fulls, chunks, isOver);
  }
}

TEST(MemoryCollectives, MaximaToo) {
  Instruction instruction = instructionOf(InstructionKind::AllReduce);
  instruction.comm.reduce = program::ReduceKind::Max;
  expectSame(instruction, {{DType::F32, {7}}}, {{DType::F32, {7}}});
}

} // namespace
} // namespace tbc::runtime
