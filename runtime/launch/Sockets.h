//===- Sockets.h - Small wrappers of POSIX sockets -------------------------===//
//
// Part of tbc. Internal to the stores.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_LAUNCH_SOCKETS_H
#define TBC_RUNTIME_LAUNCH_SOCKETS_H

#include "runtime/abi/Descriptor.h"
#include "runtime/abi/Status.h"

#include <cerrno>
#include <cstring>
#include <functional>
#include <netdb.h>
#include <string>
#include <unistd.h>

namespace tbc::launch {

/// The end of messages about a port with a server that is not of this job.
inline constexpr const char *anotherHasThePort =
    "another program has this port; choose a free one, in MASTER_PORT or --init";

/// Calls `use` with each address of host:port until it returns a descriptor. Errors: `code`, with
/// host, port and the system's reason for the last one.
inline Result<Descriptor> firstOf(const std::string &host, int port, ErrorCode code,
                                  const std::string &action,
                                  const std::function<int(const addrinfo &)> &use) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  std::string where = host + ":" + std::to_string(port);
  if (int rc = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list); rc != 0)
    return Error{code, "cannot " + action + " " + where + ": " + gai_strerror(rc)};
  int fd = -1;
  for (addrinfo *address = list; address && fd < 0; address = address->ai_next)
    fd = use(*address);
  int reason = errno;
  freeaddrinfo(list);
  if (fd < 0)
    return Error{code, "cannot " + action + " " + where + ": " + strerror(reason)};
  return Descriptor(fd);
}

} // namespace tbc::launch

#endif // TBC_RUNTIME_LAUNCH_SOCKETS_H
