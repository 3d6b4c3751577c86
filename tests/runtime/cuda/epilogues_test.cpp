//===- epilogues_test.cpp - Matmuls with epilogues, by a faked cuBLASLt -----===//

#include "runtime/cuda/LibraryCalls.h"
#include "runtime/cuda/Streams.h"
#include "runtime/kernels/Kernel.h"
#include "tests/runtime/cuda/FakeCublasLt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tbc::test {
namespace {

using cuda::CublasEpilogue;
using cuda::DeviceAddress;
using cuda::Epilogue;
using kernels::Arith;
using kernels::Attrs;
using kernels::DType;
using kernels::Shape;
using kernels::Tensor;
using kernels::TensorType;
using program::Instruction;
using program::InstructionKind;
using program::ValueId;
using schedule::Action;
using Ints = std::vector<int64_t>;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr int64_t m = 6, n = 8, k = 5;
const program::BlockId forward(Action::Kind::Forward);

/// A block whose first instruction is a matmul of arguments, p[m, n]. No two values share memory.
class Example {
public:
  explicit Example(DType dtype = DType::F32) : dtype(dtype) {
    program.mesh.axes = {};
    program.stages.emplace_back();
    ValueId a = argument({m, k}), b = argument({k, n});
    matmul =
        add("einsum", {a, b}, {m, n},
            {{"lhs_labels", Ints{0, 1}}, {"rhs_labels", Ints{1, 2}}, {"out_labels", Ints{0, 2}}});
    ends = {0};
  }

  ValueId argument(const Shape &shape) { return value({dtype, shape}); }
  ValueId add(const std::string &op, const std::vector<ValueId> &operands, const Shape &shape,
              const Attrs &attrs = {}, std::optional<DType> type = std::nullopt) {
    Instruction instruction;
    instruction.id = op;
    instruction.op = op;
    instruction.attrs = attrs;
    instruction.operands = operands;
    instruction.results = {value({type ? *type : dtype, shape})};
    block().instructions.push_back(instruction);
    return instruction.results[0];
  }
  ValueId broadcast(ValueId bias, const Shape &shape = {m, n}) {
    return add("broadcast", {bias}, shape, {{"dims", Ints{int64_t(shape.size()) - 1}}});
  }
  ValueId gelu(ValueId x, const Shape &shape = {m, n}, const char *form = "tanh") {
    return add("gelu", {x}, shape, {{"approximate", std::string(form)}});
  }
  ValueId reshape(ValueId x, const Shape &shape) { return add("reshape", {x}, shape); }
  /// Begins another region.
  void endRegion() { ends.push_back(int(block().instructions.size()) - 1); }

  /// Ends the block. `results` are read outside of it.
  void finish(const std::vector<ValueId> &results) {
    endRegion();
    int first = 0;
    for (int end : ends) {
      if (end >= first)
        block().regions.push_back({first, end - first + 1, "r" + std::to_string(first), 1});
      first = end + 1;
    }
    for (ValueId result : results) {
      block().results.push_back({result, int(stage().slots.size())});
      stage().slots.push_back({"s" + std::to_string(result), program::Role::Residual, -1,
                               stage().values[size_t(result)]});
    }
    constexpr int64_t step = 4096;
    for (size_t i = 0; i < stage().values.size(); ++i)
      stage().memory.values.push_back({-1, int64_t(i) * step});
    for (size_t i = 0; i < stage().slots.size(); ++i)
      stage().memory.slots.push_back({-1, int64_t(i + stage().values.size()) * step});
    stage().memory.arenaBytes = int64_t(stage().values.size() + stage().slots.size()) * step;
  }

  program::Stage &stage() { return program.stages[0]; }
  program::Block &block() { return stage().chunks[0].forward; }
  cuda::Epilogues find() { return cuda::findEpilogues(stage(), block()); }

  program::Program program;
  ValueId matmul = 0;

private:
  ValueId value(const TensorType &type) {
    stage().values.push_back(type);
    return ValueId(stage().values.size()) - 1;
  }

  DType dtype;
  std::vector<int> ends; // the last instruction of each region
};

class EpiloguesTest : public testing::Test {
protected:
  EpiloguesTest() : cublas(driver) {
    device = *cuda::Device::open(FakeDriver::table(), 0);
    streams = *cuda::Streams::create(device, std::chrono::milliseconds(0));
    matmuls = *cuda::Matmuls::create(device, FakeCublasLt::table());
  }

