//===- VectorLoops.cpp - Vectorized loops over floats ---------------------===//
//
// Compiled once per instruction set level (CMakeLists.txt), each time with other names for its
// exports. It may use no inline function of other headers: the linker keeps one copy of such a
// function, possibly with instructions that a CPU lacks.
//
//===----------------------------------------------------------------------===//

#include "runtime/cpu/Vector.h"

#ifndef TBC_VECTOR_LEVEL
#error "TBC_VECTOR_LEVEL is set by the build"
#endif

namespace tbc::cpu {
namespace {

constexpr int width = 16;
typedef float V __attribute__((vector_size(64)));
typedef float VUnaligned __attribute__((vector_size(64), aligned(4)));
typedef int32_t I __attribute__((vector_size(64)));
typedef uint32_t U __attribute__((vector_size(64)));
typedef uint16_t H __attribute__((vector_size(32)));
typedef uint16_t HUnaligned __attribute__((vector_size(32), aligned(2)));

inline V splat(float x) { return V{} + x; }
inline V load(const float *x) { return *reinterpret_cast<const VUnaligned *>(x); }
inline void store(float *x, V v) { *reinterpret_cast<VUnaligned *>(x) = v; }
inline V loadPart(const float *x, int64_t n, float rest = 0) {
  V v = splat(rest);
  for (int64_t i = 0; i < n; ++i)
    v[i] = x[i];
  return v;
}
inline void storePart(float *x, V v, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    x[i] = v[i];
}
inline V maxOf(V a, V b) { return a < b ? b : a; }
inline V bitsOf(I x) { return reinterpret_cast<V>(x); }

/// Sums the lanes in a fixed tree.
inline float total(V v) {
  for (int half = width / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i)
      v[i] += v[i + half];
  return v[0];
}

//===----------------------------------------------------------------------===//
// Functions. Polynomials: S. L. Moshier, Cephes (expf, tanhf, ndtrf).
//===----------------------------------------------------------------------===//

/// Within 2 ulp; 0 if the result is subnormal.
inline V expOf(V x) {
  V clamped = x < -87.3f ? splat(-87.3f) : x;
  clamped = clamped > 88.8f ? splat(88.8f) : clamped;
  const float magic = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer
  V n = (clamped * 1.44269504088896341f + magic) - magic;
  V r = clamped - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  V p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^n in two steps, so n = 128 overflows only in the product.
  I whole = __builtin_convertvector(n, I);
  I half = whole >> 1;
  V scaled = p * bitsOf((half + 127) << 23) * bitsOf((whole - half + 127) << 23);
  return x < -87.3f ? splat(0.0f) : scaled;
}

inline V absOf(V x) { return bitsOf(reinterpret_cast<I>(x) & 0x7fffffff); }

inline V tanhOf(V x) {
  V z = x * x;
  V p = splat(-5.70498872745e-3f);
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  V near = p * z * x + x;
  V a = absOf(x);
  V far = 1.0f - 2.0f / (expOf(a + a) + 1.0f);
  far = x < 0.0f ? -far : far;
  return a < 0.625f ? near : far;
}

inline V erfOf(V x) {
  V z = x * x;
  V p = splat(7.853861353153693e-5f);
  p = p * z - 8.010193625184903e-4f;
  p = p * z + 5.188327685732524e-3f;
  p = p * z - 2.685381193529856e-2f;
  p = p * z + 1.128358514861418e-1f;
  p = p * z - 3.761262582423300e-1f;
  p = p * z + 1.128379165726710e+0f;
  V near = x * p;
  V a = absOf(x);
  a = a < 1.0f ? splat(1.0f) : a;
  a = a > 9.0f ? splat(9.0f) : a;
  V q = 1.0f / a, y = q * q;
  V low = splat(2.326819970068386e-2f);
  low = low * y - 1.387039388740657e-1f;
  low = low * y + 3.687424674597105e-1f;
  low = low * y - 5.824733027278666e-1f;
  low = low * y + 6.210004621745983e-1f;
  low = low * y - 4.944515323274145e-1f;
  low = low * y + 3.404879937665872e-1f;
  low = low * y - 2.741127028184656e-1f;
  low = low * y + 5.638259427386472e-1f;
  V high = splat(-1.047766399936249e+1f);
  high = high * y + 1.297719955372516e+1f;
  high = high * y - 7.495518717768503e+0f;
  high = high * y + 2.921019019210786e+0f;
  high = high * y - 1.015265279202700e+0f;
  high = high * y + 4.218463358204948e-1f;
  high = high * y - 2.820767439740514e-1f;
  high = high * y + 5.641895067754075e-1f;
  V far = 1.0f - expOf(-(a * a)) * q * (a < 2.0f ? low : high);
  far = x < 0.0f ? -far : far;
  return absOf(x) < 1.0f ? near : far;
}

inline V sigmoidOf(V x) {
  V e = expOf(-absOf(x));
  return (x < 0.0f ? e : splat(1.0f)) / (1.0f + e);
}

inline V sqrtOf(V x) {
  V y;
  for (int i = 0; i < width; ++i)
    y[i] = __builtin_sqrtf(x[i]);
  return y;
}

//===----------------------------------------------------------------------===//
// Elementwise loops
//===----------------------------------------------------------------------===//

/// Applies fn(V in[], V out[]) to all elements.
template <int numIn, int numOut, typename Fn>
inline void map(const float *const *in, float *const *out, int64_t n, Fn fn) {
  V x[numIn], y[numOut];
  int64_t i = 0;
  for (; i + width <= n; i += width) {
    for (int k = 0; k < numIn; ++k)
      x[k] = load(in[k] + i);
    fn(x, y);
    for (int k = 0; k < numOut; ++k)
      store(out[k] + i, y[k]);
  }
  if (i == n)
    return;
  for (int k = 0; k < numIn; ++k)
    x[k] = loadPart(in[k] + i, n - i, 1);
  fn(x, y);
  for (int k = 0; k < numOut; ++k)
    storePart(out[k] + i, y[k], n - i);
}

#define LOOP(NAME, IN, OUT, ...)                                                                   \
  void NAME(const float *const *in, float *const *out, int64_t n, const float *parameters) {       \
    map<IN, OUT>(in, out, n, [=](const V *x, V *y) { __VA_ARGS__ });                               \
  }

constexpr float rootHalf = 0.7071067811865476f, gaussian = 1.1283791670955126f;
constexpr float rootTwoOverPi = 0.7978845608028654f, cubic = 0.044715f;

LOOP(add, 2, 1, y[0] = x[0] + x[1];)
LOOP(sub, 2, 1, y[0] = x[0] - x[1];)
LOOP(mul, 2, 1, y[0] = x[0] * x[1];)
LOOP(div, 2, 1, y[0] = x[0] / x[1];)
LOOP(neg, 1, 1, y[0] = -x[0];)
LOOP(absolute, 1, 1, y[0] = absOf(x[0]);)
// NaN passes through.
LOOP(relu, 1, 1, y[0] = x[0] <= 0.0f ? splat(0.0f) : x[0];)
LOOP(reluGrad, 2, 1, y[0] = x[0] <= 0.0f ? splat(0.0f) : x[1];)
LOOP(exponential, 1, 1, y[0] = expOf(x[0]);)
LOOP(tanhLoop, 1, 1, y[0] = tanhOf(x[0]);)
LOOP(erfLoop, 1, 1, y[0] = erfOf(x[0]);)
LOOP(sigmoid, 1, 1, y[0] = sigmoidOf(x[0]);)
LOOP(squareRoot, 1, 1, y[0] = sqrtOf(x[0]);)
LOOP(rsqrt, 1, 1, y[0] = 1.0f / sqrtOf(x[0]);)
LOOP(reciprocal, 1, 1, y[0] = 1.0f / x[0];)
LOOP(silu, 1, 1, y[0] = x[0] * sigmoidOf(x[0]);)
LOOP(siluGrad, 2, 1, V s = sigmoidOf(x[0]); y[0] = x[1] * (s + x[0] * s * (1.0f - s));)
LOOP(swiglu, 2, 1, y[0] = x[0] * sigmoidOf(x[0]) * x[1];)
LOOP(swigluGrad, 3, 2, V s = sigmoidOf(x[0]); V dx = x[2] * x[1] * (s + x[0] * s * (1.0f - s));
     V du = x[2] * (x[0] * s); y[0] = dx; y[1] = du;)
LOOP(geluNone, 1, 1, y[0] = 0.5f * x[0] * (1.0f + erfOf(x[0] * rootHalf));)
LOOP(geluNoneGrad, 2, 1, V u = x[0] * rootHalf;
     y[0] = x[1] *
            (0.5f * (1.0f + erfOf(u)) + 0.5f * x[0] * rootHalf * gaussian * expOf(-(u * u)));)
LOOP(geluTanh, 1, 1, V u = rootTwoOverPi * (x[0] + cubic * x[0] * x[0] * x[0]);
     y[0] = 0.5f * x[0] * (1.0f + tanhOf(u));)
LOOP(geluTanhGrad, 2, 1, V u = rootTwoOverPi * (x[0] + cubic * x[0] * x[0] * x[0]); V h = tanhOf(u);
     y[0] = x[1] * (0.5f * (1.0f + h) + 0.5f * x[0] * (1.0f - h * h) * rootTwoOverPi *
                                            (1.0f + 3.0f * cubic * x[0] * x[0]));)
LOOP(rotate, 4, 2, V s = x[3] * parameters[0]; V first = x[0] * x[2] - x[1] * s;
     y[1] = x[1] * x[2] + x[0] * s; y[0] = first;)
/// Rotates n pairs of neighbours.
void rotatePairs(const float *const *in, float *const *out, int64_t n, const float *parameters) {
  const float *x = in[0], *cosines = in[1], *sines = in[2];
  for (int64_t i = 0; i < n; ++i) {
    float s = sines[i] * parameters[0], first = x[2 * i], second = x[2 * i + 1];
    out[0][2 * i] = first * cosines[i] - second * s;
    out[0][2 * i + 1] = second * cosines[i] + first * s;
  }
}
LOOP(scaleBy, 1, 1, y[0] = x[0] * parameters[0];)

template <bool isDecoupled>
void adam(const float *const *in, float *const *out, int64_t n, const float *parameters) {
  const AdamParameters a = *reinterpret_cast<const AdamParameters *>(parameters);
  map<4, 3>(in, out, n, [=](const V *x, V *y) {
    V p = x[0], g = isDecoupled ? x[1] : x[1] + a.decay * p;
    V m = a.beta1 * x[2] + a.oneMinusBeta1 * g, v = a.beta2 * x[3] + a.oneMinusBeta2 * g * g;
    V kept = isDecoupled ? p * a.decay : p;
    y[0] = kept - a.stepSize * m / (sqrtOf(v) / a.rootOfDebias2 + a.epsilon);
    y[1] = m;
    y[2] = v;
  });
}

const NamedLoop elementwise[] = {{"add", 2, 1, add},
                                 {"sub", 2, 1, sub},
                                 {"mul", 2, 1, mul},
                                 {"div", 2, 1, div},
                                 {"neg", 1, 1, neg},
                                 {"abs", 1, 1, absolute},
                                 {"relu", 1, 1, relu},
                                 {"relu_grad", 2, 1, reluGrad},
                                 {"exp", 1, 1, exponential},
                                 {"tanh", 1, 1, tanhLoop},
                                 {"erf", 1, 1, erfLoop},
                                 {"sigmoid", 1, 1, sigmoid},
                                 {"sqrt", 1, 1, squareRoot},
                                 {"rsqrt", 1, 1, rsqrt},
                                 {"reciprocal", 1, 1, reciprocal},
                                 {"silu", 1, 1, silu},
                                 {"silu_grad", 2, 1, siluGrad},
                                 {"swiglu", 2, 1, swiglu},
                                 {"swiglu_grad", 3, 2, swigluGrad},
                                 {"gelu_none", 1, 1, geluNone},
                                 {"gelu_grad_none", 2, 1, geluNoneGrad},
                                 {"gelu_tanh", 1, 1, geluTanh},
                                 {"gelu_grad_tanh", 2, 1, geluTanhGrad},
                                 {"rotate", 4, 2, rotate},
                                 {"rotate_pairs", 3, 1, rotatePairs},
                                 {"scale_by", 1, 1, scaleBy},
                                 {"adamw", 4, 3, adam<true>},
                                 {"adam", 4, 3, adam<false>},
                                 {nullptr, 0, 0, nullptr}};

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// Returns the sum of fn(i, load) over a row. `fn` returns a vector with 0 in the lanes that `load`
/// lacks.
template <typename Fn> inline float sumOver(int64_t n, Fn fn) {
  V sum = splat(0);
  int64_t i = 0;
  for (; i + width <= n; i += width)
    sum += fn(i, int64_t(width));
  if (i < n) {
    V last = fn(i, n - i);
    for (int64_t j = n - i; j < width; ++j)
      last[j] = 0;
    sum += last;
  }
  return total(sum);
}

inline V take(const float *x, int64_t count, float rest = 0) {
  return count == width ? load(x) : loadPart(x, count, rest);
}
inline void put(float *x, V v, int64_t count) {
  count == width ? store(x, v) : storePart(x, v, count);
}

float largest(const float *x, int64_t n) {
  V most = splat(x[0]), kept = splat(0); // 0, or NaN where a lane had one
  for (int64_t i = 0; i < n; i += width) {
    V some = take(x + i, n - i < width ? n - i : width, x[0]);
    most = maxOf(most, some);
    kept = some == some ? kept : some;
  }
  most += kept;
  float result = most[0];
  for (int i = 1; i < width; ++i)
    result = result < most[i] || most[i] != most[i] ? most[i] : result;
  return result;
}

float sum(const float *x, int64_t n) {
  return sumOver(n, [=](int64_t i, int64_t count) { return take(x + i, count); });
}

float dot(const float *x, const float *y, int64_t n) {
  return sumOver(n,
                 [=](int64_t i, int64_t count) { return take(x + i, count) * take(y + i, count); });
}

float expSum(float *x, int64_t n, float m) {
  return sumOver(n, [=](int64_t i, int64_t count) {
    V e = expOf(take(x + i, count) - m);
    put(x + i, e, count);
    return e;
  });
}

float sumOfExp(const float *x, int64_t n, float m) {
  return sumOver(n, [=](int64_t i, int64_t count) { return expOf(take(x + i, count) - m); });
}

/// Calls fn(i, count) for every vector of a row.
template <typename Fn> inline void forRow(int64_t n, Fn fn) {
  int64_t i = 0;
  for (; i + width <= n; i += width)
    fn(i, int64_t(width));
  if (i < n)
    fn(i, n - i);
}

void scaledExp(const float *x, float *out, int64_t n, float m, float factor, float term) {
  forRow(n, [=](int64_t i, int64_t count) {
    put(out + i, factor * expOf(take(x + i, count) - m) + term, count);
  });
}

void scale(float *x, int64_t n, float factor) {
  forRow(n, [=](int64_t i, int64_t count) { put(x + i, take(x + i, count) * factor, count); });
}

void addScaled(const float *x, float *y, int64_t n, float factor) {
  forRow(n, [=](int64_t i, int64_t count) {
    put(y + i, take(y + i, count) + take(x + i, count) * factor, count);
  });
}

void softmaxGrad(const float *p, float *ds, int64_t n, float d, float factor) {
  forRow(n, [=](int64_t i, int64_t count) {
    put(ds + i, take(p + i, count) * (take(ds + i, count) - d) * factor, count);
  });
}

void layerNorm(const float *x, const float *w, const float *b, float *y, float *statistics,
               int64_t n, float epsilon) {
  float mean = sum(x, n) / float(n);
  float var = sumOver(n, [=](int64_t i, int64_t count) {
    V c = take(x + i, count) - mean;
    return c * c;
  });
  float rstd = 1.0f / __builtin_sqrtf(var / float(n) + epsilon);
  forRow(n, [=](int64_t i, int64_t count) {
    V h = (take(x + i, count) - mean) * rstd;
    put(y + i, h * take(w + i, count) + take(b + i, count), count);
  });
  statistics[0] = mean;
  statistics[1] = rstd;
}

void layerNormGrad(const float *dy, const float *x, const float *w, float *dx, int64_t n,
                   float mean, float rstd) {
  float sumG = dot(dy, w, n);
  float sumGH = sumOver(n, [=](int64_t i, int64_t count) {
    return take(dy + i, count) * take(w + i, count) * ((take(x + i, count) - mean) * rstd);
  });
  float a = sumG / float(n), c = sumGH / float(n);
  forRow(n, [=](int64_t i, int64_t count) {
    V h = (take(x + i, count) - mean) * rstd;
    put(dx + i, rstd * (take(dy + i, count) * take(w + i, count) - a - h * c), count);
  });
}

void addNormScale(const float *dy, const float *x, float *dw, int64_t n, float mean, float rstd) {
  forRow(n, [=](int64_t i, int64_t count) {
    V h = (take(x + i, count) - mean) * rstd;
    put(dw + i, take(dw + i, count) + take(dy + i, count) * h, count);
  });
}

inline H roundedBits(V x) {
  U bits = reinterpret_cast<U>(x);
  U rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  // Rounding must not turn a NaN into infinity.
  rounded = x == x ? rounded : (bits >> 16) | 0x40u;
  return __builtin_convertvector(rounded, H);
}

void toBF16(const float *x, uint16_t *bits, int64_t n) {
  forRow(n, [=](int64_t i, int64_t count) {
    H rounded = roundedBits(take(x + i, count));
    if (count == width)
      *reinterpret_cast<HUnaligned *>(bits + i) = rounded;
    else
      for (int64_t j = 0; j < count; ++j)
        bits[i + j] = rounded[j];
  });
}

void fromBF16(const uint16_t *bits, float *x, int64_t n) {
  forRow(n, [=](int64_t i, int64_t count) {
    H part = {};
    if (count == width)
      part = *reinterpret_cast<const HUnaligned *>(bits + i);
    else
      for (int64_t j = 0; j < count; ++j)
        part[j] = bits[i + j];
    put(x + i, reinterpret_cast<V>(__builtin_convertvector(part, U) << 16), count);
  });
}

} // namespace

extern const VectorLoops TBC_VECTOR_LEVEL;
const VectorLoops TBC_VECTOR_LEVEL = {
    elementwise, largest,     sum,       dot,           expSum,       sumOfExp, scaledExp, scale,
    addScaled,   softmaxGrad, layerNorm, layerNormGrad, addNormScale, toBF16,   fromBF16};

} // namespace tbc::cpu
