//===- MappedFile.cpp - A file's bytes in memory, read as they are touched -===//

#include "runtime/data/MappedFile.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tbc::data {

//===----------------------------------------------------------------------===//
// Files that shrink while they are mapped
//===----------------------------------------------------------------------===//

namespace {

/// A mapping known to the handler of SIGBUS. Nodes are reused and never freed, because the handler
/// may walk the list at any time.
struct Watched {
  std::atomic<uintptr_t> begin{0}; // 0: free
  size_t bytes = 0;
  int exitCode = 1;
  std::string message;
  Watched *next = nullptr;
};

std::atomic<Watched *> watchedFiles{nullptr};
std::mutex watchMutex; // for adding and removing
struct sigaction previousAction;

/// Writes the name of the file with the missing page and ends the process with the file's exit
/// code. It calls only functions that POSIX allows in a signal handler.
void onBusError(int signal, siginfo_t *info, void *) {
  auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Watched *file = watchedFiles.load(); file; file = file->next) {
    uintptr_t begin = file->begin.load();
    if (begin == 0 || address < begin || address - begin >= file->bytes)
      continue;
    ssize_t written = ::write(STDERR_FILENO, file->message.data(), file->message.size());
    static_cast<void>(written); // an error of writing cannot be reported
    _exit(file->exitCode);
  }
  // The address is not in our mappings. The fault repeats when this returns, and then has its usual
  // effect.
  sigaction(signal, &previousAction, nullptr);
  if (info->si_code <= 0) // sent by a process, so the fault does not repeat
    raise(signal);
}

Watched *watch(uintptr_t begin, size_t bytes, const std::string &path, ErrorCode code) {
  std::lock_guard<std::mutex> lock(watchMutex);
  if (!watchedFiles.load()) {
    struct sigaction action{};
    action.sa_sigaction = onBusError;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &action, &previousAction);
  }
  Watched *file = watchedFiles.load();
  while (file && file->begin.load() != 0)
    file = file->next;
  bool isNew = !file;
  if (isNew)
    file = new Watched;
  file->bytes = bytes;
  file->exitCode = int(code);
  file->message = "tbc: " + path + " was truncated while it was read, or its disk failed: it had " +
                  std::to_string(bytes) + " bytes when it was opened; restore it and start again\n";
  file->begin = begin;
  if (isNew) {
    file->next = watchedFiles.load();
    watchedFiles = file;
  }
  return file;
}

} // namespace

//===----------------------------------------------------------------------===//
// Mapping
//===----------------------------------------------------------------------===//

static std::string kindOf(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISSOCK(mode) ? "a socket"
         : S_ISCHR(mode)  ? "a character device"
         : S_ISBLK(mode)  ? "a block device"
                          : "something else";
}

static Error cannotRead(const std::string &path, const std::string &why, ErrorCode code) {
  return Error{code, "cannot read " + path + ": " + why};
}

Result<MappedFile> MappedFile::open(const std::string &path, ErrorCode code) {
  // Without O_NONBLOCK a pipe would wait for its other end.
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor >= 0)
    return fromDescriptor(descriptor, path, code);
  int reason = errno;
  struct stat entry{};
  bool isSocket = stat(path.c_str(), &entry) == 0 && S_ISSOCK(entry.st_mode);
  return cannotRead(path, isSocket ? "it is a socket, not a regular file" : strerror(reason), code);
}

Result<MappedFile> MappedFile::fromDescriptor(int descriptor, const std::string &path,
                                              ErrorCode code) {
  auto failed = [&](const std::string &why) {
    ::close(descriptor);
    return cannotRead(path, why, code);
  };
  struct stat entry{};
  if (fstat(descriptor, &entry) != 0)
    return failed(strerror(errno));
  if (!S_ISREG(entry.st_mode))
    return failed("it is " + kindOf(entry.st_mode) + ", not a regular file");
  MappedFile file;
  file.filePath = path;
  file.numBytes = size_t(entry.st_size);
  file.modified = int64_t(entry.st_mtim.tv_sec) * 1000000000 + entry.st_mtim.tv_nsec;
  if (file.numBytes == 0) {
    ::close(descriptor);
    return file;
  }
  void *address = mmap(nullptr, file.numBytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (address == MAP_FAILED)
    return failed(strerror(errno));
  ::close(descriptor);
  size_t size = file.numBytes;
  Watched *watched = watch(reinterpret_cast<uintptr_t>(address), size, path, code);
  file.bytes.reset(static_cast<const unsigned char *>(address),
                   [size, watched](const unsigned char *begin) {
                     watched->begin = 0;
                     munmap(const_cast<unsigned char *>(begin), size);
                   });
  return file;
}

} // namespace tbc::data
