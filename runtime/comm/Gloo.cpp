//===- Gloo.cpp - Ranks as processes that talk over TCP --------------------===//

#include "runtime/abi/Sha256.h"
#include "runtime/comm/GlooCommunicator.h"

#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <csignal>

namespace tbc::comm {

using std::chrono::milliseconds;

//===----------------------------------------------------------------------===//
// Connecting
//===----------------------------------------------------------------------===//

namespace {

/// Adapts a store to Gloo, which expects exceptions for errors.
class StoreForGloo : public gloo::rendezvous::Store {
public:
  StoreForGloo(comm::Store &store, milliseconds timeout) : store(store), timeout(timeout) {}
  void set(const std::string &key, const std::vector<char> &data) override {
    check(store.claim("gloo/" + key, std::string(data.begin(), data.end())));
  }
  std::vector<char> get(const std::string &key) override {
    std::string value = check(store.get("gloo/" + key, timeout));
    return std::vector<char>(value.begin(), value.end());
  }
  void wait(const std::vector<std::string> &keys) override { wait(keys, timeout); }
  void wait(const std::vector<std::string> &keys, const milliseconds &limit) override {
    for (const std::string &key : keys)
      check(store.get("gloo/" + key, limit));
  }
  Error error{ErrorCode::RankFailed, ""};

private:
  std::string check(const Result<std::string> &result) {
    if (result)
      return *result;
    error = result.error();
    throw std::runtime_error(error.message);
  }
  comm::Store &store;
  milliseconds timeout;
};

} // namespace

Status GlooCommunicator::connect(Store &store) {
  // Writing to a closed connection must be an error, not the end of this process.
  std::signal(SIGPIPE, SIG_IGN);
  Result<std::string> nonce =
      store.claim("gloo/nonce", sha256Hex(std::to_string(self) + "/" +
                                          std::to_string(Clock::now().time_since_epoch().count())));
  if (!nonce)
    return nonce.error();
  StoreForGloo adapter(store, options.timeout);
  try {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options.host;
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    context = std::make_shared<gloo::rendezvous::Context>(int(self), int(size));
    context->setTimeout(options.timeout);
    context->connectFullMesh(adapter, device);
  } catch (const std::exception &error) {
    if (!adapter.error.message.empty())
      return adapter.error;
    return Error{ErrorCode::RankFailed, rankName(self) + " cannot connect to the others from " +
                                            options.host + ": " + error.what()};
  }
  reaper = std::thread([this] { reap(); });
  if (Status status = handshake(*nonce); !status)
    return status;
  Status status = linkHost(*nonce);
  numSent = SentBytes();
  if (status && options.diagnosis)
    options.diagnosis->start(); // from now on only the diagnosis uses the store
  return status;
}

/// Both ends of every connection prove their rank and their knowledge of the token.
Status GlooCommunicator::handshake(const std::string &nonce) {
  auto proof = [&](int64_t from, int64_t to) {
    return hmacSha256Hex(options.token, "tbc pair " + std::to_string(from) + " " +
                                            std::to_string(to) + " " + nonce);
  };
  Group all;
  std::vector<std::string> proofs, answers;
  for (int64_t peer = 0; peer < size; ++peer) {
    all.push_back(peer);
    proofs.push_back(proof(self, peer));
    answers.emplace_back(proofs.back().size(), ' ');
  }
  auto runsOf = [](std::vector<std::string> &texts) {
    std::vector<Runs> runs;
    for (std::string &text : texts)
      runs.push_back({{reinterpret_cast<unsigned char *>(text.data()), int64_t(text.size())}});
    return runs;
  };
  if (Status status = allToAllRuns(all, {}, runsOf(proofs), runsOf(answers), "start"); !status)
    return status;
  for (int64_t peer = 0; peer < size; ++peer)
    if (peer != self && !equalInConstantTime(answers[size_t(peer)], proof(peer, self)))
      return fail({ErrorCode::RankFailed, rankName(peer) + " does not know the token of this job"});
  return Status::ok();
}

/// Exchanges texts of one length; returns them by rank.
Result<std::vector<std::string>> GlooCommunicator::everybodys(const std::string &text,
                                                              const std::string &place) {
  Group all;
  std::vector<std::string> texts(size_t(size), std::string(text.size(), ' '));
  std::vector<Runs> outputs;
  for (int64_t peer = 0; peer < size; ++peer) {
    all.push_back(peer);
    std::string &theirs = texts[size_t(peer)];
    outputs.push_back({{reinterpret_cast<unsigned char *>(theirs.data()), int64_t(theirs.size())}});
  }
  texts[size_t(self)] = text;
  outputs[size_t(self)][0].data = reinterpret_cast<unsigned char *>(texts[size_t(self)].data());
  if (Status status = allGatherRuns(all, {}, outputs[size_t(self)], outputs, place); !status)
    return status.error();
  return texts;
}

/// Finds the ranks of each host, and links this rank to the others of its host. If this fails for
/// one of them, all of the host use sockets.
Status GlooCommunicator::linkHost(const std::string &nonce) {
  std::string key = sha256Hex(options.hostKey.empty() ? localHostKey() : options.hostKey);
  if (options.hostKey.empty() && localHostKey().empty())
    key = sha256Hex("rank " + std::to_string(self)); // a host of its own
  auto proof = [&](int64_t from, int64_t to) {
    return hmacSha256Hex(options.token, "tbc memory " + std::to_string(from) + " " +
                                            std::to_string(to) + " " + nonce);
  };
  LocalLinker linker(self, proof, options.timeout);
  std::string address = options.sharesMemory ? linker.listen() : "";
  address.resize(LocalLinker::addressBytes, ' ');
  Result<std::vector<std::string>> all = everybodys(key + address, "start, hosts");
  if (!all)
    return all.error();
  std::map<int64_t, std::string> ofHost;
  std::map<std::string, int64_t> firstRanks; // by host key
  std::vector<int64_t> hostOf;
  for (int64_t rank = 0; rank < size; ++rank) {
    std::string theirs = (*all)[size_t(rank)].substr(0, key.size());
    hostOf.push_back(firstRanks.emplace(theirs, rank).first->second);
    if (theirs == key)
      ofHost[rank] = (*all)[size_t(rank)].substr(key.size());
  }
  hosts = std::move(hostOf);
  if (!options.sharesMemory)
    return Status::ok();
  Result<LocalLinks> linked = linker.link(ofHost);
  Result<std::vector<std::string>> outcomes = everybodys(linked ? "y" : "n", "start, memory");
  if (!outcomes)
    return outcomes.error();
  bool areAll = true;
  for (const auto &[rank, name] : ofHost)
    areAll = areAll && (*outcomes)[size_t(rank)] == "y";
  if (linked && areAll)
    links = std::move(*linked);
  else if (!linked && options.warn) // a failed rank reports its own reason
    options.warn(linked.error().message);
  return Status::ok();
}

bool GlooCommunicator::isLinked(const Group &group) const {
  return std::all_of(group.begin(), group.end(),
                     [&](int64_t rank) { return rank == self || links.count(rank) > 0; });
}

GlooCommunicator::~GlooCommunicator() {
  {
    std::unique_lock<std::mutex> lock(mutex);
    if (!hasFailed)
      changed.wait_for(lock, options.timeout, [&] { return underWay.empty(); });
    isClosing = true;
    changed.notify_all();
    // Ends the reaper's current wait, instead of waiting for the connections to close.
    if (context && !underWay.empty() && underWay.front()) {
      for (BufferPtr *buffer : {&underWay.front()->headerBuffer, &underWay.front()->contentBuffer})
        if (*buffer)
          (*buffer)->abortWaitSend();
    }
  }
  if (reaper.joinable())
    reaper.join();
  underWay.clear();
}

void GlooCommunicator::reap() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return isClosing || !underWay.empty(); });
    if (isClosing)
      return;
    Outgoing *front = underWay.front().get();
    lock.unlock();
    bool isSent = true;
    try {
      // Without a time-out: a receiver may be busy for longer than the usual limit.
      for (BufferPtr *buffer : {&front->headerBuffer, &front->contentBuffer})
        if (*buffer && isSent)
          isSent = (*buffer)->waitSend(std::chrono::hours(24));
    } catch (const std::exception &) {
      isSent = false; // the connection is gone; the next wait for this peer reports it
    }
    lock.lock();
    if (!isSent && isClosing)
      return;
    underWay.pop_front();
    changed.notify_all();
  }
}

