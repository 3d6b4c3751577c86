//===- FullTests.h - Full runs or samples of long tests --------------------===//

#ifndef TBC_TESTS_RUNTIME_SUPPORT_FULLTESTS_H
#define TBC_TESTS_RUNTIME_SUPPORT_FULLTESTS_H

#include <cstdlib>
#include <string>

namespace tbc::test {

/// Returns whether TBC_FULL_TESTS=1 is set. Otherwise long tests run a seeded sample.
inline bool isFullRun() {
  const char *value = std::getenv("TBC_FULL_TESTS");
  return value && std::string(value) == "1";
}

inline int sampleSize(int sample, int full) { return isFullRun() ? full : sample; }

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_SUPPORT_FULLTESTS_H
