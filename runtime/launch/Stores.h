//===- Stores.h - TCP and file stores for the rendezvous -------------------===//
//
// Part of tbc. Plain C++ on POSIX sockets. Both kinds require the job's token. Over TCP, client and
// server each answer a challenge (HMAC-SHA-256). In files, every value carries its HMAC. Neither
// encrypts.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_LAUNCH_STORES_H
#define TBC_RUNTIME_LAUNCH_STORES_H

#include "runtime/comm/Store.h"

#include <cstdint>
#include <memory>

namespace tbc::launch {

using Timeout = std::chrono::milliseconds;

/// Returns 32 random bytes as 64 hexadecimal digits, from the system's generator.
Result<std::string> randomToken();

/// Serves a store on a socket. Listens from `listen` on. From `start` until destruction, a separate
/// thread answers.
class StoreServer {
public:
  /// `port` 0: any free port. Errors: Other, with the address and the system's reason.
  static Result<std::unique_ptr<StoreServer>> listen(const std::string &host, int port,
                                                     const std::string &token);
  virtual ~StoreServer() = default;
  virtual int port() const = 0;
  virtual void start() = 0;
  /// Closes the socket in a forked child; it stays open in the parent.
  virtual void forget() = 0;
};

/// Connects to the server at host:port, which may start later. Errors: RankFailed, if there is no
/// server within `timeout`, if what listens there does not greet, or if client and server cannot
/// prove the token to each other; StoppedOnRequest (`stopRequested`).
Result<std::unique_ptr<comm::Store>> connectStore(const std::string &host, int port,
                                                  const std::string &token, Timeout timeout);

/// Opens a store in a folder that all ranks see. A missing folder is created for this user alone; a
/// folder that others may write to is refused. Values stay until the folder is removed, so every
/// job needs its own folder.
Result<std::unique_ptr<comm::Store>> openFileStore(const std::string &folder,
                                                   const std::string &token);

} // namespace tbc::launch

#endif // TBC_RUNTIME_LAUNCH_STORES_H
