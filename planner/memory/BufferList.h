//===- BufferList.h - Buffers in the order of instructions -----------------===//
//
// Plain C++. Internal to Buffers.cpp and UpdateBuffers.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_MEMORY_BUFFERLIST_H
#define TBC_PLANNER_MEMORY_BUFFERLIST_H

#include "planner/memory/Buffers.h"
#include "runtime/memory/Streams.h"

#include <algorithm>
#include <utility>

namespace tbc::planner {

/// Instructions with the buffers that they read and make. A buffer is named by its index; `inSlot`
/// stands for a value in a slot.
class BufferList {
public:
  static constexpr int inSlot = -1;

  /// What executes an instruction. Nest: a kernel of one nest of loops; values that only it reads
  /// stay in registers. Packed: one op on a packed tensor, whose parts take no bytes.
  enum class Form { Other, Communication, Matmul, Nest, Packed };

  /// Begins an instruction for graph op `op`.
  void next(int op = -1, Form form = Form::Other) {
    productOperands.clear();
    if (!forms.empty() && forms.back() == Form::Matmul && form == Form::Nest)
      productOperands = lastReads;
    lastReads.clear();
    run = noRun;
    buffers.opOf.push_back(op);
    forms.push_back(form);
    uses.push_back({form == Form::Communication, {}});
  }
  /// Begins a nest, or goes on with the one before if that has the same `number` and nothing came
  /// in between.
  void nextInRun(int number) {
    if (run != number)
      next(-1, Form::Nest);
    run = number;
  }
  void read(int buffer) {
    if (buffer == inSlot)
      return;
    use(buffer);
    lastReads.push_back(buffer);
    // A library may execute a matmul together with the nest behind it, which then reads its
    // operands.
    if (!productOperands.empty() && usersOf[buffer].front() == now() - 1)
      for (int operand : std::exchange(productOperands, {}))
        use(operand);
  }
  int make(double bytes, BufferKind kind) {
    buffers.lifetimes.push_back({int64_t(bytes), now(), now()});
    buffers.kinds.push_back(kind);
    usersOf.push_back({now()});
    isKept.push_back(false);
    return int(buffers.kinds.size()) - 1;
  }
  /// Returns the number of the current instruction; -1: none yet.
  int instruction() const { return now(); }
  /// Returns the instruction that made `buffer` if that is communication, else -1.
  int messageOf(int buffer) const {
    if (buffer == inSlot)
      return -1;
    int maker = usersOf[size_t(buffer)].front();
    return forms[size_t(maker)] == Form::Communication ? maker : -1;
  }
  /// Marks `buffer` as a result of the block.
  void keep(int buffer) {
    if (buffer != inSlot)
      isKept[buffer] = true;
  }
  /// Marks `buffer` as made in a slot, so it takes no bytes of its own.
  void moveToSlot(int buffer) {
    if (buffer != inSlot)
      buffers.lifetimes[buffer].bytes = 0;
  }

  /// Adds one instruction per step of a resharding of `elements` elements in `from`. Returns the
  /// last result, or `from` if there are no steps. The last result has kind `lastKind`, the others
  /// Collective.
  int addSteps(const std::vector<reshard::Collective> &steps, int from, int64_t elements,
               int64_t elementBytes, BufferKind lastKind, int op = -1) {
    for (size_t i = 0; i < steps.size(); ++i) {
      elements = elementsAfter(steps[i], elements);
      bool isSlice = steps[i].kind == reshard::CollectiveKind::ShardSlice;
      next(op, isSlice ? Form::Other : Form::Communication);
      read(from);
      from = make(double(elements * elementBytes),
                  i + 1 == steps.size() ? lastKind : BufferKind::Collective);
    }
    return from;
  }

  /// A member of a bucket: its current buffer, the source of its next step.
  struct Member {
    const reshard::Reshard *reshard;
    int buffer;
    int64_t elements, elementBytes;
    BufferKind lastKind = BufferKind::Collective; // of the last result
    size_t at = 0;                                // into its steps
  };

