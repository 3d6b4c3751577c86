//===- Elementwise.cpp - Kernels applied element by element ----------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Elementwise.h"

#include "runtime/dtype/Casts.h"

#include <cmath>

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

//===----------------------------------------------------------------------===//
// The functions
//===----------------------------------------------------------------------===//

// Integer arithmetic is modulo 2^64, because signed overflow is undefined.
int64_t wrapping(uint64_t value) { return int64_t(value); }

struct Neg {
  template <typename T> static T apply(T x) { return -x; }
  static int64_t apply(int64_t x) { return wrapping(0 - uint64_t(x)); }
};
struct Abs {
  template <typename T> static T apply(T x) {
    if constexpr (std::is_floating_point_v<T>)
      return std::fabs(x);
    else
      return isPositive(x) ? x : Neg::apply(x);
  }
};
/// Whether relu keeps `x`: positive values, and NaN, so it stays visible (as in PyTorch).
template <typename T> bool passesRelu(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return !(x <= 0);
  else
    return isPositive(x);
}
struct Relu {
  template <typename T> static T apply(T x) { return passesRelu(x) ? x : integer<T>(0); }
};
struct Exp {
  template <typename T> static T apply(T x) { return expOf(x); }
};
struct Log {
  template <typename T> static T apply(T x) { return logOf(x); }
};
struct Sqrt {
  template <typename T> static T apply(T x) { return sqrtOf(x); }
};
struct Rsqrt {
  template <typename T> static T apply(T x) { return rsqrtOf(x); }
};
struct Reciprocal {
  template <typename T> static T apply(T x) { return integer<T>(1) / x; }
};
struct Tanh {
  template <typename T> static T apply(T x) { return tanhOf(x); }
};
struct Erf {
  template <typename T> static T apply(T x) { return erfOf(x); }
};
struct Sigmoid {
  template <typename T> static T apply(T x) { return sigmoidOf(x); }
};
struct Sin {
  template <typename T> static T apply(T x) { return sinOf(x); }
};
struct Cos {
  template <typename T> static T apply(T x) { return cosOf(x); }
};
struct Atan {
  template <typename T> static T apply(T x) { return atanOf(x); }
};
struct Floor {
  template <typename T> static T apply(T x) { return floorOf(x); }
};
struct Ceil {
  template <typename T> static T apply(T x) { return ceilOf(x); }
};
struct Round {
  template <typename T> static T apply(T x) { return roundOf(x); }
};
struct Not {
  static int64_t apply(int64_t x) { return !x; }
};

struct Add {
  template <typename T> static T apply(T x, T y) { return x + y; }
  static int64_t apply(int64_t x, int64_t y) { return wrapping(uint64_t(x) + uint64_t(y)); }
};
struct Sub {
  template <typename T> static T apply(T x, T y) { return x - y; }
  static int64_t apply(int64_t x, int64_t y) { return wrapping(uint64_t(x) - uint64_t(y)); }
};
struct Mul {
  template <typename T> static T apply(T x, T y) { return x * y; }
  static int64_t apply(int64_t x, int64_t y) { return wrapping(uint64_t(x) * uint64_t(y)); }
};
struct Div {
  template <typename T> static T apply(T x, T y) { return x / y; }
  static int64_t apply(int64_t x, int64_t y) {
    require(y != 0, "integer division by zero");
    return y == -1 ? Neg::apply(x) : x / y;
  }
};
struct Pow {
  template <typename T> static T apply(T x, T y) { return powOf(x, y); }
  static int64_t apply(int64_t x, int64_t y) {
    require(y >= 0, "an integer to a negative power is no integer; cast to a float first");
    int64_t result = 1;
    for (; y; y >>= 1, x = Mul::apply(x, x))
      if (y & 1)
        result = Mul::apply(result, x);
    return result;
  }
};
struct Maximum {
  template <typename T> static T apply(T x, T y) { return larger(x, y); }
};
struct Minimum {
  template <typename T> static T apply(T x, T y) { return smaller(x, y); }
};
struct And {
  static int64_t apply(int64_t x, int64_t y) { return x && y; }
};
struct Or {
  static int64_t apply(int64_t x, int64_t y) { return x || y; }
};
struct BitwiseAnd {
  static int64_t apply(int64_t x, int64_t y) { return x & y; }
};
struct BitwiseOr {
  static int64_t apply(int64_t x, int64_t y) { return x | y; }
};
struct BitwiseXor {
  static int64_t apply(int64_t x, int64_t y) { return x ^ y; }
};
struct ReluGrad {
  template <typename T> static T apply(T x, T dy) { return passesRelu(x) ? dy : integer<T>(0); }
};

//===----------------------------------------------------------------------===//
// The loops
//===----------------------------------------------------------------------===//

