//===- MappedFile.cpp - A file read in place -------------------------------===//

#include "frontend/onnx/MappedFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tbc::frontend {

Result<MappedFile> MappedFile::open(const std::string &path) {
  // Not blocking: a FIFO must not hang the open; it is refused below.
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    return Error{ErrorCode::Usage, "cannot open " + path + ": " + std::strerror(errno)};
  return fromDescriptor(descriptor, path);
}

Result<MappedFile> MappedFile::fromDescriptor(int descriptor, const std::string &path) {
  auto fail = [&](const std::string &why) {
    ::close(descriptor);
    return Error{ErrorCode::Usage, "cannot read " + path + ": " + why};
  };
  struct stat status;
  if (::fstat(descriptor, &status) != 0)
    return fail(std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    return fail("not a regular file");

  MappedFile file;
  file.name = path;
  file.bytes = uint64_t(status.st_size);
  file.modified = int64_t(status.st_mtim.tv_sec) * 1000000000 + status.st_mtim.tv_nsec;
  if (file.bytes > 0) {
    void *address = ::mmap(nullptr, file.bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED)
      return fail(std::strerror(errno));
    file.mapping = std::shared_ptr<const void>(
        address, [size = file.bytes](const void *p) { ::munmap(const_cast<void *>(p), size); });
  }
  ::close(descriptor);
  return file;
}

} // namespace tbc::frontend
