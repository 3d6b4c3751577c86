//===- doctor_test.cpp - tbc doctor's findings on GPUs --------------------===//

#include "runtime/cuda/Device.h"
#include "tests/runtime/cuda/FakeCublasLt.h"
#include "tests/runtime/cuda/FakeCudnn.h"
#include "tests/runtime/cuda/FakeNccl.h"
#include "tools/doctor/Doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace tbc::test {
namespace {

using doctor::Finding;
using doctor::GpuLibraries;
using doctor::State;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

GpuLibraries fakes() {
  return {Status::ok(), FakeDriver::table(), FakeNccl::table(), FakeCublasLt::table(),
          FakeCudnn::table()};
}

/// Returns the finding of this name; it must exist.
Finding of(const std::vector<Finding> &findings, const std::string &name) {
  for (const Finding &finding : findings)
    if (finding.name == name)
      return finding;
  ADD_FAILURE() << "nothing is said of " << name;
  return {};
}

FakeOptions options(int numDevices) {
  FakeOptions options;
  options.numDevices = numDevices;
  return options;
}

TEST(DoctorOfGpus, SaysWhatIsThere) {
  FakeDriver driver(options(2));
  FakeNccl nccl(driver);
  FakeCublasLt cublas(driver);
  FakeCudnn cudnn(driver);
  std::vector<Finding> findings = doctor::examineGpus(fakes());
  for (const Finding &finding : findings)
    EXPECT_EQ(finding.state, State::Ok) << finding.name << ": " << finding.found;
  EXPECT_EQ(of(findings, "CUDA driver").found, "for CUDA 12.4");
  EXPECT_EQ(of(findings, "GPU 1").found, "Fake, sm_90, 0.1 GiB, 0.1 GiB free");
  EXPECT_EQ(of(findings, "GPU models").found, "all alike");
  EXPECT_EQ(of(findings, "GPU peer access").found, "between all");
  EXPECT_EQ(of(findings, "NCCL").found, "2.23.4");
  EXPECT_EQ(of(findings, "cuBLASLt").found, "12.3.0");
  EXPECT_EQ(of(findings, "cuDNN").found, "9.19.0");
  EXPECT_THAT(driver.complaints(), IsEmpty());
  EXPECT_THAT(driver.leaks(), IsEmpty());
}

TEST(DoctorOfGpus, LibrariesOfAnotherMajorAreProblems) {
  FakeDriver driver(options(1));
  FakeNccl nccl(driver);
  FakeCublasLt cublas(driver);
  FakeCudnn cudnn(driver);
  cublas.isOfAnotherMajor();
  cudnn.isOfAnotherMajor();
  std::vector<Finding> findings = doctor::examineGpus(fakes());
  for (const char *name : {"cuBLASLt", "cuDNN"}) {
    Finding finding = of(findings, name);
    EXPECT_EQ(finding.state, State::Problem) << name;
    EXPECT_THAT(finding.found, AllOf(HasSubstr("starting"), HasSubstr("GPU 0"),
                                     HasSubstr("the driver is for CUDA 12.4")));
    EXPECT_THAT(finding.advice, AllOf(HasSubstr("does not start"), HasSubstr("plain kernels")));
  }
  EXPECT_EQ(of(findings, "NCCL").state, State::Ok);
  EXPECT_EQ(nccl.numAlive(), 0);
  EXPECT_THAT(driver.leaks(), IsEmpty());
}

TEST(DoctorOfGpus, AnNcclThatDoesNotConnectIsAProblem) {
  FakeDriver driver(options(1));
  FakeNccl nccl(driver);
  FakeCublasLt cublas(driver);
  FakeCudnn cudnn(driver);
  nccl.failAll(cuda::NcclCode::SystemError);
  Finding finding = of(doctor::examineGpus(fakes()), "NCCL");
  EXPECT_EQ(finding.state, State::Problem);
  EXPECT_THAT(finding.found, AllOf(HasSubstr("GPU 0 (Fake, sm_90), starting NCCL with one rank"),
                                   HasSubstr("(NCCL 2.23.4; the driver is for CUDA 12.4)")));
  EXPECT_THAT(finding.advice, HasSubstr("does not start"));
  EXPECT_EQ(nccl.numAlive(), 0);
}

TEST(DoctorOfGpus, NothingIsNoProblemWithoutADriver) {
  Error none{ErrorCode::Other, "cannot be loaded: install it"};
  std::vector<Finding> findings = doctor::examineGpus({none, none, none, none, none});
  ASSERT_EQ(findings.size(), 4u);
  for (const Finding &finding : findings) {
    EXPECT_EQ(finding.state, State::Missing) << finding.name;
    EXPECT_EQ(finding.found, "cannot be loaded: install it");
    EXPECT_THAT(finding.advice, HasSubstr("only for"));
  }
}

TEST(DoctorOfGpus, ADriverThatDoesNotStartIsAProblem) {
  Error failed{ErrorCode::Other, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"};
  FakeDriver driver;
  FakeNccl nccl(driver);
  Finding finding = of(doctor::examineGpus({Status::ok(), failed, FakeNccl::table(),
                                            FakeCublasLt::table(), FakeCudnn::table()}),
                       "CUDA driver");
  EXPECT_EQ(finding.state, State::Problem);
  EXPECT_THAT(finding.advice, HasSubstr("nvidia-smi"));
}

TEST(DoctorOfGpus, NoVisibleGpuIsAProblem) {
  FakeDriver driver(options(0));
  FakeNccl nccl(driver);
  FakeCublasLt cublas(driver);
  FakeCudnn cudnn(driver);
  Finding finding = of(doctor::examineGpus(fakes()), "GPUs");
  EXPECT_EQ(finding.state, State::Problem);
  EXPECT_THAT(finding.advice, HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST(DoctorOfGpus, SaysWhatIsWrongAndHowToMendIt) {
  FakeOptions odd = options(3);
  odd.capabilities = {{1, 75}};
  odd.withoutPeerAccess = {{0, 2}, {2, 0}};
  FakeDriver driver(odd);
  FakeNccl nccl(driver);
  GpuLibraries libraries = fakes();
  Error none{ErrorCode::Other, "cannot be loaded: install it"};
  libraries.nccl = none;
  libraries.cublas = none;
  libraries.cudnn = none;
  // Another process has taken a quarter of GPU 2.
  auto device = cuda::Device::open(FakeDriver::table(), 2);
  auto taken = cuda::DeviceMemory::allocate(*device, int64_t(odd.deviceBytes / 4), "a test");
  std::vector<Finding> findings = doctor::examineGpus(libraries);
  auto expect = [&](const std::string &name, const std::string &found, const std::string &advice) {
    Finding finding = of(findings, name);
    EXPECT_EQ(finding.state, State::Problem) << name;
    EXPECT_THAT(finding.found, HasSubstr(found));
    EXPECT_THAT(finding.advice, HasSubstr(advice));
  };
  EXPECT_EQ(of(findings, "GPU 0").state, State::Ok);
  expect("GPU 1", "Fake, sm_75", "--arch sm_75");
  expect("GPU 2", "free", "end what nvidia-smi lists");
  expect("GPU models", "Fake, sm_90; Fake, sm_75", "one model");
  expect("GPU peer access", "not from GPU 0 to 2, 2 to 0", "nvidia-smi topo -m");
  expect("NCCL", "install it", "several GPUs");
  expect("cuBLASLt", "install it", "slowly");
  EXPECT_EQ(of(findings, "cuDNN").state, State::Missing);
  EXPECT_THAT(of(findings, "cuDNN").advice, HasSubstr("attention and convolution, slowly"));
}

TEST(DoctorOfGpus, AGpuThatCannotBeOpenedIsNamed) {
  FakeDriver driver(options(2));
  FakeNccl nccl(driver);
  FakeCublasLt cublas(driver);
  FakeCudnn cudnn(driver);
  driver.failCall("cuDevicePrimaryCtxRetain", cuda::DriverCode::OutOfMemory);
  std::vector<Finding> findings = doctor::examineGpus(fakes());
  EXPECT_EQ(of(findings, "GPU 0").state, State::Problem);
  EXPECT_THAT(of(findings, "GPU 0").found, HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_EQ(of(findings, "GPU 1").state, State::Ok);
}

TEST(Doctor, LongSentencesAreWrappedUnderTheirColumn) {
  std::string sentence = "a sentence of words that goes on for longer than a terminal is wide, ";
  std::string text =
      doctor::textOf({{"name", State::Problem, sentence + sentence, sentence + sentence}});
  std::istringstream lines(text);
  int numLines = 0;
  for (std::string line; std::getline(lines, line); ++numLines) {
    EXPECT_LE(line.size(), 100u) << line;
    EXPECT_EQ(line.substr(0, 30),
              numLines == 0 ? "problem  name                 " : std::string(30, ' '));
  }
  EXPECT_EQ(numLines, 4);
  std::string word(200, 'w');
  EXPECT_EQ(doctor::textOf({{"name", State::Ok, word, ""}}),
            "ok       name                 " + word + "\n");
}

} // namespace
} // namespace tbc::test
