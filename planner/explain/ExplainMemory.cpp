//===- ExplainMemory.cpp - Memory of a plan by tensor ---------------------===//

#include "planner/devices/StageDevices.h"
#include "planner/explain/Explain.h"
#include "planner/memory/Memory.h"
#include "planner/plan/ModelNames.h"
#include "planner/plan/PlanDevices.h"
#include "planner/predict/Evaluate.h"
#include "planner/predict/Time.h"
#include "planner/report/Blocks.h"
#include "planner/search/Explore.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <tuple>

using namespace tbc::reshard;

namespace tbc::planner {

Result<ExplainedPlan> ExplainedPlan::make(const Graph &graph, const Plan &plan) {
  Result<PlannedStep> step = applyPlan(graph, plan);
  if (!step)
    return step.error();
  Derivation derivation = derive(step->graph, step->assignment);
  Overlap overlap = planOverlap(step->graph, derivation, overlapOf(plan));
  Prediction prediction = predictStep(*step, plan, derivation);
  return ExplainedPlan{graph,
                       plan,
                       std::move(*step),
                       std::move(derivation),
                       std::move(overlap),
                       std::move(prediction)};
}

namespace {

/// Bytes of one tensor on a stage, or of several similar tensors.
struct Holding {
  std::string tensor, what;
  double bytes = 0, copies = 1; // of each tensor
  std::string module = {};      // of its op; "" for a parameter
  int64_t tensors = 1;
};

} // namespace

/// Adds the data held by a stage throughout the step, parameter by parameter.
static void addParameters(const ExplainedPlan &explained, int stage, std::vector<Holding> &into) {
  const Graph &graph = explained.step.graph;
  const Derivation &derivation = explained.derivation;
  const Job &job = explained.plan.job;
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    const std::vector<int> &stages = derivation.parameterStages[p];
    if (std::find(stages.begin(), stages.end(), stage) == stages.end())
      continue;
    const GraphParameter &parameter = graph.parameters[p];
    const TensorLayout &layout = graph.values[parameter.value].layout;
    std::string name = displayName(job, graph.values[parameter.value]);
    into.push_back({name, "parameter", double(localBytes(layout, derivation.stored[p]))});
    if (parameter.gradient < 0)
      continue;
    double owned = double(localBytes(layout, derivation.state[p])) / double(layout.elementBytes);
    into.push_back(
        {name, "gradient",
         double(localBytes(graph.values[parameter.gradient].layout, derivation.gradient[p]))});
    std::string where = explained.step.assignment.offloadsStates ? " on the host" : "";
    into.push_back(
        {name, "master weights" + where, owned * double(masterBytes(layout.elementBytes))});
    double state = owned * double(job.stateBytesPerElement(parameter));
    for (int64_t bytes : wholeStateBytes(parameter, layout, derivation.state[p]))
      state += double(bytes);
    into.push_back({name, "optimizer state" + where, state});
  }
}

static void addResiduals(const ExplainedPlan &explained, int stage, double microBatches,
                         std::vector<Holding> &into) {
  const Graph &graph = explained.step.graph;
  for (const Residual &residual : explained.derivation.residuals) {
    const GraphValue &value = graph.values[residual.value];
    if (value.producer >= 0 && explained.step.assignment.stageOf(residual.chunk) == stage)
      into.push_back(
          {value.name, residual.isOnHost ? "saved residual on the host" : "saved residual",
           double(explained.derivation.bytesOf(graph, residual.value, residual.sharding)),
           microBatches, shownModuleOf(explained.plan.job, graph, value.producer)});
  }
}

/// Adds what experts keep of their tokens.
static void addKeptRows(const ExplainedPlan &explained, int stage, double microBatches,
                        std::vector<Holding> &into) {
  const Graph &graph = explained.step.graph;
  for (const KeptRows &rows : explained.derivation.keptRows)
    if (explained.step.assignment.stageOf(graph.ops[size_t(rows.op)].chunk) == stage)
      into.push_back({graph.ops[size_t(rows.op)].id, "rows of experts", double(rows.bytes),
                      microBatches, shownModuleOf(explained.plan.job, graph, rows.op)});
}

