//===- Events.h - What stages say to each other ----------------------------===//
//
// Part of tbc. Internal to runtime/verify.
//
// Ranks of one stage execute the same instructions and meet within the stage in lockstep, so only
// what crosses stages can fail to match or deadlock, and ranks with the same other coordinates
// stand for all.
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
  /// Of a send or receive: the number of its lane, of one ordered pair of stages. Of a meeting: the
  /// index of its group.
  int lane = -1;
  schedule::Action action;
  int instruction = 0;
};

/// Those who meet: along the pipeline axis these stages, ascending; along the other axes all.
struct MeetingGroup {
  std::vector<program::AxisRef> axes;
  std::vector<int> stages;
};

struct Events {
  /// The events of one step, per stage in the order in which it comes to them.
  std::vector<std::vector<Event>> ofStage;
  std::vector<MeetingGroup> groups;
  int numLanes = 0; // of all senders and receivers
};

Events eventsOf(const program::Program &program);

/// "stage 0, forward block, instruction 3 (...), micro-batch 1".
std::string describe(const program::Program &program, int stage, const Event &event);

/// Runs the events until nobody can go on. Returns how far each stage has come: the number of its
/// events if it has come to its end, else the index of the event at which it waits forever.
/// Meetings of one group happen in the order in which each stage comes to them. Linear in the
/// number of events.
///
/// An event never disables another, so the outcome does not depend on the order in which they are
/// run.
std::vector<size_t> runEvents(const Events &events, SendSemantics semantics);

} // namespace tbc::verify

#endif // TBC_RUNTIME_VERIFY_EVENTS_H
