//===- deadlock_test.cpp - Matching and deadlock against exhaustive search -===//
//
// Random schedules of 2 to 4 stages with up to 6 operations each: sends, receives, and collectives
// between some stages. They use one lane, or several lanes with a stage's operations spread over
// the blocks of several chunks. Half of the schedules come from a valid one by swapping, dropping,
// doubling and retargeting. The others are fully random.
//
//===----------------------------------------------------------------------===//

#include "runtime/verify/Events.h"
#include "tests/runtime/support/FullTests.h"
#include "tests/runtime/verify/InterleavingSearch.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

namespace tbc::verify {
namespace {

using namespace tbc::program;

/// An operation of a stage.
struct StageOp {
  InstructionKind kind = InstructionKind::AllReduce;
  int peer = -1;
  int64_t channel = 0;
  std::vector<int> stages;
  bool overData = false; // a collective over the data axis too
  bool isMax = false;
  int lane = 0; // of a message
};
using Schedule = std::vector<std::vector<StageOp>>;

constexpr size_t maxOps = 6;

class ScheduleMaker {
public:
  explicit ScheduleMaker(unsigned seed, unsigned numLanes = 1) : random(seed), numLanes(numLanes) {}

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

  /// Adds an operation with its counterparts, each at the end of its stage.
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
    int lane = someLane();
    schedule[from].push_back({InstructionKind::Send, to, channel, {}, false, false, lane});
    schedule[to].push_back({InstructionKind::Recv, from, channel, {}, false, false, lane});
  }

  /// Adds an operation to one stage, without counterparts.
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
            false,
            someLane()};
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
        at->lane = at->peer >= 0 ? someLane() : 0;
        at->isMax = !at->isMax;
        break;
      default:
        if (at->peer >= 0)
          at->peer = otherStage(stage, int(schedule.size()));
      }
    }
  }

  int someLane() { return numLanes > 1 ? int(below(numLanes)) : 0; }

  std::mt19937 random;
  unsigned numLanes;
  int64_t nextChannel = 0;
};

/// The block of chunk `chunk` of a stage, with a value that messages may send.
struct ChunkBlock {
  Stage &stage;
  Block &block;
  ValueId last;

  ChunkBlock(Stage &stage, size_t chunk)
      : stage(stage), block(stage.chunks[chunk].forward), last(newValue()) {
    block.instructions.push_back(
        {"first", InstructionKind::Kernel, "constant", {}, {}, {}, {last}});
  }
  ValueId newValue() {
    stage.values.push_back({kernels::DType::F32, {}});
    return ValueId(stage.values.size()) - 1;
  }
  void add(const StageOp &op, const Mesh &mesh, size_t number) {
    Instruction instruction;
    instruction.id = "op" + std::to_string(number);
    instruction.kind = op.kind;
    instruction.comm.peerStage = op.peer;
    instruction.comm.channel = op.channel;
    instruction.comm.lane = op.lane;
    if (op.kind != InstructionKind::Recv)
      instruction.operands = {last};
    if (op.kind == InstructionKind::AllReduce) {
      instruction.comm.axes = {wholeAxis(mesh, 0)};
      if (op.overData)
        instruction.comm.axes.push_back(wholeAxis(mesh, 1));
      instruction.comm.stages = op.stages;
      instruction.comm.reduce = op.isMax ? ReduceKind::Max : ReduceKind::Sum;
    }
    if (op.kind != InstructionKind::Send) {
      last = newValue();
      instruction.results = {last};
    }
    block.instructions.push_back(std::move(instruction));
  }
};

/// Returns a Program whose forward blocks run `schedule`. Stages are axis 0 and have `numData`
/// ranks each. Each stage has `numChunks` chunks, which run in any order, each with a contiguous
/// part of the stage's operations.
Program programOf(const Schedule &schedule, int64_t numData, ScheduleMaker &maker,
                  size_t numChunks = 1) {
  Program program;
  program.mesh.axes = {{"pp", int64_t(schedule.size())}, {"dp", numData}};
  program.pipelineAxis = 0;
  program.schedule.generator = numChunks == 1 ? "gpipe" : "table";
  program.stages.resize(schedule.size());
  using ActionKind = schedule::Action::Kind;
  for (size_t chunk = 0; chunk < numChunks * schedule.size() && numChunks > 1; ++chunk)
    program.schedule.chunkStage.push_back(int(chunk % schedule.size()));
  for (size_t s = 0; s < schedule.size(); ++s) {
    Stage &stage = program.stages[s];
    stage.chunks.resize(numChunks);
    std::vector<int> order(numChunks);
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = numChunks; i > 1; --i)
      std::swap(order[i - 1], order[maker.below(unsigned(i))]);
    std::vector<ChunkBlock> blocks;
    for (size_t chunk = 0; chunk < numChunks; ++chunk)
      blocks.emplace_back(stage, chunk);
    size_t at = 0; // in `order`
    for (size_t i = 0; i < schedule[s].size(); ++i) {
      while (at + 1 < numChunks && maker.below(3) == 0)
        ++at;
      blocks[size_t(order[at])].add(schedule[s][i], program.mesh, i);
    }
    if (numChunks == 1)
      continue;
    std::vector<schedule::Action> &actions = program.schedule.table.emplace_back();
    for (ActionKind kind : {ActionKind::Forward, ActionKind::Backward})
      for (int chunk : order)
        actions.push_back({kind, 0, chunk});
    actions.push_back({ActionKind::Update, 0});
  }
  return program;
}

