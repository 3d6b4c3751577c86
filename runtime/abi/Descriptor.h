//===- Descriptor.h - A file descriptor with an owner ----------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_DESCRIPTOR_H
#define TBC_RUNTIME_ABI_DESCRIPTOR_H

#include <unistd.h>
#include <utility>

namespace tbc {

/// A file descriptor that is closed on destruction; negative for none.
class Descriptor {
public:
  explicit Descriptor(int fd = -1) : fd(fd) {}
  Descriptor(Descriptor &&other) noexcept : fd(other.release()) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Descriptor() { reset(); }

  int get() const { return fd; }
  explicit operator bool() const { return fd >= 0; }
  /// Returns the descriptor, which the caller closes from now on.
  int release() { return std::exchange(fd, -1); }
  /// Closes the descriptor and owns `next` instead.
  void reset(int next = -1) {
    if (fd >= 0)
      ::close(fd);
    fd = next;
  }

private:
  int fd;
};

} // namespace tbc

#endif // TBC_RUNTIME_ABI_DESCRIPTOR_H
