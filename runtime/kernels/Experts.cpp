//===- Experts.cpp - Kernels of a mixture of experts -----------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Experts.h"

#include <algorithm>

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;
using Ints = std::vector<int64_t>;

/// One layer of experts, one expert at a time, in elements of T.
template <typename T> class Layer {
public:
  Layer(const KernelContext &context, const Attrs &attrs, const Tensor &x, const Tensor &weights,
        const Tensor &in, const Tensor &out)
      : context(context), activation(attrs.getString("activation")), gated(attrs.getBool("gated")),
        wide(x.dtype() == DType::F64 ? DType::F64 : DType::F32), x(widened(x)),
        weights(widened(weights)), in(widened(in)), out(widened(out)) {
    require(x.shape().size() == 2 && out.shape().size() == 3,
            "routed_experts needs tokens of rank 2 and experts of rank 3");
    t = x.shape()[0], h = x.shape()[1];
    e = out.shape()[0], o = out.shape()[1], f = out.shape()[2];
    requireShape("the weights", weights.shape(), {t, e});
    requireShape("the first layer", in.shape(), {e, (gated ? 2 : 1) * f, h});
  }

  /// The tokens of expert `expert`, and its intermediate values for them.
  struct Visit {
    Ints tokens;
    std::vector<T> weights;
    Tensor x, in, out, gate, up, activated, inner;
  };
  Visit visit(int64_t expert) const {
    Visit v;
    const std::vector<T> &w = weights.template data<T>();
    for (int64_t token = 0; token < t; ++token)
      if (w[token * e + expert] != integer<T>(0)) {
        v.tokens.push_back(token);
        v.weights.push_back(w[token * e + expert]);
      }
    if (v.tokens.empty())
      return v;
    v.x = rows(x, v.tokens), v.in = slab(in, expert), v.out = slab(out, expert);
    int64_t count = v.tokens.size();
    v.gate = einsum(v.x, {0, 1}, v.in, {2, 1}, {0, 2}, {count, v.in.shape()[0]});
    if (gated) {
      Tensor both = v.gate;
      v.gate = half(both, 0), v.up = half(both, f);
    }
    v.activated = activate("", {v.gate});
    v.inner = gated ? call("mul", {}, {v.activated, v.up}, v.gate.shape()) : v.activated;
    return v;
  }

  Tensor call(const std::string &op, const Attrs &attrs, const Tensors &inputs, Shape shape) const {
    return findKernel(op)(context, attrs, inputs, {{wide, std::move(shape)}})[0];
  }
  Tensor einsum(const Tensor &a, Ints aLabels, const Tensor &b, Ints bLabels, Ints outLabels,
                Shape shape) const {
    return call("einsum",
                {{"lhs_labels", std::move(aLabels)},
                 {"rhs_labels", std::move(bLabels)},
                 {"out_labels", std::move(outLabels)}},
                {a, b}, std::move(shape));
  }
  /// The activation, or with suffix "_grad" its gradient at inputs {x, dy}.
  Tensor activate(const std::string &suffix, const Tensors &inputs) const {
    bool isGelu = activation == "gelu" || activation == "gelu_tanh";
    Attrs attrs;
    if (isGelu)
      attrs.set("approximate", std::string(activation == "gelu" ? "none" : "tanh"));
    return call((isGelu ? "gelu" : activation) + suffix, attrs, inputs, inputs[0].shape());
  }
  /// The rows of a matrix at `places`.
  Tensor rows(const Tensor &matrix, const Ints &places) const {
    Tensor indices = Tensor::fromInts({DType::I64, {int64_t(places.size())}}, places);
    return call("gather", {{"dim", int64_t(0)}}, {matrix, indices},
                {int64_t(places.size()), matrix.shape()[1]});
  }
  /// `matrix` with row i multiplied by factors[i].
  Tensor scaled(const Tensor &matrix, const std::vector<T> &factors) const {
    Tensor result = matrix;
    std::vector<T> &elements = result.template mutableData<T>();
    int64_t width = matrix.shape()[1];
    for (size_t i = 0; i < elements.size(); ++i)
      elements[i] = elements[i] * factors[i / width];
    return result;
  }
  Tensor widened(const Tensor &tensor) const {
    return Tensor({wide, tensor.shape()}, tensor.template data<T>());
  }

  const KernelContext &context;
  std::string activation;
  bool gated;
  DType wide;
  Tensor x, weights, in, out;
  int64_t t, h, e, o, f;

private:
  /// Matrix `expert` of a tensor of rank 3.
  Tensor slab(const Tensor &stack, int64_t expert) const {
    Shape shape(stack.shape().begin() + 1, stack.shape().end());
    return call("slice", {{"dim", int64_t(0)}, {"offset", expert}, {"size", int64_t(1)}}, {stack},
                {1, shape[0], shape[1]})
        .reshaped(shape);
  }
  Tensor half(const Tensor &both, int64_t offset) const {
    return call("slice", {{"dim", int64_t(1)}, {"offset", offset}, {"size", f}}, {both},
                {both.shape()[0], f});
  }
};

