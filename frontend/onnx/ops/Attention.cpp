//===- Attention.cpp - Attention and RotaryEmbedding of operator set 23 ----===//

#include "frontend/onnx/ops/AttentionForm.h"

#include <cmath>

namespace tbc::frontend {

namespace {

/// Returns the mask with its last dim, keys, extended to `count`; the added keys are hidden.
Value fillKeys(Emitter &e, const Value &mask, int64_t count) {
  unsigned last = mask.rank() - 1;
  int64_t missing = count - mask.shape[last];
  if (missing <= 0 || mask.shape[last] == 1)
    return mask;
  Shape shape = mask.shape;
  shape[last] = missing;
  double hidden = mask.dtype == DType::Bool ? 0 : lowestOf(mask.dtype);
  return concat(e, {mask, Value::ofSplat(mask.dtype, shape, hidden)}, last);
}

/// Returns `past` (if present) and `now` joined along the sequence, the cache for the next step.
Value withPast(NodeContext &node, size_t input, const Value &now) {
  if (!node.hasInput(input))
    return now;
  const Value &past = node.input(input);
  if (past.rank() != 4 || past.dtype != now.dtype)
    throw ImportError("has past keys or values of " + printShape(past.shape, node.emitter.marker));
  return concat(node.emitter, {past, now}, 2);
}

void importAttention(NodeContext &node) {
  Emitter &e = node.emitter;
  AttentionForm form;
  bool joined = node.input(0).rank() == 3;
  form.query = splitHeads(e, node.input(0), node.attrInt("q_num_heads", 0));
  form.key = splitHeads(e, node.input(1), node.attrInt("kv_num_heads", 0));
  form.value = splitHeads(e, node.input(2), node.attrInt("kv_num_heads", 0));
  if (form.query.rank() != 4 || form.key.rank() != 4 || form.value.rank() != 4)
    throw ImportError("needs queries, keys and values of rank 3 or 4");
  int64_t numNew = form.key.shape[2];
  form.key = withPast(node, 4, form.key);
  form.value = withPast(node, 5, form.value);
  int64_t numKeys = form.key.shape[2];
  form.scale = node.attrFloat("scale", 1 / std::sqrt(double(form.query.shape[3])));
  form.softcap = node.attrFloat("softcap", 0);
  form.isCausal = node.attrInt("is_causal", 0) != 0;
  form.left = node.attrInt("left_window_size", -1);
  form.right = node.attrInt("right_window_size", -1);
  form.offset = Value::ofKnown(DType::I64, Known::ofInt(numKeys - numNew));
  if (node.hasAttr("softmax_precision"))
    form.softmaxType =
        dtypeOfOnnx(int32_t(node.attrInt("softmax_precision", 1)), "softmax_precision");
  if (node.hasInput(3) && node.input(3).rank() > 0) {
    Value mask = fillKeys(e, node.input(3), numKeys);
    (mask.dtype == DType::Bool ? form.allowed : form.biases).push_back(mask);
  }
  if (node.hasInput(6)) { // number of valid keys of each sample
    Value lengths = cast(e, node.input(6), DType::I64);
    Value index =
        Value::ofKnown(DType::I64, {numKeys}, {0}, Known::affine({numKeys}, 0, {1}, false));
    form.allowed.push_back(compare(e, "lt", index, unsqueeze(lengths, {1, 2, 3})));
    form.offset = elementwise(e, "sub", {lengths, number(lengths, double(form.query.shape[2]))});
  }
  AttentionResult result = attend(e, form);
  node.setOutput(0, joined ? mergeHeads(e, result.result) : result.result);
  node.setOutput(1, form.key);
  node.setOutput(2, form.value);
  int64_t mode = node.attrInt("qk_matmul_output_mode", 0);
  node.setOutput(3, mode == 0   ? result.scores
                    : mode == 1 ? result.capped
                    : mode == 2 ? result.masked
                                : result.weights);
}

/// Returns the function in graph attribute `attribute` of one tensor, or an empty one.
std::function<Value(const Value &)> functionIn(NodeContext &node, const std::string &attribute) {
  if (!node.hasBody(attribute))
    return nullptr;
  return [&node, attribute](const Value &x) {
    std::vector<Value> results = node.runBody(node.body(attribute), {x}, "." + attribute);
    if (results.size() != 1 || results[0].shape != x.shape || results[0].dtype != x.dtype)
      throw ImportError("graph '" + attribute + "' does not keep the shape and type of its input");
    return results[0];
  };
}

/// Attention with functions of its scores and weights. Known forms of them (masks, caps, biases)
/// become parts of one attention when composites are raised.
void importFlexAttention(NodeContext &node) {
  Emitter &e = node.emitter;
  AttentionForm form;
  form.query = node.input(0);
  form.key = node.input(1);
  form.value = node.input(2);
  if (form.query.rank() != 4)
    throw ImportError("needs queries of rank 4");
  form.scale = node.attrFloat("scale", 1 / std::sqrt(double(form.query.shape[3])));
  bool isDouble = form.query.dtype == DType::F64;
  form.softmaxType =
      dtypeOfOnnx(int32_t(node.attrInt("softmax_precision", isDouble ? onnx::TensorProto::DOUBLE
                                                                     : onnx::TensorProto::FLOAT)),
                  "softmax_precision");
  form.changeScores = functionIn(node, "score_mod");
  form.changeWeights = functionIn(node, "prob_mod");
  node.setOutput(0, attend(e, form).result);
}

void importRotaryEmbedding(NodeContext &node) {
  Emitter &e = node.emitter;
  bool joined = node.input(0).rank() == 3;
  Value x = splitHeads(e, node.input(0), node.attrInt("num_heads", 0));
  Value cos = node.input(1), sin = node.input(2);
  if (node.hasInput(3)) {
    cos = gather(e, cos, node.input(3), 0);
    sin = gather(e, sin, node.input(3), 0);
  }
  Value result = rotate(e, x, cos, sin, node.attrInt("rotary_embedding_dim", 0),
                        node.attrInt("interleaved", 0) != 0);
  node.setOutput(0, joined ? mergeHeads(e, result) : result);
}

} // namespace

llvm::ArrayRef<OpImporter> attentionOps() {
  static const OpImporter ops[] = {
      {"", "Attention", importAttention},
      {"ai.onnx.preview", "FlexAttention", importFlexAttention},
      {"", "RotaryEmbedding", importRotaryEmbedding},
  };
  return ops;
}

} // namespace tbc::frontend
