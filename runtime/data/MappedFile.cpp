//===- MappedFile.cpp - A file's bytes in memory, read as they are touched -===//

#include "runtime/data/MappedFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tbc::data {

Result<MappedFile> MappedFile::open(const std::string &path, ErrorCode code) {
  auto failed = [&](const std::string &why) {
    return Error{code, "cannot read " + path + ": " + why};
  };
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return failed(strerror(errno));
  struct stat entry{};
  if (fstat(fd, &entry) != 0 || !S_ISREG(entry.st_mode)) {
    ::close(fd);
    return failed("it is no regular file");
  }
  MappedFile file;
  file.filePath = path;
  file.numBytes = size_t(entry.st_size);
  if (file.numBytes == 0) {
    ::close(fd);
    return file;
  }
  void *address = mmap(nullptr, file.numBytes, PROT_READ, MAP_PRIVATE, fd, 0);
  int reason = errno;
  ::close(fd);
  if (address == MAP_FAILED)
    return failed(strerror(reason));
  size_t size = file.numBytes;
  file.bytes.reset(static_cast<const unsigned char *>(address), [size](const unsigned char *begin) {
    munmap(const_cast<unsigned char *>(begin), size);
  });
  return file;
}

} // namespace tbc::data
