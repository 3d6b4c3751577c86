//===- cudnn_library_test.cpp - The real cuDNN accepts our graphs ----------===//
//
// Runs if cuDNN is installed, without a GPU. The heuristics and engines take a description of a
// device and prepare plans for it (ahead-of-time compilation, cuDNN 9.11). A stub replaces the
// driver. Plans are not executed, so the test shows that the library recognizes our graphs and
// compiles kernels for them. Only a GPU shows whether those kernels compute the right values.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/CudnnOps.h"
#include "tests/runtime/cuda/FakeDriver.h"

#include <gtest/gtest.h>

#include <dlfcn.h>

// Suppresses leaks of objects that the libraries keep until exit. The name is the sanitizer's.
// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
extern "C" const char *__lsan_default_suppressions();
extern "C" const char *__lsan_default_suppressions() { return "leak:libcublasLt\nleak:libcudnn\n"; }
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)

namespace tbc::test {
namespace {

using cuda::Cudnn;
using cuda::CudnnAttribute;
using cuda::CudnnAttributeType;
using cuda::CudnnCode;
using cuda::CudnnDescriptor;
using cuda::CudnnKind;
using cuda::CudnnRequest;
using kernels::Attrs;
using kernels::DType;
using kernels::TensorType;
using Ints = std::vector<int64_t>;

// Enumerators of cudnn_graph.h used by this test only.
constexpr auto heuristicDevice = CudnnAttribute(204), planDevice = CudnnAttribute(407);
constexpr auto deviceKind = CudnnKind(38);
constexpr auto deviceText = CudnnAttribute(2702);
constexpr auto charType = CudnnAttributeType(24);

/// Returns the device properties that cuDNN reads, for an H100 or A100 SXM board.
std::string describe(int capability) {
  bool isHopper = capability == 90;
  auto number = [](int value) { return std::to_string(value); };
  return std::string("{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],") +
         "\"regsPerBlock\":65536,\"multiProcessorCount\":" + number(isHopper ? 132 : 108) +
         ",\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":" +
         number(isHopper ? 232448 : 166912) +
         ",\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32," +
         "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":"
         "0," +
         "\"supportCoopLaunch\":1,\"smClockRateKHz\":" + number(isHopper ? 1980000 : 1410000) +
         ",\"memClockRateKHz\":" + number(isHopper ? 2619000 : 1593000) +
         ",\"l2CacheSize\":" + number(isHopper ? 52428800 : 41943040) + ",\"deviceName\":\"" +
         (isHopper ? "NVIDIA H100 80GB HBM3" : "NVIDIA A100-SXM4-80GB") +
         "\",\"deviceVer\":" + number(capability * 10) +
         ",\"driverVer\":13000,\"cudaDeviceId\":0,\"totalGlobalMem\":85899345920,"
         "\"schemaVersion\":1}";
}

Cudnn real;
CudnnDescriptor theDevice = nullptr;

/// Returns the library with a device description in place of a device handle.
Cudnn withoutDevice() {
  Cudnn table = real;
  table.create = [](cuda::CudnnHandle *handle) {
    *handle = reinterpret_cast<cuda::CudnnHandle>(1);
    return CudnnCode::Success;
  };
  table.destroy = [](cuda::CudnnHandle) { return CudnnCode::Success; };
  table.setAttribute = [](CudnnDescriptor descriptor, CudnnAttribute attribute,
                          CudnnAttributeType type, int64_t count, const void *elements) {
    if (attribute == CudnnAttribute::GraphHandle)
      return CudnnCode::Success;
    CudnnCode code = real.setAttribute(descriptor, attribute, type, count, elements);
    // The mode and the config are the last attributes set on these descriptors, so the device is
    // added here.
    if (code == CudnnCode::Success && attribute == CudnnAttribute::HeuristicMode)
      code = real.setAttribute(descriptor, heuristicDevice, CudnnAttributeType::Descriptor, 1,
                               static_cast<const void *>(&theDevice));
    if (code == CudnnCode::Success && attribute == CudnnAttribute::PlanConfig)
      code = real.setAttribute(descriptor, planDevice, CudnnAttributeType::Descriptor, 1,
                               static_cast<const void *>(&theDevice));
    return code;
  };
  return table;
}

class CudnnLibraryTest : public testing::TestWithParam<int> {
protected:
  void SetUp() override {
    // cuDNN finds the stub by its soname when it looks for the driver.
    ASSERT_NE(dlopen(TBC_DRIVER_STUB, RTLD_NOW), nullptr) << dlerror();
    auto found = cuda::loadCudnn();
    if (!found)
      GTEST_SKIP() << found.error().message;
    real = *found;
    constexpr size_t preparesWithoutDevice = 91100;
    if (real.getVersion() < preparesWithoutDevice)
      GTEST_SKIP() << "cuDNN " << versionOf(real) << " prepares nothing without a device";
    if (!dlopen("libnvrtc.so.13", RTLD_NOW) && !dlopen("libnvrtc.so.12", RTLD_NOW))
      GTEST_SKIP() << "cuDNN finds no NVRTC to compile its kernels with";
    std::string text = describe(GetParam());
    ASSERT_EQ(real.createDescriptor(deviceKind, &theDevice), CudnnCode::Success);
    ASSERT_EQ(real.setAttribute(theDevice, deviceText, charType, int64_t(text.size()), text.data()),
              CudnnCode::Success);
    ASSERT_EQ(real.finalize(theDevice), CudnnCode::Success);
    device = *cuda::Device::open(FakeDriver::table(), 0);
    plans = *cuda::CudnnPlans::create(device, withoutDevice());
  }
  void TearDown() override {
    plans = nullptr;
    if (theDevice)
      real.destroyDescriptor(theDevice);
    theDevice = nullptr;
  }