//===----------------------------------------------------------------------===//
// Waiting and failing
//===----------------------------------------------------------------------===//

Error GlooCommunicator::settle(const Error &error) {
  hasFailed = true;
  failure = error;
  for (auto &[rank, link] : links)
    link->part();
  return failure;
}

Error GlooCommunicator::fail(const Error &error) {
  if (hasFailed)
    return failure;
  return settle(options.diagnosis ? options.diagnosis->failed(error) : error);
}

Error GlooCommunicator::lost(int64_t peer, const std::string &place, bool isOurs) {
  if (hasFailed)
    return failure;
  if (options.diagnosis)
    return settle(options.diagnosis->lost(place, peer, isOurs));
  return settle({ErrorCode::RankFailed, rankName(self) + " at " + place + ": the connection to " +
                                            rankName(peer) +
                                            " is gone; it has failed or was killed"});
}

Error GlooCommunicator::timedOut(const std::vector<int64_t> &missing, const std::string &place) {
  if (hasFailed)
    return failure;
  if (options.diagnosis)
    return settle(options.diagnosis->timedOut(place, missing));
  std::string names;
  for (int64_t rank : missing)
    names += (names.empty() ? "" : " and ") + rankName(rank);
  return settle({ErrorCode::HangDetected, rankName(self) + " at " + place + ": no answer from " +
                                              names + " for " +
                                              std::to_string(options.timeout.count()) + " ms"});
}

Status GlooCommunicator::wait(const std::function<void(milliseconds limit)> &waitFn, int64_t peer,
                              Clock::time_point deadline, const std::string &what) {
  auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  if (options.recorder)
    options.recorder->waitFor({peer});
  try {
    waitFn(std::max(left, milliseconds(1)));
    return Status::ok();
  } catch (const std::exception &error) {
    if (Clock::now() + milliseconds(2) >= deadline) // Gloo waits whole milliseconds
      return timedOut({peer}, what);
    return lost(peer, what);
  }
}

Result<std::unique_ptr<Communicator>> connectGloo(int64_t rank, int64_t numRanks, Store &store,
                                                  const GlooOptions &options) {
  auto communicator = std::make_unique<GlooCommunicator>(rank, numRanks, options);
  if (Status status = communicator->connect(store); !status)
    return status.error();
  return std::unique_ptr<Communicator>(std::move(communicator));
}

} // namespace tbc::comm