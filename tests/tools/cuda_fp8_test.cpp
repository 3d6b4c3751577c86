//===- cuda_fp8_test.cpp - fp8 matmuls on fake GPUs -----------------------===//
//
// The quantising kernels are those of GPUs, in their form for hosts. A fake cuBLASLt multiplies
// their results. Reference kernels run the rest of a program.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/EmitFp8Kernels.h"
#include "planner/memory/Memory.h"
#include "planner/reshard/Fp8.h"
#include "runtime/comm/SimulatedWorld.h"
#include "runtime/cuda/CudaMachine.h"
#include "runtime/cuda/LibraryCalls.h"
#include "runtime/exec/Executor.h"
#include "tests/codegen/cpu/KernelLibrary.h"
#include "tests/runtime/cuda/FakeCublasLt.h"
#include "tests/runtime/cuda/OptionKernels.h"
#include "tests/runtime/cuda/ProgramKernels.h"
#include "tests/tools/PlanSupport.h"

#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

using namespace tbc;
using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Doubles = std::vector<double>;
namespace fp8 = program::fp8;

namespace {

constexpr const char *programHash = "of the program";
constexpr int64_t tokens = 16; // of a sample: a multiple of 16

class Fp8OnDevices : public testing::Test {
protected:
  Fp8OnDevices() {
    folder = (std::filesystem::temp_directory_path() / "tbc-cuda-fp8-XXXXXX").string();
    EXPECT_TRUE(mkdtemp(folder.data()));
  }
  ~Fp8OnDevices() override { std::filesystem::remove_all(folder); }

  /// Opens a device with the kernels of `list` and those of fp8.
  void open(program::CudaKernels list, mlir::MLIRContext &context) {
    cuda::prepareContext(context);
    std::vector<region::KernelSource> sources;
    for (auto &[symbol, kernel] :
         cuda::emitFp8Kernels(context, {DType::F32, DType::BF16}, cuda::Form::Host)) {
      std::string text;
      llvm::raw_string_ostream stream(text);
      kernel.module->print(stream);
      sources.push_back({symbol, text});
      list.kernels.push_back({symbol, kernel.extent, 256, 0});
    }
    auto target = cpu::findCpuTarget("native");
    ASSERT_TRUE(target);
    library.emplace(sources, *target);
    ASSERT_TRUE(library->isOpen());
    test::addFp8Kernels(
        *driver, [&](const std::string &symbol) { return library->find(symbol); },
        cuda::fp8ThreadsOnHost);
    load(list);
  }
  void load(const program::CudaKernels &list) {
    test::writeKernels(list, folder, programHash);
    device = *cuda::Device::open(test::FakeDriver::table(), 0);
    auto loaded = cuda::KernelModule::load(device, test::filesIn(folder), programHash);
    ASSERT_TRUE(loaded) << loaded.error().message;
    kernels = *loaded;
  }
  void makeDriver(int capability = 90) {
    test::FakeOptions options;
    options.capability = capability;
    driver.emplace(options);
    cublas.emplace(*driver);
  }

  /// Makes a plan of one device for a small model and compiles it.
  void compile(const std::string &name, const std::string &precision, int numSteps) {
    model.step.reset(); // before its context
    model = test::loadModel(name, "sgd", {}, "", precision, tokens);
    test::PlanRequest request;
    request.mesh = "dp=1";
    request.globalBatch = 2;
    auto planned = test::makePlan(model, request);
    ASSERT_TRUE(planned) << planned.error().message;
    plan = std::move(*planned);
    auto compiled = driver::compilePlan(*model.step, plan);
    ASSERT_TRUE(compiled) << compiled.error().message;
    program = std::move(compiled->program);
    auto made = driver::makeRunData(*model.step, plan, numSteps, Arith::Native, 1);
    ASSERT_TRUE(made) << made.error().message;
    data = std::move(*made);
  }

