//===- LocalLinks.cpp - Shared memory between ranks of one host -------------===//

#include "runtime/comm/LocalLinks.h"
#include "runtime/abi/Sha256.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace tbc::comm {

using Clock = std::chrono::steady_clock;

//===----------------------------------------------------------------------===//
// A link
//===----------------------------------------------------------------------===//

void UnmapShared::operator()(void *memory) const { munmap(memory, bytes); }

void LocalLink::wake() {
  // A full socket already has wake-ups. A wait notices if the other rank is gone.
  static_cast<void>(::send(socket.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

void LocalLink::part() { shutdown(socket.get(), SHUT_RDWR); }

void LocalLink::drain() {
  char bytes[256];
  while (true) {
    ssize_t count = recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (count > 0)
      continue;
    bool isOpen = count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    isGone = isGone || !isOpen;
    return;
  }
}

std::string localHostKey() {
  std::string key;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> key;
  struct stat network{};
  if (key.empty() || stat("/proc/self/ns/net", &network) != 0)
    return "";
  return sha256Hex(key + " " + std::to_string(network.st_dev) + " " +
                   std::to_string(network.st_ino));
}

//===----------------------------------------------------------------------===//
// Linking
//===----------------------------------------------------------------------===//

static Error failed(const std::string &what) {
  return {ErrorCode::Other, what + ": " + std::strerror(errno)};
}

/// Makes an abstract socket address: the name begins with 0, is in no folder, and ends with its
/// socket.
static socklen_t addressOf(const std::string &name, sockaddr_un &address) {
  address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, std::min(name.size(), sizeof address.sun_path - 1));
  return socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

std::string LocalLinker::listen() {
  unsigned char random[16];
  if (getrandom(random, sizeof random, 0) != ssize_t(sizeof random))
    return "";
  std::string name = "t";
  for (unsigned char byte : random)
    for (int digit : {byte >> 4, byte & 15})
      name += "0123456789abcdef"[digit];
  sockaddr_un address;
  socklen_t length = addressOf(name, address);
  Descriptor made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made || bind(made.get(), reinterpret_cast<sockaddr *>(&address), length) != 0 ||
      ::listen(made.get(), SOMAXCONN) != 0)
    return "";
  listener = std::move(made);
  return name;
}

/// Reads exactly `bytes` bytes, by the deadline.
Status LocalLinker::fill(int descriptor, void *into, size_t bytes) const {
  for (size_t done = 0; done < bytes;) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd waited{descriptor, POLLIN, 0};
    int count = poll(&waited, 1, int(std::max<int64_t>(left.count(), 0)));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return Error{ErrorCode::HangDetected, "no answer"};
    ssize_t got = recv(descriptor, static_cast<char *>(into) + done, bytes - done, 0);
    if (got <= 0)
      return failed("recv");
    done += size_t(got);
  }
  return Status::ok();
}

static Status sendAll(int descriptor, const std::string &text) {
  if (::send(descriptor, text.data(), text.size(), MSG_NOSIGNAL) != ssize_t(text.size()))
    return failed("send");
  return Status::ok();
}

/// Connects and sends this rank's number and proof. The peer may read them later.
Status LocalLinker::greet(int64_t peer, const std::string &name, LocalLink &link) {
  sockaddr_un address;
  socklen_t length = addressOf(name, address);
  link.socket = Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!link.socket ||
      connect(link.socket.get(), reinterpret_cast<sockaddr *>(&address), length) != 0)
    return failed("connect");
  std::string hello(sizeof self, ' ');
  std::memcpy(hello.data(), &self, sizeof self);
  return sendAll(link.socket.get(), hello + proof(self, peer));
}

/// Waits for all ranks above this one. Strangers, and peers that do not know the token, are
/// disconnected.
Status LocalLinker::accept(const std::map<int64_t, std::string> &addresses, LocalLinks &links) {
  size_t numMissing = size_t(std::distance(addresses.upper_bound(self), addresses.end()));
  while (numMissing > 0) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd waited{listener.get(), POLLIN, 0};
    int count = poll(&waited, 1, int(std::max<int64_t>(left.count(), 0)));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return Error{ErrorCode::HangDetected, "a rank of this host does not connect"};
    Descriptor guest(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    int64_t peer = -1;
    if (!guest || !fill(guest.get(), &peer, sizeof peer))
      continue;
    std::string known = proof(peer, self), said(known.size(), ' ');
    bool isAwaited = peer > self && addresses.count(peer) && !links.count(peer);
    if (!fill(guest.get(), said.data(), said.size()) || !isAwaited ||
        !equalInConstantTime(said, known))
      continue;
    links[peer] = std::make_unique<LocalLink>();
    links[peer]->socket = std::move(guest);
    --numMissing;
  }
  return Status::ok();
}

