//===- KernelOpInterface.td - What code generation asks of an op -----------===//

#ifndef TBC_CODEGEN_CPU_KERNELOPINTERFACE
#define TBC_CODEGEN_CPU_KERNELOPINTERFACE

include "mlir/IR/OpBase.td"

def KernelOpInterface : OpInterface<"KernelOpInterface"> {
  let cppNamespace = "::tbc::cpu";
  let description = [{
    An op that compiled kernels can do. How its elements depend on those of its operands is its factor rule;
    this says what is computed of them. Attached to the ops of a family in codegen/cpu/ops: the IR itself
    knows nothing of arith, math or vector. An op without it is compiled if it decomposes into ops with it.

    Elements are f32 for all floats but f64, which kernels do not have, i64 for integers and i1 for booleans;
    or vectors of these.
  }];
  let methods = [
    InterfaceMethod<[{
      Whether the op can be done with the element types it has.
    }], "bool", "isSupported", (ins), "", "return true;">,
    InterfaceMethod<[{
      Builds an element of each result out of one of each operand, all of them scalars or all vectors of the
      same size; but scalars of operands without dims, where the results have some. Of an op with a combiner:
      what is combined.
    }], "::llvm::SmallVector<::mlir::Value, 1>", "buildElement",
        (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$elements), "", "return {};">,
    InterfaceMethod<[{
      How elements of the operand that fall on one element of the result become one.
    }], "::tbc::cpu::Combiner", "getCombiner", (ins), "", "return ::tbc::cpu::Combiner::None;">,
    InterfaceMethod<[{
      Builds the results out of ops that kernels can do; failure if the op is one itself.
    }], "::mlir::LogicalResult", "expand",
        (ins "::mlir::OpBuilder &":$builder, "::llvm::SmallVectorImpl<::mlir::Value> &":$results),
        "", "return ::mlir::failure();">,
  ];
}

#endif // TBC_CODEGEN_CPU_KERNELOPINTERFACE
