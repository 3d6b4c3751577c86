//===- Bits.cpp - Logic, shifts and bit fields -----------------------------===//

#include "tests/ptx/Lanes.h"

#include <algorithm>
#include <functional>

namespace tbc::ptx {
namespace {

struct Not {
  template <typename T> T operator()(T a) const { return T(~a); }
};
struct LogicalNot {
  template <typename T> T operator()(T a) const { return T(a == 0); }
};
template <typename Op> struct Bitwise {
  template <typename T> T operator()(T a, T b) const { return T(Op()(uint64_t(a), uint64_t(b))); }
};
struct Ones {
  template <typename T> uint32_t operator()(T a) const {
    return uint32_t(__builtin_popcountll(uint64_t(a)));
  }
};
struct LeadingZeros {
  template <typename T> uint32_t operator()(T a) const {
    constexpr int bits = 8 * sizeof(T);
    return a == 0 ? bits : uint32_t(__builtin_clzll(uint64_t(a)) - (64 - bits));
  }
};
struct Reverse {
  template <typename T> T operator()(T a) const {
    T out = 0;
    for (size_t bit = 0; bit < 8 * sizeof(T); ++bit)
      out = T(out | T(T(a >> bit) & 1) << (8 * sizeof(T) - 1 - bit));
    return out;
  }
};

/// and, or, xor, not on predicates.
template <typename Op> void ofPredicates(Warp &warp, const Instruction &i) {
  setMask(warp, i.at[0], uint32_t(Op()(uint64_t(warp.mask(i.at[1])), warp.mask(i.at[2]))));
}
void notPredicate(Warp &warp, const Instruction &i) { setMask(warp, i.at[0], ~warp.mask(i.at[1])); }

template <typename Op> void decodeLogic(Decoder &d) {
  Type type = d.type();
  int bytes = bytesOf(type);
  takeOperands(d, bytes, 2);
  d.instruction.action = bytes == 0   ? ofPredicates<Op>
                         : bytes == 2 ? binary<uint16_t, Bitwise<Op>>
                         : bytes == 4 ? binary<uint32_t, Bitwise<Op>>
                                      : binary<uint64_t, Bitwise<Op>>;
}
template <typename Op> void decodeNot(Decoder &d) {
  int bytes = bytesOf(d.type());
  takeOperands(d, bytes, 1);
  d.instruction.action = bytes == 0   ? notPredicate
                         : bytes == 2 ? unary<uint16_t, Op>
                         : bytes == 4 ? unary<uint32_t, Op>
                                      : unary<uint64_t, Op>;
}

enum Direction { Left, Right };
template <typename T, Direction direction> void shift(Warp &warp, const Instruction &i) {
  const T *a = warp.at<T>(i.at[1]);
  const auto *by = warp.at<uint32_t>(i.at[2]);
  constexpr uint32_t bits = 8 * sizeof(T);
  each<T>(warp, i.at[0], [=](int lane) {
    uint32_t count = by[lane];
    if (direction == Left)
      return count >= bits ? T(0) : T(uint64_t(a[lane]) << count);
    T sign = std::is_signed_v<T> && a[lane] < 0 ? T(-1) : T(0);
    return count >= bits ? sign : T(a[lane] >> count);
  });
}
void decodeShiftLeft(Decoder &d) {
  int bytes = bytesOf(d.type());
  d.instruction.at[0] = d.write(0, bytes);
  d.instruction.at[1] = d.read(1, bytes);
  d.instruction.at[2] = d.read(2, 4);
  d.instruction.action = bytes == 2   ? shift<uint16_t, Left>
                         : bytes == 4 ? shift<uint32_t, Left>
                                      : shift<uint64_t, Left>;
}
void decodeShiftRight(Decoder &d) {
  Type type = d.type();
  int bytes = bytesOf(type);
  d.instruction.at[0] = d.write(0, bytes);
  d.instruction.at[1] = d.read(1, bytes);
  d.instruction.at[2] = d.read(2, 4);
  if (isSigned(type))
    d.instruction.action = bytes == 2   ? shift<int16_t, Right>
                           : bytes == 4 ? shift<int32_t, Right>
                                        : shift<int64_t, Right>;
  else
    d.instruction.action = bytes == 2   ? shift<uint16_t, Right>
                           : bytes == 4 ? shift<uint32_t, Right>
                                        : shift<uint64_t, Right>;
}

/// shf: shifts the double word b:a. Variant: 1 left, 2 wrap.
void funnel(Warp &warp, const Instruction &i) {
  const auto *a = warp.at<uint32_t>(i.at[1]), *b = warp.at<uint32_t>(i.at[2]),
             *by = warp.at<uint32_t>(i.at[3]);
  bool isLeft = i.variant & 1, wraps = i.variant & 2;
  each<uint32_t>(warp, i.at[0], [=](int lane) {
    uint32_t count = wraps ? by[lane] & 31 : std::min(by[lane], 32U);
    uint64_t both = uint64_t(b[lane]) << 32 | a[lane];
    return isLeft ? uint32_t((both << count) >> 32) : uint32_t(both >> count);
  });
}
void decodeFunnel(Decoder &d) {
  d.instruction.variant = uint8_t(d.oneOf({"l", "r"}) == "l");
  d.instruction.variant |= d.oneOf({"clamp", "wrap"}) == "wrap" ? 2 : 0;
  d.type();
  takeOperands(d, 4, 3);
  d.instruction.action = funnel;
}

template <typename Op> void decodeCount(Decoder &d) {
  int bytes = bytesOf(d.type());
  d.instruction.at[0] = d.write(0, 4);
  d.instruction.at[1] = d.read(1, bytes);
  d.instruction.action =
      bytes == 4 ? unaryTo<uint32_t, uint32_t, Op> : unaryTo<uint32_t, uint64_t, Op>;
}
void decodeReverse(Decoder &d) {
  int bytes = bytesOf(d.type());
  takeOperands(d, bytes, 1);
  d.instruction.action = bytes == 4 ? unary<uint32_t, Reverse> : unary<uint64_t, Reverse>;
}

/// Finds the highest bit that differs from the sign. Variant: returned as a shift amount. Example:
/// 8 gives 3.
template <typename T> void findHighest(Warp &warp, const Instruction &i) {
  const T *a = warp.at<T>(i.at[1]);
  bool asShift = i.variant;
  each<uint32_t>(warp, i.at[0], [=](int lane) {
    auto value = uint64_t(a[lane] < 0 ? T(~a[lane]) : a[lane]);
    if (value == 0)
      return ~0U;
    auto bit = uint32_t(63 - __builtin_clzll(value));
    return asShift ? uint32_t(8 * sizeof(T)) - 1 - bit : bit;
  });
}
void decodeFindHighest(Decoder &d) {
  d.instruction.variant = d.take("shiftamt");
  Type type = d.type();
  d.instruction.at[0] = d.write(0, 4);
  d.instruction.at[1] = d.read(1, bytesOf(type));
  d.instruction.action = type == Type::U32   ? findHighest<uint32_t>
                         : type == Type::S32 ? findHighest<int32_t>
                         : type == Type::U64 ? findHighest<uint64_t>
                                             : findHighest<int64_t>;
}

/// Extracts `length` bits from `position` on. Signed values are extended by their highest bit.
/// Example: 4 bits of 0xab from position 4 are 0xa.
template <typename T> void extract(Warp &warp, const Instruction &i) {
  const T *a = warp.at<T>(i.at[1]);
  const auto *positions = warp.at<uint32_t>(i.at[2]), *lengths = warp.at<uint32_t>(i.at[3]);
  constexpr uint32_t bits = 8 * sizeof(T);
  each<T>(warp, i.at[0], [=](int lane) {
    uint32_t position = positions[lane] & 0xff, length = lengths[lane] & 0xff;
    using U = std::make_unsigned_t<T>;
    U out = 0;
    U value = U(a[lane]);
    if (length == 0)
      return T(0);
    uint32_t last = std::min(position + length - 1, bits - 1);
    bool sign = std::is_signed_v<T> && (value >> last & 1);
    for (uint32_t bit = 0; bit < bits; ++bit) {
      bool isSet = bit < length && position + bit < bits ? value >> (position + bit) & 1 : sign;
      out |= U(isSet) << bit;
    }
    return T(out);
  });
}
void decodeExtract(Decoder &d) {
  Type type = d.type();
  int bytes = bytesOf(type);
  d.instruction.at[0] = d.write(0, bytes);
  d.instruction.at[1] = d.read(1, bytes);
  d.instruction.at[2] = d.read(2, 4);
  d.instruction.at[3] = d.read(3, 4);
  d.instruction.action = type == Type::U32   ? extract<uint32_t>
                         : type == Type::S32 ? extract<int32_t>
                         : type == Type::U64 ? extract<uint64_t>
                                             : extract<int64_t>;
}
/// Inserts `length` bits of a into b at `position`.
template <typename T> void insert(Warp &warp, const Instruction &i) {
  const T *a = warp.at<T>(i.at[1]), *b = warp.at<T>(i.at[2]);
  const auto *positions = warp.at<uint32_t>(i.at[3]), *lengths = warp.at<uint32_t>(i.at[4]);
  constexpr uint32_t bits = 8 * sizeof(T);
  each<T>(warp, i.at[0], [=](int lane) {
    uint32_t position = positions[lane] & 0xff, length = lengths[lane] & 0xff;
    T out = b[lane];
    for (uint32_t bit = 0; bit < length && position + bit < bits; ++bit) {
      T one = T(T(1) << (position + bit));
      out = (a[lane] >> bit & 1) ? T(out | one) : T(out & ~one);
    }
    return out;
  });
}
void decodeInsert(Decoder &d) {
  int bytes = bytesOf(d.type());
  d.instruction.at[0] = d.write(0, bytes);
  d.instruction.at[1] = d.read(1, bytes);
  d.instruction.at[2] = d.read(2, bytes);
  d.instruction.at[3] = d.read(3, 4);
  d.instruction.at[4] = d.read(4, 4);
  d.instruction.action = bytes == 4 ? insert<uint32_t> : insert<uint64_t>;
}

/// prmt: selects four bytes of b:a by the nibbles of c. The highest bit of a nibble repeats the
/// sign.
void permute(Warp &warp, const Instruction &i) {
  const auto *a = warp.at<uint32_t>(i.at[1]), *b = warp.at<uint32_t>(i.at[2]),
             *c = warp.at<uint32_t>(i.at[3]);
  each<uint32_t>(warp, i.at[0], [=](int lane) {
    uint64_t both = uint64_t(b[lane]) << 32 | a[lane];
    uint32_t out = 0;
    for (int byte = 0; byte < 4; ++byte) {
      uint32_t selector = c[lane] >> (4 * byte) & 0xf;
      auto value = uint32_t(both >> (8 * (selector & 7)) & 0xff);
      if (selector & 8)
        value = value & 0x80 ? 0xff : 0;
      out |= value << (8 * byte);
    }
    return out;
  });
}
void decodePermute(Decoder &d) {
  d.type();
  takeOperands(d, 4, 3);
  d.instruction.action = permute;
}

/// lop3: any function of three bits, with its table as an immediate.
void lookUp(Warp &warp, const Instruction &i) {
  const auto *a = warp.at<uint32_t>(i.at[1]), *b = warp.at<uint32_t>(i.at[2]),
             *c = warp.at<uint32_t>(i.at[3]), *table = warp.at<uint32_t>(i.at[4]);
  each<uint32_t>(warp, i.at[0], [=](int lane) {
    uint32_t out = 0;
    for (int row = 0; row < 8; ++row)
      if (table[lane] >> row & 1)
        out |= (row & 4 ? a[lane] : ~a[lane]) & (row & 2 ? b[lane] : ~b[lane]) &
               (row & 1 ? c[lane] : ~c[lane]);
    return out;
  });
}
void decodeLookUp(Decoder &d) {
  d.type();
  takeOperands(d, 4, 4);
  d.instruction.action = lookUp;
}

} // namespace

const DecodeTable &bitInstructions() {
  static const DecodeTable table = {
      {"and", decodeLogic<std::bit_and<uint64_t>>},
      {"or", decodeLogic<std::bit_or<uint64_t>>},
      {"xor", decodeLogic<std::bit_xor<uint64_t>>},
      {"not", decodeNot<Not>},
      {"cnot", decodeNot<LogicalNot>},
      {"shl", decodeShiftLeft},
      {"shr", decodeShiftRight},
      {"shf", decodeFunnel},
      {"popc", decodeCount<Ones>},
      {"clz", decodeCount<LeadingZeros>},
      {"brev", decodeReverse},
      {"bfind", decodeFindHighest},
      {"bfe", decodeExtract},
      {"bfi", decodeInsert},
      {"prmt", decodePermute},
      {"lop3", decodeLookUp},
  };
  return table;
}

} // namespace tbc::ptx