  /// Adds the reshards of a bucket: slices one by one, messages together. Leaves the results in
  /// `members`.
  void addBucket(std::vector<Member> &members, int op = -1) {
    auto isAtMessage = [](const Member &member) {
      return member.at < member.reshard->steps.size();
    };
    auto skipSlices = [&](Member &member) {
      const std::vector<reshard::Collective> &steps = member.reshard->steps;
      for (; isAtMessage(member) && steps[member.at].kind == reshard::CollectiveKind::ShardSlice;
           ++member.at) {
        next(op);
        read(member.buffer);
        takeStep(member);
      }
    };
    for (;;) {
      std::for_each(members.begin(), members.end(), skipSlices);
      if (members.empty() || !isAtMessage(members.front()))
        return; // all members have the same number of messages
      next(op, Form::Communication);
      for (const Member &member : members)
        read(member.buffer);
      for (Member &member : members) {
        takeStep(member);
        ++member.at;
      }
    }
  }

  /// Returns the buffers. Communication runs beside later instructions, so a buffer lives until the
  /// next instruction is known to begin after all its users.
  BlockBuffers finish() {
    memory::StreamOrder order(memory::overlapCommunication(uses));
    for (size_t buffer = 0; buffer < usersOf.size(); ++buffer) {
      int maker = usersOf[buffer].front();
      const bool keepsInside = forms[maker] == Form::Nest || forms[maker] == Form::Packed;
      bool isInside = keepsInside && !isKept[buffer];
      for (int user : usersOf[buffer]) {
        isInside = isInside && user == maker;
        buffers.lifetimes[buffer].last =
            std::max(buffers.lifetimes[buffer].last, int64_t(order.settled(user)) - 1);
      }
      if (isInside)
        buffers.lifetimes[buffer].bytes = 0;
    }
    return std::move(buffers);
  }

private:
  /// Makes the result of the member's step in the current instruction.
  void takeStep(Member &member) {
    const std::vector<reshard::Collective> &steps = member.reshard->steps;
    member.elements = elementsAfter(steps[member.at], member.elements);
    member.buffer = make(double(member.elements * member.elementBytes),
                         member.at + 1 == steps.size() ? member.lastKind : BufferKind::Collective);
  }

  void use(int buffer) {
    usersOf[buffer].push_back(now());
    if (usersOf[buffer].front() != now())
      uses.back().sources.push_back(usersOf[buffer].front());
  }

  int now() const { return int(buffers.opOf.size()) - 1; }

  /// Returns the elements of a rank after a step, from `elements` before it.
  static int64_t elementsAfter(const reshard::Collective &step, int64_t elements) {
    int64_t n = reshard::groupSize(step.axes);
    switch (step.kind) {
    case reshard::CollectiveKind::AllGather:
      return step.dim < 0 ? step.numElements : elements * n;
    case reshard::CollectiveKind::ReduceScatter:
    case reshard::CollectiveKind::ShardSlice:
      return step.dim < 0 ? (step.numElements + n - 1) / n : elements / n;
    case reshard::CollectiveKind::AllToAll:
      return step.tokens == reshard::TokenWay::Out    ? int64_t(double(elements * n) * step.share)
             : step.tokens == reshard::TokenWay::Back ? elements / n
                                                      : elements;
    case reshard::CollectiveKind::AllReduce:
    case reshard::CollectiveKind::Send:
    case reshard::CollectiveKind::Permute:
      break;
    }
    return elements;
  }

  static constexpr int noRun = -2;

  BlockBuffers buffers;
  std::vector<memory::StreamUse> uses;   // by instruction
  std::vector<Form> forms;               // by instruction
  std::vector<int> lastReads;            // of the current instruction
  std::vector<int> productOperands;      // of the matmul before, if the current is a nest
  std::vector<bool> isKept;              // by buffer
  int run = noRun;                       // of the current instruction
  std::vector<std::vector<int>> usersOf; // by buffer: its maker, then its readers
};

} // namespace tbc::planner

#endif // TBC_PLANNER_MEMORY_BUFFERLIST_H