struct Counts {
  int64_t schedules = 0, states = 0, stuck[2] = {0, 0}, accepted = 0, mismatched = 0;
};

/// Returns whether two messages between two stages have the same name.
bool hasAmbiguousChannel(const Program &program) {
  for (const Stage &stage : program.stages) {
    std::set<std::tuple<InstructionKind, int, int64_t>> seen;
    for (const Chunk &chunk : stage.chunks)
      for (const Instruction &i : chunk.forward.instructions)
        if (i.comm.peerStage >= 0 &&
            !seen.insert({i.kind, i.comm.peerStage, i.comm.channel}).second)
          return true;
  }
  return false;
}

/// The chunk and the instruction at which each stage waits forever, or -1 twice.
using Place = std::pair<int, int>;
std::vector<Place> stagesStuckAt(const Events &events, const std::vector<size_t> &reached) {
  std::vector<Place> result(reached.size(), {-1, -1});
  for (size_t s = 0; s < reached.size(); ++s) {
    const std::vector<Event> &list = events.ofStage[s];
    if (reached[s] < list.size())
      result[s] = {list[reached[s]].action.chunk, list[reached[s]].instruction};
  }
  return result;
}

std::vector<Place> stagesStuckAt(const Program &program,
                                 const std::vector<std::vector<RankOp>> &ranks,
                                 const Outcomes &outcomes) {
  std::vector<Place> result(program.stages.size(), {-1, -1});
  for (size_t rank = 0; rank < outcomes.stuckAt.size(); ++rank) {
    int at = outcomes.stuckAt[rank];
    if (at >= 0)
      result[program.stageOf(program.mesh.coordinates(int64_t(rank)))] = {
          ranks[rank][at].chunk, ranks[rank][at].instruction};
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
    // All orders end in the same state. The checker relies on this claim.
    ASSERT_EQ(truth.numEnds, 1) << show(program);
    std::vector<Place> expected(program.stages.size(), {-1, -1});
    if (truth.canGetStuck)
      expected = stagesStuckAt(program, ranks, truth);
    ASSERT_EQ(stagesStuckAt(events, runEvents(events, semantics)), expected) << show(program);

    Status status = checkDeadlock(program, semantics);
    ASSERT_EQ(bool(status), !truth.canGetStuck) << show(program);
    for (size_t s = 0; s < expected.size(); ++s) {
      if (auto [chunk, instruction] = expected[s]; chunk >= 0)
        ASSERT_NE(status.error().message.find(describe(
                      program, int(s), {schedule::Action::Kind::Forward, chunk}, instruction)),
                  std::string::npos)
            << status.error().message;
    }
    if (isBuffered) {
      // Both checks together: every order finishes, and all matched operations fit.
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
    compare(programOf(maker.make(2 + int(maker.below(3)), maxOps, false), 1, maker), counts);
  report("one rank per stage", counts);
}

/// Messages in several lanes, and stages of several chunks.
TEST(Deadlock, AgreesWithExhaustiveSearchInLanesAndChunks) {
  ScheduleMaker maker(5, 3);
  Counts counts;
  for (int i = 0, n = test::sampleSize(50000, 1000000); i < n && !HasFatalFailure(); ++i) {
    Schedule schedule = maker.make(2 + int(maker.below(3)), maxOps, false);
    size_t numChunks = 1 + maker.below(3);
    compare(programOf(schedule, 1, maker, numChunks), counts);
  }
  report("lanes and chunks", counts);
}

/// The checks look at stages. The result is the same with two ranks per stage and collectives over
/// both.
TEST(Deadlock, AgreesWithExhaustiveSearchOverAllRanks) {
  ScheduleMaker maker(4);
  Counts counts;
  for (int i = 0, n = test::sampleSize(5000, 50000); i < n && !HasFatalFailure(); ++i)
    compare(programOf(maker.make(2 + int(maker.below(2)), 4, true), 2, maker), counts);
  report("two ranks per stage", counts);
}

} // namespace
} // namespace tbc::verify
