//===- Runs.h - Segments of memory with elements ---------------------------===//
//
// Part of tbc. Plain C++. The arguments of a Communicator's calls on memory: elements of one type
// in the encoding of Wire.h, in one or several segments of memory.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_RUNS_H
#define TBC_RUNTIME_COMM_RUNS_H

#include "runtime/comm/Wire.h"

#include <cstdint>
#include <vector>

namespace tbc::comm {

struct ElementType {
  kernels::DType dtype = kernels::DType::U8;
  kernels::Arith arith = kernels::Arith::Native;
  int64_t width() const { return wireWidth(dtype, arith); }
};

/// A segment of memory with whole elements.
struct Run {
  unsigned char *data = nullptr;
  int64_t bytes = 0;
};
/// Consecutive segments. Those of an input are only read.
using Runs = std::vector<Run>;

int64_t sizeBytes(const Runs &runs);

/// Copies the segments to contiguous memory, and back; `packed` holds sizeBytes(runs).
void pack(const Runs &runs, unsigned char *packed);
void unpack(const unsigned char *packed, const Runs &runs);

/// Returns the elements of `runs` as a tensor of `count` elements, padded with zeros.
kernels::Tensor toTensor(const Runs &runs, const ElementType &type, int64_t count);
/// Writes the encoded elements of `tensor`, as many as the segments hold.
void fromTensor(const kernels::Tensor &tensor, const Runs &runs);

/// Cuts segments into pieces, beginning with the first byte.
class Cutter {
public:
  explicit Cutter(const Runs &runs) : runs(&runs) {}
  /// Returns the next `bytes` bytes, or the rest.
  Runs next(int64_t bytes);

private:
  const Runs *runs;
  size_t index = 0;
  int64_t offset = 0; // within the run
};

/// Returns `runs` in n equal parts of whole elements; the last parts may be shorter. Example: 5
/// elements in 2 parts are 3 and 2.
std::vector<Runs> equalParts(const Runs &runs, const ElementType &type, size_t n);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_RUNS_H