Tensors routedExperts(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                      const Types &resultTypes) {
  requireCounts(inputs, 4, resultTypes, 1);
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Layer<T> layer(context, attrs, inputs[0], inputs[1], inputs[2], inputs[3]);
    requireShape("the result", resultTypes[0].shape, {layer.t, layer.o});
    std::vector<Sum<T>> sums(layer.t * layer.o);
    for (int64_t expert = 0; expert < layer.e; ++expert) {
      auto v = layer.visit(expert);
      if (v.tokens.empty())
        continue;
      int64_t count = v.tokens.size();
      Tensor y = layer.einsum(v.inner, {0, 1}, v.out, {2, 1}, {0, 2}, {count, layer.o});
      for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < layer.o; ++j)
          sums[v.tokens[i] * layer.o + j].addProduct(y.data<T>()[i * layer.o + j], v.weights[i]);
    }
    return {makeResult(context, resultTypes[0], resultsOf(sums))};
  });
}

Tensors routedExpertsGrad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                          const Types &resultTypes) {
  requireCounts(inputs, 5, resultTypes, 4);
  for (int i = 0; i < 4; ++i)
    requireShape("a gradient", resultTypes[i].shape, inputs[i + 1].shape());
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Layer<T> layer(context, attrs, inputs[1], inputs[2], inputs[3], inputs[4]);
    requireShape("the cotangent", inputs[0].shape(), {layer.t, layer.o});
    Tensor allDy = layer.widened(inputs[0]);
    std::vector<Sum<T>> dx(layer.t * layer.h);
    std::vector<T> dw(layer.t * layer.e, integer<T>(0)), din, dout;
    for (int64_t expert = 0; expert < layer.e; ++expert) {
      auto v = layer.visit(expert);
      int64_t count = v.tokens.size(), width = layer.in.shape()[1];
      if (count == 0) {
        din.resize(din.size() + width * layer.h, integer<T>(0));
        dout.resize(dout.size() + layer.o * layer.f, integer<T>(0));
        continue;
      }
      Tensor dy = layer.rows(allDy, v.tokens);
      Tensor dInner = layer.einsum(dy, {0, 1}, v.out, {1, 2}, {0, 2}, {count, layer.f});
      for (int64_t i = 0; i < count; ++i) {
        Sum<T> sum;
        for (int64_t j = i * layer.f; j < (i + 1) * layer.f; ++j)
          sum.addProduct(v.inner.template data<T>()[j], dInner.data<T>()[j]);
        dw[v.tokens[i] * layer.e + expert] = sum.result();
      }
      Tensor dOut = layer.einsum(layer.scaled(v.inner, v.weights), {0, 1}, dy, {0, 2}, {2, 1},
                                 {layer.o, layer.f});
      dInner = layer.scaled(dInner, v.weights);
      Tensor dFirst = layer.activate(
          "_grad",
          {v.gate, layer.gated ? layer.call("mul", {}, {dInner, v.up}, dInner.shape()) : dInner});
      if (layer.gated)
        dFirst = layer.call("concat", {{"dim", int64_t(1)}},
                            {dFirst, layer.call("mul", {}, {dInner, v.activated}, dInner.shape())},
                            {count, width});
      Tensor dX = layer.einsum(dFirst, {0, 1}, v.in, {1, 2}, {0, 2}, {count, layer.h});
      for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < layer.h; ++j)
          dx[v.tokens[i] * layer.h + j].add(dX.data<T>()[i * layer.h + j]);
      Tensor dIn = layer.einsum(dFirst, {0, 1}, v.x, {0, 2}, {1, 2}, {width, layer.h});
      din.insert(din.end(), dIn.data<T>().begin(), dIn.data<T>().end());
      dout.insert(dout.end(), dOut.data<T>().begin(), dOut.data<T>().end());
    }
    return {makeResult(context, resultTypes[0], resultsOf(dx)),
            makeResult(context, resultTypes[1], std::move(dw)),
            makeResult(context, resultTypes[2], std::move(din)),
            makeResult(context, resultTypes[3], std::move(dout))};
  });
}

