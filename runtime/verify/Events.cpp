//===- Events.cpp - What stages say to each other --------------------------===//

#include "runtime/verify/Events.h"
#include "runtime/verify/Places.h"

#include <algorithm>
#include <map>

namespace tbc::verify {

using program::Instruction;
using program::InstructionKind;
using program::Program;

/// The events of one block, without the micro-batch.
static std::vector<Event> eventsOfBlock(const Program &program, int stage, Kind kind) {
  std::vector<Event> events;
  const std::vector<Instruction> &instructions = program.stages[stage].block(kind).instructions;
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Instruction &instruction = instructions[i];
    const program::Communication &comm = instruction.comm;
    Event event;
    event.instruction = static_cast<int>(i);
    if (instruction.kind == InstructionKind::Send || instruction.kind == InstructionKind::Recv) {
      event.kind =
          instruction.kind == InstructionKind::Send ? Event::Kind::Send : Event::Kind::Recv;
      event.peer = comm.peerStage;
      events.push_back(event);
      continue;
    }
    bool crosses =
        instruction.kind != InstructionKind::Kernel &&
        instruction.kind != InstructionKind::ShardSlice && program.pipelineAxis >= 0 &&
        std::any_of(comm.axes.begin(), comm.axes.end(), [&](const program::AxisRef &axis) {
          return axis.axis == program.pipelineAxis;
        });
    if (!crosses)
      continue;
    event.stages = comm.stages;
    for (int s = 0; comm.stages.empty() && s < program.numStages(); ++s)
      event.stages.push_back(s);
    if (event.stages.size() > 1)
      events.push_back(event);
  }
  return events;
}

std::vector<std::vector<Event>> eventsOf(const Program &program) {
  std::vector<std::vector<Event>> result;
  for (int stage = 0; stage < program.numStages(); ++stage) {
    std::vector<Event> ofBlock[3];
    for (Kind kind : allKinds)
      ofBlock[int(kind)] = eventsOfBlock(program, stage, kind);
    std::vector<Event> &events = result.emplace_back();
    for (const schedule::Action &action : actionsOf(program, stage)) {
      for (Event event : ofBlock[int(action.kind)]) {
        event.action = action;
        events.push_back(std::move(event));
      }
    }
  }
  return result;
}

std::string describe(const Program &program, int stage, const Event &event) {
  std::string text = describe(program, stage, event.action.kind, event.instruction);
  if (event.action.kind != Kind::Update)
    text += ", micro-batch " + std::to_string(event.action.microBatch);
  return text;
}

namespace {
class Run {
public:
  Run(const std::vector<std::vector<Event>> &events, SendSemantics semantics)
      : events(events), semantics(semantics), next(events.size(), 0) {}

  std::vector<size_t> run() {
    bool progress = true;
    while (progress) {
      progress = false;
      for (size_t stage = 0; stage < events.size(); ++stage) {
        while (step(int(stage)))
          progress = true;
      }
    }
    return next;
  }

private:
  const Event *current(int stage) const {
    return next[stage] < events[stage].size() ? &events[stage][next[stage]] : nullptr;
  }

  bool step(int stage) {
    const Event *event = current(stage);
    if (!event)
      return false;
    switch (event->kind) {
    case Event::Kind::Send:
      return stepSend(stage, *event);
    case Event::Kind::Recv:
      // With rendezvous it is the sender that moves both.
      if (semantics == SendSemantics::Rendezvous || inFlight[{event->peer, stage}] == 0)
        return false;
      --inFlight[{event->peer, stage}];
      ++next[stage];
      return true;
    case Event::Kind::Meet:
      return stepMeet(*event);
    }
    return false;
  }

  bool stepSend(int stage, const Event &event) {
    if (semantics == SendSemantics::Buffered) {
      ++inFlight[{stage, event.peer}];
      ++next[stage];
      return true;
    }
    const Event *theirs = current(event.peer);
    if (!theirs || theirs->kind != Event::Kind::Recv || theirs->peer != stage)
      return false;
    ++next[stage];
    ++next[event.peer];
    return true;
  }

  bool stepMeet(const Event &event) {
    for (int other : event.stages) {
      const Event *theirs = current(other);
      if (!theirs || theirs->kind != Event::Kind::Meet || theirs->stages != event.stages)
        return false;
    }
    std::vector<int> stages = event.stages;
    for (int other : stages)
      ++next[other];
    return true;
  }

  const std::vector<std::vector<Event>> &events;
  SendSemantics semantics;
  std::vector<size_t> next;
  std::map<std::pair<int, int>, int64_t> inFlight; // (from, to)
};
} // namespace

std::vector<size_t> runEvents(const std::vector<std::vector<Event>> &events,
                              SendSemantics semantics) {
  return Run(events, semantics).run();
}

Status checkDeadlock(const Program &program, SendSemantics semantics) {
  std::vector<std::vector<Event>> events = eventsOf(program);
  std::vector<size_t> reached = runEvents(events, semantics);
  std::string waits;
  for (size_t stage = 0; stage < events.size(); ++stage) {
    if (reached[stage] < events[stage].size())
      waits += (waits.empty() ? "" : "; ") +
               describe(program, int(stage), events[stage][reached[stage]]);
  }
  return waits.empty() ? Status::ok() : rejected("deadlock", "these wait for each other: " + waits);
}

} // namespace tbc::verify
