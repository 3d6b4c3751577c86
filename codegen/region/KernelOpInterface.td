//===- KernelOpInterface.td - Interface of ops for code generation ---------===//

#ifndef TBC_CODEGEN_REGION_KERNELOPINTERFACE
#define TBC_CODEGEN_REGION_KERNELOPINTERFACE

include "mlir/IR/OpBase.td"

def KernelOpInterface : OpInterface<"KernelOpInterface"> {
  let cppNamespace = "::tbc::region";
  let description = [{
    An op supported by compiled kernels. Its factor rule maps result elements to operand elements; this
    interface computes them. codegen/cpu/ops attaches it per family of ops, so the IR does not depend on
    arith, math or vector. An op without it is compiled if it decomposes into ops with it.

    Elements are f32 for floats (f64 is not supported), i64 for integers and i1 for booleans, or vectors
    of these. Example: `tbc.add` builds `arith.addf` on f32 and `arith.addi` on i64.
  }];
  let methods = [
    InterfaceMethod<[{
      Whether kernels support the op with its element types.
    }], "bool", "isSupported", (ins), "", "return true;">,
    InterfaceMethod<[{
      Builds one element of each result from one element of each operand. All are scalars, or all are
      vectors of the same size; operands without dims stay scalars even if the results have dims. For an
      op with a combiner: builds the element to combine.
    }], "::llvm::SmallVector<::mlir::Value, 1>", "buildElement",
        (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$elements), "", "return {};">,
    InterfaceMethod<[{
      How several operand elements are combined into one result element.
    }], "::tbc::region::Combiner", "getCombiner", (ins), "", "return ::tbc::region::Combiner::None;">,
    InterfaceMethod<[{
      Builds the results from ops supported by kernels; fails if the op is supported itself.
    }], "::mlir::LogicalResult", "expand",
        (ins "::mlir::OpBuilder &":$builder, "::llvm::SmallVectorImpl<::mlir::Value> &":$results),
        "", "return ::mlir::failure();">,
  ];
}

#endif // TBC_CODEGEN_REGION_KERNELOPINTERFACE
