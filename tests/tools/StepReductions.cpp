//===- StepReductions.cpp - Joins gradient reductions in buckets ----------===//

#include "tests/tools/StepWalk.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::test {

/// Returns whether the reduction can wait to be joined: it has no earlier reader.
bool StepWalk::mayWait(const Reduction &reduction) {
  const Messages &sent = messages.waysOf(reduction.value, reduction.from, reduction.to).front();
  for (const auto &[key, placement] : keptAs)
    if (reduction.chunk >= 0 && key.first == reduction.value && placement == reduction.to)
      return false;
  if (reduction.chunk >= 0 &&
      readReductions.count({reduction.value, reduction.chunk, reduction.phase, reduction.to}))
    return false;
  return !sent.empty() && std::all_of(sent.begin(), sent.end(), [&](const Message &message) {
    bool toChunks = message.kind == CollectiveKind::ReduceScatter && reduction.from.flat.empty() &&
                    std::all_of(message.axes.begin(), message.axes.end(),
                                [&](int axis) { return names(reduction.to.flat, axis); });
    return message.kind == CollectiveKind::AllReduce || toChunks;
  });
}

/// The key of a bucket: reductions with equal keys may be joined.
using Kin =
    std::tuple<int, int, Phase, int64_t, std::vector<std::pair<CollectiveKind, std::vector<int>>>>;

/// Fills buckets: reductions of gradients that wait for each other.
void StepWalk::joinReductions() {
  struct Waiting {
    int64_t bytes = 0;
    std::vector<const Reduction *> members;
  };
  std::map<Kin, Waiting> waiting;
  for (const Reduction &reduction : reductions) {
    if (!mayWait(reduction)) {
      messages.move(reduction.value, reduction.from, reduction.to, reduction.stage,
                    reduction.count);
      continue;
    }
    Kin kin{reduction.stage,
            reduction.chunk,
            reduction.phase,
            graph.values[reduction.value].layout.elementBytes,
            {}};
    int64_t largest = 0;
    for (const Message &message :
         messages.waysOf(reduction.value, reduction.from, reduction.to).front()) {
      std::get<4>(kin).push_back({message.kind, message.axes});
      largest = std::max(largest, message.bytes);
    }
    Waiting &here = waiting[kin];
    if (here.bytes + largest > bucketBytes) {
      reduceTogether(here.members);
      here = {};
    }
    here.members.push_back(&reduction);
    here.bytes += largest;
  }
  for (const auto &[kin, last] : waiting)
    reduceTogether(last.members);
}

void StepWalk::reduceTogether(const std::vector<const Reduction *> &members) {
  if (members.size() == 1)
    messages.move(members[0]->value, members[0]->from, members[0]->to, members[0]->stage,
                  members[0]->count);
  if (members.size() < 2)
    return;
  Messages sum;
  for (const Reduction *member : members) {
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
