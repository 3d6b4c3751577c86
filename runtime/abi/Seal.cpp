//===- Seal.cpp - Hashes of the files of a Program's folder ---------------===//

#include "runtime/abi/Seal.h"
#include "runtime/abi/Sha256.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

namespace tbc::program {

using Json = nlohmann::ordered_json;

static Error usage(const std::string &message) { return Error{ErrorCode::Usage, message}; }

//===----------------------------------------------------------------------===//
// The text
//===----------------------------------------------------------------------===//

static constexpr const char *formatName = "tbc-seal";
static constexpr int sealVersion = 1;

static Json listOf(const std::vector<FileSeal> &files) {
  Json list = Json::array();
  for (const FileSeal &file : files) {
    Json line = {{"path", file.path}, {"bytes", file.bytes}};
    if (file.isHashed())
      line["sha256"] = file.sha256;
    else
      line["modified_nanoseconds"] = file.modifiedNanoseconds;
    list.push_back(std::move(line));
  }
  return list;
}

std::string writeSeal(const Seal &seal) {
  Json json = {{"files", listOf(seal.files)}, {"sources", listOf(seal.sources)}};
  std::string hash = sha256Hex(json.dump());
  json["format"] = formatName;
  json["version"] = sealVersion;
  json["sha256"] = hash;
  return json.dump(1) + "\n";
}

/// The files of one list. The JSON library throws if `list` has another form.
static std::vector<FileSeal> filesOf(const Json &list) {
  std::vector<FileSeal> files;
  for (const Json &line : list) {
    FileSeal file;
    file.path = line.at("path").get<std::string>();
    file.bytes = line.at("bytes").get<int64_t>();
    if (line.contains("sha256"))
      file.sha256 = line.at("sha256").get<std::string>();
    else
      file.modifiedNanoseconds = line.at("modified_nanoseconds").get<int64_t>();
    files.push_back(std::move(file));
  }
  return files;
}

Result<Seal> readSeal(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded())
    return usage("it is no JSON");
  Seal seal;
  try {
    if (json.at("format") != formatName)
      return usage("it is no seal of tbc");
    if (json.at("version") != sealVersion)
      return usage("it is of version " + json.at("version").dump() + ", this tbc reads version " +
                   std::to_string(sealVersion));
    seal.files = filesOf(json.at("files"));
    seal.sources = filesOf(json.at("sources"));
  } catch (const Json::exception &) {
    return usage("it is no seal of tbc");
  }
  if (writeSeal(seal) != text)
    return usage("its own SHA-256 does not fit its content");
  return seal;
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

Result<OpenFile> OpenFile::open(const std::string &path) {
  auto failed = [&](const std::string &why) { return usage("cannot read " + path + ": " + why); };
  // O_NONBLOCK: opening a pipe without a writer would wait forever.
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0)
    return failed(strerror(errno));
  OpenFile file;
  file.filePath = path;
  file.number = std::shared_ptr<const int>(new int(fd), [](const int *held) {
    ::close(*held);
    delete held;
  });
  struct stat entry{};
  if (fstat(fd, &entry) != 0 || !S_ISREG(entry.st_mode))
    return failed("it is no regular file");
  file.numBytes = entry.st_size;
  file.modified = int64_t(entry.st_mtim.tv_sec) * 1000000000 + entry.st_mtim.tv_nsec;
  return file;
}

template <typename Take> Status OpenFile::readAll(Take take) const {
  std::vector<char> buffer(size_t(1) << 20);
  for (off_t offset = 0;;) {
    ssize_t count = pread(*number, buffer.data(), buffer.size(), offset);
    if (count == 0)
      return Status::ok();
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return usage("cannot read " + filePath + ": " + strerror(errno));
    take(std::string_view(buffer.data(), size_t(count)));
    offset += count;
  }
}

Result<std::string> OpenFile::read() const {
  std::string content;
  content.reserve(size_t(numBytes));
  Status status = readAll([&](std::string_view part) { content += part; });
  if (!status)
    return status.error();
  return content;
}

Result<std::string> OpenFile::sha256() const {
  Sha256 sum;
  Status status = readAll([&](std::string_view part) { sum.add(part); });
  if (!status)
    return status.error();
  return sum.hex();
}

Result<FileSeal> sealOf(const OpenFile &file, const std::string &path, int64_t largestHashed) {
  FileSeal seal;
  seal.path = path;
  seal.bytes = file.bytes();
  if (file.bytes() > largestHashed) {
    seal.modifiedNanoseconds = file.modifiedNanoseconds();
    return seal;
  }
  Result<std::string> hash = file.sha256();
  if (!hash)
    return hash.error();
  seal.sha256 = *hash;
  return seal;
}

