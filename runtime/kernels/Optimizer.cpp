//===- Optimizer.cpp - Parameter updates -----------------------------------===//
//
// Part of tbc. The formulas stand in the header.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Optimizer.h"

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

/// Operands 0 .. numLike - 1 and all results have the shape of the parameter; the others are
/// scalars.
void checkUpdate(const Tensors &inputs, size_t numInputs, size_t numLike, const Types &resultTypes,
                 size_t numResults) {
  requireCounts(inputs, numInputs, resultTypes, numResults);
  for (size_t i = 1; i < numInputs; ++i)
    requireShape("an operand", inputs[i].shape(), i < numLike ? inputs[0].shape() : Shape{});
  for (const TensorType &type : resultTypes)
    requireShape("a result", type.shape, inputs[0].shape());
}

/// Returns the number of the step, from 1.
int64_t stepOf(const Tensor &scalar) {
  const int64_t step = scalar.data<int64_t>()[0];
  require(step >= 1, [&] { return "steps are counted from 1, got " + std::to_string(step); });
  return step;
}

/// Calls fn(W()) for the type W in which an update of `parameter` is computed.
template <typename Fn> auto dispatchWide(const Tensor &parameter, Fn &&fn) {
  return dispatchFloat(parameter, [&](auto zero) {
    if constexpr (isResidue<decltype(zero)>)
      return fn(zero);
    else
      return fn(double());
  });
}

/// A result in the dtype's own rounding: bf16 and f16 are rounded from double once.
template <typename W>
Tensor roundedResult(const KernelContext &context, const TensorType &type,
                     std::vector<W> &&values) {
  if constexpr (isResidue<W>)
    return makeResult(context, type, std::move(values));
  else
    return Tensor::fromDoubles(type, context.arith, values);
}

Tensors sgd(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
            const Types &resultTypes) {
  checkUpdate(inputs, 3, 2, resultTypes, 1);
  return dispatchWide(inputs[0], [&](auto zero) -> Tensors {
    using W = decltype(zero);
    Operand<W> p(inputs[0]), g(inputs[1]), lr(inputs[2]);
    W decay = real<W>(attrs.getDouble("weight_decay", 0));
    std::vector<W> newP(p.size());
    for (int64_t i = 0; i < p.size(); ++i)
      newP[i] = p[i] - lr[0] * (g[i] + decay * p[i]);
    return {roundedResult(context, resultTypes[0], std::move(newP))};
  });
}

Tensors sgdMomentum(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                    const Types &resultTypes) {
  checkUpdate(inputs, 4, 3, resultTypes, 2);
  bool nesterov = attrs.getBool("nesterov", false);
  return dispatchWide(inputs[0], [&](auto zero) -> Tensors {
    using W = decltype(zero);
    Operand<W> p(inputs[0]), g(inputs[1]), buf(inputs[2]), lr(inputs[3]);
    W decay = real<W>(attrs.getDouble("weight_decay", 0));
    W momentum = real<W>(attrs.getDouble("momentum"));
    std::vector<W> newP(p.size()), newBuf(p.size());
    for (int64_t i = 0; i < p.size(); ++i) {
      W gradient = g[i] + decay * p[i];
      newBuf[i] = momentum * buf[i] + gradient;
      newP[i] = p[i] - lr[0] * (nesterov ? gradient + momentum * newBuf[i] : newBuf[i]);
    }
    return {roundedResult(context, resultTypes[0], std::move(newP)),
            roundedResult(context, resultTypes[1], std::move(newBuf))};
  });
}

/// Weight decay acts on the parameter directly (AdamW), or is part of the gradient (Adam).
enum class Decay { Decoupled, InGradient };

