//===- Normalization.td - Softmax and norms --------------------------------===//

#ifndef TBC_IR_NORMALIZATION
#define TBC_IR_NORMALIZATION

include "ir/TbcBase.td"

// All are composites: computed in f32 (f64 for f64 operands) and rounded once at the end. Statistics (mean, rstd) are
// f32, or f64 for f64 operands. N is the size of the last dim. FLOPs per element of x stand in `flopsPerElement`.

class Tbc_NormOp<string mnemonic, string flopsPerElement, list<Trait> traits = []>
    : Tbc_InferredOp<mnemonic, !listconcat(traits, [DeclareOpInterfaceMethods<CompositeOpInterface>])> {
  let resizesFixedLoops = "true";
  let loopNest = "true";
  let familyDefinition = [{
    void $cppClass::resizeLoops(::llvm::ArrayRef<int64_t>) {}
    double $cppClass::getFlops() {
      return }] # flopsPerElement # [{ * double(::tbc::tensorType(getInput()).getNumElements());
    }
    ::tbc::KernelClass $cppClass::getKernelClass() { return ::tbc::KernelClass::Reduction; }
  }];
}

def Tbc_SoftmaxOp : Tbc_NormOp<"softmax", "5", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "exp(x - stabilizer_max(x)) / sum(exp(x - stabilizer_max(x))) over one dim";
  let description = [{
    FLOPs: 5 per element (max, subtract, exp, sum, divide). `dim` is fixed, the others are parallel.

    Constraints:
    (C1) `dim` is a dim of the input.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, I64Attr:$dim);
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_SoftmaxGradOp : Tbc_NormOp<"softmax_grad", "4"> {
  let summary = "The gradient of softmax: dx = y * (dy - sum(y * dy))";
  let description = [{
    Takes the result y of softmax, not its input. FLOPs: 4 per element.

    Constraints:
    (C1) `dim` is a dim of both operands, which have one type.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$cotangent, I64Attr:$dim);
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_LayerNormOp : Tbc_NormOp<"layer_norm", "8", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "y = (x - mean) * rstd * weight + bias over the last dim";
  let description = [{
    mean = sum(x) / N, rstd = rsqrt(sum((x - mean)^2) / N + epsilon).
    FLOPs: 8 per element. The last dim is fixed, rows are parallel.

    Constraints:
    (C1) x has rank 1 or more; weight and bias are vectors of N elements of x's element type.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$weight, Tbc_FloatTensor:$bias, F64Attr:$epsilon);
  let results = (outs Tbc_FloatTensor:$result, Tbc_FloatTensor:$mean, Tbc_FloatTensor:$rstd);
}

def Tbc_LayerNormGradOp : Tbc_NormOp<"layer_norm_grad", "11"> {
  let summary = "The gradient of layer_norm with respect to x";
  let description = [{
    With h = (x - mean) * rstd and g = dy * weight: dx = rstd * (g - sum(g) / N - h * (sum(g * h) / N)).
    FLOPs: 11 per element. The last dim is fixed, rows are parallel.

    Constraints:
    (C1) `cotangent` has the type of x, weight is a vector of N elements, mean and rstd are x's statistics.
  }];
  let arguments = (ins Tbc_FloatTensor:$cotangent, Tbc_FloatTensor:$input, Tbc_FloatTensor:$weight,
                   Tbc_FloatTensor:$mean, Tbc_FloatTensor:$rstd);
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_NormScaleGradOp : Tbc_NormOp<"norm_scale_grad", "4"> {
  let summary = "The gradient of layer_norm with respect to weight: sum over rows of dy * ((x - mean) * rstd)";
  let description = [{
    FLOPs: 4 per element. Rows are summed over; the last dim is fixed.

    Constraints:
    (C1) `cotangent` has the type of x, mean and rstd are x's statistics.
  }];
  let arguments = (ins Tbc_FloatTensor:$cotangent, Tbc_FloatTensor:$input, Tbc_FloatTensor:$mean,
                   Tbc_FloatTensor:$rstd);
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_RmsNormOp : Tbc_NormOp<"rms_norm", "4", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "y = x * rstd * weight over the last dim, rstd = rsqrt(sum(x^2) / N + epsilon)";
  let description = [{
    FLOPs: 4 per element. The last dim is fixed, rows are parallel.

    Constraints:
    (C1) x has rank 1 or more; weight is a vector of N elements of x's element type.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$weight, F64Attr:$epsilon);
  let results = (outs Tbc_FloatTensor:$result, Tbc_FloatTensor:$rstd);
}

def Tbc_RmsNormGradOp : Tbc_NormOp<"rms_norm_grad", "8"> {
  let summary = "The gradient of rms_norm with respect to x";
  let description = [{
    With h = x * rstd and g = dy * weight: dx = rstd * (g - h * (sum(g * h) / N)).
    FLOPs: 8 per element. The last dim is fixed, rows are parallel.

    Constraints:
    (C1) `cotangent` has the type of x, weight is a vector of N elements, rstd is x's statistic.
  }];
  let arguments = (ins Tbc_FloatTensor:$cotangent, Tbc_FloatTensor:$input, Tbc_FloatTensor:$weight,
                   Tbc_FloatTensor:$rstd);
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_RmsScaleGradOp : Tbc_NormOp<"rms_scale_grad", "3"> {
  let summary = "The gradient of rms_norm with respect to weight: sum over rows of dy * (x * rstd)";
  let description = [{
    FLOPs: 3 per element. Rows are summed over; the last dim is fixed.

    Constraints:
    (C1) `cotangent` has the type of x, rstd is x's statistic.
  }];
  let arguments = (ins Tbc_FloatTensor:$cotangent, Tbc_FloatTensor:$input, Tbc_FloatTensor:$rstd);
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_BatchNormOp : Tbc_NormOp<"batch_norm", "4", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Inference form: y = (x - mean) * rsqrt(var + epsilon) * scale + bias per channel of x[n, c, *]";
  let description = [{
    `momentum` is kept for the training form. FLOPs: 4 per element. All dims are parallel.

    Constraints:
    (C1) x has rank 2 or more; scale, bias, mean and var are float vectors of c elements.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$scale, Tbc_FloatTensor:$bias,
                   Tbc_FloatTensor:$mean, Tbc_FloatTensor:$variance, F64Attr:$epsilon, F64Attr:$momentum);
  let results = (outs Tbc_FloatTensor:$result);
}

let loopNest = "false" in
def Tbc_BatchNormTrainOp : Tbc_NormOp<"batch_norm_train", "8"> {
  let summary = "Batch norm by the statistics of the batch, and the new running statistics";
  let description = [{
    Per channel of x[n, c, *], with M elements each: mean = sum(x) / M, var = sum((x - mean)^2) / M,
    y = (x - mean) * rsqrt(var + epsilon) * scale + bias,
    new_mean = momentum * running_mean + (1 - momentum) * mean,
    new_var = momentum * running_var + (1 - momentum) * var * M / (M - 1), as PyTorch has it; where not `unbiased`
    without M / (M - 1), as ONNX does.
    It is decomposed before differentiation. FLOPs: 8 per element. Channels are parallel, n and the spatial dims are fixed.

    Constraints:
    (C1) x has rank 2 or more; scale, bias, running mean and variance are float vectors of c elements.
    (C2) A channel has at least two elements.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$scale, Tbc_FloatTensor:$bias,
                   Tbc_FloatTensor:$running_mean, Tbc_FloatTensor:$running_variance, F64Attr:$epsilon,
                   F64Attr:$momentum, DefaultValuedAttr<BoolAttr, "true">:$unbiased);
  let results = (outs Tbc_FloatTensor:$result, Tbc_FloatTensor:$new_mean, Tbc_FloatTensor:$new_variance);
}

#endif // TBC_IR_NORMALIZATION
