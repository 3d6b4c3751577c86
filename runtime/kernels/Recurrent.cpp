//===- Recurrent.cpp - Kernels of recurrent networks -----------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Recurrent.h"

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

/// Sizes and the order of the steps, read off the gates [s, b, count * h].
struct Recurrence {
  Recurrence(const Attrs &attrs, const Tensor &gates, int64_t count)
      : count(count), reverse(attrs.getBool("reverse")) {
    require(gates.shape().size() == 3 && gates.shape()[2] % count == 0,
            "the gates of a recurrence have the shape [s, b, gates * h]");
    s = gates.shape()[0], b = gates.shape()[1], h = gates.shape()[2] / count;
  }
  int64_t count, s = 0, b = 0, h = 0;
  bool reverse;

  /// The index in time of step `i`.
  int64_t step(int64_t i) const { return reverse ? s - 1 - i : i; }
  Shape states() const { return {s, b, h}; }
  Shape state() const { return {b, h}; }
  Shape gates() const { return {s, b, count * h}; }
  Shape weight() const { return {count * h, h}; }
  /// The index of an element of a step: in states, and of gate `gate` in gates.
  int64_t at(int64_t t, int64_t sample, int64_t i) const { return (t * b + sample) * h + i; }
  int64_t gate(int64_t t, int64_t sample, int64_t number, int64_t i) const {
    return ((t * b + sample) * count + number) * h + i;
  }
};

template <typename T> T complement(T x) { return integer<T>(1) - x; }
template <typename T> T sigmoidGrad(T y, T dy) { return dy * (y * complement(y)); }
template <typename T> T tanhGrad(T y, T dy) { return dy * complement(y * y); }

/// Row `row` of R times the state of a sample.
template <typename T> T product(const Operand<T> &weight, int64_t row, const T *state, int64_t h) {
  Sum<T> sum;
  for (int64_t k = 0; k < h; ++k)
    sum.addProduct(state[k], weight[row * h + k]);
  return sum.result();
}

/// Column `column` of rows [first, last) of R, times `gates` of those rows.
template <typename T>
T transposed(const Operand<T> &weight, int64_t first, int64_t last, int64_t column, const T *gates,
             int64_t h) {
  Sum<T> sum;
  for (int64_t row = first; row < last; ++row)
    sum.addProduct(gates[row - first], weight[row * h + column]);
  return sum.result();
}

Tensors lstm(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
             const Types &resultTypes) {
  requireCounts(inputs, 4, resultTypes, 3);
  Recurrence n(attrs, inputs[0], 4);
  requireShape("the weight", inputs[1].shape(), n.weight());
  requireShape("the first state", inputs[2].shape(), n.state());
  requireShape("the first cell", inputs[3].shape(), n.state());
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]), weight(inputs[1]), first(inputs[2]), firstCell(inputs[3]);
    std::vector<T> states(n.s * n.b * n.h), cells(states.size()), gates(4 * states.size());
    std::vector<T> h(first.begin(), first.begin() + first.size());
    std::vector<T> c(firstCell.begin(), firstCell.begin() + firstCell.size());
    for (int64_t step = 0; step < n.s; ++step) {
      int64_t t = n.step(step);
      std::vector<T> next(h.size());
      for (int64_t sample = 0; sample < n.b; ++sample)
        for (int64_t j = 0; j < n.h; ++j) {
          T sums[4];
          for (int64_t g = 0; g < 4; ++g)
            sums[g] =
                x[n.gate(t, sample, g, j)] + product(weight, g * n.h + j, &h[sample * n.h], n.h);
          T i = sigmoidOf(sums[0]), o = sigmoidOf(sums[1]), f = sigmoidOf(sums[2]);
          T g = tanhOf(sums[3]), &cell = c[sample * n.h + j];
          cell = f * cell + i * g;
          next[sample * n.h + j] = o * tanhOf(cell);
          cells[n.at(t, sample, j)] = cell;
          const T all[] = {i, o, f, g};
          for (int64_t number = 0; number < 4; ++number)
            gates[n.gate(t, sample, number, j)] = all[number];
        }
      h = next;
      std::copy(h.begin(), h.end(), &states[n.at(t, 0, 0)]);
    }
    return {makeResult(context, resultTypes[0], std::move(states)),
            makeResult(context, resultTypes[1], std::move(cells)),
            makeResult(context, resultTypes[2], std::move(gates))};
  });
}