/// Returns per stage the op with the peak of live bytes, the first of equals; -1 without ops.
static std::vector<int> peakOps(const Graph &graph, const Assignment &assignment,
                                const LiveBytes &live) {
  std::vector<int> peak(assignment.numStages, -1);
  auto total = [&](int op) { return live.transients[op] + live.gathered[op] + live.buffers[op]; };
  for (int op = 0; op < int(graph.ops.size()); ++op) {
    int &best = peak[assignment.stageOf(graph.ops[op].chunk)];
    if (best < 0 || total(op) > total(best))
      best = op;
  }
  return peak;
}

/// Returns the largest number of micro-batches with some but not all actions of a stage done.
static int64_t microBatchesInFlight(const std::vector<schedule::Action> &actions) {
  std::map<int64_t, int64_t> all, left; // total and remaining actions, by micro-batch
  for (const schedule::Action &action : actions)
    if (action.kind != schedule::Action::Kind::Update)
      ++all[action.microBatch];
  left = all;
  int64_t now = 0, most = 0;
  for (const schedule::Action &action : actions) {
    if (action.kind == schedule::Action::Kind::Update)
      continue;
    now += left[action.microBatch] == all[action.microBatch];
    most = std::max(most, now);
    now -= --left[action.microBatch] == 0;
  }
  return most;
}

/// Returns the module of the op of `value`; "" for an input of the step.
static std::string moduleOfValue(const ExplainedPlan &explained, int value) {
  const Graph &graph = explained.step.graph;
  const int producer = graph.values[value].producer;
  return producer < 0 ? "" : shownModuleOf(explained.plan.job, graph, producer);
}

/// Sorts `holdings` by size and folds those that differ only in the number of their block. Example:
/// the activations of h.0.mlp to h.11.mlp, 192 MiB each, become one of 12 tensors in h.*.mlp.
static void sortAndFold(std::vector<Holding> &holdings) {
  auto keyOf = [](const Holding &h) { return std::tie(h.tensor, h.what, h.module); };
  std::sort(holdings.begin(), holdings.end(), [&](const Holding &a, const Holding &b) {
    double x = a.bytes * a.copies, y = b.bytes * b.copies;
    return x != y ? x > y : keyOf(a) < keyOf(b);
  });
  std::vector<Holding> folded;
  std::map<std::tuple<std::string, std::string, double, double>, size_t> places;
  for (Holding &holding : holdings) {
    std::string stars;
    for (char c : holding.module.empty() ? holding.tensor : holding.module)
      if (!std::isdigit(static_cast<unsigned char>(c)))
        stars += c;
      else if (stars.empty() || stars.back() != '*')
        stars += '*';
    auto [place, isNew] =
        places.try_emplace({stars, holding.what, holding.bytes, holding.copies}, folded.size());
    if (isNew) {
      folded.push_back(std::move(holding));
      continue;
    }
    Holding &first = folded[place->second];
    ++first.tensors;
    (first.module.empty() ? first.tensor : first.module) = stars;
  }
  holdings = std::move(folded);
}

/// Adds the operands and results of `op`, each value once.
static void addOperandsAndResults(const ExplainedPlan &explained, int op,
                                  std::vector<Holding> &into) {
  const Graph &graph = explained.step.graph;
  const Job &job = explained.plan.job;
  std::set<int> seen;
  const auto &operands = explained.derivation.operands[op];
  for (size_t k = 0; k < operands.size(); ++k)
    if (int value = graph.ops[op].operands[k]; seen.insert(value).second)
      into.push_back({displayName(job, graph.values[value]), "operand there",
                      double(explained.derivation.bytesOf(graph, value, operands[k].sharding)), 1,
                      moduleOfValue(explained, value)});
  for (int value : graph.ops[op].results)
    into.push_back(
        {displayName(job, graph.values[value]), "result there",
         double(explained.derivation.bytesOf(graph, value, explained.derivation.raw[value])), 1,
         moduleOfValue(explained, value)});
}

