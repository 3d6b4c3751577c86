//===- Communicator.h - Communication between ranks ------------------------===//
//
// Part of tbc. Plain C++. Backends implement this interface. Every call exists in two forms: on
// tensors, of any arithmetic, and on memory, without any conversion.
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

/// The ranks of a collective, ordered by index. All of them pass the same list.
using Group = std::vector<int64_t>;

/// Sum, Avg and PremulSum add in group order and round once. NCCL adds floats in its own order and
/// rounds each time. Integers wrap around, and their Avg is the truncated quotient of the sum. The
/// bitwise kinds are for integers and booleans. Example: the Avg of the integers 1 and 2 is 1.
enum class ReduceKind { Sum, Max, Min, Product, Avg, BitAnd, BitOr, BitXor, PremulSum };
inline constexpr int numReduceKinds = 9;

/// Returns "sum", "max", "min", "product", "avg", "bit_and", "bit_or", "bit_xor" or "premul_sum".
std::string_view name(ReduceKind kind);

/// The reduction of an all_reduce. PremulSum multiplies every element by `factor` before the sum;
/// `factor` is an integer for integers.
struct Reduction {
  ReduceKind kind;
  double factor;
  Reduction(ReduceKind kind, double factor = 1) : kind(kind), factor(factor) {} // NOLINT
  bool operator==(const Reduction &o) const { return kind == o.kind && factor == o.factor; }
};

/// The name of a message, equal on both sides. Messages of one lane between two ranks arrive in the
/// order of sending. A receive in one lane does not wait for messages of another.
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

/// A running communication.
class Request {
public:
  virtual ~Request() = default;
  /// Returns the received tensor, or an error. A send or barrier gives a tensor without value. Call
  /// once.
  virtual Result<kernels::Tensor> wait() = 0;
};
using RequestPtr = std::unique_ptr<Request>;

/// A finished request, as returned by blocking backends.
class EndedRequest : public Request {
public:
  explicit EndedRequest(Result<kernels::Tensor> result) : result(std::move(result)) {}
  Result<kernels::Tensor> wait() override { return std::move(result); }

private:
  Result<kernels::Tensor> result;
};

/// Bytes that a rank has sent to others, contents of messages only.
struct SentBytes {
  int64_t withinHost = 0, acrossHosts = 0;
};

/// One rank's access to the others.
///
/// The ranks of a group make the same calls on it in the same order: the k-th calls of all meet.
/// Calls that meet must agree in kind, type and size. If they differ, or if a rank fails or is
/// late, every waiting rank gets an error naming both sides. `place` is the caller's position in
/// its program, for these errors.
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
  /// [m] -> [m], of the input's shape: the input of index `root`. The other ranks' inputs only give
  /// the type.
  virtual RequestPtr broadcast(const Group &group, int64_t root, const kernels::Tensor &input,
                               const std::string &place) = 0;
  /// [m] -> [n*m]: the inputs of all, in group order. Example: n = 2 and inputs {1, 2}, {3, 4} give
  /// {1, 2, 3, 4}.
  virtual RequestPtr allGather(const Group &group, const kernels::Tensor &input,
                               const std::string &place) = 0;
  /// [n*m] -> [m]: the sum over the group; index i keeps elements i*m to (i+1)*m.
  virtual RequestPtr reduceScatter(const Group &group, const kernels::Tensor &input,
                                   const std::string &place) = 0;
  /// [n*m] -> [n*m]: part j of the input goes to index j; part j of the result comes from index j.
  virtual RequestPtr allToAll(const Group &group, const kernels::Tensor &input,
                              const std::string &place) = 0;
  /// Waits until the whole group has called it.
  virtual RequestPtr barrier(const Group &group, const std::string &place) = 0;

  /// Sends the tensor without waiting for the receiver. `tag` names the message.
  virtual RequestPtr send(int64_t to, Tag tag, const kernels::Tensor &input,
                          const std::string &place) = 0;
  /// Receives the next message from `from` in the tag's lane. It must have this channel and type.
  virtual RequestPtr recv(int64_t from, Tag tag, const kernels::TensorType &type,
                          const std::string &place) = 0;

  // The same calls on memory. They return when they are done. The defaults here convert to tensors;
  // backends that move bytes override them. All ranks of a group call the same form. Parts may
  // differ in size between indices, but all ranks agree on the size of each index. Outputs do not
  // overlap inputs or each other, except as stated. Errors: as above.

  /// output = the reduction of the inputs. An output run may be the input run with its number; runs
  /// of equal number have equal sizes.
  virtual Status allReduceRuns(const Group &group, Reduction reduction, const ElementType &type,
                               const Runs &input, const Runs &output, const std::string &place);
  /// outputs[i] = the input of index i. outputs[own index] may be the input itself.
  virtual Status allGatherRuns(const Group &group, const ElementType &type, const Runs &input,
                               const std::vector<Runs> &outputs, const std::string &place);
  /// output = the sum over all ranks of their inputs[own index]. It may be this rank's inputs[own
  /// index].
  virtual Status reduceScatterRuns(const Group &group, const ElementType &type,
                                   const std::vector<Runs> &inputs, const Runs &output,
                                   const std::string &place);
  /// inputs[j] goes to index j; outputs[j] comes from index j. All have one size.
  virtual Status allToAllRuns(const Group &group, const ElementType &type,
                              const std::vector<Runs> &inputs, const std::vector<Runs> &outputs,
                              const std::string &place);
  /// Sends or receives the elements of a tensor of this type and arithmetic as consecutive bytes.
  /// The memory may change after `sendBytes` returns. Both forms may be mixed for one message.
  virtual Status sendBytes(int64_t to, Tag tag, const kernels::TensorType &type,
                           kernels::Arith arith, const unsigned char *from,
                           const std::string &place);
  virtual Status recvBytes(int64_t from, Tag tag, const kernels::TensorType &type,
                           kernels::Arith arith, unsigned char *into, const std::string &place);

  /// Returns the bytes sent by this rank since it connected; nullopt from a backend without
  /// counters.
  virtual std::optional<SentBytes> sent() const { return std::nullopt; }
};

/// Returns the index of a rank in a group. KernelError if the rank is not in it.
size_t indexIn(const Group &group, int64_t rank);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_COMMUNICATOR_H
