//===- GlooHeader.h - The header of every message over Gloo -----------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_GLOOHEADER_H
#define TBC_RUNTIME_COMM_GLOOHEADER_H

#include "runtime/comm/Call.h"
#include "runtime/comm/Runs.h"

#include <string>

namespace tbc::comm {

/// The call of a message's sender, so that mismatched calls give errors that name both sides. Both
/// ranks must have the same byte order and word size (all supported machines are little-endian with
/// 64 bits).
struct Header {
  uint64_t group = 0; // hashOf
  int64_t kind = 0;   // CallKind, or pointToPoint
  int64_t reduce = 0;
  double factor = 1;
  int64_t root = 0;
  int64_t channel = 0;
  int64_t dtype = -1; // -1: no tensor
  int64_t arith = 0;
  int64_t numElements = 0;
  int64_t numDims = 0;
  int64_t shape[16] = {}; // for error messages; a longer shape is cut
  char place[216] = {};
};
constexpr int64_t pointToPoint = 100;

void setTensor(Header &header, const kernels::TensorType &type, kernels::Arith arith);
/// Sets a tensor of one dim.
void setElements(Header &header, const ElementType &type, int64_t numElements);
/// Truncates long places.
void setPlace(Header &header, const std::string &place);
std::string placeOf(const Header &header);
/// Returns the type of the message's tensor, or "nothing".
std::string tensorOf(const Header &header);
std::string callOf(const Header &header);
bool sameCall(const Header &a, const Header &b);
/// Returns the error for a mismatch: `self` at `what` meets another call `theirs` of `peer`.
Error mismatch(int64_t self, const std::string &what, const Header &theirs, int64_t peer);
/// Returns FNV-1a over the ranks of a group.
uint64_t hashOf(const Group &group);

/// Gloo keeps messages of one slot in order. Headers and contents have separate slots, and so have
/// groups and lanes, so that no message is taken for another.
struct Slots {
  uint64_t header, content;
};
Slots slotsOf(const Group &group);
Slots slotsOf(int lane);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_GLOOHEADER_H
