//===- Elementwise.td - Ops that act on each element -----------------------===//

#ifndef TBC_IR_ELEMENTWISE
#define TBC_IR_ELEMENTWISE

include "ir/TbcBase.td"

class Tbc_UnaryOp<string mnemonic, string text, list<Trait> traits = []>
    : Tbc_ElementwiseOp<mnemonic, !listconcat(traits, [SameOperandsAndResultType])> {
  let summary = text;
  let arguments = (ins Tbc_Tensor:$input);
  let results = (outs Tbc_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}
class Tbc_SmoothOp<string mnemonic, string text>
    : Tbc_UnaryOp<mnemonic, text, [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let arguments = (ins Tbc_FloatTensor:$input);
  let results = (outs Tbc_FloatTensor:$result);
}

class Tbc_BinaryOp<string mnemonic, string text, list<Trait> traits = []>
    : Tbc_ElementwiseOp<mnemonic, !listconcat(traits, [SameOperandsAndResultType])> {
  let summary = text;
  let arguments = (ins Tbc_Tensor:$lhs, Tbc_Tensor:$rhs);
  let results = (outs Tbc_Tensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}
class Tbc_ArithmeticOp<string mnemonic, string text>
    : Tbc_BinaryOp<mnemonic, text, [DeclareOpInterfaceMethods<DifferentiableOpInterface>]>;

let additive = "true" in
def Tbc_NegOp : Tbc_UnaryOp<"neg", "Negates", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]>;
def Tbc_AbsOp : Tbc_UnaryOp<"abs", "Absolute value",
                            [DeclareOpInterfaceMethods<DifferentiableOpInterface>]>;
def Tbc_ExpOp : Tbc_SmoothOp<"exp", "Natural exponential">;
def Tbc_LogOp : Tbc_SmoothOp<"log", "Natural logarithm">;
def Tbc_SqrtOp : Tbc_SmoothOp<"sqrt", "Square root">;
def Tbc_RsqrtOp : Tbc_SmoothOp<"rsqrt", "1 / sqrt(x)">;
def Tbc_ReciprocalOp : Tbc_SmoothOp<"reciprocal", "1 / x">;
def Tbc_TanhOp : Tbc_SmoothOp<"tanh", "Hyperbolic tangent">;
def Tbc_ErfOp : Tbc_SmoothOp<"erf", "Gauss error function">;
def Tbc_SigmoidOp : Tbc_SmoothOp<"sigmoid", "1 / (1 + exp(-x))">;
def Tbc_ReluOp : Tbc_SmoothOp<"relu", "max(x, 0)">;
// GPUs have neither an instruction nor a polynomial for them.
let loopNest = "false" in {
def Tbc_SinOp : Tbc_SmoothOp<"sin", "Sine">;
def Tbc_CosOp : Tbc_SmoothOp<"cos", "Cosine">;
}
def Tbc_AtanOp : Tbc_SmoothOp<"atan", "Inverse tangent">;
// Constant between jumps: their gradient is zero.
def Tbc_FloorOp : Tbc_SmoothOp<"floor", "The largest whole number that is not larger">;
def Tbc_CeilOp : Tbc_SmoothOp<"ceil", "The smallest whole number that is not smaller">;
def Tbc_RoundOp : Tbc_SmoothOp<"round", "The nearest whole number, the even one of two">;

let additive = "true" in {
let elementFunction = "::tbc::ElementFunction::Sum" in
def Tbc_AddOp : Tbc_ArithmeticOp<"add", "Sum">;
def Tbc_SubOp : Tbc_ArithmeticOp<"sub", "Difference">;
}
def Tbc_MulOp : Tbc_ArithmeticOp<"mul", "Product">;
// Kernels cannot report a division by zero.
let loopNest = "::llvm::isa<::mlir::FloatType>(::tbc::tensorType(getLhs()).getElementType())" in
def Tbc_DivOp : Tbc_ArithmeticOp<"div", "Quotient; integers truncate towards zero">;
let loopNest = "false" in
def Tbc_PowOp : Tbc_ArithmeticOp<"pow", "lhs raised to rhs">;
def Tbc_MaximumOp : Tbc_ArithmeticOp<"maximum", "Larger of two; the left one on a tie">;
def Tbc_MinimumOp : Tbc_ArithmeticOp<"minimum", "Smaller of two; the left one on a tie">;
def Tbc_AndOp : Tbc_BinaryOp<"and", "Logical and of booleans">;
def Tbc_OrOp : Tbc_BinaryOp<"or", "Logical or of booleans">;

class Tbc_BitwiseOp<string mnemonic, string text> : Tbc_BinaryOp<mnemonic, text> {
  let arguments = (ins Tbc_IntTensor:$lhs, Tbc_IntTensor:$rhs);
  let results = (outs Tbc_IntTensor:$result);
}
def Tbc_BitwiseAndOp : Tbc_BitwiseOp<"bitwise_and", "And of the bits of integers">;
def Tbc_BitwiseOrOp : Tbc_BitwiseOp<"bitwise_or", "Or of the bits of integers">;
def Tbc_BitwiseXorOp : Tbc_BitwiseOp<"bitwise_xor", "Exclusive or of the bits of integers">;

def Tbc_NotOp : Tbc_UnaryOp<"not", "Logical not of booleans">;
def Tbc_IsNanOp : Tbc_ElementwiseOp<"is_nan"> {
  let summary = "Whether an element is not a number";
  let arguments = (ins Tbc_FloatTensor:$input);
  let results = (outs Tbc_BoolTensor:$result);
}

def Tbc_CompareOp : Tbc_ElementwiseOp<"compare"> {
  let summary = "Compares two tensors of one type element by element";
  let description = [{
    `predicate` is one of eq, ne, lt, le, gt, ge.

    Constraints:
    (C1) `predicate` is one of those six.
    (C2) Both operands have the same element type.
  }];
  let arguments = (ins Tbc_Tensor:$lhs, Tbc_Tensor:$rhs, StrAttr:$predicate);
  let results = (outs Tbc_BoolTensor:$result);
  let hasVerifier = 1; /* compare_c1, compare_c2 */
}

def Tbc_SelectOp : Tbc_ElementwiseOp<"select",
    [DeclareOpInterfaceMethods<DifferentiableOpInterface>, AllTypesMatch<["onTrue", "onFalse", "result"]>]> {
  let summary = "onTrue where pred holds, onFalse elsewhere";
  let arguments = (ins Tbc_BoolTensor:$pred, Tbc_Tensor:$onTrue, Tbc_Tensor:$onFalse);
  let results = (outs Tbc_Tensor:$result);
}

def Tbc_CastOp : Tbc_ElementwiseOp<"cast", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Converts the element type";
  let description = [{
    Float to narrower float rounds to nearest even; float to integer truncates towards zero; anything to
    boolean is "not equal to zero". Between floats it is the identity in residue arithmetic.
  }];
  // Kernels cannot report a float outside of the range of an integer.
  let loopNest = "getType().getElementType().isInteger(1) || getInput().getType().getElementType().isIntOrIndex() || "
                 "!getType().getElementType().isIntOrIndex()";
  let additive = "getInput().getType().getElementType().isIntOrIndex() == false && getType().getElementType().isIntOrIndex() == false";
  let elementFunction = "isAdditive() ? ::tbc::ElementFunction::Cast : ::tbc::ElementFunction::Other";
  let arguments = (ins Tbc_Tensor:$input);
  let results = (outs Tbc_Tensor:$result);
}

def Tbc_ReluGradOp : Tbc_ElementwiseOp<"relu_grad", [AllTypesMatch<["input", "cotangent", "result"]>]> {
  let summary = "cotangent where input > 0, zero elsewhere";
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$cotangent);
  let results = (outs Tbc_FloatTensor:$result);
}

#endif // TBC_IR_ELEMENTWISE
