//===- Fuzz.h - The promise check of fuzz targets -------------------------===//
//
// Part of tbc. A fuzz target is one function over any bytes. It aborts if a promise is broken;
// refusing the input is correct. With the sanitizers' preset it is linked with libFuzzer, otherwise
// with Replay.cpp, which runs the files of the kept corpus.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_FUZZ_FUZZ_H
#define TBC_TESTS_FUZZ_FUZZ_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace tbc::fuzz {

/// Aborts with the message `what` unless `holds`.
inline void require(bool holds, const char *what) {
  if (holds)
    return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

} // namespace tbc::fuzz

#endif // TBC_TESTS_FUZZ_FUZZ_H
