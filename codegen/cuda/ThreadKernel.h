//===- ThreadKernel.h - A kernel whose threads are written out --------------===//
//
// For ops that are no nest of loops over all their values. A thread is what its author says, most
// often an element of the result; it is built once, as code, and executed for every number below
// the number of threads.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_CODEGEN_CUDA_THREADKERNEL_H
#define TBC_CODEGEN_CUDA_THREADKERNEL_H

#include "codegen/cpu/ops/Elements.h"
#include "codegen/cuda/KernelFrame.h"
#include "runtime/abi/Program.h"

#include <map>

namespace tbc::cuda {

/// An instruction as its kernel sees it.
struct OpCall {
  std::string op;
  kernels::Attrs attrs;
  std::vector<kernels::TensorType> operands, results;
  /// The number of the kernel's parameter that holds each; -1 for a result that nobody reads.
  std::vector<int> operandBuffers, resultBuffers;
  int numBuffers = 0;
};

class ThreadKernel {
public:
  using Value = mlir::Value;
  using Body = llvm::function_ref<llvm::SmallVector<Value>(Value index, llvm::ArrayRef<Value>)>;

  /// Begins a kernel; what is built next is what `thread` does.
  ThreadKernel(mlir::MLIRContext &context, const OpCall &call, int64_t numThreads, Form form);
  /// Ends it. Failure where it takes more blocks than a launch may have.
  mlir::FailureOr<cpu::Kernel> finish();

  const OpCall &call;
  mlir::OpBuilder builder;
  mlir::Location loc;
  cpu::Elements e;
  Value thread; // i64

  Value integer(int64_t value) const;
  Value number(double value) const; // f32
  /// `index` as indices of these dims, the last one fastest.
  llvm::SmallVector<Value> split(Value index, llvm::ArrayRef<int64_t> sizes) const;
  /// The inverse.
  Value join(llvm::ArrayRef<Value> indices, llvm::ArrayRef<int64_t> sizes) const;
  Value divide(Value x, int64_t by) const;
  Value remainder(Value x, int64_t by) const;

  /// Element `offset` of an operand, as kernels compute with it: f32, i64 or i1.
  Value load(int operand, Value offset) const;
  Value loadResult(int result, Value offset) const;
  void store(int result, Value offset, Value value) const;
  /// So many elements from `offset` on, by one instruction; their bytes are a power of two to whose
  /// multiples their address is aligned.
  void storeTogether(int result, Value offset, llvm::ArrayRef<Value> values) const;

  /// for i = begin; i < end; i += step: carried = body(i, carried).
  llvm::SmallVector<Value> loop(Value begin, Value end, llvm::ArrayRef<Value> carried, Body body,
                                int64_t step = 1) const;
  void ifThen(Value condition, llvm::function_ref<void()> body) const;
  using Values = llvm::SmallVector<Value>;
  /// The ones or the others; only those that are chosen are executed.
  Values choose(Value condition, llvm::function_ref<Values()> yes,
                llvm::function_ref<Values()> no) const;

  /// The bits of |x|, of an f32, as i64: in the order of magnitudes, what is no number last.
  Value magnitudeBits(Value x) const;

  Value equal(Value a, Value b) const;
  Value both(Value a, Value b) const;
  Value negate(Value condition) const;

  /// Lanes that do something together, of a kernel whose threads come in whole warps.
  int lanes() const { return form == Form::Device ? warpThreads : 1; }
  Value overWarp(Value x, bool isSum) const {
    return combineOverWarp(e.builder, loc, x, isSum, form);
  }

private:
  int64_t numThreads;
  Form form;
  cpu::Kernel kernel;
  llvm::SmallVector<Value> buffers;
};

/// As many threads as warps take.
inline int64_t threadsOfWarps(int64_t warps, Form form) {
  return warps * (form == Form::Device ? warpThreads : 1);
}

/// Makes the kernel of an instruction; failure (without a diagnostic) if it cannot.
using OpKernelFn = mlir::FailureOr<cpu::Kernel> (*)(mlir::MLIRContext &, const OpCall &, Form);

/// The kernel of an instruction that is no nest of loops; failure (without a diagnostic) if there
/// is none for it. No result may lie over an operand.
mlir::FailureOr<cpu::Kernel> emitOpKernel(mlir::MLIRContext &context, const OpCall &call,
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
