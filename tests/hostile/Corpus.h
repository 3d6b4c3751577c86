//===- Corpus.h - Model files made to harm -----------------------------------===//
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

/// A model file and what the import has to say about it.
struct HostileFile {
  std::string name, bytes;
  /// A part of the message with which it is refused; empty if the model is right after all.
  std::string expected;
};

/// A message of the wire format under construction. Nothing is checked: that is the point.
class RawMessage {
public:
  RawMessage &varint(unsigned field, uint64_t value);
  RawMessage &bytes(unsigned field, const std::string &value);
  RawMessage &message(unsigned field, const RawMessage &value) { return bytes(field, value.text); }
  /// A tag of any wire type.
  RawMessage &tag(unsigned field, unsigned wireType);
  RawMessage &append(const std::string &more) {
    text += more;
    return *this;
  }

  std::string text;
};

/// relu(x) over x: [batch, 4], in the node "the_relu"; its result is "y".
ModelBuilder reluModel();

/// By what is wrong with them: the bytes, the names and edges, the numbers, the amounts.
std::vector<HostileFile> wireFiles();
std::vector<HostileFile> graphFiles();
std::vector<HostileFile> valueFiles();
std::vector<HostileFile> bombFiles();

/// All of them. External data is in external_test.cpp, since it takes files beside the model.
std::vector<HostileFile> hostileFiles();

} // namespace tbc::test

#endif // TBC_TESTS_HOSTILE_CORPUS_H
