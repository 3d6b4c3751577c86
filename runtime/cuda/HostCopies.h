//===- HostCopies.h - Copies between device and host beside kernels --------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_HOSTCOPIES_H
#define TBC_RUNTIME_CUDA_HOSTCOPIES_H

#include "runtime/abi/Program.h"
#include "runtime/cuda/Device.h"

#include <array>
#include <deque>
#include <functional>

namespace tbc::cuda {

/// A range of device memory.
struct DeviceRange {
  DeviceAddress begin = 0;
  int64_t bytes = 0;
  bool overlaps(const DeviceRange &o) const {
    return begin < o.begin + DeviceAddress(o.bytes) && o.begin < begin + DeviceAddress(bytes);
  }
};

/// The Program's copies between device memory and pinned host memory. They run one after another in
/// a separate stream, beside the Program's streams. Each user of device memory announces its range
/// first; its stream then waits only for the copies that still use this range.
class HostCopies {
public:
  static Result<HostCopies> create(const DevicePtr &device);

  /// A copy runs after everything that this stream waits for by then.
  const Stream &stream() const { return own; }
  Status toHost(unsigned char *to, const DeviceRange &from);
  Status toDevice(const DeviceRange &to, const unsigned char *from);

  /// Announces that `user`, the Program's stream `which`, will read or write the bytes.
  Status beforeUse(program::Stream which, const Stream &user, const DeviceRange &range,
                   bool isWrite);
  /// The same for a stream that follows the compute stream.
  Status beforeUseBy(const Stream &user, const DeviceRange &range, bool isWrite) const;
  /// Records that later work in `after` waits for the current work in `before`.
  void noteOrder(program::Stream before, program::Stream after);
  /// Called when all of the Program's streams wait for all copies: no copy is tracked any more.
  void forget();
  bool isAny() const { return !copies.empty(); }

private:
  struct Copy {
    DeviceRange range;
    bool isWrite = false; // of the device
    int64_t number = 0;
    Event end;
  };
  Status note(const DeviceRange &range, bool isWrite);
  void retire();

  DevicePtr device;
  std::deque<Copy> copies; // not yet waited for by all streams, oldest first
  std::vector<Event> spare;
  int64_t numCopies = 0;
  /// By stream of the Program: the number of the last copy it waits for.
  std::array<int64_t, program::numStreams> waited = {0, 0};
  bool isCommunicating = false;
  Stream own; // last, so that it ends before the memory of its copies is freed
};

/// Returns, for each stream, the last instruction before `index` that conflicts with a copy of the
/// bytes. A conflict is a read or write or, if the copy only reads them, a write. A stream without
/// a conflict in the block has no entry. Copies of the Program between host and device are ignored.
/// `addressOf` and `addressOfSlot` give device addresses for the block's micro-batch.
std::vector<int> lastUsers(const program::Stage &stage, const program::Block &block, int index,
                           const DeviceRange &range, bool isWrite,
                           const std::function<DeviceAddress(program::ValueId)> &addressOf,
                           const std::function<DeviceAddress(int slot)> &addressOfSlot);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_HOSTCOPIES_H
