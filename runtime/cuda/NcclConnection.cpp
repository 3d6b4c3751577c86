//===- NcclConnection.cpp - How a rank with a GPU is connected, and waits -===//

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

Status NcclRank::connect() {
  if (Status status = device->makeCurrent(); !status)
    return status;
  Group all(static_cast<size_t>(size));
  for (int64_t rank = 0; rank < size; ++rank)
    all[rank] = rank;
  auto world = linkOf(all, nameOf(all));
  if (!world)
    return fail(world.error());
  // Parting needs a communicator that is joined.
  Transfer joining;
  joining.link = *world;
  joining.what = "connecting by NCCL";
  if (!options.partitions.empty()) {
    joining.isCalled = true; // nothing but joining is waited for
    if (auto joined = wait(joining); !joined)
      return joined.error();
  }
  for (const std::vector<Group> &partition : options.partitions) {
    if (partition.size() == 1 && partition[0] == all)
      continue; // there already
    const Group *mine = nullptr;
    int color = -1; // NCCL_SPLIT_NOCOLOR
    for (size_t g = 0; g < partition.size(); ++g)
      if (std::count(partition[g].begin(), partition[g].end(), self))
        mine = &partition[g], color = int(g);
    auto link = (*world)->split(mine ? *mine : Group{self}, color, self);
    if (!link)
      return fail(link.error());
    if (mine && !links.count(nameOf(*mine)))
      links[nameOf(*mine)] = std::move(*link);
  }
  return Status::ok();
}

/// The link of this name, made where there is none yet. Whoever comes first gives it its id.
Result<NcclLink *> NcclRank::linkOf(const Group &group, const std::string &name) {
  if (auto found = links.find(name); found != links.end())
    return found->second.get();
  NcclId id{};
  if (Status status = checkNccl(nccl, nccl.getUniqueId(&id), nullptr, "an id for " + name); !status)
    return status.error();
  Result<std::string> agreed = store.claim("nccl/" + name, hexOf(id));
  if (!agreed)
    return agreed.error();
  auto link = NcclLink::join(nccl, device, group, self, idOf(*agreed));
  if (!link)
    return link.error();
  return (links[name] = std::move(*link)).get();
}

NcclRank::~NcclRank() {
  static_cast<void>(device->makeCurrent());
  // What was sent is on its way before anything is given back.
  while (!hasFailed && !orphans.empty()) {
    std::unique_ptr<Transfer> transfer = std::move(orphans.back());
    orphans.pop_back();
    static_cast<void>(wait(*transfer));
  }
  static_cast<void>(finishMessages());
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

Status NcclRank::progressAll() {
  for (auto &[name, link] : links)
    if (Status status = link->progress(); !status)
      return status;
  // Sends that have ended.
  for (size_t i = 0; i < orphans.size();) {
    Result<bool> passed =
        orphans[i]->isCalled ? orphans[i]->buffers.done.hasPassed() : Result<bool>(false);
    if (!passed)
      return passed.error();
    if (!*passed) {
      ++i;
      continue;
    }
    spare.push_back(std::move(orphans[i]->buffers));
    orphans.erase(orphans.begin() + std::ptrdiff_t(i));
  }
  return Status::ok();
}

/// Errors of NCCL, and of the job.
Status NcclRank::check(Clock::time_point &nextStoreCheck) {
  if (Status status = progressAll(); !status)
    return status;
  // The store is a process elsewhere; ask it seldom.
  constexpr std::chrono::milliseconds storeEvery(200);
  if (Clock::now() < nextStoreCheck)
    return Status::ok();
  nextStoreCheck = Clock::now() + storeEvery;
  auto alive = store.claim("nccl/alive." + std::to_string(self), "yes");
  return alive ? Status::ok() : Status(alive.error());
}

Result<Tensor> NcclRank::wait(Transfer &transfer) {
  if (hasFailed)
    return failure;
  if (Status status = device->makeCurrent(); !status)
    return fail(status.error());
  auto deadline = Clock::now() + options.timeout;
  auto nextStoreCheck = Clock::now() + std::chrono::milliseconds(50);
  for (int turn = 0;; ++turn) {
    if (Status status = check(nextStoreCheck); !status)
      return fail({status.error().code, transfer.what + ": " + status.error().message});
    bool isDone = transfer.isCalled && transfer.link->isJoined();
    if (isDone && transfer.finish) {
      Result<bool> passed = transfer.buffers.done.hasPassed();
      if (!passed)
        return fail({passed.error().code, transfer.what + ": " + passed.error().message});
      isDone = *passed;
    }
    if (isDone)
      break;
    if (Clock::now() > deadline)
      return fail(timedOut(*transfer.link, transfer.number, transfer.what));
    // Short waits are common, and long ones must not take a core.
    if (turn > 100)
      std::this_thread::sleep_for(std::chrono::microseconds(std::min(turn, 1000)));
  }
  // Who was waited for has joined what came before: what was kept for that is not kept longer.
  if (Status status = progressAll(); !status)
    return fail({status.error().code, transfer.what + ": " + status.error().message});
  if (!transfer.finish)
    return Tensor();
  Result<Tensor> result = transfer.finish(transfer.buffers.hostOut.data());
  spare.push_back(std::move(transfer.buffers));
  return result;
}

/// Asks, through the store, which ranks of the group wait too.
Error NcclRank::timedOut(const NcclLink &link, int64_t number, const std::string &what) {
  std::string key = "nccl/waits." + nameOf(link.group()) + "." + std::to_string(number) + ".";
  auto claimed = store.claim(key + std::to_string(self), what);
  if (!claimed)
    return claimed.error();
  std::string missing;
  // All have the same time-out, so those that are here are here by now, give or take.
  auto grace = std::min<std::chrono::milliseconds>(options.timeout / 4, std::chrono::seconds(2));
  for (int64_t rank : link.group())
    if (rank != self && !store.get(key + std::to_string(rank), grace))
      missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(rank);
  return {ErrorCode::HangDetected,
          what + ": waited " + std::to_string(options.timeout.count()) + " ms for " +
              (missing.empty() ? describeRanks(link.group()) +
                                     ", which are all here: the network between them is stuck"
                               : missing)};
}

/// Ends all communication, here and of the job; the first error counts.
Error NcclRank::fail(Error error) {
  if (hasFailed)
    return failure;
  hasFailed = true;
  failure = std::move(error);
  for (auto &[name, link] : links) {
    link->abort();
    // Buffers are given back from now on. An error here is a consequence of the first.
    if (!device->isGivenUp())
      static_cast<void>(link->stream().synchronize());
  }
  store.abort(failure);
  return failure;
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