  /// Runs the block by libraries only, and compares its results with those of its instructions.
  void run(Example &example, double tolerance = 1e-5) {
    std::map<ValueId, Tensor> known;
    auto memory = cuda::DeviceMemory::allocate(device, example.stage().memory.arenaBytes, "arena");
    auto addressOf = [&](ValueId value) {
      return memory->address() + DeviceAddress(example.stage().memory.values[size_t(value)].offset);
    };
    std::set<ValueId> made;
    for (const Instruction &instruction : example.block().instructions)
      made.insert(instruction.results.begin(), instruction.results.end());
    for (ValueId value = 0; value < ValueId(example.stage().values.size()); ++value) {
      if (made.count(value))
        continue;
      known[value] = argumentOf(example.stage().values[size_t(value)], value);
      std::vector<unsigned char> bytes = known[value].toBytes();
      ASSERT_TRUE(streams->upload(addressOf(value), bytes.data(), int64_t(bytes.size())));
    }
    for (const Instruction &instruction : example.block().instructions) {
      std::vector<Tensor> operands;
      for (ValueId value : instruction.operands)
        operands.push_back(known.at(value));
      known[instruction.results[0]] = kernels::findKernel(instruction.op)(
          {Arith::Native}, instruction.attrs, operands,
          {example.stage().values[size_t(instruction.results[0])]})[0];
    }
    cuda::LibraryCalls calls(example.program, 0, matmuls);
    ASSERT_TRUE(calls.prepare(forward));
    for (const program::Region &region : example.block().regions) {
      if (calls.isLeftOut(forward, region.first))
        continue;
      const cuda::LibraryCalls::Call *call = calls.find(forward, region.first);
      ASSERT_NE(call, nullptr) << region.first;
      Status status = (*call)(streams->of(program::Stream::Compute), addressOf);
      ASSERT_TRUE(status) << status.error().message;
    }
    for (const program::BlockResult &result : example.block().results) {
      const TensorType &type = example.stage().values[size_t(result.value)];
      std::vector<unsigned char> bytes(size_t(program::sizeBytes(type)));
      ASSERT_TRUE(streams->download(bytes.data(), addressOf(result.value), int64_t(bytes.size())));
      std::vector<double> found = Tensor::fromBytes(type, Arith::Native, bytes.data()).toDoubles();
      std::vector<double> expected = known.at(result.value).toDoubles();
      for (size_t i = 0; i < found.size(); ++i)
        ASSERT_NEAR(found[i], expected[i], tolerance * (1 + std::abs(expected[i])))
            << "value " << result.value << ", element " << i;
    }
    EXPECT_THAT(driver.complaints(), IsEmpty());
    said = calls.sentences();
  }
  static Tensor argumentOf(const TensorType &type, int64_t seed) {
    std::vector<double> values;
    for (int64_t i = 0; i < kernels::numElements(type.shape); ++i)
      values.push_back(double((i * 5 + seed) % 7 - 3) / 4);
    return Tensor::fromDoubles(type, Arith::Native, values);
  }