template <Decay kind>
Tensors adam(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
             const Types &resultTypes) {
  checkUpdate(inputs, 6, 4, resultTypes, 3);
  const int64_t step = stepOf(inputs[5]);
  return dispatchWide(inputs[0], [&](auto zero) -> Tensors {
    using W = decltype(zero);
    Operand<W> p(inputs[0]), g(inputs[1]), m(inputs[2]), v(inputs[3]), lr(inputs[4]);
    W one = integer<W>(1), epsilon = real<W>(attrs.getDouble("epsilon"));
    W beta1 = real<W>(attrs.getDouble("beta1")), beta2 = real<W>(attrs.getDouble("beta2"));
    W decay = real<W>(attrs.getDouble("weight_decay"));
    W kept = kind == Decay::Decoupled ? one - lr[0] * decay : one;
    Divisor<W> correction1(one - powerOf(beta1, step));
    Divisor<W> correction2(sqrtOf(one - powerOf(beta2, step)));
    std::vector<W> newP(p.size()), newM(p.size()), newV(p.size());
    for (int64_t i = 0; i < p.size(); ++i) {
      W gradient = kind == Decay::InGradient ? g[i] + decay * p[i] : g[i];
      newM[i] = beta1 * m[i] + (one - beta1) * gradient;
      newV[i] = beta2 * v[i] + (one - beta2) * gradient * gradient;
      W denominator = correction2.divide(sqrtOf(newV[i])) + epsilon;
      newP[i] = p[i] * kept - lr[0] * correction1.divide(newM[i]) / denominator;
    }
    return {roundedResult(context, resultTypes[0], std::move(newP)),
            roundedResult(context, resultTypes[1], std::move(newM)),
            roundedResult(context, resultTypes[2], std::move(newV))};
  });
}

Tensors adagrad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                const Types &resultTypes) {
  checkUpdate(inputs, 5, 3, resultTypes, 2);
  const int64_t step = stepOf(inputs[4]);
  return dispatchWide(inputs[0], [&](auto zero) -> Tensors {
    using W = decltype(zero);
    Operand<W> p(inputs[0]), g(inputs[1]), sum(inputs[2]), lr(inputs[3]);
    W decay = real<W>(attrs.getDouble("weight_decay"));
    W epsilon = real<W>(attrs.getDouble("epsilon"));
    W rate = lr[0] / real<W>(1 + double(step - 1) * attrs.getDouble("rate_decay"));
    std::vector<W> newP(p.size()), newSum(p.size());
    for (int64_t i = 0; i < p.size(); ++i) {
      W gradient = g[i] + decay * p[i];
      newSum[i] = sum[i] + gradient * gradient;
      newP[i] = p[i] - rate * gradient / (sqrtOf(newSum[i]) + epsilon);
    }
    return {roundedResult(context, resultTypes[0], std::move(newP)),
            roundedResult(context, resultTypes[1], std::move(newSum))};
  });
}

Tensors divideByRoot(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                     const Types &resultTypes) {
  checkUpdate(inputs, 2, 2, resultTypes, 1);
  return dispatchWide(inputs[0], [&](auto zero) -> Tensors {
    using W = decltype(zero);
    Operand<W> x(inputs[0]), squares(inputs[1]);
    W epsilon = real<W>(attrs.getDouble("epsilon"));
    std::vector<W> divided(x.size());
    for (int64_t i = 0; i < x.size(); ++i)
      divided[i] = x[i] / (sqrtOf(squares[i]) + epsilon);
    return {roundedResult(context, resultTypes[0], std::move(divided))};
  });
}

//===----------------------------------------------------------------------===//
// Muon
//===----------------------------------------------------------------------===//

Tensors muonMomentum(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                     const Types &resultTypes) {
  checkUpdate(inputs, 2, 2, resultTypes, 2);
  bool nesterov = attrs.getBool("nesterov", false);
  return dispatchWide(inputs[0], [&](auto zero) -> Tensors {
    using W = decltype(zero);
    Operand<W> g(inputs[0]), buf(inputs[1]);
    W momentum = real<W>(attrs.getDouble("momentum")), rest = integer<W>(1) - momentum;
    std::vector<W> newBuf(g.size()), direction(g.size());
    for (int64_t i = 0; i < g.size(); ++i) {
      newBuf[i] = momentum * buf[i] + rest * g[i];
      direction[i] = nesterov ? momentum * newBuf[i] + rest * g[i] : newBuf[i];
    }
    return {roundedResult(context, resultTypes[0], std::move(newBuf)),
            roundedResult(context, resultTypes[1], std::move(direction))};
  });
}

/// The partitioner inserts collectives and slices; a single rank has the whole.
Tensors sameMatrices(const KernelContext &, const Attrs &, const Tensors &inputs,
                     const Types &resultTypes) {
  checkUpdate(inputs, 1, 1, resultTypes, 1);
  return inputs;
}

