//===- Seal.h - Hashes of the files of a Program's folder -----------------===//
//
// Part of tbc. Plain C++ on POSIX.
//
// `tbc compile` writes seal.json into the folder of a Program, as its last file. It has the size
// and SHA-256 of every other file there, and of the input files: the model and its weights. A
// reader opens a file once and compares the content of that descriptor with the seal.
//
// A seal finds damage and mix-ups. It is a checksum and not a signature: anyone who can change a
// file can change the seal too, and kernels are machine code.
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
/// An exact copy of the plan from which the Program was compiled.
inline constexpr const char *planFile = "plan.json";

/// A larger file is sealed by its size and time of change. Hashing 10 GiB takes 7 to 33 seconds of
/// one core.
inline constexpr int64_t largestHashedBytes = int64_t(10) << 30;

/// The state of one file when it was sealed.
struct FileSeal {
  std::string path;
  int64_t bytes = 0;
  std::string sha256; // empty for a file above the hash limit, sealed by its time of change
  int64_t modifiedNanoseconds = 0; // since 1970; 0 if there is a hash
  bool isHashed() const { return !sha256.empty(); }
};

struct Seal {
  /// The files of the folder by name: program.json, run.json, plan.json and kernels.
  std::vector<FileSeal> files;
  /// The model file first, then other files with its weights. Paths are relative to the folder, or
  /// absolute. Empty if the program was not compiled from a file.
  std::vector<FileSeal> sources;
};

/// Returns canonical JSON with a hash of its own, so damage of any byte of the seal is found.
std::string writeSeal(const Seal &seal);

/// The inverse. Errors: Usage, damage, another version.
Result<Seal> readSeal(std::string_view text);

/// A file that was opened once; copies share the descriptor.
class OpenFile {
public:
  /// Errors: Usage, with the path and the system's reason. A file that is not regular, such as a
  /// pipe, is refused without waiting for it.
  static Result<OpenFile> open(const std::string &path);

  const std::string &path() const { return filePath; }
  int descriptor() const { return *number; }
  int64_t bytes() const { return numBytes; }
  int64_t modifiedNanoseconds() const { return modified; }
  /// A path to the open file itself; it stays valid if `path()` is replaced.
  std::string descriptorPath() const { return "/proc/self/fd/" + std::to_string(*number); }

  /// Returns the current content. Errors: Usage, of reading.
  Result<std::string> read() const;
  /// The SHA-256 of the content, read in pieces.
  Result<std::string> sha256() const;

private:
  OpenFile() = default;
  template <typename Take> Status readAll(Take take) const;

  std::string filePath;
  std::shared_ptr<const int> number;
  int64_t numBytes = 0, modified = 0;
};

/// Returns the seal of a file in its current state. Files above `largestHashed` bytes are sealed by
/// their time of change.
Result<FileSeal> sealOf(const OpenFile &file, const std::string &path,
                        int64_t largestHashed = largestHashedBytes);

/// Returns the difference between a file and its seal, as "its SHA-256 is …, sealed was …", or ""
/// if they are equal. Errors: of reading.
Result<std::string> differenceFrom(const FileSeal &seal, const OpenFile &file);

/// The files of a sealed folder. Each is opened once, together with the folder, and compared with
/// the seal before its first use.
class SealedFolder {
public:
  /// Opens the folder's files and compares their sizes. Errors: Usage; there is no seal, or it is
  /// damaged; a file is missing or has another size. The message names the file, the difference and
  /// the remedy.
  static Result<SealedFolder> open(const std::string &folder);

  const Seal &seal() const { return contents; }
  /// The SHA-256 of seal.json. Ranks compare it to make sure that they run the same Program.
  const std::string &sealHash() const { return hash; }
  const std::string &folder() const { return folderPath; }
  bool has(const std::string &name) const { return files.count(name) != 0; }

  /// Returns the content of a file after comparing it with the seal. Errors: Usage, naming the
  /// file.
  Result<std::string> text(const std::string &name) const;
  /// Returns the open file after comparing its content with the seal. Errors: likewise.
  Result<OpenFile> file(const std::string &name) const;
  /// Calls `file` for each of them.
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
