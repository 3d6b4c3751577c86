//===- Reshard.td - Collectives on whole tensors (before the partitioner) --===//

#ifndef TBC_IR_RESHARD
#define TBC_IR_RESHARD

include "ir/Plan.td"

def Tbc_ReshardOp : Op<Tbc_Dialect, "reshard", [SameOperandsAndResultType]> {
  let summary = "Takes a tensor from one sharding to another by collectives; its value is the same";
  let description = [{
    tbc-insert-collectives creates one in @train for each reshard of a micro-batch from
    `reshard::derive`. The types are of whole tensors. tbc-partition emits the collectives.

    - `number`: its index in the derivation.
    - `reason`: "operand" (for an op, or to complete a partial result), "parameter_use", "gradient",
      "stage" (a send).
    - `collectives`: the steps, for people: kind, axes, bytes.
    - `bucket`: written by tbc-bucket; members of one bucket are one collective.

    ```mlir
    %1 = tbc.reshard %0 from <[{f0 = ["dp"]}, {} ], partial = ["tp"]> to <[{f0 = ["dp"]}, {} ]>
        {collectives = ["all_reduce over tp, 512 bytes"], number = 0 : i64, reason = "operand"} : tensor<97x8xf32>
    ```

    Constraints:
    (C1) `collectives` is not empty.
    (C2) `from` and `to` have as many dims as the tensor.
    (C3) `number` is not negative.
    Source: planner/reshard/Graph.h (Reshard); Shardy's collectives on global types,
    https://openxla.org/shardy/sdy_dialect.
  }];
  let arguments = (ins Tbc_Tensor:$input, Tbc_ShardingAttr:$from, Tbc_ShardingAttr:$to, I64Attr:$number,
                   StrAttr:$reason, StrArrayAttr:$collectives, OptionalAttr<I64Attr>:$bucket);
  let results = (outs Tbc_Tensor:$result);
  let assemblyFormat = "$input `from` $from `to` $to attr-dict `:` type($input)";
  let hasVerifier = 1; /* reshard_c1, reshard_c2, reshard_c3 */
}

#endif // TBC_IR_RESHARD