  /// The losses of the steps on the device, and the gradients of the first.
  struct Trained {
    Doubles losses, gradients;
  };
  Trained train(bool isInFp8) {
    Trained trained;
    makeDriver();
    program::Program onDevice = program;
    open(test::addProgramKernels(*driver, onDevice, 1), *model.context);
    cuda::CudaOptions options;
    options.device = device;
    options.kernels = kernels;
    options.cublas = test::FakeCublasLt::table();
    options.multipliesInFp8 = isInFp8;
    options.graphs = cuda::GraphUse::Auto;
    options.say = [this](const std::string &sentence) { said.push_back(sentence); };
    {
      comm::SimulatedWorld world(1, std::chrono::minutes(5));
      auto executor =
          runtime::Executor::create(onDevice, 0, {Arith::Native}, cuda::cudaMachine(options));
      EXPECT_TRUE(executor) << executor.error().message;
      EXPECT_TRUE(executor->load([&](const std::string &name) { return data.initial.at(name); }));
      for (const auto &microBatches : data.steps) {
        runtime::StepInputs inputs;
        inputs.microBatches = microBatches;
        inputs.learningRate = data.learningRate;
        Status status = executor->runStep(world.communicator(0), inputs);
        EXPECT_TRUE(status) << status.error().message;
        trained.losses.push_back(executor->loss().toDoubles()[0]);
        for (size_t t = 0; t < onDevice.tensors.size() && trained.losses.size() == 1; ++t)
          if (onDevice.tensors[t].role == program::Role::Gradient)
            for (double element : executor->held(int(t)).toDoubles())
              trained.gradients.push_back(element);
      }
      world.finish(0);
    }
    EXPECT_EQ(cublas->numMatmulsInFp8() > 0, isInFp8);
    EXPECT_EQ(cublas->numGradientsInFp8() > 0, isInFp8);
    options = {}, kernels = nullptr, device = nullptr;
    EXPECT_THAT(driver->complaints(), IsEmpty());
    EXPECT_THAT(driver->leaks(), IsEmpty());
    cublas.reset();
    driver.reset();
    return trained;
  }

  /// Expects that as many matmuls were in fp8 as plans predict, by way of as many bytes. Sizes of
  /// matrices, 64 bytes each, lie beside them.
  void expectAsPlanned() {
    planner::Plan inFp8 = plan;
    inFp8.job.matmulPrecision = planner::MatmulPrecision::Fp8;
    inFp8.cluster = *planner::loadCluster("h100-sxm");
    auto planned = planner::applyPlan(model.step->step.graph, inFp8);
    ASSERT_TRUE(planned) << planned.error().message;
    int64_t count = 0, bytes = 0;
    for (size_t op = 0; op < planned->graph.ops.size(); ++op) {
      const auto &strategy = planned->assignment.strategies[op];
      count += reshard::isInFp8(planned->graph, int(op), strategy);
      bytes = std::max(bytes, planner::fp8Bytes(planned->graph, int(op), strategy, inFp8.cluster));
    }
    int64_t countRun = 0, bytesRun = 0;
    for (const std::string &sentence : said)
      std::sscanf(sentence.c_str(), "in fp8: %ld of the matmuls, by way of %ld", &countRun,
                  &bytesRun);
    EXPECT_EQ(count, countRun);
    EXPECT_GE(bytesRun, bytes);
    EXPECT_LE(bytesRun, bytes + 2 * countRun * fp8::numSizes * 8);
  }

