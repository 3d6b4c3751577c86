//===- Attention.td - Scaled dot-product attention -------------------------===//

#ifndef TBC_IR_ATTENTION
#define TBC_IR_ATTENTION

include "ir/TbcBase.td"

/// An operand beside q, k and v: a bias, the sink, a mask, a position or a number of dropout.
def Tbc_AttentionMask : AnyTypeOf<[Tbc_FloatTensor, Tbc_BoolTensor, Tbc_IntTensor]>;

/// The attributes of attention, its gradients and the packed forms.
defvar Tbc_AttentionAttrs = (ins F64Attr:$scale, BoolAttr:$causal, DefaultValuedAttr<I64Attr, "-1">:$left,
      DefaultValuedAttr<I64Attr, "-1">:$right, DefaultValuedAttr<BoolAttr, "false">:$key_mask,
      DefaultValuedAttr<BoolAttr, "false">:$segments, DefaultValuedAttr<BoolAttr, "false">:$ordered,
      DefaultValuedAttr<BoolAttr, "false">:$placed,
      DefaultValuedAttr<StrAttr, "\"zero\"">:$hidden_rows, DefaultValuedAttr<F64Attr, "0.0">:$dropout,
      DefaultValuedAttr<BoolAttr, "false">:$drops_out, DefaultValuedAttr<I64Attr, "0">:$dropout_seed,
      DefaultValuedAttr<I64Attr, "0">:$dropout_key, DefaultValuedAttr<F64Attr, "0.0">:$soft_cap,
      DefaultValuedAttr<StrAttr, "\"\"">:$biases, DefaultValuedAttr<BoolAttr, "false">:$sink,
      DefaultValuedAttr<StrAttr, "\"\"">:$token_major, DefaultValuedAttr<I64Attr, "0">:$heads,
      DefaultValuedAttr<I64Attr, "0">:$key_heads);

def Tbc_AttentionOp : Tbc_InferredOp<"attention", [DeclareOpInterfaceMethods<StreamedOpInterface>,
    DeclareOpInterfaceMethods<CompositeOpInterface>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>, DeclareOpInterfaceMethods<DropoutOpInterface>,
    DeclareOpInterfaceMethods<ReorderableOpInterface>, 
    DeclareOpInterfaceMethods<MergeableOpInterface, ["canMakeMerged", "makeMerged"]>,
    DeclareOpInterfaceMethods<PackableOpInterface>]> {
  let resizesFixedLoops = "true";
  let columnUse = "::tbc::columnsOfAttention(getTokenMajor(), false)";
  let ownKernel = "::tbc::ownAttention(*this)";
  let summary = "softmax(scale * q k^T) v over q[b, h, s, d], k[b, hk, t, d], v[b, hk, t, dv]";
  let description = [{
    Query head i reads key and value head i / (h / hk). Example: 8 query heads and 2 key heads;
    query heads 0 to 3 read key head 0.
    The score is z = cap(scale * (q . k)) + the sum of the biases:
    - `soft_cap` c > 0 bounds it: cap(x) = c tanh(x / c). Without it (0), cap(x) = x.
    - `biases` lists the dims of each bias, with commas between: letters of b (sample), h (query
      head), s (query) and t (key), in this order. Example: "hst,bt" is a bias [h, s, t] and one
      [b, t], the first masks.
    m = row max of z over the allowed keys, p = exp(z - m) at allowed keys and 0 elsewhere, l =
    sum(p) (the row sum), o = (p v) / l.
    `sink` adds a column that has a score and no value, the next mask, [h]: m is at least the sink's
    score, and l has the summand exp(sink - m). So weights may sum to less than 1.
    The gradient needs the statistics m and l: f32, or f64 for f64 operands.

    `token_major` lists the tensors with dims [b, s, h, d] in place of [b, h, s, d]: letters of q, k,
    v and o, in this order. A capital means that heads and columns are merged, [b, s, h * d]; `heads`
    is then h, and `key_heads` is hk. A linear layer writes and reads these orders, so heads need
    no copies. The statistics are [b, h, s] in any case. Example: "QkvO" for q[b, s, h * d],
    k[b, t, hk, d], v[b, t, hk, dv] and o[b, s, h * dv]. cuDNN calls the order BSHD.

    The mask is a predicate and never a tensor over queries and keys. Query i of sample b may attend
    to key j if all of these hold:
    - the window: with a = j - (i + (t - s)), a <= 0 if `causal`, a >= -left and a <= right (-1: no
      limit). If `placed`, a = position of key j - position of query i. The positions are integers
      [s] and [t], given after the other masks below. Queries or keys may then be a part of a
      sequence, in any order;
    - the key mask, if `key_mask`: masks[0], bool[b, t], is true at key j (padding is false);
    - the segments, if `segments`: the next two masks, integers [b, s] and [b, t], are equal at i
      and j (documents packed into one sequence);
    - the order, if `ordered`: two masks, integers [b, s] and [b, t] (positions that are data); the
      second at j is at most the first at i.

    `hidden_rows` is the treatment of fully masked rows, in which a query may attend to no key.
    Exporters differ there:
    - zero: the query reads no key, o = m = l = 0. Masks of -inf give this if the NaN is replaced by
      0, as in ONNX's Attention.
    - mean: every key counts alike, z = 0. One mask gives this if it adds the lowest finite number,
      or replaces the scores by it: no difference between scores survives.
    - window: the same over the keys in the window. Masks give this if they hide positions twice, or
      by -inf.
    - nearest: the same over the keys that break the fewest conditions, for masks added one by one;
      window and order are one condition.
    - scores: every key by its score, for one mask of a moderate number such as -10000, which leaves
      differences.
    Such a row gives q and k a gradient only if it reads by scores.

    `dropout` is the ratio of weights p / l that training drops; as imported the op drops no weight.
    If `drops_out`, it drops the weights that dropout_train with `dropout_seed` and `dropout_key`
    drops. The last five masks are then its step and its indices for the dims of [b, h, s, t]. The
    positions of dropped weights are not saved for the gradient.

    FLOPs: 2 b h p (d + dv) for p pairs of a query and a key: s * t, or with `left` s times the width
    of the window if that is less. Masks, biases, caps and dropout do not count. b and heads
    are parallel (the h of q is a product (hk, h / hk)); d and dv are fixed; s is parallel unless it
    has a window and is not `placed`.
    With a parallel s, keys may stream: t is taken block by block, an attention per block, and
    attention_merge joins them. Keys cannot stream if `hidden_rows` looks at all keys together, or
    beside biases or a sink.

    Constraints:
    (C1) q, k and v have rank 4, or 3 where merged, and one element type; they agree in b, k with q
         in d, k with v in hk and t.
    (C2) hk divides h.
    (C3) With a window and without `placed`, t is at least s, so every query has a key; left and
         right are -1 or more.
    (C4) The masks are those of `biases`, `sink`, `key_mask`, `segments`, `ordered`, `placed` and
         `drops_out`, in this order, of the types above.
    (C5) `hidden_rows` is zero, mean, window (if not `ordered`), nearest or scores; beside a sink it
         is zero.
    (C6) `dropout` is at least 0 and less than 1.
    (C7) Each bias has some of the letters b, h, s and t, in this order.
    (C8) `soft_cap` is finite and at least 0.
    (C9) `token_major` has some of the letters q, k, v and o, small or capital, in this order.
    (C10) `heads` divides the last dim of a merged q, `key_heads` that of a merged k or v.
  }];
  let arguments = !con((ins Tbc_FloatTensor:$query, Tbc_FloatTensor:$key, Tbc_FloatTensor:$value,
      Variadic<Tbc_AttentionMask>:$masks), Tbc_AttentionAttrs);
  let results = (outs Tbc_FloatTensor:$result, Tbc_FloatTensor:$maximum, Tbc_FloatTensor:$denominator);
}

