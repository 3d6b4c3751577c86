//===- Wire.h - Tensors as bytes between ranks -----------------------------===//
//
// Part of tbc. Plain C++. An element takes its dtype's width, as in files. Floats of the F64
// arithmetic and residues modulo 2^61 - 1 take 8 bytes for every dtype.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_WIRE_H
#define TBC_RUNTIME_COMM_WIRE_H

#include "runtime/kernels/Tensor.h"

#include <vector>

namespace tbc::comm {

/// Returns the arithmetic in which `tensor` is held; Native for integers and booleans.
kernels::Arith arithOf(const kernels::Tensor &tensor);

/// Returns the bytes of one element of `dtype` held in `arith`.
int64_t wireWidth(kernels::DType dtype, kernels::Arith arith);

std::vector<unsigned char> encode(const kernels::Tensor &tensor);

/// Inverts `encode`: reads numElements * wireWidth bytes. KernelError for a byte that is no residue
/// modulo 251.
kernels::Tensor decode(const kernels::TensorType &type, kernels::Arith arith, const void *bytes);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_WIRE_H
