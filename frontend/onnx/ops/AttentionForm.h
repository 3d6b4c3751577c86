//===- AttentionForm.h - Common parts of the attention ops of all domains --===//

#ifndef TBC_FRONTEND_ONNX_OPS_ATTENTIONFORM_H
#define TBC_FRONTEND_ONNX_OPS_ATTENTIONFORM_H

#include "frontend/onnx/ops/Families.h"

#include <functional>
#include <optional>

namespace tbc::frontend {

/// One attention: softmax(cap(scale * q k^T) + masks) v.
struct AttentionForm {
  /// q[b, h, s, d], k[b, hk, t, d], v[b, hk, t, dv]; hk divides h.
  Value query, key, value;
  double scale = 1;
  /// cap(x) = softcap * tanh(x / softcap); 0: no cap.
  double softcap = 0;
  /// The position of the first query among the keys, used by the masks below: one number, or one
  /// per sample [b].
  Value offset = Value::ofKnown(DType::I64, Known::ofInt(0));
  /// The query at position p reads key j if: j <= p; p - left <= j; j <= p + right (-1: no bound).
  /// Example: left = 2 with a causal mask lets query 5 read keys 3, 4 and 5.
  bool isCausal = false;
  int64_t left = -1, right = -1;
  /// `allowed`: booleans, true for read keys. `biases`: numbers added to scores. Each broadcasts to
  /// [b, h, s, t].
  std::vector<Value> allowed, biases;
  /// The type of the softmax, if it differs from the operands'.
  std::optional<DType> softmaxType;
  /// Functions of scores before the softmax, and of weights behind it, in its type; may be unset.
  std::function<Value(const Value &)> changeScores, changeWeights;
};

/// The result [b, h, s, dv], and the scores at each stage, [b, h, s, t].
struct AttentionResult {
  Value result, scores, capped, masked, weights;
};

/// Emits the attention. A fully masked row gives 0. ImportError for shapes that do not fit.
AttentionResult attend(Emitter &emitter, AttentionForm form);

/// Reshapes [b, s, h * d] to [b, h, s, d]; tensors of rank 4 stay as they are.
Value splitHeads(Emitter &emitter, const Value &value, int64_t heads);
/// [b, h, s, d] to [b, s, h * d].
Value mergeHeads(Emitter &emitter, const Value &value);

/// Returns the lowest finite number of a type; added to a score, it masks the key.
double lowestOf(DType dtype);

/// Rotates the first `width` elements (0: all) of the last dim of x[b, h, s, d] by position. Pairs
/// are the two halves, or neighbours if `isInterleaved`. cos and sin are [s, width / 2] or [b, s,
/// width / 2].
Value rotate(Emitter &emitter, const Value &x, const Value &cos, const Value &sin, int64_t width,
             bool isInterleaved);

/// A normalized tensor and its statistics, one number per row.
struct Normalized {
  Value output, mean, inverse;
};
/// Normalizes over the dims from `axis` on. `bias` may be null.
Normalized layerNorm(Emitter &emitter, const Value &x, int64_t axis, const Value &weight,
                     const Value *bias, double epsilon);
Normalized rmsNorm(Emitter &emitter, const Value &x, int64_t axis, const Value &weight,
                   double epsilon);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_OPS_ATTENTIONFORM_H
