//===- run_reference_test.cpp - tbc run beside PyTorch's losses -----------===//
//
// models/reference holds the inputs and losses of 20 steps by PyTorch, in float32 and float64 from
// the same weights. Real processes read the inputs as .npy files, in order.
//
//===----------------------------------------------------------------------===//

#include "tests/support/Npz.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/wait.h>

namespace fs = std::filesystem;
using namespace tbc;

namespace {

struct Case {
  const char *model, *input, *flags;
  const char *compileFlags = "";
};

void PrintTo(const Case &testCase, std::ostream *out) {
  *out << testCase.model << " " << testCase.flags;
}

constexpr int numSteps = 20;

std::string readAll(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Writes the arrays of all steps, concatenated along the first dim, as one .npy file.
void writeNpy(const std::string &path, const std::map<std::string, test::NpyArray> &arrays,
              const std::string &prefix) {
  std::string elements, shape;
  bool isFloat = arrays.at(prefix + "_1").isFloat();
  for (int step = 1; step <= numSteps; ++step) {
    const test::NpyArray &array = arrays.at(prefix + "_" + std::to_string(step));
    for (double value : array.values) {
      auto element = float(value);
      elements.append(reinterpret_cast<const char *>(&element), sizeof element);
    }
    for (int64_t element : array.ints)
      elements.append(reinterpret_cast<const char *>(&element), sizeof element);
    shape = std::to_string(array.shape[0] * numSteps) + ",";
    for (size_t d = 1; d < array.shape.size(); ++d)
      shape += " " + std::to_string(array.shape[d]) + ",";
  }
  std::string header = std::string("{'descr': '") + (isFloat ? "<f4" : "<i8") +
                       "', 'fortran_order': False, 'shape': (" + shape + "), }\n";
  std::ofstream file(path, std::ios::binary);
  file << std::string("\x93NUMPY\x01\0", 8) << char(header.size() & 255) << char(header.size() >> 8)
       << header << elements;
}

/// Plans, compiles and trains; compares every loss.
void checkLosses(const Case &c) {
  std::string folder = (fs::temp_directory_path() / "tbc-ref-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::string reference = std::string(TBC_SOURCE_DIR) + "/models/reference/" + c.model;
  auto arrays = test::readNpz(reference + "/inputs.npz");
  writeNpy(folder + "/input.npy", arrays, "input");
  writeNpy(folder + "/label.npy", arrays, "label");
  std::string line = "cd '" + folder + "' && { " TBC_PROGRAM " plan " TBC_SOURCE_DIR "/models/" +
                     c.model + ".onnx --batch 8 --precision f32 -o plan.json " + c.flags +
                     " && " TBC_PROGRAM " compile plan.json -o program " + c.compileFlags +
                     " && " TBC_RUN_PROGRAM
                     " program --no-shuffle --steps 20 --lr 1e-3 --log log --data " +
                     c.input + "=input.npy --data labels=label.npy; } >out.txt 2>&1 </dev/null";
  int status = std::system(line.c_str());
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << readAll(folder + "/out.txt");

  auto single = test::readCsv(reference + "/losses_adamw.csv").at("loss");
  auto exact = test::readCsv(reference + "/losses_adamw_f64.csv").at("loss");
  std::istringstream log(readAll(folder + "/log"));
  std::string text;
  for (int step = 0; step < numSteps; ++step) {
    ASSERT_TRUE(std::getline(log, text));
    double loss = std::strtod(text.c_str() + text.find("\"loss\":") + 7, nullptr);
    // The tolerance is 8 times PyTorch's own rounding over all steps, with a floor of some ulps.
    double yardstick = 0;
    for (int other = 0; other < numSteps; ++other)
      yardstick = std::max(yardstick, std::abs(single[other] - exact[other]));
    EXPECT_NEAR(loss, exact[step], 8 * yardstick + 2e-6) << "step " << step + 1;
  }
  fs::remove_all(folder);
}

class RunReference : public testing::TestWithParam<Case> {};
TEST_P(RunReference, LossesArePyTorchs) { checkLosses(GetParam()); }

/// The same on a GPU; runs only with TBC_GPU_TESTS=1.
class RunReferenceOnGpu : public testing::TestWithParam<Case> {};
TEST_P(RunReferenceOnGpu, LossesArePyTorchs) {
  const char *asked = std::getenv("TBC_GPU_TESTS");
  if (!asked || std::string(asked) != "1")
    GTEST_SKIP() << "TBC_GPU_TESTS=1 asks for tests on a GPU";
  checkLosses(GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Plans, RunReference,
    testing::Values(Case{"tiny-gpt2", "input_ids", "--seq 32 --gpus 2 --mesh fsdp=2"},
                    Case{"tiny-gpt2", "input_ids",
                         "--seq 32 --gpus 4 --mesh pp=2,tp=2 --micro-batch 2"},
                    Case{"tiny-llama", "input_ids", "--seq 32 --gpus 2 --mesh tp=2"},
                    Case{"tiny-mlp", "input", "--gpus 4 --mesh dp=2,tp=2"},
                    Case{"tiny-resnet", "input", "--gpus 2 --mesh dp=2 --micro-batch 4"}));

INSTANTIATE_TEST_SUITE_P(
    Models, RunReferenceOnGpu,
    testing::Values(
        Case{"tiny-gpt2", "input_ids", "--seq 32 --gpus 1", "--target cuda"},
        Case{"tiny-gpt2", "input_ids", "--seq 32 --gpus 1 --recompute none", "--target cuda"},
        Case{"tiny-llama", "input_ids", "--seq 32 --gpus 1 --micro-batch 2", "--target cuda"},
        Case{"tiny-mlp", "input", "--gpus 1", "--target cuda"},
        Case{"tiny-resnet", "input", "--gpus 1", "--target cuda"}));

} // namespace
