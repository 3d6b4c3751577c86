//===- WireMutator.h - Changes to the bytes of a message ------------------===//
//
// Part of tbc. For tests. Knows the wire format, not ONNX.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_HOSTILE_WIREMUTATOR_H
#define TBC_TESTS_HOSTILE_WIREMUTATOR_H

#include <cstdint>
#include <string>

namespace tbc::test {

/// A small generator of pseudo-random numbers, the same on every machine.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t next();
  /// Returns a number below `limit`, which is not 0.
  uint64_t below(uint64_t limit) { return next() % limit; }

private:
  uint64_t state;
};

/// Returns `bytes` with one change, described in `what`. The change is one of:
/// - bits flipped; bytes inserted, removed or overwritten; a piece of `other` inserted; the end
///   truncated;
/// - a field at any depth removed, repeated, exchanged or given another value. The lengths of the
///   messages around it stay right.
std::string mutate(const std::string &bytes, const std::string &other, Random &random,
                   std::string &what);

} // namespace tbc::test

#endif // TBC_TESTS_HOSTILE_WIREMUTATOR_H
