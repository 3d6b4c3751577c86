//===- Passes.td - The passes of tbc ---------------------------------------===//

#ifndef TBC_PASSES
#define TBC_PASSES

include "mlir/Pass/PassBase.td"

def AttachLossPass : Pass<"tbc-attach-loss", "mlir::ModuleOp"> {
  let summary = "Makes @train out of @model: the loss of a micro-batch";
  let description = [{
    Clones @model to @train, adds the argument "labels" and returns the loss in front of the new states.
    The loss of a micro-batch is the sum over its elements divided by the number of elements in the
    global batch, so losses and gradients of micro-batches and data ranks add up.
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
  }];
  let options = [
    ListOption<"ops", "ops", "std::string", "mnemonics to decompose; none: all composites">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def UseBatchStatisticsPass : Pass<"tbc-use-batch-statistics", "mlir::func::FuncOp"> {
  let summary = "Turns batch norms into their training form, with running statistics as states";
  let dependentDialects = ["::tbc::TbcDialect"];
}

def PadVocabulariesPass : Pass<"tbc-pad-vocabularies", "mlir::func::FuncOp"> {
  let summary = "Rounds vocabularies up to a multiple that devices can divide";
  let options = [
    Option<"multiple", "multiple", "int64_t", "128", "what is to divide them">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def LimitExpertsPass : Pass<"tbc-limit-experts", "mlir::func::FuncOp"> {
  let summary = "Gives experts a capacity, per sample, and drops the tokens that come too late";
  let description = [{
    tbc.routed_experts becomes tbc.dispatch of the tokens of each sample to [g, e, c, h], the experts' two layers as
    einsums over e, and tbc.combine.
  }];
  let options = [
    Option<"factor", "factor", "double", "1.0", "the capacity as a multiple of an even share">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def UseDropoutPass : Pass<"tbc-use-dropout", "mlir::func::FuncOp"> {
  let summary = "Turns dropouts into their training form, random by element, sample and step; or removes them";
  let options = [
    Option<"seed", "seed", "int64_t", "0", "of the random numbers">,
    Option<"remove", "remove", "bool", "false", "take every dropout out instead">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def PlaceTokensPass : Pass<"tbc-place-tokens", "mlir::func::FuncOp"> {
  let summary = "Gives attention windows the places of tokens, so that sequences can be split";
  let dependentDialects = ["::tbc::TbcDialect"];
}

def DifferentiatePass : Pass<"tbc-differentiate", "mlir::ModuleOp"> {
  let summary = "Adds the backward phase to @train, which then returns the gradients too";
  let description = [{
    A reverse sweep over the forward ops, through values that depend on a trained parameter. Backward ops
    have the id "FORWARD.bwd.K", their forward op's id in tbc.forward, and what their results are the
    cotangents of in tbc.cotangent_of. Forward ops that cost nothing (views, generators) are repeated in
    the backward phase, so their results are no residuals.
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
  let options = [
    Option<"optimizer", "optimizer", "std::string", "\"adamw\"", "sgd, adam or adamw">,
    Option<"momentum", "momentum", "double", "0.0", "of sgd">,
    Option<"nesterov", "nesterov", "bool", "false", "Nesterov momentum">,
    Option<"beta1", "beta1", "double", "0.9", "of adam and adamw">,
    Option<"beta2", "beta2", "double", "0.999", "of adam and adamw">,
    Option<"epsilon", "epsilon", "double", "1e-8", "of adam and adamw">,
    Option<"weightDecay", "weight-decay", "double", "0.01", "factor of the weights">,
    ListOption<"noDecay", "no-decay", "std::string", "globs of parameters whose weights do not decay">,
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
  }];
  let options = [
    Option<"to", "to", "std::string", "\"bf16\"", "the narrow type, bf16 or f16">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def RecomputePass : Pass<"tbc-recompute", "mlir::func::FuncOp"> {
  let summary = "Repeats forward ops in the backward phase instead of keeping their results";
  let options = [
    ListOption<"ids", "ids", "std::string", "ids of the forward ops">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

def RaiseCompositesPass : Pass<"tbc-raise-composites", "mlir::func::FuncOp"> {
  let summary = "Finds attention, norms and activations that an exporter took apart";
  let description = [{
    Replaces ops that compute a composite by that composite: layer_norm, rms_norm, gelu, silu, swiglu, softmax,
    rotary, and attention with its scale, mask and shared key heads. Patterns look at what is computed, not at how
    an exporter writes it: operands may be swapped, constants fused or split, reshapes, transposes and
    broadcasts in between. A mask is recognised by what it lets through: a window of positions, keys, documents. An
    attention whose mask is not understood stays as it is, with a remark that says why.
  }];
  let options = [
    ListOption<"ops", "ops", "std::string", "mnemonics to raise; none: all">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

#endif // TBC_PASSES
