//===- Attention.td - Scaled dot-product attention -------------------------===//

#ifndef TBC_IR_ATTENTION
#define TBC_IR_ATTENTION

include "ir/TbcBase.td"

def Tbc_AttentionOp : Tbc_InferredOp<"attention", [DeclareOpInterfaceMethods<CompositeOpInterface>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let resizesFixedLoops = "true";
  let summary = "softmax(scale * q k^T) v over q[b, h, s, d], k[b, hk, t, d], v[b, hk, t, dv]";
  let description = [{
    Query head i reads key and value head i / (h / hk). With z = scale * (q . k):
    m = stabilizer_max(z) over the allowed keys, p = exp(z - m) at allowed keys and 0 elsewhere, l = sum(p),
    o = (p v) / l. If `causal`, query i may attend to keys j <= i + (t - s). m and l are the statistics
    that the gradient needs: f32, or f64 for f64 operands.

    FLOPs: 2 b h s t (d + dv), causal or not. b and heads are parallel, where the h of q is a product (hk, h / hk); s, t,
    d and dv are fixed.

    Constraints:
    (C1) q, k and v have rank 4 and one element type; they agree in b, k with q in d, k with v in hk and t.
    (C2) hk divides h.
    (C3) If `causal`, t is at least s, so that every query may attend to a key.
  }];
  let arguments = (ins Tbc_FloatTensor:$query, Tbc_FloatTensor:$key, Tbc_FloatTensor:$value, F64Attr:$scale,
                   BoolAttr:$causal);
  let results = (outs Tbc_FloatTensor:$result, Tbc_FloatTensor:$maximum, Tbc_FloatTensor:$denominator);
}

def Tbc_AttentionGradOp : Tbc_InferredOp<"attention_grad", [DeclareOpInterfaceMethods<CompositeOpInterface>]> {
  let resizesFixedLoops = "true";
  let summary = "The gradients of attention with respect to q, k and v";
  let description = [{
    With p = exp(scale * (q . k) - m) / l at allowed keys and 0 elsewhere: dv = p^T do, dp = do v^T,
    dz = p * (dp - sum(do * o)), dq = scale * (dz k), dk = scale * (dz^T q); dk and dv are summed over the query
    heads that share a key head.

    FLOPs: five products, 2 b h s t (3 d + 2 dv).

    Constraints:
    (C1) attention of query, key and value gives the types of result, maximum and denominator; cotangent has that of result.
  }];
  let arguments = (ins Tbc_FloatTensor:$cotangent, Tbc_FloatTensor:$query, Tbc_FloatTensor:$key,
                   Tbc_FloatTensor:$value, Tbc_FloatTensor:$result, Tbc_FloatTensor:$maximum,
                   Tbc_FloatTensor:$denominator, F64Attr:$scale, BoolAttr:$causal);
  let results = (outs Tbc_FloatTensor:$query_cotangent, Tbc_FloatTensor:$key_cotangent,
                 Tbc_FloatTensor:$value_cotangent);
}

#endif // TBC_IR_ATTENTION