  std::string folder;
  test::Model model;
  planner::Plan plan;
  program::Program program;
  driver::RunData data;
  std::optional<test::FakeDriver> driver;
  std::optional<test::FakeCublasLt> cublas;
  std::optional<KernelLibrary> library;
  cuda::DevicePtr device;
  std::shared_ptr<const cuda::KernelModule> kernels;
  std::vector<std::string> said;
};

//===----------------------------------------------------------------------===//
// Matmuls
//===----------------------------------------------------------------------===//

/// Returns the largest quantisation error of `x` in a tensor with largest magnitude `amax`: half
/// the distance to the next number, for normal and subnormal numbers. Example: 0x1p-4 of |x| for a
/// normal number in e4m3.
double errorOf(double x, double amax, fp8::Format format) {
  bool isE4M3 = format == fp8::Format::E4M3;
  double most = isE4M3 ? 448 : 57344, half = isE4M3 ? 0x1p-4 : 0x1p-3;
  double smallestHalf = isE4M3 ? 0x1p-10 : 0x1p-17;
  double scale = std::exp2(std::floor(std::log2(most / amax)));
  return std::max(std::fabs(x) * half, smallestHalf / scale);
}

struct Matrices {
  int64_t batch = 1, m = 32, n = 16, k = 48;
  bool transposedA = false, transposedB = false, isGradientA = false, isGradientB = false;
};

TEST_F(Fp8OnDevices, MatmulsAreAsFarOffAsTheirFormatsAllow) {
  model = test::loadModel("tiny-mlp", "sgd"); // for its context
  makeDriver();
  open(test::withFakeImage({}), *model.context);
  {
    auto streams = *cuda::Streams::create(device, std::chrono::milliseconds(0));
    auto matmuls = *cuda::Matmuls::create(device, test::FakeCublasLt::table());
    auto inFp8 = *cuda::Fp8Matmuls::create(device, kernels, matmuls, streams);
    auto allocated = cuda::DeviceMemory::allocate(device, 1 << 16, "matrices");
    ASSERT_TRUE(allocated);
    const cuda::DeviceMemory &memory = *allocated;
    std::mt19937 random(5);
    std::normal_distribution<double> normal;
    for (Matrices x : {Matrices{}, Matrices{1, 16, 16, 16, true, false, false, true},
                       Matrices{1, 32, 16, 48, false, true, true, false},
                       Matrices{3, 16, 32, 16, true, true, false, false}}) {
      cuda::MatmulShape shape;
      shape.m = x.m, shape.n = x.n, shape.k = x.k, shape.batch = x.batch;
      shape.transposedA = x.transposedA, shape.transposedB = x.transposedB;
      shape.strideA = x.transposedA ? x.m : x.k, shape.strideB = x.transposedB ? x.k : x.n;
      shape.strideC = x.n;
      if (x.batch > 1)
        shape.batchA = x.m * x.k, shape.batchB = x.k * x.n, shape.batchC = x.m * x.n;
      int64_t countA = x.batch * x.m * x.k, countB = x.batch * x.k * x.n,
              countC = x.batch * x.m * x.n;
      Doubles a, b;
      for (auto [list, count] : {std::pair(&a, countA), std::pair(&b, countB)})
        while (int64_t(list->size()) < count) // of all sizes
          list->push_back(double(float(std::ldexp(normal(random), -int(random() % 24)))));
      cuda::DeviceAddress addresses[] = {memory.address(), memory.address() + (1 << 14),
                                         memory.address() + (1 << 15)};
      for (auto [list, address] : {std::pair(&a, addresses[0]), std::pair(&b, addresses[1])}) {
        auto bytes =
            Tensor::fromDoubles({DType::F32, {int64_t(list->size())}}, Arith::Native, *list)
                .toBytes();
        ASSERT_TRUE(streams->upload(address, bytes.data(), int64_t(bytes.size())));
      }
      auto enqueue = inFp8->find({shape, countA, countB, x.isGradientA, x.isGradientB});
      ASSERT_TRUE(enqueue) << enqueue.error().message;
      ASSERT_TRUE((*enqueue)(streams->of(program::Stream::Compute),
                             {addresses[0], addresses[1], addresses[2]}));
      std::vector<unsigned char> bytes(size_t(countC) * 4);
      ASSERT_TRUE(streams->download(bytes.data(), addresses[2], countC * 4));
      Doubles found =
          Tensor::fromBytes({DType::F32, {countC}}, Arith::Native, bytes.data()).toDoubles();
      auto most = [](const Doubles &list) {
        double amax = 0;
        for (double element : list)
          amax = std::max(amax, std::fabs(element));
        return amax;
      };
      auto formatOf = [](bool isGradient) {
        return isGradient ? fp8::Format::E5M2 : fp8::Format::E4M3;
      };
      double amaxA = most(a), amaxB = most(b), largest = 0;
      for (int64_t i = 0; i < countC; ++i) {
        int64_t index = i / (x.m * x.n), row = i / x.n % x.m, column = i % x.n;
        double exact = 0, bound = 0;
        for (int64_t d = 0; d < x.k; ++d) {
          double p = a[size_t(index * x.m * x.k + (x.transposedA ? d * x.m + row : row * x.k + d))];
          double q =
              b[size_t(index * x.k * x.n + (x.transposedB ? column * x.k + d : d * x.n + column))];
          double ofP = errorOf(p, amaxA, formatOf(x.isGradientA));
          double ofQ = errorOf(q, amaxB, formatOf(x.isGradientB));
          exact += p * q;
          bound += std::fabs(p) * ofQ + std::fabs(q) * ofP + ofP * ofQ;
        }
        bound += 0x1p-22 * (std::fabs(exact) + bound); // the result is an f32
        EXPECT_LE(std::fabs(found[size_t(i)] - exact), bound) << i;
        largest = std::max(largest, std::fabs(found[size_t(i)] - exact));
      }
      EXPECT_GT(largest, 0); // it is no f32 matmul
    }
    // The error of an unsupported shape names the reason.
    cuda::MatmulShape odd;
    odd.m = 24, odd.n = odd.k = 16;
    auto refused = inFp8->find({odd, 24 * 16, 16 * 16, false, false});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, "sizes that are no multiples of 16");
    EXPECT_TRUE(streams->wait());
  }
  EXPECT_THAT(driver->complaints(), IsEmpty());
  kernels = nullptr, device = nullptr;
}

