//===- NcclLink.cpp - One NCCL communicator --------------------------------===//

#include "runtime/cuda/NcclLink.h"

#include <algorithm>

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

comm::Group NcclLink::others() const {
  comm::Group list;
  for (int64_t i = 0; i < int64_t(ranks.size()); ++i)
    if (i != self)
      list.push_back(ranks[size_t(i)]);
  return list;
}

Result<std::unique_ptr<NcclLink>> NcclLink::join(const Nccl &nccl, const DevicePtr &device,
                                                 HostWatch &watch, const comm::Group &group,
                                                 int64_t rank, const NcclId &id) {
  std::unique_ptr<NcclLink> link(new NcclLink(nccl, device, watch, group, indexIn(group, rank)));
  NcclConfig config;
  config.blocking = 0;
  std::string what = "connecting " + link->describe();
  HostWatch::Call call(&watch, what);
  NcclCode code = nccl.initRank(&link->comm, int(group.size()), id, int(link->self), &config);
  if (Status status = checkNccl(nccl, code, link->comm, link->describe()); !status)
    return status.error();
  watch.add(link->comm);
  return link;
}

std::unique_ptr<NcclLink> NcclLink::partOf(const NcclLink &whole, const comm::Group &group,
                                           int64_t rank) {
  return std::unique_ptr<NcclLink>(
      new NcclLink(whole.nccl, whole.device, whole.watch, group, indexIn(group, rank)));
}

Status NcclLink::split(NcclLink &part, int color) {
  NcclConfig config;
  config.blocking = 0;
  return call({"parting " + describe(),
               [this, &part, color, config]() mutable {
                 return nccl.split(comm, color, int(part.self), &part.comm, &config);
               },
               [this, &part]() -> Status {
                 if (part.comm)
                   watch.add(part.comm);
                 return Status::ok();
               }});
}

NcclLink::~NcclLink() {
  if (!comm || !watch.remove(comm))
    return;
  // With pending calls, destroying could wait for other ranks forever.
  if (isIdle())
    nccl.destroy(comm);
  else
    nccl.abort(comm);
}

Status NcclLink::needStream() {
  if (ownStream.handle())
    return Status::ok();
  auto stream = Stream::create(device, "communication");
  if (!stream)
    return stream.error();
  ownStream = std::move(*stream);
  return Status::ok();
}

Status NcclLink::call(Call call) {
  calls.push_back(std::move(call));
  // NCCL accepts a call that needs no other rank within about 50 us.
  constexpr int numLooks = 64;
  Status status = progress();
  for (int look = 0; status && !isIdle() && isUnderWay && look < numLooks; ++look)
    status = progress();
  return status;
}

Status NcclLink::progress() {
  if (Status status = watch.status(); !status)
    return status;
  while (comm) {
    NcclCode code = watch.ask(comm);
    bool isCall = isUnderWay;
    if (Status status = checkNccl(nccl, code, comm, isCall ? calls.front().what : describe());
        !status)
      return status;
    if (code == NcclCode::InProgress)
      return Status::ok();
    joined = true;
    if (isUnderWay) {
      isUnderWay = false;
      Call done = std::move(calls.front());
      calls.pop_front();
      if (Status status = done.then ? done.then() : Status::ok(); !status)
        return status;
    }
    if (calls.empty())
      return Status::ok();
    isUnderWay = true;
    HostWatch::Call begun(&watch, calls.front().what);
    code = calls.front().begin();
    if (Status status = checkNccl(nccl, code, comm, calls.front().what); !status)
      return status;
  }
  return Status::ok();
}

} // namespace tbc::cuda
