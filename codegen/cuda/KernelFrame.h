//===- KernelFrame.h - The function around the threads of a kernel ----------===//

#ifndef TBC_CODEGEN_CUDA_KERNELFRAME_H
#define TBC_CODEGEN_CUDA_KERNELFRAME_H

#include "codegen/cuda/EmitCudaKernel.h"

namespace tbc::cuda {

inline constexpr int warpThreads = 32;

/// The number of this thread in the launch, i64.
mlir::Value globalThread(mlir::OpBuilder &builder, mlir::Location loc);

struct KernelFrame {
  mlir::Value thread; // i64
  llvm::SmallVector<mlir::Value> buffers;
};

/// Begins a function of the form with `numBuffers` buffers where `builder` is; sets the builder to
/// where the work of one thread goes, of those below `numThreads`.
KernelFrame openKernel(mlir::OpBuilder &builder, mlir::Location loc, int numBuffers,
                       int64_t numThreads, Form form);

/// x of all lanes of a warp, added up or the largest, the same in each: in each step with the lane
/// whose number differs in one bit. In the form for hosts a warp has one lane.
mlir::Value combineOverWarp(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x, bool isSum,
                            Form form);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_KERNELFRAME_H