Tensors divideByNorm(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                     const Types &resultTypes) {
  checkUpdate(inputs, 2, 2, resultTypes, 1);
  return dispatchWide(inputs[0], [&](auto zero) -> Tensors {
    using W = decltype(zero);
    Operand<W> x(inputs[0]), squares(inputs[1]);
    W epsilon = real<W>(attrs.getDouble("epsilon"));
    std::vector<W> divided(x.size());
    for (int64_t i = 0; i < x.size(); ++i) {
      W norm = sqrtOf(squares[i]);
      divided[i] = x[i] / (less(norm, epsilon) ? epsilon : norm);
    }
    return {roundedResult(context, resultTypes[0], std::move(divided))};
  });
}

Tensors weightedSum(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                    const Types &resultTypes) {
  checkUpdate(inputs, 2, 2, resultTypes, 1);
  return dispatchWide(inputs[0], [&](auto zero) -> Tensors {
    using W = decltype(zero);
    Operand<W> x(inputs[0]), y(inputs[1]);
    W alpha = real<W>(attrs.getDouble("alpha")), beta = real<W>(attrs.getDouble("beta"));
    std::vector<W> sum(x.size());
    for (int64_t i = 0; i < x.size(); ++i)
      sum[i] = alpha * x[i] + beta * y[i];
    return {roundedResult(context, resultTypes[0], std::move(sum))};
  });
}

Tensors muonStep(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                 const Types &resultTypes) {
  checkUpdate(inputs, 3, 2, resultTypes, 1);
  return dispatchWide(inputs[0], [&](auto zero) -> Tensors {
    using W = decltype(zero);
    Operand<W> p(inputs[0]), direction(inputs[1]), lr(inputs[2]);
    W kept = integer<W>(1) - lr[0] * real<W>(attrs.getDouble("weight_decay"));
    W step = lr[0] * real<W>(attrs.getDouble("scale"));
    std::vector<W> newP(p.size());
    for (int64_t i = 0; i < p.size(); ++i)
      newP[i] = kept * p[i] - step * direction[i];
    return {roundedResult(context, resultTypes[0], std::move(newP))};
  });
}

//===----------------------------------------------------------------------===//
// Adafactor
//===----------------------------------------------------------------------===//

Tensors factoredMoment(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                       const Types &resultTypes) {
  checkUpdate(inputs, 3, 2, resultTypes, 1);
  const double step = double(stepOf(inputs[2]));
  return dispatchWide(inputs[0], [&](auto zero) -> Tensors {
    using W = decltype(zero);
    Operand<W> sums(inputs[0]), moment(inputs[1]);
    W weight = real<W>(std::pow(step, attrs.getDouble("beta2_decay")));
    Divisor<W> count(integer<W>(attrs.getInt("count")));
    std::vector<W> newMoment(sums.size());
    for (int64_t i = 0; i < sums.size(); ++i)
      newMoment[i] = moment[i] + weight * (count.divide(sums[i]) - moment[i]);
    return {roundedResult(context, resultTypes[0], std::move(newMoment))};
  });
}

Tensors factoredDirection(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                          const Types &resultTypes) {
  checkUpdate(inputs, 4, 4, resultTypes, 1);
  return dispatchWide(inputs[0], [&](auto zero) -> Tensors {
    using W = decltype(zero);
    Operand<W> g(inputs[0]), row(inputs[1]), column(inputs[2]), total(inputs[3]);
    W epsilon = real<W>(attrs.getDouble("epsilon")), smallest = epsilon * epsilon;
    Divisor<W> count(integer<W>(attrs.getInt("count")));
    std::vector<W> direction(g.size());
    for (int64_t i = 0; i < g.size(); ++i) {
      W estimate = row[i] * column[i] / larger(count.divide(total[i]), epsilon);
      direction[i] = g[i] / sqrtOf(larger(estimate, smallest));
    }
    return {roundedResult(context, resultTypes[0], std::move(direction))};
  });
}

