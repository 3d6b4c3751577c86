//===- Decode.cpp - From a statement of PTX to an instruction --------------===//

#include "tests/ptx/Decode.h"

#include <algorithm>

namespace tbc::ptx {

int bytesOf(Type type) {
  switch (type) {
  case Type::Pred:
    return 0;
  case Type::B8:
  case Type::U8:
  case Type::S8:
    return 1;
  case Type::B16:
  case Type::U16:
  case Type::S16:
  case Type::F16:
  case Type::BF16:
  case Type::E4M3x2:
  case Type::E5M2x2:
    return 2;
  case Type::B32:
  case Type::U32:
  case Type::S32:
  case Type::F32:
  case Type::F16x2:
  case Type::BF16x2:
  case Type::TF32:
    return 4;
  case Type::B64:
  case Type::U64:
  case Type::S64:
  case Type::F64:
    return 8;
  case Type::B128:
    return 16;
  }
  return 0;
}

bool isSigned(Type type) {
  return type == Type::S8 || type == Type::S16 || type == Type::S32 || type == Type::S64;
}

bool isFloat(Type type) {
  return type == Type::F16 || type == Type::BF16 || type == Type::F32 || type == Type::F64;
}

//===----------------------------------------------------------------------===//
// Register files
//===----------------------------------------------------------------------===//

int Frame::add(int bytesPerLane) {
  int at = kernel.fileBytes;
  constexpr int predicateBytes = 4;
  int bytes = bytesPerLane == 0 ? predicateBytes : bytesPerLane * warpLanes;
  // A value of 64 bytes or more is aligned to 64 bytes.
  constexpr int alignment = 64;
  if (bytesPerLane != 0)
    at = (at + alignment - 1) / alignment * alignment;
  kernel.fileBytes = at + bytes;
  return at;
}

int Frame::constant(uint64_t bits, int bytes, bool isGlobal) {
  auto [found, isNew] = known.emplace(std::tuple(bits, bytes, isGlobal), 0);
  if (isNew) {
    found->second = add(bytes);
    kernel.constants.push_back({found->second, bytes, bits, isGlobal});
  }
  return found->second;
}

int Frame::special(Special which) {
  auto [found, isNew] = kernel.specials.emplace(which, 0);
  if (isNew)
    found->second = add(which == Special::Clock64 ? 8 : 4);
  return found->second;
}

//===----------------------------------------------------------------------===//
// Statements
//===----------------------------------------------------------------------===//

Decoder::Decoder(Frame &frame, std::vector<std::string> all, std::vector<Operand> operands,
                 int line)
    : frame(frame), opcode(all[0]), words(all.begin() + 1, all.end()),
      operands(std::move(operands)) {
  instruction.line = line;
}

void Decoder::fail(const std::string &why) const {
  throw Fault("kernel " + frame.kernel.name + ", line " + std::to_string(instruction.line) +
              ": the executor does not know " + why);
}

bool Decoder::take(const std::string &word) {
  auto found = std::find(words.begin(), words.end(), word);
  if (found == words.end())
    return false;
  words.erase(found);
  return true;
}

std::string Decoder::oneOf(const std::vector<std::string> &list, const std::string &otherwise) {
  for (const std::string &word : list)
    if (take(word))
      return word;
  if (otherwise.empty())
    fail(opcode + " without a modifier that it needs");
  return otherwise;
}

static const std::map<std::string, Type> &typesByName() {
  static const std::map<std::string, Type> types = {
      {"pred", Type::Pred},     {"b8", Type::B8},         {"b16", Type::B16},
      {"b32", Type::B32},       {"b64", Type::B64},       {"b128", Type::B128},
      {"u8", Type::U8},         {"u16", Type::U16},       {"u32", Type::U32},
      {"u64", Type::U64},       {"s8", Type::S8},         {"s16", Type::S16},
      {"s32", Type::S32},       {"s64", Type::S64},       {"f16", Type::F16},
      {"bf16", Type::BF16},     {"f32", Type::F32},       {"f64", Type::F64},
      {"f16x2", Type::F16x2},   {"bf16x2", Type::BF16x2}, {"e4m3x2", Type::E4M3x2},
      {"e5m2x2", Type::E5M2x2}, {"tf32", Type::TF32}};
  return types;
}

std::optional<Type> Decoder::maybeType() {
  for (auto word = words.begin(); word != words.end(); ++word)
    if (auto found = typesByName().find(*word); found != typesByName().end()) {
      words.erase(word);
      return found->second;
    }
  return std::nullopt;
}

Type Decoder::type() {
  if (auto found = maybeType())
    return *found;
  fail(opcode + " without a type");
}

bool Decoder::hasFloatType() const {
  if (words.empty())
    return false;
  auto found = typesByName().find(words.back());
  return found != typesByName().end() &&
         (isFloat(found->second) || found->second == Type::F16x2 || found->second == Type::BF16x2);
}

void Decoder::finish() {
  if (!words.empty())
    fail("modifier ." + words[0] + " of instruction " + opcode);
}

const Operand &Decoder::operand(size_t index) const {
  if (index >= operands.size())
    fail(opcode + " with " + std::to_string(operands.size()) + " operands");
  return operands[index];
}

int Decoder::read(size_t index, int bytes) { return read(operand(index), bytes); }

int Decoder::read(const Operand &operand, int bytes) {
  switch (operand.kind) {
  case Operand::Kind::Register:
  case Operand::Kind::Special:
    if (operand.width != bytes)
      fail(opcode + " of a register of another width: " + operand.text);
    if (operand.isNegated)
      fail(opcode + " of a negated predicate");
    instruction.reads.push_back(operand.at);
    return operand.at;
  case Operand::Kind::Immediate:
    return frame.constant(operand.bits, bytes, operand.space == Space::Global);
  default:
    fail(opcode + " of operand " + operand.text);
  }
}

int Decoder::write(size_t index, int bytes) { return write(operand(index), bytes); }

int Decoder::write(const Operand &operand, int bytes) {
  if (operand.kind == Operand::Kind::Sink)
    return frame.add(bytes);
  if (operand.kind != Operand::Kind::Register || operand.width != bytes)
    fail(opcode + " into operand " + operand.text);
  instruction.writes.push_back(operand.at);
  return operand.at;
}

} // namespace tbc::ptx
