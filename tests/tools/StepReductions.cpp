//===- StepReductions.cpp - Joins reductions and gathers in buckets --------===//

#include "tests/tools/StepWalk.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::test {

int64_t StepWalk::limitOf(Purpose purpose) const {
  return purpose == Purpose::StoredParameter ? sizes.gatherBytes : sizes.bucketBytes;
}

/// Whether every message gathers a tensor that is cut into chunks.
static bool gathersChunks(const Messages &sent, const std::vector<int> &flat) {
  return !sent.empty() && std::all_of(sent.begin(), sent.end(), [&](const Message &message) {
    return message.kind == CollectiveKind::AllGather &&
           std::all_of(message.axes.begin(), message.axes.end(),
                       [&](int axis) { return std::count(flat.begin(), flat.end(), axis) > 0; });
  });
}

/// Returns whether the communication can wait to be joined: it has no earlier reader.
bool StepWalk::mayWait(const Joinable &joinable) {
  const Messages &sent = messages.waysOf(joinable.value, joinable.from, joinable.to).front();
  if (limitOf(joinable.purpose) == 0)
    return false;
  if (joinable.purpose == Purpose::StoredParameter || joinable.purpose == Purpose::NewParameter)
    return gathersChunks(sent, joinable.from.flat);
  const bool mayBeRead = joinable.purpose == Purpose::Gradient && joinable.chunk >= 0;
  for (const auto &[key, placement] : keptAs)
    if (mayBeRead && key.first == joinable.value && placement == joinable.to)
      return false;
  if (mayBeRead &&
      readReductions.count({joinable.value, joinable.chunk, joinable.phase, joinable.to}))
    return false;
  return !sent.empty() && std::all_of(sent.begin(), sent.end(), [&](const Message &message) {
    bool toChunks = message.kind == CollectiveKind::ReduceScatter && joinable.from.flat.empty() &&
                    std::all_of(message.axes.begin(), message.axes.end(),
                                [&](int axis) { return names(joinable.to.flat, axis); });
    return message.kind == CollectiveKind::AllReduce || toChunks;
  });
}

/// The key of a bucket: communication with equal keys may be joined.
using Kin = std::tuple<int, int, Phase, int64_t,
                       std::vector<std::pair<CollectiveKind, std::vector<int>>>, int>;

/// Fills buckets: reductions or gathers that wait for each other.
void StepWalk::joinAlike() {
  struct Waiting {
    int64_t bytes = 0;
    std::vector<const Joinable *> members;
  };
  std::map<Kin, Waiting> waiting;
  for (const Joinable &joinable : joinables) {
    if (!mayWait(joinable)) {
      messages.move(joinable.value, joinable.from, joinable.to, joinable.stage, joinable.count);
      continue;
    }
    Kin kin{joinable.stage,
            joinable.chunk,
            joinable.phase,
            graph.values[joinable.value].layout.elementBytes,
            {},
            int(joinable.purpose)};
    int64_t largest = 0;
    for (const Message &message :
         messages.waysOf(joinable.value, joinable.from, joinable.to).front()) {
      std::get<4>(kin).push_back({message.kind, message.axes});
      largest = std::max(largest, message.bytes);
    }
    Waiting &here = waiting[kin];
    if (here.bytes + largest > limitOf(joinable.purpose)) {
      moveTogether(here.members);
      here = {};
    }
    here.members.push_back(&joinable);
    here.bytes += largest;
  }
  for (const auto &[kin, last] : waiting)
    moveTogether(last.members);
}

void StepWalk::moveTogether(const std::vector<const Joinable *> &members) {
  if (members.size() == 1)
    messages.move(members[0]->value, members[0]->from, members[0]->to, members[0]->stage,
                  members[0]->count);
  if (members.size() < 2)
    return;
  Messages sum;
  for (const Joinable *member : members) {
    const std::vector<Messages> &possible =
        messages.waysOf(member->value, member->from, member->to);
    messages.explain(member->value, member->from, member->to, member->stage, possible);
    for (size_t i = 0; i < possible.front().size(); ++i)
      if (i == sum.size())
        sum.push_back(possible.front()[i]);
      else
        sum[i].bytes += possible.front()[i].bytes;
  }
  for (const Message &message : sum)
    messages.add(message.kind, message.axes, members[0]->stage, message.bytes, members[0]->count);
}

} // namespace tbc::test
