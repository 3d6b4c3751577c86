//===- CudnnOps.h - Ops as cuDNN graphs ------------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_CUDNNOPS_H
#define TBC_RUNTIME_CUDA_CUDNNOPS_H

#include "runtime/cuda/CudnnGraph.h"
#include "runtime/kernels/Attrs.h"
#include "runtime/kernels/Tensor.h"

namespace tbc::cuda {

/// An instruction, with the properties of device and program that its graphs depend on.
struct CudnnRequest {
  std::string op;
  kernels::Attrs attrs;
  std::vector<kernels::TensorType> operands, results;
  /// Which results are read; others have no memory.
  std::vector<bool> isRead;
  /// For an attention with position ids: whether those of queries and keys are both 0, 1, 2, ...
  bool placesAreIndices = false;
  /// Whether no other rank computes the same and needs the same bits.
  bool mayVary = false;
  size_t version = 0; // of cuDNN
  int capability = 0; // of the device
};

/// The graphs of an instruction, in order of execution.
struct CudnnWork {
  struct Place {
    enum class Of { Operand, Result, Scratch } of;
    int number;
    int64_t firstByte = 0; // of the tensor in the operand or result
  };
  struct Step {
    CudnnGraph graph;
    std::map<int, Place> places; // of every given tensor
  };
  std::vector<Step> steps;
  std::vector<int64_t> scratchBytes; // by number
};

/// Returns whether cuDNN may execute the op: attention, convolution, and their gradients.
bool isCudnnOp(const std::string &op);

/// Returns the graphs of an instruction. Errors: Usage, with the reason why cuDNN is not asked.
///
/// Attention: 16-bit types, dense tensors, all keys or causal, grouped queries. cuDNN's statistics
/// are s = m + log l (logsumexp) of the row max m and row sum l. They are written as m = s and l =
/// 1, which is equivalent: p = exp(z - m) / l. A gradient accepts any m and l.
///
/// Convolution: one to three spatial dims, without negative pads. Sums are in f32, and f32 operands
/// are not rounded.
///
/// Source: NVIDIA's cudnn-frontend (MIT) orders the operations of its graphs for scaled dot product
/// attention like this, and the library recognizes them by this order.
Result<CudnnWork> cudnnWorkOf(const CudnnRequest &request);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_CUDNNOPS_H