Tensors rootDirection(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                      const Types &resultTypes) {
  checkUpdate(inputs, 2, 2, resultTypes, 1);
  return dispatchWide(inputs[0], [&](auto zero) -> Tensors {
    using W = decltype(zero);
    Operand<W> g(inputs[0]), moment(inputs[1]);
    W epsilon = real<W>(attrs.getDouble("epsilon")), smallest = epsilon * epsilon;
    std::vector<W> direction(g.size());
    for (int64_t i = 0; i < g.size(); ++i)
      direction[i] = g[i] / sqrtOf(larger(moment[i], smallest));
    return {roundedResult(context, resultTypes[0], std::move(direction))};
  });
}

Tensors adafactorStep(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                      const Types &resultTypes) {
  checkUpdate(inputs, 6, 2, resultTypes, 1);
  const double step = double(stepOf(inputs[5]));
  return dispatchWide(inputs[0], [&](auto zero) -> Tensors {
    using W = decltype(zero);
    Operand<W> p(inputs[0]), direction(inputs[1]), squares(inputs[2]), moved(inputs[3]),
        lr(inputs[4]);
    Divisor<W> count(integer<W>(attrs.getInt("count")));
    W threshold = real<W>(attrs.getDouble("clip_threshold"));
    W size = larger(real<W>(attrs.getDouble("epsilon")), sqrtOf(count.divide(squares[0])));
    W most = real<W>(1 / std::sqrt(step));
    W limit = larger(integer<W>(1), sqrtOf(count.divide(moved[0])) / threshold);
    W rate = size * (less(most, lr[0]) ? most : lr[0]) / limit;
    W kept = integer<W>(1) - lr[0] * real<W>(attrs.getDouble("weight_decay"));
    std::vector<W> newP(p.size());
    for (int64_t i = 0; i < p.size(); ++i)
      newP[i] = kept * p[i] - rate * direction[i];
    return {roundedResult(context, resultTypes[0], std::move(newP))};
  });
}

//===----------------------------------------------------------------------===//
// Ops over all gradients of a step
//===----------------------------------------------------------------------===//

Tensors squareSum(const KernelContext &context, const Attrs &, const Tensors &inputs,
                  const Types &resultTypes) {
  requireCounts(inputs, inputs.size(), resultTypes, 1);
  requireShape("the result", resultTypes[0].shape, {});
  auto total = [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Sum<T> sum;
    for (const Tensor &input : inputs) {
      Operand<T> gradient(input);
      for (int64_t i = 0; i < gradient.size(); ++i)
        sum.addProduct(gradient[i], gradient[i]);
    }
    return {makeResult(context, resultTypes[0], std::vector<T>{sum.result()})};
  };
  if (context.arith == Arith::Residue61)
    return total(Residue());
  return context.arith == Arith::Residue251 ? total(Residue251()) : total(double());
}

/// The partitioner replaces it by square_sum and a sum over ranks; a single rank has the whole.
Tensors squareTotals(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                     const Types &resultTypes) {
  requireCounts(inputs, inputs.size(), resultTypes, inputs.size());
  Tensors totals;
  for (size_t i = 0; i < inputs.size(); ++i)
    totals.push_back(squareSum(context, attrs, {inputs[i]}, {resultTypes[i]}).front());
  return totals;
}

/// Checks in the float's own width: a finite double may overflow in f32.
template <typename T> bool isFinite(const KernelContext &context, T x) {
  if constexpr (std::is_same_v<T, Residue>)
    return x != context.notFinite;
  else if constexpr (isResidue<T>)
    return true; // no residue modulo 251 can be reserved
  else
    return std::isfinite(x);
}

Tensors countNotFinite(const KernelContext &context, const Attrs &, const Tensors &inputs,
                       const Types &resultTypes) {
  requireCounts(inputs, inputs.size(), resultTypes, 1);
  requireShape("the result", resultTypes[0].shape, {});
  int64_t count = 0;
  for (const Tensor &input : inputs)
    dispatchFloat(input, [&](auto zero) {
      for (auto x : input.data<decltype(zero)>())
        count += !isFinite(context, x);
    });
  return dispatch(context.arith, resultTypes[0].dtype, [&](auto zero) -> Tensors {
    using T = decltype(zero);
    return {makeResult(context, resultTypes[0], std::vector<T>{integer<T>(count)})};
  });
}

