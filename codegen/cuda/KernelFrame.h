//===- KernelFrame.h - Function frame around the threads of a kernel --------===//

#ifndef TBC_CODEGEN_CUDA_KERNELFRAME_H
#define TBC_CODEGEN_CUDA_KERNELFRAME_H

#include "codegen/cuda/EmitCudaKernel.h"
#include "codegen/region/MemoryAccess.h"

namespace tbc::cuda {

inline constexpr int warpThreads = 32;

/// Returns the global index of this thread in the launch, i64.
mlir::Value globalThread(mlir::OpBuilder &builder, mlir::Location loc);

/// Returns how kernels of this form round to bf16.
inline region::BFloatRounding roundingOf(Form form) {
  return form == Form::Device ? region::BFloatRounding::CudaInstruction
                              : region::BFloatRounding::Integers;
}

struct KernelFrame {
  mlir::Value thread; // i64
  llvm::SmallVector<mlir::Value> buffers;
};

/// Begins a function of the given form with `numBuffers` buffers at `builder`. Moves the builder to
/// the body of one thread, for thread indices below `numThreads`.
KernelFrame openKernel(mlir::OpBuilder &builder, mlir::Location loc, int numBuffers,
                       int64_t numThreads, Form form);

/// Begins a kernel whose only parameter is an array of `numAddresses` addresses: its one buffer. A
/// thread can load an address by a number that it computes.
KernelFrame openArrayKernel(mlir::OpBuilder &builder, mlir::Location loc, int numAddresses,
                            int64_t numThreads, Form form);

/// Whether a kernel can have so many buffers: its parameters have a limit
/// (`program::maxArrayAddresses`).
bool haveParameters(int numBuffers);

/// Lets the one kernel of `module` be launched with `threads` threads a block, in place of
/// `threadsPerBlock`. Without it a driver refuses such a launch, and the assembler may give a
/// thread more registers than so many threads have (PTX ISA, .maxntid). Device form only.
void allowThreads(mlir::ModuleOp module, int threads);

/// Returns the sum or maximum of `x` over the lanes of a warp, identical in every lane. A
/// butterfly: each step combines lanes whose indices differ in one bit. The host form has one lane
/// per warp. Example: 5 steps for 32 lanes.
mlir::Value combineOverWarp(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x, bool isSum,
                            Form form);

/// Returns the kernel of these launches in this order, each with one function.
region::Kernel joinLaunches(llvm::MutableArrayRef<region::Kernel> launches, int64_t workspaceBytes);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_KERNELFRAME_H
