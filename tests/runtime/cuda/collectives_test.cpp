//===- collectives_test.cpp - Collectives on GPUs against those on hosts ----===//

#include "runtime/comm/SimulatedWorld.h"
#include "runtime/cuda/CudaCollectives.h"
#include "runtime/cuda/NcclCommunicator.h"
#include "runtime/cuda/Streams.h"
#include "runtime/launch/Stores.h"
#include "tests/runtime/cuda/FakeNccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <thread>

namespace tbc::test {
namespace {

using cuda::DeviceTensor;
using kernels::DType;
using kernels::Shape;
using kernels::TensorType;
using program::Instruction;
using program::InstructionKind;
using ::testing::IsEmpty;
using Bytes = std::vector<unsigned char>;

// -- Copies

TEST(RowCopies, EqualRowsAtEqualDistancesAreOne) {
  auto copies = cuda::rowCopies({{1000, 24}}, {{0, 8}, {32, 8}, {64, 8}});
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].rows, 3);
  EXPECT_EQ(copies[0].rowBytes, 8);
  EXPECT_EQ(copies[0].toPitch, 32);
  EXPECT_EQ(copies[0].fromPitch, 8);
}

TEST(RowCopies, PitchesAreThoseOfADriver) {
  constexpr int64_t most = INT32_MAX;
  EXPECT_EQ(cuda::rowCopies({{1000, 16}}, {{0, 8}, {most, 8}}).size(), 1u);
  EXPECT_EQ(cuda::rowCopies({{1000, 16}}, {{0, 8}, {most + 1, 8}}).size(), 2u);
  EXPECT_EQ(cuda::rowCopies({{0, 8}, {most + 1, 8}}, {{1000, 16}}).size(), 2u);
}

TEST(RowCopies, OthersAreNot) {
  EXPECT_EQ(cuda::rowCopies({{1000, 24}}, {{0, 8}, {32, 8}, {80, 8}}).size(), 2u); // distances
  EXPECT_EQ(cuda::rowCopies({{1000, 20}}, {{0, 8}, {32, 8}, {64, 4}}).size(), 2u); // sizes
  EXPECT_EQ(cuda::rowCopies({{1000, 16}}, {{64, 8}, {0, 8}}).size(), 2u);          // backwards
  EXPECT_TRUE(cuda::rowCopies({}, {}).empty());
}

// -- Whole instructions

struct Case {
  std::string name;
  Instruction instruction;
  std::vector<TensorType> inputs, results;
  /// Offset of the results relative to the operands, in bytes. If empty: no overlap.
  std::optional<int64_t> overlap;
};

Bytes bytesOf(const Case &c, int64_t rank, size_t tensor) {
  int64_t count = kernels::numElements(c.inputs[tensor].shape);
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(double((i * 7 + rank * 13 + int64_t(tensor) * 5) % 31));
  return kernels::Tensor::fromDoubles(c.inputs[tensor], kernels::Arith::Native, values).toBytes();
}

runtime::GroupPlace groupOf(int64_t rank, int64_t n) {
  runtime::GroupPlace group;
  for (int64_t i = 0; i < n; ++i)
    group.ranks.push_back(i);
  group.index = rank;
  return group;
}

class DeviceCollectives : public testing::TestWithParam<int> {
protected:
  DeviceCollectives() {
    folder = (std::filesystem::temp_directory_path() / "tbc-collectives-XXXXXX").string();
    EXPECT_TRUE(mkdtemp(folder.data()));
  }
  ~DeviceCollectives() override { std::filesystem::remove_all(folder); }

