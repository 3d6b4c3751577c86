//===- FileStore.cpp - A store in a folder ---------------------------------===//

#include "runtime/abi/Sha256.h"
#include "runtime/launch/Sockets.h"
#include "runtime/launch/Stores.h"

#include <atomic>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <thread>

namespace tbc::launch {

using Clock = std::chrono::steady_clock;

namespace {

/// A value is a file with the key's name: the HMAC of both, a newline, the value. It appears by
/// link(2), which succeeds for only one of several ranks.
class FileStore : public comm::Store {
public:
  FileStore(std::string folder, std::string token)
      : folder(std::move(folder)), token(std::move(token)) {}

  Result<std::string> claim(const std::string &key, const std::string &value) override {
    if (Status status = write(key, value); !status)
      return status.error();
    return get(key, Timeout(0));
  }

  Result<std::string> get(const std::string &key, Timeout timeout) override {
    Clock::time_point deadline = Clock::now() + timeout;
    while (true) {
      if (std::optional<Error> error = givenUp())
        return *error;
      if (access(path(key).c_str(), F_OK) == 0)
        return read(key);
      if (Clock::now() >= deadline)
        return Error{ErrorCode::HangDetected,
                     "waited " + std::to_string(timeout.count()) + " ms for \"" + key + "\""};
      std::this_thread::sleep_for(Timeout(10));
    }
  }

  std::optional<Error> givenUp() override {
    if (access(path(abortKey).c_str(), F_OK) != 0)
      return std::nullopt;
    Result<std::string> text = read(abortKey);
    if (!text)
      return text.error();
    size_t space = text->find(' ');
    return Error{ErrorCode(std::atoi(text->c_str())), text->substr(space + 1)};
  }

  void abort(const Error &error) override {
    (void)write(abortKey, std::to_string(int(error.code)) + " " + error.message);
  }

private:
  static constexpr const char *abortKey = "abort";

  std::string path(const std::string &key) const {
    std::string name = key;
    for (char &c : name)
      c = c == '/' ? '.' : c;
    return folder + "/" + name;
  }
  std::string proof(const std::string &key, const std::string &value) const {
    return hmacSha256Hex(token, key + "\n" + value);
  }
  Error failed(const std::string &what, const std::string &path) const {
    return {ErrorCode::RankFailed, "cannot " + what + " " + path + ": " + strerror(errno)};
  }

  Status write(const std::string &key, const std::string &value) {
    static std::atomic<int> number{0};
    std::string temporary =
        path(key) + ".new-" + std::to_string(getpid()) + "-" + std::to_string(number++);
    Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file)
      return failed("create", temporary);
    std::string text = proof(key, value) + "\n" + value;
    bool isWritten = ::write(file.get(), text.data(), text.size()) == ssize_t(text.size());
    bool isLinked =
        isWritten && (link(temporary.c_str(), path(key).c_str()) == 0 || errno == EEXIST);
    Error error = failed("write", path(key));
    unlink(temporary.c_str());
    return isLinked ? Status::ok() : Status(error);
  }

  Result<std::string> read(const std::string &key) const {
    std::ifstream file(path(key), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    std::string content = text.str();
    size_t end = content.find('\n');
    if (end == std::string::npos ||
        !equalInConstantTime(content.substr(0, end), proof(key, content.substr(end + 1))))
      return Error{ErrorCode::RankFailed, path(key) + " was not written under the token of this "
                                                      "job; give every job a folder of its own"};
    return content.substr(end + 1);
  }

  std::string folder, token;
};

} // namespace

Result<std::unique_ptr<comm::Store>> openFileStore(const std::string &folder,
                                                   const std::string &token) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return Error{ErrorCode::RankFailed,
                 "cannot create the rendezvous folder " + folder + ": " + strerror(errno)};
  struct stat entry{};
  if (stat(folder.c_str(), &entry) != 0 || !S_ISDIR(entry.st_mode))
    return Error{ErrorCode::RankFailed, "the rendezvous " + folder + " is not a folder"};
  // Anyone with write access could impersonate a rank.
  if (entry.st_uid != geteuid() || (entry.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Error{ErrorCode::RankFailed, "the rendezvous folder " + folder +
                                            " can be written by others; take one of your own"};
  return std::unique_ptr<comm::Store>(std::make_unique<FileStore>(folder, token));
}

} // namespace tbc::launch
