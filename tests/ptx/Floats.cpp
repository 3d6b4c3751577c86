//===- Floats.cpp - Arithmetic on floats -----------------------------------===//
//
// f32 and f64 use the host's arithmetic, with the instruction's rounding. The 16-bit types compute
// in f64 and round once. Approximations (ex2.approx …) are the exact function, rounded. Devices may
// err by some units in the last place; this is not imitated.
//
//===----------------------------------------------------------------------===//

#include "tests/ptx/Formats.h"
#include "tests/ptx/Lanes.h"

#include <cfenv>

namespace tbc::ptx {
namespace {

template <typename T> constexpr bool isSmall = sizeof(T) == 2;

template <typename Op> struct Computed {
  template <typename T> T operator()(T a) const {
    if constexpr (isSmall<T>)
      return T(double(Op()(double(a))));
    else
      return T(Op()(a));
  }
  template <typename T> T operator()(T a, T b) const {
    if constexpr (isSmall<T>)
      return T(double(Op()(double(a), double(b))));
    else
      return T(Op()(a, b));
  }
};

struct Add {
  template <typename T> T operator()(T a, T b) const { return a + b; }
};
struct Subtract {
  template <typename T> T operator()(T a, T b) const { return a - b; }
};
struct Multiply {
  template <typename T> T operator()(T a, T b) const { return a * b; }
};
struct Divide {
  template <typename T> T operator()(T a, T b) const { return a / b; }
};
struct Fused {
  template <typename T> T operator()(T a, T b, T c) const {
    if constexpr (isSmall<T>)
      return T(fusedToOdd(double(a), double(b), double(c)));
    else
      return std::fma(a, b, c);
  }
};
/// Returns the number if the other operand is NaN; -0 is below +0.
struct Minimum {
  template <typename T> T operator()(T a, T b) const {
    if (a != a || b != b)
      return a != a ? b : a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
  }
};
struct Maximum {
  template <typename T> T operator()(T a, T b) const {
    if (a != a || b != b)
      return a != a ? b : a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
  }
};
/// NaN operands give NaN.
template <typename Op> struct KeepsNan {
  template <typename T> T operator()(T a, T b) const {
    return a != a || b != b ? T(NAN) : Op()(a, b);
  }
};
struct Magnitude {
  template <typename T> T operator()(T a) const { return std::fabs(a); }
};
struct Negate {
  template <typename T> T operator()(T a) const { return -a; }
};
struct SquareRoot {
  template <typename T> T operator()(T a) const { return std::sqrt(a); }
};
struct Reciprocal {
  template <typename T> T operator()(T a) const { return T(1) / a; }
};
struct ReciprocalRoot {
  template <typename T> T operator()(T a) const { return T(1 / std::sqrt(double(a))); }
};
struct Exponential {
  template <typename T> T operator()(T a) const { return T(std::exp2(double(a))); }
};
struct Logarithm {
  template <typename T> T operator()(T a) const { return T(std::log2(double(a))); }
};
struct Sine {
  template <typename T> T operator()(T a) const { return T(std::sin(double(a))); }
};
struct Cosine {
  template <typename T> T operator()(T a) const { return T(std::cos(double(a))); }
};
struct HyperbolicTangent {
  template <typename T> T operator()(T a) const { return T(std::tanh(double(a))); }
};

/// .ftz of f32: subnormal inputs and results become zero.
inline float flushed(float x) { return std::fabs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }
template <typename Op> struct Flush {
  float operator()(float a) const { return flushed(Op()(flushed(a))); }
  float operator()(float a, float b) const { return flushed(Op()(flushed(a), flushed(b))); }
  float operator()(float a, float b, float c) const {
    return flushed(Op()(flushed(a), flushed(b), flushed(c)));
  }
};
/// .sat: clamps to [0, 1]; NaN gives 0.
template <typename Op> struct Saturate {
  template <typename... T> float operator()(T... values) const {
    float x = Op()(values...);
    return x > 0 ? (x < 1 ? x : 1.0F) : 0.0F;
  }
};

//===----------------------------------------------------------------------===//
// fma; the host's library function is slow
//===----------------------------------------------------------------------===//

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void fuse(const float *a, const float *b, const float *c,
                                              float *out) {
  for (int lane = 0; lane < warpLanes; ++lane)
    out[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
}
__attribute__((target("avx2,fma"))) void fuse(const double *a, const double *b, const double *c,
                                              double *out) {
  for (int lane = 0; lane < warpLanes; ++lane)
    out[lane] = __builtin_fma(a[lane], b[lane], c[lane]);
}
template <typename T> void fastFused(Warp &warp, const Instruction &i) {
  T out[warpLanes];
  fuse(warp.at<T>(i.at[1]), warp.at<T>(i.at[2]), warp.at<T>(i.at[3]), out);
  each<T>(warp, i.at[0], [&](int lane) { return out[lane]; });
}
template <typename T> Action fusedAction() {
  static const bool has = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
  return has ? fastFused<T> : ternary<T, Fused>;
}
#else
template <typename T> Action fusedAction() { return ternary<T, Fused>; }
#endif

//===----------------------------------------------------------------------===//
// Other roundings than to nearest
//===----------------------------------------------------------------------===//

/// Runs `inner` with the rounding mode of the variant.
template <Action inner> void inMode(Warp &warp, const Instruction &i) {
  static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  std::fesetround(modes[i.variant]);
  inner(warp, i);
  std::fesetround(FE_TONEAREST);
}

struct Modifiers {
  bool flushes, saturates;
  Rounding rounding;
};
Modifiers takeModifiers(Decoder &d) {
  Modifiers found{d.take("ftz"), d.take("sat"), Rounding::Nearest};
  std::string name = d.oneOf({"rn", "rz", "rm", "rp"}, "none");
  found.rounding = name == "rz"   ? Rounding::Zero
                   : name == "rm" ? Rounding::Down
                   : name == "rp" ? Rounding::Up
                                  : Rounding::Nearest;
  return found;
}

template <int inputs, typename Op> struct WithInputs {
  template <typename T> T operator()(T a) const {
    static_assert(inputs == 1);
    return Computed<Op>()(a);
  }
};
template <typename Op> struct WithInputs<2, Op> {
  template <typename T> T operator()(T a, T b) const { return Computed<Op>()(a, b); }
};
template <typename Op> struct WithInputs<3, Op> {
  template <typename T> T operator()(T a, T b, T c) const { return Op()(a, b, c); }
};

template <typename T, int inputs, typename Op> constexpr Action plainAction() {
  using Whole = WithInputs<inputs, Op>;
  if constexpr (inputs == 1)
    return unary<T, Whole>;
  else if constexpr (inputs == 2)
    return binary<T, Whole>;
  else
    return ternary<T, Whole>;
}

/// Two 16-bit values in a 32-bit register, treated as twice the lanes.
template <typename T, int inputs, typename Op> void packed(Warp &warp, const Instruction &i) {
  using Whole = WithInputs<inputs, Op>;
  const T *a = warp.at<T>(i.at[1]);
  [[maybe_unused]] const T *b = warp.at<T>(i.at[2]), *c = warp.at<T>(i.at[3]);
  T out[2 * warpLanes];
  for (int k = 0; k < 2 * warpLanes; ++k)
    if constexpr (inputs == 3)
      out[k] = Whole()(a[k], b[k], c[k]);
    else if constexpr (inputs == 2)
      out[k] = Whole()(a[k], b[k]);
    else
      out[k] = Whole()(a[k]);
  uint32_t words[warpLanes];
  std::memcpy(words, out, sizeof words);
  each<uint32_t>(warp, i.at[0], [&](int lane) { return words[lane]; });
}

template <int inputs, typename Op> void decodeAs(Decoder &d) {
  Modifiers modifiers = takeModifiers(d);
  Type type = d.type();
  takeOperands(d, bytesOf(type), inputs);
  Action &action = d.instruction.action;
  if (modifiers.rounding != Rounding::Nearest) {
    if (modifiers.flushes || modifiers.saturates)
      d.fail(d.opcode + " with a rounding and .ftz or .sat");
    d.instruction.variant = uint8_t(modifiers.rounding);
    if (type == Type::F32)
      action = inMode<plainAction<float, inputs, Op>()>;
    else if (type == Type::F64)
      action = inMode<plainAction<double, inputs, Op>()>;
    else
      d.fail(d.opcode + " of 16 bits with this rounding");
    return;
  }
  if (modifiers.saturates && type != Type::F32)
    d.fail(d.opcode + ".sat of this type");
  switch (type) {
  case Type::F32:
    action = modifiers.saturates && modifiers.flushes
                 ? plainAction<float, inputs, Saturate<Flush<Op>>>()
             : modifiers.saturates ? plainAction<float, inputs, Saturate<Op>>()
             : modifiers.flushes   ? plainAction<float, inputs, Flush<Op>>()
                                   : plainAction<float, inputs, Op>();
    break;
  case Type::F64:
    action = plainAction<double, inputs, Op>();
    break;
  case Type::F16:
    action = plainAction<Half, inputs, Op>();
    break;
  case Type::BF16:
    action = plainAction<Brain, inputs, Op>();
    break;
  case Type::F16x2:
    action = packed<Half, inputs, Op>;
    break;
  case Type::BF16x2:
    action = packed<Brain, inputs, Op>;
    break;
  default:
    d.fail(d.opcode + " of this type");
  }
}

void decodeFused(Decoder &d) {
  decodeAs<3, Fused>(d);
  if (d.instruction.action == plainAction<float, 3, Fused>())
    d.instruction.action = fusedAction<float>();
  if (d.instruction.action == plainAction<double, 3, Fused>())
    d.instruction.action = fusedAction<double>();
}

template <typename Op> void decodeExtremum(Decoder &d) {
  d.take("NaN") ? decodeAs<2, KeepsNan<Op>>(d) : decodeAs<2, Op>(d);
}
/// div.approx and div.full compute the exact quotient here.
void decodeDivide(Decoder &d) {
  d.take("approx") || d.take("full");
  decodeAs<2, Divide>(d);
}
template <typename Op> void decodeFunction(Decoder &d) {
  d.take("approx");
  decodeAs<1, Op>(d);
}

} // namespace

void decodeFloat(Decoder &d) {
  static const DecodeTable table = {
      {"add", decodeAs<2, Add>},
      {"sub", decodeAs<2, Subtract>},
      {"mul", decodeAs<2, Multiply>},
      {"mad", decodeFused},
      {"div", decodeDivide},
      {"min", decodeExtremum<Minimum>},
      {"max", decodeExtremum<Maximum>},
      {"abs", decodeAs<1, Magnitude>},
      {"neg", decodeAs<1, Negate>},
  };
  auto found = table.find(d.opcode);
  if (found == table.end())
    d.fail(d.opcode + " of floats");
  found->second(d);
}

template <typename T> static void copySign(Warp &warp, const Instruction &i) {
  const T *a = warp.at<T>(i.at[1]), *b = warp.at<T>(i.at[2]);
  each<T>(warp, i.at[0], [=](int lane) { return std::copysign(b[lane], a[lane]); });
}

const DecodeTable &floatInstructions() {
  static const DecodeTable table = {
      {"fma", decodeFused},
      {"sqrt", decodeFunction<SquareRoot>},
      {"rsqrt", decodeFunction<ReciprocalRoot>},
      {"rcp", decodeFunction<Reciprocal>},
      {"ex2", decodeFunction<Exponential>},
      {"lg2", decodeFunction<Logarithm>},
      {"sin", decodeFunction<Sine>},
      {"cos", decodeFunction<Cosine>},
      {"tanh", decodeFunction<HyperbolicTangent>},
      {"copysign",
       [](Decoder &d) {
         Type type = d.type();
         takeOperands(d, bytesOf(type), 2);
         d.instruction.action = type == Type::F32 ? copySign<float> : copySign<double>;
       }},
  };
  return table;
}

} // namespace tbc::ptx
