//===- ViewJson.cpp - The view model as JSON -------------------------------===//

#include "planner/plan/PlanNames.h"
#include "planner/view/PlanView.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace tbc::planner {

using Json = nlohmann::ordered_json;

/// Returns `value` with five significant digits, enough for a picture.
static double rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", value);
  return std::strtod(text, nullptr);
}

static Json toJson(const std::vector<MemoryLine> &lines) {
  Json list = Json::array();
  for (const MemoryLine &line : lines)
    list.push_back({{"name", line.name}, {"bytes", line.bytes}});
  return list;
}

static Json toJson(const std::vector<FactGroup> &groups) {
  Json list = Json::array();
  for (const FactGroup &group : groups) {
    Json facts = Json::array();
    for (const FactView &fact : group.facts)
      facts.push_back({{"name", fact.name}, {"value", fact.value}, {"note", fact.note}});
    list.push_back({{"title", group.title}, {"facts", facts}});
  }
  return list;
}

static Json toJson(const MeshView &mesh) {
  Json axes = Json::array(), links = Json::array(), nodes = Json::array();
  for (const auto &[name, size] : mesh.axes)
    axes.push_back({{"name", name}, {"size", size}});
  for (const LinkView &link : mesh.links)
    links.push_back({{"axes", link.axes},
                     {"size", link.size},
                     {"nodes", link.shape.nodes},
                     {"per_node", link.shape.perNode},
                     {"bytes", link.bytes},
                     {"seconds", link.seconds},
                     {"count", link.count}});
  for (const NodeView &node : mesh.drawn)
    nodes.push_back({{"index", node.index},
                     {"first_rank", node.firstRank},
                     {"devices", node.devices},
                     {"device", node.device}});
  return {{"axes", axes},
          {"ranks", mesh.ranks},
          {"nodes", mesh.nodes},
          {"ranks_per_stage", mesh.ranksPerStage},
          {"intra_node", mesh.intraNode},
          {"inter_node", mesh.interNode},
          {"links", links},
          {"drawn", nodes}};
}

/// The events of a stage as three lists: kinds ("F", "B", "W"), micro-batches, starts; and chunks
/// where a stage has several. Starts are in 1/100000 of the makespan.
static Json eventsOf(const StepView &step, int stage) {
  std::string kinds;
  Json batches = Json::array(), starts = Json::array(), chunks = Json::array();
  const std::vector<int> own = step.pipeline.chunksOf(stage);
  for (const schedule::Event &event : step.timeline.stages[size_t(stage)]) {
    kinds += "FBWU"[int(event.action.kind)];
    batches.push_back(event.action.microBatch);
    starts.push_back(std::llround(1e5 * event.startSeconds / step.timeline.makespanSeconds));
    chunks.push_back(own[size_t(event.action.chunk)]);
  }
  Json events = {{"kinds", kinds}, {"batches", batches}, {"starts", starts}};
  if (own.size() > 1)
    events["chunks"] = chunks;
  return events;
}

static Json toJson(const StepView &step) {
  Json times = Json::array(), stages = Json::array();
  for (const schedule::ChunkTimes &t : step.times)
    times.push_back({t.forwardSeconds, t.backwardSeconds, t.weightSeconds});
  double send = 0;
  for (const schedule::ChunkTimes &t : step.times)
    send = std::max({send, t.sendForwardSeconds, t.sendBackwardSeconds});
  for (int stage = 0; stage < step.pipeline.numStages; ++stage) {
    const KeptCurve &curve = step.kept[size_t(stage)];
    Json points = Json::array();
    for (const auto &[time, share] : curve.points) {
      points.push_back(rounded(time));
      points.push_back(rounded(share));
    }
    stages.push_back({{"chunks", step.pipeline.chunksOf(stage)},
                      {"events", eventsOf(step, stage)},
                      {"bubble_seconds", step.bubbleSeconds[size_t(stage)]},
                      {"kept", points},
                      {"peak_seconds", rounded(curve.peakSeconds)},
                      {"sliced", curve.isSliced}});
  }
  return {{"micro_batches", step.microBatches},
          {"makespan_seconds", step.timeline.makespanSeconds},
          {"whole_seconds", step.wholeSeconds},
          {"end_seconds", step.endSeconds},
          {"send_seconds", send},
          {"chunk_stage", step.pipeline.chunkStage},
          {"chunk_seconds", times},
          {"stages", stages}};
}

