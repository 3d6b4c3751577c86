//===- LinearAttention.cpp - Attention by a state that tokens update ---------===//
//
// The state S[b, heads, dk, dv] goes from token to token:
//
//   linear        S + k v^T
//   gated         exp(g) S + k v^T
//   delta         S + beta k (v - S^T k)^T
//   gated_delta   the same on exp(g) S
//
// and token t gives scale q^T S. The loop over tokens is unrolled. Source: ONNX's definition of
// LinearAttention; Yang et al., Gated Delta Networks (2024).
//
//===----------------------------------------------------------------------===//

#include "frontend/onnx/ops/AttentionForm.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace tbc::frontend {

namespace {

constexpr int64_t maxTokens = 2048;

/// Token-wise operands, [b, heads, tokens, ..], in the type of the computation.
struct Recurrence {
  Emitter &e;
  Formula f;
  double scale = 1;
  /// q[b, hq, t, dk], k[b, h, t, dk], v[b, h, t, dv].
  Value query = {}, key = {}, value = {};
  /// The logarithm of the decay, [b, h, t, dk or 1]; beta [b, h or 1, t, 1].
  std::optional<Value> decay = {}, beta = {};

  /// Returns token `t` of x[b, h, t, d] as [b, h, d].
  Value at(const Value &x, int64_t t) { return squeeze(e, slice(e, x, 2, t, 1, 1), {2}); }

  /// Returns the state after token `t`.
  Value next(Value state, int64_t t) {
    if (decay)
      state = f.mul(state, unsqueeze(f.exp(at(*decay, t)), {3}));
    Value k = at(key, t), added = at(value, t);
    if (beta) {
      // b 0, h 1, dk 2, dv 3
      Value known = einsum(e, state, {0, 1, 2, 3}, k, {0, 1, 2}, {0, 1, 3});
      added = f.mul(at(*beta, t), f.sub(added, known));
    }
    return f.add(state, f.mul(unsqueeze(k, {3}), unsqueeze(added, {2})));
  }

  /// Returns the result of token `t`, [b, hq, 1, dv].
  Value read(const Value &state, int64_t t) {
    int64_t heads = key.shape[1], group = query.shape[1] / heads, width = query.shape[3];
    Value q = reshape(e, at(query, t), {query.shape[0], heads, group, width});
    // b 0, h 1, group 4, dk 2, dv 3
    Value y = einsum(e, q, {0, 1, 4, 2}, state, {0, 1, 2, 3}, {0, 1, 4, 3});
    y = f.mul(y, number(y, scale));
    return reshape(e, y, {query.shape[0], query.shape[1], 1, value.shape[3]});
  }
};

/// Splits x[b, t, heads * n] into [b, heads, t, n], in f32 at least.
Value split(Emitter &e, const Value &x, int64_t heads) {
  if (x.rank() != 3)
    throw ImportError("needs tensors of rank 3");
  return cast(e, splitHeads(e, x, heads), x.dtype == DType::F64 ? DType::F64 : DType::F32);
}

/// Reads the decay and beta that the update rule asks for.
void readUpdate(NodeContext &node, int64_t heads, Recurrence &r) {
  std::string rule = node.attrText("update_rule", "gated_delta");
  bool isGated = rule == "gated" || rule == "gated_delta";
  bool isDelta = rule == "delta" || rule == "gated_delta";
  if (!isGated && !isDelta && rule != "linear")
    throw ImportError("update rule '" + rule + "' is not supported");
  if (isGated && node.hasInput(4))
    r.decay = split(r.e, node.input(4), heads);
  if (isDelta && node.hasInput(5) && node.input(5).rank() > 0)
    r.beta = split(r.e, node.input(5), node.input(5).shape.back());
  if (r.decay.has_value() != isGated || r.beta.has_value() != isDelta)
    throw ImportError("update rule '" + rule + "' lacks its decay or beta");
}

Recurrence recurrenceOf(NodeContext &node) {
  Emitter &e = node.emitter;
  int64_t queryHeads = node.attrInt("q_num_heads", 0), heads = node.attrInt("kv_num_heads", 0);
  Recurrence r{e, Formula{e}};
  r.query = split(e, node.input(0), queryHeads);
  r.key = split(e, node.input(1), heads);
  r.value = split(e, node.input(2), heads);
  readUpdate(node, heads, r);
  double given = node.attrFloat("scale", 0);
  r.scale = given == 0 ? 1 / std::sqrt(double(r.query.shape[3])) : given;
  Shape tokens{r.query.shape[0], heads, r.query.shape[2], r.query.shape[3]};
  int64_t own = r.beta ? r.beta->shape[1] : 1, width = r.decay ? r.decay->shape[3] : 1;
  if (r.key.shape != tokens || r.value.shape[2] != tokens[2] || queryHeads % heads != 0 ||
      (own != 1 && own != heads) || (width != 1 && width != tokens[3]))
    throw ImportError("its queries, keys, values, decay and beta do not fit together");
  return r;
}

void importLinearAttention(NodeContext &node) {
  Emitter &e = node.emitter;
  Recurrence r = recurrenceOf(node);
  int64_t tokens = r.key.shape[2];
  if (e.dependsOnBatch(tokens) || tokens > maxTokens)
    throw ImportError("goes through " + std::to_string(tokens) + " tokens; at most " +
                      std::to_string(maxTokens) + " are unrolled");
  Shape shape{r.key.shape[0], r.key.shape[1], r.key.shape[3], r.value.shape[3]};
  Value state = Value::ofSplat(r.key.dtype, shape, 0);
  DType stateType = node.input(0).dtype;
  if (node.hasInput(3)) {
    if (node.input(3).shape != shape)
      throw ImportError("has a past state of shape " + printShape(node.input(3).shape, e.marker) +
                        "; expected " + printShape(shape, e.marker));
    stateType = node.input(3).dtype;
    state = cast(e, node.input(3), r.key.dtype);
  }
  std::vector<Value> results;
  for (int64_t t = 0; t < tokens; ++t) {
    state = r.next(state, t);
    results.push_back(r.read(state, t));
  }
  node.setOutput(0, cast(e, mergeHeads(e, concat(e, results, 2)), node.input(0).dtype));
  node.setOutput(1, cast(e, state, stateType));
}

} // namespace

llvm::ArrayRef<OpImporter> linearAttentionOps() {
  static const OpImporter ops[] = {
      {"", "LinearAttention", importLinearAttention, "chunk_size"}, // a hint
  };
  return ops;
}

} // namespace tbc::frontend
