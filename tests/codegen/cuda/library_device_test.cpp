//===- library_device_test.cpp - cuBLASLt and cuDNN on a real GPU ----------===//
//
// Compares the libraries' results for an instruction, or for a matmul with its epilogue, with the
// reference kernels. If TBC_GPU_TESTS=1 is set it runs on a GPU, and a missing GPU or library is a
// failure. Otherwise it runs on the fakes, to check the test itself.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/LibraryCalls.h"
#include "runtime/cuda/StartLibraries.h"
#include "runtime/cuda/Streams.h"
#include "runtime/kernels/Kernel.h"
#include "tests/runtime/cuda/FakeCublasLt.h"
#include "tests/runtime/cuda/FakeCudnn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

using namespace tbc;
using kernels::Arith;
using kernels::Attrs;
using kernels::DType;
using kernels::Shape;
using kernels::Tensor;
using kernels::TensorType;
using program::ValueId;
using Ints = std::vector<int64_t>;

namespace {

const program::BlockId forward(schedule::Action::Kind::Forward);

/// A block with its instructions as regions: the first alone, the others together.
struct Example {
  Example() { program.stages.emplace_back(); }

  program::Stage &stage() { return program.stages[0]; }
  program::Block &block() { return stage().chunks[0].forward; }
  ValueId value(const TensorType &type) {
    stage().values.push_back(type);
    return ValueId(stage().values.size()) - 1;
  }
  std::vector<ValueId> add(const std::string &op, const Attrs &attrs,
                           const std::vector<ValueId> &operands,
                           const std::vector<TensorType> &results) {
    program::Instruction instruction;
    instruction.id = instruction.op = op;
    instruction.attrs = attrs;
    instruction.operands = operands;
    for (const TensorType &type : results)
      instruction.results.push_back(value(type));
    block().instructions.push_back(instruction);
    return instruction.results;
  }
  void finish(const std::vector<ValueId> &results) {
    int count = int(block().instructions.size());
    block().regions = {{0, 1, "first", 1}};
    if (count > 1)
      block().regions.push_back({1, count - 1, "others", 1});
    for (ValueId result : results) {
      block().results.push_back({result, int(stage().slots.size())});
      stage().slots.push_back({"s", program::Role::Residual, -1, stage().values[size_t(result)]});
    }
    int64_t next = 0;
    auto place = [&](const TensorType &type) {
      int64_t at = next;
      next += (program::sizeBytes(type) + 255) / 256 * 256;
      return at;
    };
    for (const TensorType &type : stage().values)
      stage().memory.values.push_back({-1, place(type)});
    for (const program::Slot &slot : stage().slots)
      stage().memory.slots.push_back({-1, place(slot.type)});
    stage().memory.arenaBytes = next;
  }
  program::Program program;
};

class LibraryDeviceTest : public testing::Test {
protected:
  void SetUp() override {
    const char *asked = std::getenv("TBC_GPU_TESTS");
    isReal = asked && std::string(asked) == "1";
    if (!isReal) {
      fakeDriver.emplace();
      fakeCublas.emplace(*fakeDriver);
      fakeCudnn.emplace(*fakeDriver);
    }
    using test::FakeCublasLt, test::FakeCudnn, test::FakeDriver;
    auto driver = isReal ? cuda::loadDriver() : Result<cuda::Driver>(FakeDriver::table());
    ASSERT_TRUE(driver) << driver.error().message;
    auto opened = cuda::Device::open(*driver, 0);
    ASSERT_TRUE(opened) << opened.error().message;
    device = *opened;
    auto made = cuda::Streams::create(device, std::chrono::milliseconds(0));
    ASSERT_TRUE(made) << made.error().message;
    streams = *made;
    std::vector<std::string> refusals;
    auto cublas = isReal ? cuda::startedCublasLt(device, refusals)
                         : Result<cuda::CublasLt>(FakeCublasLt::table());
    ASSERT_TRUE(cublas) << cublas.error().message;
    auto someMatmuls = cuda::Matmuls::create(device, *cublas);
    ASSERT_TRUE(someMatmuls) << someMatmuls.error().message;
    products = *someMatmuls;
    auto cudnn = isReal ? cuda::loadCudnn() : Result<cuda::Cudnn>(FakeCudnn::table());
    ASSERT_TRUE(cudnn) << cudnn.error().message;
    auto somePlans = cuda::CudnnPlans::create(device, *cudnn);
    ASSERT_TRUE(somePlans) << somePlans.error().message;
    plans = *somePlans;
  }

  /// Returns values between -1 and 1, the same on every machine.
  static Tensor numbers(const TensorType &type, uint64_t seed) {
    std::vector<double> values;
    uint64_t state = seed * 7919 + 1;
    for (int64_t i = 0; i < kernels::numElements(type.shape); ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      values.push_back(double(state >> 40) / double(1 << 23) - 1);
    }
    return Tensor::fromDoubles(type, Arith::Native, values);
  }

