//===- NcclLink.cpp - One communicator of NCCL -----------------------------===//

#include "runtime/cuda/NcclLink.h"

#include <algorithm>
#include <thread>

namespace tbc::cuda {

std::string describeRanks(const comm::Group &group) {
  std::string text = group.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < group.size(); ++i)
    text += (i ? ", " : "") + std::to_string(group[i]);
  return text;
}

std::string NcclLink::describe() const { return "NCCL between " + describeRanks(ranks); }

static int64_t indexIn(const comm::Group &group, int64_t rank) {
  return std::find(group.begin(), group.end(), rank) - group.begin();
}

Result<std::unique_ptr<NcclLink>> NcclLink::join(const Nccl &nccl, const DevicePtr &device,
                                                 const comm::Group &group, int64_t rank,
                                                 const NcclId &id) {
  std::unique_ptr<NcclLink> link(new NcclLink(nccl, device, group, indexIn(group, rank)));
  auto stream = Stream::create(device, "communication");
  if (!stream)
    return stream.error();
  link->ownStream = std::move(*stream);
  NcclConfig config;
  config.blocking = 0;
  NcclCode code = nccl.initRank(&link->comm, int(group.size()), id, int(link->self), &config);
  if (Status status = checkNccl(nccl, code, link->comm, link->describe()); !status)
    return status.error();
  return link;
}

Result<std::unique_ptr<NcclLink>> NcclLink::split(const comm::Group &group, int color,
                                                  int64_t rank) const {
  std::unique_ptr<NcclLink> link(new NcclLink(nccl, device, group, indexIn(group, rank)));
  auto stream = Stream::create(device, "communication");
  if (!stream)
    return stream.error();
  link->ownStream = std::move(*stream);
  NcclConfig config;
  config.blocking = 0;
  NcclCode code = nccl.split(comm, color, int(link->self), &link->comm, &config);
  if (Status status = settle(code, "parting " + describe()); !status)
    return status.error();
  return link;
}

NcclLink::~NcclLink() {
  if (!comm)
    return;
  // Where something is still under way, waiting for others may take forever.
  if (joined)
    nccl.destroy(comm);
  else
    nccl.abort(comm);
}

Status NcclLink::settle(NcclCode code, const std::string &what) const {
  while (code == NcclCode::InProgress) {
    std::this_thread::yield();
    if (NcclCode asked = nccl.getAsyncError(comm, &code); asked != NcclCode::Success)
      code = asked;
  }
  return checkNccl(nccl, code, comm, what);
}

Status NcclLink::call(std::function<Status()> function) {
  if (joined)
    return function();
  kept.push_back(std::move(function));
  return Status::ok();
}

Status NcclLink::progress() {
  if (!comm)
    return Status::ok(); // aborted
  NcclCode code = NcclCode::Success;
  if (NcclCode asked = nccl.getAsyncError(comm, &code); asked != NcclCode::Success)
    code = asked;
  if (Status status = checkNccl(nccl, code, comm, describe()); !status)
    return status;
  if (code == NcclCode::InProgress)
    return Status::ok();
  joined = true;
  while (!kept.empty()) {
    std::function<Status()> function = std::move(kept.front());
    kept.pop_front();
    if (Status status = function(); !status)
      return status;
  }
  return Status::ok();
}

void NcclLink::abort() {
  if (comm)
    nccl.abort(comm);
  comm = nullptr;
  kept.clear();
}

} // namespace tbc::cuda
