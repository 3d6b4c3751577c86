//===- cudnn_test.cpp - Attention and convolution by a faked cuDNN ---------===//
//
// Compares the results of the descriptors with those of the reference kernels.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/LibraryCalls.h"
#include "runtime/cuda/Streams.h"
#include "runtime/kernels/Kernel.h"
#include "tests/runtime/cuda/FakeCudnn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tbc::test {
namespace {

using cuda::CudnnKind;
using cuda::DeviceAddress;
using kernels::Arith;
using kernels::Attrs;
using kernels::DType;
using kernels::Shape;
using kernels::Tensor;
using kernels::TensorType;
using program::ValueId;
using Ints = std::vector<int64_t>;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const program::BlockId forward(schedule::Action::Kind::Forward);

Attrs attentionAttrs(bool isCausal) {
  return {{"scale", 0.375},           {"causal", isCausal}, {"left", int64_t(-1)},
          {"right", int64_t(-1)},     {"key_mask", false},  {"segments", false},
          {"ordered", false},         {"placed", false},    {"hidden_rows", std::string("zero")},
          {"dropout", 0.0},           {"drops_out", false}, {"dropout_seed", int64_t(0)},
          {"dropout_key", int64_t(0)}};
}

/// b = 2, h = 4 query heads, 2 key heads; queries and keys are 24 wide, values 8 wide.
struct AttentionShapes {
  int64_t s, t, heads = 4, keyHeads = 2;
  std::string tokenMajor = {}; // the attribute
  Shape q() const { return shape('q', heads, s, 24); }
  Shape k() const { return shape('k', keyHeads, t, 24); }
  Shape v() const { return shape('v', keyHeads, t, 8); }
  Shape o() const { return shape('o', heads, s, 8); }
  Shape m() const { return {2, heads, s}; }

private:
  Shape shape(char tensor, int64_t heads, int64_t tokens, int64_t width) const {
    if (tokenMajor.find(char(std::toupper(tensor))) != std::string::npos)
      return {2, tokens, heads * width};
    bool isTokenMajor = tokenMajor.find(tensor) != std::string::npos;
    return {2, isTokenMajor ? tokens : heads, isTokenMajor ? heads : tokens, width};
  }
};

class CudnnTest : public testing::Test {
protected:
  CudnnTest() : cudnn(driver) {
    device = *cuda::Device::open(FakeDriver::table(), 0);
    streams = *cuda::Streams::create(device, std::chrono::milliseconds(0));
    plans = *cuda::CudnnPlans::create(device, FakeCudnn::table());
  }

  static Tensor numbers(const TensorType &type, int64_t seed) {
    std::vector<double> values;
    for (int64_t i = 0; i < kernels::numElements(type.shape); ++i)
      values.push_back(double((i * 7 + seed * 3) % 11 - 5) / 8);
    return Tensor::fromDoubles(type, Arith::Native, values);
  }

  /// Returns a program with one instruction, in one region.
  static program::Program programOf(const std::string &op, const Attrs &attrs,
                                    const std::vector<TensorType> &operands,
                                    const std::vector<TensorType> &results,
                                    const std::vector<bool> &isRead = {}) {
    program::Program program;
    program.stages.emplace_back();
    program::Stage &stage = program.stages[0];
    program::Instruction instruction;
    instruction.id = instruction.op = op;
    instruction.attrs = attrs;
    for (const TensorType &type : operands) {
      instruction.operands.push_back(ValueId(stage.values.size()));
      stage.values.push_back(type);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      ValueId value = ValueId(stage.values.size());
      instruction.results.push_back(value);
      stage.values.push_back(results[i]);
      if (isRead.empty() || isRead[i]) {
        stage.chunks[0].forward.results.push_back({value, int(stage.slots.size())});
        stage.slots.push_back({"s", program::Role::Residual, -1, results[i]});
      }
    }
    stage.chunks[0].forward.instructions = {instruction};
    stage.chunks[0].forward.regions = {{0, 1, "r", 1}};
    return program;
  }

