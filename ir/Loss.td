//===- Loss.td - Cross entropy ---------------------------------------------===//

#ifndef TBC_IR_LOSS
#define TBC_IR_LOSS

include "ir/TbcBase.td"

def Tbc_CrossEntropyOp : Tbc_InferredOp<"cross_entropy", [DeclareOpInterfaceMethods<CompositeOpInterface>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let resizesFixedLoops = "true";
  let summary = "-log softmax(logits)[label] for every row of logits[.., v]; 0 where label is ignore_index";
  let description = [{
    m = stabilizer_max(x), l = sum(exp(x - m)), loss = m + log(l) - x[label]. With label_smoothing s the target is
    1 - s on the label and s / v spread over all v classes: loss = m + log(l) - (1 - s) x[label] - s / v sum(x).
    All three results are f32, or f64 for f64 logits. FLOPs: 5 per logit. Rows are parallel, v is fixed.

    Constraints:
    (C1) logits has rank 1 or more; labels has its shape without the last dim.
  }];
  let arguments = (ins Tbc_FloatTensor:$logits, Tbc_IntTensor:$labels, I64Attr:$ignore_index,
                   DefaultValuedAttr<F64Attr, "0.0">:$label_smoothing);
  let results = (outs Tbc_FloatTensor:$loss, Tbc_FloatTensor:$maximum, Tbc_FloatTensor:$denominator);
}

def Tbc_CrossEntropyGradOp : Tbc_InferredOp<"cross_entropy_grad", [DeclareOpInterfaceMethods<CompositeOpInterface>]> {
  let resizesFixedLoops = "true";
  let summary = "The gradient of cross_entropy: dloss * (exp(x - m) / l - target), 0 where label is ignore_index";
  let description = [{
    FLOPs: 5 per logit. Rows are parallel, v is fixed.

    Constraints:
    (C1) cross_entropy of logits and labels gives the types of maximum, denominator and cotangent.
  }];
  let arguments = (ins Tbc_FloatTensor:$logits, Tbc_IntTensor:$labels, Tbc_FloatTensor:$maximum,
                   Tbc_FloatTensor:$denominator, Tbc_FloatTensor:$cotangent, I64Attr:$ignore_index,
                   DefaultValuedAttr<F64Attr, "0.0">:$label_smoothing);
  let results = (outs Tbc_FloatTensor:$result);
}

#endif // TBC_IR_LOSS
