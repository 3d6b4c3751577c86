//===- Atomics.cpp - atom, red and fences ----------------------------------===//

#include "tests/ptx/Formats.h"
#include "tests/ptx/Lanes.h"

#include <algorithm>

namespace tbc::ptx {
namespace {

struct Add {
  template <typename T> T operator()(T old, T b, T) const {
    if constexpr (std::is_class_v<T>)
      return T(double(old) + double(b));
    else
      return T(old + b);
  }
};
struct Minimum {
  template <typename T> T operator()(T old, T b, T) const { return std::min(old, b); }
};
struct Maximum {
  template <typename T> T operator()(T old, T b, T) const { return std::max(old, b); }
};
struct And {
  template <typename T> T operator()(T old, T b, T) const { return old & b; }
};
struct Or {
  template <typename T> T operator()(T old, T b, T) const { return old | b; }
};
struct Xor {
  template <typename T> T operator()(T old, T b, T) const { return old ^ b; }
};
struct Exchange {
  template <typename T> T operator()(T, T b, T) const { return b; }
};
struct CompareAndSwap {
  template <typename T> T operator()(T old, T b, T c) const { return old == b ? c : old; }
};
struct Increment {
  template <typename T> T operator()(T old, T b, T) const { return old >= b ? T(0) : T(old + 1); }
};
struct Decrement {
  template <typename T> T operator()(T old, T b, T) const {
    return old == 0 || old > b ? b : T(old - 1);
  }
};

/// Variant: bit 1 means no result (red), bit 2 means release and acquire.
constexpr uint8_t hasNoResult = 2, isOrdered = 4;

/// The lanes execute it one after the other, from the lowest. at[0] is the base, at[1] the result,
/// at[2] and at[3] the operands.
template <typename T, typename Op> void atomically(Warp &warp, const Instruction &i) {
  uint64_t addresses[warpLanes];
  unsigned char *pointers[warpLanes];
  warp.addresses(i, i.at[0], addresses);
  warp.synchronize(i, addresses, i.variant & isOrdered);
  warp.access(i, AccessKind::Atomic, addresses, sizeof(T), pointers);
  const T *b = warp.at<T>(i.at[2]), *c = warp.at<T>(i.at[3]);
  T olds[warpLanes] = {};
  for (int lane = 0; lane < warpLanes; ++lane)
    if (warp.lanes >> lane & 1) {
      std::memcpy(&olds[lane], pointers[lane], sizeof(T));
      T made = Op()(olds[lane], b[lane], c[lane]);
      std::memcpy(pointers[lane], &made, sizeof(T));
    }
  if (!(i.variant & hasNoResult))
    each<T>(warp, i.at[1], [&](int lane) { return olds[lane]; });
}

template <typename T> Action integerAction(const std::string &name) {
  static const std::map<std::string, Action> actions = {
      {"add", atomically<T, Add>},       {"min", atomically<T, Minimum>},
      {"max", atomically<T, Maximum>},   {"and", atomically<T, And>},
      {"or", atomically<T, Or>},         {"xor", atomically<T, Xor>},
      {"exch", atomically<T, Exchange>}, {"cas", atomically<T, CompareAndSwap>},
      {"inc", atomically<T, Increment>}, {"dec", atomically<T, Decrement>}};
  return actions.at(name);
}

Action actionOf(Decoder &d, const std::string &name, Type type) {
  switch (type) {
  case Type::B32:
  case Type::U32:
    return integerAction<uint32_t>(name);
  case Type::S32:
    return integerAction<int32_t>(name);
  case Type::B64:
  case Type::U64:
    return integerAction<uint64_t>(name);
  case Type::S64:
    return integerAction<int64_t>(name);
  default:
    break;
  }
  if (name == "cas" && type == Type::B16)
    return atomically<uint16_t, CompareAndSwap>;
  if (name == "add" && type == Type::F32)
    return atomically<float, Add>;
  if (name == "add" && type == Type::F64)
    return atomically<double, Add>;
  if (name == "add" && type == Type::F16)
    return atomically<Half, Add>;
  if (name == "add" && type == Type::BF16)
    return atomically<Brain, Add>;
  d.fail(d.opcode + "." + name + " of this type");
}

void decodeAtomic(Decoder &d, bool hasResult) {
  Instruction &i = d.instruction;
  bool releases = d.take("acq_rel");
  bool isHalf = d.take("acquire") || d.take("release");
  i.variant = uint8_t((hasResult ? 0 : hasNoResult) | (releases || isHalf ? isOrdered : 0));
  takeOrder(d);
  d.take("noftz");
  std::string name =
      d.oneOf({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  size_t first = hasResult ? 1 : 0;
  takeAddress(d, first);
  Type type = d.type();
  int bytes = bytesOf(type);
  i.bytes = uint8_t(bytes);
  i.at[1] = hasResult ? d.write(0, bytes) : 0;
  i.at[2] = d.read(first + 1, bytes);
  i.at[3] = name == "cas" ? d.read(first + 2, bytes) : i.at[2];
  i.action = actionOf(d, name, type);
}

/// membar and fence: earlier accesses of the warp come before its next atomic operation.
void fence(Warp &warp, const Instruction &) { warp.hasFenced = true; }
void decodeFence(Decoder &d) {
  for (const char *word : {"cta", "gl", "sys", "gpu", "cluster", "sc", "acq_rel"})
    d.take(word);
  d.instruction.action = fence;
}

} // namespace

const DecodeTable &atomicInstructions() {
  static const DecodeTable table = {
      {"atom", [](Decoder &d) { decodeAtomic(d, true); }},
      {"red", [](Decoder &d) { decodeAtomic(d, false); }},
      {"membar", decodeFence},
      {"fence", decodeFence},
  };
  return table;
}

} // namespace tbc::ptx
