//===- NcclMessages.cpp - Messages between GPUs, and comparison of calls --===//

#include "runtime/comm/Wire.h"
#include "runtime/cuda/NcclRank.h"

#include <cstring>

namespace tbc::cuda {

using comm::Call;
using comm::CallKind;
using comm::Group;
using comm::RequestPtr;
using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using kernels::TensorType;

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

std::string nameOfMessages(const Group &pair, int lane) {
  return "message." + std::to_string(pair[0]) + "." + std::to_string(pair[1]) + "." +
         std::to_string(lane);
}

/// `pair`: sender, receiver.
RequestPtr NcclRank::message(const Group &pair, comm::Tag tag, Plan plan, const std::string &verb,
                             const std::string &place) {
  if (Status status = watch->status(); !status)
    return ended(status.error());
  if (Status status = device->makeCurrent(); !status)
    return ended(fail(status.error()));
  bool isSender = pair[0] == self;
  auto link = linkOf(pair, nameOfMessages(pair, tag.lane));
  if (!link)
    return ended(fail(link.error(), place));
  plan.group = pair;
  plan.callText = verb + " " + std::to_string(tag.channel) + " of " + plan.callText;
  if (options.checksCalls)
    if (Status status = compareMessage(**link, plan.callText, isSender, place); !status)
      return ended(status.error());
  auto transfer = begin(**link, std::move(plan), place);
  if (!transfer)
    return ended(transfer.error());
  auto request = std::make_unique<NcclRequest>(*this, std::move(*transfer));
  if (!isSender)
    return request;
  request.reset(); // the send continues in the background
  return ended(Tensor());
}

RequestPtr NcclRank::send(int64_t to, comm::Tag tag, const Tensor &input,
                          const std::string &place) {
  if (comm::arithOf(input) != Arith::Native)
    return ended(fail({ErrorCode::Usage, place + ": messages between GPUs are of elements in the "
                                                 "precision of their type"}));
  Plan plan;
  plan.input = comm::encode(input);
  plan.callText = describeType(input.type(), comm::arithOf(input));
  plan.function = [this, bytes = plan.input.size()](const NcclLink &link, void *from, void *) {
    return nccl.send(from, bytes, NcclType::U8, 1, link.handle(), link.stream().handle());
  };
  plan.finish = [](const unsigned char *) -> Result<Tensor> { return Tensor(); };
  return message({self, to}, tag, std::move(plan), "send", place);
}

RequestPtr NcclRank::recv(int64_t from, comm::Tag tag, const TensorType &type,
                          const std::string &place) {
  Plan plan;
  plan.outBytes = kernels::numElements(type.shape) * kernels::byteWidth(type.dtype);
  plan.callText = describeType(type, Arith::Native);
  plan.function = [this, bytes = size_t(plan.outBytes)](const NcclLink &link, void *, void *to) {
    return nccl.recv(to, bytes, NcclType::U8, 0, link.handle(), link.stream().handle());
  };
  plan.finish = [type](const unsigned char *bytes) -> Result<Tensor> {
    return comm::decode(type, Arith::Native, bytes);
  };
  return message({from, self}, tag, std::move(plan), "recv", place);
}

//===----------------------------------------------------------------------===//
// Calls that must match
//===----------------------------------------------------------------------===//

static Header headerOf(const std::string &call, const std::string &place) {
  Header header{};
  call.copy(header.call, sizeof header.call - 1);
  place.copy(header.place, sizeof header.place - 1);
  return header;
}

static Tensor headerTensor(const Header &header) {
  return Tensor::fromBytes({DType::U8, {int64_t(sizeof header)}}, Arith::Native, &header);
}

static Header headerIn(const unsigned char *bytes) {
  Header header;
  std::memcpy(&header, bytes, sizeof header);
  header.call[sizeof header.call - 1] = header.place[sizeof header.place - 1] = 0;
  return header;
}

Status NcclRank::compareCalls(NcclLink &link, const std::string &callText,
                              const std::string &place) {
  Plan plan =
      movement(link.group(), Call(CallKind::AllGather), headerTensor(headerOf(callText, place)),
               int64_t(link.group().size() * sizeof(Header)),
               {int64_t(link.group().size() * sizeof(Header))},
               [this](const NcclLink &on, void *from, void *to) {
                 return nccl.allGather(from, to, sizeof(Header), NcclType::U8, on.handle(),
                                       on.stream().handle());
               });
  plan.callText = callText;
  auto transfer = begin(link, std::move(plan), place);
  if (!transfer)
    return transfer.error();
  Result<Tensor> all = wait(**transfer);
  if (!all)
    return all.error();
  std::vector<unsigned char> bytes = all->toBytes();
  Header mine = headerOf(callText, place);
  for (size_t i = 0; i < link.group().size(); ++i) {
    Header other = headerIn(bytes.data() + i * sizeof(Header));
    if (std::strcmp(other.call, mine.call) != 0)
      return fail({ErrorCode::RankFailed, place + ", " + callText + ": rank " +
                                              std::to_string(link.group()[i]) + " calls " +
                                              other.call + " at " + other.place});
  }
  return Status::ok();
}

/// Compares a message's calls: the sender describes its own, and the receiver checks it.
Status NcclRank::compareMessage(NcclLink &link, const std::string &callText, bool isSender,
                                const std::string &place) {
  Plan plan;
  plan.group = link.group();
  plan.callText = callText;
  auto headerBytes = std::make_shared<std::vector<unsigned char>>();
  if (isSender)
    plan.input = comm::encode(headerTensor(headerOf(callText, place)));
  else
    plan.outBytes = sizeof(Header);
  plan.function = [this, isSender](const NcclLink &on, void *from, void *to) {
    return isSender
               ? nccl.send(from, sizeof(Header), NcclType::U8, 1, on.handle(), on.stream().handle())
               : nccl.recv(to, sizeof(Header), NcclType::U8, 0, on.handle(), on.stream().handle());
  };
  plan.finish = [headerBytes, isSender](const unsigned char *bytes) -> Result<Tensor> {
    if (!isSender) // a sender's call has no output
      headerBytes->assign(bytes, bytes + sizeof(Header));
    return Tensor();
  };
  auto transfer = begin(link, std::move(plan), place);
  if (!transfer)
    return transfer.error();
  if (isSender) {
    orphans.push_back(std::move(*transfer));
    return Status::ok();
  }
  if (Result<Tensor> received = wait(**transfer); !received)
    return received.error();
  Header header = headerIn(headerBytes->data());
  // "send" and "recv" have four letters each.
  if (callText.compare(4, std::string::npos, header.call + 4) == 0)
    return Status::ok();
  return fail({ErrorCode::RankFailed, place + ", " + callText + ": the next message of rank " +
                                          std::to_string(link.group()[0]) + " is " + header.call +
                                          " at " + header.place});
}

} // namespace tbc::cuda
