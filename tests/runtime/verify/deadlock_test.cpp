//===- deadlock_test.cpp - Matching and deadlock against exhaustive search -===//
//
// Random schedules of 2 to 4 stages with up to 6 operations each: sends, receives, and meetings of
// some of the stages. Half of them come from a valid one by swapping, dropping, doubling and
// retargeting; the rest are random altogether.
//
//===----------------------------------------------------------------------===//

#include "runtime/verify/Events.h"
#include "tests/runtime/support/FullTests.h"
#include "tests/runtime/verify/InterleavingSearch.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <tuple>

namespace tbc::verify {
namespace {

using namespace tbc::program;

/// One operation of a stage.
struct StageOp {
  InstructionKind kind = InstructionKind::AllReduce;
  int peer = -1;
  int64_t channel = 0;
  std::vector<int> stages;
  bool overData = false; // a meeting over the data axis too
  bool isMax = false;
};
using Schedule = std::vector<std::vector<StageOp>>;

constexpr size_t maxOps = 6;

class ScheduleMaker {
public:
  explicit ScheduleMaker(unsigned seed) : random(seed) {}

  Schedule make(int numStages, size_t most, bool hasData) {
    Schedule schedule(numStages);
    bool isRandom = below(8) == 0;
    for (unsigned i = 0, n = 1 + below(unsigned(most) + 2); i < n; ++i)
      isRandom ? addAlone(schedule, hasData) : addTogether(schedule, hasData);
    if (!isRandom)
      disturb(schedule);
    for (std::vector<StageOp> &ops : schedule)
      if (ops.size() > most)
        ops.resize(most);
    return schedule;
  }
  unsigned below(unsigned n) { return unsigned(random() % n); }

private:
  StageOp randomMeeting(int numStages, bool hasData) {
    StageOp meet;
    for (int s = 0; s < numStages; ++s)
      if (numStages == 2 || below(3))
        meet.stages.push_back(s);
    meet.overData = hasData && below(2);
    meet.isMax = below(8) == 0;
    return meet;
  }
  int otherStage(int stage, int numStages) {
    return (stage + 1 + int(below(unsigned(numStages) - 1))) % numStages;
  }

  /// An operation with its counterparts, each at the end of its stage.
  void addTogether(Schedule &schedule, bool hasData) {
    int numStages = int(schedule.size());
    if (below(3) == 0) {
      StageOp meet = randomMeeting(numStages, hasData);
      for (int s : meet.stages)
        schedule[s].push_back(meet);
      return;
    }
    int from = int(below(unsigned(numStages))), to = otherStage(from, numStages);
    int64_t channel = 1 + nextChannel++ % 100;
    schedule[from].push_back({InstructionKind::Send, to, channel, {}, false, false});
    schedule[to].push_back({InstructionKind::Recv, from, channel, {}, false, false});
  }

  /// An operation of one stage, whatever the others do.
  void addAlone(Schedule &schedule, bool hasData) {
    int numStages = int(schedule.size()), stage = int(below(unsigned(numStages)));
    StageOp op = randomMeeting(numStages, hasData);
    bool takesPart = std::count(op.stages.begin(), op.stages.end(), stage) != 0;
    if (!takesPart || below(3)) {
      op = {below(2) ? InstructionKind::Send : InstructionKind::Recv,
            otherStage(stage, numStages),
            1,
            {},
            false,
            false};
    }
    schedule[stage].push_back(op);
  }

  void disturb(Schedule &schedule) {
    unsigned swapsOneIn = 2 + below(12);
    for (int stage = 0; stage < int(schedule.size()); ++stage) {
      std::vector<StageOp> &ops = schedule[stage];
      for (size_t i = 1; i < ops.size(); ++i)
        if (below(swapsOneIn) == 0)
          std::swap(ops[i - 1], ops[i]);
      if (ops.empty() || below(10))
        continue;
      auto at = ops.begin() + int(below(unsigned(ops.size())));
      switch (below(4)) {
      case 0:
        ops.erase(at);
        break;
      case 1:
        ops.insert(at, StageOp(*at));
        break;
      case 2:
        at->channel += at->channel > 0;
        at->isMax = !at->isMax;
        break;
      default:
        if (at->peer >= 0)
          at->peer = otherStage(stage, int(schedule.size()));
      }
    }
  }