def Tbc_AttentionGradOp : Tbc_InferredOp<"attention_grad", [DeclareOpInterfaceMethods<StreamedOpInterface>,
    DeclareOpInterfaceMethods<CompositeOpInterface>, DeclareOpInterfaceMethods<PackableOpInterface>]> {
  let resizesFixedLoops = "true";
  let columnUse = "::tbc::columnsOfAttention(getTokenMajor(), true)";
  let ownKernel = "::tbc::ownAttention(*this)";
  let workspace = "::tbc::attentionGradWorkspace(*this)";
  let summary = "The gradients of attention with respect to q, k and v";
  let description = [{
    With p = exp(z - m) / l at the keys that attention reads and 0 elsewhere: dv = p^T do, dp = do
    v^T, dz = p * (dp - sum(do * o)), dq = scale * (dx k), dk = scale * (dx^T q). dx is the gradient
    of the score before its cap: dz * (1 - tanh^2).
    Gradients have the dims of their tensors (`token_major` of attention).
    dk and dv are summed over the query heads that share a key head. If attention drops a weight,
    its p is 0 in dv and its dp is 0; the other weights are larger by the dropout factor. dz is 0 in
    rows that read keys alike (`hidden_rows` of attention).

    FLOPs: five matmuls, 2 b h p (3 d + 2 dv), with p as of attention.

    Constraints:
    (C1) attention of query, key, value and masks gives the types of result, maximum and
         denominator; cotangent has the type of result.
  }];
  let arguments = !con((ins Tbc_FloatTensor:$cotangent, Tbc_FloatTensor:$query, Tbc_FloatTensor:$key,
      Tbc_FloatTensor:$value, Tbc_FloatTensor:$result, Tbc_FloatTensor:$maximum, Tbc_FloatTensor:$denominator,
      Variadic<Tbc_AttentionMask>:$masks), Tbc_AttentionAttrs);
  let results = (outs Tbc_FloatTensor:$query_cotangent, Tbc_FloatTensor:$key_cotangent,
                 Tbc_FloatTensor:$value_cotangent);
}

