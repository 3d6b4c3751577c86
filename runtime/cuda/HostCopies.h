//===- HostCopies.h - Copies to the host and back beside kernels -----------===//
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

/// Bytes of a device.
struct DeviceRange {
  DeviceAddress begin = 0;
  int64_t bytes = 0;
  bool overlaps(const DeviceRange &o) const {
    return begin < o.begin + DeviceAddress(o.bytes) && o.begin < begin + DeviceAddress(bytes);
  }
};

/// What the Program copies between the device and pinned memory of the host: in a stream of its
/// own, one copy after the other, beside the streams of the Program. Who uses memory of the device
/// says so before, and his stream then waits for the copies that are still at it, and for no
/// others.
class HostCopies {
public:
  static Result<HostCopies> create(const DevicePtr &device);

  /// A copy comes after what this waits for by then.
  const Stream &stream() const { return own; }
  Status toHost(unsigned char *to, const DeviceRange &from);
  Status toDevice(const DeviceRange &to, const unsigned char *from);

  /// `user`, which is stream `which`, is about to read the bytes, or to write them.
  Status beforeUse(program::Stream which, const Stream &user, const DeviceRange &range,
                   bool isWrite);
  /// The same of a stream that comes after the compute stream.
  Status beforeUseBy(const Stream &user, const DeviceRange &range, bool isWrite) const;
  /// What comes in `after` comes after all that is in `before`.
  void noteOrder(program::Stream before, program::Stream after);
  /// All of the Program's streams wait for all copies, in whatever way: none is looked at any more.
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
  std::deque<Copy> copies; // that a stream may have to wait for, the oldest first
  std::vector<Event> spare;
  int64_t numCopies = 0;
  /// By stream of the Program: the number of the last copy that it waits for.
  std::array<int64_t, program::numStreams> waited = {0, 0};
  bool isCommunicating = false;
  Stream own; // last, so that it ends before what its copies use is given back
};

/// Of each stream the last instruction before `index` of a block that reads or writes the bytes, or
/// of a copy that only reads them, writes them; none: whatever does comes before the block. Copies
/// of the Program to the host and back are left out. `addressOf` and `addressOfSlot` are of the
/// device, for the micro-batch of the block.
std::vector<int> lastUsers(const program::Stage &stage, const program::Block &block, int index,
                           const DeviceRange &range, bool isWrite,
                           const std::function<DeviceAddress(program::ValueId)> &addressOf,
                           const std::function<DeviceAddress(int slot)> &addressOfSlot);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_HOSTCOPIES_H
