//===- Plan.td - A plan as attributes of the IR ----------------------------===//

#ifndef TBC_IR_PLAN
#define TBC_IR_PLAN

include "mlir/IR/AttrTypeBase.td"
include "ir/TbcBase.td"

class Tbc_Attr<string name, string attrMnemonic> : AttrDef<Tbc_Dialect, name> {
  let mnemonic = attrMnemonic;
  let hasCustomAssemblyFormat = 1;
}

def Tbc_AxisAttr : Tbc_Attr<"Axis", "axis"> {
  let summary = "A mesh axis, or a part of one";
  let description = [{
    A part (sub-axis) of an axis of size N reads the axis as `pre` x `size` x rest and names the middle
    one. `size` is 0 for a whole axis. Inside other attributes it stands without `#tbc.axis`.

    ```mlir
    #tbc.axis<"tp">       // the whole axis
    #tbc.axis<"tp":(2)4>  // of an axis of size 16: pre 2, size 4, rest 2
    ```

    Source: Shardy's sub-axes, https://openxla.org/shardy/sharding_representation.
  }];
  let parameters = (ins StringRefParameter<"name of the mesh axis">:$name, "int64_t":$pre, "int64_t":$size);
  let genVerifyDecl = 1;
}

def Tbc_MeshAttr : Tbc_Attr<"Mesh", "mesh"> {
  let summary = "The device mesh: named axes with their sizes, the slowest first";
  let description = [{
    On the module, as `tbc.mesh`. Ranks are numbered in row-major order. One device is `#tbc.mesh<>`.

    ```mlir
    #tbc.mesh<"dp"=2, "tp"=4>  // ranks 0 to 3 are the first copy of the model
    ```
  }];
  let parameters = (ins ArrayRefParameter<"::mlir::StringAttr", "names">:$names,
                        ArrayRefParameter<"int64_t", "sizes">:$sizes);
  let genVerifyDecl = 1;
}

def Tbc_StrategyAttr : Tbc_Attr<"Strategy", "strategy"> {
  let summary = "The mesh axes that split each loop of an op";
  let description = [{
    On ops, as `tbc.strategy`. Loops are numbered as in the planner's graph (ir/StepGraph.h): the
    factors of the loops of the op's factor rule, in order. A loop without an entry is whole on each
    rank. If several axes split one loop, the first is the slowest.

    ```mlir
    #tbc.strategy<{0 = ["dp"], 2 = ["tp"]}>  // batch over dp, columns of the weight over tp
    ```
  }];
  let parameters = (ins ArrayRefParameter<"int64_t", "loops">:$loops, "::mlir::ArrayAttr":$axes);
  let genVerifyDecl = 1;
}

def Tbc_FactorAxesAttr : Tbc_Attr<"FactorAxes", "factor_axes"> {
  let summary = "One factor of a dim and its mesh axes: an entry of #tbc.sharding";
  let description = [{
    Factors are numbered as by the factor analysis (ir/FactorAnalysis.h); `f7` is factor 7.

    ```mlir
    #tbc.factor_axes<f7 = ["dp", "fsdp"]>
    ```
  }];
  let parameters = (ins "int64_t":$factor, "::mlir::ArrayAttr":$axes);
  let genVerifyDecl = 1;
}

def Tbc_ShardingAttr : Tbc_Attr<"Sharding", "sharding"> {
  let summary = "How a tensor lies on the mesh";
  let description = [{
    - `dims`: per dim its split factors, each with its axes, the slowest first. All other axes hold
      replicas.
    - `partial` (or `partial_max`): axes along which every rank holds a partial sum (or maximum).
    - `flat`: the local part of the tensor is flattened, padded and cut into equal chunks over these
      axes, as ZeRO and FSDP store parameters. Example: 10 elements over 4 ranks are padded to 12, 3
      per rank.

    An axis stands at most once.

    ```mlir
    #tbc.sharding<[{f0 = ["dp"]}, {}, {f7 = ["tp"]} ]>       // rows over dp, columns over tp
    #tbc.sharding<[{f0 = ["dp"]}, {} ], partial = ["tp"]>    // a partial sum over tp
    #tbc.sharding<[{}, {f7 = ["tp"]} ], flat = ["fsdp"]>     // a stored parameter
    ```

    Source: planner/reshard/Sharding.h; GSPMD, https://arxiv.org/abs/2105.04663, for partial sums.
  }];
  let parameters = (ins "::mlir::ArrayAttr":$dims, "::mlir::ArrayAttr":$partial, "bool":$isMax,
                        "::mlir::ArrayAttr":$flat);
  let genVerifyDecl = 1;
}

def Tbc_ParameterPlanAttr : Tbc_Attr<"ParameterPlan", "parameter_plan"> {
  let summary = "How a parameter is stored, gathered, and its gradient reduced";
  let description = [{
    On arguments of @train with role `param`, as `tbc.parameter_plan`.
    - `zero`: the ZeRO stage, 0 to 3.
    - `keep_gathered`: the gathered parameter is kept from forward to backward.
    - `zero_axes`: the group that shares the state.
    - `reduce_axes`: the other data axes.

    ```mlir
    #tbc.parameter_plan<zero = 3, keep_gathered, zero_axes = ["fsdp"], reduce_axes = ["dp"]>
    ```

    Source: docs/design.md, section 3; ZeRO, https://arxiv.org/abs/1910.02054.
  }];
  let parameters = (ins "int64_t":$zero, "bool":$keepGathered, "::mlir::ArrayAttr":$zeroAxes,
                        "::mlir::ArrayAttr":$reduceAxes);
  let genVerifyDecl = 1;
}

#endif // TBC_IR_PLAN