Tensors updateLossScale(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                        const Types &resultTypes) {
  checkUpdate(inputs, 3, 3, resultTypes, 2);
  requireShape("the scale", inputs[0].shape(), {});
  int64_t tracker = inputs[1].data<int64_t>()[0];
  bool wasFinite = inputs[2].data<int64_t>()[0] != 0;
  bool grows = wasFinite && tracker + 1 == attrs.getInt("growth_interval");
  tracker = wasFinite && !grows ? tracker + 1 : 0;
  Tensor newTracker = Tensor::fromInts(resultTypes[1], {tracker});
  if (wasFinite && !grows)
    return {inputs[0], newTracker};
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    T scale = inputs[0].data<T>()[0];
    T next = scale * real<T>(attrs.getDouble(grows ? "growth_factor" : "backoff_factor"));
    return {
        makeResult(context, resultTypes[0], std::vector<T>{isFinite(context, next) ? next : scale}),
        newTracker};
  });
}

/// The partitioner inserts the sum over ranks; a single rank has the whole.
Tensors stepTotal(const KernelContext &, const Attrs &, const Tensors &inputs,
                  const Types &resultTypes) {
  requireCounts(inputs, inputs.size(), resultTypes, inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    require(inputs[i].type() == resultTypes[i] && inputs[i].shape().empty(),
            "step_total takes scalars and gives the same");
  return inputs;
}

Tensors scaleBy(const KernelContext &context, const Attrs &, const Tensors &inputs,
                const Types &resultTypes) {
  checkUpdate(inputs, 2, 1, resultTypes, 1);
  return dispatchWide(inputs[0], [&](auto zero) -> Tensors {
    using W = decltype(zero);
    Operand<W> x(inputs[0]), factor(inputs[1]);
    std::vector<W> scaled(x.size());
    for (int64_t i = 0; i < x.size(); ++i)
      scaled[i] = x[i] * factor[0];
    return {roundedResult(context, resultTypes[0], std::move(scaled))};
  });
}

Tensors clipValue(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                  const Types &resultTypes) {
  checkUpdate(inputs, 1, 1, resultTypes, 1);
  return dispatchWide(inputs[0], [&](auto zero) -> Tensors {
    using W = decltype(zero);
    Operand<W> x(inputs[0]);
    W high = real<W>(attrs.getDouble("limit")), low = zero - high;
    std::vector<W> clipped(x.size());
    for (int64_t i = 0; i < x.size(); ++i)
      clipped[i] = less(x[i], low) ? low : less(high, x[i]) ? high : x[i];
    return {roundedResult(context, resultTypes[0], std::move(clipped))};
  });
}

Tensors updateIf(const KernelContext &, const Attrs &, const Tensors &inputs,
                 const Types &resultTypes) {
  checkUpdate(inputs, 3, 2, resultTypes, 1);
  return {inputs[inputs[2].data<int64_t>()[0] ? 1 : 0]};
}

} // namespace

const KernelTable &tbc::kernels::optimizerKernels() {
  static const KernelTable table = {{"sgd", sgd, true},
                                    {"sgd_momentum", sgdMomentum, true},
                                    {"adam", adam<Decay::InGradient>, true},
                                    {"adamw", adam<Decay::Decoupled>, true},
                                    {"adagrad", adagrad, true},
                                    {"divide_by_root", divideByRoot, true},
                                    {"muon_momentum", muonMomentum, true},
                                    {"gather_matrices", sameMatrices},
                                    {"shard_matrices", sameMatrices},
                                    {"divide_by_norm", divideByNorm, true},
                                    {"weighted_sum", weightedSum, true},
                                    {"muon_step", muonStep, true},
                                    {"factored_moment", factoredMoment, true},
                                    {"factored_direction", factoredDirection, true},
                                    {"root_direction", rootDirection, true},
                                    {"adafactor_step", adafactorStep, true},
                                    {"square_totals", squareTotals},
                                    {"square_sum", squareSum},
                                    {"count_not_finite", countNotFinite},
                                    {"update_loss_scale", updateLossScale},
                                    {"step_total", stepTotal},
                                    {"scale_by", scaleBy, true},
                                    {"clip_value", clipValue, true},
                                    {"update_if", updateIf, true}};
  return table;
}
