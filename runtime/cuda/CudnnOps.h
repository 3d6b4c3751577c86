//===- CudnnOps.h - Ops as cuDNN's graphs ----------------------------------===//
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

/// An instruction, and what of the device and the program its graphs depend on.
struct CudnnRequest {
  std::string op;
  kernels::Attrs attrs;
  std::vector<kernels::TensorType> operands, results;
  /// Which results somebody reads; others have no memory.
  std::vector<bool> isRead;
  /// Of an attention with places: whether those of queries and keys are both 0, 1, 2, ...
  bool placesAreIndices = false;
  /// Whether no other rank computes the same and has to get the same bits.
  bool mayVary = false;
  size_t version = 0; // of cuDNN
  int capability = 0; // of the device
};

/// Graphs that do an instruction, one after the other.
struct CudnnWork {
  struct Place {
    enum class Of { Operand, Result, Scratch } of;
    int number;
  };
  struct Step {
    CudnnGraph graph;
    std::map<int, Place> places; // of every given tensor
  };
  std::vector<Step> steps;
  std::vector<int64_t> scratchBytes; // by number
};

/// Whether cuDNN may do it: attention and convolution, and their gradients.
bool isCudnnOp(const std::string &op);

/// Errors: Usage; why it is not asked.
///
/// Attention (16-bit types, dense tensors, all keys or causal, grouped queries): the statistics
/// that cuDNN has are s = m + log l; written are m = s and l = 1, which mean the same (p = exp(z -
/// m) / l), and what a gradient reads are any m and l. Convolution: any that has no negative pads,
/// of one to three spatial dims; sums are of f32, of f32 operands unrounded.
///
/// Source: the order of operations is that which NVIDIA's cudnn-frontend (MIT) gives graphs of
/// scaled dot product attention, by which the library knows them.
Result<CudnnWork> cudnnWorkOf(const CudnnRequest &request);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_CUDNNOPS_H