/// Returns a block with the matmul of bf16 matrices [16, depth] and [depth, 16], and gelu after it.
program::Program matmulWithGelu(int64_t depth) {
  using Ints = std::vector<int64_t>;
  program::Program program;
  program.stages.emplace_back();
  program::Stage &stage = program.stages[0];
  program::Block &block = stage.chunks[0].forward;
  for (const kernels::Shape &shape :
       {kernels::Shape{16, depth}, {depth, 16}, kernels::Shape{16, 16}, {16, 16}})
    stage.values.push_back({DType::BF16, shape});
  program::Instruction einsum, gelu;
  einsum.id = einsum.op = "einsum", einsum.operands = {0, 1}, einsum.results = {2};
  einsum.attrs = {
      {"lhs_labels", Ints{0, 1}}, {"rhs_labels", Ints{1, 2}}, {"out_labels", Ints{0, 2}}};
  gelu.id = gelu.op = "gelu", gelu.operands = {2}, gelu.results = {3};
  gelu.attrs = {{"approximate", std::string("tanh")}};
  block.instructions = {einsum, gelu};
  block.regions = {{0, 1, "einsum", 1}, {1, 1, "gelu", 1}};
  block.results = {{3, 0}};
  stage.slots.push_back({"y", program::Role::Residual, -1, stage.values[3]});
  int64_t end = 0;
  for (const kernels::TensorType &type : stage.values) {
    stage.memory.values.push_back({-1, end});
    end += kernels::numElements(type.shape) * 2;
  }
  stage.memory.slots.push_back({-1, end});
  stage.memory.arenaBytes = end + 512;
  return program;
}

/// The objects for fp8 matmuls on the fake driver's GPU of 64 MiB.
struct Opened {
  Opened(const cuda::DevicePtr &device, const std::shared_ptr<const cuda::KernelModule> &kernels)
      : streams(*cuda::Streams::create(device, std::chrono::milliseconds(0))),
        matmuls(*cuda::Matmuls::create(device, test::FakeCublasLt::table())),
        inFp8(*cuda::Fp8Matmuls::create(device, kernels, matmuls, streams)) {}
  Result<cuda::Fp8Matmuls::Enqueue> find(int64_t depth) const {
    cuda::MatmulShape shape;
    shape.m = shape.n = shape.strideB = shape.strideC = 16;
    shape.k = shape.strideA = depth;
    return inFp8->find({shape, 16 * depth, depth * 16, false, false});
  }
  std::shared_ptr<cuda::Streams> streams;
  std::shared_ptr<cuda::Matmuls> matmuls;
  std::shared_ptr<cuda::Fp8Matmuls> inFp8;
};
constexpr int64_t tooDeep = int64_t(1) << 21; // 32 MiB an operand