/// The assignment of tokens to slots: the tokens of a group in order, until an expert has no slot
/// left.
struct Deal {
  /// The shapes are tokens[g, t, h], slots[g, e, c, h] and weights[g, t, e].
  Deal(const Shape &tokens, const Shape &slots, const Shape &weights) {
    require(weights.size() == 3 && slots.size() == 4, "tokens are dispatched by weights of rank 3");
    g = weights[0], t = weights[1], e = weights[2], c = slots[2], h = slots[3];
    requireShape("the slots", slots, {g, e, c, h});
    requireShape("the tokens", tokens, {g, t, h});
  }

  /// Calls visit(index in weights, first element of the token, first element of the slot).
  template <typename T, typename Visit>
  void forEach(const Operand<T> &weights, Visit &&visit) const {
    std::vector<int64_t> used(e);
    for (int64_t group = 0; group < g; ++group) {
      std::fill(used.begin(), used.end(), 0);
      for (int64_t token = group * t; token < (group + 1) * t; ++token)
        for (int64_t expert = 0; expert < e; ++expert)
          if (weights[token * e + expert] != integer<T>(0) && used[expert] < c)
            visit(token * e + expert, token * h, ((group * e + expert) * c + used[expert]++) * h);
    }
  }

  int64_t g, t, e, c, h;
};

Tensors dispatchTokens(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                       const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  const Shape &slots = resultTypes[0].shape;
  Deal deal(inputs[0].shape(), slots, inputs[1].shape());
  require(attrs.getInt("capacity") == deal.c, "dispatch needs as many slots as its capacity");
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]), weights(inputs[1]);
    bool weighted = attrs.getBool("weighted");
    std::vector<T> result(deal.g * deal.e * deal.c * deal.h, integer<T>(0));
    deal.forEach(weights, [&](int64_t weight, int64_t token, int64_t slot) {
      for (int64_t i = 0; i < deal.h; ++i)
        result[slot + i] = weighted ? x[token + i] * weights[weight] : x[token + i];
    });
    return {makeResult(context, resultTypes[0], std::move(result))};
  });
}

Tensors combineSlots(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                     const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  Deal deal(resultTypes[0].shape, inputs[0].shape(), inputs[1].shape());
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> slots(inputs[0]), weights(inputs[1]);
    bool weighted = attrs.getBool("weighted");
    std::vector<Sum<T>> sums(deal.g * deal.t * deal.h);
    deal.forEach(weights, [&](int64_t weight, int64_t token, int64_t slot) {
      for (int64_t i = 0; i < deal.h; ++i)
        if (weighted)
          sums[token + i].addProduct(slots[slot + i], weights[weight]);
        else
          sums[token + i].add(slots[slot + i]);
    });
    return {makeResult(context, resultTypes[0], resultsOf(sums))};
  });
}

Tensors combineWeightsGrad(const KernelContext &context, const Attrs &, const Tensors &inputs,
                           const Types &resultTypes) {
  requireCounts(inputs, 3, resultTypes, 1);
  requireShape("the gradient", resultTypes[0].shape, inputs[2].shape());
  Deal deal(inputs[0].shape(), inputs[1].shape(), inputs[2].shape());
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> dy(inputs[0]), slots(inputs[1]), weights(inputs[2]);
    std::vector<T> result(deal.g * deal.t * deal.e, integer<T>(0));
    deal.forEach(weights, [&](int64_t weight, int64_t token, int64_t slot) {
      Sum<T> sum;
      for (int64_t i = 0; i < deal.h; ++i)
        sum.addProduct(dy[token + i], slots[slot + i]);
      result[weight] = sum.result();
    });
    return {makeResult(context, resultTypes[0], std::move(result))};
  });
}

} // namespace

const KernelTable &tbc::kernels::expertKernels() {
  static const KernelTable table = {{"routed_experts", routedExperts},
                                    {"routed_experts_grad", routedExpertsGrad},
                                    {"dispatch", dispatchTokens},
                                    {"combine", combineSlots},
                                    {"combine_weights_grad", combineWeightsGrad}};
  return table;
}
