//===- Runs.h - Elements where they lie ------------------------------------===//
//
// Part of tbc. Plain C++. What the calls of a Communicator on memory take: elements of one type in
// the encoding of Wire.h, in one or several stretches of memory.
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

/// A stretch of memory that holds whole elements.
struct Run {
  unsigned char *data = nullptr;
  int64_t bytes = 0;
};
/// One after the other. Of an input they are only read.
using Runs = std::vector<Run>;

int64_t sizeBytes(const Runs &runs);

/// Their bytes as one stretch, and the inverse; `packed` holds sizeBytes(runs).
void pack(const Runs &runs, unsigned char *packed);
void unpack(const unsigned char *packed, const Runs &runs);

/// The elements of runs as a tensor of `count` elements, with zeros behind them.
kernels::Tensor toTensor(const Runs &runs, const ElementType &type, int64_t count);
/// The inverse of `encode`, of as many elements as the runs hold.
void fromTensor(const kernels::Tensor &tensor, const Runs &runs);

/// Cuts runs into pieces from the first byte on.
class Cutter {
public:
  explicit Cutter(const Runs &runs) : runs(&runs) {}
  /// The next `bytes`, or what is left.
  Runs next(int64_t bytes);

private:
  const Runs *runs;
  size_t index = 0;
  int64_t offset = 0; // within the run
};

/// `runs` in n equal parts of whole elements; the last ones may have fewer.
std::vector<Runs> equalParts(const Runs &runs, const ElementType &type, size_t n);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_RUNS_H