/// Sets up both rings of a link; the ring written by the lower rank comes first.
Status LocalLinker::share(int64_t peer, LocalLink &link, Descriptor memory, int64_t ringBytes) {
  int64_t each = int64_t(sizeof(RingHead)) + ringBytes;
  void *mapped = mmap(nullptr, size_t(2 * each), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(),
                      0); // survives the descriptor
  if (mapped == MAP_FAILED)
    return failed("mmap");
  link.memory = std::unique_ptr<void, UnmapShared>(mapped, {size_t(2 * each)});
  Ring low(mapped, ringBytes), high(static_cast<char *>(mapped) + each, ringBytes);
  link.out = self < peer ? low : high;
  link.in = self < peer ? high : low;
  return Status::ok();
}

/// Limits a host full of ranks to some hundred MiB.
static int64_t ringBytesFor(size_t numRanks) { return numRanks <= 4 ? 1 << 21 : 1 << 19; }

/// Makes an anonymous, fully allocated memory that cannot shrink.
static Result<Descriptor> makeMemory(int64_t bytes) {
  Descriptor memory(memfd_create("tbc", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || ftruncate(memory.get(), bytes) != 0 || fallocate(memory.get(), 0, 0, bytes) != 0 ||
      fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return failed("memory to share");
  return memory;
}

/// A message that carries a descriptor.
struct DescriptorMessage {
  char byte = 0;
  iovec content{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  DescriptorMessage() {
    header.msg_iov = &content;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  DescriptorMessage(const DescriptorMessage &) = delete;
  DescriptorMessage &operator=(const DescriptorMessage &) = delete;
};

static Status sendMemory(int descriptor, int memory) {
  DescriptorMessage message;
  cmsghdr *control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof memory);
  std::memcpy(CMSG_DATA(control), &memory, sizeof memory);
  return sendmsg(descriptor, &message.header, MSG_NOSIGNAL) == 1 ? Status::ok()
                                                                 : Status(failed("sendmsg"));
}

/// Receives the memory from a rank below this one, which proves its identity as this one did.
Status LocalLinker::receiveMemory(int64_t peer, LocalLink &link) {
  std::string known = proof(peer, self), said(known.size(), ' ');
  if (Status status = fill(link.socket.get(), said.data(), said.size()); !status)
    return status;
  if (!equalInConstantTime(said, known))
    return Error{ErrorCode::RankFailed, "it does not know the token of this job"};
  DescriptorMessage message;
  pollfd waited{link.socket.get(), POLLIN, 0};
  if (poll(&waited, 1, int(timeout.count())) != 1 ||
      recvmsg(link.socket.get(), &message.header, MSG_CMSG_CLOEXEC) != 1)
    return failed("recvmsg");
  cmsghdr *control = CMSG_FIRSTHDR(&message.header);
  if (!control || control->cmsg_type != SCM_RIGHTS || control->cmsg_len != CMSG_LEN(sizeof(int)))
    return Error{ErrorCode::RankFailed, "it shares no memory"};
  int number = -1;
  std::memcpy(&number, CMSG_DATA(control), sizeof number);
  Descriptor memory(number);
  struct stat facts{};
  int seals = fcntl(number, F_GET_SEALS);
  int64_t ringBytes =
      fstat(number, &facts) == 0 ? facts.st_size / 2 - int64_t(sizeof(RingHead)) : 0;
  bool isPower = ringBytes > 0 && (ringBytes & (ringBytes - 1)) == 0;
  if (!isPower || seals < 0 || !(seals & F_SEAL_SHRINK))
    return Error{ErrorCode::RankFailed, "its memory is none of ours"};
  return share(peer, link, std::move(memory), ringBytes);
}

Result<LocalLinks> LocalLinker::link(const std::map<int64_t, std::string> &addresses) {
  deadline = Clock::now() + timeout;
  LocalLinks links;
  for (const auto &[peer, address] : addresses) {
    if (peer >= self)
      continue;
    links[peer] = std::make_unique<LocalLink>();
    if (Status status = greet(peer, address, *links[peer]); !status)
      return status.error();
  }
  if (Status status = accept(addresses, links); !status)
    return status.error();
  listener = Descriptor();
  int64_t ringBytes = ringBytesFor(addresses.size());
  for (auto &[peer, link] : links) {
    if (peer < self)
      continue;
    Result<Descriptor> memory = makeMemory(2 * (int64_t(sizeof(RingHead)) + ringBytes));
    if (!memory)
      return memory.error();
    if (Status status = sendAll(link->socket.get(), proof(self, peer)); !status)
      return status.error();
    if (Status status = sendMemory(link->socket.get(), memory->get()); !status)
      return status.error();
    if (Status status = share(peer, *link, std::move(*memory), ringBytes); !status)
      return status.error();
  }
  for (auto &[peer, link] : links)
    if (peer < self)
      if (Status status = receiveMemory(peer, *link); !status)
        return status.error();
  return links;
}

} // namespace tbc::comm
