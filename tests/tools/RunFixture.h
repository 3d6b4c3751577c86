//===- RunFixture.h - Compiles and runs Programs as users do --------------===//

#ifndef TBC_TESTS_TOOLS_RUNFIXTURE_H
#define TBC_TESTS_TOOLS_RUNFIXTURE_H

#include "tests/support/Shell.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

namespace tbc::test {

/// Plans and programs are made once, in a folder shared by all tests.
class Run : public testing::Test {
protected:
  static void SetUpTestSuite() {
    shared = (std::filesystem::temp_directory_path() / "tbc-run-shared-XXXXXX").string();
    ASSERT_NE(mkdtemp(shared.data()), nullptr);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(shared); }

  void SetUp() override {
    folder = (std::filesystem::temp_directory_path() / "tbc-run-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  Outcome shell(const std::string &line) { return shellIn(folder, line); }

  static std::string precisionOf(const std::string &flags) {
    bool isGiven = flags.find("--precision") != std::string::npos;
    return (isGiven ? "" : "--precision f32 ") + flags;
  }

  /// Returns the folder of a compiled program, planned with `flags`; in f32 by default.
  static std::string program(const std::string &model, const std::string &flags) {
    std::string name = model + " " + flags;
    for (char &c : name)
      c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    std::string path = shared + "/" + name;
    if (std::filesystem::exists(path))
      return path;
    std::string file = std::string(TBC_SOURCE_DIR) + "/models/" + model + ".onnx";
    Outcome made =
        shellIn(shared, TBC_PROGRAM " plan " + file + " --batch 8 " + precisionOf(flags) +
                            " -o plan.json && " TBC_PROGRAM " compile plan.json -o '" + path + "'");
    EXPECT_EQ(made.code, 0) << made.err;
    return path;
  }
  static std::string mlp() { return program("tiny-mlp", "--gpus 4 --mesh dp=2,tp=2"); }
  static std::string mlpOnTwo() { return program("tiny-mlp", "--gpus 2 --mesh fsdp=2"); }

  Outcome run(const std::string &program, const std::string &flags,
              const std::string &environment = "") {
    return shell(environment + " " TBC_RUN_PROGRAM " '" + program + "' " + flags);
  }

  /// Returns the log without its timings.
  std::string losses(const std::string &log) {
    std::istringstream lines(readAll(folder + "/" + log));
    std::string line, text;
    while (std::getline(lines, line))
      text += line.substr(0, line.find(",\"seconds\"")) + "\n";
    return text;
  }

  inline static std::string shared;
  std::string folder;
};

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_RUNFIXTURE_H