  FakeDriver driver;
  FakeCublasLt cublas;
  cuda::DevicePtr device;
  std::shared_ptr<cuda::Streams> streams;
  std::shared_ptr<cuda::Matmuls> matmuls;
  std::vector<std::string> said;
};

TEST_F(EpiloguesTest, ABias) {
  Example e;
  ValueId bias = e.argument({n});
  e.finish({e.add("add", {e.matmul, e.broadcast(bias)}, {m, n})});
  run(e);
  EXPECT_EQ(cublas.numMatmuls(CublasEpilogue::Bias, false), 1);
  EXPECT_THAT(said,
              ElementsAre("matmuls: 1 by cuBLASLt", "with their matmul, by cuBLASLt: 1 bias"));
}

TEST_F(EpiloguesTest, AResidualWithABiasInEitherOrder) {
  for (bool biasFirst : {true, false}) {
    Example e;
    ValueId bias = e.argument({n}), other = e.argument({2, m / 2, n});
    ValueId repeated = e.broadcast(bias);
    ValueId sum = e.matmul;
    if (biasFirst)
      sum = e.add("add", {repeated, sum}, {m, n});
    sum = e.add("add", {e.reshape(other, {m, n}), sum}, {m, n});
    if (!biasFirst)
      sum = e.add("add", {sum, repeated}, {m, n});
    e.finish({e.reshape(sum, {2, m / 2, n})});
    run(e);
  }
  EXPECT_EQ(cublas.numMatmuls(CublasEpilogue::Bias, true), 2);
}

TEST_F(EpiloguesTest, AResidualInPlace) {
  Example e;
  ValueId other = e.argument({m, n});
  ValueId sum = e.add("add", {other, e.matmul}, {m, n});
  e.finish({sum});
  e.stage().memory.values[size_t(sum)] = e.stage().memory.values[size_t(other)];
  run(e);
  EXPECT_EQ(cublas.numMatmuls(CublasEpilogue::Default, true), 1);
}

TEST_F(EpiloguesTest, GeluOfABiasedMatmul) {
  for (bool isTraining : {true, false}) {
    Example e;
    ValueId bias = e.argument({n});
    ValueId x = e.add("add", {e.matmul, e.broadcast(bias)}, {m, n});
    ValueId inner = e.gelu(e.reshape(x, {2, m / 2, n}), {2, m / 2, n});
    ValueId y = e.reshape(inner, {m, n});
    e.finish(isTraining ? std::vector<ValueId>{x, y} : std::vector<ValueId>{y});
    run(e);
  }
  EXPECT_EQ(cublas.numMatmuls(CublasEpilogue::GeluAuxiliaryBias, false), 1);
  EXPECT_EQ(cublas.numMatmuls(CublasEpilogue::GeluBias, false), 1);
}

TEST_F(EpiloguesTest, GeluOfAMatmul) {
  Example e;
  e.finish({e.gelu(e.matmul)});
  run(e);
  EXPECT_EQ(cublas.numMatmuls(CublasEpilogue::Gelu, false), 1);
}

TEST_F(EpiloguesTest, TheGradientOfGeluAfterOtherWork) {
  Example e;
  ValueId x = e.argument({m, n}), other = e.argument({m, k});
  ValueId square =
      e.add("einsum", {other, other}, {m, m},
            {{"lhs_labels", Ints{0, 1}}, {"rhs_labels", Ints{2, 1}}, {"out_labels", Ints{0, 2}}});
  e.endRegion();
  ValueId dy = e.reshape(e.matmul, {2, m / 2, n});
  e.endRegion();
  ValueId dx = e.add("gelu_grad", {e.reshape(x, {2, m / 2, n}), dy}, {2, m / 2, n},
                     {{"approximate", std::string("tanh")}});
  e.finish({square, dx});
  ASSERT_EQ(e.find().list.size(), 1u);
  EXPECT_THAT(e.find().list[0].leftOut, ElementsAre(0, 2));
  run(e);
  EXPECT_EQ(cublas.numMatmuls(CublasEpilogue::GeluGradient, false), 1);
}

TEST_F(EpiloguesTest, ACastToF32) {
  Example e(DType::BF16);
  e.finish({e.add("cast", {e.matmul}, {m, n}, {}, DType::F32)});
  run(e, 1e-2); // the reference rounds in between
  EXPECT_EQ(cublas.numMatmuls(), 1);
}

TEST_F(EpiloguesTest, InBFloat16) {
  Example e(DType::BF16);
  ValueId bias = e.argument({n});
  ValueId x = e.add("add", {e.matmul, e.broadcast(bias)}, {m, n});
  e.finish({x, e.gelu(x)});
  run(e, 2e-2);
  EXPECT_EQ(cublas.numMatmuls(CublasEpilogue::GeluAuxiliaryBias, false), 1);
}

TEST_F(EpiloguesTest, WhatTheLibraryCannotDoIsDoneApart) {
  cublas.hasNoWayWithEpilogues();
  Example e;
  ValueId bias = e.argument({n});
  e.finish({e.add("add", {e.matmul, e.broadcast(bias)}, {m, n})});
  cuda::LibraryCalls calls(e.program, 0, matmuls);
  ASSERT_TRUE(calls.prepare(forward));
  EXPECT_NE(calls.find(forward, 0), nullptr);
  EXPECT_FALSE(calls.isLeftOut(forward, 0));
  EXPECT_EQ(calls.find(forward, 1), nullptr);
  EXPECT_THAT(calls.sentences(), ElementsAre("matmuls: 1 by cuBLASLt",
                                             "apart from their matmul: 1 the library has no way"));
}

//===----------------------------------------------------------------------===//
// No epilogue
//===----------------------------------------------------------------------===//

/// Returns a block with a bias epilogue. `change` may add another use of the sum.
Example biased(const std::function<std::vector<ValueId>(Example &, ValueId)> &change) {
  Example e;
  ValueId bias = e.argument({n});
  ValueId sum = e.add("add", {e.matmul, e.broadcast(bias)}, {m, n});
  e.finish(change(e, sum));
  return e;
}

TEST(Epilogues, WhatOthersReadStaysApart) {
  EXPECT_THAT(biased([](Example &, ValueId sum) { return std::vector<ValueId>{sum}; }).find().list,
              ::testing::SizeIs(1));
  // The matmul's own result is a result of the block.
  EXPECT_THAT(biased([](Example &e, ValueId sum) { return std::vector<ValueId>{sum, e.matmul}; })
                  .find()
                  .list,
              IsEmpty());
  // Another kernel reads the matmul's result.
  EXPECT_THAT(biased([](Example &e, ValueId sum) {
                e.endRegion();
                return std::vector<ValueId>{sum, e.add("exp", {e.matmul}, {m, n})};
              })
                  .find()
                  .list,
              IsEmpty());
}

TEST(Epilogues, OtherFunctionsStayApartAndAreNamed) {
  cuda::Epilogues exp = biased([](Example &e, ValueId sum) {
                          return std::vector<ValueId>{e.add("exp", {sum}, {m, n})};
                        }).find();
  EXPECT_THAT(exp.list, IsEmpty());
  EXPECT_THAT(exp.apart, UnorderedElementsAre(Pair("an epilogue with exp", 1)));
  cuda::Epilogues erf = biased([](Example &e, ValueId sum) {
                          return std::vector<ValueId>{e.gelu(sum, {m, n}, "none")};
                        }).find();
  EXPECT_THAT(erf.list, IsEmpty());
  EXPECT_THAT(erf.apart, UnorderedElementsAre(Pair("a gelu that is not the tanh form", 1)));
  // Both the sum and its successor are read.
  EXPECT_THAT(biased([](Example &e, ValueId sum) {
                ValueId twice = e.add("add", {sum, e.argument({m, n})}, {m, n});
                return std::vector<ValueId>{sum, twice};
              })
                  .find()
                  .list,
              IsEmpty());
}

TEST(Epilogues, ABiasAlongAnotherDimIsNone) {
  Example e;
  ValueId column = e.argument({m});
  ValueId repeated = e.add("broadcast", {column}, {m, n}, {{"dims", Ints{0}}});
  e.finish({e.add("add", {e.matmul, repeated}, {m, n})});
  EXPECT_THAT(e.find().list, IsEmpty());
}

TEST(Epilogues, TheMemoryPlanMayKeepThemApart) {
  auto plain = [](Example &, ValueId sum) { return std::vector<ValueId>{sum}; };
  // The result overlaps an operand of the matmul.
  Example over = biased(plain);
  ValueId sum = over.block().results[0].value;
  over.stage().memory.values[size_t(sum)] = over.stage().memory.values[0];
  EXPECT_THAT(over.find().list, IsEmpty());
  EXPECT_THAT(over.find().apart, UnorderedElementsAre(Pair("the memory plan", 1)));
  // A value computed in between overlaps an operand.
  auto withOther = [] {
    Example e;
    ValueId bias = e.argument({n}), x = e.argument({m, n});
    ValueId other = e.add("exp", {x}, {m, n});
    e.endRegion();
    ValueId sum = e.add("add", {e.matmul, e.broadcast(bias)}, {m, n});
    e.finish({other, sum});
    return e;
  };
  Example between = withOther();
  EXPECT_THAT(between.find().list, ::testing::SizeIs(1));
  ValueId other = between.block().results[0].value;
  between.stage().memory.values[size_t(other)] = between.stage().memory.values[1];
  EXPECT_THAT(between.find().list, IsEmpty());
  // A slot is written in between.
  Example slot = withOther();
  slot.stage().memory.slots[0] = {-1, slot.stage().memory.values[1].offset};
  EXPECT_THAT(slot.find().list, IsEmpty());
  // Concurrent communication writes there.
  Example beside = withOther();
  beside.block().instructions[1].stream = program::Stream::Communication;
  beside.stage().memory.values[size_t(other)] = beside.stage().memory.values[1];
  EXPECT_THAT(beside.find().list, IsEmpty());
}

TEST(Epilogues, ACommunicationThatWaitsForLessThanTheRegion) {
  Example e = biased([](Example &e, ValueId sum) {
    e.endRegion();
    return std::vector<ValueId>{sum, e.add("exp", {e.argument({m, n})}, {m, n})};
  });
  Instruction &late = e.block().instructions.back();
  late.stream = program::Stream::Communication;
  late.waits = {0};
  e.stage().memory.values[size_t(late.results[0])] = e.stage().memory.values[0];
  EXPECT_THAT(e.find().list, IsEmpty());
  late.waits = {2};
  EXPECT_THAT(e.find().list, ::testing::SizeIs(1));
}

TEST(Epilogues, NamesOfThem) {
  Epilogue e;
  e.bias = 1;
  e.added = 2;
  e.function = Epilogue::Function::Gelu;
  EXPECT_EQ(e.name(), "bias and sum and gelu");
  EXPECT_EQ(cuda::describe({{"bias", 2}, {"cast", 3}}), "2 bias, 3 cast");
}

} // namespace
} // namespace tbc::test
