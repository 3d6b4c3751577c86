//===- Optimizer.td - Parameter updates ------------------------------------===//

#ifndef TBC_IR_OPTIMIZER
#define TBC_IR_OPTIMIZER

include "ir/TbcBase.td"

/// Acts on each element; the learning rate and the step number are scalars.
class Tbc_OptimizerOp<string mnemonic, string flopsPerElement> : Tbc_InferredOp<mnemonic> {
  let loopNest = "true";
  let familyDefinition = [{
    ::tbc::FactorRule $cppClass::getFactorRule() { return ::tbc::optimizerRule(*this); }
    void $cppClass::resizeLoops(::llvm::ArrayRef<int64_t>) {}
    double $cppClass::getFlops() { return ::tbc::elementwiseFlops(*this, }] # flopsPerElement # [{); }
    ::tbc::KernelClass $cppClass::getKernelClass() { return ::tbc::KernelClass::Elementwise; }
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

class Tbc_AdaptiveOp<string mnemonic> : Tbc_OptimizerOp<mnemonic, "16"> {
  let arguments = (ins Tbc_FloatTensor:$parameter, Tbc_FloatTensor:$gradient, Tbc_FloatTensor:$first_moment,
                   Tbc_FloatTensor:$second_moment, Tbc_FloatScalar:$rate, Tbc_IntScalar:$step, F64Attr:$beta1,
                   F64Attr:$beta2, F64Attr:$epsilon, F64Attr:$weight_decay);
  let results = (outs Tbc_FloatTensor:$new_parameter, Tbc_FloatTensor:$new_first_moment,
                 Tbc_FloatTensor:$new_second_moment);
}

def Tbc_AdamOp : Tbc_AdaptiveOp<"adam"> {
  let summary = "Adam with weight decay in the gradient (L2), as in PyTorch";
  let description = [{
    d = g + weight_decay * p, m' = beta1 * m + (1 - beta1) * d, v' = beta2 * v + (1 - beta2) * d^2,
    p' = p - lr / (1 - beta1^step) * m' / (sqrt(v') / sqrt(1 - beta2^step) + epsilon).
    `step` counts from 1. FLOPs: 16 per element.

    Constraints:
    (C1) Gradient and both moments have the parameter's shape.
  }];
}

def Tbc_AdamwOp : Tbc_AdaptiveOp<"adamw"> {
  let summary = "AdamW with decoupled weight decay, as in PyTorch";
  let description = [{
    m' = beta1 * m + (1 - beta1) * g, v' = beta2 * v + (1 - beta2) * g^2,
    p' = p - lr * weight_decay * p - lr / (1 - beta1^step) * m' / (sqrt(v') / sqrt(1 - beta2^step) + epsilon).
    `step` counts from 1. FLOPs: 16 per element.

    Constraints:
    (C1) Gradient and both moments have the parameter's shape.
  }];
}

def Tbc_AdagradOp : Tbc_OptimizerOp<"adagrad", "8"> {
  let summary = "Adagrad, as in PyTorch";
  let description = [{
    d = g + weight_decay * p, sum' = sum + d^2,
    p' = p - lr / (1 + (step - 1) * rate_decay) * d / (sqrt(sum') + epsilon).
    `step` counts from 1. FLOPs: 8 per element.
    Example: p = 4, g = 3, sum = 16, lr = 0.5, no decay, epsilon 0: sum' = 25, p' = 3.7.
    Source: Duchi et al., JMLR 12 (2011); torch.optim.Adagrad.

    Constraints:
    (C1) Gradient and sum have the parameter's shape.
  }];
  let arguments = (ins Tbc_FloatTensor:$parameter, Tbc_FloatTensor:$gradient, Tbc_FloatTensor:$sum,
                   Tbc_FloatScalar:$rate, Tbc_IntScalar:$step, F64Attr:$rate_decay, F64Attr:$epsilon,
                   F64Attr:$weight_decay);
  let results = (outs Tbc_FloatTensor:$new_parameter, Tbc_FloatTensor:$new_sum);
}

def Tbc_DivideByRootOp : Tbc_OptimizerOp<"divide_by_root", "3"> {
  let summary = "x / (sqrt(squares) + epsilon)";
  let description = [{
    The direction of row-wise Adagrad; `squares`: the sum of the element's row. FLOPs: 3 per
    element.
    Example: x = 3, squares = 4, epsilon = 1: 1.

    Constraints:
    (C1) Both operands have one shape.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$squares, F64Attr:$epsilon);
  let results = (outs Tbc_FloatTensor:$result);
}

//===----------------------------------------------------------------------===//
// Muon
//===----------------------------------------------------------------------===//

def Tbc_MuonMomentumOp : Tbc_OptimizerOp<"muon_momentum", "6"> {
  let summary = "The momentum of Muon, and the direction that is orthogonalized";
  let description = [{
    b' = momentum * b + (1 - momentum) * g, u = nesterov ? momentum * b' + (1 - momentum) * g : b'.
    A buffer of zeros starts it. FLOPs: 6 per element.
    Example: momentum 0.5, b = 4, g = 2: b' = 3, u = 2.5 with nesterov.
    Source: torch.optim.Muon.

    Constraints:
    (C1) The buffer has the gradient's shape.
  }];
  let arguments = (ins Tbc_FloatTensor:$gradient, Tbc_FloatTensor:$buffer, F64Attr:$momentum,
                   BoolAttr:$nesterov);
  let results = (outs Tbc_FloatTensor:$new_buffer, Tbc_FloatTensor:$direction);
}

/// The identity in the serial program, on a tensor of a parameter's shape.
class Tbc_MatricesOp<string mnemonic> : Tbc_InferredOp<mnemonic> {
  let arguments = (ins Tbc_FloatTensor:$input);
  let results = (outs Tbc_FloatTensor:$result);
  let familyDefinition = [{
    ::tbc::FactorRule $cppClass::getFactorRule() { return ::tbc::optimizerRule(*this); }
    void $cppClass::resizeLoops(::llvm::ArrayRef<int64_t>) {}
    double $cppClass::getFlops() { return 0; }
    ::tbc::KernelClass $cppClass::getKernelClass() { return ::tbc::KernelClass::None; }
  }];
}

def Tbc_GatherMatricesOp : Tbc_MatricesOp<"gather_matrices"> {
  let summary = "From the state's shard to whole matrices: the last two dims of a parameter";
  let description = [{
    Serially the identity. tbc-build-update makes it; tbc-partition replaces it by the collectives
    that gather the last two dims. The ops up to tbc.shard_matrices then act on whole matrices, on
    every rank that holds a part of them.

    `by_rows`: the rows of a matrix are a stack, each for itself, so only columns are gathered.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, DefaultValuedAttr<BoolAttr, "false">:$by_rows);
}

def Tbc_ShardMatricesOp : Tbc_MatricesOp<"shard_matrices"> {
  let summary = "From whole matrices to the state's shard";
  let description = [{
    Serially the identity, behind tbc.gather_matrices. tbc-partition replaces it by local slices.
  }];
}

def Tbc_DivideByNormOp : Tbc_OptimizerOp<"divide_by_norm", "3"> {
  let summary = "x / max(sqrt(squares), epsilon)";
  let description = [{
    `squares`: the sum of squares of the matrix with the element. FLOPs: 3 per element.
    Example: x = 3, squares = 25: 0.6.

    Constraints:
    (C1) Both operands have one shape.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$squares, F64Attr:$epsilon);
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_WeightedSumOp : Tbc_OptimizerOp<"weighted_sum", "3"> {
  let summary = "alpha * x + beta * y";
  let description = [{
    The combination of matmuls in a Newton-Schulz iteration, as by torch.addmm. FLOPs: 3 per
    element.

    Constraints:
    (C1) Both operands have one shape.
  }];
  let arguments = (ins Tbc_FloatTensor:$lhs, Tbc_FloatTensor:$rhs, F64Attr:$alpha, F64Attr:$beta);
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_MuonStepOp : Tbc_OptimizerOp<"muon_step", "5"> {
  let summary = "p' = p - lr * weight_decay * p - lr * scale * direction";
  let description = [{
    The step of Muon along an orthogonalized direction, with decoupled weight decay. `scale` adjusts
    the learning rate to the shape of the matrix. FLOPs: 5 per element.
    Source: torch.optim.Muon.

    Constraints:
    (C1) The direction has the parameter's shape.
  }];
  let arguments = (ins Tbc_FloatTensor:$parameter, Tbc_FloatTensor:$direction, Tbc_FloatScalar:$rate,
                   F64Attr:$scale, F64Attr:$weight_decay);
  let results = (outs Tbc_FloatTensor:$new_parameter);
}

//===----------------------------------------------------------------------===//
// Adafactor
//===----------------------------------------------------------------------===//

def Tbc_FactoredMomentOp : Tbc_OptimizerOp<"factored_moment", "4"> {
  let summary = "The mean of squares of rows or columns, averaged over steps";
  let description = [{
    m' = m + w * (sums / count - m) with w = step^beta2_decay, a weight that falls from 1.
    `sums`: squares of a gradient, added up over `count` elements of each row or column; of a
    vector, the squares themselves and a count of 1. `step` counts from 1. FLOPs: 4 per element.
    Example: sums = 8, count = 4, m = 1, step = 2, beta2_decay = -1: w = 0.5, m' = 1.5.
    Source: Shazeer and Stern, "Adafactor", arXiv 1804.04235, algorithms 4 and 5;
    torch.optim.Adafactor.

    Constraints:
    (C1) The moment has the shape of the sums.
    (C2) `count` is positive.
  }];
  let arguments = (ins Tbc_FloatTensor:$sums, Tbc_FloatTensor:$moment, Tbc_IntScalar:$step,
                   I64Attr:$count, F64Attr:$beta2_decay);
  let results = (outs Tbc_FloatTensor:$new_moment);
}

def Tbc_FactoredDirectionOp : Tbc_OptimizerOp<"factored_direction", "8"> {
  let summary = "A gradient over the root of its factored second moment";
  let description = [{
    u = g / sqrt(max(row * column / max(total / count, epsilon), epsilon^2)).
    `row` and `column`: the moments of the element's row and column; `total`: the sum of the `count`
    moments of rows of its matrix. All are repeated to the shape of the gradient. FLOPs: 8 per
    element.
    Example: g = 6, row = 2, column = 9, total = 4, count = 2, epsilon = 0: u = 2.
    Source: torch.optim.Adafactor.

    Constraints:
    (C1) All operands have one shape.
    (C2) `count` is positive.
  }];
  let arguments = (ins Tbc_FloatTensor:$gradient, Tbc_FloatTensor:$row, Tbc_FloatTensor:$column,
                   Tbc_FloatTensor:$total, I64Attr:$count, F64Attr:$epsilon);
  let results = (outs Tbc_FloatTensor:$direction);
}

def Tbc_RootDirectionOp : Tbc_OptimizerOp<"root_direction", "4"> {
  let summary = "A gradient over the root of its second moment";
  let description = [{
    u = g / sqrt(max(moment, epsilon^2)), for vectors. FLOPs: 4 per element.
    Example: g = 6, moment = 9: u = 2.
    Source: torch.optim.Adafactor.

    Constraints:
    (C1) The moment has the gradient's shape.
  }];
  let arguments = (ins Tbc_FloatTensor:$gradient, Tbc_FloatTensor:$moment, F64Attr:$epsilon);
  let results = (outs Tbc_FloatTensor:$direction);
}

def Tbc_SquareTotalsOp : Tbc_InferredOp<"square_totals"> {
  let summary = "The sums of the squares of tensors of one parameter's shape";
  let description = [{
    A f32 scalar per operand. In the update of one stage the operands are shards: tbc-partition
    replaces the op by tbc.square_sum of each, and one all_reduce of all sums over the axes that cut
    the state. FLOPs: 2 per element.

    Constraints:
    (C1) All operands have one shape.
  }];
  let arguments = (ins Variadic<Tbc_FloatTensor>:$tensors);
  let results = (outs Variadic<Tbc_FloatScalar>:$totals);
}

def Tbc_AdafactorStepOp : Tbc_OptimizerOp<"adafactor_step", "5"> {
  let summary = "The step of Adafactor along a direction, relative to the size of the parameter";
  let description = [{
    p' = p - lr * weight_decay * p - rate / limit * u, with
    rate = max(epsilon, sqrt(parameter_squares / count)) * min(lr, 1 / sqrt(step)) and
    limit = max(1, sqrt(direction_squares / count) / clip_threshold).
    `count`: the elements of the parameter, whose squares are added up. `step` counts from 1. FLOPs:
    5 per element.
    Example: p = 2, u = 3, count = 1, squares 4 and 9, lr = 0.5, step = 1, clip_threshold = 1, no
    decay: rate = 1, limit = 3, p' = 1.
    Source: torch.optim.Adafactor.

    Constraints:
    (C1) The direction has the parameter's shape.
    (C2) `count` and `clip_threshold` are positive.
  }];
  let arguments = (ins Tbc_FloatTensor:$parameter, Tbc_FloatTensor:$direction,
                   Tbc_FloatScalar:$parameter_squares, Tbc_FloatScalar:$direction_squares,
                   Tbc_FloatScalar:$rate, Tbc_IntScalar:$step, I64Attr:$count, F64Attr:$clip_threshold,
                   F64Attr:$epsilon, F64Attr:$weight_decay);
  let results = (outs Tbc_FloatTensor:$new_parameter);
}

//===----------------------------------------------------------------------===//
// Ops over all gradients of a step
//===----------------------------------------------------------------------===//

def Tbc_SquareSumOp : Tbc_InferredOp<"square_sum"> {
  let summary = "The sum of the squares of all elements of all gradients";
  let description = [{
    A f32 scalar. In the update of one stage the operands are the elements owned by the rank, so the
    sum over all ranks counts each element once. FLOPs: 2 per element.
  }];
  let arguments = (ins Variadic<Tbc_FloatTensor>:$gradients);
  let results = (outs Tbc_FloatScalar:$result);
}

def Tbc_CountNotFiniteOp : Tbc_InferredOp<"count_not_finite"> {
  let summary = "How many elements of all gradients are infinite or no number";
  let description = [{
    A f32 scalar; the step is skipped unless it is 0. The operands are the same elements as for
    square_sum. In residues, one reserved residue counts as not finite. FLOPs: 1 per element.
  }];
  let arguments = (ins Variadic<Tbc_FloatTensor>:$gradients);
  let results = (outs Tbc_FloatScalar:$result);
}

def Tbc_UpdateLossScaleOp : Tbc_InferredOp<"update_loss_scale"> {
  let summary = "The loss scale of the next step, as PyTorch's GradScaler chooses it";
  let description = [{
    After a step with a gradient that is not finite, the new scale is scale * `backoff_factor`.
    After `growth_interval` finite steps in a row it is scale * `growth_factor`, unless that
    overflows. `tracker` counts the finite steps in a row.
    Example: scale 65536, backoff 0.5: an overflow makes it 32768.
    Source: torch.amp.GradScaler, _amp_update_scale_.

    Constraints:
    (C1) `growth_interval` is positive.
    (C2) Both factors are positive.
  }];
  let arguments = (ins Tbc_FloatScalar:$scale, Tbc_IntScalar:$tracker, Tbc_BoolScalar:$is_finite,
                   F64Attr:$growth_factor, F64Attr:$backoff_factor, I64Attr:$growth_interval);
  let results = (outs Tbc_FloatScalar:$new_scale, Tbc_IntScalar:$new_tracker);
}

def Tbc_StepTotalOp : Tbc_InferredOp<"step_total"> {
  let summary = "Sums of scalars over all ranks";
  let description = [{
    Serially the identity. The partitioner makes it the one small all_reduce of a step: norm, overflow flag, counts
    and loss travel together.

    Constraints:
    (C1) All operands have one type.
  }];
  let arguments = (ins Variadic<Tbc_FloatScalar>:$parts);
  let results = (outs Variadic<Tbc_FloatScalar>:$totals);
}

/// Acts on each element of a tensor of a parameter's shape; other operands are scalars.
class Tbc_UpdateOp<string mnemonic> : Tbc_OptimizerOp<mnemonic, "1">;

def Tbc_ScaleByOp : Tbc_UpdateOp<"scale_by"> {
  let summary = "Every element times one number";
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatScalar:$factor);
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_ClipValueOp : Tbc_UpdateOp<"clip_value"> {
  let summary = "min(max(x, -limit), limit)";
  let arguments = (ins Tbc_FloatTensor:$input, F64Attr:$limit);
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_UpdateIfOp : Tbc_UpdateOp<"update_if"> {
  let summary = "The new value if the scalar condition holds, else the old one: skips a step";
  let description = [{
    Constraints:
    (C1) Old and new value have the same type.
  }];
  let arguments = (ins Tbc_FloatTensor:$old, Tbc_FloatTensor:$replacement, Tbc_BoolScalar:$condition);
  let results = (outs Tbc_FloatTensor:$result);
}

#endif // TBC_IR_OPTIMIZER
