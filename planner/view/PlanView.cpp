//===- PlanView.cpp - A plan as the content of a report --------------------===//

#include "planner/view/PlanView.h"
#include "planner/memory/Memory.h"
#include "planner/plan/Describe.h"
#include "planner/plan/PlanCheck.h"
#include "planner/plan/PlanDevices.h"
#include "planner/report/Summary.h"
#include "planner/support/Format.h"
#include "planner/support/IdList.h"
#include "planner/view/Facts.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tbc::planner {

/// Splits `text` at ", ", but not inside of the name of the mesh.
static std::vector<std::string> partsOf(const std::string &text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find(", ", begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 2;
  }
  return parts;
}

static std::string bytesText(int64_t bytes) { return formatBytes(double(bytes)); }

static std::string verdictOf(const Prediction &p) {
  const std::string limit = bytesText(p.limitBytes), high = bytesText(p.highBytes);
  if (p.hostBytes > p.hostLimitBytes)
    return "It needs " + bytesText(p.hostBytes) + " of host memory per device and may use " +
           bytesText(p.hostLimitBytes) + ". Offload less.";
  switch (p.memory) {
  case MemoryVerdict::Fits:
    return "The upper end of the memory estimate, " + high + ", is within the limit of " + limit +
           " per device.";
  case MemoryVerdict::Tight:
    return "The estimate of " + bytesText(p.peakBytes) + " is within the limit of " + limit +
           ", but its upper end, " + high +
           ", is not: the job may run out of memory at its first "
           "step. A lower --memory-limit plans with a margin.";
  case MemoryVerdict::DoesNotFit:
    return "It needs " + bytesText(p.peakBytes) + " per device, " +
           bytesText(p.peakBytes - p.limitBytes) + " more than the limit of " + limit +
           ". Plan without pins, or for more devices.";
  }
  return "";
}

static std::string searchNote(SearchEnd end) {
  switch (end) {
  case SearchEnd::Complete:
    return "";
  case SearchEnd::Budget:
    return "The search ended at its budget, so a better plan may exist. Pin --mesh or other "
           "decisions to look closer there.";
  case SearchEnd::TimeLimit:
    return "The search ended at --time-limit. This is its best plan until then.";
  }
  return "";
}

/// Orders plans by simplicity, the simplest first.
static auto simplicity(const MeshShape &mesh, const ParameterDecision &data) {
  int modelAxes = 0;
  for (int64_t size : {mesh.tp, mesh.pp, mesh.cp, mesh.ep})
    modelAxes += size > 1;
  int zero = mesh.tokenRanks() == 1 ? 0 : 2 * data.zero - (data.keepGathered ? 1 : 0);
  return std::make_tuple(modelAxes, zero, mesh.numAxes());
}

bool isSimpler(const Alternative &other, const Plan &plan) {
  return simplicity(other.mesh, other.data) < simplicity(plan.mesh, plan.parameterDefault);
}

static std::vector<OtherPlan> othersOf(const Plan &plan) {
  std::vector<OtherPlan> others;
  for (const Alternative &other : plan.alternatives)
    others.push_back({describe(other), other.stepSeconds, other.peakBytes, other.memory, other.note,
                      isSimpler(other, plan)});
  return others;
}

static std::string whyNotSimpler(const Plan &plan, const std::vector<OtherPlan> &others) {
  if (std::any_of(others.begin(), others.end(), [](const OtherPlan &o) { return o.isSimpler; }))
    return "Plans that split less, and why they lost:";
  if (others.empty())
    return "The plan has no alternatives: everything was pinned, or --top 1 kept this answer only.";
  return "This is the simplest plan of those compared. The others:";
}

/// Returns the disadvantage of a candidate against `plan`, whose candidate is `chosen`.
static std::string lossOf(const ScoredCandidate &candidate, const ScoredCandidate &chosen,
                          const Plan &plan) {
  constexpr double leastLoss = 5e-4;
  if (candidate.rank && *candidate.rank == 0)
    return "this plan";
  if (candidate.rank && size_t(*candidate.rank) <= plan.alternatives.size())
    return plan.alternatives[size_t(*candidate.rank) - 1].note;
  if (!candidate.fits) {
    const int64_t excess = candidate.bytes - plan.prediction.limitBytes;
    return excess > 0 ? "does not fit: " + bytesText(excess) + " over the limit" : "does not fit";
  }
  const double loss = candidate.stepSeconds / chosen.stepSeconds - 1;
  if (loss < leastLoss)
    return "as fast by its score: a tie";
  std::string text = format("%.1f %% slower", 100 * loss);
  const int64_t saved = chosen.bytes - candidate.bytes;
  return text + (saved > 0 ? ", and takes " + bytesText(saved) + " less" : ", and takes no less");
}

static std::vector<SearchPoint> pointsOf(const Plan &plan) {
  const std::vector<ScoredCandidate> &all = plan.search.candidates;
  auto chosen = std::find_if(all.begin(), all.end(),
                             [](const ScoredCandidate &c) { return c.rank && *c.rank == 0; });
  std::vector<SearchPoint> points;
  if (chosen == all.end())
    return points;
  const std::vector<bool> isFront = paretoFront(all);
  for (size_t i = 0; i < all.size(); ++i)
    points.push_back({all[i], isFront[i], lossOf(all[i], *chosen, plan)});
  return points;
}

