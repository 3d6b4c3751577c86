//===- Matching.cpp - Communication has a counterpart ----------------------===//

#include "runtime/verify/Events.h"
#include "runtime/verify/Places.h"

#include <map>
#include <tuple>

namespace tbc::verify {
namespace {

using program::Communication;
using program::Instruction;
using program::InstructionKind;
using program::Program;

/// An event and its stage.
struct Side {
  int stage = 0;
  const Event *event = nullptr;
};

class Matcher {
public:
  explicit Matcher(const Program &program) : program(program), events(eventsOf(program)) {}

  Status check() {
    for (int stage = 0; stage < program.numStages(); ++stage) {
      if (Status status = checkChannels(stage); !status)
        return status;
    }
    if (Status status = checkMessages(); !status)
      return status;
    return checkMeetings();
  }

private:
  const Instruction &instruction(const Side &side) const {
    return program.stages[side.stage]
        .block(side.event->action)
        .instructions[side.event->instruction];
  }
  std::string place(const Side &side) const { return describe(program, side.stage, *side.event); }
  std::vector<kernels::TensorType> typesOf(const Side &side) const {
    const Instruction &it = instruction(side);
    std::vector<kernels::TensorType> types;
    for (program::ValueId value : it.operands.empty() ? it.results : it.operands)
      types.push_back(program.stages[side.stage].values[value]);
    return types;
  }
  static std::string textOf(const std::vector<kernels::TensorType> &types) {
    std::string text;
    for (const kernels::TensorType &type : types)
      text += (text.empty() ? "" : ", ") + toString(type);
    return text;
  }
  Status mismatch(const Side &a, const Side &b, const std::string &why) const {
    return rejected(place(a), why + " at " + place(b));
  }

  /// Checks channels: each names one message among the sends of a stage to another, and one among
  /// its receives. A last backward has those of the backward that it stands for.
  Status checkChannels(int stage) const {
    std::map<std::tuple<InstructionKind, int, int64_t>, std::pair<BlockId, int>> named;
    for (BlockId block : program.stages[stage].blocks()) {
      const std::vector<Instruction> &list = program.stages[stage].block(block).instructions;
      for (size_t i = 0; i < list.size(); ++i) {
        if (list[i].kind != InstructionKind::Send && list[i].kind != InstructionKind::Recv)
          continue;
        const Communication &comm = list[i].comm;
        auto [found, isNew] = named.try_emplace({list[i].kind, comm.peerStage, comm.channel},
                                                std::pair(block, int(i)));
        const bool standsFor = !isNew && block.kind == Kind::LastBackward &&
                               found->second.first == BlockId(Kind::Backward, block.chunk);
        if (standsFor)
          found->second = {block, int(i)};
        else if (!isNew)
          return rejected(describe(program, stage, block, int(i)),
                          "channel " + std::to_string(comm.channel) + " is also that of " +
                              describe(program, stage, found->second.first, found->second.second));
      }
    }
    return Status::ok();
  }

  Status checkMessages() const {
    std::vector<std::pair<std::vector<Side>, std::vector<Side>>> lanes(events.numLanes);
    for (size_t stage = 0; stage < events.ofStage.size(); ++stage) {
      for (const Event &event : events.ofStage[stage]) {
        if (event.kind == Event::Kind::Send)
          lanes[event.lane].first.push_back({int(stage), &event});
        if (event.kind == Event::Kind::Recv)
          lanes[event.lane].second.push_back({int(stage), &event});
      }
    }
    for (const auto &[sends, recvs] : lanes) {
      for (size_t i = 0; i < sends.size() && i < recvs.size(); ++i) {
        if (Status status = checkMessage(sends[i], recvs[i]); !status)
          return status;
      }
      if (sends.size() > recvs.size())
        return rejected(place(sends[recvs.size()]), "nobody receives it");
      if (sends.size() < recvs.size())
        return rejected(place(recvs[sends.size()]), "nobody sends it");
    }
    return Status::ok();
  }

  Status checkMessage(const Side &send, const Side &recv) const {
    const Communication &sent = instruction(send).comm, &received = instruction(recv).comm;
    if (sent.channel != received.channel)
      return mismatch(recv, send,
                      "it waits for channel " + std::to_string(received.channel) +
                          ", the next message is of channel " + std::to_string(sent.channel));
    if (send.event->action.microBatch != recv.event->action.microBatch)
      return mismatch(recv, send, "the message is of another micro-batch");
    if (typesOf(send) != typesOf(recv))
      return mismatch(recv, send,
                      "it waits for " + textOf(typesOf(recv)) + ", the message is " +
                          textOf(typesOf(send)));
    return Status::ok();
  }

  /// Checks groups of the same stages together. So a collective over wrong axes is reported where
  /// its counterpart is missing.
  Status checkMeetings() const {
    std::map<std::vector<int>, std::map<int, std::vector<Side>>> meetings; // stages -> stage
    std::vector<std::map<int, std::vector<Side>> *> ofGroup;
    for (const MeetingGroup &group : events.groups)
      ofGroup.push_back(&meetings[group.stages]);
    for (size_t stage = 0; stage < events.ofStage.size(); ++stage) {
      for (const Event &event : events.ofStage[stage]) {
        if (event.kind == Event::Kind::Meet)
          (*ofGroup[event.lane])[int(stage)].push_back({int(stage), &event});
      }
    }
    for (auto &[stages, byStage] : meetings) {
      const std::vector<Side> &first = byStage[stages[0]];
      for (int other : stages) {
        if (Status status = checkMeeting(first, byStage[other], other); !status)
          return status;
        if (Status status = checkMeeting(byStage[other], first, stages[0]); !status)
          return status;
      }
    }
    return Status::ok();
  }

  Status checkMeeting(const std::vector<Side> &as, const std::vector<Side> &bs, int stage) const {
    for (size_t i = 0; i < as.size(); ++i) {
      if (i >= bs.size())
        return rejected(place(as[i]), "stage " + std::to_string(stage) + " does not take part");
      std::string why = whyDifferent(as[i], bs[i]);
      if (!why.empty())
        return mismatch(as[i], bs[i], why);
    }
    return Status::ok();
  }

  std::string whyDifferent(const Side &a, const Side &b) const {
    const Instruction &mine = instruction(a), &theirs = instruction(b);
    if (mine.kind != theirs.kind)
      return "it meets another kind";
    if (!(a.event->action == b.event->action))
      return "it meets one of " + actionName(b.event->action) + ", not of " +
             actionName(a.event->action);
    if (!(mine.comm.axes == theirs.comm.axes))
      return "it meets a collective over other axes";
    if (mine.comm.reduce != theirs.comm.reduce)
      return "it meets another reduction";
    if (typesOf(a) != typesOf(b))
      return "it takes " + textOf(typesOf(a)) + ", it meets one of " + textOf(typesOf(b));
    bool sameCut = mine.comm.dim == theirs.comm.dim && mine.comm.segments == theirs.comm.segments &&
                   mine.comm.splitDim == theirs.comm.splitDim &&
                   mine.comm.splitSegments == theirs.comm.splitSegments;
    return sameCut ? "" : "it meets one that cuts the tensor otherwise";
  }

  const Program &program;
  Events events;
};

} // namespace

Status checkMatching(const Program &program) { return Matcher(program).check(); }

} // namespace tbc::verify
