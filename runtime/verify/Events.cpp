//===- Events.cpp - Communication between stages ---------------------------===//

#include "runtime/verify/Events.h"
#include "runtime/verify/Places.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tbc::verify {

using program::AxisRef;
using program::Communication;
using program::Instruction;
using program::InstructionKind;
using program::Program;

namespace {
class EventCollector {
public:
  explicit EventCollector(const Program &program) : program(program) {}

  Events collect() {
    for (int stage = 0; stage < program.numStages(); ++stage) {
      std::map<BlockId, std::vector<Event>> ofBlock;
      for (BlockId block : program.stages[stage].blocks())
        ofBlock[block] = eventsOfBlock(stage, block);
      std::vector<Event> &list = events.ofStage.emplace_back();
      for (const schedule::Action &action : actionsOf(program, stage)) {
        for (Event event : ofBlock[action]) {
          event.action = action;
          list.push_back(event);
        }
      }
    }
    events.numLanes = static_cast<int>(lanes.size());
    return std::move(events);
  }

private:
  /// Returns the events of one block, without the micro-batch.
  std::vector<Event> eventsOfBlock(int stage, BlockId block) {
    std::vector<Event> list;
    const std::vector<Instruction> &instructions = program.stages[stage].block(block).instructions;
    for (size_t i = 0; i < instructions.size(); ++i) {
      const Communication &comm = instructions[i].comm;
      Event event;
      event.instruction = static_cast<int>(i);
      if (instructions[i].kind == InstructionKind::Send) {
        event.kind = Event::Kind::Send;
        event.peer = comm.peerStage;
        event.lane = laneNumber(stage, comm.peerStage, comm.lane);
      } else if (instructions[i].kind == InstructionKind::Recv) {
        event.kind = Event::Kind::Recv;
        event.peer = comm.peerStage;
        event.lane = laneNumber(comm.peerStage, stage, comm.lane);
      } else if (crossesStages(instructions[i])) {
        event.lane = groupIndex(comm);
      } else {
        continue;
      }
      list.push_back(event);
    }
    return list;
  }

  bool crossesStages(const Instruction &instruction) const {
    const Communication &comm = instruction.comm;
    return isCommunication(instruction.kind) && instruction.kind != InstructionKind::ShardSlice &&
           program.pipelineAxis >= 0 && program.numStages() > 1 && comm.stages.size() != 1 &&
           std::any_of(comm.axes.begin(), comm.axes.end(),
                       [&](const AxisRef &axis) { return axis.axis == program.pipelineAxis; });
  }

  int laneNumber(int from, int to, int lane) {
    return lanes.try_emplace({from, to, lane}, static_cast<int>(lanes.size())).first->second;
  }

  int groupIndex(const Communication &comm) {
    std::vector<std::tuple<int, int64_t, int64_t>> key;
    for (const AxisRef &axis : comm.axes)
      key.push_back({axis.axis, axis.pre, axis.size});
    auto [found, isNew] =
        groups.try_emplace({key, comm.stages}, static_cast<int>(events.groups.size()));
    if (isNew) {
      MeetingGroup &group = events.groups.emplace_back(MeetingGroup{comm.axes, comm.stages});
      for (int s = 0; comm.stages.empty() && s < program.numStages(); ++s)
        group.stages.push_back(s);
    }
    return found->second;
  }

  const Program &program;
  Events events;
  std::map<std::tuple<int, int, int>, int> lanes; // (from, to, lane)
  std::map<std::pair<std::vector<std::tuple<int, int64_t, int64_t>>, std::vector<int>>, int> groups;
};

/// Runs the events. The stage that completes a meeting or sends a message makes the waiting stages
/// ready. So a stage is visited only after an event it may wait for.
class Run {
public:
  Run(const Events &events, SendSemantics semantics)
      : events(events), semantics(semantics), next(events.ofStage.size(), 0),
        hasArrived(events.ofStage.size(), false), inFlight(events.numLanes, 0),
        arrived(events.groups.size(), 0) {}

  std::vector<size_t> run() {
    for (size_t stage = 0; stage < next.size(); ++stage)
      ready.push_back(static_cast<int>(stage));
    while (!ready.empty()) {
      int stage = ready.back();
      ready.pop_back();
      while (step(stage)) {
      }
    }
    return next;
  }

private:
  const Event *current(int stage) const {
    const std::vector<Event> &list = events.ofStage[stage];
    return next[stage] < list.size() ? &list[next[stage]] : nullptr;
  }
  void advance(int stage) {
    ++next[stage];
    hasArrived[stage] = false;
  }

  bool step(int stage) {
    const Event *event = current(stage);
    if (!event)
      return false;
    if (event->kind == Event::Kind::Meet)
      return stepMeet(stage, *event);
    if (semantics == SendSemantics::Rendezvous)
      return stepTogether(stage, *event);
    if (event->kind == Event::Kind::Send) {
      ++inFlight[event->lane];
      ready.push_back(event->peer);
    } else if (inFlight[event->lane] == 0) {
      return false;
    } else {
      --inFlight[event->lane];
    }
    advance(stage);
    return true;
  }

  bool stepTogether(int stage, const Event &event) {
    const Event *theirs = current(event.peer);
    bool fits = theirs && theirs->kind != Event::Kind::Meet && theirs->kind != event.kind &&
                theirs->lane == event.lane;
    if (!fits)
      return false;
    advance(stage);
    advance(event.peer);
    ready.push_back(event.peer);
    return true;
  }

  bool stepMeet(int stage, const Event &event) {
    if (hasArrived[stage])
      return false;
    hasArrived[stage] = true;
    const std::vector<int> &stages = events.groups[event.lane].stages;
    if (++arrived[event.lane] < stages.size())
      return false;
    arrived[event.lane] = 0;
    for (int member : stages) {
      advance(member);
      ready.push_back(member);
    }
    return true;
  }

  const Events &events;
  SendSemantics semantics;
  std::vector<size_t> next;
  std::vector<bool> hasArrived;  // the stage is counted at the meeting where it waits
  std::vector<int64_t> inFlight; // by lane
  std::vector<size_t> arrived;   // by group
  std::vector<int> ready;
};
} // namespace

Events eventsOf(const Program &program) { return EventCollector(program).collect(); }

std::string describe(const Program &program, int stage, const Event &event) {
  std::string text = describe(program, stage, event.action, event.instruction);
  if (event.action.kind != Kind::Update)
    text += ", micro-batch " + std::to_string(event.action.microBatch);
  return text;
}

std::vector<size_t> runEvents(const Events &events, SendSemantics semantics) {
  return Run(events, semantics).run();
}

Status checkDeadlock(const Program &program, SendSemantics semantics) {
  Events events = eventsOf(program);
  std::vector<size_t> reached = runEvents(events, semantics);
  std::string waits;
  for (size_t stage = 0; stage < reached.size(); ++stage) {
    if (reached[stage] < events.ofStage[stage].size())
      waits += (waits.empty() ? "" : "; ") +
               describe(program, int(stage), events.ofStage[stage][reached[stage]]);
  }
  return waits.empty() ? Status::ok() : rejected("deadlock", "these wait for each other: " + waits);
}

} // namespace tbc::verify