  std::mt19937 random;
  int64_t nextChannel = 0;
};

/// A Program whose forward blocks do this, with stages as axis 0 and `numData` ranks each.
Program programOf(const Schedule &schedule, int64_t numData) {
  Program program;
  program.mesh.axes = {{"pp", int64_t(schedule.size())}, {"dp", numData}};
  program.pipelineAxis = 0;
  program.schedule.generator = "gpipe";
  program.stages.resize(schedule.size());
  for (size_t s = 0; s < schedule.size(); ++s) {
    Stage &stage = program.stages[s];
    auto newValue = [&] {
      stage.values.push_back({kernels::DType::F32, {}});
      return ValueId(stage.values.size()) - 1;
    };
    ValueId last = newValue();
    stage.chunks[0].forward.instructions.push_back(
        {"first", InstructionKind::Kernel, "constant", {}, {}, {}, {last}});
    for (const StageOp &op : schedule[s]) {
      Instruction instruction;
      instruction.id = "op" + std::to_string(stage.chunks[0].forward.instructions.size());
      instruction.kind = op.kind;
      instruction.comm.peerStage = op.peer;
      instruction.comm.channel = op.channel;
      if (op.kind != InstructionKind::Recv)
        instruction.operands = {last};
      if (op.kind == InstructionKind::AllReduce) {
        instruction.comm.axes = {wholeAxis(program.mesh, 0)};
        if (op.overData)
          instruction.comm.axes.push_back(wholeAxis(program.mesh, 1));
        instruction.comm.stages = op.stages;
        instruction.comm.reduce = op.isMax ? ReduceKind::Max : ReduceKind::Sum;
      }
      if (op.kind != InstructionKind::Send) {
        last = newValue();
        instruction.results = {last};
      }
      stage.chunks[0].forward.instructions.push_back(std::move(instruction));
    }
  }
  return program;
}

struct Counts {
  int64_t schedules = 0, states = 0, stuck[2] = {0, 0}, accepted = 0, mismatched = 0;
};

/// Whether two messages between two stages have one name.
bool hasAmbiguousChannel(const Program &program) {
  for (const Stage &stage : program.stages) {
    std::set<std::tuple<InstructionKind, int, int64_t>> seen;
    for (const Instruction &i : stage.chunks[0].forward.instructions)
      if (i.comm.peerStage >= 0 && !seen.insert({i.kind, i.comm.peerStage, i.comm.channel}).second)
        return true;
  }
  return false;
}

/// The index of the instruction at which each stage waits forever, or -1.
std::vector<int> stagesStuckAt(const Events &events, const std::vector<size_t> &reached) {
  std::vector<int> result;
  for (size_t s = 0; s < reached.size(); ++s) {
    const std::vector<Event> &list = events.ofStage[s];
    result.push_back(reached[s] < list.size() ? list[reached[s]].instruction : -1);
  }
  return result;
}

std::vector<int> stagesStuckAt(const Program &program,
                               const std::vector<std::vector<RankOp>> &ranks,
                               const Outcomes &outcomes) {
  std::vector<int> result(program.stages.size(), -1);
  for (size_t rank = 0; rank < outcomes.stuckAt.size(); ++rank) {
    int at = outcomes.stuckAt[rank];
    if (at >= 0)
      result[program.stageOf(program.mesh.coordinates(int64_t(rank)))] =
          ranks[rank][at].instruction;
  }
  return result;
}

void compare(const Program &program, Counts &counts) {
  ASSERT_TRUE(checkWellFormed(program)) << checkWellFormed(program).error().message;
  std::vector<std::vector<RankOp>> ranks = rankOps(program);
  Events events = eventsOf(program);
  bool matches = bool(checkMatching(program));
  for (SendSemantics semantics : {SendSemantics::Buffered, SendSemantics::Rendezvous}) {
    bool isBuffered = semantics == SendSemantics::Buffered;
    Outcomes truth = InterleavingSearch(ranks, isBuffered).run();
    // Which of the orders is taken makes no difference: the claim that the check rests on.
    ASSERT_EQ(truth.numEnds, 1) << show(program);
    std::vector<int> expected(program.stages.size(), -1);
    if (truth.canGetStuck)
      expected = stagesStuckAt(program, ranks, truth);
    ASSERT_EQ(stagesStuckAt(events, runEvents(events, semantics)), expected) << show(program);

    Status status = checkDeadlock(program, semantics);
    ASSERT_EQ(bool(status), !truth.canGetStuck) << show(program);
    for (size_t s = 0; s < expected.size(); ++s) {
      if (expected[s] >= 0)
        ASSERT_NE(status.error().message.find(
                      describe(program, int(s), schedule::Action::Kind::Forward, expected[s])),
                  std::string::npos)
            << status.error().message;
    }
    if (isBuffered) {
      // Both checks together: every order comes to its end, and everything that meets fits.
      bool isRight = !truth.canGetStuck && !truth.canMismatch && !hasAmbiguousChannel(program);
      ASSERT_EQ(matches && status, isRight) << show(program);
      counts.accepted += isRight;
      counts.mismatched += truth.canMismatch;
    }
    counts.stuck[isBuffered] += truth.canGetStuck;
    counts.states += truth.numStates;
  }
  ++counts.schedules;
}

void report(const char *what, const Counts &counts) {
  std::printf("%s: %lld schedules, %lld states; stuck: %lld buffered, %lld rendezvous; "
              "%lld mismatched, %lld right\n",
              what, (long long)counts.schedules, (long long)counts.states,
              (long long)counts.stuck[1], (long long)counts.stuck[0], (long long)counts.mismatched,
              (long long)counts.accepted);
  for (int64_t count : {counts.stuck[0], counts.stuck[1], counts.accepted, counts.mismatched}) {
    EXPECT_GT(count, counts.schedules / 20); // every outcome was tried
    EXPECT_LT(count, counts.schedules * 19 / 20);
  }
}

TEST(Deadlock, AgreesWithExhaustiveSearch) {
  ScheduleMaker maker(3);
  Counts counts;
  for (int i = 0, n = test::sampleSize(150000, 1000000); i < n && !HasFatalFailure(); ++i)
    compare(programOf(maker.make(2 + int(maker.below(3)), maxOps, false), 1), counts);
  report("one rank per stage", counts);
}

/// The checks look at stages; so do two ranks of each, with collectives over both.
TEST(Deadlock, AgreesWithExhaustiveSearchOverAllRanks) {
  ScheduleMaker maker(4);
  Counts counts;
  for (int i = 0, n = test::sampleSize(5000, 50000); i < n && !HasFatalFailure(); ++i)
    compare(programOf(maker.make(2 + int(maker.below(2)), 4, true), 2), counts);
  report("two ranks per stage", counts);
}

} // namespace
} // namespace tbc::verify
