//===- NcclConnection.cpp - Connection and waits of a rank with a GPU -----===//

#include "runtime/cuda/NcclRank.h"

#include <algorithm>
#include <thread>

namespace tbc::cuda {

using comm::Group;
using kernels::Tensor;
using Clock = std::chrono::steady_clock;

//===----------------------------------------------------------------------===//
// Connecting
//===----------------------------------------------------------------------===//

static std::string hexOf(const NcclId &id) {
  std::string text;
  for (char byte : id.bytes) {
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

static NcclId idOf(const std::string &hex) {
  NcclId id{};
  for (size_t i = 0; i < sizeof id.bytes && 2 * i + 1 < hex.size(); ++i)
    id.bytes[i] = char(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return id;
}

std::string nameOf(const Group &group) {
  std::string text = "group";
  for (int64_t rank : group)
    text += "." + std::to_string(rank);
  return text;
}

static WatchOptions watchOptionsOf(const NcclOptions &options) {
  WatchOptions watch;
  watch.timeout = options.timeout;
  return watch;
}

NcclRank::NcclRank(int64_t self, int64_t size, comm::Store &store, const Nccl &nccl,
                   DevicePtr device, NcclOptions given)
    : self(self), size(size), store(store), nccl(nccl), device(std::move(device)),
      options(std::move(given)),
      watch(options.watch ? options.watch
                          : std::make_shared<HostWatch>(this->device, watchOptionsOf(options))),
      ownRecorder(options.recorder ? nullptr : std::make_unique<comm::FlightRecorder>(self)),
      ownDiagnosis(options.diagnosis
                       ? nullptr
                       : std::make_unique<comm::Diagnosis>(
                             self, size, /*servingRank=*/-1, this->store,
                             options.recorder ? *options.recorder : *ownRecorder, options.timeout,
                             std::function<void(const std::string &)>())),
      recorder(options.recorder ? *options.recorder : *ownRecorder),
      diagnosis(options.diagnosis ? *options.diagnosis : *ownDiagnosis) {
  if (ownDiagnosis)
    ownDiagnosis->start();
  watch->join({&this->store, &nccl,
               [this](const std::string &what, std::chrono::milliseconds waited) {
                 return isBlocked(what, waited);
               },
               [this](const Error &error, bool isOfJob) { return explain(error, isOfJob); }});
}

Status NcclRank::connect() {
  if (Status status = device->makeCurrent(); !status)
    return fail(status.error());
  isConnecting = true;
  Status status = joinAll();
  isConnecting = false;
  return status ? meet() : status;
}

/// Every rank goes through the same list in the same order, so that no cycle of waits arises.
Status NcclRank::joinAll() {
  Group all(static_cast<size_t>(size));
  for (int64_t rank = 0; rank < size; ++rank)
    all[size_t(rank)] = rank;
  auto world = linkOf(all, nameOf(all));
  if (!world)
    return fail(world.error());
  // Splitting needs a joined communicator.
  if (Status status = settle(**world, "connecting by NCCL"); !status)
    return status;
  for (const std::vector<Group> &partition : options.partitions)
    if (Status status = splitWorld(**world, partition); !status)
      return status;
  for (const comm::MessagePair &pair : options.messages)
    if (self == pair.from || self == pair.to) {
      Group ranks = {pair.from, pair.to};
      auto link = linkOf(ranks, nameOfMessages(ranks, pair.lane));
      if (!link)
        return fail(link.error());
    }
  return settleAll("connecting by NCCL");
}

Status NcclRank::splitWorld(NcclLink &world, const std::vector<Group> &partition) {
  const Group *mine = nullptr;
  int color = -1; // NCCL_SPLIT_NOCOLOR
  bool isOfSeveral = false;
  for (size_t g = 0; g < partition.size(); ++g) {
    isOfSeveral |= partition[g].size() > 1;
    if (std::count(partition[g].begin(), partition[g].end(), self))
      mine = &partition[g], color = partition[g].size() > 1 ? int(g) : -1;
  }
  if (!isOfSeveral || (partition.size() == 1 && partition[0] == world.group()))
    return Status::ok();
  std::unique_ptr<NcclLink> part = NcclLink::partOf(world, mine ? *mine : Group{self}, self);
  if (Status status = world.split(*part, color); !status)
    return fail(status.error());
  if (Status status = settle(world, "connecting by NCCL"); !status)
    return status;
  if (color >= 0 && !links.count(nameOf(*mine)))
    links[nameOf(*mine)] = std::move(part);
  return Status::ok();
}

/// Moves a byte over every link, all of them in one stream, in the same order on all ranks.
Status NcclRank::meet() {
  std::vector<NcclLink *> list;
  auto add = [&](const Group &group, const std::string &name) {
    auto found = links.find(name);
    if (group.size() > 1 && found != links.end() &&
        std::find(list.begin(), list.end(), found->second.get()) == list.end())
      list.push_back(found->second.get());
  };
  Group all(static_cast<size_t>(size));
  for (int64_t rank = 0; rank < size; ++rank)
    all[size_t(rank)] = rank;
  add(all, nameOf(all));
  for (const std::vector<Group> &partition : options.partitions)
    for (const Group &group : partition)
      add(group, nameOf(group));
  size_t numGroups = list.size();
  for (const comm::MessagePair &pair : options.messages)
    add({pair.from, pair.to}, nameOfMessages({pair.from, pair.to}, pair.lane));
  if (list.empty())
    return Status::ok();
  constexpr int64_t bytes = 256;
  auto memory = DeviceMemory::allocate(device, bytes, "the first bytes of NCCL");
  auto stream = Stream::create(device, "first bytes");
  auto done = Event::create(device);
  Status status = !memory   ? Status(memory.error())
                  : !stream ? Status(stream.error())
                  : !done   ? Status(done.error())
                            : stream->fill(memory->address(), 0, bytes);
  if (!status)
    return fail(status.error());
  firstBytes = std::move(*memory);
  void *at = reinterpret_cast<void *>(static_cast<uintptr_t>(firstBytes.address()));
  const std::string what = "connecting by NCCL";
  for (size_t i = 0; i < list.size(); ++i) {
    NcclLink &link = *list[i];
    bool isSender = link.index() == 0;
    auto begin = [&]() -> NcclCode {
      if (i < numGroups)
        return nccl.allReduce(at, at, 1, NcclType::U8, NcclOp::Max, link.handle(),
                              stream->handle());
      return isSender ? nccl.send(at, 1, NcclType::U8, 1, link.handle(), stream->handle())
                      : nccl.recv(at, 1, NcclType::U8, 0, link.handle(), stream->handle());
    };
    if (status = callNow(link, {what, begin, {}}); !status)
      return status;
  }
  if (status = stream->record(*done); !status)
    return fail(status.error());
  return waitFor(*done, what);
}

/// Returns the hexadecimal id of a communicator. At the start the first rank of the group makes it
/// and the others wait; later the first rank to arrive makes it.
Result<std::string> NcclRank::idFor(const Group &group, const std::string &name) {
  if (!isConnecting) {
    Result<std::string> made = store.get("nccl/" + name, std::chrono::milliseconds(0));
    if (made)
      return made;
  } else if (group[0] != self) {
    std::string what = "connecting by NCCL, to " + describeRanks(group);
    comm::RecordedCall recorded(&recorder, what);
    recorder.waitFor({group[0]});
    std::chrono::milliseconds limit = watch->limit();
    Clock::time_point deadline = Clock::now() + limit;
    while (true) {
      Result<std::string> id = store.get("nccl/" + name, std::chrono::milliseconds(200));
      if (id || id.error().code != ErrorCode::HangDetected || store.givenUp())
        return id;
      if (Status status = progressAll(); !status)
        return status.error();
      if (limit.count() > 0 && Clock::now() > deadline)
        return watch->fail(diagnosis.timedOut(what, {group[0]}, limit));
    }
  }
  NcclId id{};
  if (Status status = checkNccl(nccl, nccl.getUniqueId(&id), nullptr, "an id for " + name); !status)
    return status.error();
  return store.claim("nccl/" + name, hexOf(id));
}

/// Returns the link of this name; makes it on first use.
Result<NcclLink *> NcclRank::linkOf(const Group &group, const std::string &name) {
  if (auto found = links.find(name); found != links.end())
    return found->second.get();
  // An id occupies a thread and a socket on the rank that made it.
  Result<std::string> agreed = idFor(group, name);
  if (!agreed)
    return agreed.error();
  auto link = NcclLink::join(nccl, device, *watch, group, self, idOf(*agreed));
  if (!link)
    return link.error();
  return (links[name] = std::move(*link)).get();
}

NcclRank::~NcclRank() {
  static_cast<void>(device->makeCurrent());
  // Sent messages must have left before memory is freed.
  while (!watch->hasFailed() && !orphans.empty()) {
    std::unique_ptr<Transfer> transfer = std::move(orphans.back());
    orphans.pop_back();
    static_cast<void>(wait(*transfer));
  }
  static_cast<void>(finishMessages());
  links.clear();
  watch->leave();
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

Status NcclRank::progressAll() {
  for (auto &[name, link] : links)
    if (Status status = link->progress(); !status)
      return failOfNccl(status.error());
  // Sends that have ended.
  for (size_t i = 0; i < orphans.size();) {
    Result<bool> passed =
        orphans[i]->isCalled ? orphans[i]->buffers.done.hasPassed() : Result<bool>(false);
    if (!passed)
      return fail(passed.error());
    if (!*passed) {
      ++i;
      continue;
    }
    spare.push_back(std::move(orphans[i]->buffers));
    orphans.erase(orphans.begin() + std::ptrdiff_t(i));
  }
  return Status::ok();
}

namespace {
/// The time of a wait, and the pauses between two checks: short waits are common, and long ones
/// must not occupy a core.
class Patience {
public:
  explicit Patience(const HostWatch &watch) : watch(watch) {}
  /// Returns whether the time-out has passed.
  bool isOver() const {
    std::chrono::milliseconds limit = watch.limit();
    return limit.count() > 0 && Clock::now() - since > limit;
  }
  void pause() {
    if (++turn > 100)
      std::this_thread::sleep_for(std::chrono::microseconds(std::min(turn, 1000)));
  }

private:
  const HostWatch &watch;
  Clock::time_point since = Clock::now();
  int turn = 0;
};
} // namespace

/// Begins a call and waits until NCCL has accepted it.
Status NcclRank::callNow(NcclLink &link, NcclLink::Call call) {
  std::string what = call.what;
  if (Status status = link.call(std::move(call)); !status)
    return failOfNccl(status.error());
  return link.isIdle() ? Status::ok() : settle(link, what);
}

/// Waits until NCCL has accepted all calls of the link. Other pending work advances meanwhile.
Status NcclRank::settle(NcclLink &link, const std::string &what) {
  comm::RecordedCall recorded(&recorder, what);
  recorder.waitFor(link.others());
  for (Patience patience(*watch);; patience.pause()) {
    Status status = link.progress();
    if (status && link.isIdle())
      return status;
    if (status)
      status = progressAll();
    if (!status)
      return failOfNccl(status.error());
    if (patience.isOver())
      return timedOut(link, what);
  }
}

Status NcclRank::settleAll(const std::string &what) {
  for (auto &[name, link] : links)
    if (!link->isIdle())
      if (Status status = settle(*link, what); !status)
        return status;
  return Status::ok();
}

Status NcclRank::waitFor(const Event &event, const std::string &what) {
  comm::RecordedCall recorded(&recorder, what);
  for (Patience patience(*watch);; patience.pause()) {
    Result<bool> passed = event.hasPassed();
    Status status = passed ? watch->status() : Status(passed.error());
    if (!status)
      return fail(status.error(), what);
    if (*passed)
      return Status::ok();
    if (patience.isOver())
      return fail({ErrorCode::HangDetected, device->name() + ", " + what + ": waited " +
                                                std::to_string(watch->limit().count()) + " ms"});
  }
}

Result<Tensor> NcclRank::wait(Transfer &transfer) {
  if (Status status = watch->status(); !status)
    return status.error();
  if (Status status = device->makeCurrent(); !status)
    return fail(status.error());
  comm::RecordedCall recorded(&recorder, transfer.what);
  recorder.waitFor(transfer.link->others());
  for (Patience patience(*watch);; patience.pause()) {
    if (Status status = progressAll(); !status)
      return status.error();
    bool isDone = transfer.isCalled;
    if (isDone) {
      Result<bool> passed = transfer.buffers.done.hasPassed();
      if (!passed)
        return fail(passed.error(), transfer.what);
      // A stream may also end because its communicator was aborted.
      if (Status status = watch->status(); !status)
        return status.error();
      isDone = *passed;
    }
    if (isDone)
      break;
    if (patience.isOver())
      return timedOut(*transfer.link, transfer.what);
  }
  Result<Tensor> result = transfer.finish(transfer.buffers.hostOut.data());
  spare.push_back(std::move(transfer.buffers));
  return result;
}

//===----------------------------------------------------------------------===//
// Failing
//===----------------------------------------------------------------------===//

/// Finds the missing ranks by asking all ranks, and ends the job.
Error NcclRank::timedOut(const NcclLink &link, const std::string &what) {
  if (watch->hasFailed())
    return watch->status().error();
  return watch->fail(diagnosis.timedOut(what, link.others(), watch->limit()));
}

Error NcclRank::isBlocked(const std::string &what, std::chrono::milliseconds waited) {
  std::string place = device->name() + ": " + what + " has not come back for " +
                      std::to_string(waited.count()) + " ms";
  std::string call;
  Group others;
  {
    std::lock_guard<std::mutex> lock(oldestMutex);
    call = oldest;
    others = oldestOthers;
  }
  if (others.empty())
    return diagnosis.failed({ErrorCode::HangDetected, place});
  recorder.begin(place);
  return diagnosis.timedOut(place + "; under way is " + call, others, waited);
}

Error NcclRank::explain(const Error &error, bool isOfJob) {
  comm::Standing now = recorder.standing();
  std::string place = now.numCalls == 0 ? "before its first call" : now.call;
  if (isOfJob)
    return {error.code, place + ": stops, for " + error.message};
  Group others;
  for (int64_t rank = 0; rank < size; ++rank)
    if (rank != self)
      others.push_back(rank);
  return diagnosis.failedAmong({error.code, place + ": " + error.message}, others);
}

/// The same for an error of NCCL, which does not name the failed rank.
Error NcclRank::failOfNccl(const Error &error) {
  if (watch->hasFailed())
    return watch->status().error();
  return watch->fail(explain(error, /*isOfJob=*/false));
}

/// Ends all communication, here and of the job; the first error counts.
Error NcclRank::fail(Error error) {
  if (watch->hasFailed())
    return watch->status().error();
  return watch->fail(diagnosis.failed(error));
}

Result<std::unique_ptr<comm::Communicator>> connectNccl(int64_t rank, int64_t numRanks,
                                                        comm::Store &store, const Nccl &nccl,
                                                        const DevicePtr &device,
                                                        const NcclOptions &options) {
  auto communicator = std::make_unique<NcclRank>(rank, numRanks, store, nccl, device, options);
  if (Status status = communicator->connect(); !status)
    return status.error();
  return std::unique_ptr<comm::Communicator>(std::move(communicator));
}

} // namespace tbc::cuda
