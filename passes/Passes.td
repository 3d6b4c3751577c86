//===- Passes.td - The passes of tbc ---------------------------------------===//

#ifndef TBC_PASSES
#define TBC_PASSES

include "mlir/Pass/PassBase.td"

def AttachLossPass : Pass<"tbc-attach-loss", "mlir::ModuleOp"> {
  let summary = "Makes @train out of @model: the loss of a micro-batch";
  let description = [{
    Clones @model to @train, adds the argument "labels" and returns the loss in front of the new
    states. The loss of a micro-batch is the sum over its elements divided by the number of elements
    in the global batch. So losses and gradients of micro-batches and data ranks add up.

    ```mlir
    // before
    func.func @model(%x: tensor<4x3xf32> {tbc.role = #tbc.role<input>, ...}, %w: ...) -> tensor<4x5xf32> {...}
    // after, with --tbc-attach-loss="loss=mse samples=8"
    func.func @train(%x: ..., %w: ..., %labels: tensor<4x5xf32> {tbc.role = #tbc.role<label>, ...})
        -> (tensor<f32> {tbc.name = "loss", tbc.role = #tbc.role<loss>}) {
      ...
      %d = tbc.sub %y, %labels {tbc.id = "loss.sub", ...} : tensor<4x5xf32>
      %s = tbc.mul %d, %d {tbc.id = "loss.mul", ...} : tensor<4x5xf32>
      %n = tbc.factor_size {count = 5 : i64, samples = 8 : i64, tbc.global_batch, ...} : () -> tensor<f32>
      %b = tbc.broadcast %n {dims = array<i64>, ...} : (tensor<f32>) -> tensor<4x5xf32>
      %e = tbc.div %s, %b {tbc.id = "loss.div", ...} : tensor<4x5xf32>
      %loss = tbc.reduce_sum %e {dims = array<i64: 0, 1>, ...} : (tensor<4x5xf32>) -> tensor<f32>
    ```
  }];
  let options = [
    Option<"loss", "loss", "std::string", "\"cross-entropy\"", "cross-entropy, mse or output">,
    Option<"output", "output", "std::string", "\"\"", "the model's output to take; empty: the first">,
    Option<"labelSmoothing", "label-smoothing", "double", "0.0", "of cross-entropy, 0 to 1">,
    Option<"ignoreIndex", "ignore-index", "int64_t", "-100", "label that does not count">,
    Option<"samples", "samples", "int64_t", "0", "samples in the global batch; 0: those of the types">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def DecomposeCompositesPass : Pass<"tbc-decompose-composites", "mlir::func::FuncOp"> {
  let summary = "Replaces composite ops by their decompositions";
  let description = [{
    An op called X with id "i" becomes ops with the ids "i.0", "i.1" ... .

    ```mlir
    // before
    %y = tbc.silu %x {tbc.id = "act"} : (tensor<4x3xf32>) -> tensor<4x3xf32>
    // after
    %0 = tbc.sigmoid %x {tbc.id = "act.0"} : tensor<4x3xf32>
    %1 = tbc.mul %x, %0 {tbc.id = "act.1"} : tensor<4x3xf32>
    ```
  }];
  let options = [
    ListOption<"ops", "ops", "std::string", "mnemonics to decompose; none: all composites">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def UseBatchStatisticsPass : Pass<"tbc-use-batch-statistics", "mlir::func::FuncOp"> {
  let summary = "Turns batch norms into their training form, with running statistics as states";
  let description = [{
    ```mlir
    // before: %mean and %variance are states
    %y = tbc.batch_norm %x, %scale, %bias, %mean, %variance {epsilon = 1.0e-5 : f64, momentum = 0.9 : f64} : ...
    return %y : tensor<4x3xf32>
    // after: the new states are results
    %y, %new_mean, %new_variance = tbc.batch_norm_train %x, %scale, %bias, %mean, %variance
        {epsilon = 1.0e-5 : f64, momentum = 0.9 : f64} : ...
    return %y, %new_mean, %new_variance : tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>
    ```
  }];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def PadVocabulariesPass : Pass<"tbc-pad-vocabularies", "mlir::func::FuncOp"> {
  let summary = "Rounds vocabularies up to a multiple that devices can divide";
  let description = [{
    ```mlir
    // before: a table of 127 tokens
    %n = tbc.iota {dim = 0 : i64} : () -> tensor<127xi64>
    %x = tbc.embedding %table, %ids, %n, %last : (tensor<127x2xf32>, ...) -> tensor<3x2xf32>
    // after, with --tbc-pad-vocabularies=multiple=4: the row of padding has the number -1
    %i = tbc.iota {dim = 0 : i64} : () -> tensor<128xi64>
    %p = tbc.compare %i, %size {predicate = "lt"} : ... -> tensor<128xi1>
    %n = tbc.select %p, %i, %none : ... -> tensor<128xi64>
    %x = tbc.embedding %table, %ids, %n, %last : (tensor<128x2xf32>, ...) -> tensor<3x2xf32>
    ```
  }];
  let options = [
    Option<"multiple", "multiple", "int64_t", "128", "what is to divide them">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def LimitExpertsPass : Pass<"tbc-limit-experts", "mlir::func::FuncOp"> {
  let summary = "Gives experts a capacity per sample, and drops the tokens beyond it";
  let description = [{
    tbc.routed_experts becomes tbc.dispatch of the tokens of each sample to [g, e, c, h], the experts' two layers as
    einsums over e, and tbc.combine.

    ```mlir
    // before: two samples of four tokens, three experts
    %y = tbc.routed_experts %tokens, %weights, %in, %out {activation = "silu", gated = true, top = 1 : i64, tbc.id = "experts"}
        : (tensor<8x6xf32>, tensor<8x3xf32>, tensor<3x10x6xf32>, tensor<3x7x5xf32>) -> tensor<8x7xf32>
    // after, with --tbc-limit-experts=factor=1.5: 1.5 * 4 / 3 = 2 slots for each expert and sample
    %s = tbc.dispatch %x, %w {capacity = 2 : i64, tbc.id = "experts.dispatch", weighted = false} : ... -> tensor<2x3x2x6xf32>
    %u = tbc.einsum %s, %in {...} : ... -> tensor<2x3x2x10xf32>
    ...
    %o = tbc.einsum %inner, %out {...} : ... -> tensor<2x3x2x7xf32>
    %c = tbc.combine %o, %w {tbc.id = "experts.combine", weighted = true} : ...
    ```
  }];
  let options = [
    Option<"factor", "factor", "double", "1.0", "the capacity as a multiple of an even share">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def UseDropoutPass : Pass<"tbc-use-dropout", "mlir::func::FuncOp"> {
  let summary = "Turns dropouts into their training form, random by element, sample and step; or removes them";
  let description = [{
    ```mlir
    // before
    %y = tbc.dropout %x {ratio = 0.1 : f64, tbc.id = "drop"} : (tensor<4x3xf32>) -> tensor<4x3xf32>
    // after: %step and %sample are new arguments, %row is 3 * %sample, %column counts the elements of a row
    %y = tbc.dropout_train %x, %step, %row, %column {key = 2846199180 : i64, ratio = 0.1 : f64, seed = 0 : i64, tbc.id = "drop"}
        : (tensor<4x3xf32>, tensor<i64>, tensor<4xi64>, tensor<3xi64>) -> tensor<4x3xf32>
    ```
  }];
  let options = [
    Option<"seed", "seed", "int64_t", "0", "of the random numbers">,
    Option<"remove", "remove", "bool", "false", "take every dropout out instead">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def PlaceTokensPass : Pass<"tbc-place-tokens", "mlir::func::FuncOp"> {
  let summary = "Gives attention windows the position ids of tokens, so that sequences can be split";
  let description = [{
    ```mlir
    // before: %x is [b, h, s, d]
    %o, %m, %l = tbc.attention %x, %x, %x {scale = 1.0 : f64, causal = true} : ...
    // after
    %i = tbc.iota {dim = 0 : i64} : () -> tensor<4xi64>
    %o, %m, %l = tbc.attention %x, %x, %x, %i, %i {scale = 1.0 : f64, causal = true, placed = true} : ...
    ```
  }];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def LiftSlicesPass : Pass<"tbc-lift-slices", "mlir::func::FuncOp"> {
  let summary = "Moves slices before splits and transposes that only slices read";
  let description = [{
    Queries, keys and values that are rows of a transposed tensor become columns of the tensor that a
    linear layer makes, so attention can take them in place. Dims of one element are dropped before
    the transpose that is left for each.

    ```mlir
    // before: the queries of a vision transformer
    %s = tbc.reshape %x {sizes = array<i64: 2, 5, 3, 4, 8>, in = array<i64: 1, 1, 3>, out = array<i64: 1, 1, 1, 1, 1>}
       : (tensor<2x5x96xf32>) -> tensor<2x5x3x4x8xf32>
    %t = tbc.transpose %s {permutation = array<i64: 2, 0, 3, 1, 4>} : (tensor<2x5x3x4x8xf32>) -> tensor<3x2x4x5x8xf32>
    %r = tbc.slice %t {dim = 0, offset = 1, size = 1} : (tensor<3x2x4x5x8xf32>) -> tensor<1x2x4x5x8xf32>
    // after
    %r = tbc.slice %x {dim = 2, offset = 32, size = 32} : (tensor<2x5x96xf32>) -> tensor<2x5x32xf32>
    %s = tbc.reshape %r {sizes = array<i64: 2, 5, 4, 8>, in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>}
       : (tensor<2x5x32xf32>) -> tensor<2x5x4x8xf32>
    %q = tbc.transpose %s {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x5x4x8xf32>) -> tensor<2x4x5x8xf32>
    ```
  }];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def FoldTransposesPass : Pass<"tbc-fold-transposes", "mlir::func::FuncOp"> {
  let summary = "Makes transposes of operands and results a part of the ops beside them";
  let description = [{
    An einsum names its dims, so it needs no copy of a tensor in another order, and neither does its
    gradient. Attention reads and writes heads before or behind the positions (`token_major`); a
    transpose of heads moves behind a rotary embedding first. A transpose stays if
    - the einsum or its gradient would become more matmuls than one, for example an attention in
      einsums whose batch and heads are no longer side by side;
    - it transposes an activation that another op reads.

    ```mlir
    // before: the weight of nn.Linear
    %t = tbc.transpose %w {permutation = array<i64: 1, 0>} : (tensor<5x3xf32>) -> tensor<3x5xf32>
    %y = tbc.einsum %x, %t {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 2>}
       : (tensor<4x3xf32>, tensor<3x5xf32>) -> tensor<4x5xf32>
    // after
    %y = tbc.einsum %x, %w {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 2, 1>, out_labels = array<i64: 0, 2>}
       : (tensor<4x3xf32>, tensor<5x3xf32>) -> tensor<4x5xf32>
    ```
  }];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def FoldReshapesPass : Pass<"tbc-fold-reshapes", "mlir::func::FuncOp"> {
  let summary = "Keeps dims apart that reshapes merge for ops that need no merged dims";
  let description = [{
    A merge of dims moves behind einsums and elementwise ops, where another reshape often undoes it.
    A merge stays in front of ops that need it, for example an einsum that sums over the merged dim.

    ```mlir
    // before: a linear layer of Hugging Face's GPT-2
    %m = tbc.reshape %x {sizes = array<i64: 2, 4, 3>, in = array<i64: 1, 1, 1>, out = array<i64: 2, 1>}
       : (tensor<2x4x3xf32>) -> tensor<8x3xf32>
    %y = tbc.einsum %m, %w {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 2>}
       : (tensor<8x3xf32>, tensor<3x5xf32>) -> tensor<8x5xf32>
    %z = tbc.reshape %y {sizes = array<i64: 2, 4, 5>, in = array<i64: 2, 1>, out = array<i64: 1, 1, 1>}
       : (tensor<8x5xf32>) -> tensor<2x4x5xf32>
    // after
    %z = tbc.einsum %x, %w {lhs_labels = array<i64: 0, 3, 1>, rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 3, 2>}
       : (tensor<2x4x3xf32>, tensor<3x5xf32>) -> tensor<2x4x5xf32>
    ```
  }];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def MergeHeadsPass : Pass<"tbc-merge-heads", "mlir::func::FuncOp"> {
  let summary = "Keeps heads merged with their columns beside attention";
  let description = [{
    Attention and rotary embeddings address the rows of heads in [b, s, h * d] as well as in
    [b, s, h, d], so the reshape beside them needs no copy, forward or backward. A split stays for
    readers that need it, a merge for a tensor with another reader.

    ```mlir
    // before, with the attributes of attention left out
    %q = tbc.reshape %x {sizes = array<i64: 2, 4, 6, 8>, in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>}
       : (tensor<2x4x48xf32>) -> tensor<2x4x6x8xf32>
    %o, %m, %l = tbc.attention %q, %k, %v {token_major = "qkvo", ...}
    // after
    %o, %m, %l = tbc.attention %x, %k, %v {token_major = "Qkvo", heads = 6, key_heads = 6, ...}
    ```
  }];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def DifferentiatePass : Pass<"tbc-differentiate", "mlir::ModuleOp"> {
  let summary = "Adds the backward phase to @train, which then also returns the gradients";
  let description = [{
    A reverse sweep over the forward ops, through the values that depend on a trained parameter.
    Backward ops get three attributes:
    - the id "FORWARD.bwd.K";
    - `tbc.forward`: the id of the forward op;
    - `tbc.cotangent_of`: the values of the results' cotangents.

    Forward ops without cost (views, data-independent values) are repeated in the backward phase, so
    their results are no residuals, unless they take the place of a residual of the same size.

    ```mlir
    // before
    %y = tbc.gelu %x {approximate = "tanh", tbc.id = "act", tbc.phase = #tbc.phase<fwd>} : ...
    // after: %dy is the cotangent of %y
    %y = tbc.gelu %x {approximate = "tanh", tbc.id = "act", tbc.phase = #tbc.phase<fwd>} : ...
    ...
    %dx = tbc.gelu_grad %x, %dy {approximate = "tanh", tbc.cotangent_of = [["l", 0]],
        tbc.forward = "act", tbc.id = "act.bwd.0", tbc.phase = #tbc.phase<bwd>} : ...
    ```
  }];
  let options = [
    ListOption<"freeze", "freeze", "std::string", "globs of parameters that are not trained">,
    Option<"lossScale", "loss-scale", "double", "0.0", "what gradients are multiplied by; 0: nothing">,
    Option<"growthInterval", "growth-interval", "int64_t", "2000", "steps until the scale grows; 0: never changes">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def BuildUpdatePass : Pass<"tbc-build-update", "mlir::ModuleOp"> {
  let summary = "Builds @update, the optimizer's step for every trained parameter of @train";
  let description = [{
    ```mlir
    // after, with --tbc-build-update=optimizer=sgd, for the parameter "w" of @train
    func.func @update(%w: tensor<3x5xf32> {tbc.name = "w", tbc.role = #tbc.role<param>},
                      %g: tensor<3x5xf32> {tbc.name = "w", tbc.role = #tbc.role<grad>},
                      %rate: tensor<f32> {tbc.name = "lr", tbc.role = #tbc.role<lr>})
        -> (tensor<3x5xf32> {tbc.name = "w", tbc.role = #tbc.role<param>}) {
      %0 = tbc.sgd %w, %g, %rate {tbc.id = "sgd.0", weight_decay = 0.01 : f64}
          : (tensor<3x5xf32>, tensor<3x5xf32>, tensor<f32>) -> tensor<3x5xf32>
    ```
  }];
  let options = [
    Option<"optimizer", "optimizer", "std::string", "\"adamw\"", "sgd, adam, adamw, muon, adafactor, adagrad or rowwise-adagrad">,
    Option<"momentum", "momentum", "double", "0.0", "of sgd and muon">,
    Option<"nesterov", "nesterov", "bool", "false", "Nesterov momentum">,
    Option<"beta1", "beta1", "double", "0.9", "of adam and adamw">,
    Option<"beta2", "beta2", "double", "0.999", "of adam and adamw">,
    Option<"epsilon", "epsilon", "double", "1e-8", "of adam and adamw">,
    Option<"weightDecay", "weight-decay", "double", "0.01", "factor of the weights">,
    ListOption<"noDecay", "no-decay", "std::string", "globs of parameters whose weights do not decay">,
    Option<"steps", "ns-steps", "int64_t", "5", "iterations of Newton and Schulz, of muon">,
    Option<"matchRms", "match-rms", "bool", "false", "of muon: steps of the size of AdamW's">,
    ListOption<"noMuon", "no-muon", "std::string", "globs of matrices that step by adamw">,
    Option<"beta2Decay", "beta2-decay", "double", "-0.8", "of adafactor: the power of the step">,
    Option<"epsilon1", "epsilon1", "double", "-1.0", "of adafactor; negative: of the element type">,
    Option<"epsilon2", "epsilon2", "double", "1e-3", "of adafactor: smallest size of a parameter">,
    Option<"clipThreshold", "clip-threshold", "double", "1.0", "of adafactor: largest size of a direction">,
    Option<"rateDecay", "lr-decay", "double", "0.0", "of adagrad: how its rate falls">,
    Option<"initialAccumulator", "initial-accumulator", "double", "0.0", "of adagrad: first sum of squares">,
    Option<"clipNorm", "clip-norm", "double", "0.0", "largest norm of all gradients; 0: any">,
    Option<"clipValue", "clip-value", "double", "0.0", "largest element of a gradient; 0: any">,
    Option<"lossScale", "loss-scale", "double", "0.0", "that of tbc-differentiate">,
    Option<"growthFactor", "growth-factor", "double", "2.0", "of the loss scale">,
    Option<"backoffFactor", "backoff-factor", "double", "0.5", "of the loss scale, on overflow">,
    Option<"growthInterval", "growth-interval", "int64_t", "2000", "that of tbc-differentiate">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def LowerPrecisionPass : Pass<"tbc-lower-precision", "mlir::func::FuncOp"> {
  let summary = "Computes in bf16 or f16 where the policy of docs/precision.md says so";
  let description = [{
    Float parameters become narrow; every op computes in the narrow type or f32 as its class says, with casts between.

    ```mlir
    // before
    func.func @model(%x: tensor<4x3xf32>, %w: tensor<3x5xf32> {tbc.role = #tbc.role<param>, ...}) -> tensor<4x5xf32> {
      %y = tbc.einsum %x, %w {..., tbc.id = "l"} : (tensor<4x3xf32>, tensor<3x5xf32>) -> tensor<4x5xf32>
    // after, with --tbc-lower-precision=to=bf16
    func.func @model(%x: tensor<4x3xf32>, %w: tensor<3x5xbf16> {tbc.role = #tbc.role<param>, ...}) -> tensor<4x5xf32> {
      %0 = tbc.cast %x {tbc.id = "l.cast"} : (tensor<4x3xf32>) -> tensor<4x3xbf16>
      %1 = tbc.einsum %0, %w {..., tbc.id = "l"} : (tensor<4x3xbf16>, tensor<3x5xbf16>) -> tensor<4x5xbf16>
    ```
  }];
  let options = [
    Option<"to", "to", "std::string", "\"bf16\"", "the narrow type, bf16 or f16">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def AssignChunksPass : Pass<"tbc-assign-chunks", "mlir::ModuleOp"> {
  let summary = "Puts every op of @train on a chunk, from the marks on the first op of each";
  let description = [{
    A forward op is on the chunk that begins at it or last before it. A backward op is on the chunk
    of its forward op. Without a forward op, it is on the chunk of the op of `tbc.cotangent_of`.

    ```mlir
    // before
    %0 = tbc.relu %x {tbc.id = "a", tbc.chunk_begin = 0 : i64} : ...
    %1 = tbc.relu %0 {tbc.id = "b", tbc.chunk_begin = 1 : i64} : ...
    %2 = tbc.mul %g, %1 {tbc.id = "b.bwd.0", tbc.forward = "b", tbc.phase = #tbc.phase<bwd>} : ...
    // after
    %0 = tbc.relu %x {tbc.id = "a", tbc.chunk = 0 : i64} : ...
    %1 = tbc.relu %0 {tbc.id = "b", tbc.chunk = 1 : i64} : ...
    %2 = tbc.mul %g, %1 {tbc.id = "b.bwd.0", tbc.forward = "b", tbc.phase = #tbc.phase<bwd>, tbc.chunk = 1 : i64} : ...
    ```
  }];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def RecomputePass : Pass<"tbc-recompute", "mlir::ModuleOp"> {
  let summary = "Clones forward ops marked tbc.recompute into the backward phase";
  let description = [{
    Recomputation (activation checkpointing): a backward op that reads a result of a marked op of
    its chunk reads that of a clone. So no residual is kept for it from forward to backward. The
    clone of op "i" has the id "i.recompute". It stands right before the first backward op that
    needs it, directly or through other clones. Results are equal bit for bit.

    ```mlir
    // before
    %0 = tbc.relu %x {tbc.id = "a", tbc.phase = #tbc.phase<fwd>, tbc.recompute} : ...
    %1 = tbc.mul %g, %0 {tbc.id = "b.bwd.0", tbc.phase = #tbc.phase<bwd>} : ...
    // after
    %0 = tbc.relu %x {tbc.id = "a", tbc.phase = #tbc.phase<fwd>} : ...
    %2 = tbc.relu %x {tbc.id = "a.recompute", tbc.forward = "a", tbc.phase = #tbc.phase<bwd>, tbc.recomputed} : ...
    %1 = tbc.mul %g, %2 {tbc.id = "b.bwd.0", tbc.phase = #tbc.phase<bwd>} : ...
    ```

    Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, https://arxiv.org/abs/1604.06174.
  }];
  let options = [
    ListOption<"ids", "ids", "std::string", "ids of forward ops to clone beside those marked">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def SplitBackwardPass : Pass<"tbc-split-backward", "mlir::ModuleOp"> {
  let summary = "Splits the backward into dgrad and wgrad where tbc.schedule does";
  let description = [{
    With a zero-bubble schedule, backward ops get the phase `wgt` (wgrad) if only gradients of
    parameters depend on them. Without such a schedule the module does not change.

    ```mlir
    // before, in a module with tbc.schedule = "zero-bubble"
    %dw = tbc.einsum %x, %g {tbc.id = "l.bwd.1", tbc.phase = #tbc.phase<bwd>, ...} : ...
    // after
    %dw = tbc.einsum %x, %g {tbc.id = "l.bwd.1", tbc.phase = #tbc.phase<wgt>, ...} : ...
    ```

    Source: Qi et al., Zero Bubble Pipeline Parallelism, https://arxiv.org/abs/2401.10241.
  }];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def DeriveShardingsPass : Pass<"tbc-derive-shardings", "mlir::ModuleOp"> {
  let summary = "Writes the sharding of every value of @train, as its plan gives them";
  let description = [{
    Shardings follow from tbc.strategy, tbc.parameter_plan and the mesh by the seven rules of
    reshard::derive (planner/reshard/Graph.h). The planner predicts with the same rules.
    - `tbc.sharding` is the home of a value: complete, as later ops find it.
    - `tbc.produced` is the sharding of an op's results before collectives complete or move them.
    - `tbc.wanted` is the sharding of its operands after collectives.

    The last two stand only if they differ from the home.

    ```mlir
    // before: a matmul whose summed loop is split over tp
    %y = tbc.einsum %x, %w {tbc.strategy = #tbc.strategy<{0 = ["dp"], 3 = ["tp"]}>, ...} : ...
    // after
    %y = tbc.einsum %x, %w {tbc.strategy = #tbc.strategy<{0 = ["dp"], 3 = ["tp"]}>,
        tbc.produced = [#tbc.sharding<[{f0 = ["dp"]}, {} ], partial = ["tp"]>],
        tbc.sharding = [#tbc.sharding<[{f0 = ["dp"]}, {} ]>], ...} : ...
    ```
  }];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def InsertCollectivesPass : Pass<"tbc-insert-collectives", "mlir::ModuleOp"> {
  let summary = "Makes the collectives of a micro-batch ops, on whole tensors";
  let description = [{
    Inserts a tbc.reshard for each one from `reshard::derive` in a forward or backward: before an op
    that wants the value otherwise, or after an op that leaves it partial. Ops read its result.
    Types stay those of whole tensors, and a tbc.reshard means the identity. tbc-partition emits the
    collectives of the update: reductions once per step, gathers of new parameters.

    ```mlir
    // before: partial sums over tp, completed by a collective that is not there
    %0 = tbc.einsum %x, %w {tbc.produced = [#tbc.sharding<[{f0 = ["dp"]}, {} ], partial = ["tp"]>], ...} : ...
    %1 = tbc.add %0, %b : tensor<97x8xf32>
    // after
    %0 = tbc.einsum %x, %w {tbc.produced = [#tbc.sharding<[{f0 = ["dp"]}, {} ], partial = ["tp"]>], ...} : ...
    %1 = tbc.reshard %0 from <[{f0 = ["dp"]}, {} ], partial = ["tp"]> to <[{f0 = ["dp"]}, {} ]>
        {collectives = ["all_reduce over tp, 512 bytes"], number = 0 : i64, reason = "operand"} : tensor<97x8xf32>
    %2 = tbc.add %1, %b : tensor<97x8xf32>
    ```
  }];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def BucketPass : Pass<"tbc-bucket", "mlir::ModuleOp"> {
  let summary = "Joins collectives into buckets, and gathers parameters ahead of their use";
  let description = [{
    Members of one bucket get its number: tbc-partition makes one collective of them. A bucket has reductions
    of gradients up to `tbc.bucket_bytes`, or gathers of stored parameters up to `tbc.gather_bytes`. A gather,
    or a bucket of them, moves as many gathers ahead as `tbc.prefetch` says.

    ```mlir
    // before, with tbc.bucket_bytes = 1048576
    %1 = tbc.reshard %g0 from <...> to <...> {number = 4 : i64, reason = "gradient", ...} : tensor<8xf32>
    // after
    %1 = tbc.reshard %g0 from <...> to <...> {bucket = 0 : i64, number = 4 : i64, reason = "gradient", ...} : tensor<8xf32>
    ```

    Sources: Li et al., PyTorch Distributed, https://arxiv.org/abs/2006.15704, section 3.2 (buckets); Zhao et
    al., PyTorch FSDP, https://arxiv.org/abs/2304.11277, section 3.3 (prefetching).
  }];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def PartitionPass : Pass<"tbc-partition", "mlir::ModuleOp"> {
  let summary = "Makes @train and @update into the functions of each rank";
  let description = [{
    Makes @fwd_c, @bwd_c and @wgt_c for each chunk c and @update_s for each stage s, with local
    shapes and explicit collectives (ir/PerRank.h). The attributes on the IR are the only source.
    Shardings and tbc.reshard ops on the IR must be the derived ones. The module keeps its mesh and
    lists the tensors that outlive functions in `tbc.tensors`.

    ```mlir
    // before
    func.func @train(%w: tensor<8x4xf32> {tbc.role = #tbc.role<param>, ...}, %x: tensor<16x8xf32> {...}) ...
    // after, with dp = 2 and tp = 2
    func.func @fwd_0(%x: tensor<8x8xf32> {tbc.role = #tbc.role<input>, ...}, %w: tensor<8x2xf32> {...}) ... {
      ...
      %s = tbc.all_reduce %y {axes = ["tp"], kind = "sum"} : ...
    ```
  }];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def RaiseCompositesPass : Pass<"tbc-raise-composites", "mlir::func::FuncOp"> {
  let summary = "Finds attention, norms and activations that an exporter took apart";
  let description = [{
    Replaces the ops of a composite by that composite: layer_norm, rms_norm, gelu, silu, swiglu,
    softmax, rotary, and attention with its scale, mask and shared key heads.
    Patterns match the computed function, not one exporter's spelling: operands may be swapped,
    constants fused or split, and there may be reshapes, transposes and broadcasts in between.
    A mask is recognised by the pairs that it lets through: a window of positions, keys, documents.
    An attention with an unknown mask stays as it is, and a remark gives the reason.

    ```mlir
    // before
    %s = tbc.sigmoid %x {tbc.id = "a"} : tensor<4x3xf32>
    %y = tbc.mul %x, %s {tbc.id = "b"} : tensor<4x3xf32>
    // after
    %y = tbc.silu %x {tbc.id = "b"} : (tensor<4x3xf32>) -> tensor<4x3xf32>
    ```
  }];
  let options = [
    ListOption<"ops", "ops", "std::string", "mnemonics to raise; none: all">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

#endif // TBC_PASSES