Report explainMemory(const ExplainedPlan &explained) {
  const Graph &graph = explained.step.graph;
  const Assignment &assignment = explained.step.assignment;
  PipelineSchedule schedule = scheduleOf(explained.plan);
  LiveBytes live = liveBytes(graph, assignment, explained.derivation, explained.overlap);
  std::vector<int> peaks = peakOps(graph, assignment, live);
  Report report;
  report.facts.push_back({"limit_bytes",
                          explained.plan.cluster.isMixed()
                              ? "limit of a device of the stage with the least room"
                              : "limit of a device",
                          Cell::bytes(double(explained.prediction.limitBytes))});
  Table stages{"stages",
               "stages",
               {{"stage", "stage"},
                {"bytes", "bytes"},
                {"share", "of limit"},
                {"peak_op", "most is live at"},
                {"peak_module", "in"}},
               {},
               ""};
  Table lines{"lines",
              "memory of a device, by stage",
              {{"stage", "stage"}, {"line", "line"}, {"bytes", "bytes"}, {"share", "of limit"}},
              {},
              ""};
  Table tensors{"tensors",
                "largest tensors",
                {{"stage", "stage"},
                 {"tensor", "tensor"},
                 {"what", "as"},
                 {"bytes", "bytes"},
                 {"copies", "micro-batches"},
                 {"count", "count"},
                 {"module", "in"}},
                {},
                "operands and results there: of the op at which most is live; count: equal tensors "
                "of repeated blocks, each of so many bytes, of which one is named"};
  const StageDevices devices = stageDevices(explained.plan);
  for (int stage = 0; stage < assignment.numStages; ++stage) {
    const Cluster &cluster = devices.of(stage);
    const double limit = double(std::max<int64_t>(1, explained.plan.limitBytes(cluster)));
    const StageMemory &memory = explained.prediction.stages[stage];
    int peak = peaks[stage];
    stages.rows.push_back(
        {Cell::count(stage), Cell::bytes(double(memory.totalBytes())),
         Cell::share(double(memory.totalBytes()) / limit),
         Cell::of(peak < 0 ? "" : graph.ops[peak].id),
         Cell::of(peak < 0 ? "" : shownModuleOf(explained.plan.job, graph, peak))});
    for (const MemoryLine &line : memory.lines)
      if (line.bytes > 0)
        lines.rows.push_back({Cell::count(stage), Cell::of(line.name),
                              Cell::bytes(double(line.bytes)),
                              Cell::share(double(line.bytes) / limit)});
    double hostLimit = double(std::max<int64_t>(1, cluster.usableHostBytes()));
    for (const MemoryLine &line : memory.host)
      lines.rows.push_back({Cell::count(stage), Cell::of("host: " + line.name),
                            Cell::bytes(double(line.bytes)),
                            Cell::share(double(line.bytes) / hostLimit)});
    std::vector<Holding> holdings;
    addParameters(explained, stage, holdings);
    const auto inFlight = double(microBatchesInFlight(schedule.actions[stage]));
    addResiduals(explained, stage, inFlight, holdings);
    addKeptRows(explained, stage, inFlight, holdings);
    if (peak >= 0)
      addOperandsAndResults(explained, peak, holdings);
    sortAndFold(holdings);
    constexpr size_t most = 10;
    for (size_t i = 0; i < holdings.size() && i < most && holdings[i].bytes > 0; ++i)
      tensors.rows.push_back(
          {Cell::count(stage), Cell::of(holdings[i].tensor), Cell::of(holdings[i].what),
           Cell::bytes(holdings[i].bytes), Cell::count(holdings[i].copies),
           Cell::count(double(holdings[i].tensors)), Cell::of(holdings[i].module)});
  }
  report.tables = {stages, lines, tensors};
  return report;
}

Report explainLayers(const ExplainedPlan &explained) {
  Table layers{"layers",
               "layers",
               {{"name", "layer"},
                {"ops", "ops"},
                {"parameters", "parameters"},
                {"seconds", "fwd+bwd"},
                {"residual_bytes", "kept"},
                {"split", "split"},
                {"first_op", "first op"}},
               {},
               "time and kept bytes are those of one micro-batch"};
  for (const BlockRow &row :
       blockRows(explained.graph, explained.step, explained.plan, /*folded=*/false))
    layers.rows.push_back({Cell::of(row.name), Cell::count(double(row.ops)),
                           Cell::count(double(row.parameters)), Cell::seconds(row.seconds),
                           Cell::bytes(double(row.residualBytes)), Cell::of(row.split),
                           Cell::of(row.firstOp)});
  Report report;
  report.tables = {layers};
  return report;
}

} // namespace tbc::planner