def Tbc_AttentionBiasGradOp : Tbc_InferredOp<"attention_bias_grad", [
    DeclareOpInterfaceMethods<CompositeOpInterface>]> {
  let resizesFixedLoops = "true";
  let ownKernel = "::tbc::ownAttention(*this)";
  let workspace = "::tbc::attentionGradWorkspace(*this)";
  let summary = "The gradient of attention with respect to one of its biases";
  let description = [{
    The gradient of bias number `bias` of `biases`: dz of attention_grad, summed over the dims that
    the bias lacks. Example: a bias "hst" sums over the samples.

    FLOPs: two matmuls, 2 b h p (d + dv), with p as of attention.

    Constraints:
    (C1) The operands are those of attention_grad.
    (C2) `bias` is an index of `biases`.
  }];
  let arguments = !con((ins Tbc_FloatTensor:$cotangent, Tbc_FloatTensor:$query, Tbc_FloatTensor:$key,
      Tbc_FloatTensor:$value, Tbc_FloatTensor:$result, Tbc_FloatTensor:$maximum, Tbc_FloatTensor:$denominator,
      Variadic<Tbc_AttentionMask>:$masks), Tbc_AttentionAttrs, (ins I64Attr:$bias));
  let results = (outs Tbc_FloatTensor:$bias_cotangent);
}

def Tbc_PackedAttentionOp : Tbc_InferredOp<"packed_attention"> {
  let resizesFixedLoops = "true";
  let ownKernel = "::tbc::ownAttention(*this)";
  let summary = "Attention of q, k and v that are the columns of one tensor";
  let description = [{
    attention of q[b, s, h * d], k[b, s, hk * d] and v[b, s, hk * dv], which are the columns of
    packed[b, s, c], in this order. The partitioner makes it of an attention and the slices before
    it, so they need no copies. d is `packed_width`, h is `heads`, hk is `key_heads`; `token_major`
    has the letter of o alone. The other attributes and the masks are those of attention.
    Example: packed[16, 1024, 2304] of 12 heads with 64 columns: q is columns 0 to 767.

    FLOPs: as of attention. Only b and the heads are parallel.

    Constraints:
    (C1) packed has rank 3 and h * d + hk * d + hk * dv columns, with dv > 0.
    (C2) hk divides h. Masks and numbers are as in attention, of as many keys as queries.
    (C3) `token_major` is empty, or o, small or capital.
  }];
  let arguments = !con((ins Tbc_FloatTensor:$packed, Variadic<Tbc_AttentionMask>:$masks),
      Tbc_AttentionAttrs, (ins I64Attr:$packed_width));
  let results = (outs Tbc_FloatTensor:$result, Tbc_FloatTensor:$maximum, Tbc_FloatTensor:$denominator);
}

def Tbc_PackedAttentionGradOp : Tbc_InferredOp<"packed_attention_grad"> {
  let resizesFixedLoops = "true";
  let ownKernel = "::tbc::ownAttention(*this)";
  let workspace = "::tbc::attentionGradWorkspace(*this)";
  let summary = "The gradient of packed_attention";
  let description = [{
    dq, dk and dv of attention_grad as the columns of one tensor, of the type of packed. The
    partitioner makes it of an attention_grad, the slices before it and the concat behind it.

    FLOPs: as of attention_grad.

    Constraints:
    (C1) packed_attention of packed and masks gives the types of result, maximum and denominator;
         cotangent has the type of result.
  }];
  let arguments = !con((ins Tbc_FloatTensor:$cotangent, Tbc_FloatTensor:$packed,
      Tbc_FloatTensor:$result, Tbc_FloatTensor:$maximum, Tbc_FloatTensor:$denominator,
      Variadic<Tbc_AttentionMask>:$masks), Tbc_AttentionAttrs, (ins I64Attr:$packed_width));
  let results = (outs Tbc_FloatTensor:$packed_cotangent);
}

def Tbc_AttentionMergeOp : Tbc_InferredOp<"attention_merge"> {
  let summary = "Attention to two sets of keys, from attention to each of them";
  let description = [{
    Joins the attention of a query to two blocks of keys; the partitioner makes it if keys stream.
    o, m and l of each block are results of its attention, with o in the element type of m and l.
    With m = max(m1, m2) and li' = li * exp(mi - m): l = l1' + l2' and o = (l1' * o1 + l2' * o2) /
    l. If l1 is 0 (a query reads no key of block 1), the result is that of block 2, and vice versa.

    Shapes: o is [b, h, s, dv], or [b, s, h, dv] or [b, s, h * dv] if `token_major`; m and l are
    [b, h, s]. Every dim is parallel.
    FLOPs: 4 per element of o and 8 per element of l.

    Constraints:
    (C1) Both have the same types; o has rank 4 (or 3, if `token_major`), m and l its b, h and s, and
         all one element type.
  }];
  let arguments = (ins Tbc_FloatTensor:$result, Tbc_FloatTensor:$maximum, Tbc_FloatTensor:$denominator,
      Tbc_FloatTensor:$other_result, Tbc_FloatTensor:$other_maximum, Tbc_FloatTensor:$other_denominator,
      DefaultValuedAttr<BoolAttr, "false">:$token_major);
  let results = (outs Tbc_FloatTensor:$merged_result, Tbc_FloatTensor:$merged_maximum,
                 Tbc_FloatTensor:$merged_denominator);
}

#endif // TBC_IR_ATTENTION
