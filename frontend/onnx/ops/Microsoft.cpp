//===- Microsoft.cpp - The fused ops of ONNX Runtime's optimizer -----------===//
//
// Source: onnxruntime, docs/ContribOperators.md.
//
//===----------------------------------------------------------------------===//

#include "frontend/onnx/ops/AttentionForm.h"

#include <cmath>

namespace tbc::frontend {

namespace {

constexpr char kMicrosoft[] = "com.microsoft";

void requireFloat(const Value &value) {
  if (!kernels::isFloat(value.dtype))
    throw ImportError("needs a float tensor, not one of " +
                      std::string(kernels::name(value.dtype)));
}

Value gelu(Emitter &e, const Value &x, const char *approximate) {
  requireFloat(x);
  return elementwise(e, "gelu", {x}, x.dtype, {e.text("approximate", approximate)});
}

Value plusInput(NodeContext &node, const Value &x, size_t input) {
  return node.hasInput(input) ? elementwise(node.emitter, "add", {x, node.input(input)}) : x;
}

/// FastGelu and BiasGelu: gelu(x + bias).
void importBiasGelu(NodeContext &node, const char *approximate) {
  node.setOutput(0, gelu(node.emitter, plusInput(node, node.input(0), 1), approximate));
}

/// x * sigmoid(alpha * x)
void importQuickGelu(NodeContext &node) {
  Emitter &e = node.emitter;
  const Value &x = node.input(0);
  requireFloat(x);
  double alpha = node.attrFloat("alpha", 1.702);
  Value gate = elementwise(e, "sigmoid", {elementwise(e, "mul", {x, number(x, alpha)})});
  node.setOutput(0, elementwise(e, "mul", {x, gate}));
}

void importFusedMatMul(NodeContext &node) {
  Emitter &e = node.emitter;
  if (node.attrInt("transBatchA", 0) || node.attrInt("transBatchB", 0))
    throw ImportError("FusedMatMul with transBatchA or transBatchB is not supported");
  auto operand = [&](size_t i, const char *attribute) {
    Value value = node.input(i);
    if (!node.attrInt(attribute, 0) || value.rank() < 2)
      return value;
    std::vector<unsigned> permutation(value.rank());
    for (unsigned dim = 0; dim < value.rank(); ++dim)
      permutation[dim] = dim;
    std::swap(permutation[value.rank() - 1], permutation[value.rank() - 2]);
    return transpose(e, value, permutation);
  };
  Value product = matmul(e, operand(0, "transA"), operand(1, "transB"));
  node.setOutput(0, elementwise(e, "mul", {product, number(product, node.attrFloat("alpha", 1))}));
}

//===- norms ---------------------------------------------------------------===//

/// Norms of input + skip + bias; the sum is output 3.
void importSkipNorm(NodeContext &node, bool isSimplified) {
  Emitter &e = node.emitter;
  Value sum = elementwise(e, "add", {node.input(0), node.input(1)});
  sum = plusInput(node, sum, isSimplified ? 3 : 4);
  double epsilon = node.attrFloat("epsilon", 1e-12);
  Normalized result = isSimplified
                          ? rmsNorm(e, sum, -1, node.input(2), epsilon)
                          : layerNorm(e, sum, -1, node.input(2),
                                      node.hasInput(3) ? &node.input(3) : nullptr, epsilon);
  node.setOutput(0, result.output);
  node.setOutput(1, result.mean);
  node.setOutput(2, result.inverse);
  node.setOutput(3, sum);
}

/// RMS norm under its name in ONNX Runtime before operator set 23.
void importSimplifiedLayerNorm(NodeContext &node) {
  Normalized result = rmsNorm(node.emitter, node.input(0), node.attrInt("axis", -1), node.input(1),
                              node.attrFloat("epsilon", 1e-5));
  node.setOutput(0, result.output);
  node.setOutput(1, result.inverse);
}

//===- attention -----------------------------------------------------------===//

/// Converts a mask of ONNX Runtime to booleans, true for read keys. Forms: [b] lengths, or [b, t],
/// [b, s, t] or [b, 1, s, t] with 1 for read keys.
Value allowedBy(Emitter &e, const Value &mask, int64_t batch, int64_t numKeys) {
  if (mask.rank() == 1) {
    if (mask.shape[0] != batch)
      throw ImportError("has a mask of shape " + printShape(mask.shape, e.marker) +
                        "; one number per sample (its length) is supported, starts and ends "
                        "are not");
    Value index =
        Value::ofKnown(DType::I64, {numKeys}, {0}, Known::affine({numKeys}, 0, {1}, false));
    return compare(e, "lt", index, unsqueeze(cast(e, mask, DType::I64), {1, 2, 3}));
  }
  Value read = mask.dtype == DType::Bool ? mask : compare(e, "ne", mask, number(mask, 0));
  if (mask.rank() == 2)
    return unsqueeze(read, {1, 2});
  if (mask.rank() == 3)
    return unsqueeze(read, {1});
  if (mask.rank() != 4)
    throw ImportError("has a mask of shape " + printShape(mask.shape, e.marker));
  return read;
}

/// Puts cached keys and values before those of this step.
void addPast(NodeContext &node, AttentionForm &form, size_t key, size_t value) {
  int64_t numNew = form.key.shape[2];
  for (auto [input, now] : {std::pair(key, &form.key), std::pair(value, &form.value)})
    if (node.hasInput(input)) {
      const Value &past = node.input(input);
      if (past.rank() != 4)
        throw ImportError("has past keys or values of " +
                          printShape(past.shape, node.emitter.marker));
      *now = concat(node.emitter, {past, *now}, 2);
    }
  form.offset = Value::ofKnown(DType::I64, Known::ofInt(form.key.shape[2] - numNew));
}

double scaleOf(NodeContext &node, int64_t width) {
  double given = node.attrFloat("scale", 0);
  return given != 0 ? given : 1 / std::sqrt(double(width));
}

/// Columns [begin, begin + count) of the last dim.
Value columns(Emitter &e, const Value &value, int64_t begin, int64_t count) {
  if (begin + count > value.shape.back())
    throw ImportError("needs " + std::to_string(begin + count) + " columns of " +
                      printShape(value.shape, e.marker));
  return slice(e, value, value.rank() - 1, begin, 1, count);
}

/// Attention with its own projections: x[b, s, i], weights [i, q + k + v], bias [q + k + v].
void importAttention(NodeContext &node) {
  Emitter &e = node.emitter;
  if (node.hasInput(4) && node.input(4).shape.size() > 3 && node.input(4).shape[3] != 0)
    throw ImportError("Attention with a cache (input 'past') is not supported; export the model "
                      "without it");
  if (node.attrInt("do_rotary", 0))
    throw ImportError("Attention with do_rotary is not supported; export rotary embedding as "
                      "RotaryEmbedding");
  int64_t heads = node.attrInt("num_heads", 0);
  const Value &x = node.input(0), &weights = node.input(1);
  if (x.rank() != 3 || weights.rank() != 2 || heads < 1)
    throw ImportError("needs an input of rank 3, weights of rank 2 and num_heads");
  std::vector<int64_t> sizes = node.attrInts("qkv_hidden_sizes", {});
  if (sizes.empty())
    sizes.assign(3, weights.shape[1] / 3);
  if (sizes.size() != 3 || sizes[0] < 1 || sizes[1] < 1 || sizes[2] < 1 ||
      sizes[0] + sizes[1] + sizes[2] != weights.shape[1])
    throw ImportError("has weights of shape " + printShape(weights.shape, e.marker) +
                      ", which are not those of queries, keys and values");
  Value projected = plusInput(node, matmul(e, x, weights), 2);
  AttentionForm form;
  form.query = splitHeads(e, columns(e, projected, 0, sizes[0]), heads);
  form.key = splitHeads(e, columns(e, projected, sizes[0], sizes[1]), heads);
  form.value = splitHeads(e, columns(e, projected, sizes[0] + sizes[1], sizes[2]), heads);
  form.scale = scaleOf(node, form.query.shape[3]);
  form.isCausal = node.attrInt("unidirectional", 0) != 0;
  if (node.hasInput(3))
    form.allowed.push_back(allowedBy(e, node.input(3), x.shape[0], form.key.shape[2]));
  if (node.hasInput(5))
    form.biases.push_back(node.input(5));
  if (node.wantsOutput(1))
    throw ImportError("Attention with output 'present' is not supported; export the model without "
                      "a cache");
  node.setOutput(0, mergeHeads(e, attend(e, form).result));
}

/// Returns part `index` of a packed [b, s, h, parts, d], as [b, h, s, d].
Value packedPart(Emitter &e, const Value &packed, int64_t index) {
  Value part = squeeze(e, slice(e, packed, 3, index, 1, 1), {3});
  return transpose(e, part, {0, 2, 1, 3});
}

void importMultiHeadAttention(NodeContext &node) {
  Emitter &e = node.emitter;
  int64_t heads = node.attrInt("num_heads", 0);
  AttentionForm form;
  const Value &query = node.input(0);
  auto biasOf = [&](int64_t begin, int64_t count) {
    return columns(e, node.input(3), begin, count);
  };
  if (query.rank() == 5) {
    if (node.hasInput(1) || node.hasInput(2) || node.hasInput(3) || query.shape[3] != 3)
      throw ImportError("packed queries, keys and values stand alone, without a bias, as "
                        "[batch, sequence, heads, 3, width]");
    form.query = packedPart(e, query, 0);
    form.key = packedPart(e, query, 1);
    form.value = packedPart(e, query, 2);
  } else {
    Value q = query, k = node.input(1), v;
    bool isPacked = k.rank() == 5;
    if (q.rank() != 3 || (isPacked && k.shape[3] != 2))
      throw ImportError("needs queries of rank 3, and packed keys and values as "
                        "[batch, sequence, heads, 2, width]");
    if (!isPacked)
      v = node.input(2);
    int64_t hidden = q.shape[2];
    if (node.hasInput(3)) {
      q = elementwise(e, "add", {q, biasOf(0, hidden)});
      if (!isPacked && k.rank() == 3 && v.rank() == 3) {
        k = elementwise(e, "add", {k, biasOf(hidden, hidden)});
        v = elementwise(e, "add", {v, biasOf(2 * hidden, v.shape[2])});
      }
    }
    form.query = splitHeads(e, q, heads);
    form.key = isPacked ? packedPart(e, k, 0) : splitHeads(e, k, heads);
    form.value = isPacked ? packedPart(e, k, 1) : splitHeads(e, v, heads);
  }
  addPast(node, form, 6, 7);
  form.scale = scaleOf(node, form.query.shape[3]);
  form.isCausal = node.attrInt("unidirectional", 0) != 0;
  if (node.hasInput(4))
    form.allowed.push_back(allowedBy(e, node.input(4), form.query.shape[0], form.key.shape[2]));
  if (node.hasInput(5))
    form.biases.push_back(node.input(5));
  node.setOutput(0, mergeHeads(e, attend(e, form).result));
  node.setOutput(1, form.key);
  node.setOutput(2, form.value);
}

/// Returns the rows of a rotary table for queries from position `first` on.
Value tableRows(Emitter &e, const Value &table, int64_t first, int64_t count) {
  if (table.rank() != 2 || first + count > table.shape[0])
    throw ImportError("needs angles of " + std::to_string(first + count) +
                      " positions, but the table has shape " + printShape(table.shape, e.marker));
  return slice(e, table, 0, first, 1, count);
}

/// True for keys up to the last position of their sample: `last` is [b] or [b, 1]. Example: last 2
/// allows keys 0, 1 and 2.
Value keysThrough(Emitter &e, const Value &last, int64_t batch, int64_t numKeys) {
  Value positions = last.rank() == 2 && last.shape[1] == 1 ? squeeze(e, last, {1}) : last;
  if (positions.rank() != 1 || positions.shape[0] != batch)
    throw ImportError("has lengths of shape " + printShape(last.shape, e.marker) +
                      "; expected one per sample");
  Value index = Value::ofKnown(DType::I64, {numKeys}, {0}, Known::affine({numKeys}, 0, {1}, false));
  return compare(e, "le", index, unsqueeze(cast(e, positions, DType::I64), {1, 2, 3}));
}

/// Causal grouped-query attention. Input 5 is the last position of each sample. Input 6, the
/// longest length, is redundant with the shapes. With a cache, all samples are assumed to fill it.
void importGroupQueryAttention(NodeContext &node) {
  Emitter &e = node.emitter;
  int64_t heads = node.attrInt("num_heads", 0), keyHeads = node.attrInt("kv_num_heads", 0);
  if (heads < 1 || keyHeads < 1)
    throw ImportError("needs num_heads and kv_num_heads");
  if (node.attrInt("smooth_softmax", 0) || node.hasInput(11))
    throw ImportError("GroupQueryAttention with a smooth softmax is not supported");
  bool hasLast = node.hasInput(5), hasPast = node.hasInput(3);
  (void)node.hasInput(6);
  AttentionForm form;
  Value q = node.input(0), k, v;
  if (node.hasInput(1) && node.hasInput(2)) {
    k = node.input(1);
    v = node.input(2);
  } else {
    if (q.rank() != 3 || q.shape[2] % (heads + 2 * keyHeads) != 0)
      throw ImportError("packed queries, keys and values of shape " +
                        printShape(q.shape, e.marker) + " do not divide into " +
                        std::to_string(heads + 2 * keyHeads) + " heads");
    int64_t width = q.shape[2] / (heads + 2 * keyHeads);
    k = columns(e, q, heads * width, keyHeads * width);
    v = columns(e, q, (heads + keyHeads) * width, keyHeads * width);
    q = columns(e, q, 0, heads * width);
  }
  form.query = splitHeads(e, q, heads);
  form.key = splitHeads(e, k, keyHeads);
  form.value = splitHeads(e, v, keyHeads);
  if (node.attrInt("do_rotary", 0)) {
    int64_t past = node.hasInput(3) && node.input(3).rank() == 4 ? node.input(3).shape[2] : 0;
    Value cos = node.input(7), sin = node.input(8);
    if (node.hasInput(9)) {
      cos = gather(e, cos, node.input(9), 0);
      sin = gather(e, sin, node.input(9), 0);
    } else {
      cos = tableRows(e, cos, past, form.query.shape[2]);
      sin = tableRows(e, sin, past, form.query.shape[2]);
    }
    bool isInterleaved = node.attrInt("rotary_interleaved", 0) != 0;
    int64_t width = 2 * cos.shape.back();
    form.query = rotate(e, form.query, cos, sin, width, isInterleaved);
    form.key = rotate(e, form.key, cos, sin, width, isInterleaved);
  }
  addPast(node, form, 3, 4);
  form.scale = scaleOf(node, form.query.shape[3]);
  form.softcap = node.attrFloat("softcap", 0);
  form.isCausal = true;
  // The window counts the query's own key.
  int64_t window = node.attrInt("local_window_size", -1);
  form.left = window > 0 ? window - 1 : -1;
  if (hasLast && hasPast)
    node.warn("takes every sample to fill the cache and the sequence: '" + node.inputName(5) +
              "' is not read");
  else if (hasLast)
    form.allowed.push_back(keysThrough(e, node.input(5), form.key.shape[0], form.key.shape[2]));
  if (node.hasInput(10))
    form.biases.push_back(node.input(10));
  node.setOutput(0, mergeHeads(e, attend(e, form).result));
  node.setOutput(1, form.key);
  node.setOutput(2, form.value);
}

/// Position ids are one offset for all samples, or [b, s].
void importRotaryEmbedding(NodeContext &node) {
  Emitter &e = node.emitter;
  const Value &input = node.input(0), &positions = node.input(1);
  bool joined = input.rank() == 3;
  Value cos = node.input(2), sin = node.input(3);
  int64_t width = node.attrInt("rotary_embedding_dim", 0), heads = node.attrInt("num_heads", 0);
  if (joined && heads == 0) {
    int64_t head = width != 0 ? 0 : 2 * cos.shape.back();
    if (head == 0 || input.shape[2] % head != 0)
      throw ImportError("needs num_heads to split " + printShape(input.shape, e.marker));
    heads = input.shape[2] / head;
  }
  Value x = splitHeads(e, input, heads);
  if (positions.rank() == 1 && positions.shape[0] == 1) {
    int64_t first = node.ints(1)[0];
    cos = tableRows(e, cos, first, x.shape[2]);
    sin = tableRows(e, sin, first, x.shape[2]);
  } else {
    cos = gather(e, cos, positions, 0);
    sin = gather(e, sin, positions, 0);
  }
  Value result = rotate(e, x, cos, sin, width, node.attrInt("interleaved", 0) != 0);
  double scale = node.attrFloat("scale", 1);
  if (scale != 1)
    result = elementwise(e, "mul", {result, number(result, scale)});
  node.setOutput(0, joined ? mergeHeads(e, result) : result);
}

} // namespace

llvm::ArrayRef<OpImporter> microsoftOps() {
  static const OpImporter ops[] = {
      {kMicrosoft, "Attention", importAttention, "", weightsAt(1, 2)},
      {kMicrosoft, "BiasGelu", [](NodeContext &node) { importBiasGelu(node, "none"); }, "",
       weightsAt(1)},
      {kMicrosoft, "FastGelu", [](NodeContext &node) { importBiasGelu(node, "tanh"); }, "",
       weightsAt(1)},
      {kMicrosoft, "FusedMatMul", importFusedMatMul, "", weightsAt(0, 1)},
      {kMicrosoft, "Gelu",
       [](NodeContext &node) { node.setOutput(0, gelu(node.emitter, node.input(0), "none")); }},
      {kMicrosoft, "GroupQueryAttention", importGroupQueryAttention},
      {kMicrosoft, "MultiHeadAttention", importMultiHeadAttention, "", weightsAt(3)},
      {kMicrosoft, "QuickGelu", importQuickGelu},
      {kMicrosoft, "RotaryEmbedding", importRotaryEmbedding},
      {kMicrosoft, "SimplifiedLayerNormalization", importSimplifiedLayerNorm, "", weightsAt(1)},
      {kMicrosoft, "SkipLayerNormalization", [](NodeContext &node) { importSkipNorm(node, false); },
       "", weightsAt(2, 3, 4)},
      {kMicrosoft, "SkipSimplifiedLayerNormalization",
       [](NodeContext &node) { importSkipNorm(node, true); }, "", weightsAt(2, 3)},
      {"", "SimplifiedLayerNormalization", importSimplifiedLayerNorm, "", weightsAt(1)},
  };
  return ops;
}

} // namespace tbc::frontend
