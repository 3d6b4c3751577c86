//===- GlooCommunicator.h - A rank's connections to the others --------------===//
//
// Part of tbc. Plain C++. Only for the sources of tbc-comm-gloo: it includes Gloo's headers.
//
// Gloo.cpp connects, waits and handles failures. GlooCollectives.cpp and GlooMessages.cpp implement
// the calls. GlooCourier.cpp is the transport of collectives.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_GLOOCOMMUNICATOR_H
#define TBC_RUNTIME_COMM_GLOOCOMMUNICATOR_H

#include "runtime/comm/Courses.h"
#include "runtime/comm/Gloo.h"
#include "runtime/comm/GlooHeader.h"
#include "runtime/comm/HostCourse.h"
#include "runtime/comm/SharedCourier.h"

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

/// A message being sent.
struct Outgoing {
  Header header;
  Bytes content;
  int64_t to = 0;
  // Declared last, so that the buffers are destroyed before the memory they use.
  BufferPtr headerBuffer, contentBuffer;
};

/// A requested message.
struct Incoming {
  int64_t from = 0;
  Tag tag{0};
  kernels::TensorType type;
  std::string place;
  unsigned char *into = nullptr; // the destination; null: `content`
  bool isDone = false;
  Status status;
  kernels::Arith arith = kernels::Arith::Native;
  Bytes content;
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

  Status allReduceRuns(const Group &group, Reduction reduction, const ElementType &type,
                       const Runs &input, const Runs &output, const std::string &place) override;
  Status allGatherRuns(const Group &group, const ElementType &type, const Runs &input,
                       const std::vector<Runs> &outputs, const std::string &place) override;
  Status reduceScatterRuns(const Group &group, const ElementType &type,
                           const std::vector<Runs> &inputs, const Runs &output,
                           const std::string &place) override;
  Status allToAllRuns(const Group &group, const ElementType &type, const std::vector<Runs> &inputs,
                      const std::vector<Runs> &outputs, const std::string &place) override;
  Status sendBytes(int64_t to, Tag tag, const kernels::TensorType &type, kernels::Arith arith,
                   const unsigned char *from, const std::string &place) override;
  Status recvBytes(int64_t from, Tag tag, const kernels::TensorType &type, kernels::Arith arith,
                   unsigned char *into, const std::string &place) override;
  std::optional<SentBytes> sent() const override { return numSent; }

  /// Completes the requests in the lane of `incoming`, up to and including it.
  Status complete(Incoming &incoming);

private:
  friend class GlooCourier;

  /// A call of this rank on its group, and its number of elements.
  struct Calling {
    const Group &group;
    Call call;
    ElementType type;
    int64_t numElements = 0;
    const std::string &place;
  };
  using CourseFn = std::function<Status(const Course &course)>;
  /// Returns the header with which the group meets, and the name of the call for errors.
  static std::pair<Header, std::string> describeCall(const Calling &calling);
  std::unique_ptr<SharedCourier> sharedCourier(const Group &group, const Header &header,
                                               const std::string &what);
  /// Lets the group meet for the call, then runs the algorithm.
  Status run(const Calling &calling, const CourseFn &course);
  Status post(int64_t to, Tag tag, std::unique_ptr<Outgoing> outgoing, const std::string &place);
  Status receive(Incoming &incoming);
  Status handshake(const std::string &nonce);
  Status linkHost(const std::string &nonce);
  Result<std::vector<std::string>> everybodys(const std::string &text, const std::string &place);
  bool isLinked(const Group &group) const;
  /// Returns the shape of a group if a hierarchical all_reduce of this size saves bytes.
  std::optional<HostShape> shapeOf(const Group &group, const ElementType &type,
                                   int64_t bytes) const;
  Status allReduceByHost(const Calling &calling, const HostShape &shape, const Runs &input,
                         const Runs &output);
  void countSent(int64_t to, int64_t bytes) {
    bool isNear = !hosts.empty() && hosts[size_t(to)] == hosts[size_t(self)];
    (isNear ? numSent.withinHost : numSent.acrossHosts) += bytes;
  }

  /// Waits for an action of `peer`. waitFn(limit) throws if it has not happened within the limit.
  Status wait(const std::function<void(std::chrono::milliseconds limit)> &waitFn, int64_t peer,
              Clock::time_point deadline, const std::string &what);
  /// Stores the first error; every call returns it from now on.
  Error fail(const Error &error);
  /// The same for a connection to a peer that broke at `place`. `isOurs`: the connection is tbc's
  /// own, closed only after all findings are published, and not one of Gloo's.
  Error lost(int64_t peer, const std::string &place, bool isOurs = false);
  /// The same for ranks that did not do their part in time.
  Error timedOut(const std::vector<int64_t> &missing, const std::string &place);
  Error settle(const Error &error);
  void reap();

  const int64_t self, size;
  const GlooOptions options;
  std::shared_ptr<gloo::rendezvous::Context> context;
  LocalLinks links;           // of this host: empty, or all of its ranks
  std::vector<int64_t> hosts; // by rank, the first rank of its host; empty while connecting
  SentBytes numSent;
  std::map<std::pair<int64_t, int>, std::deque<std::shared_ptr<Incoming>>> mailboxes;
  std::map<int, std::deque<std::unique_ptr<Outgoing>>> ownMessages; // by lane
  bool hasFailed = false;
  Error failure;

  // A background thread waits for sends, so that their memory is freed.
  std::thread reaper;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::unique_ptr<Outgoing>> underWay;
  bool isClosing = false;
};

/// The transport of one collective over Gloo's messages.
class GlooCourier : public Courier {
public:
  /// `what`: place and call, for errors.
  GlooCourier(GlooCommunicator &owner, const Group &group, std::string what)
      : owner(owner), group(group), slots(slotsOf(group)), what(std::move(what)),
        peers(group.size()) {}

  /// Sends this rank's call to the others; an error if one of them makes another call.
  Status meet(const Header &header);

  int64_t portionBytes() const override { return 1 << 20; }
  Status send(size_t index, const Runs &from) override;
  Status receive(size_t index, const Runs &into) override;
  Status waitReceived(size_t index, int64_t number) override;
  Status waitSent(size_t index, int64_t number) override;

private:
  /// A portion in flight. If it is not one contiguous run, it is copied through memory of its own.
  struct Portion {
    Bytes packed;
    Runs into; // the destination after unpacking
    BufferPtr buffer;
  };
  struct Peer {
    std::deque<Portion> sent, received; // the last portions, not waited for yet
    int64_t numSent = 0, numReceived = 0;
  };

  GlooCommunicator &owner;
  const Group &group;
  const Slots slots;
  const std::string what;
  std::vector<Peer> peers; // by index
};

/// A transport between some indices of another transport, numbered from 0.
class SelectedCourier : public Courier {
public:
  SelectedCourier(Courier &of, std::vector<size_t> indices) : of(of), indices(std::move(indices)) {}
  int64_t portionBytes() const override { return of.portionBytes(); }
  Status send(size_t index, const Runs &from) override { return of.send(indices[index], from); }
  Status receive(size_t index, const Runs &into) override {
    return of.receive(indices[index], into);
  }
  Status waitReceived(size_t index, int64_t number) override {
    return of.waitReceived(indices[index], number);
  }
  Status waitSent(size_t index, int64_t number) override {
    return of.waitSent(indices[index], number);
  }

private:
  Courier &of;
  const std::vector<size_t> indices;
};

inline RequestPtr ended(Result<kernels::Tensor> result) {
  return std::make_unique<EndedRequest>(std::move(result));
}

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_GLOOCOMMUNICATOR_H
