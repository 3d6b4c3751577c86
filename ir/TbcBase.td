//===- TbcBase.td - The tbc dialect and the bases of its ops ---------------===//

#ifndef TBC_IR_BASE
#define TBC_IR_BASE

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "ir/TbcInterfaces.td"

def Tbc_Dialect : Dialect {
  let name = "tbc";
  let cppNamespace = "::tbc";
  let summary = "Tensor programs for distributed training";
  let description = [{
    The dialect has 129 tensor ops with static shapes and no implicit broadcasting. Beside its
    verifier each op answers the questions of the compiler:
    - a factor rule: how its loops run through the dims of operands and results. Shardings, local
      shapes and collectives follow from it;
    - a cost;
    - a vector-Jacobian product, if it is differentiable;
    - a reference kernel of the same name in `runtime/kernels`, which is its meaning.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let extraClassDeclaration = [{
    /// Adds the attributes of Attributes.td.
    void registerAttributes();
  }];
}

def Tbc_FloatTensor : RankedTensorOf<[F64, F32, F16, BF16]>;
def Tbc_IntTensor : RankedTensorOf<[I64, I32, I16, I8, UI8, UI16, UI32]>;
def Tbc_BoolTensor : RankedTensorOf<[I1]>;
def Tbc_Tensor : RankedTensorOf<[F64, F32, F16, BF16, I64, I32, I16, I8, UI8, UI16, UI32, I1]>;
def Tbc_FloatScalar : Type<And<[Tbc_FloatTensor.predicate,
    CPred<"::llvm::cast<::mlir::RankedTensorType>($_self).getRank() == 0">]>, "rank-0 float tensor",
    "::mlir::RankedTensorType">;
def Tbc_IntScalar : Type<And<[Tbc_IntTensor.predicate,
    CPred<"::llvm::cast<::mlir::RankedTensorType>($_self).getRank() == 0">]>, "rank-0 integer tensor",
    "::mlir::RankedTensorType">;

def Tbc_BoolScalar : Type<And<[Tbc_BoolTensor.predicate,
    CPred<"::llvm::cast<::mlir::RankedTensorType>($_self).getRank() == 0">]>, "rank-0 boolean tensor",
    "::mlir::RankedTensorType">;

/// Every tensor op: pure, with a factor rule and a cost.
class Tbc_Op<string mnemonic, list<Trait> traits = []>
    : Op<Tbc_Dialect, mnemonic, !listconcat(traits, [Pure,
         DeclareOpInterfaceMethods<ShardableOpInterface, ["isAdditive", "isResizable"]>,
         DeclareOpInterfaceMethods<CostOpInterface>])> {
  /// A C++ expression: whether the op is linear in all operands jointly.
  string additive = "false";
  /// A C++ expression: whether loops of kind `Fixed` may be resized all the same.
  string resizesFixedLoops = "false";
  /// A C++ expression: whether the loop with the number `loop` may be resized.
  string resizable = resizesFixedLoops # " || getFactorRule().loops[loop].kind != ::tbc::LoopKind::Fixed";
  /// A C++ expression: whether it is a nest of loops that may be a part of a larger one.
  string loopNest = "false";
  /// A C++ expression: its function for each element, an ElementFunction.
  string elementFunction = "::tbc::ElementFunction::Other";
  /// The operand with the logits of a loss.
  string logitsOperand = "-1";
  /// A C++ expression: the memory of its kernel on GPUs, a WorkspaceFn.
  string workspace = "nullptr";
  /// A C++ expression: its kernel on GPUs, an OwnKernel.
  string ownKernel = "{}";
  /// A C++ expression: what it does with the columns of a packed tensor, a ColumnUse.
  string columnUse = "{}";
  /// Definitions shared by all ops of a family.
  code familyDefinition = "";
  let extraClassDefinition =
      "bool $cppClass::isAdditive() { return " # additive # "; }\n" #
      "bool $cppClass::isResizable(unsigned loop) {\n"
      "  return " # resizable # ";\n"
      "}\n"
      "bool $cppClass::isLoopNest() {\n"
      "  return ::tbc::hasKernelTypes(*this) && (" # loopNest # ");\n"
      "}\n"
      "::tbc::ElementFunction $cppClass::getElementFunction() { return " # elementFunction # "; }\n" #
      "int $cppClass::getLogitsOperand() { return " # logitsOperand # "; }\n" #
      "::tbc::WorkspaceFn $cppClass::getWorkspace() { return " # workspace # "; }\n" #
      "::tbc::OwnKernel $cppClass::getOwnKernel() { return " # ownKernel # "; }\n" #
      "::tbc::ColumnUse $cppClass::getColumnUse() { return " # columnUse # "; }\n" # familyDefinition;
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

/// An op with inferred result types. One function infers them from operands and attributes, and is
/// also the verifier.
class Tbc_InferredOp<string mnemonic, list<Trait> traits = []>
    : Tbc_Op<mnemonic, !listconcat(traits, [InferTypeOpAdaptor])>;

/// Operands and results have one shape; every dim is a parallel loop.
class Tbc_ElementwiseOp<string mnemonic, list<Trait> traits = []>
    : Tbc_Op<mnemonic, !listconcat(traits, [SameOperandsAndResultShape,
                                            DeclareOpInterfaceMethods<RegroupableOpInterface>])> {
  string flopsPerElement = "1";
  let loopNest = "true";
  let familyDefinition = [{
    ::tbc::FactorRule $cppClass::getFactorRule() { return ::tbc::elementwiseRule(*this); }
    void $cppClass::resizeLoops(::llvm::ArrayRef<int64_t>) {}
    double $cppClass::getFlops() { return ::tbc::elementwiseFlops(*this, }] # flopsPerElement # [{); }
    ::tbc::KernelClass $cppClass::getKernelClass() { return ::tbc::KernelClass::Elementwise; }
    bool $cppClass::canSplitLoop(unsigned, unsigned) { return true; }
    void $cppClass::splitLoop(unsigned, unsigned) {}
  }];
}

#endif // TBC_IR_BASE
