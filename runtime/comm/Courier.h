//===- Courier.h - A transport between the ranks of a group ----------------===//
//
// Part of tbc. Plain C++. Internal to the backends that move bytes. A transport moves bytes over
// connections or through memory. The algorithms above it choose the bytes (Courses.h).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_COURIER_H
#define TBC_RUNTIME_COMM_COURIER_H

#include "runtime/abi/Status.h"
#include "runtime/comm/Runs.h"

namespace tbc::comm {

/// The transport of one call: moves bytes between this rank and the other indices of a group.
/// Portions sent to an index arrive in order and must be received there in the same sizes; they are
/// not empty. Only the wait functions block, and they keep all portions in progress moving.
class Courier {
public:
  virtual ~Courier() = default;

  /// Returns the best portion size for long messages, in bytes; a multiple of 64.
  virtual int64_t portionBytes() const = 0;

  /// Sends or receives a portion. The memory must stay unchanged until the portion is waited for.
  virtual Status send(size_t index, const Runs &from) = 0;
  virtual Status receive(size_t index, const Runs &into) = 0;
  /// Waits until the first `number` requested portions have come from this index, or left for it.
  virtual Status waitReceived(size_t index, int64_t number) = 0;
  virtual Status waitSent(size_t index, int64_t number) = 0;
};

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_COURIER_H
