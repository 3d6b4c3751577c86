//===- GlooCommunicator.h - A rank's connections to the others --------------===//
//
// Part of tbc. Plain C++. For the sources of tbc-comm-gloo alone: it includes Gloo's headers.
//
// Gloo.cpp connects, waits and fails; GlooCollectives.cpp and GlooMessages.cpp are what is called.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_GLOOCOMMUNICATOR_H
#define TBC_RUNTIME_COMM_GLOOCOMMUNICATOR_H

#include "runtime/comm/Gloo.h"
#include "runtime/comm/GlooHeader.h"

#include <stdexcept>

#include <gloo/rendezvous/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace tbc::comm {

using Bytes = std::vector<unsigned char>;
using Clock = std::chrono::steady_clock;
using BufferPtr = std::unique_ptr<gloo::transport::UnboundBuffer>;

inline std::string rankName(int64_t rank) { return "rank " + std::to_string(rank); }

/// A message on its way.
struct Outgoing {
  Header header;
  Bytes content;
  int64_t to = 0;
  // Before their memory goes, they go.
  BufferPtr headerBuffer, contentBuffer;
};

/// A message that was asked for.
struct Incoming {
  int64_t from = 0;
  Tag tag{0};
  kernels::TensorType type;
  std::string place;
  bool isDone = false;
  Result<kernels::Tensor> result = kernels::Tensor();
};

class GlooCommunicator : public Communicator {
public:
  GlooCommunicator(int64_t rank, int64_t numRanks, const GlooOptions &options)
      : self(rank), size(numRanks), options(options) {}
  ~GlooCommunicator() override;

  Status connect(Store &store);

  int64_t rank() const override { return self; }
  int64_t numRanks() const override { return size; }
  RequestPtr allReduce(const Group &group, Reduction reduction, const kernels::Tensor &input,
                       const std::string &place) override;
  RequestPtr broadcast(const Group &group, int64_t root, const kernels::Tensor &input,
                       const std::string &place) override;
  RequestPtr allGather(const Group &group, const kernels::Tensor &input,
                       const std::string &place) override;
  RequestPtr reduceScatter(const Group &group, const kernels::Tensor &input,
                           const std::string &place) override;
  RequestPtr allToAll(const Group &group, const kernels::Tensor &input,
                      const std::string &place) override;
  RequestPtr barrier(const Group &group, const std::string &place) override;
  RequestPtr send(int64_t to, Tag tag, const kernels::Tensor &input,
                  const std::string &place) override;
  RequestPtr recv(int64_t from, Tag tag, const kernels::TensorType &type,
                  const std::string &place) override;

  /// Completes what was asked for in the lane of `incoming`, up to it.
  Result<kernels::Tensor> complete(Incoming &incoming);

private:
  /// What goes to and comes from each index of a group; the own index is left out.
  struct Exchange {
    const Group &group;
    Call call;
    kernels::Tensor input; // what the call is about, for its header
    std::string place;
  };
  Result<std::vector<kernels::Tensor>> exchange(const Exchange &call,
                                                std::vector<kernels::Tensor> toIndex,
                                                const std::vector<bool> &expects, int64_t share);
  Result<std::vector<kernels::Tensor>> exchangeParts(const Exchange &call,
                                                     const kernels::Tensor &input);
  Result<kernels::Tensor> receive(const Incoming &incoming);
  size_t indexOf(const Group &group) const;
  Status handshake(const std::string &nonce);

  /// Waits for something that `peer` must do: waitFn(limit) throws when it has not come by then.
  Status wait(const std::function<void(std::chrono::milliseconds limit)> &waitFn, int64_t peer,
              Clock::time_point deadline, const std::string &what);
  /// Keeps the first error, which every call returns from now on.
  Error fail(Error error);
  /// The same, where the connection to a peer broke at `place`.
  Error lost(int64_t peer, const std::string &place);
  void reap();

  const int64_t self, size;
  const GlooOptions options;
  std::shared_ptr<gloo::rendezvous::Context> context;
  std::map<std::pair<int64_t, int>, std::deque<std::shared_ptr<Incoming>>> mailboxes;
  std::map<int, std::deque<std::pair<Header, kernels::Tensor>>> ownMessages; // by lane
  bool hasFailed = false;
  Error failure;

  // Sends are waited for in the background, so that their memory is given back.
  std::thread reaper;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::unique_ptr<Outgoing>> underWay;
  bool isClosing = false;
};

inline RequestPtr ended(Result<kernels::Tensor> result) {
  return std::make_unique<EndedRequest>(std::move(result));
}

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_GLOOCOMMUNICATOR_H