TEST_F(Fp8OnDevices, AnEpilogueThatFp8HasNotIsDoneApart) {
  model = test::loadModel("tiny-mlp", "sgd"); // for its context
  makeDriver();
  open(test::withFakeImage({}), *model.context);
  program::Program given = matmulWithGelu(16);
  for (auto code : {cuda::CublasCode::InvalidValue, cuda::CublasCode::NotSupported}) {
    cublas->refusesFp8WithGelu(code);
    Opened opened(device, kernels);
    cuda::LibraryCalls calls(given, 0, opened.matmuls, nullptr, opened.inFp8);
    Status status = calls.prepare(schedule::Action::Kind::Forward);
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_THAT(calls.sentences(),
                AllOf(Contains(HasSubstr("in fp8: 1 of the matmuls")),
                      Contains("apart from their matmul: 1 shapes for which the library has no "
                               "way, in fp8")));
    EXPECT_TRUE(opened.streams->wait());
  }
  EXPECT_THAT(driver->complaints(), IsEmpty());
  kernels = nullptr, device = nullptr;
}

TEST_F(Fp8OnDevices, WhatFindsNoMemoryStaysInItsOwnTypes) {
  model = test::loadModel("tiny-mlp", "sgd"); // for its context
  makeDriver();
  open(test::withFakeImage({}), *model.context);
  {
    Opened opened(device, kernels);
    program::Program given = matmulWithGelu(tooDeep);
    cuda::LibraryCalls calls(given, 0, opened.matmuls, nullptr, opened.inFp8);
    Status status = calls.prepare(schedule::Action::Kind::Forward);
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_THAT(calls.sentences(), AllOf(Contains(AllOf(HasSubstr("in fp8: 0 of the matmuls"),
                                                        HasSubstr("not 1 no memory to work in"))),
                                         Contains("with their matmul, by cuBLASLt: 1 gelu")));
    // Matmuls found before still work.
    auto small = opened.find(16);
    ASSERT_TRUE(small) << small.error().message;
    int64_t bytes = opened.inFp8->bytes();
    auto large = opened.find(tooDeep);
    ASSERT_FALSE(large);
    EXPECT_EQ(large.error().code, ErrorCode::Usage);
    EXPECT_EQ(opened.inFp8->bytes(), bytes);
    auto allocated = cuda::DeviceMemory::allocate(device, 4096, "matrices");
    ASSERT_TRUE(allocated);
    const cuda::DeviceMemory &memory = *allocated;
    std::vector<float> ones(16 * 16, 1), result(16 * 16);
    auto *from = reinterpret_cast<const unsigned char *>(ones.data());
    auto *to = reinterpret_cast<unsigned char *>(result.data());
    ASSERT_TRUE(opened.streams->upload(memory.address(), from, 1024));
    ASSERT_TRUE(opened.streams->upload(memory.address() + 1024, from, 1024));
    ASSERT_TRUE((*small)(opened.streams->of(program::Stream::Compute),
                         {memory.address(), memory.address() + 1024, memory.address() + 2048}));
    ASSERT_TRUE(opened.streams->download(to, memory.address() + 2048, 1024));
    EXPECT_THAT(result, testing::Each(16.0f));
    auto huge = opened.find(int64_t(1) << 27);
    ASSERT_FALSE(huge);
    EXPECT_EQ(huge.error().message, "matrices that take more than 2 GiB");
    EXPECT_TRUE(opened.streams->wait());
  }
  EXPECT_THAT(driver->complaints(), IsEmpty());
  kernels = nullptr, device = nullptr;
}

TEST_F(Fp8OnDevices, MemoryThatIsLostIsAnError) {
  model = test::loadModel("tiny-mlp", "sgd"); // for its context
  makeDriver();
  open(test::withFakeImage({}), *model.context);
  {
    Opened opened(device, kernels);
    ASSERT_TRUE(opened.find(16));
    // fp8 with gelu is unsupported. Without gelu there is no memory for it, nor for restoring the
    // earlier buffers.
    cublas->refusesFp8WithGelu(cuda::CublasCode::InvalidValue);
    program::Program given = matmulWithGelu(32);
    cuda::LibraryCalls calls(given, 0, opened.matmuls, nullptr, opened.inFp8);
    constexpr int ofSizes = 2; // the sizes of both operands, allocated before
    driver->failCall("cuMemAlloc_v2", cuda::DriverCode::OutOfMemory, ofSizes);
    driver->failCall("cuMemAlloc_v2", cuda::DriverCode::OutOfMemory);
    Status status = calls.prepare(schedule::Action::Kind::Forward);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::RankFailed);
    EXPECT_THAT(status.error().message, HasSubstr("matrices in fp8"));
    // With memory available again, `find` allocates anew.
    auto small = opened.find(16);
    ASSERT_TRUE(small) << small.error().message;
    EXPECT_GT(opened.inFp8->bytes(), fp8::numWarps * 4);
    EXPECT_TRUE(opened.streams->wait());
  }
  EXPECT_THAT(driver->complaints(), IsEmpty());
  kernels = nullptr, device = nullptr;
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