  /// Returns every value of the block, computed by the reference kernels.
  static std::map<ValueId, Tensor> reference(Example &example, std::map<ValueId, Tensor> known) {
    for (const program::Instruction &instruction : example.block().instructions) {
      std::vector<Tensor> operands;
      std::vector<TensorType> types;
      for (ValueId value : instruction.operands)
        operands.push_back(known.at(value));
      for (ValueId value : instruction.results)
        types.push_back(example.stage().values[size_t(value)]);
      std::vector<Tensor> made =
          kernels::findKernel(instruction.op)({Arith::Native}, instruction.attrs, operands, types);
      for (size_t i = 0; i < made.size(); ++i)
        known[instruction.results[i]] = made[i];
    }
    return known;
  }
  std::map<ValueId, Tensor> argumentsOf(Example &example) {
    std::map<ValueId, Tensor> known;
    std::set<ValueId> made;
    for (const program::Instruction &instruction : example.block().instructions)
      made.insert(instruction.results.begin(), instruction.results.end());
    for (ValueId value = 0; value < ValueId(example.stage().values.size()); ++value)
      if (!made.count(value))
        known[value] = numbers(example.stage().values[size_t(value)], uint64_t(value));
    return known;
  }

  /// Returns the libraries' results. The libraries must run the whole block.
  std::map<ValueId, Tensor> run(Example &example, const std::map<ValueId, Tensor> &arguments) {
    std::map<ValueId, Tensor> made;
    auto memory = cuda::DeviceMemory::allocate(device, example.stage().memory.arenaBytes, "arena");
    EXPECT_TRUE(memory) << memory.error().message;
    auto addressOf = [&](ValueId value) {
      return memory->address() +
             cuda::DeviceAddress(example.stage().memory.values[size_t(value)].offset);
    };
    for (const auto &[value, tensor] : arguments) {
      std::vector<unsigned char> bytes = tensor.toBytes();
      EXPECT_TRUE(streams->upload(addressOf(value), bytes.data(), int64_t(bytes.size())));
    }
    cuda::LibraryCalls calls(example.program, 0, products, plans);
    Status status = calls.prepare(forward);
    EXPECT_TRUE(status) << status.error().message;
    for (const program::Region &region : example.block().regions) {
      if (calls.isLeftOut(forward, region.first))
        continue;
      const cuda::LibraryCalls::Call *call = calls.find(forward, region.first);
      if (!call) {
        ADD_FAILURE() << "no library does it: " << testing::PrintToString(calls.sentences());
        return made;
      }
      status = (*call)(streams->of(program::Stream::Compute), addressOf);
      EXPECT_TRUE(status) << status.error().message;
    }
    for (const program::BlockResult &result : example.block().results) {
      const TensorType &type = example.stage().values[size_t(result.value)];
      std::vector<unsigned char> bytes(size_t(program::sizeBytes(type)));
      status = streams->download(bytes.data(), addressOf(result.value), int64_t(bytes.size()));
      EXPECT_TRUE(status) << status.error().message;
      made[result.value] = Tensor::fromBytes(type, Arith::Native, bytes.data());
    }
    return made;
  }
  /// Expects the largest difference to be at most `tolerance` times the largest number.
  static void expectNear(const Tensor &found, const Tensor &expected, double tolerance) {
    std::vector<double> a = found.toDoubles(), b = expected.toDoubles();
    double difference = 0, largest = 0;
    for (size_t i = 0; i < b.size(); ++i) {
      // NaN and infinity count as infinitely wrong.
      difference = std::isfinite(a[i]) ? std::max(difference, std::abs(a[i] - b[i])) : INFINITY;
      largest = std::max(largest, std::abs(b[i]));
      if (!std::isfinite(difference))
        break;
    }
    EXPECT_LE(difference, tolerance * largest);
  }
  /// Runs an instruction, or a matmul with its epilogue, by libraries and by the reference.
  void check(Example &example, double tolerance) {
    std::map<ValueId, Tensor> arguments = argumentsOf(example);
    std::map<ValueId, Tensor> expected = reference(example, arguments);
    for (const auto &[value, tensor] : run(example, arguments)) {
      SCOPED_TRACE("value " + std::to_string(value));
      expectNear(tensor, expected.at(value), tolerance);
    }
  }

