//===- LocalLinks.h - Shared memory between ranks of one host ---------------===//
//
// Part of tbc. Plain C++. Internal to tbc-comm-gloo.
//
// Two ranks of a host share an anonymous memory, which ends with them. They also have two connected
// sockets to wake each other and to notice the end of the other.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_LOCALLINKS_H
#define TBC_RUNTIME_COMM_LOCALLINKS_H

#include "runtime/abi/Descriptor.h"
#include "runtime/abi/Status.h"
#include "runtime/comm/Ring.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tbc::comm {

struct UnmapShared {
  size_t bytes = 0;
  void operator()(void *memory) const;
};

/// A link to another rank of this host.
struct LocalLink {
  Descriptor socket;
  std::unique_ptr<void, UnmapShared> memory;
  Ring out, in;
  bool isGone = false; // the other rank, or its end of the link

  void wake();
  /// Shuts the link down: the other rank sees this one as gone.
  void part();
  /// Reads pending wake-ups, and notices the end of the other rank.
  void drain();
};

/// By rank.
using LocalLinks = std::map<int64_t, std::unique_ptr<LocalLink>>;

/// Returns a key that is equal on ranks that can share memory: a hash of the kernel's boot id and
/// network name space. Empty if they are unknown.
std::string localHostKey();

/// Links ranks of one host in two steps; in between, all ranks learn each other's addresses.
class LocalLinker {
public:
  using ProofFn = std::function<std::string(int64_t from, int64_t to)>;
  /// `proof` returns the secret text from rank `from` to rank `to`; all texts have one length.
  LocalLinker(int64_t self, ProofFn proof, std::chrono::milliseconds timeout)
      : self(self), proof(std::move(proof)), timeout(timeout) {}

  static constexpr size_t addressBytes = 33;
  /// Starts to listen at an unguessable name and returns it; empty if this fails.
  std::string listen();
  /// Links this rank to the others of its host, given their addresses by rank. Fails if any link
  /// fails.
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
