//===- Corpus.h - Malicious model files -----------------------------------===//
//
// Part of tbc. For tests. Every file is made by code, the same bytes each time.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_HOSTILE_CORPUS_H
#define TBC_TESTS_HOSTILE_CORPUS_H

#include "tests/frontend/ModelBuilder.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::test {

/// A model file and the expected answer of the import.
struct HostileFile {
  std::string name, bytes;
  /// A part of the error message; empty if the model is valid.
  std::string expected;
};

/// A message of the wire format under construction. Checks nothing, so it can build malformed ones.
class RawMessage {
public:
  RawMessage &varint(unsigned field, uint64_t value);
  RawMessage &bytes(unsigned field, const std::string &value);
  RawMessage &message(unsigned field, const RawMessage &value) { return bytes(field, value.text); }
  /// Adds a tag of any wire type.
  RawMessage &tag(unsigned field, unsigned wireType);
  RawMessage &append(const std::string &more) {
    text += more;
    return *this;
  }

  std::string text;
};

/// Returns relu(x) over x: [batch, 4], in the node "the_relu"; its result is "y".
ModelBuilder reluModel();

/// The files by their fault: bytes, names and edges, numbers, amounts.
std::vector<HostileFile> wireFiles();
std::vector<HostileFile> graphFiles();
std::vector<HostileFile> valueFiles();
std::vector<HostileFile> bombFiles();

/// Returns all of them. External data is in external_test.cpp, because it takes files beside the
/// model.
std::vector<HostileFile> hostileFiles();

} // namespace tbc::test

#endif // TBC_TESTS_HOSTILE_CORPUS_H
