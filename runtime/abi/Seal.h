//===- Seal.h - What the files of a Program's folder were ------------------===//
//
// Part of tbc. Plain C++ on POSIX.
//
// `tbc compile` writes seal.json last into the folder of a Program: the size and SHA-256 of every
// file that it wrote there, and of the files that it read: the model and its weights. Whoever opens
// one of them opens it once, and compares what came from that descriptor with the seal.
//
// A seal finds damage and mix-ups. It is a checksum and no signature: whoever can change a file can
// change the seal, and kernels are machine code that a run executes.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_SEAL_H
#define TBC_RUNTIME_ABI_SEAL_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tbc::program {

inline constexpr const char *sealFile = "seal.json";
/// The plan that the Program was compiled from, as it was.
inline constexpr const char *planFile = "plan.json";

/// Files larger than this are sealed by their size and time of change: hashing 10 GiB takes 7 to 33
/// seconds of one core.
inline constexpr int64_t largestHashedBytes = int64_t(10) << 30;

/// One file as it was when it was sealed.
struct FileSeal {
  std::string path;
  int64_t bytes = 0;
  std::string sha256; // empty: larger than what is hashed; then the time of its last change counts
  int64_t modifiedNanoseconds = 0; // since 1970; 0 where there is a hash
  bool isHashed() const { return !sha256.empty(); }
};

struct Seal {
  /// Of the folder, by name: program.json, run.json, plan.json and kernels.
  std::vector<FileSeal> files;
  /// The model file first, then others that hold its weights; paths are relative to the folder, or
  /// absolute. None of a program that was not compiled from a file.
  std::vector<FileSeal> sources;
};

/// Canonical JSON with a hash of its own, so that damage of any byte of the seal shows as well.
std::string writeSeal(const Seal &seal);

/// The inverse. Errors: Usage, damage, another version.
Result<Seal> readSeal(std::string_view text);

/// A file that was opened once; copies share the descriptor.
class OpenFile {
public:
  /// Errors: Usage, naming the path and the system's reason; what is no regular file is refused,
  /// and never waited for.
  static Result<OpenFile> open(const std::string &path);

  const std::string &path() const { return filePath; }
  int descriptor() const { return *number; }
  int64_t bytes() const { return numBytes; }
  int64_t modifiedNanoseconds() const { return modified; }
  /// A path that leads to the descriptor's own file whatever happens to `path()`.
  std::string descriptorPath() const { return "/proc/self/fd/" + std::to_string(*number); }

  /// Everything that is in it now. Errors: Usage, of reading.
  Result<std::string> read() const;
  /// The SHA-256 of that, read in pieces.
  Result<std::string> sha256() const;

private:
  OpenFile() = default;
  template <typename Take> Status readAll(Take take) const;

  std::string filePath;
  std::shared_ptr<const int> number;
  int64_t numBytes = 0, modified = 0;
};

/// The seal of a file as it is. `largestHashed`: larger ones by their time of change.
Result<FileSeal> sealOf(const OpenFile &file, const std::string &path,
                        int64_t largestHashed = largestHashedBytes);

/// What differs between a file and its seal, as "its SHA-256 is …, sealed was …"; empty if nothing
/// does. Errors: of reading.
Result<std::string> differenceFrom(const FileSeal &seal, const OpenFile &file);

/// The files of a sealed folder: each opened once, when the folder is, and compared with the seal
/// before anything of it is used.
class SealedFolder {
public:
  /// Opens the folder's files and compares their sizes. Errors: Usage, naming the file, what
  /// differs and what to do: there is no seal, or it is damaged; a file is missing or has another
  /// size.
  static Result<SealedFolder> open(const std::string &folder);

  const Seal &seal() const { return contents; }
  /// The SHA-256 of seal.json, by which ranks compare what they run.
  const std::string &sealHash() const { return hash; }
  const std::string &folder() const { return folderPath; }
  bool has(const std::string &name) const { return files.count(name) != 0; }

  /// The content of a file, compared with the seal. Errors: Usage, naming the file.
  Result<std::string> text(const std::string &name) const;
  /// Its descriptor, whose content was compared with the seal. Errors: likewise.
  Result<OpenFile> file(const std::string &name) const;
  /// `file` for all of them.
  Status checkAll() const;

private:
  SealedFolder() = default;
  Error differs(const std::string &name, const std::string &why) const;
  Result<const FileSeal *> find(const std::string &name) const;

  std::string folderPath, hash;
  Seal contents;
  std::map<std::string, OpenFile> files;
};

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_SEAL_H
