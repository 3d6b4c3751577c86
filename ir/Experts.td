//===- Experts.td - Mixture of experts -------------------------------------===//

#ifndef TBC_IR_EXPERTS
#define TBC_IR_EXPERTS

include "ir/TbcBase.td"

def Tbc_RoutedExpertsOp
    : Tbc_InferredOp<"routed_experts", [DeclareOpInterfaceMethods<CompositeOpInterface>,
                                        DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                                        DeclareOpInterfaceMethods<ExpertOpInterface>]> {
  let summary = "y[t, o] = sum over e of weights[t, e] * expert_e(x[t])";
  let description = [{
    Each expert is a network of two layers: p = in[e] x, a = act(p), expert_e(x) = out[e] a. If
    `gated`, p has two halves, the gate in front, and a = act(gate) * up.
    The token t is routed to the experts with a weight other than 0: at most `top` of them. Only
    these are computed, and no token is dropped.

    FLOPs: 2 t top f (g h + o), where g is 2 if gated, else 1. Example: t = 4 tokens, top 2, f = 8,
    h = o = 3, gated: 2 * 4 * 2 * 8 * (2 * 3 + 3) = 1152.
    t and o are parallel; e and f are summed over; h is fixed. So a rank with some of the experts,
    or with a part of each, makes a partial sum.

    Constraints:
    (C1) x[t, h], weights[t, e], in[e, g * f, h] and out[e, o, f] agree, also in their element type.
    (C2) `activation` is silu, gelu, gelu_tanh or relu; `top` is positive.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$weights, Tbc_FloatTensor:$in,
      Tbc_FloatTensor:$out, StrAttr:$activation, BoolAttr:$gated, I64Attr:$top);
  let results = (outs Tbc_FloatTensor:$result);
  let resizesFixedLoops = "true"; // h is equal to no other size
  let workspace = "::tbc::expertWorkspace(*this)";
  let ownKernel = "{1, 6, true}"; // three lists, two layers, the sums of tokens
}

def Tbc_RoutedExpertsGradOp
    : Tbc_InferredOp<"routed_experts_grad", [DeclareOpInterfaceMethods<CompositeOpInterface>]> {
  let summary = "The gradients of routed_experts with respect to its four operands";
  let description = [{
    Recomputes the first layer, because its result depends on the experts of the token and is larger
    than the token.
    With da = out[e]^T dy: d weights[t, e] = a . da if the weight is not 0, else 0; d out[e] = sum
    over t of weights[t, e] dy a^T; dp by the derivative of the activation from weights[t, e] * da;
    d in[e] = sum over t of dp x^T; dx = sum over e of in[e]^T dp.

    FLOPs: 2 t top f (3 g h + 2 o).

    Constraints:
    (C1) As routed_experts; the cotangent has the type of its result.
  }];
  let arguments = (ins Tbc_FloatTensor:$cotangent, Tbc_FloatTensor:$input, Tbc_FloatTensor:$weights,
      Tbc_FloatTensor:$in, Tbc_FloatTensor:$out, StrAttr:$activation, BoolAttr:$gated,
      I64Attr:$top);
  let results = (outs Tbc_FloatTensor:$input_cotangent, Tbc_FloatTensor:$weights_cotangent,
      Tbc_FloatTensor:$in_cotangent, Tbc_FloatTensor:$out_cotangent);
  let resizesFixedLoops = "true";
  let workspace = "::tbc::expertWorkspace(*this)";
  let ownKernel = "{1, 10, true}"; // three lists, the first layer, and one or two for each gradient
}

// Experts with a capacity. The tokens of a group g come in order t. Each expert e has c slots per
// group, and a token with a weight other than 0 takes the next one. If the slots are full, the
// expert drops the token. Example: c = 2 and tokens 0, 3, 5 of a group want expert 1; it drops
// token 5.
// The slots follow from `weights` alone, group by group and expert by expert. So g and e may be
// split over ranks, t and c may not.

def Tbc_DispatchOp
    : Tbc_InferredOp<"dispatch", [DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                                  DeclareOpInterfaceMethods<ExpertOpInterface>]> {
  let summary = "result[g, e, c] = input[g, t] of the token t that has slot c of expert e";
  let description = [{
    If `weighted`, times weights[g, t, e]. Slots that no token has are 0.
    FLOPs: g e c h if `weighted`, else 0. g, e and h are parallel, t and c are fixed.

    Constraints:
    (C1) input[g, t, h] and weights[g, t, e] agree, also in their element type.
    (C2) `capacity` is positive.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$weights, I64Attr:$capacity,
      BoolAttr:$weighted);
  let results = (outs Tbc_FloatTensor:$result);
  let resizesFixedLoops = "true";
}

def Tbc_CombineOp
    : Tbc_InferredOp<"combine", [DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                                 DeclareOpInterfaceMethods<ExpertOpInterface>]> {
  let summary = "result[g, t] = sum over the slots (e, c) that token t has of input[g, e, c]";
  let description = [{
    If `weighted`, each times weights[g, t, e]. A token without a slot is 0.
    FLOPs: g e c h, or twice that if `weighted`. g and h are parallel, e is summed over, t and c are fixed.

    Constraints:
    (C1) input[g, e, c, h] and weights[g, t, e] agree, also in their element type.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$weights, BoolAttr:$weighted);
  let results = (outs Tbc_FloatTensor:$result);
  let resizesFixedLoops = "true";
}

def Tbc_CombineWeightsGradOp : Tbc_InferredOp<"combine_weights_grad"> {
  let summary = "result[g, t, e] = cotangent[g, t] . input[g, e, c] where token t has slot c of "
                "expert e, else 0";
  let description = [{
    The gradient of combine, and of dispatch, with respect to the weights.
    FLOPs: 2 g e c h. g and e are parallel, h is summed over, t and c are fixed.

    Constraints:
    (C1) cotangent[g, t, h], input[g, e, c, h] and weights[g, t, e] agree, also in their element type.
  }];
  let arguments = (ins Tbc_FloatTensor:$cotangent, Tbc_FloatTensor:$input,
      Tbc_FloatTensor:$weights);
  let results = (outs Tbc_FloatTensor:$result);
  let resizesFixedLoops = "true";
}

#endif // TBC_IR_EXPERTS
