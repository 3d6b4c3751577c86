//===- CliFixture.h - Runs of tbc in a folder of the test's own ------------===//

#ifndef TBC_TESTS_TOOLS_CLIFIXTURE_H
#define TBC_TESTS_TOOLS_CLIFIXTURE_H

#include "tests/support/Shell.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

namespace tbc::test {

class Cli : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tbc-cli-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  /// Runs tbc with `arguments` (a shell line) in the test's own folder.
  Outcome tbc(const std::string &arguments) { return shellIn(folder, TBC_PROGRAM " " + arguments); }
  static std::string model(const std::string &name) {
    return std::string(TBC_SOURCE_DIR) + "/models/" + name + ".onnx";
  }
  /// Plans tiny-mlp on four devices into plan.json.
  Outcome planMlp(const std::string &more = "") {
    return tbc("plan " + model("tiny-mlp") + " --gpus 4 --batch 32 --precision f32 -o plan.json " +
               more);
  }
  void write(const std::string &name, const std::string &text) {
    std::ofstream(folder / name, std::ios::binary) << text;
  }

  std::filesystem::path folder;
};

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_CLIFIXTURE_H
