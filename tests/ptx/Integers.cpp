//===- Integers.cpp - Arithmetic on integers -------------------------------===//

#include "tests/ptx/Lanes.h"

#include <algorithm>
#include <type_traits>

namespace tbc::ptx {
namespace {

template <typename T> using Unsigned = std::make_unsigned_t<T>;
__extension__ using Wide = unsigned __int128;
__extension__ using WideSigned = __int128;

struct Add {
  template <typename T> T operator()(T a, T b) const { return T(uint64_t(a) + uint64_t(b)); }
};
struct Subtract {
  template <typename T> T operator()(T a, T b) const { return T(uint64_t(a) - uint64_t(b)); }
};
struct MultiplyLow {
  template <typename T> T operator()(T a, T b) const { return T(uint64_t(a) * uint64_t(b)); }
};
struct MultiplyHigh {
  template <typename T> T operator()(T a, T b) const {
    constexpr int bits = 8 * sizeof(T);
    if constexpr (std::is_signed_v<T>)
      return T((WideSigned(a) * b) >> bits);
    else
      return T((Wide(a) * b) >> bits);
  }
};
struct MultiplyAddLow {
  template <typename T> T operator()(T a, T b, T c) const { return Add()(MultiplyLow()(a, b), c); }
};
struct MultiplyAddHigh {
  template <typename T> T operator()(T a, T b, T c) const { return Add()(MultiplyHigh()(a, b), c); }
};
/// PTX does not specify division by zero. Existing devices return all ones.
struct Divide {
  template <typename T> T operator()(T a, T b) const {
    if (b == 0)
      return T(-1);
    if (std::is_signed_v<T> && b == T(-1))
      return Subtract()(T(0), a);
    return T(a / b);
  }
};
struct Remainder {
  template <typename T> T operator()(T a, T b) const {
    if (b == 0)
      return a;
    if (std::is_signed_v<T> && b == T(-1))
      return 0;
    return T(a % b);
  }
};
struct Minimum {
  template <typename T> T operator()(T a, T b) const { return std::min(a, b); }
};
struct Maximum {
  template <typename T> T operator()(T a, T b) const { return std::max(a, b); }
};
struct Magnitude {
  template <typename T> T operator()(T a) const { return a < 0 ? Subtract()(T(0), a) : a; }
};
struct Negate {
  template <typename T> T operator()(T a) const { return Subtract()(T(0), a); }
};
/// sad: c + |a - b|.
struct SumOfDifferences {
  template <typename T> T operator()(T a, T b, T c) const {
    return Add()(c, a < b ? Subtract()(b, a) : Subtract()(a, b));
  }
};

/// Calls `make` with a value of the type.
template <typename F> Action byType(Decoder &d, Type type, F make) {
  switch (type) {
  case Type::U16:
  case Type::B16:
    return make(uint16_t());
  case Type::S16:
    return make(int16_t());
  case Type::U32:
  case Type::B32:
    return make(uint32_t());
  case Type::S32:
    return make(int32_t());
  case Type::U64:
  case Type::B64:
    return make(uint64_t());
  case Type::S64:
    return make(int64_t());
  default:
    d.fail(d.opcode + " of this type");
  }
}

template <typename Op> void decodeUnary(Decoder &d) {
  if (d.hasFloatType())
    return decodeFloat(d);
  Type type = d.type();
  d.instruction.action =
      byType(d, type, [](auto value) -> Action { return unary<decltype(value), Op>; });
  takeOperands(d, bytesOf(type), 1);
}
template <typename Op> void decodeBinary(Decoder &d) {
  if (d.hasFloatType())
    return decodeFloat(d);
  Type type = d.type();
  d.instruction.action =
      byType(d, type, [](auto value) -> Action { return binary<decltype(value), Op>; });
  takeOperands(d, bytesOf(type), 2);
}
template <typename Op> void decodeTernary(Decoder &d) {
  Type type = d.type();
  d.instruction.action =
      byType(d, type, [](auto value) -> Action { return ternary<decltype(value), Op>; });
  takeOperands(d, bytesOf(type), 3);
}

template <typename To, typename From> void multiplyWide(Warp &warp, const Instruction &i) {
  const From *a = warp.at<From>(i.at[1]), *b = warp.at<From>(i.at[2]);
  each<To>(warp, i.at[0], [=](int lane) { return To(To(a[lane]) * To(b[lane])); });
}
template <typename To, typename From> void multiplyAddWide(Warp &warp, const Instruction &i) {
  const From *a = warp.at<From>(i.at[1]), *b = warp.at<From>(i.at[2]);
  const To *c = warp.at<To>(i.at[3]);
  each<To>(warp, i.at[0], [=](int lane) { return Add()(To(To(a[lane]) * To(b[lane])), c[lane]); });
}

void decodeMultiply(Decoder &d, bool adds) {
  if (d.hasFloatType())
    return decodeFloat(d);
  std::string part = d.oneOf({"lo", "hi", "wide"});
  if (part != "wide") {
    if (adds)
      return part == "lo" ? decodeTernary<MultiplyAddLow>(d) : decodeTernary<MultiplyAddHigh>(d);
    return part == "lo" ? decodeBinary<MultiplyLow>(d) : decodeBinary<MultiplyHigh>(d);
  }
  Type type = d.type();
  int bytes = bytesOf(type);
  auto pick = [&](Action plain, Action adding) { d.instruction.action = adds ? adding : plain; };
  if (type == Type::U32)
    pick(multiplyWide<uint64_t, uint32_t>, multiplyAddWide<uint64_t, uint32_t>);
  else if (type == Type::S32)
    pick(multiplyWide<int64_t, int32_t>, multiplyAddWide<int64_t, int32_t>);
  else if (type == Type::U16)
    pick(multiplyWide<uint32_t, uint16_t>, multiplyAddWide<uint32_t, uint16_t>);
  else if (type == Type::S16)
    pick(multiplyWide<int32_t, int16_t>, multiplyAddWide<int32_t, int16_t>);
  else
    d.fail(d.opcode + ".wide of this type");
  d.instruction.at[0] = d.write(0, 2 * bytes);
  d.instruction.at[1] = d.read(1, bytes);
  d.instruction.at[2] = d.read(2, bytes);
  if (adds)
    d.instruction.at[3] = d.read(3, 2 * bytes);
}

} // namespace

const DecodeTable &integerInstructions() {
  static const DecodeTable table = {
      {"add", decodeBinary<Add>},
      {"sub", decodeBinary<Subtract>},
      {"mul", [](Decoder &d) { decodeMultiply(d, false); }},
      {"mad", [](Decoder &d) { decodeMultiply(d, true); }},
      {"div", decodeBinary<Divide>},
      {"rem", decodeBinary<Remainder>},
      {"min", decodeBinary<Minimum>},
      {"max", decodeBinary<Maximum>},
      {"abs", decodeUnary<Magnitude>},
      {"neg", decodeUnary<Negate>},
      {"sad", decodeTernary<SumOfDifferences>},
  };
  return table;
}

} // namespace tbc::ptx