static std::vector<TimePart> timeParts(const Plan &plan) {
  const TimeSplit &t = plan.prediction.time;
  return {
      {"kernels", "forward and backward compute", t.compute},
      {"recompute", "forward kernels that run again in backward", t.recompute},
      {betweenOpsName(plan.mesh), "exposed collectives between ops", t.operands},
      {"data communication", "exposed gathers of parameters and reductions of gradients", t.data},
      {"pipeline", "sends between stages, and waiting (the bubble)", t.pipeline},
      {"update", "optimizer", t.update},
      {"host copies", "copies between device and host", t.host},
      {"launches", "waiting for the host to launch kernels", t.launches}};
}

static std::vector<CollectiveSum> collectiveSums(const Prediction &prediction) {
  std::map<std::pair<std::string, std::string>, std::map<int, CollectiveSum>> sums;
  for (const CollectiveLine &line : prediction.collectives) {
    const std::string kind = reshard::name(line.count.kind);
    CollectiveSum &sum = sums[{kind, line.count.axes}][line.count.stage];
    sum.kind = kind;
    sum.axes = line.count.axes;
    sum.stage = line.count.stage;
    sum.count += line.count.count;
    sum.bytes += double(line.count.bytes) * double(line.count.count);
    sum.seconds += line.seconds * double(line.count.count);
  }
  std::vector<CollectiveSum> longest;
  for (const auto &[key, byStage] : sums)
    longest.push_back(
        std::max_element(byStage.begin(), byStage.end(), [](const auto &a, const auto &b) {
          return a.second.seconds < b.second.seconds;
        })->second);
  std::stable_sort(longest.begin(), longest.end(),
                   [](const auto &a, const auto &b) { return a.seconds > b.seconds; });
  return longest;
}

static std::vector<NamedDecision> namedDecisions(const Plan &plan) {
  std::vector<NamedDecision> named;
  auto add = [&](const std::string &decision, const std::vector<std::string> &names) {
    if (!names.empty())
      named.push_back({decision, compressIds(names), int64_t(names.size())});
  };
  for (const OpDecision &op : plan.ops)
    add("split " + toString(op.placement), op.ops);
  for (const ParameterOverride &item : plan.parameterOverrides)
    add("store as " + zeroName(item.decision.zero, item.decision.keepGathered) +
            (item.decision.zeroAxes.empty() ? "" : " over " + joined(item.decision.zeroAxes, "+")),
        item.parameters);
  add("recompute", plan.recomputeOps);
  add("offload residuals", plan.offload.ops);
  return named;
}

static std::vector<ChunkView> chunksOf(const Plan &plan) {
  std::vector<ChunkView> chunks;
  const std::vector<double> &seconds = plan.prediction.stageSeconds;
  for (size_t c = 0; c < plan.stages.size(); ++c)
    chunks.push_back({plan.chunkStage.empty() ? int(c) : plan.chunkStage[c],
                      plan.stageNames.empty() ? plan.stages[c] : plan.stageNames[c], plan.stages[c],
                      c < seconds.size() ? seconds[c] : 0});
  return chunks;
}

static std::vector<StageRoom> roomsOf(const Plan &plan) {
  const StageDevices devices = stageDevices(plan);
  std::vector<StageRoom> rooms;
  for (size_t stage = 0; stage < plan.prediction.stages.size(); ++stage) {
    const Cluster &cluster = devices.of(int(stage));
    const auto [low, high] = memoryInterval(plan.prediction.stages[stage], cluster);
    rooms.push_back({plan.limitBytes(cluster), low, high});
  }
  return rooms;
}

std::string whyNotDrawable(const Plan &plan) {
  if (std::string why = whyStale(plan); !why.empty())
    return why;
  if (int64_t(plan.prediction.chunks.size()) != plan.numChunks())
    return "the plan has no key \"prediction.chunks\"; tbc explain PLAN --derive FILE writes it";
  return "";
}

PlanView viewOf(const Plan &plan, const std::string &file) {
  PlanView view;
  view.file = file;
  view.model = plan.job.modelPath.substr(plan.job.modelPath.rfind('/') + 1);
  view.decisions = partsOf(describe(plan));
  view.verdict = verdictOf(plan.prediction);
  if (plan.prediction.stepSeconds > 0)
    view.samplesPerSecond = double(plan.job.globalBatch) / plan.prediction.stepSeconds;
  view.tokensPerSecond = view.samplesPerSecond * double(plan.job.sequence);
  view.fullestStage = int(fullestStage(plan));
  view.searchNote = searchNote(plan.searchEnd);
  view.job = jobFacts(plan);
  view.cluster = clusterFacts(plan.cluster);
  view.mesh = meshView(plan);
  view.step = stepView(plan);
  view.layout = layoutView(plan);
  view.chunks = chunksOf(plan);
  view.rooms = roomsOf(plan);
  view.time = timeParts(plan);
  view.collectives = collectiveSums(plan.prediction);
  view.others = othersOf(plan);
  view.points = pointsOf(plan);
  view.whyNotSimpler = whyNotSimpler(plan, view.others);
  view.named = namedDecisions(plan);
  view.text = summarize(plan);
  view.plan = plan;
  return view;
}

} // namespace tbc::planner
