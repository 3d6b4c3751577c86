//===- Compares.cpp - Comparisons and selections ---------------------------===//

#include "tests/ptx/Formats.h"
#include "tests/ptx/Lanes.h"

#include <cmath>

namespace tbc::ptx {
namespace {

/// Relations of two values. A comparison is ordered, or unordered (true if one is NaN).
enum class Relation : uint8_t { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual, Both };

template <typename T> auto comparable(T a) {
  if constexpr (std::is_class_v<T>)
    return double(a);
  else
    return a;
}

template <typename T, Relation relation, bool unordered> bool holds(T left, T right) {
  auto a = comparable(left), b = comparable(right);
  if constexpr (std::is_floating_point_v<decltype(a)>)
    if (std::isnan(a) || std::isnan(b))
      return unordered;
  switch (relation) {
  case Relation::Equal:
    return a == b;
  case Relation::NotEqual:
    return a != b;
  case Relation::Less:
    return a < b;
  case Relation::LessEqual:
    return a <= b;
  case Relation::Greater:
    return a > b;
  case Relation::GreaterEqual:
    return a >= b;
  case Relation::Both: // num: both are numbers; nan: its negation
    return !unordered;
  }
  return false;
}

enum class Combine : uint8_t { None, And, Or, Xor };
struct Names {
  Relation relation;
  bool unordered;
};
const std::map<std::string, Names> &relations() {
  static const std::map<std::string, Names> all = {
      {"eq", {Relation::Equal, false}},   {"ne", {Relation::NotEqual, false}},
      {"lt", {Relation::Less, false}},    {"le", {Relation::LessEqual, false}},
      {"gt", {Relation::Greater, false}}, {"ge", {Relation::GreaterEqual, false}},
      {"lo", {Relation::Less, false}},    {"ls", {Relation::LessEqual, false}},
      {"hi", {Relation::Greater, false}}, {"hs", {Relation::GreaterEqual, false}},
      {"equ", {Relation::Equal, true}},   {"neu", {Relation::NotEqual, true}},
      {"ltu", {Relation::Less, true}},    {"leu", {Relation::LessEqual, true}},
      {"gtu", {Relation::Greater, true}}, {"geu", {Relation::GreaterEqual, true}},
      {"num", {Relation::Both, false}},   {"nan", {Relation::Both, true}}};
  return all;
}

template <typename T, Relation relation, bool unordered>
uint32_t compared(Warp &warp, const Instruction &i) {
  const T *a = warp.at<T>(i.at[2]), *b = warp.at<T>(i.at[3]);
  uint32_t bits = 0;
  for (int lane = 0; lane < warpLanes; ++lane)
    bits |= uint32_t(holds<T, relation, unordered>(a[lane], b[lane])) << lane;
  return bits;
}
uint32_t combined(Warp &warp, const Instruction &i, uint32_t bits) {
  if (Combine(i.variant & 3) == Combine::None)
    return bits;
  uint32_t other = warp.mask(i.at[4]);
  if (i.variant & 4)
    other = ~other;
  return Combine(i.variant & 3) == Combine::And  ? bits & other
         : Combine(i.variant & 3) == Combine::Or ? bits | other
                                                 : bits ^ other;
}

/// setp: at[0] is the predicate, at[1] the predicate of the negated comparison (or -1).
template <typename T, Relation relation, bool unordered>
void setPredicate(Warp &warp, const Instruction &i) {
  uint32_t bits = compared<T, relation, unordered>(warp, i);
  uint32_t result = combined(warp, i, bits), negated = combined(warp, i, ~bits);
  setMask(warp, i.at[0], result);
  if (i.at[1] >= 0)
    setMask(warp, i.at[1], negated);
}
/// set: all ones, or 1.0 if count is 2 (for f32).
template <typename T, Relation relation, bool unordered>
void setValue(Warp &warp, const Instruction &i) {
  uint32_t bits = combined(warp, i, compared<T, relation, unordered>(warp, i));
  constexpr uint32_t one = 0x3f800000;
  uint32_t yes = i.count == 2 ? one : allLanes;
  each<uint32_t>(warp, i.at[0], [=](int lane) { return bits >> lane & 1 ? yes : 0; });
}

template <typename T, Relation relation, bool unordered> Action pick(bool isValue) {
  return isValue ? setValue<T, relation, unordered> : setPredicate<T, relation, unordered>;
}
template <typename T, Relation relation> Action pick(bool unordered, bool isValue) {
  return unordered ? pick<T, relation, true>(isValue) : pick<T, relation, false>(isValue);
}
template <typename T> Action pick(Names names, bool isValue) {
  switch (names.relation) {
  case Relation::Equal:
    return pick<T, Relation::Equal>(names.unordered, isValue);
  case Relation::NotEqual:
    return pick<T, Relation::NotEqual>(names.unordered, isValue);
  case Relation::Less:
    return pick<T, Relation::Less>(names.unordered, isValue);
  case Relation::LessEqual:
    return pick<T, Relation::LessEqual>(names.unordered, isValue);
  case Relation::Greater:
    return pick<T, Relation::Greater>(names.unordered, isValue);
  case Relation::GreaterEqual:
    return pick<T, Relation::GreaterEqual>(names.unordered, isValue);
  case Relation::Both:
    return pick<T, Relation::Both>(names.unordered, isValue);
  }
  return nullptr;
}

void decodeCompare(Decoder &d, bool isValue) {
  std::vector<std::string> words;
  for (const auto &[name, relation] : relations())
    words.push_back(name);
  Names names = relations().at(d.oneOf(words));
  if (d.take("ftz"))
    d.fail(d.opcode + ".ftz");
  std::string combine = d.oneOf({"and", "or", "xor"}, "none");
  if (isValue) {
    Type to = d.type();
    d.instruction.count = to == Type::F32 ? 2 : 1;
    if (bytesOf(to) != 4)
      d.fail(d.opcode + " into this type");
  }
  Type type = d.type();
  auto action = [&]() -> Action {
    switch (type) {
    case Type::B16:
    case Type::U16:
      return pick<uint16_t>(names, isValue);
    case Type::S16:
      return pick<int16_t>(names, isValue);
    case Type::B32:
    case Type::U32:
      return pick<uint32_t>(names, isValue);
    case Type::S32:
      return pick<int32_t>(names, isValue);
    case Type::B64:
    case Type::U64:
      return pick<uint64_t>(names, isValue);
    case Type::S64:
      return pick<int64_t>(names, isValue);
    case Type::F16:
      return pick<Half>(names, isValue);
    case Type::BF16:
      return pick<Brain>(names, isValue);
    case Type::F32:
      return pick<float>(names, isValue);
    case Type::F64:
      return pick<double>(names, isValue);
    default:
      d.fail(d.opcode + " of this type");
    }
  };
  Instruction &i = d.instruction;
  i.action = action();
  const Operand &to = d.operand(0);
  i.at[0] = d.write(0, isValue ? 4 : 0);
  i.at[1] = to.second;
  i.at[2] = d.read(1, bytesOf(type));
  i.at[3] = d.read(2, bytesOf(type));
  if (combine == "none")
    return;
  i.variant = uint8_t(combine == "and"  ? Combine::And
                      : combine == "or" ? Combine::Or
                                        : Combine::Xor);
  Operand other = d.operand(3);
  i.variant |= other.isNegated ? 4 : 0;
  other.isNegated = false;
  i.at[4] = d.read(other, 0);
}

template <typename T> void select(Warp &warp, const Instruction &i) {
  const T *a = warp.at<T>(i.at[1]), *b = warp.at<T>(i.at[2]);
  uint32_t which = warp.mask(i.at[3]);
  each<T>(warp, i.at[0], [=](int lane) { return which >> lane & 1 ? a[lane] : b[lane]; });
}
void decodeSelect(Decoder &d) {
  int bytes = bytesOf(d.type());
  takeOperands(d, bytes, 2);
  d.instruction.at[3] = d.read(3, 0);
  d.instruction.action = bytes == 2   ? select<uint16_t>
                         : bytes == 4 ? select<uint32_t>
                                      : select<uint64_t>;
}

/// testp. Offset: the accepted float classes, as bits 1 << class.
template <typename T> void testFloat(Warp &warp, const Instruction &i) {
  const T *a = warp.at<T>(i.at[1]);
  uint32_t bits = 0;
  for (int lane = 0; lane < warpLanes; ++lane)
    bits |= uint32_t(i.offset >> std::fpclassify(a[lane]) & 1) << lane;
  setMask(warp, i.at[0], bits);
}
void decodeTest(Decoder &d) {
  constexpr int64_t nan = 1 << FP_NAN, infinite = 1 << FP_INFINITE, normal = 1 << FP_NORMAL,
                    subnormal = 1 << FP_SUBNORMAL, zero = 1 << FP_ZERO;
  static const std::map<std::string, int64_t> tests = {{"finite", normal | subnormal | zero},
                                                       {"infinite", infinite},
                                                       {"number", ~nan},
                                                       {"notanumber", nan},
                                                       {"normal", normal},
                                                       {"subnormal", subnormal}};
  d.instruction.offset =
      tests.at(d.oneOf({"finite", "infinite", "number", "notanumber", "normal", "subnormal"}));
  Type type = d.type();
  d.instruction.at[0] = d.write(0, 0);
  d.instruction.at[1] = d.read(1, bytesOf(type));
  d.instruction.action = type == Type::F32 ? testFloat<float> : testFloat<double>;
}

} // namespace

const DecodeTable &compareInstructions() {
  static const DecodeTable table = {
      {"setp", [](Decoder &d) { decodeCompare(d, false); }},
      {"set", [](Decoder &d) { decodeCompare(d, true); }},
      {"selp", decodeSelect},
      {"testp", decodeTest},
  };
  return table;
}

} // namespace tbc::ptx