  /// Returns the library's results for the operands, or no tensors if it refuses the op.
  std::vector<Tensor> run(const program::Program &program, const std::vector<Tensor> &operands) {
    const program::Stage &stage = program.stages[0];
    const program::Instruction &instruction = stage.chunks[0].forward.instructions[0];
    cuda::LibraryCalls calls(program, 0, nullptr, plans);
    Status status = calls.prepare(forward);
    EXPECT_TRUE(status) << status.error().message;
    said = calls.sentences();
    const cuda::LibraryCalls::Call *call = calls.find(forward, 0);
    if (!call)
      return {};
    constexpr int64_t step = 1 << 16;
    auto memory =
        cuda::DeviceMemory::allocate(device, int64_t(stage.values.size()) * step, "tensors");
    auto addressOf = [&](ValueId value) {
      return memory->address() + DeviceAddress(value) * DeviceAddress(step);
    };
    for (size_t i = 0; i < operands.size(); ++i) {
      std::vector<unsigned char> bytes = operands[i].toBytes();
      EXPECT_TRUE(
          streams->upload(addressOf(instruction.operands[i]), bytes.data(), int64_t(bytes.size())));
    }
    status = (*call)(streams->of(program::Stream::Compute), addressOf);
    EXPECT_TRUE(status) << status.error().message;
    std::vector<Tensor> made;
    for (ValueId value : instruction.results) {
      const TensorType &type = stage.values[size_t(value)];
      std::vector<unsigned char> bytes(size_t(program::sizeBytes(type)));
      EXPECT_TRUE(streams->download(bytes.data(), addressOf(value), int64_t(bytes.size())));
      made.push_back(Tensor::fromBytes(type, Arith::Native, bytes.data()));
    }
    EXPECT_THAT(driver.complaints(), IsEmpty());
    return made;
  }
  static std::vector<Tensor> reference(const program::Program &program,
                                       const std::vector<Tensor> &operands) {
    const program::Stage &stage = program.stages[0];
    const program::Instruction &instruction = stage.chunks[0].forward.instructions[0];
    std::vector<TensorType> types;
    for (ValueId value : instruction.results)
      types.push_back(stage.values[size_t(value)]);
    return kernels::findKernel(instruction.op)({Arith::Native}, instruction.attrs, operands, types);
  }
  static void expectNear(const Tensor &found, const Tensor &expected, double tolerance) {
    std::vector<double> a = found.toDoubles(), b = expected.toDoubles();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << "element " << i;
  }

  /// Compares an op with its reference, for ops with only one valid result.
  void check(const std::string &op, const Attrs &attrs, const std::vector<TensorType> &types,
             const std::vector<TensorType> &results, double tolerance) {
    program::Program program = programOf(op, attrs, types, results);
    std::vector<Tensor> operands;
    for (size_t i = 0; i < types.size(); ++i)
      operands.push_back(numbers(types[i], int64_t(i)));
    std::vector<Tensor> made = run(program, operands);
    ASSERT_EQ(made.size(), results.size()) << ::testing::PrintToString(said);
    std::vector<Tensor> expected = reference(program, operands);
    for (size_t i = 0; i < made.size(); ++i)
      expectNear(made[i], expected[i], tolerance);
  }