  bool isReal = false;
  std::optional<test::FakeDriver> fakeDriver;
  std::optional<test::FakeCublasLt> fakeCublas;
  std::optional<test::FakeCudnn> fakeCudnn;
  cuda::DevicePtr device;
  std::shared_ptr<cuda::Streams> streams;
  std::shared_ptr<cuda::Matmuls> products;
  std::shared_ptr<cuda::CudnnPlans> plans;
};

double toleranceOf(DType dtype) { return dtype == DType::F32 ? 2e-5 : 2e-2; }

TEST_F(LibraryDeviceTest, MatmulsWithWhatFollows) {
  constexpr int64_t m = 96, n = 64, k = 48;
  const Attrs labels = {
      {"lhs_labels", Ints{0, 1}}, {"rhs_labels", Ints{1, 2}}, {"out_labels", Ints{0, 2}}};
  const Attrs tanh = {{"approximate", std::string("tanh")}};
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const char *kind : {"bias", "sum", "gelu", "gelu_grad", "cast"}) {
      if (std::string(kind) == "cast" && dtype == DType::F32)
        continue;
      SCOPED_TRACE(std::string(name(dtype)) + " " + kind);
      Example e;
      TensorType type{dtype, {m, n}};
      ValueId a = e.value({dtype, {m, k}}), b = e.value({dtype, {k, n}});
      ValueId bias = e.value({dtype, {n}}), other = e.value(type);
      ValueId product = e.add("einsum", labels, {a, b}, {type})[0];
      std::vector<ValueId> results;
      if (std::string(kind) == "cast") {
        results = e.add("cast", {}, {product}, {{DType::F32, {m, n}}});
      } else if (std::string(kind) == "gelu_grad") {
        results = e.add("gelu_grad", tanh, {other, product}, {type});
      } else {
        ValueId repeated = e.add("broadcast", {{"dims", Ints{1}}}, {bias}, {type})[0];
        results = e.add("add", {}, {product, repeated}, {type});
        if (std::string(kind) == "sum")
          results = e.add("add", {}, {results[0], other}, {type});
        if (std::string(kind) == "gelu")
          results.push_back(e.add("gelu", tanh, {results[0]}, {type})[0]);
      }
      e.finish(results);
      check(e, toleranceOf(dtype));
    }
}

TEST_F(LibraryDeviceTest, Convolution) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (int64_t groups : {1, 4}) {
      SCOPED_TRACE(std::string(name(dtype)) + ", groups " + std::to_string(groups));
      const Attrs attrs = {{"strides", Ints{2, 1}},
                           {"pads", Ints{1, 0, 1, 2}},
                           {"dilations", Ints{1, 2}},
                           {"groups", groups}};
      TensorType x{dtype, {2, 16, 12, 11}}, w{dtype, {32, 16 / groups, 3, 3}},
          y{dtype, {2, 32, 6, 9}};
      for (auto [op, first, second, result] :
           {std::tuple("conv", x, w, y), std::tuple("conv_grad_input", y, w, x),
            std::tuple("conv_grad_weight", x, y, w)}) {
        SCOPED_TRACE(op);
        Example e;
        ValueId a = e.value(first), b = e.value(second);
        e.finish(e.add(op, attrs, {a, b}, {result}));
        check(e, toleranceOf(dtype));
      }
    }
}

TEST_F(LibraryDeviceTest, Attention) {
  for (DType dtype : {DType::BF16, DType::F16})
    for (bool isCausal : {true, false})
      for (int64_t keyHeads : {4, 2}) {
        SCOPED_TRACE(std::string(name(dtype)) + (isCausal ? ", causal" : "") + ", " +
                     std::to_string(keyHeads) + " key heads");
        const Attrs attrs = {{"scale", 0.125}, {"causal", isCausal}};
        const int64_t length = isReal ? 128 : 16;
        TensorType q{dtype, {2, 4, length, 64}}, k{dtype, {2, keyHeads, length, 64}},
            m{DType::F32, {2, 4, length}};
        Example e;
        std::vector<ValueId> operands = {e.value(q), e.value(k), e.value(k)};
        std::vector<ValueId> made = e.add("attention", attrs, operands, {q, m, m});
        e.finish(made);
        std::map<ValueId, Tensor> arguments = argumentsOf(e), found = run(e, arguments);
        ASSERT_EQ(found.size(), 3U);
        std::map<ValueId, Tensor> expected = reference(e, arguments);
        expectNear(found[made[0]], expected[made[0]], 2e-2);
        auto logSums = [&](std::map<ValueId, Tensor> &values) {
          std::vector<double> sums = values[made[1]].toDoubles();
          std::vector<double> parts = values[made[2]].toDoubles();
          for (size_t i = 0; i < sums.size(); ++i)
            sums[i] += std::log(parts[i]);
          return Tensor::fromDoubles(m, Arith::Native, sums);
        };
        expectNear(logSums(found), logSums(expected), 1e-3);

        // Its gradient, from the library's statistics and from the reference's.
        for (std::map<ValueId, Tensor> *saved : {&found, &expected})
          for (int64_t tp : {1, 2}) {
            Example gradient;
            gradient.program.mesh.axes = {{"tp", tp}}; // tp = 2: deterministic bits
            std::vector<ValueId> values;
            for (const TensorType &type : {q, q, k, k, q, m, m})
              values.push_back(gradient.value(type));
            gradient.finish(gradient.add("attention_grad", attrs, values, {q, k, k}));
            std::map<ValueId, Tensor> all = argumentsOf(gradient);
            for (size_t i = 0; i < 3; ++i) {
              all[values[1 + i]] = arguments[operands[i]];
              all[values[4 + i]] = (*saved)[made[i]];
            }
            std::map<ValueId, Tensor> right = reference(gradient, all);
            for (const auto &[value, tensor] : run(gradient, all))
              expectNear(tensor, right.at(value), 3e-2);
          }
      }
}

} // namespace
