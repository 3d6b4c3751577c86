//===- NcclTypes.h - Element types of NCCL as those of kernels -------------===//

#ifndef TBC_TESTS_RUNTIME_CUDA_NCCLTYPES_H
#define TBC_TESTS_RUNTIME_CUDA_NCCLTYPES_H

#include "runtime/cuda/Nccl.h"
#include "runtime/kernels/Tensor.h"

namespace tbc::test {

/// The type in which fakes of NCCL compute. Unsigned integers of 32 and 64 bits take the signed
/// type of their width, in which sums have the same bits. Example: U32 gives I32.
inline kernels::DType dtypeOf(cuda::NcclType type) {
  using cuda::NcclType;
  using kernels::DType;
  switch (type) {
  case NcclType::I8:
    return DType::I8;
  case NcclType::U8:
    return DType::U8;
  case NcclType::I32:
  case NcclType::U32:
    return DType::I32;
  case NcclType::I64:
  case NcclType::U64:
    return DType::I64;
  case NcclType::F16:
    return DType::F16;
  case NcclType::F32:
    return DType::F32;
  case NcclType::F64:
    return DType::F64;
  case NcclType::BF16:
    return DType::BF16;
  }
  return DType::U8; // not an element type: counted in bytes
}

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CUDA_NCCLTYPES_H
