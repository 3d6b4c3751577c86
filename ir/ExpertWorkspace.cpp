//===- ExpertWorkspace.cpp - Memory of routed experts on GPUs ---------------===//

#include "ir/ExpertWorkspace.h"

#include <algorithm>

namespace tbc {

static int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t ExpertSizes::tiles() const {
  return std::max<int64_t>((t * chosen() + e * (tileRows - 1)) / tileRows, 1);
}
int64_t ExpertSizes::pieces() const { return ceilDiv(t, tokensOfPiece); }

ExpertWorkspace::ExpertWorkspace(const ExpertSizes &n, bool isGradient, int64_t ranges)
    : ranges(ranges) {
  constexpr int64_t alignment = 256, listBytes = 4, sumBytes = 4, rangeColumns = 128, perRange = 4;
  auto take = [&](int64_t elements, int64_t width) {
    int64_t begin = bytes;
    bytes = ceilDiv(bytes + elements * width, alignment) * alignment;
    return begin;
  };
  counts = take(n.pieces() * n.e, listBytes);
  totals = take(n.e, listBytes);
  starts = take(n.e + 1, listBytes);
  experts = take(n.tiles(), listBytes);
  tokens = take(n.rows(), listBytes);
  rows = take(n.t * (n.chosen() + 1), listBytes);
  hidden = take(n.rows() * n.f, n.elementBytes);
  made = take(n.rows() * (isGradient ? n.h : n.o), n.elementBytes);
  if (!isGradient)
    return;
  if (ranges == 0)
    this->ranges = perRange * ceilDiv(n.f, rangeColumns);
  first = take(n.rows() * n.parts * n.f, n.elementBytes);
  terms = take(n.rows() * this->ranges, sumBytes);
}

} // namespace tbc
