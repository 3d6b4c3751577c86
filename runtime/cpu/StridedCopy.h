//===- StridedCopy.h - Copies of boxes between strided layouts ------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_STRIDEDCOPY_H
#define TBC_RUNTIME_CPU_STRIDEDCOPY_H

#include "runtime/cpu/Threads.h"
#include "runtime/kernels/Tensor.h"

namespace tbc::cpu {

/// Copies to[sum i_d * toStrides[d]] = from[sum i_d * fromStrides[d]] for every index i of a shape.
/// Strides count elements. A stride of `from` may be 0 (repetition). The elements of `to` must be
/// distinct. Example: shape [2, 3], fromStrides [1, 2], toStrides [3, 1] transposes a 3 x 2 matrix.
class StridedCopy {
public:
  StridedCopy(int64_t elementBytes, const kernels::Shape &shape, const kernels::Shape &fromStrides,
              const kernels::Shape &toStrides);

  void run(Threads &threads, const void *from, void *to) const;

private:
  struct Dim {
    int64_t size, from, to; // strides in bytes
  };

  int64_t elementBytes;
  /// Outer to inner. The last two dims are copied by `copyPlane`, the others are pieces.
  std::vector<Dim> outer;
  Dim rows{1, 0, 0}, columns{1, 0, 0};
  int64_t numOuter = 1, rowsPerPiece = 1, columnsPerPiece = 1;
  bool isEmpty = false;
};

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_STRIDEDCOPY_H