Tensors lstmGrad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                 const Types &resultTypes) {
  requireCounts(inputs, 6, resultTypes, 3);
  Recurrence n(attrs, inputs[5], 4);
  for (int i : {0, 1, 4})
    requireShape("a value per step", inputs[i].shape(), n.states());
  requireShape("the weight", inputs[2].shape(), n.weight());
  requireShape("the first cell", inputs[3].shape(), n.state());
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> dy(inputs[0]), dcells(inputs[1]), weight(inputs[2]), firstCell(inputs[3]);
    Operand<T> cells(inputs[4]), gates(inputs[5]);
    std::vector<T> dgates(gates.size()), dh(n.b * n.h, integer<T>(0)), dc = dh;
    for (int64_t step = n.s; step-- > 0;) {
      int64_t t = n.step(step);
      for (int64_t sample = 0; sample < n.b; ++sample) {
        for (int64_t j = 0; j < n.h; ++j) {
          int64_t at = n.at(t, sample, j), here = sample * n.h + j;
          T before = step == 0 ? firstCell[here] : cells[n.at(n.step(step - 1), sample, j)];
          auto gate = [&](int64_t number) { return n.gate(t, sample, number, j); };
          T i = gates[gate(0)], o = gates[gate(1)], f = gates[gate(2)], g = gates[gate(3)];
          T tanhC = tanhOf(cells[at]), dState = dy[at] + dh[here];
          T dCell = dcells[at] + dc[here] + tanhGrad(tanhC, dState * o);
          dgates[gate(0)] = sigmoidGrad(i, dCell * g);
          dgates[gate(1)] = sigmoidGrad(o, dState * tanhC);
          dgates[gate(2)] = sigmoidGrad(f, dCell * before);
          dgates[gate(3)] = tanhGrad(g, dCell * i);
          dc[here] = dCell * f;
        }
        for (int64_t k = 0; k < n.h; ++k)
          dh[sample * n.h + k] =
              transposed(weight, 0, 4 * n.h, k, &dgates[n.gate(t, sample, 0, 0)], n.h);
      }
    }
    return {makeResult(context, resultTypes[0], std::move(dgates)),
            makeResult(context, resultTypes[1], std::move(dh)),
            makeResult(context, resultTypes[2], std::move(dc))};
  });
}

Tensors gru(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
            const Types &resultTypes) {
  requireCounts(inputs, 4, resultTypes, 3);
  Recurrence n(attrs, inputs[0], 3);
  requireShape("the weight", inputs[1].shape(), n.weight());
  requireShape("the bias", inputs[2].shape(), {n.h});
  requireShape("the first state", inputs[3].shape(), n.state());
  bool resetAfter = attrs.getBool("reset_after");
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]), weight(inputs[1]), bias(inputs[2]), first(inputs[3]);
    std::vector<T> states(n.s * n.b * n.h), products(states.size()), gates(3 * states.size());
    std::vector<T> h(first.begin(), first.begin() + first.size());
    for (int64_t step = 0; step < n.s; ++step) {
      int64_t t = n.step(step);
      std::vector<T> next(h.size());
      for (int64_t sample = 0; sample < n.b; ++sample) {
        const T *state = &h[sample * n.h];
        T *u = &products[n.at(t, sample, 0)];
        auto gate = [&](int64_t number, int64_t j) { return n.gate(t, sample, number, j); };
        for (int64_t number = 0; number < 2; ++number)
          for (int64_t j = 0; j < n.h; ++j)
            gates[gate(number, j)] =
                sigmoidOf(x[gate(number, j)] + product(weight, number * n.h + j, state, n.h));
        for (int64_t j = 0; j < n.h; ++j)
          u[j] = resetAfter ? product(weight, 2 * n.h + j, state, n.h) + bias[j]
                            : gates[gate(1, j)] * state[j];
        for (int64_t j = 0; j < n.h; ++j) {
          T inside = resetAfter ? gates[gate(1, j)] * u[j]
                                : product(weight, 2 * n.h + j, u, n.h) + bias[j];
          T candidate = tanhOf(x[gate(2, j)] + inside), z = gates[gate(0, j)];
          gates[gate(2, j)] = candidate;
          next[sample * n.h + j] = complement(z) * candidate + z * state[j];
        }
      }
      h = next;
      std::copy(h.begin(), h.end(), &states[n.at(t, 0, 0)]);
    }
    return {makeResult(context, resultTypes[0], std::move(states)),
            makeResult(context, resultTypes[1], std::move(gates)),
            makeResult(context, resultTypes[2], std::move(products))};
  });
}

