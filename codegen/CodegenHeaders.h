//===- CodegenHeaders.h - Precompiled headers of emitted kernels -----------===//
//
// Precompiled for the libraries that emit kernels: MLIR's headers and the dialects of loops,
// vectors and LLVM, whose parse takes longer than most of these sources. No source includes this
// file.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_CODEGEN_CODEGENHEADERS_H
#define TBC_CODEGEN_CODEGENHEADERS_H

#include "ir/MlirHeaders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#endif // TBC_CODEGEN_CODEGENHEADERS_H
