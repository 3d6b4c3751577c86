//===- Courier.h - Bytes between the ranks of a group ----------------------===//
//
// Part of tbc. Plain C++. Internal to the backends that move bytes: below, how (over connections,
// through memory); above, which (Courses.h).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_COURIER_H
#define TBC_RUNTIME_COMM_COURIER_H

#include "runtime/abi/Status.h"
#include "runtime/comm/Runs.h"

namespace tbc::comm {

/// Moves bytes between this rank and the other indices of a group during one call. What is sent to
/// an index arrives, in order, where that asked for it to be received, in the same portions; none
/// is empty. Nothing waits but the functions that say so, and these let everything go on that was
/// asked for.
class Courier {
public:
  virtual ~Courier() = default;

  /// In how many bytes a long message is best cut; a multiple of 64.
  virtual int64_t portionBytes() const = 0;

  /// The memory stays as it is until the portion is waited for.
  virtual Status send(size_t index, const Runs &from) = 0;
  virtual Status receive(size_t index, const Runs &into) = 0;
  /// Until the first `number` portions that were asked for have come from this index, or left for
  /// it.
  virtual Status waitReceived(size_t index, int64_t number) = 0;
  virtual Status waitSent(size_t index, int64_t number) = 0;
};

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_COURIER_H
