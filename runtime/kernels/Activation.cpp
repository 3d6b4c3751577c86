//===- Activation.cpp - Smooth activations and their gradients -------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Activation.h"

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

bool isTanhForm(const Attrs &attrs) {
  const std::string &approximate = attrs.getString("approximate");
  require(approximate == "none" || approximate == "tanh", [&] {
    return "unknown approximation '" + approximate + "' of gelu; expected none or tanh";
  });
  return approximate == "tanh";
}

template <typename T> struct ErfGelu {
  T one, half, c, k;

  explicit ErfGelu(DType dtype)
      : one(integer<T>(1)), half(real<T>(0.5)), c(compositeConstant<T>(dtype, 0.7071067811865476)),
        k(compositeConstant<T>(dtype, 1.1283791670955126)) {}

  T value(T x) const { return half * x * (one + erfOf(x * c)); }
  T derivative(T x) const {
    T u = x * c;
    return half * (one + erfOf(u)) + half * x * c * k * expOf(-(u * u));
  }
};

template <typename T> struct TanhGelu {
  T one, three, half, t, a;

  explicit TanhGelu(DType dtype)
      : one(integer<T>(1)), three(integer<T>(3)), half(real<T>(0.5)),
        t(compositeConstant<T>(dtype, 0.7978845608028654)),
        a(compositeConstant<T>(dtype, 0.044715)) {}

  T inner(T x) const { return t * (x + a * x * x * x); }
  T value(T x) const { return half * x * (one + tanhOf(inner(x))); }
  T derivative(T x) const {
    T h = tanhOf(inner(x));
    return half * (one + h) + half * x * (one - h * h) * t * (one + three * a * x * x);
  }
};

template <typename T> struct Silu {
  T one;

  explicit Silu(DType) : one(integer<T>(1)) {}

  T value(T x) const { return x * sigmoidOf(x); }
  T derivative(T x) const {
    T s = sigmoidOf(x);
    return s + x * s * (one - s);
  }
};

template <template <typename> class Function>
Tensors forward(const KernelContext &context, const Tensors &inputs, const Types &resultTypes) {
  requireCounts(inputs, 1, resultTypes, 1);
  requireShape("the result", resultTypes[0].shape, inputs[0].shape());
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Function<T> function(inputs[0].dtype());
    Operand<T> x(inputs[0]);
    std::vector<T> y(x.size());
    for (int64_t i = 0; i < x.size(); ++i)
      y[i] = function.value(x[i]);
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

template <template <typename> class Function>
Tensors backward(const KernelContext &context, const Tensors &inputs, const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  requireShape("dy", inputs[1].shape(), inputs[0].shape());
  requireShape("the result", resultTypes[0].shape, inputs[0].shape());
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Function<T> function(inputs[0].dtype());
    Operand<T> x(inputs[0]), dy(inputs[1]);
    std::vector<T> dx(x.size());
    for (int64_t i = 0; i < x.size(); ++i)
      dx[i] = dy[i] * function.derivative(x[i]);
    return {makeResult(context, resultTypes[0], std::move(dx))};
  });
}

Tensors gelu(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
             const Types &resultTypes) {
  return isTanhForm(attrs) ? forward<TanhGelu>(context, inputs, resultTypes)
                           : forward<ErfGelu>(context, inputs, resultTypes);
}

Tensors geluGrad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                 const Types &resultTypes) {
  return isTanhForm(attrs) ? backward<TanhGelu>(context, inputs, resultTypes)
                           : backward<ErfGelu>(context, inputs, resultTypes);
}

Tensors silu(const KernelContext &context, const Attrs &, const Tensors &inputs,
             const Types &resultTypes) {
  return forward<Silu>(context, inputs, resultTypes);
}

Tensors siluGrad(const KernelContext &context, const Attrs &, const Tensors &inputs,
                 const Types &resultTypes) {
  return backward<Silu>(context, inputs, resultTypes);
}

Tensors swiglu(const KernelContext &context, const Attrs &, const Tensors &inputs,
               const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  requireShape("up", inputs[1].shape(), inputs[0].shape());
  requireShape("the result", resultTypes[0].shape, inputs[0].shape());
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Silu<T> function(inputs[0].dtype());
    Operand<T> gate(inputs[0]), up(inputs[1]);
    std::vector<T> y(gate.size());
    for (int64_t i = 0; i < gate.size(); ++i)
      y[i] = function.value(gate[i]) * up[i];
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

Tensors swigluGrad(const KernelContext &context, const Attrs &, const Tensors &inputs,
                   const Types &resultTypes) {
  requireCounts(inputs, 3, resultTypes, 2);
  requireShape("up", inputs[1].shape(), inputs[0].shape());
  requireShape("dy", inputs[2].shape(), inputs[0].shape());
  for (const TensorType &type : resultTypes)
    requireShape("the result", type.shape, inputs[0].shape());
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Silu<T> function(inputs[0].dtype());
    Operand<T> gate(inputs[0]), up(inputs[1]), dy(inputs[2]);
    std::vector<T> dgate(gate.size()), dup(gate.size());
    for (int64_t i = 0; i < gate.size(); ++i) {
      dgate[i] = dy[i] * up[i] * function.derivative(gate[i]);
      dup[i] = dy[i] * function.value(gate[i]);
    }
    return {makeResult(context, resultTypes[0], std::move(dgate)),
            makeResult(context, resultTypes[1], std::move(dup))};
  });
}

} // namespace

const KernelTable &tbc::kernels::activationKernels() {
  static const KernelTable table = {{"gelu", gelu},     {"gelu_grad", geluGrad},
                                    {"silu", silu},     {"silu_grad", siluGrad},
                                    {"swiglu", swiglu}, {"swiglu_grad", swigluGrad}};
  return table;
}
