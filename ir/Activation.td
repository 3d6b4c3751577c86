//===- Activation.td - Activations and rotary positions --------------------===//

#ifndef TBC_IR_ACTIVATION
#define TBC_IR_ACTIVATION

include "ir/TbcBase.td"

// Composites: computed in f32 (f64 for f64 operands) and rounded once at the end.

class Tbc_ActivationOp<string mnemonic, string text>
    : Tbc_ElementwiseOp<mnemonic, [SameOperandsAndResultType, DeclareOpInterfaceMethods<CompositeOpInterface>,
                                   DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = text;
  let results = (outs Tbc_FloatTensor:$result);
}
class Tbc_ActivationGradOp<string mnemonic, string text>
    : Tbc_ElementwiseOp<mnemonic, [SameOperandsAndResultType, DeclareOpInterfaceMethods<CompositeOpInterface>]> {
  let summary = text;
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_GeluOp : Tbc_ActivationOp<"gelu", "x times the normal distribution function of x, or its tanh approximation"> {
  let description = [{
    none: (0.5 * x) * (1 + erf(x * sqrt(1/2))).
    tanh: (0.5 * x) * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3))).
    FLOPs: 10 per element.

    Constraints:
    (C1) `approximate` is none or tanh.
  }];
  let flopsPerElement = "10";
  let elementFunction = "getApproximate() == \"tanh\" ? ::tbc::ElementFunction::Gelu : ::tbc::ElementFunction::Other";
  let arguments = (ins Tbc_FloatTensor:$input, StrAttr:$approximate);
  let hasVerifier = 1; /* gelu_c1 */
}

def Tbc_GeluGradOp : Tbc_ActivationGradOp<"gelu_grad", "The gradient of gelu"> {
  let description = [{
    FLOPs: 18 per element.

    Constraints:
    (C1) `approximate` is none or tanh.
  }];
  let flopsPerElement = "18";
  let elementFunction =
      "getApproximate() == \"tanh\" ? ::tbc::ElementFunction::GeluGradient : ::tbc::ElementFunction::Other";
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$cotangent, StrAttr:$approximate);
  let hasVerifier = 1; /* gelu_grad_c1 */
}

def Tbc_SiluOp : Tbc_ActivationOp<"silu", "x * sigmoid(x)"> {
  let description = "FLOPs: 5 per element.";
  let flopsPerElement = "5";
  let arguments = (ins Tbc_FloatTensor:$input);
}

def Tbc_SiluGradOp : Tbc_ActivationGradOp<"silu_grad", "The gradient of silu: dy * (s + x * s * (1 - s)), s = sigmoid(x)"> {
  let description = "FLOPs: 9 per element.";
  let flopsPerElement = "9";
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$cotangent);
}

def Tbc_SwigluOp : Tbc_ActivationOp<"swiglu", "silu(gate) * up"> {
  let description = "The gate of a feed-forward layer: silu(gate) is not kept for the gradient. FLOPs: 6 per element.";
  let flopsPerElement = "6";
  let arguments = (ins Tbc_FloatTensor:$gate, Tbc_FloatTensor:$up);
}

def Tbc_SwigluGradOp : Tbc_ElementwiseOp<"swiglu_grad", [SameOperandsAndResultType,
    DeclareOpInterfaceMethods<CompositeOpInterface>]> {
  let summary = "The gradients of swiglu: dy * up * (s + x * s * (1 - s)) and dy * x * s, x = gate, s = sigmoid(x)";
  let description = "FLOPs: 12 per element.";
  let flopsPerElement = "12";
  let arguments = (ins Tbc_FloatTensor:$gate, Tbc_FloatTensor:$up, Tbc_FloatTensor:$cotangent);
  let results = (outs Tbc_FloatTensor:$gate_cotangent, Tbc_FloatTensor:$up_cotangent);
}

def Tbc_RotaryOp : Tbc_InferredOp<"rotary", [DeclareOpInterfaceMethods<CompositeOpInterface>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<TransposableOpInterface>,
    DeclareOpInterfaceMethods<MergeableOpInterface>]> {
  let summary = "Rotates pairs of the last dim by position: x[.., s, d] with cos[s, d / 2], sin[s, d / 2]";
  let description = [{
    y1 = x1 * cos - x2 * sin, y2 = x2 * cos + x1 * sin, where x1 and x2 are the first and second half of d; if
    `interleaved`, its even and odd elements. `inverse` negates sin. If `token_major`, x is [b, s, h, d] or
    [b, s, h * d], with the heads between positions and columns. FLOPs: 3 per element. d is fixed, the others are
    parallel.

    Constraints:
    (C1) x has rank 2 or more and an even d.
    (C2) cos and sin have x's element type and the shape [s, d / 2]. If x has rank 3 or more, also
         [b, s, d / 2] with its first dim b, for positions that differ between samples.
    (C3) With `token_major`, x has rank 4 or 3. With rank 3, d is twice the last dim of the tables and
         divides the last dim of x.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$cos, Tbc_FloatTensor:$sin, BoolAttr:$inverse,
                   DefaultValuedAttr<BoolAttr, "false">:$token_major, DefaultValuedAttr<BoolAttr, "false">:$interleaved);
  let results = (outs Tbc_FloatTensor:$result);
}

#endif // TBC_IR_ACTIVATION
