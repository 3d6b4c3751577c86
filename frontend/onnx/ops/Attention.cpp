//===- Attention.cpp - The Attention op of operator set 23 -----------------===//

#include "frontend/onnx/ops/Families.h"

#include <cmath>
#include <limits>

namespace tbc::frontend {

namespace {

/// [b, s, h * d] to [b, h, s, d]; tensors of rank 4 are that already.
Value splitHeads(NodeContext &node, const Value &value, const char *headsName) {
  if (value.rank() == 4)
    return value;
  int64_t heads = node.attrInt(headsName, 0);
  if (value.rank() != 3 || heads < 1 || value.shape[2] % heads != 0)
    throw ImportError("cannot split " + printShape(value.shape, node.emitter.marker) + " into " +
                      std::to_string(heads) + " heads");
  Value split =
      reshape(node.emitter, value, {value.shape[0], value.shape[1], heads, value.shape[2] / heads});
  return transpose(node.emitter, split, {0, 2, 1, 3});
}

/// Keys or values repeated for the query heads that share them.
Value repeatHeads(Emitter &e, const Value &value, int64_t heads) {
  int64_t own = value.shape[1];
  if (own == heads)
    return value;
  if (own < 1 || heads % own != 0)
    throw ImportError(std::to_string(heads) + " query heads cannot share " + std::to_string(own) +
                      " key heads");
  Shape shape{value.shape[0], own, heads / own, value.shape[2], value.shape[3]};
  Value repeated = expand(e, unsqueeze(value, {2}), shape);
  return reshape(e, repeated, {shape[0], heads, shape[3], shape[4]});
}

void importAttention(NodeContext &node) {
  Emitter &e = node.emitter;
  if (node.hasInput(4) || node.hasInput(5))
    throw ImportError(
        "Attention with past keys and values is not supported; export without a cache");
  for (size_t i = 1; i < node.numOutputs(); ++i)
    if (node.wantsOutput(i))
      throw ImportError("Attention with output " + std::to_string(i) + " is not supported");
  if (node.attrFloat("softcap", 0) != 0)
    throw ImportError("Attention with softcap is not supported");
  bool joined = node.input(0).rank() == 3;
  Value q = splitHeads(node, node.input(0), "q_num_heads");
  Value k = splitHeads(node, node.input(1), "kv_num_heads");
  Value v = splitHeads(node, node.input(2), "kv_num_heads");
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4 || k.shape[2] != v.shape[2])
    throw ImportError("needs queries, keys and values of rank 3 or 4 with as many keys as values");
  int64_t heads = q.shape[1];
  k = repeatHeads(e, k, heads);
  v = repeatHeads(e, v, heads);

  double scale = node.attrFloat("scale", 1 / std::sqrt(double(q.shape[3])));
  Value scores = matmul(e, q, transpose(e, k, {0, 1, 3, 2}));
  scores = elementwise(e, "mul", {scores, number(scores, scale)});
  double lowest = q.dtype == DType::F16 ? -65504.0 : double(std::numeric_limits<float>::lowest());
  if (q.dtype == DType::BF16)
    lowest = kernels::roundTo(DType::BF16, -3.3895313892515355e38);
  auto addMask = [&](const Value &allowed) {
    Value bias = select(e, allowed, number(scores, 0), number(scores, lowest));
    scores = elementwise(e, "add", {scores, bias});
  };
  if (node.hasInput(3)) {
    const Value &mask = node.input(3);
    if (mask.dtype == DType::Bool)
      addMask(mask);
    else
      scores = elementwise(e, "add", {scores, mask});
  }
  // Key j for query i when j <= i: without past keys the standard aligns the first of both.
  if (node.attrInt("is_causal", 0)) {
    Shape shape{q.shape[2], k.shape[2]};
    auto index = [&](unsigned dim) {
      return Value::ofKnown(DType::I64, shape, {dim}, Known::affine({shape[dim]}, 0, {1}, false));
    };
    addMask(compare(e, "le", index(1), index(0)));
  }
  Value weights = softmax(e, scores, scores.rank() - 1);
  Value result = matmul(e, weights, v);
  if (joined) {
    result = transpose(e, result, {0, 2, 1, 3});
    result =
        reshape(e, result, {result.shape[0], result.shape[1], result.shape[2] * result.shape[3]});
  }
  node.setOutput(0, result);
}

} // namespace

llvm::ArrayRef<OpImporter> attentionOps() {
  static const OpImporter ops[] = {
      {"", "Attention", importAttention},
  };
  return ops;
}

} // namespace tbc::frontend