/// A placement for the pictures of slices: dims with "axes" or "segments" of factors, and "flat".
static Json splitOf(const TensorPlacement &placement) {
  Json dims = Json::array();
  for (const DimSplit &dim : placement.dims) {
    if (dim.segments.empty()) {
      dims.push_back({{"axes", dim.axes}});
      continue;
    }
    Json segments = Json::array();
    for (const std::vector<SplitFactor> &segment : dim.segments) {
      Json factors = Json::array();
      for (const SplitFactor &factor : segment)
        factors.push_back({{"size", factor.size}, {"axes", factor.axes}});
      segments.push_back(factors);
    }
    dims.push_back({{"segments", segments}});
  }
  return {{"dims", dims}, {"flat", placement.flat}, {"padding", placement.padding}};
}

static Json splitsOf(const LayoutParameters &group) {
  Json splits = {{"stored", splitOf(group.stored)}, {"used", splitOf(group.used)}};
  if (group.isTrained)
    splits["state"] = splitOf(group.state);
  return splits;
}

static Json toJson(const LayoutView &layout) {
  Json parameters = Json::array(), boundaries = Json::array(), causes = Json::array(),
       axes = Json::array();
  for (const LayoutAxis &axis : layout.axes)
    axes.push_back({{"axis", axis.axis}, {"size", axis.size}, {"stride", axis.stride}});
  for (const ParameterRow &row : layout.parameters)
    parameters.push_back({{"names", row.names},
                          {"count", row.count},
                          {"shape", row.shape},
                          {"dtype", row.dtype},
                          {"stored", row.stored},
                          {"used", row.used},
                          {"gradient", row.gradient},
                          {"state", row.state},
                          {"lifetime", row.lifetime},
                          {"sizes", row.group.shape},
                          {"splits", splitsOf(row.group)},
                          {"by_stage", Json(row.byStage)}});
  for (const BoundaryRow &row : layout.boundaries)
    boundaries.push_back({{"block", row.block},
                          {"first", row.first},
                          {"last", row.last},
                          {"inputs", row.inputs},
                          {"outputs", row.outputs}});
  for (const CauseRow &row : layout.causes)
    causes.push_back({{"kind", row.kind},
                      {"purpose", row.purpose},
                      {"cause", row.cause},
                      {"axes", row.axes},
                      {"stages", row.stages},
                      {"bytes", row.bytes},
                      {"count", row.count},
                      {"seconds", row.seconds}});
  return {{"stale", layout.stale},
          {"axes", axes},
          {"parameters", parameters},
          {"boundaries", boundaries},
          {"causes", causes}};
}

static Json layersOf(const Plan &plan) {
  Json rows = Json::array();
  for (const BlockRow &row : plan.blocks)
    rows.push_back({{"name", row.name},
                    {"first_op", row.firstOp},
                    {"count", row.count},
                    {"ops", row.ops},
                    {"parameters", row.parameters},
                    {"split", row.split},
                    {"seconds", row.seconds},
                    {"residual_bytes", row.residualBytes}});
  return rows;
}

static Json memoryOf(const PlanView &view) {
  const Prediction &p = view.plan.prediction;
  Json stages = Json::array();
  for (size_t stage = 0; stage < p.stages.size(); ++stage)
    stages.push_back({{"lines", toJson(p.stages[stage].lines)},
                      {"host", toJson(p.stages[stage].host)},
                      {"limit", view.rooms[stage].limit},
                      {"low", view.rooms[stage].low},
                      {"high", view.rooms[stage].high}});
  return {{"verdict", name(p.memory)},
          {"peak", p.peakBytes},
          {"low", p.lowBytes},
          {"high", p.highBytes},
          {"limit", p.limitBytes},
          {"host", p.hostBytes},
          {"host_limit", p.hostLimitBytes},
          {"fullest_stage", view.fullestStage},
          {"stages", stages}};
}

static Json timeOf(const PlanView &view) {
  const Prediction &p = view.plan.prediction;
  Json parts = Json::array();
  for (const TimePart &part : view.time)
    parts.push_back({{"name", part.name}, {"meaning", part.meaning}, {"seconds", part.seconds}});
  return {{"step", p.stepSeconds},
          {"low", p.lowSeconds},
          {"high", p.highSeconds},
          {"bound", view.plan.lowerBoundSeconds},
          {"parts", parts},
          {"hidden", p.time.hiddenData},
          {"slowest_stage", p.slowestStage},
          {"samples_per_second", view.samplesPerSecond},
          {"tokens_per_second", view.tokensPerSecond},
          {"mfu", p.mfu},
          {"model_flops", p.modelFlops}};
}