Tensors gruGrad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                const Types &resultTypes) {
  requireCounts(inputs, 6, resultTypes, 3);
  Recurrence n(attrs, inputs[4], 3);
  for (int i : {0, 3, 5})
    requireShape("a value per step", inputs[i].shape(), n.states());
  requireShape("the weight", inputs[1].shape(), n.weight());
  requireShape("the first state", inputs[2].shape(), n.state());
  bool resetAfter = attrs.getBool("reset_after");
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> dy(inputs[0]), weight(inputs[1]), first(inputs[2]), states(inputs[3]);
    Operand<T> gates(inputs[4]), products(inputs[5]);
    std::vector<T> dgates(gates.size()), dproducts(states.size());
    std::vector<T> dh(n.b * n.h, integer<T>(0)), dReset(n.h);
    for (int64_t step = n.s; step-- > 0;) {
      int64_t t = n.step(step);
      for (int64_t sample = 0; sample < n.b; ++sample) {
        T *du = &dproducts[n.at(t, sample, 0)], *dState = &dh[sample * n.h];
        auto gate = [&](int64_t number, int64_t j) { return n.gate(t, sample, number, j); };
        auto before = [&](int64_t j) {
          return step == 0 ? first[sample * n.h + j] : states[n.at(n.step(step - 1), sample, j)];
        };
        for (int64_t j = 0; j < n.h; ++j) {
          T z = gates[gate(0, j)], candidate = gates[gate(2, j)];
          dState[j] = dy[n.at(t, sample, j)] + dState[j];
          dgates[gate(0, j)] = sigmoidGrad(z, dState[j] * (before(j) - candidate));
          dgates[gate(2, j)] = tanhGrad(candidate, dState[j] * complement(z));
          dState[j] = dState[j] * z;
          du[j] = resetAfter ? dgates[gate(2, j)] * gates[gate(1, j)] : dgates[gate(2, j)];
        }
        for (int64_t k = 0; k < n.h; ++k)
          dReset[k] = transposed(weight, 2 * n.h, 3 * n.h, k, du, n.h);
        for (int64_t j = 0; j < n.h; ++j) {
          T r = gates[gate(1, j)];
          T dr = resetAfter ? dgates[gate(2, j)] * products[n.at(t, sample, j)]
                            : dReset[j] * before(j);
          dgates[gate(1, j)] = sigmoidGrad(r, dr);
          dState[j] = dState[j] + (resetAfter ? dReset[j] : dReset[j] * r);
        }
        for (int64_t k = 0; k < n.h; ++k)
          dState[k] = dState[k] + transposed(weight, 0, 2 * n.h, k, &dgates[gate(0, 0)], n.h);
      }
    }
    return {makeResult(context, resultTypes[0], std::move(dgates)),
            makeResult(context, resultTypes[1], std::move(dproducts)),
            makeResult(context, resultTypes[2], std::move(dh))};
  });
}

} // namespace

const KernelTable &tbc::kernels::recurrentKernels() {
  static const KernelTable table = {
      {"gru", gru}, {"gru_grad", gruGrad}, {"lstm", lstm}, {"lstm_grad", lstmGrad}};
  return table;
}
