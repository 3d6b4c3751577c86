//===- NestEmitter.h - Code of the threads of a nest of loops ---------------===//

#ifndef TBC_CODEGEN_CUDA_NESTEMITTER_H
#define TBC_CODEGEN_CUDA_NESTEMITTER_H

#include "codegen/cuda/EmitCudaKernel.h"
#include "codegen/cuda/KernelFrame.h"
#include "codegen/region/KernelOp.h"
#include "codegen/region/MemoryAccess.h"
#include "codegen/region/ops/Elements.h"

#include <memory>

namespace tbc::cuda {

/// The widest load or store of a thread.
inline constexpr int accessBytes = 16;
/// Bytes of an element in memory.
int64_t bytesOfElement(mlir::Value value);

/// The common part of kernels with whole reductions and with reductions in parts: the indices of a
/// thread, and the values at them. `emit` adds the launches (EmitCudaKernel.h).
class NestEmitter {
public:
  virtual ~NestEmitter() = default;

  /// Fails without a diagnostic if a launch has too many blocks or parameters, or calls a library
  /// of CUDA.
  mlir::FailureOr<region::Kernel> run();

protected:
  NestEmitter(mlir::func::FuncOp function, const region::Domain &domain, Form form);

  /// The most sums that a thread of a reduction has beside each other. Example: 16 elements of bool
  /// are one access, but their sums are 16 f32.
  static constexpr int maxReducedWidth = 8;

  virtual region::Kernel emit() = 0;

  mlir::ValueRange returned() { return function.getBody().front().getTerminator()->getOperands(); }
  int numBuffers() const { return domain.numOperands + domain.numResults; }
  mlir::Value integer(int64_t value) {
    return builder.create<mlir::arith::ConstantIntOp>(loc, value, 64);
  }

  /// Chooses as many elements as one access of the widest type moves, if the row length is a
  /// multiple. At most `maxReducedWidth` if loops are reduced.
  void chooseWidth();
  int64_t blocksOf(int64_t threads) const;
  /// Begins the function of a launch, and the code of its `thread`.
  region::Kernel open(int64_t threads);
  /// Sets the indices of a thread that begins at the row's first element.
  void splitThread(mlir::Value number);
  void splitIndex(mlir::ArrayRef<int> loops, mlir::Value index);

  // Values are computed anew wherever they are needed; LLVM finds what is common.

  /// Returns an element of `value`, or a vector of them, at the current indices.
  mlir::Value evaluate(mlir::Value value);
  mlir::Value load(mlir::BlockArgument argument);
  mlir::Value splat(mlir::Value element);
  bool isWide(mlir::Value value) const { return width > 1 && domain.hasVector(value); }
  /// Returns the offset, in elements, of `value` at the current indices in the buffer of `array`.
  mlir::Value offsetOf(mlir::Value value, const region::Array &array);
  region::MemoryAccess accessTo(mlir::Value value, const region::Array &array);
  /// Stores these results at the current indices. All are computed before the first store, because
  /// a result may lie over another one's operand (`mayOverwrite`).
  void store(mlir::ArrayRef<int> results);

  // Passes over the reduced loops.

  bool isSum(mlir::Operation *reduction);
  double identityOf(mlir::Operation *reduction);
  mlir::SmallVector<mlir::Value> identities(const region::Domain::Pass &work);
  mlir::Value combine(mlir::Operation *reduction, mlir::Value x, mlir::Value y);
  mlir::SmallVector<mlir::Value> emitLoop(
      mlir::Value begin, mlir::Value end, int64_t step, mlir::ArrayRef<mlir::Value> carried,
      llvm::function_ref<mlir::SmallVector<mlir::Value>(mlir::Value, mlir::ArrayRef<mlir::Value>)>
          body);
  mlir::SmallVector<mlir::Value> emitAt(const region::Domain::Pass &work,
                                        mlir::ArrayRef<mlir::Value> carried);
  /// Combines the elements of one lane's vector.
  mlir::Value overLanes(mlir::Operation *reduction, mlir::Value sum);
  /// Returns for each (result, operand) whether the result may lie over the operand. It may if
  /// every thread reads only the elements that it writes, and in no later pass than the write.
  /// In parts: in no later launch.
  /// Within a pass, `store` reads before it writes.
  std::vector<std::vector<bool>> mayOverwrite();

  mlir::func::FuncOp function;
  const region::Domain &domain;
  Form form;
  mlir::OpBuilder builder;
  mlir::Location loc;
  region::Elements e;

  int warp;      // lanes per row
  int width = 1; // elements per thread at a time
  int blockThreads = threadsPerBlock;
  bool isInParts = false; // with a workspace behind the buffers
  int64_t vectorSize = 1, reducedSize = 1, perRow = 1, numThreads = 1;

  mlir::SmallVector<mlir::Value> buffers;
  mlir::Value thread;
  using Values = mlir::DenseMap<mlir::Value, mlir::Value>;
  Values values;                            // at the current indices
  Values constants;                         // arguments without reduced loops, if loaded ahead
  Values sums;                              // results of reductions, for the whole row
  mlir::DenseMap<int, mlir::Value> indices; // of loops outside of the vector's
  mlir::Value row, position, lane;          // of all rows; along the vector's loops; in the warp
  int pass = 0;                             // or launch, in parts
  std::vector<int> lastRead, written;       // passes, by argument and by result
};

/// Returns the code of one thread of a kernel without reductions that is one loop over all of its
/// elements; fails if it is no such kernel. Its module has one function, with the thread's index
/// (i64) and the buffers as arguments; `extent` is the number of threads. The code does not depend
/// on that number. Example: casts of 768 and of 1024 elements of f32 have equal modules.
mlir::FailureOr<region::Kernel> emitThread(mlir::func::FuncOp function,
                                           const region::Domain &domain, Form form);

/// Returns the kernel of rows with column sums, of the device form. Fails if a row is too long for
/// the registers of a block. Example: 8,192 bf16, four of which are read.
mlir::FailureOr<region::Kernel> emitColumnSums(mlir::func::FuncOp function,
                                               const region::Domain &domain);

/// Returns the emitter of a kernel whose reductions are in parts; null if it has threads enough.
std::unique_ptr<NestEmitter> makePartsEmitter(mlir::func::FuncOp function,
                                              const region::Domain &domain, Form form);

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_NESTEMITTER_H