  /// Requests every graph of a request. Returns the refusals, joined.
  std::string refusal(CudnnRequest request) {
    request.version = real.getVersion();
    request.capability = GetParam();
    request.isRead.assign(request.results.size(), true);
    auto work = cuda::cudnnWorkOf(request);
    if (!work)
      return work.error().message;
    std::string why;
    for (size_t i = 0; i < work->steps.size(); ++i) {
      auto plan = plans->find(work->steps[i].graph);
      if (!plan)
        why += "graph " + std::to_string(i) + ": " + plan.error().message + "; ";
      else
        EXPECT_LT((*plan)->workspaceBytes(), int64_t(2) << 30);
    }
    return why;
  }

  FakeDriver driver;
  cuda::DevicePtr device;
  std::shared_ptr<cuda::CudnnPlans> plans;
};

CudnnRequest attention(const std::string &op, DType dtype, const Ints &sizes, bool isCausal,
                       bool mayVary = true, bool isTokenMajor = false) {
  int64_t b = sizes[0], h = sizes[1], hk = sizes[2], s = sizes[3], t = sizes[4], d = sizes[5];
  TensorType q{dtype, {b, h, s, d}}, k{dtype, {b, hk, t, d}}, m{DType::F32, {b, h, s}};
  CudnnRequest request;
  request.op = op;
  request.attrs = Attrs{{"scale", 0.125}, {"causal", isCausal}};
  if (isTokenMajor) {
    q.shape = {b, s, h * d}, k.shape = {b, t, hk, d};
    request.attrs.set("token_major", std::string("QkvO"));
    request.attrs.set("heads", h);
    request.attrs.set("key_heads", hk);
  }
  if (op == "attention")
    request.operands = {q, k, k}, request.results = {q, m, m};
  else
    request.operands = {q, q, k, k, q, m, m}, request.results = {q, k, k};
  request.mayVary = mayVary;
  return request;
}

TEST_P(CudnnLibraryTest, KnowsAttention) {
  struct Case {
    DType dtype;
    Ints sizes; // b, h, key heads, s, t, d
    bool isCausal;
  };
  const Case cases[] = {{DType::BF16, {16, 12, 12, 1024, 1024, 64}, true},
                        {DType::BF16, {4, 32, 8, 2048, 2048, 128}, true},
                        {DType::F16, {2, 16, 16, 200, 328, 80}, false},
                        {DType::BF16, {8, 4, 2, 64, 64, 16}, true}};
  for (const Case &c : cases) {
    SCOPED_TRACE(testing::PrintToString(c.sizes));
    for (bool isTokenMajor : {false, true})
      for (const char *op : {"attention", "attention_grad"})
        EXPECT_EQ(refusal(attention(op, c.dtype, c.sizes, c.isCausal, true, isTokenMajor)), "")
            << op << (isTokenMajor ? ", token-major" : "");
  }
}

TEST_P(CudnnLibraryTest, KnowsAttentionOfColumnsInPlace) {
  for (const Ints &sizes : {Ints{16, 12, 12, 1024, 64}, Ints{4, 32, 8, 2048, 128}})
    for (bool mayVary : {true, false}) {
      const int64_t b = sizes[0], h = sizes[1], hk = sizes[2], s = sizes[3], d = sizes[4];
      TensorType x{DType::BF16, {b, s, (h + 2 * hk) * d}}, o{DType::BF16, {b, s, h * d}},
          m{DType::F32, {b, h, s}};
      CudnnRequest request;
      request.attrs = Attrs{{"scale", 0.125}, {"causal", true},  {"token_major", std::string("O")},
                            {"heads", h},     {"key_heads", hk}, {"packed_width", d}};
      request.mayVary = mayVary;
      request.op = "packed_attention";
      request.operands = {x}, request.results = {o, m, m};
      EXPECT_EQ(refusal(request), "") << testing::PrintToString(sizes);
      request.op = "packed_attention_grad";
      request.operands = {o, x, o, m, m}, request.results = {x};
      EXPECT_EQ(refusal(request), "") << testing::PrintToString(sizes);
    }
}

TEST_P(CudnnLibraryTest, KnowsAttentionWithTheSameBitsOnEveryRun) {
  for (bool isTokenMajor : {false, true})
    EXPECT_EQ(refusal(attention("attention_grad", DType::BF16, {4, 32, 8, 1024, 1024, 64}, true,
                                /*mayVary=*/false, isTokenMajor)),
              "");
}

TEST_P(CudnnLibraryTest, KnowsConvolution) {
  struct Case {
    Ints x, w, y, strides, pads;
    int64_t groups;
  };
  const Case cases[] = {
      {{32, 3, 224, 224}, {64, 3, 7, 7}, {32, 64, 112, 112}, {2, 2}, {3, 3, 3, 3}, 1},
      {{32, 64, 56, 56}, {128, 64, 3, 3}, {32, 128, 56, 56}, {1, 1}, {1, 1, 1, 1}, 1},
      {{8, 32, 28, 28}, {32, 1, 3, 3}, {8, 32, 28, 28}, {1, 1}, {1, 1, 1, 1}, 32},
      {{8, 16, 100}, {32, 16, 3}, {8, 32, 100}, {1}, {1, 1}, 1},
  };
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const Case &c : cases) {
      SCOPED_TRACE(std::string(name(dtype)) + " " + testing::PrintToString(c.x));
      TensorType x{dtype, c.x}, w{dtype, c.w}, y{dtype, c.y};
      CudnnRequest request;
      request.attrs = Attrs{{"strides", c.strides},
                            {"pads", c.pads},
                            {"dilations", Ints(c.strides.size(), 1)},
                            {"groups", c.groups}};
      request.op = "conv", request.operands = {x, w}, request.results = {y};
      EXPECT_EQ(refusal(request), "");
      request.op = "conv_grad_input", request.operands = {y, w}, request.results = {x};
      EXPECT_EQ(refusal(request), "");
      request.op = "conv_grad_weight", request.operands = {x, y}, request.results = {w};
      EXPECT_EQ(refusal(request), "");
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, CudnnLibraryTest, testing::Values(80, 90),
                         [](const auto &info) { return "sm_" + std::to_string(info.param); });

} // namespace
} // namespace tbc::test
