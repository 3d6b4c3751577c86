//===- Communicator.h - What ranks exchange --------------------------------===//
//
// Part of tbc. Plain C++. Backends implement this interface. Every call exists in two forms: on
// tensors, of any arithmetic, and on memory, where nothing but the bytes themselves is moved.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_COMMUNICATOR_H
#define TBC_RUNTIME_COMM_COMMUNICATOR_H

#include "runtime/abi/Status.h"
#include "runtime/comm/Runs.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace tbc::comm {

/// The ranks of a collective, in the order of their index in it. All of them pass the same list.
using Group = std::vector<int64_t>;

/// Sum, Avg and PremulSum are taken in group order and rounded once (over NCCL floats in its own
/// order, rounded in their type each time). Integers wrap around; their
/// Avg is the truncated quotient of the sum. The bitwise kinds are for integers and booleans.
enum class ReduceKind { Sum, Max, Min, Product, Avg, BitAnd, BitOr, BitXor, PremulSum };
inline constexpr int numReduceKinds = 9;

/// "sum", "max", "min", "product", "avg", "bit_and", "bit_or", "bit_xor", "premul_sum".
std::string_view name(ReduceKind kind);

/// How the inputs of an all_reduce become one. `factor` is of PremulSum: what every element is
/// multiplied by before the sum; an integer for integers.
struct Reduction {
  ReduceKind kind;
  double factor;
  Reduction(ReduceKind kind, double factor = 1) : kind(kind), factor(factor) {} // NOLINT
  bool operator==(const Reduction &o) const { return kind == o.kind && factor == o.factor; }
};

/// What a message is called on both sides. Messages between two ranks arrive in the order in which
/// they were sent within a lane; a receive in one lane does not wait for messages of another.
struct Tag {
  int64_t channel = 0;
  int lane = 0;
  Tag(int64_t channel, int lane = 0) : channel(channel), lane(lane) {}
};

/// The messages from one rank to another in a lane.
struct MessagePair {
  int64_t from = 0, to = 0;
  int lane = 0;
  bool operator==(const MessagePair &o) const {
    return from == o.from && to == o.to && lane == o.lane;
  }
  bool operator<(const MessagePair &o) const {
    return std::tie(from, to, lane) < std::tie(o.from, o.to, o.lane);
  }
};

/// A communication under way.
class Request {
public:
  virtual ~Request() = default;
  /// The received tensor (a send or barrier gives one without value), or why there is none. Call
  /// once.
  virtual Result<kernels::Tensor> wait() = 0;
};
using RequestPtr = std::unique_ptr<Request>;

/// A request that has ended already: what blocking backends return.
class EndedRequest : public Request {
public:
  explicit EndedRequest(Result<kernels::Tensor> result) : result(std::move(result)) {}
  Result<kernels::Tensor> wait() override { return std::move(result); }

private:
  Result<kernels::Tensor> result;
};

/// Bytes that left a rank for others, of what messages hold alone.
struct SentBytes {
  int64_t withinHost = 0, acrossHosts = 0;
};

/// One rank's access to the others.
///
/// The ranks of a group make the same calls on it in the same order; the k-th call of each meets
/// the k-th of the others. Calls that meet must agree in kind, type and size: else, and when a rank
/// fails or stays away for too long, every waiting rank gets an error naming both sides. `place`
/// says where in its program the caller is, for these errors.
///
/// n = group size, [m] = a tensor of m elements of any one type and arithmetic.
class Communicator {
public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t numRanks() const = 0;

  /// [m] -> [m], of the input's shape: the elementwise reduction over the group.
  virtual RequestPtr allReduce(const Group &group, Reduction reduction,
                               const kernels::Tensor &input, const std::string &place) = 0;
  /// [m] -> [m], of the input's shape: the input of index `root`. The other ranks' inputs say the
  /// type only.
  virtual RequestPtr broadcast(const Group &group, int64_t root, const kernels::Tensor &input,
                               const std::string &place) = 0;
  /// [m] -> [n*m]: the inputs of all, in group order.
  virtual RequestPtr allGather(const Group &group, const kernels::Tensor &input,
                               const std::string &place) = 0;
  /// [n*m] -> [m]: the sum over the group, of which index i keeps elements i*m to (i+1)*m.
  virtual RequestPtr reduceScatter(const Group &group, const kernels::Tensor &input,
                                   const std::string &place) = 0;
  /// [n*m] -> [n*m]: part j of the input goes to index j; part j of the result comes from index j.
  virtual RequestPtr allToAll(const Group &group, const kernels::Tensor &input,
                              const std::string &place) = 0;
  /// Waits until the whole group is here.
  virtual RequestPtr barrier(const Group &group, const std::string &place) = 0;

  /// Gives the tensor away without waiting for the receiver. `tag` names the message.
  virtual RequestPtr send(int64_t to, Tag tag, const kernels::Tensor &input,
                          const std::string &place) = 0;
  /// The next message from `from` in the tag's lane, which must have this channel and type.
  virtual RequestPtr recv(int64_t from, Tag tag, const kernels::TensorType &type,
                          const std::string &place) = 0;

  // The same on memory; they return when they are done. Here, by way of tensors; a backend that
  // moves bytes has its own. All ranks of a group call the same form. Parts may differ in size from
  // index to index, but every rank says the same of each index. Outputs lie apart from inputs and
  // from each other, but for what is said. Errors: as above.

  /// An output run may be the input run of its number; all have the same sizes.
  virtual Status allReduceRuns(const Group &group, Reduction reduction, const ElementType &type,
                               const Runs &input, const Runs &output, const std::string &place);
  /// outputs[i]: the input of index i; of the own index it may be the input itself.
  virtual Status allGatherRuns(const Group &group, const ElementType &type, const Runs &input,
                               const std::vector<Runs> &outputs, const std::string &place);
  /// output: the sum of everybody's inputs[own index], and may be that of this rank.
  virtual Status reduceScatterRuns(const Group &group, const ElementType &type,
                                   const std::vector<Runs> &inputs, const Runs &output,
                                   const std::string &place);
  /// inputs[j] goes to index j; outputs[j] comes from index j. All are of one size.
  virtual Status allToAllRuns(const Group &group, const ElementType &type,
                              const std::vector<Runs> &inputs, const std::vector<Runs> &outputs,
                              const std::string &place);
  /// The elements of a tensor of this type and arithmetic, one after the other. The memory may
  /// change when `sendBytes` returns. A message may be received in the other form.
  virtual Status sendBytes(int64_t to, Tag tag, const kernels::TensorType &type,
                           kernels::Arith arith, const unsigned char *from,
                           const std::string &place);
  virtual Status recvBytes(int64_t from, Tag tag, const kernels::TensorType &type,
                           kernels::Arith arith, unsigned char *into, const std::string &place);

  /// What this rank has sent since it was connected; nothing from a backend that does not count.
  virtual std::optional<SentBytes> sent() const { return std::nullopt; }
};

/// The index of a rank in a group. KernelError if it is not in it.
size_t indexIn(const Group &group, int64_t rank);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_COMMUNICATOR_H