  using Results = std::vector<Bytes>; // by tensor
  std::vector<Results> onHosts(const Case &c, int64_t n) {
    comm::SimulatedWorld world(n, std::chrono::seconds(30));
    std::vector<Results> all{size_t(n)};
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < n; ++rank)
      threads.emplace_back([&, rank] {
        runtime::GroupPlace group = groupOf(rank, n);
        std::vector<Bytes> inputs, results;
        std::vector<runtime::PlacedTensor> from, to;
        for (size_t t = 0; t < c.inputs.size(); ++t)
          inputs.push_back(bytesOf(c, rank, t));
        for (const TensorType &type : c.results)
          results.emplace_back(size_t(program::sizeBytes(type)));
        for (size_t t = 0; t < c.inputs.size(); ++t)
          from.push_back({inputs[t].data(), c.inputs[t]});
        for (size_t t = 0; t < c.results.size(); ++t)
          to.push_back({results[t].data(), c.results[t]});
        Status status = runtime::communicateOnMemory(
            world.communicator(rank), c.instruction, group,
            runtime::memoryLayout(c.instruction, group, c.inputs, c.results),
            kernels::Arith::Native, from, to, c.name);
        EXPECT_TRUE(status) << status.error().message;
        all[size_t(rank)] = results;
        world.finish(rank);
      });
    for (std::thread &thread : threads)
      thread.join();
    return all;
  }

  std::vector<Results> onDevices(const Case &c, int64_t n) {
    std::string store = folder + "/" + c.name;
    std::filesystem::create_directory(store);
    std::vector<Results> all{size_t(n)};
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < n; ++rank)
      threads.emplace_back([&, rank] { all[size_t(rank)] = onDevice(c, rank, n, store); });
    for (std::thread &thread : threads)
      thread.join();
    return all;
  }

  Results onDevice(const Case &c, int64_t rank, int64_t n, const std::string &storeFolder) {
    auto store = launch::openFileStore(storeFolder, "shared");
    auto device = cuda::Device::open(FakeDriver::table(), int(rank));
    auto communicator =
        cuda::connectNccl(rank, n, **store, FakeNccl::table(), *device, cuda::NcclOptions());
    EXPECT_TRUE(communicator);
    auto streams = cuda::Streams::create(*device, std::chrono::milliseconds(0));
    auto memory = isUniform
                      ? cuda::allocateRegistrable(FakeNccl::table(), *device, 1 << 14, "tensors")
                      : cuda::DeviceMemory::allocate(*device, 1 << 14, "tensors");
    auto scratch = cuda::DeviceMemory::allocate(*device, 1 << 14, "scratch");
    auto *calls = dynamic_cast<cuda::DeviceCommunicator *>(communicator->get());
    (*streams)->watch(*calls);
    for (int again = 0; again < 2 && isUniform; ++again)
      EXPECT_TRUE(
          calls->registerMemory(groupOf(rank, n).ranks, memory->address(), 1 << 14, "here"));
    std::vector<DeviceTensor> from, to;
    cuda::DeviceAddress next = memory->address();
    for (const TensorType &type : c.inputs) {
      from.push_back({next, type});
      next += 1024;
    }
    if (c.overlap)
      next = memory->address() + cuda::DeviceAddress(*c.overlap);
    for (const TensorType &type : c.results) {
      to.push_back({next, type});
      next += 1024;
    }
    for (size_t t = 0; t < from.size(); ++t) {
      Bytes bytes = bytesOf(c, rank, t);
      EXPECT_TRUE((*streams)->upload(from[t].address, bytes.data(), int64_t(bytes.size())));
    }
    runtime::GroupPlace group = groupOf(rank, n);
    const cuda::Stream &stream = (*streams)->of(program::Stream::Communication);
    EXPECT_TRUE((*streams)->order(program::Stream::Compute, program::Stream::Communication));
    EXPECT_TRUE(cuda::canCommunicateOnDevice(calls, c.instruction, from));
    auto scratchOf = [&](int64_t bytes) {
      EXPECT_LE(bytes, 1 << 14);
      return scratch->address();
    };
    Status status =
        cuda::communicateOnDevice(calls, c.instruction, group,
                                  runtime::memoryLayout(c.instruction, group, c.inputs, c.results),
                                  from, to, isUniform, stream, scratchOf, c.name);
    EXPECT_TRUE(status) << status.error().message;
    Results results;
    for (const DeviceTensor &tensor : to) {
      results.emplace_back(size_t(tensor.bytes()));
      EXPECT_TRUE((*streams)->download(results.back().data(), tensor.address, tensor.bytes()));
    }
    calls->deregisterAll();
    return results;
  }

  std::string folder;
  bool isUniform = false; // and all memory is registered
};

Instruction instructionOf(InstructionKind kind, int dim = 0) {
  Instruction instruction;
  instruction.kind = kind;
  instruction.comm.dim = dim;
  return instruction;
}

