//===- KernelOp.cpp - Interface of ops for code generation ------------------===//

#include "codegen/region/KernelOp.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include "codegen/region/KernelOpInterface.cpp.inc"

namespace tbc::region {

void prepareContext(mlir::MLIRContext &context) {
  if (mlir::OperationName("tbc.add", &context).hasInterface<KernelOpInterface>())
    return;
  context
      .loadDialect<mlir::arith::ArithDialect, mlir::func::FuncDialect, mlir::LLVM::LLVMDialect,
                   mlir::math::MathDialect, mlir::scf::SCFDialect, mlir::vector::VectorDialect>();
  attachElementwiseKernels(context);
  attachMovementKernels(context);
  attachOptimizerKernels(context);
  attachRandomKernels(context);
  attachReductionKernels(context);
}

} // namespace tbc::region
