//===- deadlock_test.cpp - The deadlock check against exhaustive search ----===//

#include "runtime/verify/Events.h"

#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

namespace tbc::verify {
namespace {

using EventLists = std::vector<std::vector<Event>>;

/// Tries every order in which the stages' events can happen, as transitions between states (how far
/// each stage has come; what is in flight follows from it). True if a state with unfinished stages
/// and no way on is reachable.
class ExhaustiveSearch {
public:
  ExhaustiveSearch(const EventLists &events, SendSemantics semantics)
      : events(events), semantics(semantics) {}

  bool canGetStuck() { return visit(std::vector<size_t>(events.size(), 0)); }

private:
  using State = std::vector<size_t>;

  bool visit(const State &state) {
    if (!seen.insert(state).second)
      return false;
    std::vector<State> next = successors(state);
    bool isEnd = true;
    for (size_t s = 0; s < events.size(); ++s)
      isEnd &= state[s] == events[s].size();
    if (next.empty())
      return !isEnd;
    for (const State &successor : next)
      if (visit(successor))
        return true;
    return false;
  }

  int64_t count(const State &state, size_t stage, Event::Kind kind, int peer) const {
    int64_t n = 0;
    for (size_t i = 0; i < state[stage]; ++i)
      n += events[stage][i].kind == kind && events[stage][i].peer == peer;
    return n;
  }

  std::vector<State> successors(const State &state) const {
    std::vector<State> result;
    for (size_t s = 0; s < events.size(); ++s) {
      if (state[s] == events[s].size())
        continue;
      const Event &event = events[s][state[s]];
      State next = state;
      ++next[s];
      if (event.kind == Event::Kind::Send) {
        if (semantics == SendSemantics::Rendezvous) {
          size_t peer = size_t(event.peer);
          if (state[peer] == events[peer].size())
            continue;
          const Event &theirs = events[peer][state[peer]];
          if (theirs.kind != Event::Kind::Recv || theirs.peer != int(s))
            continue;
          ++next[peer];
        }
        result.push_back(next);
      } else if (event.kind == Event::Kind::Recv) {
        bool isThere = count(state, size_t(event.peer), Event::Kind::Send, int(s)) >
                       count(state, s, Event::Kind::Recv, event.peer);
        if (semantics == SendSemantics::Buffered && isThere)
          result.push_back(next);
      } else {
        bool allHere = true;
        next = state;
        for (int other : event.stages) {
          size_t o = size_t(other);
          allHere = allHere && state[o] < events[o].size() &&
                    events[o][state[o]].kind == Event::Kind::Meet &&
                    events[o][state[o]].stages == event.stages;
          ++next[o];
        }
        if (allHere)
          result.push_back(next);
      }
    }
    return result;
  }

  const EventLists &events;
  SendSemantics semantics;
  std::set<State> seen;
};

/// Random messages and meetings among 2 or 3 stages; then some neighbours swapped, some events
/// dropped.
EventLists randomEvents(std::mt19937 &random) {
  int numStages = 2 + int(random() % 2);
  EventLists events(numStages);
  for (unsigned i = 0, n = 1 + random() % 5; i < n; ++i) {
    if (random() % 3 == 0) {
      Event meet;
      for (int s = 0; s < numStages; ++s)
        if (numStages == 2 || random() % 3)
          meet.stages.push_back(s);
      for (int s : meet.stages)
        events[s].push_back(meet);
      continue;
    }
    int from = int(random() % unsigned(numStages));
    int to = (from + 1 + int(random() % unsigned(numStages - 1))) % numStages;
    Event send, recv;
    send.kind = Event::Kind::Send, send.peer = to;
    recv.kind = Event::Kind::Recv, recv.peer = from;
    events[from].push_back(send);
    events[to].push_back(recv);
  }
  for (auto &list : events) {
    for (size_t i = 1; i < list.size(); ++i)
      if (random() % 4 == 0)
        std::swap(list[i - 1], list[i]);
    if (!list.empty() && random() % 10 == 0)
      list.erase(list.begin() + int64_t(random() % list.size()));
  }
  return events;
}

TEST(RunEvents, AgreesWithExhaustiveSearch) {
  std::mt19937 random(3);
  int numStuck[2] = {0, 0};
  constexpr int numCases = 100000;
  for (int i = 0; i < numCases; ++i) {
    EventLists events = randomEvents(random);
    for (SendSemantics semantics : {SendSemantics::Buffered, SendSemantics::Rendezvous}) {
      std::vector<size_t> reached = runEvents(events, semantics);
      bool isStuck = false;
      for (size_t s = 0; s < events.size(); ++s)
        isStuck |= reached[s] < events[s].size();
      ASSERT_EQ(isStuck, ExhaustiveSearch(events, semantics).canGetStuck()) << "case " << i;
      numStuck[int(semantics)] += isStuck;
    }
  }
  for (int stuck : numStuck) { // both outcomes were tried
    EXPECT_GT(stuck, numCases / 10);
    EXPECT_LT(stuck, numCases * 9 / 10);
  }
}

} // namespace
} // namespace tbc::verify
