//===- Roles.td - Purposes of tensors and phases of ops as attributes ------===//

#ifndef TBC_IR_ROLES
#define TBC_IR_ROLES

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "ir/TbcBase.td"

def Tbc_TensorRole : I32EnumAttr<"TensorRole", "The purpose of an argument or result of a function", [
    I32EnumAttrCase<"Input", 0, "input">,
    I32EnumAttrCase<"Label", 1, "label">,
    I32EnumAttrCase<"Sample", 2, "sample">,
    I32EnumAttrCase<"Step", 3, "step">,
    I32EnumAttrCase<"Parameter", 4, "param">,
    I32EnumAttrCase<"State", 5, "state">,
    I32EnumAttrCase<"OptimizerState", 6, "opt_state">,
    I32EnumAttrCase<"Gradient", 7, "grad">,
    I32EnumAttrCase<"Loss", 8, "loss">,
    I32EnumAttrCase<"Count", 9, "count">,
    I32EnumAttrCase<"LearningRate", 10, "lr">,
    I32EnumAttrCase<"Residual", 11, "residual">,
    I32EnumAttrCase<"Receive", 12, "recv">,
    I32EnumAttrCase<"Send", 13, "send">,
    I32EnumAttrCase<"GradientAccumulator", 14, "acc">,
    I32EnumAttrCase<"LossAccumulator", 15, "loss_acc">,
    I32EnumAttrCase<"TotalGradient", 16, "total">,
    I32EnumAttrCase<"ReducedGradient", 17, "reduced">]> {
  let cppNamespace = "::tbc";
  let genSpecializedAttr = 0;
}

def Tbc_TensorRoleAttr : EnumAttr<Tbc_Dialect, Tbc_TensorRole, "role"> {
  let summary = "The purpose of an argument or result of a function";
  let description = [{
    On arguments and results of functions, as `tbc.role`. A result without a role is an output of
    the model.

    | role | where | tensor |
    |---|---|---|
    | `input`, `label` | arguments | data of a micro-batch |
    | `sample`, `step` | arguments | the numbers of the samples, and of the step, for dropout |
    | `param` | both | a trained parameter |
    | `state` | both | a running statistic, which the forward updates |
    | `opt_state` | both | a moment, a master weight or a scalar of the optimizer |
    | `grad` | both | a gradient: result of @train, argument of @update |
    | `loss`, `count` | both | the loss of a micro-batch or step; the elements that count in it |
    | `lr` | arguments | the learning rate |
    | `residual` | both | per rank: kept by a block for a later one |
    | `recv`, `send` | recv: arguments, send: results | per rank: a message between stages |
    | `acc`, `loss_acc` | both | per rank: the sum over micro-batches of a gradient or of the loss |
    | `total` | results | per rank: takes the place of `acc` after the last micro-batch |
    | `reduced` | both | per rank: the shard of a gradient, summed over ranks in the last backward |

    ```mlir
    func.func @train(%w: tensor<8x4xf32> {tbc.role = #tbc.role<param>, tbc.name = "w"})
    ```
  }];
  // One error for an unknown word, with the words that there are.
  let assemblyFormat = ?;
  let hasCustomAssemblyFormat = 1;
}

def Tbc_PhaseAttr : AttrDef<Tbc_Dialect, "Phase"> {
  let mnemonic = "phase";
  let summary = "The part of the step that an op belongs to";
  let description = [{
    On ops of @train, as `tbc.phase`: `fwd` (forward), `bwd` (backward), or `wgt` (wgrad, if the
    schedule splits the backward). An op without it belongs to the forward.

    ```mlir
    %g = tbc.mul %d, %a {tbc.id = "l.bwd.1", tbc.phase = #tbc.phase<bwd>} : tensor<4xf32>
    ```
  }];
  let parameters = (ins "::tbc::reshard::Phase":$value);
  let hasCustomAssemblyFormat = 1;
}

#endif // TBC_IR_ROLES
