//===- Movement.td - Ops that move, make or repeat elements ----------------===//

#ifndef TBC_IR_MOVEMENT
#define TBC_IR_MOVEMENT

include "ir/TbcBase.td"

let additive = "true", loopNest = "true" in
def Tbc_BroadcastOp : Tbc_Op<"broadcast", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Repeats a tensor along new dims";
  let description = [{
    Input dim i becomes result dim `dims[i]`, with the same size; the other result dims are new.

    Constraints:
    (C1) `dims` has one entry per input dim, strictly increasing, inside the result's rank.
    (C2) Sizes agree, element types agree.
  }];
  let arguments = (ins Tbc_Tensor:$input, DenseI64ArrayAttr:$dims);
  let results = (outs Tbc_Tensor:$result);
  let hasVerifier = 1; /* broadcast_c1, broadcast_c2 */
}

let additive = "true", loopNest = "true" in
def Tbc_TransposeOp : Tbc_InferredOp<"transpose", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Result dim i is input dim `permutation[i]`";
  let arguments = (ins Tbc_Tensor:$input, DenseI64ArrayAttr:$permutation);
  let results = (outs Tbc_Tensor:$result);
}

let additive = "true", loopNest = "true" in
def Tbc_ReshapeOp : Tbc_InferredOp<"reshape", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Regroups factors into other dims";
  let description = [{
    `sizes` lists the factors of the tensor in row-major order. Input dim i is the product of the
    next `in[i]` factors, result dim j of the next `out[j]`; a dim of no factor has size 1. Example:
    [2, 12] to [24] is sizes [2, 12], in [1, 1], out [2].
    A reshape never names a target shape: for another batch or local shard only `sizes` changes.

    Constraints:
    (C1) `in` has one entry per input dim, and `in` and `out` each add up to the number of `sizes`.
    (C2) Every input dim is the product of its factors.
  }];
  let arguments = (ins Tbc_Tensor:$input, DenseI64ArrayAttr:$sizes, DenseI64ArrayAttr:$in,
                   DenseI64ArrayAttr:$out);
  let results = (outs Tbc_Tensor:$result);
}

let additive = "true" in
def Tbc_SliceOp : Tbc_InferredOp<"slice", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let columnUse = "::tbc::columnsOfSlice(*this)";
  let summary = "Elements offset .. offset + size - 1 of one dim";
  let arguments = (ins Tbc_Tensor:$input, I64Attr:$dim, I64Attr:$offset, I64Attr:$size);
  let results = (outs Tbc_Tensor:$result);
}

let additive = "true" in
def Tbc_ConcatOp : Tbc_InferredOp<"concat", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let columnUse = "::tbc::columnsOfConcat(*this)";
  let summary = "Joins tensors along one dim";
  let arguments = (ins Variadic<Tbc_Tensor>:$inputs, I64Attr:$dim);
  let results = (outs Tbc_Tensor:$result);
}

let additive = "true" in
def Tbc_PadOp : Tbc_InferredOp<"pad", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Adds `low` zeros in front of and `high` zeros behind one dim";
  let arguments = (ins Tbc_Tensor:$input, I64Attr:$dim, I64Attr:$low, I64Attr:$high);
  let results = (outs Tbc_Tensor:$result);
}

def Tbc_IotaOp : Tbc_Op<"iota"> {
  let resizesFixedLoops = "true";
  let summary = "The index along `dim`";
  let arguments = (ins I64Attr:$dim);
  let results = (outs Tbc_IntTensor:$result);
  let hasVerifier = 1;
}

def Tbc_ConstantOp : Tbc_Op<"constant"> {
  let loopNest = "::llvm::isa<::mlir::SplatElementsAttr>(getValue())";
  let resizesFixedLoops = "true";
  let summary = "A constant tensor";
  let description = [{
    Only small constants (masks' bounds, scales, shape-like tables) live in the IR; weights never do.
  }];
  let arguments = (ins ElementsAttr:$value);
  let results = (outs Tbc_Tensor:$result);
  let assemblyFormat = "$value attr-dict `:` type($result)";
  let hasVerifier = 1;
}

let loopNest = "true" in
def Tbc_FactorSizeOp : Tbc_Op<"factor_size"> {
  let summary = "The divisor of a mean over the global batch, in elements";
  let description = [{
    A rank-0 float of value `count` x `samples`: loss elements per sample times samples of the
    global batch. Example: 128 tokens per sample and 32 samples give 4096. It stays an op and is not
    folded into a reciprocal: 1/N is one exact division in every arithmetic, and rebatching changes
    it in one place.
  }];
  let arguments = (ins I64Attr:$count, I64Attr:$samples);
  let results = (outs Tbc_FloatScalar:$result);
}

#endif // TBC_IR_MOVEMENT