/// Returns cases for n ranks: every kind, direct and through scratch memory, in place and not.
std::vector<Case> casesOf(int64_t n) {
  const DType f = DType::F32;
  std::vector<Case> cases;
  auto add = [&](const std::string &name, Instruction instruction, std::vector<TensorType> inputs,
                 std::vector<TensorType> results, std::optional<int64_t> overlap = {}) {
    cases.push_back({name, std::move(instruction), std::move(inputs), std::move(results), overlap});
  };
  program::SegmentShape plain{1, 3, 1}, second{2, 1, 2};
  int flat = program::Communication::flatDim;

  Instruction sum = instructionOf(InstructionKind::AllReduce);
  add("sum", sum, {{f, {5, 3}}}, {{f, {5, 3}}});
  add("sum in place", sum, {{f, {5, 3}}}, {{f, {5, 3}}}, 0);
  add("sum over itself", sum, {{f, {5, 3}}}, {{f, {5, 3}}}, 8);
  add("sums", sum, {{f, {4}}, {f, {7}}}, {{f, {4}}, {f, {7}}});
  add("sums of bf16", sum, {{DType::BF16, {9}}}, {{DType::BF16, {9}}});
  Instruction max = sum;
  max.comm.reduce = program::ReduceKind::Max;
  add("max", max, {{f, {6}}}, {{f, {6}}});

  for (int dim : {0, 1}) {
    Instruction gather = instructionOf(InstructionKind::AllGather, dim);
    gather.comm.segments = {plain};
    Instruction scatter = gather;
    scatter.kind = InstructionKind::ReduceScatter;
    Instruction slice = gather;
    slice.kind = InstructionKind::ShardSlice;
    Shape local = dim == 0 ? Shape{3, 4} : Shape{4, 3};
    Shape full = local;
    full[size_t(dim)] *= n;
    std::string at = " along " + std::to_string(dim);
    add("gather" + at, gather, {{f, local}}, {{f, full}});
    add("gather in place" + at, gather, {{f, local}}, {{f, full}}, 0);
    add("scatter" + at, scatter, {{f, full}}, {{f, local}});
    add("scatter in place" + at, scatter, {{f, full}}, {{f, local}}, 0);
    add("slice" + at, slice, {{f, full}}, {{f, local}});
    add("slice in place" + at, slice, {{f, full}}, {{f, local}}, 4);
  }
  // Two segments, each divided by itself.
  Instruction segments = instructionOf(InstructionKind::AllGather, 1);
  segments.comm.segments = {plain, second};
  add("gather segments", segments, {{DType::I64, {2, 7}}}, {{DType::I64, {2, 7 * n}}});
  // Flat tensors with padding after the last element.
  Instruction gatherFlat = instructionOf(InstructionKind::AllGather, flat);
  int64_t chunk = (7 + n - 1) / n, other = (12 + n - 1) / n;
  add("gather flat", gatherFlat, {{f, {chunk}}, {f, {other}}}, {{f, {7}}, {f, {12}}});
  Instruction scatterFlat = instructionOf(InstructionKind::ReduceScatter, flat);
  add("scatter flat", scatterFlat, {{f, {7}}, {f, {12}}}, {{f, {chunk}}, {f, {other}}});
  Instruction sliceFlat = instructionOf(InstructionKind::ShardSlice, flat);
  add("slice flat", sliceFlat, {{f, {7}}}, {{f, {chunk}}});

  for (int to : {0, 1}) {
    Instruction turn = instructionOf(InstructionKind::AllToAll, to);
    turn.comm.segments = {plain};
    turn.comm.splitDim = 1 - to;
    turn.comm.splitSegments = {plain};
    Shape input = to == 0 ? Shape{3, 3 * n} : Shape{3 * n, 3};
    Shape result = to == 0 ? Shape{3 * n, 3} : Shape{3, 3 * n};
    add("turn to " + std::to_string(to), turn, {{f, input}}, {{f, result}});
    add("turn in place to " + std::to_string(to), turn, {{f, input}}, {{f, result}}, 0);
  }
  Instruction permute = instructionOf(InstructionKind::Permute);
  add("permute", permute, {{f, {5}}}, {{f, {5}}});
  add("permute in place", permute, {{f, {5}}}, {{f, {5}}}, 0);
  return cases;
}

TEST_P(DeviceCollectives, GiveWhatThoseOfHostsDo) {
  int64_t n = GetParam();
  for (const Case &c : casesOf(n)) {
    SCOPED_TRACE(c.name);
    FakeOptions options;
    options.numDevices = int(n);
    FakeDriver driver(options);
    FakeNccl nccl(driver);
    EXPECT_EQ(onDevices(c, n), onHosts(c, n));
    EXPECT_THAT(driver.complaints(), IsEmpty());
    EXPECT_THAT(driver.leaks(), IsEmpty());
  }
}

// The fake complains if a call has registered memory on only some of the ranks.
TEST_P(DeviceCollectives, TakeRegisteredMemoryOnAllRanksOrOnNone) {
  int64_t n = GetParam();
  isUniform = true;
  int numRegistered = 0;
  for (const Case &c : casesOf(n)) {
    SCOPED_TRACE(c.name);
    FakeOptions options;
    options.numDevices = int(n);
    FakeDriver driver(options);
    FakeNccl nccl(driver);
    EXPECT_EQ(onDevices(c, n), onHosts(c, n));
    EXPECT_THAT(driver.complaints(), IsEmpty());
    EXPECT_THAT(driver.leaks(), IsEmpty());
    numRegistered += nccl.numRegisteredCalls();
  }
  EXPECT_GT(numRegistered, 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceCollectives, testing::Values(1, 2, 3));

} // namespace
} // namespace tbc::test