static std::string sizeDifference(int64_t bytes, int64_t sealed) {
  if (bytes == sealed)
    return "";
  return "it has " + std::to_string(bytes) + " bytes, sealed were " + std::to_string(sealed);
}

static std::string hashDifference(const std::string &hash, const std::string &sealed) {
  constexpr size_t shown = 16;
  if (hash == sealed)
    return "";
  return "its SHA-256 begins with " + hash.substr(0, shown) + ", sealed was " +
         sealed.substr(0, shown);
}

Result<std::string> differenceFrom(const FileSeal &seal, const OpenFile &file) {
  if (std::string size = sizeDifference(file.bytes(), seal.bytes); !size.empty())
    return size;
  if (!seal.isHashed())
    return std::string(file.modifiedNanoseconds() == seal.modifiedNanoseconds
                           ? ""
                           : "it was written after it was sealed");
  Result<std::string> hash = file.sha256();
  if (!hash)
    return hash.error();
  return hashDifference(*hash, seal.sha256);
}

//===----------------------------------------------------------------------===//
// The folder
//===----------------------------------------------------------------------===//

static std::string pathIn(const std::string &folder, const std::string &name) {
  return (std::filesystem::path(folder) / name).string();
}

Error SealedFolder::differs(const std::string &name, const std::string &why) const {
  return usage(pathIn(folderPath, name) + " is not what tbc compile wrote: " + why +
               "; compile again, or copy the whole folder again");
}

Result<SealedFolder> SealedFolder::open(const std::string &folder) {
  SealedFolder sealed;
  sealed.folderPath = folder;
  std::error_code ignored;
  std::string path = pathIn(folder, sealFile);
  if (std::filesystem::is_regular_file(folder, ignored))
    return usage(folder + " is no Program: it is a file; name a folder that tbc compile wrote, as "
                          "program after tbc compile plan.json -o program");
  if (!std::filesystem::exists(folder, ignored))
    return usage(folder +
                 " is no Program: there is no such folder; name one that tbc compile wrote");
  if (!std::filesystem::exists(path, ignored))
    return usage(folder + " is no Program: it has no " + sealFile +
                 ", which tbc compile writes last; compile again, or name another folder");
  Result<OpenFile> file = OpenFile::open(path);
  if (!file)
    return file.error();
  Result<std::string> text = file->read();
  if (!text)
    return text.error();
  sealed.hash = sha256Hex(*text);
  Result<Seal> seal = readSeal(*text);
  if (!seal)
    return sealed.differs(sealFile, seal.error().message);
  sealed.contents = std::move(*seal);
  for (const FileSeal &entry : sealed.contents.files) {
    if (entry.path.find('/') != std::string::npos)
      return sealed.differs(sealFile, "\"" + entry.path + "\" is in another folder");
    std::string filePath = pathIn(folder, entry.path);
    if (!std::filesystem::exists(filePath, ignored))
      return usage(filePath + " is missing, which " + sealFile +
                   " lists; compile again, or copy the whole folder again");
    Result<OpenFile> opened = OpenFile::open(filePath);
    if (!opened)
      return opened.error();
    if (std::string size = sizeDifference(opened->bytes(), entry.bytes); !size.empty())
      return sealed.differs(entry.path, size);
    sealed.files.emplace(entry.path, std::move(*opened));
  }
  return sealed;
}

Result<const FileSeal *> SealedFolder::find(const std::string &name) const {
  auto entry = std::find_if(contents.files.begin(), contents.files.end(),
                            [&](const FileSeal &file) { return file.path == name; });
  if (entry != contents.files.end())
    return &*entry;
  return usage(pathIn(folderPath, name) + " is not among the files that " + sealFile +
               " lists; compile again");
}

Result<std::string> SealedFolder::text(const std::string &name) const {
  Result<const FileSeal *> entry = find(name);
  if (!entry)
    return entry.error();
  Result<std::string> content = files.at(name).read();
  if (!content)
    return content.error();
  // The hash is taken of the returned bytes, so a change of the file in between cannot go unseen.
  std::string why = sizeDifference(int64_t(content->size()), (*entry)->bytes);
  if (why.empty())
    why = hashDifference(sha256Hex(*content), (*entry)->sha256);
  if (!why.empty())
    return differs(name, why);
  return content;
}

Result<OpenFile> SealedFolder::file(const std::string &name) const {
  Result<const FileSeal *> entry = find(name);
  if (!entry)
    return entry.error();
  const OpenFile &opened = files.at(name);
  Result<std::string> why = differenceFrom(**entry, opened);
  if (!why)
    return why.error();
  if (!why->empty())
    return differs(name, *why);
  return opened;
}

Status SealedFolder::checkAll() const {
  for (const auto &[name, opened] : files)
    if (Result<OpenFile> checked = file(name); !checked)
      return checked.error();
  return Status::ok();
}

} // namespace tbc::program
