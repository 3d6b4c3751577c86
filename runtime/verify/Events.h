//===- Events.h - Communication between stages -----------------------------===//
//
// Part of tbc. Internal to runtime/verify.
//
// Ranks of one stage execute the same instructions in lockstep. So only communication between
// stages can fail to match or deadlock. Ranks with the same other coordinates stand for all.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_VERIFY_EVENTS_H
#define TBC_RUNTIME_VERIFY_EVENTS_H

#include "runtime/abi/Program.h"
#include "runtime/verify/Verify.h"

#include <string>
#include <vector>

namespace tbc::verify {

/// A send, a receive, or a collective among several stages.
struct Event {
  enum class Kind { Send, Recv, Meet };
  Kind kind = Kind::Meet;
  int peer = -1; // of a send or receive
  /// Send or receive: the number of its lane, unique per ordered pair of stages. Meeting: the index
  /// of its group.
  int lane = -1;
  schedule::Action action;
  int instruction = 0;
};

/// The members of a meeting: these stages, ascending, along the pipeline axis, and all ranks along
/// the other axes.
struct MeetingGroup {
  std::vector<program::AxisRef> axes;
  std::vector<int> stages;
};

struct Events {
  /// The events of one step, per stage in its order.
  std::vector<std::vector<Event>> ofStage;
  std::vector<MeetingGroup> groups;
  int numLanes = 0; // over all senders and receivers
};

Events eventsOf(const program::Program &program);

/// Returns, for example, "stage 0, forward block, instruction 3 (...), micro-batch 1".
std::string describe(const program::Program &program, int stage, const Event &event);

/// Runs the events until no stage can go on. Returns the progress of each stage: the number of its
/// events if it finishes, else the index of the event that blocks it forever. Meetings of one group
/// happen in the order of each stage. Linear in the number of events.
///
/// An event never disables another, so the outcome does not depend on the order in which they run.
/// Example: two stages of 3 events that both receive first return {0, 0}.
std::vector<size_t> runEvents(const Events &events, SendSemantics semantics);

} // namespace tbc::verify

#endif // TBC_RUNTIME_VERIFY_EVENTS_H
