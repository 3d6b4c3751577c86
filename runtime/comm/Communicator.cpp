//===- Communicator.cpp - Calls on memory, by way of tensors ---------------===//

#include "runtime/comm/Communicator.h"
#include "runtime/comm/Reduce.h"

#include <algorithm>

namespace tbc::comm {

using kernels::Arith;
using kernels::Tensor;
using kernels::TensorType;

size_t indexIn(const Group &group, int64_t rank) {
  size_t index = size_t(std::find(group.begin(), group.end(), rank) - group.begin());
  kernels::require(index < group.size(), "a rank calls a group that it is not in");
  return index;
}

/// Returns the elements of the largest part, because tensors have parts of one size.
static int64_t largestShare(const std::vector<Runs> &parts, const ElementType &type) {
  int64_t most = 0;
  for (const Runs &part : parts)
    most = std::max(most, sizeBytes(part) / type.width());
  return most;
}

/// Returns the parts in a row, each padded with zeros.
static Tensor joined(const std::vector<Runs> &parts, const ElementType &type, int64_t share) {
  std::vector<Tensor> tensors;
  for (const Runs &part : parts)
    tensors.push_back(toTensor(part, type, share));
  return joinFlat(tensors);
}

static Status scattered(const Result<Tensor> &result, const std::vector<Runs> &parts,
                        int64_t share) {
  if (!result)
    return result.error();
  for (size_t i = 0; i < parts.size(); ++i)
    fromTensor(cutFlat(*result, int64_t(i) * share, share), parts[i]);
  return Status::ok();
}

Status Communicator::allReduceRuns(const Group &group, Reduction reduction, const ElementType &type,
                                   const Runs &input, const Runs &output,
                                   const std::string &place) {
  Tensor whole = toTensor(input, type, sizeBytes(input) / type.width());
  return scattered(allReduce(group, reduction, whole, place)->wait(), {output},
                   whole.numElements());
}

Status Communicator::allGatherRuns(const Group &group, const ElementType &type, const Runs &input,
                                   const std::vector<Runs> &outputs, const std::string &place) {
  int64_t share = largestShare(outputs, type);
  return scattered(allGather(group, toTensor(input, type, share), place)->wait(), outputs, share);
}

Status Communicator::reduceScatterRuns(const Group &group, const ElementType &type,
                                       const std::vector<Runs> &inputs, const Runs &output,
                                       const std::string &place) {
  int64_t share = largestShare(inputs, type);
  return scattered(reduceScatter(group, joined(inputs, type, share), place)->wait(), {output},
                   share);
}

Status Communicator::allToAllRuns(const Group &group, const ElementType &type,
                                  const std::vector<Runs> &inputs, const std::vector<Runs> &outputs,
                                  const std::string &place) {
  int64_t share = largestShare(inputs, type);
  return scattered(allToAll(group, joined(inputs, type, share), place)->wait(), outputs, share);
}

Status Communicator::sendBytes(int64_t to, Tag tag, const TensorType &type, Arith arith,
                               const unsigned char *from, const std::string &place) {
  Result<Tensor> sent = send(to, tag, decode(type, arith, from), place)->wait();
  return sent ? Status::ok() : Status(sent.error());
}

Status Communicator::recvBytes(int64_t from, Tag tag, const TensorType &type, Arith arith,
                               unsigned char *into, const std::string &place) {
  Result<Tensor> received = recv(from, tag, type, place)->wait();
  if (!received)
    return received.error();
  fromTensor(*received, {{into, kernels::numElements(type.shape) * wireWidth(type.dtype, arith)}});
  return Status::ok();
}

} // namespace tbc::comm
