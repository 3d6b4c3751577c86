//===- Together.cpp - Control and collective warp operations ---------------===//

#include "tests/ptx/Lanes.h"

#include <algorithm>

namespace tbc::ptx {
namespace {

//===----------------------------------------------------------------------===//
// Control
//===----------------------------------------------------------------------===//

void nothing(Warp &, const Instruction &) {}

void decodeBranch(Decoder &d) {
  d.take("uni");
  if (d.operand(0).kind != Operand::Kind::Label)
    d.fail("a branch to what is no label");
  d.instruction.control = Control::Branch;
}
void decodeExit(Decoder &d) {
  d.take("uni");
  d.instruction.control = Control::Exit;
}
void trap(Warp &warp, const Instruction &i) { warp.fail(i, "a trap"); }

//===----------------------------------------------------------------------===//
// Shuffles and votes
//===----------------------------------------------------------------------===//

enum class Shuffle : uint8_t { Up, Down, Butterfly, Index };

/// at: result, predicate (or -1), value, lane operand, clamp and segment mask, members.
void shuffle(Warp &warp, const Instruction &i) {
  const auto *value = warp.at<uint32_t>(i.at[2]), *b = warp.at<uint32_t>(i.at[3]),
             *c = warp.at<uint32_t>(i.at[4]), *members = warp.at<uint32_t>(i.at[5]);
  uint32_t out[warpLanes] = {}, inRange = 0;
  for (int lane = 0; lane < warpLanes; ++lane) {
    if (!(warp.lanes >> lane & 1))
      continue;
    if (!(members[lane] >> lane & 1))
      warp.fail(i, "the lane is not one of the members of its shuffle", lane);
    warp.needLanes(i, members[lane]);
    int offset = int(b[lane] & 31), clamp = int(c[lane] & 31), segment = int(c[lane] >> 8 & 31);
    int highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment;
    int source = 0;
    bool isInside = false;
    switch (Shuffle(i.variant)) {
    case Shuffle::Up:
      source = lane - offset;
      isInside = source >= highest;
      break;
    case Shuffle::Down:
      source = lane + offset;
      isInside = source <= highest;
      break;
    case Shuffle::Butterfly:
      source = lane ^ offset;
      isInside = source <= highest;
      break;
    case Shuffle::Index:
      source = lowest | (offset & ~segment);
      isInside = source <= highest;
      break;
    }
    if (!isInside)
      source = lane;
    if (!(warp.lanes >> source & 1))
      warp.fail(i, "it reads lane " + std::to_string(source) + ", which takes no part", lane);
    out[lane] = value[source];
    inRange |= uint32_t(isInside) << lane;
  }
  each<uint32_t>(warp, i.at[0], [&](int lane) { return out[lane]; });
  if (i.at[1] >= 0)
    setMask(warp, i.at[1], inRange);
}
void decodeShuffle(Decoder &d) {
  if (!d.take("sync"))
    d.fail("shfl without .sync");
  std::string mode = d.oneOf({"up", "down", "bfly", "idx"});
  d.type();
  Instruction &i = d.instruction;
  i.variant = uint8_t(mode == "up"     ? Shuffle::Up
                      : mode == "down" ? Shuffle::Down
                      : mode == "bfly" ? Shuffle::Butterfly
                                       : Shuffle::Index);
  i.at[0] = d.write(0, 4);
  i.at[1] = d.operand(0).second;
  for (size_t index = 1; index <= 4; ++index)
    i.at[index + 1] = d.read(index, 4);
  i.action = shuffle;
}

enum class Vote : uint8_t { All, Any, Uniform, Ballot };
/// at: result, predicate, members. Count 2: the predicate is negated.
void vote(Warp &warp, const Instruction &i) {
  const auto *members = warp.at<uint32_t>(i.at[2]);
  uint32_t predicate = warp.mask(i.at[1]);
  predicate = i.count == 2 ? ~predicate : predicate;
  uint32_t ballots[warpLanes] = {}, results = 0;
  for (int lane = 0; lane < warpLanes; ++lane) {
    if (!(warp.lanes >> lane & 1))
      continue;
    uint32_t those = members[lane] & warp.lanes;
    if (!(those >> lane & 1))
      warp.fail(i, "the lane is not one of the members of its vote", lane);
    warp.needLanes(i, members[lane]);
    uint32_t ones = those & predicate;
    ballots[lane] = ones;
    bool result = Vote(i.variant) == Vote::All   ? ones == those
                  : Vote(i.variant) == Vote::Any ? ones != 0
                                                 : ones == those || ones == 0;
    results |= uint32_t(result) << lane;
  }
  if (Vote(i.variant) == Vote::Ballot)
    each<uint32_t>(warp, i.at[0], [&](int lane) { return ballots[lane]; });
  else
    setMask(warp, i.at[0], results);
}
void decodeVote(Decoder &d) {
  if (!d.take("sync"))
    d.fail("vote without .sync");
  std::string mode = d.oneOf({"all", "any", "uni", "ballot"});
  Type type = d.type();
  Instruction &i = d.instruction;
  i.variant = uint8_t(mode == "all"   ? Vote::All
                      : mode == "any" ? Vote::Any
                      : mode == "uni" ? Vote::Uniform
                                      : Vote::Ballot);
  i.at[0] = d.write(0, bytesOf(type));
  Operand predicate = d.operand(1);
  i.count = predicate.isNegated ? 2 : 1;
  predicate.isNegated = false;
  i.at[1] = d.read(predicate, 0);
  i.at[2] = d.read(2, 4);
  i.action = vote;
}

void activeMask(Warp &warp, const Instruction &i) {
  uint32_t lanes = warp.lanes;
  each<uint32_t>(warp, i.at[0], [=](int) { return lanes; });
}

/// redux.sync: reduces the values of the members.
template <typename T, typename Op> void reduce(Warp &warp, const Instruction &i) {
  const T *value = warp.at<T>(i.at[1]);
  const auto *members = warp.at<uint32_t>(i.at[2]);
  T out[warpLanes] = {};
  for (int lane = 0; lane < warpLanes; ++lane) {
    if (!(warp.lanes >> lane & 1))
      continue;
    warp.needLanes(i, members[lane]);
    bool isFirst = true;
    for (int other = 0; other < warpLanes; ++other)
      if (members[lane] & warp.lanes & 1U << other) {
        out[lane] = isFirst ? value[other] : Op()(out[lane], value[other]);
        isFirst = false;
      }
  }
  each<T>(warp, i.at[0], [&](int lane) { return out[lane]; });
}
struct Add {
  template <typename T> T operator()(T a, T b) const { return T(uint32_t(a) + uint32_t(b)); }
};
struct Minimum {
  template <typename T> T operator()(T a, T b) const { return std::min(a, b); }
};
struct Maximum {
  template <typename T> T operator()(T a, T b) const { return std::max(a, b); }
};
struct And {
  template <typename T> T operator()(T a, T b) const { return a & b; }
};
struct Or {
  template <typename T> T operator()(T a, T b) const { return a | b; }
};
struct Xor {
  template <typename T> T operator()(T a, T b) const { return a ^ b; }
};
void decodeReduce(Decoder &d) {
  d.take("sync");
  std::string name = d.oneOf({"add", "min", "max", "and", "or", "xor"});
  bool isSignedType = isSigned(d.type());
  takeOperands(d, 4, 2);
  Action &action = d.instruction.action;
  if (name == "min")
    action = isSignedType ? reduce<int32_t, Minimum> : reduce<uint32_t, Minimum>;
  else if (name == "max")
    action = isSignedType ? reduce<int32_t, Maximum> : reduce<uint32_t, Maximum>;
  else
    action = name == "add"   ? reduce<uint32_t, Add>
             : name == "and" ? reduce<uint32_t, And>
             : name == "or"  ? reduce<uint32_t, Or>
                             : reduce<uint32_t, Xor>;
}

/// match.any.sync: returns the members with the same value.
template <typename T> void match(Warp &warp, const Instruction &i) {
  const T *value = warp.at<T>(i.at[1]);
  const auto *members = warp.at<uint32_t>(i.at[2]);
  uint32_t out[warpLanes] = {};
  for (int lane = 0; lane < warpLanes; ++lane) {
    if (!(warp.lanes >> lane & 1))
      continue;
    warp.needLanes(i, members[lane]);
    for (int other = 0; other < warpLanes; ++other)
      if ((members[lane] & warp.lanes & 1U << other) && value[other] == value[lane])
        out[lane] |= 1U << other;
  }
  each<uint32_t>(warp, i.at[0], [&](int lane) { return out[lane]; });
}
void decodeMatch(Decoder &d) {
  if (!d.take("any"))
    d.fail("match.all");
  d.take("sync");
  int bytes = bytesOf(d.type());
  d.instruction.at[0] = d.write(0, 4);
  d.instruction.at[1] = d.read(1, bytes);
  d.instruction.at[2] = d.read(2, 4);
  d.instruction.action = bytes == 4 ? match<uint32_t> : match<uint64_t>;
}

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

enum class Arrival : uint8_t { Sync, Arrive, ReduceOnes, ReduceAnd, ReduceOr };
constexpr uint8_t hasCount = 2; // of Instruction::count: the thread count is an operand

/// at: number, threads; for a reduction also its result and predicate. A reduction is executed
/// again when its barrier is released, to read the result.
void arrive(Warp &warp, const Instruction &i) {
  ThreadBlock &block = warp.block;
  int lane = __builtin_ctz(warp.lanes);
  uint32_t number = warp.at<uint32_t>(i.at[0])[lane];
  if (number >= block.barriers.size())
    warp.fail(i, "there is no barrier " + std::to_string(number));
  Barrier &barrier = block.barriers[number];
  if (warp.waiting == &i) {
    warp.waiting = nullptr;
    uint32_t ones = barrier.ones;
    if (Arrival(i.variant) == Arrival::ReduceOnes)
      each<uint32_t>(warp, i.at[2], [=](int) { return ones; });
    else
      setMask(warp, i.at[2],
              (Arrival(i.variant) == Arrival::ReduceAnd ? ones == barrier.expected : ones > 0)
                  ? allLanes
                  : 0);
    return;
  }
  uint64_t threads = block.run.launch.threads.count();
  uint32_t expected = i.count == hasCount ? warp.at<uint32_t>(i.at[1])[lane] : uint32_t(threads);
  if (barrier.arrived != 0 && barrier.expected != expected)
    warp.fail(i, "others wait at this barrier for another number of threads");
  barrier.expected = expected;
  // A count includes whole warps.
  barrier.arrived += i.count == hasCount ? warpLanes : uint32_t(__builtin_popcount(warp.lanes));
  if (barrier.arrived > expected)
    warp.fail(i, "more threads come to the barrier than it takes");
  if (i.variant >= uint8_t(Arrival::ReduceOnes)) {
    uint32_t predicate = warp.mask(i.at[3]);
    barrier.ones += uint32_t(__builtin_popcount(predicate & warp.lanes));
  }
  if (Arrival(i.variant) != Arrival::Arrive) {
    warp.barrier = int(number);
    warp.waiting = &i;
  }
}

void decodeBarrier(Decoder &d) {
  Instruction &i = d.instruction;
  if (d.take("warp")) {
    d.take("sync");
    i.at[0] = d.read(0, 4);
    i.action = [](Warp &warp, const Instruction &instruction) {
      warp.needLanes(instruction, warp.at<uint32_t>(instruction.at[0])[__builtin_ctz(warp.lanes)]);
    };
    return;
  }
  d.take("cta"), d.take("aligned");
  std::string kind = d.oneOf({"sync", "arrive", "red"});
  i.control = Control::Barrier;
  i.action = arrive;
  i.variant = uint8_t(kind == "arrive" ? Arrival::Arrive : Arrival::Sync);
  size_t next = 0;
  if (kind == "red") {
    std::string op = d.oneOf({"popc", "and", "or"});
    int bytes = bytesOf(d.type());
    i.variant = uint8_t(op == "popc"  ? Arrival::ReduceOnes
                        : op == "and" ? Arrival::ReduceAnd
                                      : Arrival::ReduceOr);
    i.at[2] = d.write(next++, bytes);
  }
  i.at[0] = d.read(next++, 4);
  size_t last = d.numOperands() - (kind == "red" ? 1 : 0);
  if (next < last) {
    i.at[1] = d.read(next, 4);
    i.count = hasCount;
  }
  if (kind == "red")
    i.at[3] = d.read(last, 0);
}

} // namespace

const DecodeTable &warpInstructions() {
  static const DecodeTable table = {
      {"bra", decodeBranch},
      {"ret", decodeExit},
      {"exit", decodeExit},
      {"trap", [](Decoder &d) { d.instruction.action = trap; }},
      {"nanosleep",
       [](Decoder &d) {
         d.type();
         d.instruction.action = nothing;
       }},
      {"shfl", decodeShuffle},
      {"vote", decodeVote},
      {"activemask",
       [](Decoder &d) {
         d.type();
         d.instruction.at[0] = d.write(0, 4);
         d.instruction.action = activeMask;
       }},
      {"redux", decodeReduce},
      {"match", decodeMatch},
      {"bar", decodeBarrier},
      {"barrier", decodeBarrier},
  };
  return table;
}

} // namespace tbc::ptx
