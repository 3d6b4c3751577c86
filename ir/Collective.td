//===- Collective.td - Collectives between ranks (per-rank IR only) ---------===//

#ifndef TBC_IR_COLLECTIVE
#define TBC_IR_COLLECTIVE

include "ir/TbcBase.td"

/// Created by the partitioner, translated one to one into the Program by codegen.
class Tbc_CollectiveOp<string mnemonic> : Op<Tbc_Dialect, mnemonic, []> {
  let assemblyFormat = "$input attr-dict `:` functional-type($input, $result)";
  let arguments = (ins Tbc_Tensor:$input, StrArrayAttr:$axes);
  let results = (outs Tbc_Tensor:$result);
}

def Tbc_AllReduceOp : Tbc_CollectiveOp<"all_reduce"> {
  let summary = "Sums (or takes the maximum of) a tensor over the ranks that differ along `axes`";
  let description = [{
    `stages` restricts a group along the pipeline axis to these stages, for a parameter of several
    stages.

    Constraints:
    (C1) `axes` is not empty and names no axis twice.
    (C2) `kind` is "sum" or "max".
    Source: MPI-3.1 section 5.9.6 (MPI_Allreduce); NCCL ncclAllReduce.
  }];
  let arguments = (ins Tbc_Tensor:$input, StrArrayAttr:$axes, StrAttr:$kind,
                   OptionalAttr<DenseI64ArrayAttr>:$stages);
  let hasVerifier = 1; /* all_reduce_c1, all_reduce_c2 */
}

/// `dim` and `segments` as in planner/reshard/Collective.h: per segment of the dim (outer, k, inner), the
/// full dim has outer*(n*k)*inner elements of it and the local one outer*k*inner; dim = -1 flattens.
class Tbc_DimCollectiveOp<string mnemonic> : Tbc_CollectiveOp<mnemonic> {
  let arguments = (ins Tbc_Tensor:$input, StrArrayAttr:$axes, I64Attr:$dim,
                   DenseI64ArrayAttr:$segments);
  let hasVerifier = 1;
}
def Tbc_AllGatherOp : Tbc_DimCollectiveOp<"all_gather"> {
  let summary = "Every rank of the group receives the shards of all, joined along `dim`";
}
def Tbc_ReduceScatterOp : Tbc_DimCollectiveOp<"reduce_scatter"> {
  let summary = "Sums over the group; every rank keeps its shard along `dim`";
}
def Tbc_ShardSliceOp : Tbc_DimCollectiveOp<"shard_slice"> {
  let summary = "Every rank keeps its own shard of a replicated tensor; no communication";
}
def Tbc_AllToAllOp : Tbc_CollectiveOp<"all_to_all"> {
  let summary = "Moves a sharding from one dim (`dim`, full in the result) to another (`split_dim`)";
  let arguments = (ins Tbc_Tensor:$input, StrArrayAttr:$axes, I64Attr:$dim,
                   DenseI64ArrayAttr:$segments, I64Attr:$split_dim, DenseI64ArrayAttr:$split_segments);
  let hasVerifier = 1;
}

def Tbc_PermuteOp : Tbc_CollectiveOp<"permute"> {
  let summary = "Every rank gives its tensor to the next of its group along `axes`, the last to the first";
  let description = [{
    Constraints:
    (C1) `axes` is not empty and names no axis twice.
    (C2) the result has the type of the input.
  }];
  let hasVerifier = 1; /* permute_c1, permute_c2 */
}

#endif // TBC_IR_COLLECTIVE
