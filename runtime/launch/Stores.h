//===- Stores.h - Where ranks find each other: TCP and files ---------------===//
//
// Part of tbc. Plain C++ on POSIX sockets. Both kinds let nobody in who does not know the job's
// token: over TCP client and server answer a challenge each (HMAC-SHA-256), in files every value
// carries its HMAC. Neither encrypts.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_LAUNCH_STORES_H
#define TBC_RUNTIME_LAUNCH_STORES_H

#include "runtime/comm/Store.h"

#include <cstdint>
#include <memory>

namespace tbc::launch {

using Timeout = std::chrono::milliseconds;

/// 32 random bytes as 64 hexadecimal digits, from the system's generator.
Result<std::string> randomToken();

/// Serves a store on a socket. Listens from `listen` on; answers from `start` on, in a thread of
/// its own, until it is destroyed.
class StoreServer {
public:
  /// `port` 0: any free one. Errors: Other, with address and the system's reason.
  static Result<std::unique_ptr<StoreServer>> listen(const std::string &host, int port,
                                                     const std::string &token);
  virtual ~StoreServer() = default;
  virtual int port() const = 0;
  virtual void start() = 0;
  /// In a child process made by fork: lets go of the socket, which stays open in the parent.
  virtual void forget() = 0;
};

/// A client of the server at host:port, which may start later. Errors: RankFailed, when there is
/// none within `timeout`, or one that does not know the token or does not believe that we do.
Result<std::unique_ptr<comm::Store>> connectStore(const std::string &host, int port,
                                                  const std::string &token, Timeout timeout);

/// A store in a folder that all ranks see; made if it is not there, for the user alone; one that
/// others may write to is refused. Values stay until the folder is removed, so every job needs one
/// of its own.
Result<std::unique_ptr<comm::Store>> openFileStore(const std::string &folder,
                                                   const std::string &token);

} // namespace tbc::launch

#endif // TBC_RUNTIME_LAUNCH_STORES_H
