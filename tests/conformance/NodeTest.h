//===- NodeTest.h - Runs one of ONNX's backend tests -----------------------===//

#ifndef TBC_TESTS_CONFORMANCE_NODETEST_H
#define TBC_TESTS_CONFORMANCE_NODETEST_H

#include <filesystem>
#include <string>

namespace tbc::conformance {

enum class Outcome { Passed, Refused, Failed };

struct Verdict {
  Outcome outcome = Outcome::Failed;
  /// Why it did not pass; for a pass which inputs were held constant.
  std::string text;
};

/// Imports `folder`/model.onnx, evaluates it on every test_data_set_K with the reference
/// interpreter in the precision of its types, and compares. README.md says which inputs may be held
/// constant.
Verdict runTest(const std::filesystem::path &folder);

/// The same in a process of its own: a crash, or more than `seconds` of processor time, is a
/// failure.
Verdict runIsolated(const std::filesystem::path &folder, unsigned seconds);

} // namespace tbc::conformance

#endif // TBC_TESTS_CONFORMANCE_NODETEST_H
