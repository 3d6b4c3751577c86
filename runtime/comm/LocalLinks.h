//===- LocalLinks.h - Ranks of one host that share memory -------------------===//
//
// Part of tbc. Plain C++. Internal to tbc-comm-gloo.
//
// Two ranks of a host share a memory that has no name, and so ends with them, and two connected
// sockets, over which they wake each other and learn that the other one is gone.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_LOCALLINKS_H
#define TBC_RUNTIME_COMM_LOCALLINKS_H

#include "runtime/abi/Status.h"
#include "runtime/comm/Ring.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tbc::comm {

/// What closes when it goes.
class Descriptor {
public:
  explicit Descriptor(int number = -1) : number(number) {}
  ~Descriptor();
  Descriptor(Descriptor &&other) noexcept : number(other.number) { other.number = -1; }
  Descriptor &operator=(Descriptor &&other) noexcept;
  int get() const { return number; }
  bool isOpen() const { return number >= 0; }

private:
  int number;
};

struct UnmapShared {
  size_t bytes = 0;
  void operator()(void *memory) const;
};

/// To another rank of this host.
struct LocalLink {
  Descriptor socket;
  std::unique_ptr<void, UnmapShared> memory;
  Ring out, in;
  bool isGone = false; // the other rank, or what connected it

  void wake();
  /// From now on the other rank sees this one as gone.
  void part();
  /// Takes note of wake-ups, and of the other rank's end.
  void drain();
};

/// By rank.
using LocalLinks = std::map<int64_t, std::unique_ptr<LocalLink>>;

/// What ranks have in common that can share memory: the run of the kernel, and its name spaces.
/// Empty if that cannot be found out.
std::string localHostKey();

/// Links ranks of one host in two steps, between which all learn each other's address.
class LocalLinker {
public:
  using ProofFn = std::function<std::string(int64_t from, int64_t to)>;
  /// `proof`: what rank `from` says to rank `to`, that no stranger knows; all have one length.
  LocalLinker(int64_t self, ProofFn proof, std::chrono::milliseconds timeout)
      : self(self), proof(std::move(proof)), timeout(timeout) {}

  static constexpr size_t addressBytes = 33;
  /// Where it listens: a name that nobody could guess before. Empty if it cannot.
  std::string listen();
  /// Links this rank to the others of its host, by rank with their addresses. Errors: that fails,
  /// for any of them.
  Result<LocalLinks> link(const std::map<int64_t, std::string> &addresses);

private:
  Status greet(int64_t peer, const std::string &address, LocalLink &link);
  Status accept(const std::map<int64_t, std::string> &addresses, LocalLinks &links);
  Status receiveMemory(int64_t peer, LocalLink &link);
  Status share(int64_t peer, LocalLink &link, Descriptor memory, int64_t ringBytes);
  Status fill(int descriptor, void *into, size_t bytes) const;

  int64_t self;
  ProofFn proof;
  std::chrono::milliseconds timeout;
  std::chrono::steady_clock::time_point deadline;
  Descriptor listener;
};

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_LOCALLINKS_H
