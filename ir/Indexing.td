//===- Indexing.td - Sorting, and elements chosen one by one ---------------===//

#ifndef TBC_IR_INDEXING
#define TBC_IR_INDEXING

include "ir/TbcBase.td"

def Tbc_TopKOp : Tbc_Op<"topk", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "The largest (or smallest) elements along one dim, and where they stand";
  let description = [{
    The results have k elements along `dim`, sorted from the largest (smallest, unless `largest`)
    on. Equal elements are taken in the order of their indices. Example: the largest 2 of [3, 7, 7]
    are values [7, 7] with indices [1, 2].
    Residues are ordered by `orderKey` (runtime/kernels/Residue.h).

    Constraints:
    (C1) `dim` is a dim of `input`.
    (C2) `values` and `indices` have the shape of `input` but for `dim`, where they have 1 to all of its
         elements; `values` has its element type.
  }];
  let arguments = (ins Tbc_Tensor:$input, I64Attr:$dim, BoolAttr:$largest);
  let results = (outs Tbc_Tensor:$values, Tbc_IntTensor:$indices);
  let hasVerifier = 1; /* topk_c1, topk_c2 */
}

def Tbc_GatherElementsOp : Tbc_InferredOp<"gather_elements",
    [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "result[i.., j, k..] = table[i.., indices[i.., j, k..], k..]";
  let description = [{
    Each index chooses along `dim` of `table`, at its own place in all other dims.

    Constraints:
    (C1) `dim` is a dim of `table`; `indices` has the shape of `table` but for `dim`.
  }];
  let arguments = (ins Tbc_Tensor:$table, Tbc_IntTensor:$indices, I64Attr:$dim);
  let results = (outs Tbc_Tensor:$result);
}

def Tbc_ScatterElementsAddOp : Tbc_Op<"scatter_elements_add",
    [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "The gradient of gather_elements: adds each update to the element of a zero table that "
                "its index chooses";
  let description = [{
    Constraints:
    (C1) `dim` is a dim of `result`; `updates` and `indices` have its shape but for `dim`, and agree there.
    (C2) Element types of `updates` and `result` agree.
  }];
  let arguments = (ins Tbc_Tensor:$updates, Tbc_IntTensor:$indices, I64Attr:$dim);
  let results = (outs Tbc_Tensor:$result);
  let hasVerifier = 1; /* scatter_elements_add_c1, scatter_elements_add_c2 */
}

#endif // TBC_IR_INDEXING
