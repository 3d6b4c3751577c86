//===- SharedCourier.h - A transport through shared memory -------------------===//
//
// Part of tbc. Plain C++. Internal to tbc-comm-gloo.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_SHAREDCOURIER_H
#define TBC_RUNTIME_COMM_SHAREDCOURIER_H

#include "runtime/comm/Courier.h"
#include "runtime/comm/GlooHeader.h"
#include "runtime/comm/LocalLinks.h"

#include <deque>
#include <functional>

namespace tbc::comm {

/// The transport of a group whose ranks share memory. Bytes move while this rank waits, in both
/// directions and with all others at once; it sleeps if no byte can move. The header with the
/// rank's call precedes the data in the same streams, and is checked as soon as it arrives.
class SharedCourier : public Courier {
public:
  /// The owner's part: error handling and byte counts.
  struct Owner {
    std::function<Error(Error)> fail;
    std::function<Error(int64_t peer, const std::string &what)> lost;
    std::function<Error(const std::vector<int64_t> &missing, const std::string &what)> timedOut;
    std::function<void(std::vector<int64_t> ranks)> waitsFor;
    std::function<void(int64_t peer, int64_t bytes)> sends;
  };
  SharedCourier(const LocalLinks &links, const Group &group, int64_t self, const Header &header,
                std::string what, std::chrono::milliseconds timeout, Owner owner);

  int64_t portionBytes() const override { return 1 << 18; }
  Status send(size_t index, const Runs &from) override;
  Status receive(size_t index, const Runs &into) override;
  Status waitReceived(size_t index, int64_t number) override;
  Status waitSent(size_t index, int64_t number) override;
  /// Waits until every other rank's call has arrived and all bytes have left.
  Status finish();

private:
  /// Portions in flight in one direction.
  struct Queue {
    std::deque<Runs> portions;
    size_t run = 0;     // within the first portion
    int64_t offset = 0; // within the run
    int64_t numDone = 0;
    /// Moves as many bytes as possible, by move(data, count) -> moved. Returns whether any moved.
    template <typename MoveFn> Result<bool> advance(MoveFn move);
  };
  struct Peer {
    int64_t rank = 0;
    LocalLink *link = nullptr; // null: this rank
    Header header;
    bool isChecked = false;
    Queue out, in;
  };

  Result<bool> progress();
  Status check(Peer &peer);
  template <typename DoneFn> Status waitUntil(DoneFn isDone);
  Status sleep(std::chrono::steady_clock::time_point deadline);
  std::vector<int64_t> missing() const;

  Header mine;
  const std::string what;
  const int64_t self;
  const std::chrono::milliseconds timeout;
  const Owner owner;
  std::vector<Peer> peers; // by index
};

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_SHAREDCOURIER_H
