//===- FullTests.h - How much of a long test is run ------------------------===//

#ifndef TBC_TESTS_RUNTIME_SUPPORT_FULLTESTS_H
#define TBC_TESTS_RUNTIME_SUPPORT_FULLTESTS_H

#include <cstdlib>
#include <string>

namespace tbc::test {

/// Whether TBC_FULL_TESTS=1 asks for the whole of tests that otherwise try a seeded sample.
inline bool isFullRun() {
  const char *value = std::getenv("TBC_FULL_TESTS");
  return value && std::string(value) == "1";
}

inline int sampleSize(int sample, int full) { return isFullRun() ? full : sample; }

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_SUPPORT_FULLTESTS_H