template <typename Function, typename T>
Tensors mapUnary(const KernelContext &context, const Tensors &inputs, const Types &resultTypes) {
  const std::vector<T> &x = inputs[0].data<T>();
  std::vector<T> y(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    y[i] = Function::apply(x[i]);
  return {makeResult(context, resultTypes[0], std::move(y))};
}

template <typename Function, typename T>
Tensors mapBinary(const KernelContext &context, const Tensors &inputs, const Types &resultTypes) {
  Operand<T> x(inputs[0]), y(inputs[1]);
  std::vector<T> z(x.size());
  for (size_t i = 0; i < z.size(); ++i)
    z[i] = Function::apply(x[i], y[i]);
  return {makeResult(context, resultTypes[0], std::move(z))};
}

void checkUnary(const Tensors &inputs, const Types &resultTypes) {
  requireCounts(inputs, 1, resultTypes, 1);
  requireShape("the result", resultTypes[0].shape, inputs[0].shape());
}

void checkBinary(const Tensors &inputs, const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  requireShape("the second operand", inputs[1].shape(), inputs[0].shape());
  requireShape("the result", resultTypes[0].shape, inputs[0].shape());
}

template <typename Function>
Tensors unary(const KernelContext &context, const Attrs &, const Tensors &inputs,
              const Types &resultTypes) {
  checkUnary(inputs, resultTypes);
  return dispatch(inputs[0], [&](auto zero) {
    return mapUnary<Function, decltype(zero)>(context, inputs, resultTypes);
  });
}

template <typename Function>
Tensors unaryFloat(const KernelContext &context, const Attrs &, const Tensors &inputs,
                   const Types &resultTypes) {
  checkUnary(inputs, resultTypes);
  return dispatchFloat(inputs[0], [&](auto zero) {
    return mapUnary<Function, decltype(zero)>(context, inputs, resultTypes);
  });
}

template <typename Function>
Tensors unaryInt(const KernelContext &context, const Attrs &, const Tensors &inputs,
                 const Types &resultTypes) {
  checkUnary(inputs, resultTypes);
  return mapUnary<Function, int64_t>(context, inputs, resultTypes);
}

template <typename Function>
Tensors binary(const KernelContext &context, const Attrs &, const Tensors &inputs,
               const Types &resultTypes) {
  checkBinary(inputs, resultTypes);
  return dispatch(inputs[0], [&](auto zero) {
    return mapBinary<Function, decltype(zero)>(context, inputs, resultTypes);
  });
}

/// Divides residues with one inversion per run of equal divisors, because most divisors were
/// broadcast.
template <typename T> Tensors divideResidues(const Tensors &inputs, const Types &resultTypes) {
  const std::vector<T> &x = inputs[0].data<T>(), &y = inputs[1].data<T>();
  std::vector<T> z(x.size());
  T divisor, inverted;
  for (size_t i = 0; i < z.size(); ++i) {
    if (y[i] != divisor)
      divisor = y[i], inverted = inverse(divisor);
    z[i] = x[i] * inverted;
  }
  return {Tensor(resultTypes[0], std::move(z))};
}

Tensors divide(const KernelContext &context, const Attrs &, const Tensors &inputs,
               const Types &resultTypes) {
  checkBinary(inputs, resultTypes);
  return dispatch(inputs[0], [&](auto zero) {
    using T = decltype(zero);
    if constexpr (isResidue<T>)
      return divideResidues<T>(inputs, resultTypes);
    else
      return mapBinary<Div, T>(context, inputs, resultTypes);
  });
}

template <typename Function>
Tensors binaryInt(const KernelContext &context, const Attrs &, const Tensors &inputs,
                  const Types &resultTypes) {
  checkBinary(inputs, resultTypes);
  return mapBinary<Function, int64_t>(context, inputs, resultTypes);
}

//===----------------------------------------------------------------------===//
// Special kernels
//===----------------------------------------------------------------------===//

Tensors detach(const KernelContext &, const Attrs &, const Tensors &inputs,
               const Types &resultTypes) {
  checkUnary(inputs, resultTypes);
  return inputs;
}

Tensors isNan(const KernelContext &, const Attrs &, const Tensors &inputs,
              const Types &resultTypes) {
  checkUnary(inputs, resultTypes);
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    const std::vector<T> &x = inputs[0].data<T>();
    std::vector<int64_t> y(x.size(), 0);
    if constexpr (std::is_floating_point_v<T>)
      for (size_t i = 0; i < x.size(); ++i)
        y[i] = std::isnan(x[i]);
    return {Tensor(resultTypes[0], std::move(y))};
  });
}

/// Whether `predicate` holds for each of x < y, x == y and x > y. NaN is unordered: only "ne"
/// holds.
struct Outcomes {
  bool less, equal, greater, unordered = less && greater;
};

Outcomes parsePredicate(const std::string &predicate) {
  if (predicate == "eq")
    return {false, true, false};
  if (predicate == "ne")
    return {true, false, true};
  if (predicate == "lt")
    return {true, false, false};
  if (predicate == "le")
    return {true, true, false};
  if (predicate == "gt")
    return {false, false, true};
  if (predicate == "ge")
    return {false, true, true};
  throw KernelError("unknown predicate '" + predicate + "'; expected eq, ne, lt, le, gt or ge");
}

