//===- Runs.cpp - Segments of memory with elements -------------------------===//

#include "runtime/comm/Runs.h"

#include <algorithm>
#include <cstring>

namespace tbc::comm {

using kernels::Tensor;
using kernels::TensorType;

int64_t sizeBytes(const Runs &runs) {
  int64_t bytes = 0;
  for (const Run &run : runs)
    bytes += run.bytes;
  return bytes;
}

void pack(const Runs &runs, unsigned char *packed) {
  for (const Run &run : runs)
    if (run.bytes > 0) {
      std::memcpy(packed, run.data, size_t(run.bytes));
      packed += run.bytes;
    }
}

void unpack(const unsigned char *packed, const Runs &runs) {
  for (const Run &run : runs)
    if (run.bytes > 0) {
      std::memcpy(run.data, packed, size_t(run.bytes));
      packed += run.bytes;
    }
}

Tensor toTensor(const Runs &runs, const ElementType &type, int64_t count) {
  std::vector<unsigned char> bytes(size_t(count * type.width()), 0);
  pack(runs, bytes.data());
  return decode({type.dtype, {count}}, type.arith, bytes.data());
}

void fromTensor(const Tensor &tensor, const Runs &runs) {
  std::vector<unsigned char> bytes = encode(tensor);
  kernels::require(sizeBytes(runs) <= int64_t(bytes.size()),
                   "a communication gave fewer elements than were asked for");
  unpack(bytes.data(), runs);
}

Runs Cutter::next(int64_t bytes) {
  Runs piece;
  while (bytes > 0 && index < runs->size()) {
    const Run &run = (*runs)[index];
    int64_t taken = std::min(bytes, run.bytes - offset);
    if (taken > 0)
      piece.push_back({run.data + offset, taken});
    bytes -= taken;
    offset += taken;
    if (offset == run.bytes)
      ++index, offset = 0;
  }
  return piece;
}

std::vector<Runs> equalParts(const Runs &runs, const ElementType &type, size_t n) {
  int64_t count = sizeBytes(runs) / type.width();
  int64_t share = (count + int64_t(n) - 1) / int64_t(n);
  Cutter cutter(runs);
  std::vector<Runs> parts;
  for (size_t i = 0; i < n; ++i)
    parts.push_back(cutter.next(share * type.width()));
  return parts;
}

} // namespace tbc::comm
