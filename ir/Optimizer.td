//===- Optimizer.td - Parameter updates ------------------------------------===//

#ifndef TBC_IR_OPTIMIZER
#define TBC_IR_OPTIMIZER

include "ir/TbcBase.td"

/// Acts on each element; the learning rate and the step number are scalars.
class Tbc_OptimizerOp<string mnemonic, string flopsPerElement> : Tbc_InferredOp<mnemonic> {
  let familyDefinition = [{
    ::tbc::FactorRule $cppClass::getFactorRule() { return ::tbc::optimizerRule(*this); }
    void $cppClass::resizeLoops(::llvm::ArrayRef<int64_t>) {}
    double $cppClass::getFlops() { return ::tbc::elementwiseFlops(*this, }] # flopsPerElement # [{); }
    ::llvm::StringRef $cppClass::getKernelClass() { return "elementwise"; }
  }];
}

def Tbc_SgdOp : Tbc_OptimizerOp<"sgd", "4"> {
  let summary = "p' = p - lr * (g + weight_decay * p)";
  let description = [{
    FLOPs: 4 per element.

    Constraints:
    (C1) The gradient has the parameter's shape.
  }];
  let arguments = (ins Tbc_FloatTensor:$parameter, Tbc_FloatTensor:$gradient, Tbc_FloatScalar:$rate,
                   F64Attr:$weight_decay);
  let results = (outs Tbc_FloatTensor:$new_parameter);
}

def Tbc_SgdMomentumOp : Tbc_OptimizerOp<"sgd_momentum", "8"> {
  let summary = "Stochastic gradient descent with momentum, as in PyTorch (dampening 0)";
  let description = [{
    d = g + weight_decay * p, buffer' = momentum * buffer + d, p' = p - lr * (nesterov ? d + momentum * buffer' : buffer').
    A buffer of zeros starts it. FLOPs: 8 per element.

    Constraints:
    (C1) Gradient and buffer have the parameter's shape.
  }];
  let arguments = (ins Tbc_FloatTensor:$parameter, Tbc_FloatTensor:$gradient, Tbc_FloatTensor:$buffer,
                   Tbc_FloatScalar:$rate, F64Attr:$momentum, BoolAttr:$nesterov, F64Attr:$weight_decay);
  let results = (outs Tbc_FloatTensor:$new_parameter, Tbc_FloatTensor:$new_buffer);
}

def Tbc_AdamwOp : Tbc_OptimizerOp<"adamw", "16"> {
  let summary = "AdamW with decoupled weight decay, as in PyTorch";
  let description = [{
    m' = beta1 * m + (1 - beta1) * g, v' = beta2 * v + (1 - beta2) * g^2,
    p' = p - lr * weight_decay * p - lr / (1 - beta1^step) * m' / (sqrt(v') / sqrt(1 - beta2^step) + epsilon).
    `step` counts from 1. FLOPs: 16 per element.

    Constraints:
    (C1) Gradient and both moments have the parameter's shape.
  }];
  let arguments = (ins Tbc_FloatTensor:$parameter, Tbc_FloatTensor:$gradient, Tbc_FloatTensor:$first_moment,
                   Tbc_FloatTensor:$second_moment, Tbc_FloatScalar:$rate, Tbc_IntScalar:$step, F64Attr:$beta1,
                   F64Attr:$beta2, F64Attr:$epsilon, F64Attr:$weight_decay);
  let results = (outs Tbc_FloatTensor:$new_parameter, Tbc_FloatTensor:$new_first_moment,
                 Tbc_FloatTensor:$new_second_moment);
}

#endif // TBC_IR_OPTIMIZER
