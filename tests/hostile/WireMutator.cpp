//===- WireMutator.cpp - Changes to the bytes of a message ----------------===//

#include "tests/hostile/WireMutator.h"

#include "frontend/onnx/Wire.h"

#include <algorithm>
#include <vector>

using tbc::frontend::putTag;
using tbc::frontend::putVarint;
using tbc::frontend::Wire;
using tbc::frontend::WireError;
using tbc::frontend::WireField;
using tbc::frontend::WireType;

namespace tbc::test {

uint64_t Random::next() { // splitmix64
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

namespace {

std::vector<WireField> fieldsOf(const std::string &message) {
  Wire wire(reinterpret_cast<const uint8_t *>(message.data()), message.size());
  std::vector<WireField> fields;
  for (uint64_t at = 0; at < message.size(); at = fields.back().next)
    fields.push_back(wire.field(at, message.size()));
  return fields;
}

uint64_t interestingNumber(Random &random) {
  const uint64_t numbers[] = {0,
                              1,
                              2,
                              7,
                              uint64_t(-1),
                              uint64_t(-2),
                              127,
                              128,
                              65536,
                              uint64_t(1) << 31,
                              uint64_t(1) << 32,
                              uint64_t(1) << 40,
                              uint64_t(1) << 62,
                              uint64_t(INT64_MAX),
                              uint64_t(INT64_MIN),
                              random.next()};
  return numbers[random.below(std::size(numbers))];
}

std::string encoded(unsigned number, const std::string &content) {
  std::string text;
  putTag(text, number, WireType::Bytes);
  putVarint(text, content.size());
  return text + content;
}

/// Returns a message with one field changed, at this level or deeper.
std::string mutateField(const std::string &message, Random &random, std::string &what) {
  std::vector<WireField> fields = fieldsOf(message);
  if (fields.empty())
    return message;
  const WireField &field = fields[random.below(fields.size())];
  auto text = [&](const WireField &f) { return message.substr(f.begin, f.next - f.begin); };
  auto with = [&](const std::string &replacement) {
    return message.substr(0, field.begin) + replacement + message.substr(field.next);
  };
  what += "." + std::to_string(field.number);
  std::string content = message.substr(field.data, field.bytes);
  // Most of a model's content lies a few levels down.
  if (field.type == WireType::Bytes && content.size() > 1 && random.below(8) != 0) {
    try {
      std::string inner = what;
      std::string changed = mutateField(content, random, inner);
      what = inner;
      return with(encoded(field.number, changed));
    } catch (const WireError &) { // not a message
    }
  }
  const WireField &other = fields[random.below(fields.size())];
  switch (random.below(6)) {
  case 0:
    what += " removed";
    return with("");
  case 1:
    what += " repeated";
    return with(text(field) + text(field));
  case 2:
    what += " replaced by its sibling ." + std::to_string(other.number);
    return with(text(other));
  case 3: {
    what += " renumbered";
    std::string tag;
    putTag(tag, unsigned(1 + random.below(32)), field.type);
    WireField tagless = field;
    std::string old;
    putTag(old, field.number, field.type);
    return with(tag + text(tagless).substr(std::min(old.size(), text(tagless).size())));
  }
  default:
    break;
  }
  what += " given another value";
  if (field.type == WireType::Varint) {
    std::string number;
    putTag(number, field.number, WireType::Varint);
    putVarint(number, interestingNumber(random));
    return with(number);
  }
  if (field.type == WireType::Bytes) {
    if (other.type == WireType::Bytes && random.below(2) == 0)
      return with(encoded(field.number, message.substr(other.data, other.bytes)));
    if (random.below(2) == 0)
      content.resize(random.below(2 * content.size() + 2));
    else
      putVarint(content, interestingNumber(random));
    return with(encoded(field.number, content));
  }
  std::string changed = text(field);
  for (uint64_t i = field.data - field.begin; i < changed.size(); ++i)
    changed[i] = char(random.next());
  return with(changed);
}

std::string mutateBytes(const std::string &bytes, const std::string &other, Random &random,
                        std::string &what) {
  std::string changed = bytes;
  uint64_t at = random.below(bytes.size());
  uint64_t count = 1 + random.below(16);
  switch (random.below(6)) {
  case 0: {
    uint64_t bits = 1 + random.below(8);
    for (uint64_t i = 0; i < bits; ++i) {
      uint64_t where = random.below(bytes.size());
      changed[where] = char(changed[where] ^ (1 << random.below(8)));
      what += " bit flipped in byte " + std::to_string(where);
    }
    return changed;
  }
  case 1: {
    std::string inserted;
    for (uint64_t i = 0; i < count; ++i)
      inserted += char(random.next());
    what = std::to_string(count) + " bytes inserted at " + std::to_string(at);
    return changed.insert(at, inserted);
  }
  case 2:
    what = std::to_string(count) + " bytes removed at " + std::to_string(at);
    return changed.erase(at, count);
  case 3:
    what = std::to_string(count) + " bytes overwritten at " + std::to_string(at);
    for (uint64_t i = at; i < std::min<uint64_t>(at + count, changed.size()); ++i)
      changed[i] = char(random.next());
    return changed;
  case 4:
    what = "cut at " + std::to_string(at);
    return changed.substr(0, at);
  default: {
    uint64_t from = random.below(other.size());
    std::string piece = other.substr(from, 1 + random.below(4096));
    what = std::to_string(piece.size()) + " bytes of another file put at " + std::to_string(at);
    return random.below(2) == 0 ? changed.insert(at, piece)
                                : changed.replace(at, piece.size(), piece);
  }
  }
}

} // namespace

std::string mutate(const std::string &bytes, const std::string &other, Random &random,
                   std::string &what) {
  what.clear();
  if (random.below(3) == 0)
    return mutateBytes(bytes, other, random, what);
  what = "field ";
  return mutateField(bytes, random, what);
}

} // namespace tbc::test
