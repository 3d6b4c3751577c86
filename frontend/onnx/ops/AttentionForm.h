//===- AttentionForm.h - What the attention ops of all domains share -------===//

#ifndef TBC_FRONTEND_ONNX_OPS_ATTENTIONFORM_H
#define TBC_FRONTEND_ONNX_OPS_ATTENTIONFORM_H

#include "frontend/onnx/ops/Families.h"

#include <optional>

namespace tbc::frontend {

/// One attention: softmax(cap(scale * q k^T) + masks) v.
struct AttentionForm {
  /// q[b, h, s, d], k[b, hk, t, d], v[b, hk, t, dv]; hk divides h.
  Value query, key, value;
  double scale = 1;
  /// cap(x) = softcap * tanh(x / softcap); 0: none.
  double softcap = 0;
  /// The position of the first query among the keys, for what follows: one number, or one per
  /// sample [b].
  Value offset = Value::ofKnown(DType::I64, Known::ofInt(0));
  /// Key j for the query at position p: j <= p; p - left <= j; j <= p + right (-1: no bound).
  bool isCausal = false;
  int64_t left = -1, right = -1;
  /// Booleans, true where a key is read, and numbers that are added; each broadcasts to
  /// [b, h, s, t].
  std::vector<Value> allowed, biases;
  /// The type of the softmax, if it is not that of the operands.
  std::optional<DType> softmaxType;
};

/// The result [b, h, s, dv], and the scores at each stage, [b, h, s, t].
struct AttentionResult {
  Value result, scores, capped, masked, weights;
};

/// A query that reads no key gives 0. ImportError for shapes that do not fit.
AttentionResult attend(Emitter &emitter, AttentionForm form);

/// [b, s, h * d] to [b, h, s, d]; tensors of rank 4 are that already.
Value splitHeads(Emitter &emitter, const Value &value, int64_t heads);
/// [b, h, s, d] to [b, s, h * d].
Value mergeHeads(Emitter &emitter, const Value &value);

/// The lowest finite number of a type, which hides a score.
double lowestOf(DType dtype);

/// Rotates the first `width` elements of the last dim of x[b, h, s, d] by position (0: all): pairs
/// are its halves, or neighbours if `isInterleaved`. cos and sin are [s, width / 2] or
/// [b, s, width / 2].
Value rotate(Emitter &emitter, const Value &x, const Value &cos, const Value &sin, int64_t width,
             bool isInterleaved);

/// A normalized tensor and its statistics, one number per row.
struct Normalized {
  Value output, mean, inverse;
};
/// Over the dims from `axis` on. `bias` may be null.
Normalized layerNorm(Emitter &emitter, const Value &x, int64_t axis, const Value &weight,
                     const Value *bias, double epsilon);
Normalized rmsNorm(Emitter &emitter, const Value &x, int64_t axis, const Value &weight,
                   double epsilon);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_OPS_ATTENTIONFORM_H