static Json collectivesOf(const PlanView &view) {
  Json sums = Json::array(), lines = Json::array();
  for (const CollectiveSum &sum : view.collectives)
    sums.push_back({{"kind", sum.kind},
                    {"axes", sum.axes},
                    {"stage", sum.stage},
                    {"count", sum.count},
                    {"bytes", sum.bytes},
                    {"seconds", sum.seconds}});
  for (const CollectiveLine &line : view.plan.prediction.collectives)
    lines.push_back({{"kind", reshard::name(line.count.kind)},
                     {"axes", line.count.axes},
                     {"stage", line.count.stage},
                     {"bytes", line.count.bytes},
                     {"count", line.count.count},
                     {"seconds", line.seconds}});
  return {{"sums", sums}, {"lines", lines}};
}

static Json othersOf(const PlanView &view) {
  Json list = Json::array();
  for (const OtherPlan &other : view.others)
    list.push_back({{"name", other.name},
                    {"seconds", other.stepSeconds},
                    {"bytes", other.peakBytes},
                    {"memory", name(other.memory)},
                    {"note", other.note},
                    {"simpler", other.isSimpler}});
  return list;
}

static Json searchOf(const PlanView &view) {
  Json points = Json::array();
  for (const SearchPoint &point : view.points) {
    const ScoredCandidate &c = point.candidate;
    points.push_back({{"mesh", c.mesh},
                      {"zero", c.zero},
                      {"micro_batch", c.microBatch},
                      {"schedule", c.schedule},
                      {"recompute", c.recompute},
                      {"seconds", c.stepSeconds},
                      {"bytes", c.bytes},
                      {"fits", c.fits},
                      {"bound", c.boundSeconds},
                      {"rank", c.rank ? Json(*c.rank) : Json()},
                      {"front", point.isFront},
                      {"note", point.note}});
  }
  return {
      {"listed", view.plan.search.listed}, {"scored", view.plan.search.scored}, {"points", points}};
}

static Json reasonsOf(const Plan &plan) {
  Json list = Json::array();
  for (const Reason &reason : plan.reasons)
    list.push_back({{"decision", reason.decision},
                    {"value", reason.value},
                    {"origin", name(reason.origin)},
                    {"text", reason.text}});
  return list;
}

static Json measuredOf(const MeasuredView &measured) {
  Json groups = Json::array();
  for (const Residual &residual : measured.residuals)
    groups.push_back({{"group", residual.group},
                      {"predicted", residual.predicted},
                      {"measured", residual.measured}});
  return {{"profile", measured.profile}, {"ranks", measured.numRanks}, {"groups", groups}};
}

static Json toJson(const PlanView &view) {
  const Plan &plan = view.plan;
  Json chunks = Json::array(), named = Json::array();
  for (const ChunkView &chunk : view.chunks)
    chunks.push_back({{"stage", chunk.stage},
                      {"begin", chunk.begin},
                      {"op", chunk.op},
                      {"seconds", chunk.seconds}});
  for (const NamedDecision &item : view.named)
    named.push_back({{"decision", item.decision}, {"names", item.names}, {"count", item.count}});
  Json json = {{"file", view.file},
               {"model", view.model},
               {"decisions", view.decisions},
               {"schedule", scheduleText(plan)},
               {"devices", plan.job.gpus},
               {"idle_devices", plan.idleDevices},
               {"cluster_name", plan.cluster.name},
               {"batch", plan.job.globalBatch},
               {"micro_batch", plan.microBatch},
               {"accumulation", plan.accumulation},
               {"sequence", plan.job.sequence},
               {"precision", name(plan.job.precision)},
               {"optimizer", name(plan.job.optimizer)},
               {"verdict", view.verdict},
               {"search_note", view.searchNote},
               {"binding_constraint", plan.bindingConstraint},
               {"why_not_simpler", view.whyNotSimpler},
               {"memory", memoryOf(view)},
               {"time", timeOf(view)},
               {"mesh", toJson(view.mesh)},
               {"layers", layersOf(plan)},
               {"chunks", chunks},
               {"named", named},
               {"schedule_view", toJson(view.step)},
               {"layout", toJson(view.layout)},
               {"collectives", collectivesOf(view)},
               {"others", othersOf(view)},
               {"search", searchOf(view)},
               {"reasons", reasonsOf(plan)},
               {"warnings", plan.warnings},
               {"assumptions", plan.assumptions},
               {"job", toJson(view.job)},
               {"cluster", toJson(view.cluster)},
               {"text", view.text}};
  if (view.measured)
    json["measured"] = measuredOf(*view.measured);
  if (view.sensitivity)
    json["sensitivity"] = Json::parse(toJson(*view.sensitivity));
  return json;
}

std::string toJson(const std::vector<PlanView> &views) {
  Json plans = Json::array();
  for (const PlanView &view : views)
    plans.push_back(toJson(view));
  Json root = {{"format", "tbc-report"}, {"version", 1}, {"plans", plans}};
  // Names of a model may be no UTF-8.
  return root.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

} // namespace tbc::planner
