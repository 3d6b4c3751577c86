//===- Gradient.td - The end of a gradient ---------------------------------===//

#ifndef TBC_IR_GRADIENT
#define TBC_IR_GRADIENT

include "ir/TbcBase.td"

let loopNest = "false" in
def Tbc_DetachOp : Tbc_ElementwiseOp<"detach", [SameOperandsAndResultType]> {
  let summary = "The identity, through which no gradient passes";
  let description = [{
    Made by the import, for `--detach` and for the op Detach of a file. Passes before autodiff treat
    it as any op, so no pattern joins the ops on both sides. Autodiff removes it after the backward
    ops have been built. Example: d/dx (x + detach(round(x) - x)) = 1, a straight-through estimator.
    Source: torch.Tensor.detach.
  }];
  let arguments = (ins Tbc_FloatTensor:$input);
  let results = (outs Tbc_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

#endif // TBC_IR_GRADIENT
