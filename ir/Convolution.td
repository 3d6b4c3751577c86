//===- Convolution.td - Convolution and its gradients ----------------------===//

#ifndef TBC_IR_CONVOLUTION
#define TBC_IR_CONVOLUTION

include "ir/TbcBase.td"

/// The geometry of the window, which all three ops share.
class Tbc_ConvolutionOp<string mnemonic, list<Trait> traits = []> : Tbc_Op<mnemonic, traits> {
  let familyDefinition = [{
    double $cppClass::getFlops() { return ::tbc::convolutionFlops(getFactorRule()); }
    ::tbc::KernelClass $cppClass::getKernelClass() { return ::tbc::KernelClass::Conv; }
  }];
}

def Tbc_ConvOp : Tbc_ConvolutionOp<"conv", [InferTypeOpAdaptor,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Convolution of x[n, c, *] with w[o, c / groups, *]";
  let description = [{
    y[n, o, p] = sum over ci, k of x[n, g(o) * c / groups + ci, p * stride + k * dilation - low] * w[o, ci, k],
    where x is zero outside its bounds and g(o) = o / (o's per group). `pads` lists the low pads of all
    spatial dims, then the high ones. There is no bias: it is added by a broadcast and an add.

    FLOPs: 2 per product. Window dims are fixed; n, groups and o are parallel, ci is summed over.

    Constraints:
    (C1) x and w have one rank, at least 3, and one element type.
    (C2) `strides` and `dilations` are positive, one per spatial dim; `pads` is not negative, two per spatial dim.
    (C3) `groups` divides c and o, and w has c / groups input channels.
    (C4) The dilated window fits into the padded input.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$weight, DenseI64ArrayAttr:$strides,
                   DenseI64ArrayAttr:$pads, DenseI64ArrayAttr:$dilations, I64Attr:$groups);
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_ConvGradInputOp : Tbc_ConvolutionOp<"conv_grad_input",
    [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "The gradient of conv with respect to its input; by itself a transposed convolution";
  let description = [{
    Constraints:
    (C1) A conv of the result with `weight` has the type of `cotangent`.
  }];
  let arguments = (ins Tbc_FloatTensor:$cotangent, Tbc_FloatTensor:$weight, DenseI64ArrayAttr:$strides,
                   DenseI64ArrayAttr:$pads, DenseI64ArrayAttr:$dilations, I64Attr:$groups);
  let results = (outs Tbc_FloatTensor:$result);
  let hasVerifier = 1; /* conv_grad_input_c1 */
}

def Tbc_ConvGradWeightOp : Tbc_ConvolutionOp<"conv_grad_weight"> {
  let summary = "The gradient of conv with respect to its weight";
  let description = [{
    Constraints:
    (C1) A conv of `input` with the result has the type of `cotangent`.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$cotangent, DenseI64ArrayAttr:$strides,
                   DenseI64ArrayAttr:$pads, DenseI64ArrayAttr:$dilations, I64Attr:$groups);
  let results = (outs Tbc_FloatTensor:$result);
  let hasVerifier = 1; /* conv_grad_weight_c1 */
}

#endif // TBC_IR_CONVOLUTION
