//===- ExternalData.cpp - Weights in files beside the model ----------------===//

#include "frontend/onnx/ExternalData.h"
#include "runtime/abi/Descriptor.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tbc::frontend {

namespace {

Error reject(const std::string &tensor, const std::string &why) {
  return {ErrorCode::ModelRejected, "external data of tensor '" + tensor + "': " + why};
}

/// Returns the components of a relative path without ".".
std::vector<std::string> components(const std::string &path) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= path.size();) {
    size_t end = std::min(path.find('/', begin), path.size());
    std::string part = path.substr(begin, end - begin);
    if (!part.empty() && part != ".")
      parts.push_back(part);
    begin = end + 1;
  }
  return parts;
}

constexpr int fileFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

/// Opens `path` beneath `folder`; returns -1 and sets errno on failure. With `links`, follows
/// symbolic links that stay beneath `folder`.
int openBeneath(int folder, const std::string &path, bool links) {
  open_how how = {};
  how.flags = fileFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (links ? 0 : RESOLVE_NO_SYMLINKS);
  long opened = ::syscall(SYS_openat2, folder, path.c_str(), &how, sizeof(how));
  if (opened >= 0 || (errno != ENOSYS && errno != EPERM))
    return int(opened);
  if (links) // not safe without openat2
    return -1;
  Descriptor current(::dup(folder));
  std::vector<std::string> parts = components(path);
  for (size_t i = 0; i < parts.size(); ++i) {
    int flags = i + 1 < parts.size() ? O_PATH | O_DIRECTORY | O_CLOEXEC : fileFlags;
    int next = ::openat(current.get(), parts[i].c_str(), flags | O_NOFOLLOW);
    if (next < 0)
      return -1;
    current.reset(next);
  }
  return current.release();
}

std::string realPath(const std::string &path) {
  char *resolved = ::realpath(path.c_str(), nullptr);
  std::string result = resolved ? resolved : "";
  std::free(resolved);
  return result;
}

/// Returns the folder to open beneath, and the path from there. The folder is the model's own, or
/// the permitted root if the model lies inside or outside of it.
std::pair<std::string, std::string> anchor(const std::string &directory,
                                           const std::string &location, const std::string &root) {
  if (root.empty())
    return {directory, location};
  std::string realRoot = realPath(root), realDirectory = realPath(directory);
  if (realDirectory.compare(0, realRoot.size(), realRoot) == 0 &&
      realDirectory.size() > realRoot.size() && realDirectory[realRoot.size()] == '/')
    return {root, realDirectory.substr(realRoot.size() + 1) + "/" + location};
  return {root, location};
}

std::optional<int64_t> parseNumber(const std::string &text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text[0] == '-')
    return std::nullopt;
  return value;
}

} // namespace

Result<ExternalRange>
parseExternalData(const std::string &tensor,
                  const std::vector<std::pair<std::string, std::string>> &entries) {
  ExternalRange range;
  bool hasLocation = false, hasOffset = false, hasLength = false;
  for (const auto &[key, value] : entries) {
    bool *seen = key == "location" ? &hasLocation
                 : key == "offset" ? &hasOffset
                 : key == "length" ? &hasLength
                                   : nullptr;
    if (!seen) {
      if (key != "checksum")
        return reject(tensor, "unknown key '" + key + "'");
      continue;
    }
    if (*seen)
      return reject(tensor, "key '" + key + "' is given twice");
    *seen = true;
    if (key == "location") {
      range.location = value;
      continue;
    }
    std::optional<int64_t> number = parseNumber(value);
    if (!number)
      return reject(tensor, key + " '" + value + "' is not a number of bytes");
    (key == "offset" ? range.offset : range.length) = *number;
  }
  if (Status status = checkLocation(tensor, range.location); !status)
    return status.error();
  return range;
}

Status checkLocation(const std::string &tensor, const std::string &location) {
  if (location.empty())
    return reject(tensor, "no location is given");
  if (location.find('\0') != std::string::npos)
    return reject(tensor, "the location contains a zero byte");
  if (location[0] == '/')
    return reject(tensor,
                  "location '" + location + "' is absolute; it must be relative to the model");
  std::vector<std::string> parts = components(location);
  if (std::find(parts.begin(), parts.end(), "..") != parts.end())
    return reject(tensor, "location '" + location + "' leaves the model's folder");
  if (parts.empty())
    return reject(tensor, "location '" + location + "' is not a file");
  return Status::ok();
}

