//===- ChunkSeconds.cpp - Where the predicted seconds of a chunk go -------===//

#include "planner/plan/ChunkSeconds.h"

#include <algorithm>
#include <tuple>

namespace tbc::planner {

const std::vector<NamedStagePart> &stageParts() {
  static const std::vector<NamedStagePart> parts = {
      {"forward", &StageSeconds::forward},
      {"backward", &StageSeconds::backward},
      {"weight", &StageSeconds::weight},
      {"recompute", &StageSeconds::recompute},
      {"recompute_weight", &StageSeconds::recomputeWeight},
      {"operands_forward", &StageSeconds::operandsForward},
      {"operands_backward", &StageSeconds::operandsBackward},
      {"operands_weight", &StageSeconds::operandsWeight},
      {"gather_forward", &StageSeconds::gatherForward},
      {"gather_backward", &StageSeconds::gatherBackward},
      {"reduce_micro", &StageSeconds::reduceMicro},
      {"first_gather_forward", &StageSeconds::firstGatherForward},
      {"first_gather_backward", &StageSeconds::firstGatherBackward},
      {"last_reduce_micro", &StageSeconds::lastReduceMicro},
      {"data_weight", &StageSeconds::dataWeight},
      {"send_forward", &StageSeconds::sendForward},
      {"send_backward", &StageSeconds::sendBackward},
      {"message_forward", &StageSeconds::messageForward},
      {"message_backward", &StageSeconds::messageBackward},
      {"host_forward", &StageSeconds::hostForward},
      {"host_backward", &StageSeconds::hostBackward},
      {"host_weight", &StageSeconds::hostWeight},
      {"launch_forward", &StageSeconds::launchForward},
      {"launch_backward", &StageSeconds::launchBackward},
      {"launch_weight", &StageSeconds::launchWeight},
      {"reduce_step", &StageSeconds::reduceStep},
      {"reduce_last_step", &StageSeconds::reduceLast},
      {"last_reduce_step", &StageSeconds::lastReduceStep},
      {"parameter_step", &StageSeconds::parameterStep},
      {"update_step", &StageSeconds::updateStep},
      {"host_step", &StageSeconds::hostStep},
  };
  return parts;
}

const char *name(StagePart part) {
  for (const NamedStagePart &known : stageParts())
    if (known.part == part)
      return known.name;
  return "";
}

void StageSeconds::operator+=(const StageSeconds &o) {
  for (const NamedStagePart &known : stageParts())
    this->*known.part += o.*known.part;
}

void ChunkSeconds::add(StagePart part, const std::string &name, const std::string &axes,
                       double bytes, double seconds) {
  std::vector<WorkSum> &sums = work[planner::name(part)];
  auto key = std::tie(name, axes);
  auto sum = std::lower_bound(sums.begin(), sums.end(), key, [](const WorkSum &one, auto &other) {
    return std::tie(one.name, one.axes) < other;
  });
  if (sum == sums.end() || std::tie(sum->name, sum->axes) != key)
    sum = sums.insert(sum, {name, axes});
  ++sum->count;
  sum->bytes += bytes;
  sum->seconds += seconds;
}

const std::vector<WorkSum> &ChunkSeconds::of(StagePart part) const {
  static const std::vector<WorkSum> none;
  auto found = work.find(planner::name(part));
  return found == work.end() ? none : found->second;
}

bool ChunkSeconds::operator==(const ChunkSeconds &o) const {
  return work == o.work && std::all_of(stageParts().begin(), stageParts().end(), [&](auto &known) {
           return seconds.*known.part == o.seconds.*known.part;
         });
}

} // namespace tbc::planner