  FakeDriver driver;
  FakeCudnn cudnn;
  cuda::DevicePtr device;
  std::shared_ptr<cuda::Streams> streams;
  std::shared_ptr<cuda::CudnnPlans> plans;
  std::vector<std::string> said;
};

//===----------------------------------------------------------------------===//
// Convolution
//===----------------------------------------------------------------------===//

Attrs windowAttrs(const Ints &strides, const Ints &pads, const Ints &dilations, int64_t groups) {
  return {{"strides", strides}, {"pads", pads}, {"dilations", dilations}, {"groups", groups}};
}

TEST_F(CudnnTest, ConvolutionsMeanTheirDescriptors) {
  struct Case {
    Shape x, w, y;
    Attrs attrs;
  };
  const Case cases[] = {
      {{2, 4, 7, 8}, {6, 2, 3, 2}, {6, 6, 4, 5}, {}},
      {{2, 4, 7, 8}, {6, 4, 3, 2}, {2, 6, 4, 3}, windowAttrs({2, 3}, {1, 0, 1, 1}, {1, 2}, 1)},
      {{2, 4, 7}, {6, 2, 3}, {2, 6, 4}, windowAttrs({2}, {1, 1}, {1}, 2)},
      {{1, 2, 4, 3, 5},
       {3, 2, 2, 2, 2},
       {1, 3, 3, 2, 4},
       windowAttrs({1, 1, 1}, {0, 0, 0, 0, 0, 0}, {1, 1, 1}, 1)},
  };
  for (const Case &c : cases) {
    if (!c.attrs.has("strides"))
      continue;
    for (DType dtype : {DType::F32, DType::BF16}) {
      double tolerance = dtype == DType::F32 ? 1e-5 : 2e-2;
      TensorType x{dtype, c.x}, w{dtype, c.w}, y{dtype, c.y};
      check("conv", c.attrs, {x, w}, {y}, tolerance);
      // f32 is not rounded for speed, and the engine is deterministic.
      EXPECT_EQ(cudnn.lastWay(), dtype == DType::F32 ? 4 : 1);
      check("conv_grad_input", c.attrs, {y, w}, {x}, tolerance);
      check("conv_grad_weight", c.attrs, {x, y}, {w}, tolerance);
    }
  }
  EXPECT_EQ(cudnn.numOperations(CudnnKind::ConvolutionForward), 6);
  EXPECT_EQ(cudnn.numOperations(CudnnKind::ConvolutionBackwardData), 6);
  EXPECT_EQ(cudnn.numOperations(CudnnKind::ConvolutionBackwardFilter), 6);
}

TEST_F(CudnnTest, AGraphIsAskedForOnce) {
  TensorType x{DType::F32, {1, 2, 5, 5}}, w{DType::F32, {3, 2, 3, 3}}, y{DType::F32, {1, 3, 3, 3}};
  Attrs attrs = windowAttrs({1, 1}, {0, 0, 0, 0}, {1, 1}, 1);
  check("conv", attrs, {x, w}, {y}, 1e-5);
  check("conv", attrs, {x, w}, {y}, 1e-5);
  EXPECT_EQ(cudnn.numAsked(), 1);
  EXPECT_EQ(cudnn.numExecuted(), 2);
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

TEST_F(CudnnTest, AttentionAndItsGradient) {
  for (bool isCausal : {false, true})
    for (const auto &[heads, tokenMajor] :
         {std::pair(int64_t(2), ""), {4, ""}, {2, "qkvo"}, {4, "qkvo"}, {4, "ko"}, {4, "QKVO"}}) {
      SCOPED_TRACE(testing::Message() << heads << " heads, token-major " << tokenMajor);
      AttentionShapes a{16, isCausal ? 16 : 24, heads};
      a.tokenMajor = tokenMajor;
      Attrs attrs = attentionAttrs(isCausal);
      attrs.set("token_major", a.tokenMajor);
      attrs.set("heads", heads);
      attrs.set("key_heads", a.keyHeads);
      TensorType q{DType::BF16, a.q()}, k{DType::BF16, a.k()}, v{DType::BF16, a.v()},
          o{DType::BF16, a.o()}, m{DType::F32, a.m()};
      program::Program program = programOf("attention", attrs, {q, k, v}, {o, m, m});
      std::vector<Tensor> operands = {numbers(q, 1), numbers(k, 2), numbers(v, 3)};
      std::vector<Tensor> made = run(program, operands), expected = reference(program, operands);
      ASSERT_EQ(made.size(), 3u) << ::testing::PrintToString(said);
      expectNear(made[0], expected[0], 2e-2);
      // Different statistics are equal in m + log l.
      auto logSums = [](const Tensor &m, const Tensor &l) {
        std::vector<double> sums = m.toDoubles(), parts = l.toDoubles();
        for (size_t i = 0; i < sums.size(); ++i)
          sums[i] += std::log(parts[i]);
        return Tensor::fromDoubles({DType::F32, m.shape()}, Arith::Native, sums);
      };
      expectNear(logSums(made[1], made[2]), logSums(expected[1], expected[2]), 1e-5);
      for (double l : made[2].toDoubles())
        ASSERT_EQ(l, 1);
      // The gradient accepts the statistics of the library and of the reference.
      program::Program gradient =
          programOf("attention_grad", attrs, {o, q, k, v, o, m, m}, {q, k, v});
      for (const std::vector<Tensor> *saved : {&made, &expected}) {
        std::vector<Tensor> all = {numbers(o, 4), operands[0], operands[1], operands[2],
                                   (*saved)[0],   (*saved)[1], (*saved)[2]};
        std::vector<Tensor> grads = run(gradient, all), right = reference(gradient, all);
        ASSERT_EQ(grads.size(), 3u) << ::testing::PrintToString(said);
        for (size_t i = 0; i < grads.size(); ++i)
          expectNear(grads[i], right[i], 4e-2);
      }
      EXPECT_EQ(cudnn.lastWay(), 0); // dq is summed in any order
    }
  EXPECT_THAT(said, ElementsAre("by cuDNN: 1 attention_grad"));
}

/// q, k and v are columns of one tensor, and so are their gradients.
TEST_F(CudnnTest, AttentionOfColumnsInPlace) {
  for (int64_t keyHeads : {int64_t(2), int64_t(4)}) {
    SCOPED_TRACE(testing::Message() << keyHeads << " key heads");
    const int64_t batch = 2, heads = 4, tokens = 16, width = 8, valueWidth = 16;
    Attrs attrs = attentionAttrs(true);
    attrs.set("token_major", std::string("O"));
    attrs.set("heads", heads);
    attrs.set("key_heads", keyHeads);
    attrs.set("packed_width", width);
    const int64_t columns = (heads + keyHeads) * width + keyHeads * valueWidth;
    TensorType x{DType::BF16, {batch, tokens, columns}},
        o{DType::BF16, {batch, tokens, heads * valueWidth}}, m{DType::F32, {batch, heads, tokens}};
    program::Program program = programOf("packed_attention", attrs, {x}, {o, m, m});
    std::vector<Tensor> operands = {numbers(x, 1)};
    std::vector<Tensor> made = run(program, operands), expected = reference(program, operands);
    ASSERT_EQ(made.size(), 3u) << ::testing::PrintToString(said);
    expectNear(made[0], expected[0], 2e-2);
    program::Program gradient = programOf("packed_attention_grad", attrs, {o, x, o, m, m}, {x});
    std::vector<Tensor> all = {numbers(o, 4), operands[0], made[0], made[1], made[2]};
    std::vector<Tensor> grads = run(gradient, all), right = reference(gradient, all);
    ASSERT_EQ(grads.size(), 1u) << ::testing::PrintToString(said);
    expectNear(grads[0], right[0], 4e-2);
  }
  EXPECT_THAT(said, ElementsAre("by cuDNN: 1 packed_attention_grad"));
}

TEST_F(CudnnTest, RanksThatComputeTheSameGetTheSameBits) {
  AttentionShapes a{16, 16};
  TensorType q{DType::F16, a.q()}, k{DType::F16, a.k()}, v{DType::F16, a.v()}, o{DType::F16, a.o()},
      m{DType::F32, a.m()};
  program::Program program =
      programOf("attention_grad", attentionAttrs(true), {o, q, k, v, o, m, m}, {q, k, v});
  program.mesh.axes = {{"dp", 2}, {"tp", 2}};
  std::vector<Tensor> ones = {Tensor::fromDoubles(
      m, Arith::Native, std::vector<double>(size_t(kernels::numElements(m.shape)), 3.0))};
  std::vector<Tensor> operands = {numbers(o, 1), numbers(q, 2), numbers(k, 3), numbers(v, 4),
                                  numbers(o, 5), numbers(m, 6), ones[0]};
  std::vector<Tensor> made = run(program, operands), expected = reference(program, operands);
  ASSERT_EQ(made.size(), 3u) << ::testing::PrintToString(said);
  for (size_t i = 0; i < made.size(); ++i)
    expectNear(made[i], expected[i], 1e-2);
  EXPECT_EQ(cudnn.lastWay(), 1);
}

TEST_F(CudnnTest, WhatNobodyReadsIsNotWritten) {
  AttentionShapes a{16, 16};
  TensorType q{DType::BF16, a.q()}, k{DType::BF16, a.k()}, v{DType::BF16, a.v()},
      o{DType::BF16, a.o()}, m{DType::F32, a.m()};
  std::vector<Tensor> operands = {numbers(q, 1), numbers(k, 2), numbers(v, 3)};
  for (const std::vector<bool> &isRead :
       {std::vector<bool>{true, false, false}, std::vector<bool>{true, false, true}}) {
    program::Program program =
        programOf("attention", attentionAttrs(true), {q, k, v}, {o, m, m}, isRead);
    std::vector<Tensor> made = run(program, operands);
    ASSERT_EQ(made.size(), 3u);
    expectNear(made[0], reference(program, operands)[0], 2e-2);
    for (size_t i = 1; i < 3; ++i)
      for (double x : made[i].toDoubles())
        ASSERT_TRUE(isRead[i] ? x == 1 : true);
  }
}

//===----------------------------------------------------------------------===//
// Requests not made, or refused
//===----------------------------------------------------------------------===//

class CudnnRefusals : public CudnnTest {
protected:
  std::string refusal(const Attrs &attrs, const AttentionShapes &a, DType dtype = DType::BF16,
                      const std::vector<TensorType> &masks = {}) {
    TensorType q{dtype, a.q()}, k{dtype, a.k()}, v{dtype, a.v()}, o{dtype, a.o()},
        m{DType::F32, a.m()};
    std::vector<TensorType> operands = {q, k, v};
    operands.insert(operands.end(), masks.begin(), masks.end());
    program::Program program = programOf("attention", attrs, operands, {o, m, m});
    cuda::LibraryCalls calls(program, 0, nullptr, plans);
    EXPECT_TRUE(calls.prepare(forward));
    EXPECT_EQ(calls.find(forward, 0), nullptr);
    return ::testing::PrintToString(calls.sentences());
  }
  static Attrs with(const std::string &name, kernels::AttrValue value) {
    Attrs attrs = attentionAttrs(true);
    attrs.set(name, std::move(value));
    return attrs;
  }
};

TEST_F(CudnnRefusals, AttentionThatItsGraphsDoNotMean) {
  AttentionShapes a{16, 16};
  EXPECT_THAT(refusal(attentionAttrs(true), a, DType::F32), HasSubstr("attention of f32"));
  EXPECT_THAT(refusal(attentionAttrs(true), {8, 16}), HasSubstr("fewer queries than keys"));
  EXPECT_THAT(refusal(with("left", int64_t(3)), a), HasSubstr("sliding window"));
  EXPECT_THAT(refusal(with("key_mask", true), a, DType::BF16, {{DType::Bool, {2, 16}}}),
              HasSubstr("masks that are data"));
  TensorType places{DType::I64, {16}};
  EXPECT_THAT(refusal(with("placed", true), a, DType::BF16, {places, places}),
              HasSubstr("parts of a sequence"));
}

TEST_F(CudnnRefusals, PlacesThatAreIndicesAreNoParts) {
  AttentionShapes a{16, 16};
  TensorType q{DType::BF16, a.q()}, k{DType::BF16, a.k()}, v{DType::BF16, a.v()},
      o{DType::BF16, a.o()}, m{DType::F32, a.m()}, places{DType::I64, {16}};
  program::Program program =
      programOf("attention", with("placed", true), {q, k, v, places}, {o, m, m});
  program::Block &block = program.stages[0].chunks[0].forward;
  block.instructions[0].operands.push_back(3);
  program::Instruction iota;
  iota.id = iota.op = "iota";
  iota.attrs = {{"dim", int64_t(0)}};
  iota.results = {3};
  block.instructions.push_back(iota);
  cuda::LibraryCalls calls(program, 0, nullptr, plans);
  ASSERT_TRUE(calls.prepare(forward));
  EXPECT_NE(calls.find(forward, 0), nullptr);
}

/// cuDNN knows them. They are computed if something else reads them.
TEST_F(CudnnRefusals, PlacesThatOnlyCudnnIsGivenNeedNoLaunch) {
  AttentionShapes a{16, 16};
  TensorType q{DType::BF16, a.q()}, k{DType::BF16, a.k()}, v{DType::BF16, a.v()},
      o{DType::BF16, a.o()}, m{DType::F32, a.m()}, places{DType::I64, {16}};
  program::Program program =
      programOf("attention", with("placed", true), {q, k, v, places}, {o, m, m});
  program::Stage &stage = program.stages[0];
  program::Block &block = stage.chunks[0].forward;
  block.instructions[0].operands.push_back(3);
  program::Instruction iota;
  iota.id = iota.op = "iota";
  iota.attrs = {{"dim", int64_t(0)}};
  iota.results = {3};
  block.instructions.insert(block.instructions.begin(), iota);
  block.regions = {{0, 1, "iota", 1}, {1, 1, "attention", 1}};
  auto isLeftOut = [&] {
    cuda::LibraryCalls calls(program, 0, nullptr, plans);
    EXPECT_TRUE(calls.prepare(forward));
    EXPECT_NE(calls.find(forward, 1), nullptr);
    const bool answer = calls.isLeftOut(forward, 0);
    EXPECT_EQ(answer, cuda::libraryUseOf(program, 0, forward, 90).unread.count(0) > 0);
    return answer;
  };
  EXPECT_TRUE(isLeftOut());
  program::Instruction reader;
  reader.id = reader.op = "neg";
  reader.operands = {3}, reader.results = {3};
  block.instructions.push_back(reader);
  EXPECT_FALSE(isLeftOut());
  block.instructions.pop_back();
  EXPECT_TRUE(isLeftOut());
  block.results.push_back({3, 0});
  EXPECT_FALSE(isLeftOut());
}

TEST_F(CudnnRefusals, VersionsThatAreWrong) {
  AttentionShapes a{16, 16};
  TensorType q{DType::BF16, a.q()}, k{DType::BF16, a.k()}, v{DType::BF16, a.v()},
      o{DType::BF16, a.o()}, m{DType::F32, a.m()};
  program::Program program =
      programOf("attention_grad", attentionAttrs(true), {o, q, k, v, o, m, m}, {q, k, v});
  for (auto [version, why] : {std::pair<size_t, const char *>{91001, "is wrong in cuDNN 9.10.0"},
                              {91400, "no multiple of 128, before cuDNN 9.15.1"}}) {
    cudnn.setVersion(version);
    cuda::LibraryCalls calls(program, 0, nullptr, plans);
    ASSERT_TRUE(calls.prepare(forward));
    EXPECT_EQ(calls.find(forward, 0), nullptr);
    EXPECT_THAT(::testing::PrintToString(calls.sentences()), HasSubstr(why));
  }
}

TEST_F(CudnnRefusals, WithoutMemoryToWorkInThereIsTheKernel) {
  driver.failCall("cuMemAlloc_v2", cuda::DriverCode::OutOfMemory);
  EXPECT_THAT(refusal(attentionAttrs(true), {16, 16}),
              HasSubstr("1 attention that finds no memory to work in"));
  // The workspace stays valid if a request for more memory fails.
  TensorType x{DType::F32, {1, 2, 5, 5}}, w{DType::F32, {3, 2, 3, 3}}, y{DType::F32, {1, 3, 3, 3}};
  check("conv", windowAttrs({1, 1}, {0, 0, 0, 0}, {1, 1}, 1), {x, w}, {y}, 1e-5);
  DeviceAddress before = plans->workspace();
  EXPECT_NE(before, 0u);
  EXPECT_FALSE(plans->reserve(int64_t(1) << 50));
  EXPECT_NE(plans->workspace(), 0u);
}

TEST_F(CudnnRefusals, NoWayIsSaidAndAFailureIsAnError) {
  AttentionShapes a{16, 16};
  TensorType x{DType::F32, {1, 2, 5, 5}}, w{DType::F32, {3, 2, 3, 3}}, y{DType::F32, {1, 3, 3, 3}};
  program::Program program =
      programOf("conv", windowAttrs({1, 1}, {0, 0, 0, 0}, {1, 1}, 1), {x, w}, {y});
  for (const char *function : {"createDescriptor", "setAttribute"}) {
    cudnn.fail(function);
    cuda::LibraryCalls calls(program, 0, nullptr, plans);
    Status status = calls.prepare(forward);
    ASSERT_FALSE(status) << function;
    EXPECT_EQ(status.error().code, ErrorCode::RankFailed);
    EXPECT_THAT(status.error().message, HasSubstr("cuDNN says execution failed"));
  }
  cudnn.fail("");
  cudnn.hasNoWay();
  EXPECT_THAT(refusal(attentionAttrs(true), a),
              HasSubstr("attention, no way to do it: cuDNN says not supported (no engine)"));
  plans = nullptr;
  EXPECT_EQ(cudnn.numAlive(), 0);
}

} // namespace
} // namespace tbc::test