Result<std::optional<data::MappedFile>> openExternal(const std::string &tensor,
                                                     const std::string &directory,
                                                     const std::string &location,
                                                     const std::string &externalDataRoot) {
  if (Status status = checkLocation(tensor, location); !status)
    return status.error();
  auto [folder, path] = anchor(directory, location, externalDataRoot);
  Descriptor base(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (base.get() < 0)
    return Error{ErrorCode::Usage,
                 "cannot open the folder " + folder + ": " + std::strerror(errno)};
  Descriptor file(openBeneath(base.get(), path, !externalDataRoot.empty()));
  if (file.get() < 0 && errno == ENOENT)
    return std::optional<data::MappedFile>();
  std::string hint = externalDataRoot.empty()
                         ? "; if you trust it, name a folder above it with --external-data-root"
                         : "";
  if (file.get() < 0 && (errno == ELOOP || errno == EXDEV || errno == ENOTDIR))
    return reject(tensor, "'" + location + "' is reached through a symbolic link or lies outside " +
                              folder + hint);
  if (file.get() < 0)
    return reject(tensor, "cannot open '" + location + "': " + std::strerror(errno));

  struct stat status;
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    return reject(tensor, "'" + location + "' is not a regular file");
  if (status.st_nlink != 1 && externalDataRoot.empty())
    return reject(tensor, "'" + location + "' is a hard link to another file" + hint);
  Result<data::MappedFile> mapped =
      data::MappedFile::fromDescriptor(file.release(), location, ErrorCode::Usage);
  if (!mapped)
    return reject(tensor, mapped.error().message);
  return std::optional<data::MappedFile>(*mapped);
}

Result<ExternalLedger::File *> ExternalLedger::find(const std::string &tensor,
                                                    const std::string &location) {
  // Normalizes by components, so that "a//b" and "a/b" are one file.
  std::string key;
  for (const std::string &part : components(location))
    key += (key.empty() ? "" : "/") + part;
  auto [it, isNew] = files.try_emplace(key);
  if (isNew) {
    Result<std::optional<data::MappedFile>> file = openExternal(tensor, directory, key, root);
    if (!file)
      return file.error();
    it->second.opened = *file;
  }
  return &it->second;
}

Result<std::optional<data::MappedFile>> ExternalLedger::open(const std::string &tensor,
                                                             const ExternalRange &range) {
  Result<File *> file = find(tensor, range.location);
  if (!file)
    return file.error();
  return (*file)->opened;
}

Result<std::optional<data::MappedFile>>
ExternalLedger::claim(const std::string &tensor, const ExternalRange &range, int64_t bytes) {
  if (range.length >= 0 && range.length != bytes)
    return reject(tensor, "length is " + std::to_string(range.length) + ", but the tensor has " +
                              std::to_string(bytes) + " bytes");
  if (range.offset > std::numeric_limits<int64_t>::max() - bytes)
    return reject(tensor, "offset " + std::to_string(range.offset) + " is out of range");
  Result<File *> found = find(tensor, range.location);
  if (!found)
    return found.error();
  File &file = **found;
  int64_t end = range.offset + bytes;
  if (file.opened && uint64_t(end) > file.opened->size())
    return reject(tensor, "bytes " + std::to_string(range.offset) + " to " + std::to_string(end) +
                              " are outside '" + file.opened->path() + "', which has " +
                              std::to_string(file.opened->size()));
  if (bytes > 0)
    file.claims.push_back({range.offset, end, tensor});
  return file.opened;
}

Status ExternalLedger::checkOverlaps() const {
  for (const auto &[location, file] : files) {
    std::vector<Claim> claims = file.claims;
    std::sort(claims.begin(), claims.end(),
              [](const Claim &a, const Claim &b) { return a.begin < b.begin; });
    for (size_t i = 1; i < claims.size(); ++i)
      if (claims[i].begin < claims[i - 1].end)
        return reject(claims[i].tensor, "bytes " + std::to_string(claims[i].begin) + " to " +
                                            std::to_string(claims[i].end) + " of '" + location +
                                            "' overlap those of tensor '" + claims[i - 1].tensor +
                                            "'");
  }
  return Status::ok();
}

} // namespace tbc::frontend
