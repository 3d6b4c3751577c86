//===- AttentionCall.cpp - Shapes and masks of an attention on GPUs ---------===//

#include "codegen/cuda/ops/AttentionCall.h"

#include "codegen/region/ops/Philox.h"

#include <limits>

using namespace mlir;

namespace tbc::cuda {

AttentionCall::AttentionCall(const OpCall &call, int first, int terms)
    : call(call), first(first), terms(terms),
      mask(terms + int(kernels::numScoreOperands(call.attrs))), q(layout(0, 'q')),
      k(layout(1, 'k')), v(layout(2, 'v')),
      o(q.batch, q.heads, q.tokens, v.width, HeadLayout::isTokenMajorIn(call.attrs, 'o')),
      batch(q.batch), heads(q.heads), keyHeads(k.heads), queries(q.tokens), keys(k.tokens),
      width(q.width), valueWidth(v.width) {
  auto take = [&](const char *flag, int count) {
    int at = call.attrs.getBool(flag, false) ? mask : -1;
    mask += at < 0 ? 0 : count;
    return at;
  };
  keyMask = take("key_mask", 1);
  segments = take("segments", 2);
  ordered = take("ordered", 2);
  placed = take("placed", 2);
  dropout = take("drops_out", 5);
  biases = kernels::biasLayouts(call.attrs, {batch, heads, queries, keys});
  if (call.attrs.getBool("sink", false))
    sink = terms + int(biases.size());
  cap = call.attrs.getDouble("soft_cap", 0);
  isCausal = call.attrs.getBool("causal", false);
  left = call.attrs.getInt("left", -1);
  right = call.attrs.getInt("right", -1);
}

bool AttentionCall::mayHideRows() const {
  return keyMask >= 0 || segments >= 0 || ordered >= 0 || placed >= 0;
}

bool AttentionCall::isSupported() const {
  std::string hidden = call.attrs.has("hidden_rows") ? call.attrs.getString("hidden_rows") : "zero";
  return keys > 0 && width > 0 && valueWidth > 0 && (!mayHideRows() || hidden == "zero");
}

Value rowSumOf(const ThreadKernel &k, const AttentionCall &a, Value l) {
  if (a.biases.empty() || a.mayHideRows())
    return l;
  Value isEmpty = k.e.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, l, k.number(0));
  return k.e.select(isEmpty, k.number(std::numeric_limits<double>::quiet_NaN()), l);
}

Value dropoutFactor(const ThreadKernel &k, const AttentionCall &a, Value number) {
  double ratio = a.call.attrs.getDouble("dropout");
  // Step 0 is evaluation, without dropout.
  Value step = k.load(a.dropout, k.integer(0));
  Value keeps = region::keepsElement(k.e, number, step, a.call.attrs.getInt("dropout_key"),
                                     a.call.attrs.getInt("dropout_seed"), ratio);
  Value factor = k.e.select(keeps, k.number(double(1.0F / float(1 - ratio))), k.number(0));
  return k.e.select(k.equal(step, k.integer(0)), k.number(1), factor);
}

} // namespace tbc::cuda
