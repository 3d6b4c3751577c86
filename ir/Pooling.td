//===- Pooling.td - Pooling over spatial windows ---------------------------===//

#ifndef TBC_IR_POOLING
#define TBC_IR_POOLING

include "ir/TbcBase.td"

/// n and c are parallel, spatial dims are fixed. FLOPs: one per element of each window.
class Tbc_PoolOp<string mnemonic, list<Trait> traits = []> : Tbc_Op<mnemonic, traits> {
  let familyDefinition = [{
    ::tbc::FactorRule $cppClass::getFactorRule() { return ::tbc::poolingRule(*this); }
    void $cppClass::resizeLoops(::llvm::ArrayRef<int64_t>) {}
    double $cppClass::getFlops() { return ::tbc::poolingFlops(*this, getKernel()); }
    ::tbc::KernelClass $cppClass::getKernelClass() { return ::tbc::KernelClass::Reduction; }
  }];
}

def Tbc_MaxPoolOp : Tbc_PoolOp<"max_pool", [InferTypeOpAdaptor,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Maximum over windows of x[n, c, *]; padding never wins";
  let description = [{
    `pads` lists the low pads of all spatial dims, then the high ones.

    Constraints:
    (C1) x has rank 3 or more; `kernel`, `strides` and `dilations` are positive, one per spatial dim; `pads` is
         not negative, two per spatial dim.
    (C2) The dilated window fits into the padded input and never lies in padding alone.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$strides,
                   DenseI64ArrayAttr:$pads, DenseI64ArrayAttr:$dilations);
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_MaxPoolGradOp : Tbc_PoolOp<"max_pool_grad", [AllTypesMatch<["input", "result"]>]> {
  let summary = "The gradient of max_pool: each cotangent goes to the window's maximum, the lowest index on a tie";
  let description = [{
    Constraints:
    (C1) A max_pool of `input` has the type of `cotangent`.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$cotangent, DenseI64ArrayAttr:$kernel,
                   DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads, DenseI64ArrayAttr:$dilations);
  let results = (outs Tbc_FloatTensor:$result);
  let workspace = "::tbc::maxPoolWorkspace(getKernel())";
  let ownKernel = "{1, 2}"; // the largest element of each window, the sums of cotangents
  let hasVerifier = 1; /* max_pool_grad_c1 */
}

let additive = "true" in
def Tbc_AvgPoolOp : Tbc_PoolOp<"avg_pool", [InferTypeOpAdaptor,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Mean over windows of x[n, c, *]";
  let description = [{
    Divides by the size of the window if `count_include_pad`, else by the number of its elements
    outside the padding. Example: a window of 4 with 1 element in the padding divides by 4 or by 3.

    Constraints:
    (C1) x has rank 3 or more; `kernel` and `strides` are positive, one per spatial dim; `pads` is not negative,
         two per spatial dim.
    (C2) The window fits into the padded input and never lies in padding alone.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$strides,
                   DenseI64ArrayAttr:$pads, BoolAttr:$count_include_pad);
  let results = (outs Tbc_FloatTensor:$result);
}

let additive = "true" in
def Tbc_AvgPoolGradOp : Tbc_PoolOp<"avg_pool_grad"> {
  let summary = "The gradient of avg_pool";
  let description = [{
    Constraints:
    (C1) An avg_pool of the result has the type of `cotangent`.
  }];
  let arguments = (ins Tbc_FloatTensor:$cotangent, DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$strides,
                   DenseI64ArrayAttr:$pads, BoolAttr:$count_include_pad);
  let results = (outs Tbc_FloatTensor:$result);
  let hasVerifier = 1; /* avg_pool_grad_c1 */
}

#endif // TBC_IR_POOLING
