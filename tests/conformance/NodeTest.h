//===- NodeTest.h - Runs one of ONNX's backend tests ----------------------===//

#ifndef TBC_TESTS_CONFORMANCE_NODETEST_H
#define TBC_TESTS_CONFORMANCE_NODETEST_H

#include <filesystem>
#include <string>

namespace tbc::conformance {

enum class Outcome { Passed, Refused, Failed };

struct Verdict {
  Outcome outcome = Outcome::Failed;
  /// Why it did not pass. For a pass: the inputs that were held constant.
  std::string text;
};

/// Imports `folder`/model.onnx, evaluates it on every test_data_set_K with the reference
/// interpreter in the precision of its types, and compares. README.md defines the inputs that may
/// be held constant.
Verdict runTest(const std::filesystem::path &folder);

/// Runs the test in its own process. A crash, or more than `seconds` of processor time, is a
/// failure.
Verdict runIsolated(const std::filesystem::path &folder, unsigned seconds);

} // namespace tbc::conformance

#endif // TBC_TESTS_CONFORMANCE_NODETEST_H
