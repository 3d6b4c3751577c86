//===- Contraction.td - Reductions, einsum, gather -------------------------===//

#ifndef TBC_IR_CONTRACTION
#define TBC_IR_CONTRACTION

include "ir/TbcBase.td"

class Tbc_ReduceOp<string mnemonic, string text, list<Trait> traits = []>
    : Tbc_InferredOp<mnemonic, traits> {
  let loopNest = "::llvm::isa<::mlir::FloatType>(::tbc::tensorType(getInput()).getElementType())";
  let summary = text;
  let description = "The dims in `dims` (sorted, each once) are reduced and left out of the result.";
  let arguments = (ins Tbc_Tensor:$input, DenseI64ArrayAttr:$dims);
  let results = (outs Tbc_Tensor:$result);
}
let additive = "true" in
def Tbc_ReduceSumOp : Tbc_ReduceOp<"reduce_sum", "Sum over dims",
                                   [DeclareOpInterfaceMethods<DifferentiableOpInterface>]>;
def Tbc_ReduceMaxOp : Tbc_ReduceOp<"reduce_max", "Maximum over dims; its gradient is shared evenly by all that attain it",
                                   [DeclareOpInterfaceMethods<DifferentiableOpInterface>]>;
def Tbc_StabilizerMaxOp : Tbc_ReduceOp<"stabilizer_max",
    "Maximum over dims, taken only for numerical stability: the result of the whole does not depend on "
    "it, its gradient is zero and in residues it is 0">;

let additive = "true" in
def Tbc_RunningSumOp
    : Tbc_InferredOp<"running_sum", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let resizesFixedLoops = "true";
  let summary = "Sums over the elements up to each one along a dim";
  let description = [{
    y_i = sum of x_j over j <= i; over j < i if `exclusive`; if `reverse`, over j >= i and j > i. The dim is fixed,
    the others are parallel. FLOPs: 1 per element.

    Constraints:
    (C1) `dim` is a dim of the input.
  }];
  let arguments = (ins Tbc_Tensor:$input, I64Attr:$dim, BoolAttr:$exclusive, BoolAttr:$reverse);
  let results = (outs Tbc_Tensor:$result);
}

def Tbc_EinsumOp
    : Tbc_InferredOp<"einsum", [DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                                DeclareOpInterfaceMethods<ReorderableOpInterface>,
                                DeclareOpInterfaceMethods<RegroupableOpInterface>]> {
  let summary = "Sum of products over labelled dims";
  let description = [{
    Each dim has an integer label. Labels in `out` index the result; the others are summed over. Covers
    every matmul, batched or not, with any operand transposed.

    Constraints:
    (C1) One label per dim; no label twice in one operand.
    (C2) Dims with one label have one size.
    (C3) Every label of `out` is in an operand.
  }];
  let arguments = (ins Tbc_FloatTensor:$lhs, Tbc_FloatTensor:$rhs, DenseI64ArrayAttr:$lhs_labels,
                   DenseI64ArrayAttr:$rhs_labels, DenseI64ArrayAttr:$out_labels);
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_GatherOp : Tbc_InferredOp<"gather", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let resizesFixedLoops = "::tbc::isPlainInput(getIndices())";
  let summary = "Rows of a table: the dims of `indices` replace dim `dim` of `table`";
  let arguments = (ins Tbc_Tensor:$table, Tbc_IntTensor:$indices, I64Attr:$dim);
  let results = (outs Tbc_Tensor:$result);
}

def Tbc_ScatterAddOp : Tbc_Op<"scatter_add", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let resizesFixedLoops = "::tbc::isPlainInput(getIndices())";
  let summary = "The gradient of gather: adds every row of `updates` into row `indices` of a zero table";
  let arguments = (ins Tbc_Tensor:$updates, Tbc_IntTensor:$indices, I64Attr:$dim);
  let results = (outs Tbc_Tensor:$result);
  let workspace = "::tbc::scatterAddWorkspace(*this)";
  let ownKernel = "{1, 1, false, ::tbc::scatterAddLaunches(*this)}";
  let hasVerifier = 1;
}

#endif // TBC_IR_CONTRACTION
