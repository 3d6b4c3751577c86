//===- GlooHeader.cpp - The header of every message over Gloo ---------------===//

#include "runtime/comm/GlooHeader.h"

#include <algorithm>
#include <cstring>

namespace tbc::comm {

using kernels::TensorType;

void setTensor(Header &header, const TensorType &type, kernels::Arith arith) {
  header.dtype = int64_t(type.dtype);
  header.arith = int64_t(arith);
  header.numElements = kernels::numElements(type.shape);
  header.numDims = std::min<int64_t>(16, int64_t(type.shape.size()));
  std::copy_n(type.shape.begin(), header.numDims, header.shape);
}

void setElements(Header &header, const ElementType &type, int64_t numElements) {
  setTensor(header, {type.dtype, {numElements}}, type.arith);
}

void setPlace(Header &header, const std::string &place) {
  std::strncpy(header.place, place.c_str(), sizeof header.place - 1);
}

std::string placeOf(const Header &header) {
  return std::string(header.place, strnlen(header.place, sizeof header.place));
}

std::string tensorOf(const Header &header) {
  if (header.dtype < 0 || header.dtype >= int64_t(dtypes().size()))
    return "nothing";
  int64_t numDims = std::clamp<int64_t>(header.numDims, 0, 16);
  return toString(TensorType{kernels::DType(header.dtype),
                             kernels::Shape(header.shape, header.shape + numDims)});
}

std::string callOf(const Header &header) {
  if (header.kind == pointToPoint)
    return "send " + std::to_string(header.channel);
  Call call{CallKind(std::clamp<int64_t>(header.kind, 0, int64_t(CallKind::Barrier))), header.root};
  if (call.kind == CallKind::AllReduce)
    call.reduction = {ReduceKind(std::clamp<int64_t>(header.reduce, 0, numReduceKinds - 1)),
                      header.factor};
  return describe(call);
}

bool sameCall(const Header &a, const Header &b) {
  return a.group == b.group && a.kind == b.kind && a.reduce == b.reduce && a.factor == b.factor &&
         a.root == b.root && a.dtype == b.dtype && a.arith == b.arith &&
         a.numElements == b.numElements;
}

Error mismatch(int64_t self, const std::string &what, const Header &theirs, int64_t peer) {
  return {ErrorCode::RankFailed, "rank " + std::to_string(self) + " at " + what + ": meets " +
                                     callOf(theirs) + " of " + tensorOf(theirs) + " of rank " +
                                     std::to_string(peer) + " at " + placeOf(theirs)};
}

uint64_t hashOf(const Group &group) {
  uint64_t hash = 14695981039346656037ull;
  for (int64_t rank : group)
    for (int byte = 0; byte < 8; ++byte)
      hash = (hash ^ (uint64_t(rank) >> (8 * byte) & 0xff)) * 1099511628211ull;
  return hash;
}

Slots slotsOf(const Group &group) {
  uint64_t base = hashOf(group) >> 2 << 1;
  return {base, base | 1};
}
Slots slotsOf(int lane) {
  uint64_t base = uint64_t(1) << 63 | uint64_t(uint32_t(lane)) << 1;
  return {base, base | 1};
}

} // namespace tbc::comm
