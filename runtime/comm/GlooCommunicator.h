//===- GlooCommunicator.h - A rank's connections to the others --------------===//
//
// Part of tbc. Plain C++. For the sources of tbc-comm-gloo alone: it includes Gloo's headers.
//
// Gloo.cpp connects, waits and fails; GlooCollectives.cpp and GlooMessages.cpp are what is called;
// GlooCourier.cpp is how the bytes of a collective go.
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
  unsigned char *into = nullptr; // where it goes; null: to `content`
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

  /// Completes what was asked for in the lane of `incoming`, up to it.
  Status complete(Incoming &incoming);

private:
  friend class GlooCourier;

  /// What a rank calls its group for, and with how many elements.
  struct Calling {
    const Group &group;
    Call call;
    ElementType type;
    int64_t numElements = 0;
    const std::string &place;
  };
  using CourseFn = std::function<Status(const Course &course)>;
  /// The header that the group meets with, and what errors call it.
  static std::pair<Header, std::string> describeCall(const Calling &calling);
  std::unique_ptr<SharedCourier> sharedCourier(const Group &group, const Header &header,
                                               const std::string &what);
  /// Lets the group meet for the call, then takes the course.
  Status run(const Calling &calling, const CourseFn &course);
  Status post(int64_t to, Tag tag, std::unique_ptr<Outgoing> outgoing, const std::string &place);
  Status receive(Incoming &incoming);
  Status handshake(const std::string &nonce);
  Status linkHost(const std::string &nonce);
  Result<std::vector<std::string>> everybodys(const std::string &text, const std::string &place);
  bool isLinked(const Group &group) const;
  /// The shape of a group over whose hosts an all_reduce of so many bytes pays.
  std::optional<HostShape> shapeOf(const Group &group, const ElementType &type,
                                   int64_t bytes) const;
  Status allReduceByHost(const Calling &calling, const HostShape &shape, const Runs &input,
                         const Runs &output);
  void countSent(int64_t to, int64_t bytes) {
    bool isNear = !hosts.empty() && hosts[size_t(to)] == hosts[size_t(self)];
    (isNear ? numSent.withinHost : numSent.acrossHosts) += bytes;
  }

  /// Waits for something that `peer` must do: waitFn(limit) throws when it has not come by then.
  Status wait(const std::function<void(std::chrono::milliseconds limit)> &waitFn, int64_t peer,
              Clock::time_point deadline, const std::string &what);
  /// Keeps the first error, which every call returns from now on.
  Error fail(const Error &error);
  /// The same, where the connection to a peer broke at `place`: one of ours, which is closed behind
  /// what is to be said, or one of Gloo's.
  Error lost(int64_t peer, const std::string &place, bool isOurs = false);
  /// The same, where these ranks did not do their part in time.
  Error timedOut(const std::vector<int64_t> &missing, const std::string &place);
  Error settle(const Error &error);
  void reap();

  const int64_t self, size;
  const GlooOptions options;
  std::shared_ptr<gloo::rendezvous::Context> context;
  LocalLinks links;           // of this host; none, or all of its ranks
  std::vector<int64_t> hosts; // by rank, the first rank of its host; none while connecting
  SentBytes numSent;
  std::map<std::pair<int64_t, int>, std::deque<std::shared_ptr<Incoming>>> mailboxes;
  std::map<int, std::deque<std::unique_ptr<Outgoing>>> ownMessages; // by lane
  bool hasFailed = false;
  Error failure;

  // Sends are waited for in the background, so that their memory is given back.
  std::thread reaper;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::unique_ptr<Outgoing>> underWay;
  bool isClosing = false;
};

/// The bytes of one collective, as messages of Gloo.
class GlooCourier : public Courier {
public:
  /// `what`: place and call, for errors.
  GlooCourier(GlooCommunicator &owner, const Group &group, std::string what)
      : owner(owner), group(group), slots(slotsOf(group)), what(std::move(what)),
        peers(group.size()) {}

  /// Tells the others what this rank calls; an error where one of them calls something else.
  Status meet(const Header &header);

  int64_t portionBytes() const override { return 1 << 20; }
  Status send(size_t index, const Runs &from) override;
  Status receive(size_t index, const Runs &into) override;
  Status waitReceived(size_t index, int64_t number) override;
  Status waitSent(size_t index, int64_t number) override;

private:
  /// A portion under way. What is not one run goes by way of memory of its own.
  struct Portion {
    Bytes packed;
    Runs into; // where it is unpacked to
    BufferPtr buffer;
  };
  struct Peer {
    std::deque<Portion> sent, received; // the last ones, which were not waited for
    int64_t numSent = 0, numReceived = 0;
  };

  GlooCommunicator &owner;
  const Group &group;
  const Slots slots;
  const std::string what;
  std::vector<Peer> peers; // by index
};

/// Some of the indices of another courier, as indices from 0 on.
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