Tensors compare(const KernelContext &, const Attrs &attrs, const Tensors &inputs,
                const Types &resultTypes) {
  checkBinary(inputs, resultTypes);
  Outcomes outcomes = parsePredicate(attrs.getString("predicate"));
  return dispatch(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]), y(inputs[1]);
    std::vector<int64_t> z(x.size());
    for (size_t i = 0; i < z.size(); ++i)
      z[i] = less(x[i], y[i])   ? outcomes.less
             : less(y[i], x[i]) ? outcomes.greater
             : x[i] == y[i]     ? outcomes.equal
                                : outcomes.unordered;
    return {Tensor(resultTypes[0], std::move(z))};
  });
}

Tensors select(const KernelContext &context, const Attrs &, const Tensors &inputs,
               const Types &resultTypes) {
  requireCounts(inputs, 3, resultTypes, 1);
  requireShape("the second operand", inputs[1].shape(), inputs[0].shape());
  requireShape("the third operand", inputs[2].shape(), inputs[0].shape());
  const std::vector<int64_t> &pred = inputs[0].data<int64_t>();
  return dispatch(inputs[1], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[1]), y(inputs[2]);
    std::vector<T> z(pred.size());
    for (size_t i = 0; i < z.size(); ++i)
      z[i] = pred[i] ? x[i] : y[i];
    return {makeResult(context, resultTypes[0], std::move(z))};
  });
}

template <typename To, typename From> To castElement(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (isResidue<To>)
    return To::fromInt(int64_t(x)); // the source is an integer: floats are residues already
  else if constexpr (isResidue<From>)
    return To(x.centered());
  else
    return To(x);
}

/// Whether converting `x` to int64_t is defined.
template <typename From> bool fitsInt64(From x) {
  if constexpr (std::is_floating_point_v<From>)
    return x >= From(-0x1p63) && x < From(0x1p63);
  else
    return true;
}

template <typename To, typename From>
std::vector<To> castAll(DType to, const std::vector<From> &x) {
  std::vector<To> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    if constexpr (std::is_same_v<To, int64_t>) {
      // Before truncation: 0.5 is true.
      if (to == DType::Bool) {
        y[i] = !(x[i] == From());
        continue;
      }
      require(!isNaN(x[i]), [&] { return "cannot cast NaN to " + std::string(name(to)); });
      if (!fitsInt64(x[i])) {
        y[i] = castOfTooLarge(to);
        continue;
      }
    }
    y[i] = castElement<To>(x[i]);
  }
  return y;
}

Tensors cast(const KernelContext &context, const Attrs &, const Tensors &inputs,
             const Types &resultTypes) {
  checkUnary(inputs, resultTypes);
  DType to = resultTypes[0].dtype;
  return dispatch(inputs[0], [&](auto from) {
    return dispatch(context.arith, to, [&](auto zero) -> Tensors {
      using From = decltype(from);
      using To = decltype(zero);
      constexpr bool mixes = isResidue<From> != isResidue<To>
                                 ? !std::is_same_v<From, int64_t> && !std::is_same_v<To, int64_t>
                                 : isResidue<From> && !std::is_same_v<From, To>;
      if constexpr (mixes)
        throw KernelError("cannot cast between residues and other floats");
      else
        return {Tensor(resultTypes[0], castAll<To>(to, inputs[0].data<From>()))};
    });
  });
}

} // namespace

const KernelTable &tbc::kernels::elementwiseKernels() {
  static const KernelTable table = {
      {"neg", unary<Neg>, true},
      {"abs", unary<Abs>, true},
      {"relu", unary<Relu>, true},
      {"exp", unaryFloat<Exp>, true},
      {"log", unaryFloat<Log>, true},
      {"sqrt", unaryFloat<Sqrt>, true},
      {"rsqrt", unaryFloat<Rsqrt>, true},
      {"reciprocal", unaryFloat<Reciprocal>, true},
      {"tanh", unaryFloat<Tanh>, true},
      {"erf", unaryFloat<Erf>, true},
      {"sigmoid", unaryFloat<Sigmoid>, true},
      {"sin", unaryFloat<Sin>, true},
      {"cos", unaryFloat<Cos>, true},
      {"atan", unaryFloat<Atan>, true},
      {"floor", unaryFloat<Floor>, true},
      {"ceil", unaryFloat<Ceil>, true},
      {"round", unaryFloat<Round>, true},
      {"is_nan", isNan, true},
      {"not", unaryInt<Not>, true},
      {"add", binary<Add>, true},
      {"sub", binary<Sub>, true},
      {"mul", binary<Mul>, true},
      {"div", divide, true},
      {"pow", binary<Pow>, true},
      {"maximum", binary<Maximum>, true},
      {"minimum", binary<Minimum>, true},
      {"and", binaryInt<And>, true},
      {"or", binaryInt<Or>, true},
      {"bitwise_and", binaryInt<BitwiseAnd>, true},
      {"bitwise_or", binaryInt<BitwiseOr>, true},
      {"bitwise_xor", binaryInt<BitwiseXor>, true},
      {"compare", compare, true},
      {"select", select, true},
      {"cast", cast, true},
      {"relu_grad", binary<ReluGrad>, true},
      {"detach", detach, true},
  };
  return table;
}
