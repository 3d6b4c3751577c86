//===- SharedStatus.cpp - Agreement on success of all ranks ------------------===//

#include "runtime/comm/SharedStatus.h"

#include <algorithm>
#include <numeric>

namespace tbc::comm {

using kernels::Tensor;

/// The limit for a message sent to others; paths may be long.
constexpr int64_t textBytes = 2048;

Status shareStatus(Communicator &communicator, const Status &mine, const std::string &place) {
  Group everyone(size_t(communicator.numRanks()));
  std::iota(everyone.begin(), everyone.end(), int64_t(0));
  int64_t code = mine ? 0 : int64_t(mine.error().code);
  auto codes =
      communicator.allGather(everyone, Tensor::fromInts({kernels::DType::I64, {1}}, {code}), place)
          ->wait();
  if (!codes)
    return codes.error();
  const std::vector<int64_t> &all = codes->data<int64_t>();
  auto found = std::find_if(all.begin(), all.end(), [](int64_t other) { return other != 0; });
  if (found == all.end())
    return Status::ok();
  int64_t culprit = found - all.begin();
  std::vector<int64_t> bytes(textBytes, 0);
  if (culprit == communicator.rank()) {
    const std::string &message = mine.error().message;
    for (size_t i = 0; i < std::min(message.size(), size_t(textBytes) - 1); ++i)
      bytes[i] = static_cast<unsigned char>(message[i]);
  }
  auto text = communicator
                  .broadcast(everyone, culprit,
                             Tensor::fromInts({kernels::DType::U8, {textBytes}}, bytes), place)
                  ->wait();
  if (!text)
    return text.error();
  if (culprit == communicator.rank())
    return mine;
  std::string message = "rank " + std::to_string(culprit) + ": ";
  for (int64_t byte : text->data<int64_t>())
    if (byte != 0)
      message += char(byte);
  return Error{ErrorCode(*found), message};
}

} // namespace tbc::comm