// Rounding to e4m3 is off by at most 2^-4 of a number, to e5m2 by 2^-3, evenly spread: root mean
// square = these / sqrt(3). So the length of a matmul's result is off by at most sqrt(2^-8 + 2^-6)
// / sqrt(3) = 0.08. A gradient comes out of some 14 matmuls in a row with random errors: sqrt(14) *
// 0.08. A loss near that of a guess changes by some thousandths.
constexpr double lossTolerance = 0.01, gradientTolerance = 0.3;

double lengthOf(const Doubles &list) {
  double sum = 0;
  for (double element : list)
    sum += element * element;
  return std::sqrt(sum);
}

TEST_F(Fp8OnDevices, SmallModelsLearnTheSame) {
  using Case = std::tuple<const char *, const char *, int>;
  for (auto [name, precision, numSteps] :
       {Case("tiny-gpt2", "bf16", 3), {"tiny-llama", "f32", 1}}) {
    SCOPED_TRACE(name);
    compile(name, precision, numSteps);
    said.clear();
    Trained own = train(false);
    EXPECT_THAT(said, testing::Not(Contains(HasSubstr("in fp8"))));
    Trained inFp8 = train(true);
    EXPECT_THAT(said, Contains(AllOf(HasSubstr("in fp8: "), HasSubstr("beside the memory plan"))));
    expectAsPlanned();
    for (size_t step = 0; step < own.losses.size(); ++step)
      EXPECT_NEAR(inFp8.losses[step], own.losses[step], lossTolerance * own.losses[step])
          << "step " << step;
    ASSERT_EQ(own.gradients.size(), inFp8.gradients.size());
    Doubles difference = own.gradients;
    for (size_t i = 0; i < difference.size(); ++i)
      difference[i] -= inFp8.gradients[i];
    double part = lengthOf(difference) / lengthOf(own.gradients);
    RecordProperty("gradient_difference", std::to_string(part));
    EXPECT_LT(part, gradientTolerance);
    EXPECT_GT(part, 1e-3); // they are those of rounded numbers
  }
}

TEST_F(Fp8OnDevices, WhatIsNotFiniteShows) {
  compile("tiny-gpt2", "bf16", 1);
  std::string weight;
  for (const auto &[name, tensor] : data.initial)
    if (tensor.type().shape.size() == 2 && name.find("mlp") != std::string::npos)
      weight = name;
  ASSERT_FALSE(weight.empty());
  Doubles elements = data.initial.at(weight).toDoubles();
  elements[elements.size() / 2] = std::numeric_limits<double>::infinity();
  data.initial[weight] =
      Tensor::fromDoubles(data.initial.at(weight).type(), Arith::Native, elements);
  for (double loss : train(true).losses)
    EXPECT_FALSE(std::isfinite(loss));
}

TEST_F(Fp8OnDevices, ADeviceWithoutFp8AndAnOldProgramAreRefused) {
  compile("tiny-mlp", "f32", 1);
  for (auto [capability, sentence] :
       {std::pair(80, "begins with compute capability 8.9"), {90, "compile it again"}}) {
    makeDriver(capability);
    program::Program onDevice = program;
    load(test::addProgramKernels(*driver, onDevice, 1));
    cuda::CudaOptions options;
    options.device = device;
    options.kernels = kernels;
    options.cublas = test::FakeCublasLt::table();
    options.multipliesInFp8 = true;
    auto executor =
        runtime::Executor::create(onDevice, 0, {Arith::Native}, cuda::cudaMachine(options));
    ASSERT_FALSE(executor);
    EXPECT_EQ(executor.error().code, ErrorCode::Usage);
    EXPECT_THAT(executor.error().message, HasSubstr(sentence));
    options = {}, kernels = nullptr, device = nullptr;
    cublas.reset();
    driver.reset();
  }
}

} // namespace
