//===- Vector.h - Vectorized loops over floats ----------------------------===//
//
// Part of tbc. Plain C++. The loops are compiled once per instruction set level; `vectors()`
// returns those for this CPU. runtime/kernels defines the formulas. Sums have 16 partial sums of
// f32 at every level.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_VECTOR_H
#define TBC_RUNTIME_CPU_VECTOR_H

#include <cstdint>
#include <string_view>

namespace tbc::cpu {

/// out[r][i] = f(in[0][i], in[1][i] ...) for i < n; outputs may be inputs.
using ElementLoop = void (*)(const float *const *in, float *const *out, int64_t n,
                             const float *parameters);

struct NamedLoop {
  const char *name;
  int numInputs, numOutputs;
  ElementLoop loop;
};

struct VectorLoops {
  /// Ends with a null name. Special entries:
  ///
  /// - rotate: x1, x2, cos, sin -> y1, y2 with the sign of sin;
  /// - gelu_none, gelu_tanh, ...: gelu and its gradient;
  /// - adamw, adam: p, g, m, v -> p', m', v' with AdamParameters.
  const NamedLoop *elementwise;

  float (*largest)(const float *x, int64_t n); // n >= 1; NaN if an element is
  float (*sum)(const float *x, int64_t n);
  float (*dot)(const float *x, const float *y, int64_t n);
  /// Sets x_i = exp(x_i - m); returns their sum.
  float (*expSum)(float *x, int64_t n, float m);
  /// Returns the sum of exp(x_i - m).
  float (*sumOfExp)(const float *x, int64_t n, float m);
  /// out_i = factor * exp(x_i - m) + term
  void (*scaledExp)(const float *x, float *out, int64_t n, float m, float factor, float term);
  /// x_i = x_i * factor
  void (*scale)(float *x, int64_t n, float factor);
  /// y_i += x_i * factor
  void (*addScaled)(const float *x, float *y, int64_t n, float factor);
  /// ds_i = p_i * (ds_i - d) * factor
  void (*softmaxGrad)(const float *p, float *ds, int64_t n, float d, float factor);
  /// One row of layer_norm: writes y, and mean and rstd to `statistics`.
  void (*layerNorm)(const float *x, const float *w, const float *b, float *y, float *statistics,
                    int64_t n, float epsilon);
  void (*layerNormGrad)(const float *dy, const float *x, const float *w, float *dx, int64_t n,
                        float mean, float rstd);
  /// dw_i += dy_i * (x_i - mean) * rstd
  void (*addNormScale)(const float *dy, const float *x, float *dw, int64_t n, float mean,
                       float rstd);
  /// bf16 as its bits, rounding to nearest even.
  void (*toBF16)(const float *x, uint16_t *bits, int64_t n);
  void (*fromBF16)(const uint16_t *bits, float *x, int64_t n);
};

/// The factors of an Adam step: see runtime/kernels/Optimizer.h.
struct AdamParameters {
  float beta1, oneMinusBeta1, beta2, oneMinusBeta2;
  float epsilon;
  float decay;         // adamw: 1 - lr * weight_decay, of p; adam: weight_decay, in g
  float stepSize;      // lr / (1 - beta1^step)
  float rootOfDebias2; // sqrt(1 - beta2^step)
};

const VectorLoops &vectors();

/// The elementwise loop of this name for this CPU; null if there is none.
const NamedLoop *findElementLoop(std::string_view name);

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_VECTOR_H
