//===- ThreadKernel.h - Kernels written thread by thread --------------------===//
//
// For ops that are not one nest of loops over all their values. The author writes the code of one
// thread, most often for one element of the result. It is emitted once and runs for every thread
// index below the number of threads.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_CODEGEN_CUDA_THREADKERNEL_H
#define TBC_CODEGEN_CUDA_THREADKERNEL_H

#include "codegen/cuda/KernelFrame.h"
#include "codegen/region/ops/Elements.h"
#include "runtime/abi/Program.h"

#include <map>

namespace tbc::cuda {

/// An instruction from the view of its kernel.
struct OpCall {
  std::string op;
  kernels::Attrs attrs;
  std::vector<kernels::TensorType> operands, results;
  /// The parameter index of each operand and result; -1 for an unused result.
  std::vector<int> operandBuffers, resultBuffers;
  int numBuffers = 0;
};

class ThreadKernel {
public:
  using Value = mlir::Value;
  using Body = llvm::function_ref<llvm::SmallVector<Value>(Value index, llvm::ArrayRef<Value>)>;

  /// Begins a kernel; code built next is the body of one thread, `thread`.
  ThreadKernel(mlir::MLIRContext &context, const OpCall &call, int64_t numThreads, Form form);
  /// Ends the kernel. Fails if it needs more blocks than a launch allows.
  mlir::FailureOr<region::Kernel> finish();

  /// The module of the kernel, for variables of its image.
  mlir::ModuleOp module() const { return kernel.module.get(); }

  const OpCall &call;
  mlir::OpBuilder builder;
  mlir::Location loc;
  region::Elements e;
  Value thread; // i64

  Value integer(int64_t value) const;
  Value number(double value) const; // f32
  /// Splits a linear `index` into indices of these dims; the last is the fastest. Example: 7 in [2,
  /// 4] is (1, 3).
  llvm::SmallVector<Value> split(Value index, llvm::ArrayRef<int64_t> sizes) const;
  /// The inverse of `split`. Example: (1, 3) in [2, 4] is 7.
  Value join(llvm::ArrayRef<Value> indices, llvm::ArrayRef<int64_t> sizes) const;
  Value divide(Value x, int64_t by) const;
  Value remainder(Value x, int64_t by) const;

  /// Loads element `offset` of an operand, in the form of kernels: f32, i64 or i1.
  Value load(int operand, Value offset) const;
  Value loadResult(int result, Value offset) const;
  /// Returns how many elements of this type one instruction can move where each of `runs`, in
  /// elements, is a multiple of it: of bounds, strides and offsets. At most 16 bytes; at least 1.
  /// Example: bf16 and runs of 768 and 2304 give 8.
  static int64_t elementsTogether(kernels::DType dtype, llvm::ArrayRef<int64_t> runs);
  /// Loads `count` elements from `offset` on in one instruction. Their total bytes are a power of
  /// two, and the address is a multiple of it.
  llvm::SmallVector<Value> loadTogether(int operand, Value offset, int64_t count) const;
  llvm::SmallVector<Value> loadResultsTogether(int result, Value offset, int64_t count) const;
  /// Returns the address of element `offset` of an operand or result, for accesses without a change
  /// of type.
  Value address(bool isResult, int index, Value offset) const;
  void store(int result, Value offset, Value value) const;
  /// Stores these elements from `offset` on in one instruction. Their total bytes are a power of
  /// two, and the address is a multiple of it.
  void storeTogether(int result, Value offset, llvm::ArrayRef<Value> values) const;

  /// for i = begin; i < end; i += step: carried = body(i, carried).
  llvm::SmallVector<Value> loop(Value begin, Value end, llvm::ArrayRef<Value> carried, Body body,
                                int64_t step = 1) const;
  void ifThen(Value condition, llvm::function_ref<void()> body) const;
  using Values = llvm::SmallVector<Value>;
  /// Returns the values of one branch; only the chosen branch is executed.
  Values choose(Value condition, llvm::function_ref<Values()> yes,
                llvm::function_ref<Values()> no) const;

  /// Returns the bits of |x| of an f32, as i64. They are ordered by magnitude, with NaN last.
  Value magnitudeBits(Value x) const;

  Value equal(Value a, Value b) const;
  Value both(Value a, Value b) const;
  Value negate(Value condition) const;

  /// All threads of a block wait for each other here. A kernel of the host form has no blocks.
  void barrier() const;

  /// Lanes per warp; the kernel's threads come in whole warps.
  int lanes() const { return form == Form::Device ? warpThreads : 1; }
  Value overWarp(Value x, bool isSum) const {
    return combineOverWarp(e.builder, loc, x, isSum, form);
  }

private:
  region::MemoryAccess accessTo(kernels::DType dtype, int64_t elements = 1) const;
  llvm::SmallVector<Value> loadTogether(kernels::DType dtype, int buffer, Value offset,
                                        int64_t count) const;

  int64_t numThreads;
  Form form;
  region::Kernel kernel;
  llvm::SmallVector<Value> buffers;
};

/// Returns the call of one launch of several: it has these further results, all at the address of
/// the workspace. So `loadResult` and `store` reach it with offsets in elements of their types.
/// Example: a workspace of 64 indices and 10 sums has the sums from element 128 of its f32 on.
OpCall withWorkspace(OpCall call, llvm::ArrayRef<kernels::DType> types);

/// Returns the number of threads of `warps` warps.
inline int64_t threadsOfWarps(int64_t warps, Form form) {
  return warps * (form == Form::Device ? warpThreads : 1);
}

/// Makes the kernel of an instruction; fails without a diagnostic if it cannot.
using OpKernelFn = mlir::FailureOr<region::Kernel> (*)(mlir::MLIRContext &, const OpCall &, Form);

/// Returns the kernel of an instruction that is not a nest of loops; fails without a diagnostic if
/// there is no such kernel. A result must not lie over an operand.
mlir::FailureOr<region::Kernel> emitOpKernel(mlir::MLIRContext &context, const OpCall &call,
                                             Form form = Form::Device);

/// By mnemonic; one table per family of ops, in codegen/cuda/ops.
using OpKernelTable = std::map<std::string, OpKernelFn>;
const OpKernelTable &attentionOpKernels();
const OpKernelTable &contractionOpKernels();
const OpKernelTable &expertOpKernels();
const OpKernelTable &indexingOpKernels();
const OpKernelTable &lossOpKernels();
const OpKernelTable &movementOpKernels();
const OpKernelTable &optimizerOpKernels();
const OpKernelTable &reductionOpKernels();
const OpKernelTable &vocabularyOpKernels();
const OpKernelTable &windowOpKernels();

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_THREADKERNEL_H
