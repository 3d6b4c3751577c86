//===- Conversions.cpp - cvt -----------------------------------------------===//
//
// A conversion reads a source value from a register that may have more bits, and writes the
// destination type into a register. Integers are converted as 64-bit integers, and floats as f64,
// which holds all smaller floats. Only conversions between 64-bit integers and f32 are direct.
//
//===----------------------------------------------------------------------===//

#include "tests/ptx/Formats.h"
#include "tests/ptx/Lanes.h"

#include <cfenv>
#include <cmath>
#include <limits>

namespace tbc::ptx {
namespace {

/// Bits of the variant: rounding mode, rounding to an integral value, saturation, flushing.
constexpr uint8_t roundingBits = 7, toIntegral = 8, saturates = 16, flushes = 32;

template <typename T> double toDouble(T value) {
  if constexpr (std::is_class_v<T>)
    return double(value);
  else
    return double(value);
}

double integral(double x, Rounding rounding) {
  switch (rounding) {
  case Rounding::Zero:
    return std::trunc(x);
  case Rounding::Down:
    return std::floor(x);
  case Rounding::Up:
    return std::ceil(x);
  default:
    return std::nearbyint(x);
  }
}

/// Returns the value of type From in lane `lane` of a register with Register's width.
template <typename From, typename Register>
From readAs(Warp &warp, const Instruction &i, int lane) {
  From value;
  std::memcpy(&value, warp.at<Register>(i.at[1]) + lane, sizeof value);
  return value;
}
/// Writes the value, sign- or zero-extended to the register.
template <typename Register, typename F> void writeAs(Warp &warp, const Instruction &i, F value) {
  each<Register>(warp, i.at[0], [&](int lane) { return Register(value(lane)); });
}

template <typename To, typename From, typename ToRegister, typename FromRegister>
void integerToInteger(Warp &warp, const Instruction &i) {
  writeAs<ToRegister>(warp, i, [&](int lane) {
    From value = readAs<From, FromRegister>(warp, i, lane);
    if (!(i.variant & saturates))
      return To(value);
    __extension__ using Wide = __int128;
    Wide wide = value;
    wide = std::max<Wide>(wide, std::numeric_limits<To>::min());
    return To(std::min<Wide>(wide, std::numeric_limits<To>::max()));
  });
}

/// Saturates. NaN becomes 0, or for 64-bit integers only the highest bit set.
template <typename To> To toInteger(double x) {
  if (std::isnan(x))
    return sizeof(To) == 8 ? To(uint64_t(1) << 63) : To(0);
  constexpr double low = double(std::numeric_limits<To>::min());
  const double high = std::ldexp(1.0, std::numeric_limits<To>::digits); // largest + 1
  return x <= low    ? std::numeric_limits<To>::min()
         : x >= high ? std::numeric_limits<To>::max()
                     : To(x);
}
template <typename To, typename From, typename ToRegister>
void floatToInteger(Warp &warp, const Instruction &i) {
  const From *a = warp.at<From>(i.at[1]);
  auto rounding = Rounding(i.variant & roundingBits);
  writeAs<ToRegister>(warp, i, [&](int lane) {
    double x = toDouble(a[lane]);
    if ((i.variant & flushes) && std::fabs(x) < 0x1p-126)
      x = 0;
    return toInteger<To>(integral(x, rounding));
  });
}

template <typename To> To fromDouble(double x, const Instruction &i) {
  auto rounding = Rounding(i.variant & roundingBits);
  if (i.variant & toIntegral)
    x = integral(x, rounding);
  if (i.variant & saturates)
    x = x > 0 ? std::min(x, 1.0) : 0.0;
  if constexpr (std::is_same_v<To, double>)
    return x;
  else if constexpr (std::is_same_v<To, float>) {
    if ((i.variant & flushes) && std::fabs(x) < 0x1p-126)
      return std::copysign(0.0F, float(x));
    if (rounding == Rounding::Nearest || (i.variant & toIntegral))
      return float(x);
    uint32_t pattern = encode(x, floatFormat, rounding);
    float out;
    std::memcpy(&out, &pattern, sizeof out);
    return out;
  } else {
    To out;
    out.pattern =
        uint16_t(encode(x, std::is_same_v<To, Half> ? halfFormat : brainFormat, rounding));
    return out;
  }
}
template <typename To, typename From> void floatToFloat(Warp &warp, const Instruction &i) {
  const From *a = warp.at<From>(i.at[1]);
  each<To>(warp, i.at[0], [&](int lane) { return fromDouble<To>(toDouble(a[lane]), i); });
}
template <typename To, typename From, typename FromRegister>
void integerToFloat(Warp &warp, const Instruction &i) {
  static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  From values[warpLanes];
  for (int lane = 0; lane < warpLanes; ++lane)
    values[lane] = readAs<From, FromRegister>(warp, i, lane);
  To out[warpLanes];
  if constexpr (std::is_floating_point_v<To>) {
    std::fesetround(modes[i.variant & roundingBits]);
    for (int lane = 0; lane < warpLanes; ++lane) {
      volatile From value = values[lane];
      volatile To converted = To(value);
      out[lane] = converted;
    }
    std::fesetround(FE_TONEAREST);
  } else {
    for (int lane = 0; lane < warpLanes; ++lane)
      out[lane] = fromDouble<To>(double(values[lane]), i);
  }
  each<To>(warp, i.at[0], [&](int lane) { return out[lane]; });
}

//===----------------------------------------------------------------------===//
// Two values at once
//===----------------------------------------------------------------------===//

/// Packs d = {a, b} with a in the upper half. Offset: the bits of each.
template <const Format *format> void packFloats(Warp &warp, const Instruction &i) {
  const auto *a = warp.at<float>(i.at[1]), *b = warp.at<float>(i.at[2]);
  auto rounding = Rounding(i.variant & roundingBits);
  constexpr int bits = 1 + format->exponentBits + format->fractionBits;
  auto code = [&](float x) {
    if (i.variant & flushes) // .relu
      x = x > 0 || std::isnan(x) ? x : 0.0F;
    return encode(double(x), *format, rounding, i.variant & saturates);
  };
  auto both = [&](int lane) { return code(a[lane]) << bits | code(b[lane]); };
  if constexpr (bits == 8)
    each<uint16_t>(warp, i.at[0], both);
  else
    each<uint32_t>(warp, i.at[0], both);
}
template <const Format *format> void unpackToHalves(Warp &warp, const Instruction &i) {
  const auto *a = warp.at<uint16_t>(i.at[1]);
  each<uint32_t>(warp, i.at[0], [=](int lane) {
    auto half = [&](uint32_t code) {
      return encode(decode(code & 0xff, *format), halfFormat, Rounding::Nearest);
    };
    return half(a[lane] >> 8U) << 16 | half(a[lane]);
  });
}
void toTf32(Warp &warp, const Instruction &i) {
  const auto *a = warp.at<float>(i.at[1]);
  auto rounding = Rounding(i.variant & roundingBits);
  each<uint32_t>(warp, i.at[0], [=](int lane) {
    return encode(double(a[lane]), tf32Format, rounding) << (23 - tf32Format.fractionBits);
  });
}

bool decodePairs(Decoder &d, Type to, Type from) {
  Instruction &i = d.instruction;
  bool isRelu = d.take("relu");
  i.variant |= isRelu ? flushes : 0;
  if (to == Type::TF32) {
    takeOperands(d, 4, 1);
    i.action = toTf32;
    return true;
  }
  if (from == Type::E4M3x2 || from == Type::E5M2x2) {
    if (to != Type::F16x2 || isRelu)
      return false;
    i.at[0] = d.write(0, 4), i.at[1] = d.read(1, 2);
    i.action = from == Type::E4M3x2 ? unpackToHalves<&e4m3Format> : unpackToHalves<&e5m2Format>;
    return true;
  }
  bool isTo = to == Type::F16x2 || to == Type::BF16x2 || to == Type::E4M3x2 || to == Type::E5M2x2;
  if (!isTo || from != Type::F32)
    return false;
  i.at[0] = d.write(0, bytesOf(to)), i.at[1] = d.read(1, 4), i.at[2] = d.read(2, 4);
  i.action = to == Type::F16x2    ? packFloats<&halfFormat>
             : to == Type::BF16x2 ? packFloats<&brainFormat>
             : to == Type::E4M3x2 ? packFloats<&e4m3Format>
                                  : packFloats<&e5m2Format>;
  return true;
}

//===----------------------------------------------------------------------===//
// Choice by type
//===----------------------------------------------------------------------===//

template <typename F> auto withInteger(Type type, F f) {
  switch (type) {
  case Type::U8:
    return f(uint8_t());
  case Type::S8:
    return f(int8_t());
  case Type::U16:
    return f(uint16_t());
  case Type::S16:
    return f(int16_t());
  case Type::U32:
    return f(uint32_t());
  case Type::S32:
    return f(int32_t());
  case Type::U64:
    return f(uint64_t());
  default:
    return f(int64_t());
  }
}
template <typename F> auto withFloat(Type type, F f) {
  switch (type) {
  case Type::F16:
    return f(Half());
  case Type::BF16:
    return f(Brain());
  case Type::F32:
    return f(float());
  default:
    return f(double());
  }
}
/// Calls `f` with a register type of this width, with the signedness of the value's type.
template <typename F> auto withRegister(int bytes, bool isSigned, F f) {
  return bytes == 2   ? (isSigned ? f(int16_t()) : f(uint16_t()))
         : bytes == 4 ? (isSigned ? f(int32_t()) : f(uint32_t()))
                      : (isSigned ? f(int64_t()) : f(uint64_t()));
}

Action actionOf(Type to, Type from, int toBytes, int fromBytes) {
  if (isFloat(to) && isFloat(from))
    return withFloat(to, [&](auto t) -> Action {
      return withFloat(from,
                       [&](auto f) -> Action { return floatToFloat<decltype(t), decltype(f)>; });
    });
  if (isFloat(to))
    return withFloat(to, [&](auto t) -> Action {
      return withInteger(from, [&](auto f) -> Action {
        return withRegister(fromBytes, false, [&](auto r) -> Action {
          return integerToFloat<decltype(t), decltype(f), decltype(r)>;
        });
      });
    });
  if (isFloat(from))
    return withInteger(to, [&](auto t) -> Action {
      return withFloat(from, [&](auto f) -> Action {
        return withRegister(toBytes, isSigned(to), [&](auto r) -> Action {
          return floatToInteger<decltype(t), decltype(f), decltype(r)>;
        });
      });
    });
  return withInteger(to, [&](auto t) -> Action {
    return withInteger(from, [&](auto f) -> Action {
      return withRegister(toBytes, isSigned(to), [&](auto r) -> Action {
        return withRegister(fromBytes, false, [&](auto s) -> Action {
          return integerToInteger<decltype(t), decltype(f), decltype(r), decltype(s)>;
        });
      });
    });
  });
}

void decodeConvert(Decoder &d) {
  Instruction &i = d.instruction;
  static const std::map<std::string, uint8_t> roundings = {
      {"rn", uint8_t(Rounding::Nearest)},
      {"rz", uint8_t(Rounding::Zero)},
      {"rm", uint8_t(Rounding::Down)},
      {"rp", uint8_t(Rounding::Up)},
      {"rna", uint8_t(Rounding::NearestAway)},
      {"rni", uint8_t(uint8_t(Rounding::Nearest) | toIntegral)},
      {"rzi", uint8_t(uint8_t(Rounding::Zero) | toIntegral)},
      {"rmi", uint8_t(uint8_t(Rounding::Down) | toIntegral)},
      {"rpi", uint8_t(uint8_t(Rounding::Up) | toIntegral)}};
  std::vector<std::string> names;
  for (const auto &[name, bits] : roundings)
    names.push_back(name);
  if (std::string name = d.oneOf(names, "none"); name != "none")
    i.variant = roundings.at(name);
  i.variant |= d.take("sat") || d.take("satfinite") ? saturates : 0;
  i.variant |= d.take("ftz") ? flushes : 0;
  Type to = d.type(), from = d.type();
  if (decodePairs(d, to, from))
    return;
  auto isPlain = [](Type type) { return isFloat(type) || (type >= Type::U8 && type <= Type::S64); };
  if (!isPlain(to) || !isPlain(from))
    d.fail("cvt between these types");
  // A register may have more bits than the type.
  int toBytes = d.operand(0).width, fromBytes = std::max(d.operand(1).width, 2);
  if (d.operand(1).kind == Operand::Kind::Immediate)
    fromBytes = std::max(bytesOf(from), 2);
  if (isFloat(to))
    toBytes = bytesOf(to);
  if (isFloat(from))
    fromBytes = bytesOf(from);
  if (toBytes < bytesOf(to) || fromBytes < bytesOf(from))
    d.fail("cvt of registers that are narrower than its types");
  i.at[0] = d.write(0, toBytes);
  i.at[1] = d.read(1, fromBytes);
  i.action = actionOf(to, from, toBytes, fromBytes);
}

} // namespace

const DecodeTable &conversionInstructions() {
  static const DecodeTable table = {{"cvt", decodeConvert}};
  return table;
}

} // namespace tbc::ptx
