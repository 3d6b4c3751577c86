//===- ExplainComms.cpp - Collectives of a plan, and their causes ---------===//

#include "planner/cost/Cost.h"
#include "planner/cost/StageNetworks.h"
#include "planner/devices/StageDevices.h"
#include "planner/explain/Explain.h"
#include "planner/plan/ModelNames.h"
#include "planner/plan/PlanDevices.h"
#include "planner/predict/Evaluate.h"
#include "planner/reshard/Overlap.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace tbc::reshard;

namespace tbc::planner {

/// Replaces numbers by stars, so repeats share one line. Example: "transformer.h.3.attn" gives
/// "transformer.h.*.attn".
static std::string starred(const std::string &name) {
  std::string text;
  for (size_t begin = 0; begin <= name.size();) {
    size_t end = std::min(name.find('.', begin), name.size());
    std::string part = name.substr(begin, end - begin);
    bool isNumber = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    text += (begin ? "." : "") + (isNumber ? "*" : part);
    begin = end + 1;
  }
  return text;
}

static const char *purposeOf(Where where) {
  switch (where) {
  case Where::Operand:
    return "between ops";
  case Where::ParameterUse:
    return "parameter, before its use";
  case Where::GradientMicro:
    return "gradient, each micro-batch";
  case Where::GradientStep:
    return "gradient, once per step";
  case Where::ParameterStep:
    return "parameter, after the update";
  case Where::Loss:
    return "loss";
  case Where::StepTotal:
    return "norm, flags and counts";
  case Where::Stage:
    return "to another stage";
  }
  return "";
}

/// Returns the cause of a reshard: a parameter's name, or the op that reads or produces the value.
static std::string causeOf(const Job &job, const Graph &graph,
                           const std::map<int, int> &parameterOfGradient, const Reshard &reshard) {
  if (reshard.where == Where::StepTotal || reshard.value < 0)
    return "";
  int value = reshard.value;
  if (auto gradient = parameterOfGradient.find(value); gradient != parameterOfGradient.end())
    value = gradient->second;
  const GraphValue &v = graph.values[value];
  if (v.producer < 0)
    return starred(displayName(job, v));
  int op = reshard.op >= 0 ? reshard.op : v.producer;
  std::string module = moduleOf(job, graph, op);
  std::string place = module.empty() ? graph.ops[op].id : module + " " + graph.ops[op].kind;
  return starred(place);
}

Report explainCommunication(const ExplainedPlan &explained) {
  const Graph &graph = explained.step.graph;
  const Assignment &assignment = explained.step.assignment;
  const TimeSplit &time = explained.prediction.time;
  struct Sum {
    double count = 0, bytes = 0, seconds = 0;
  };
  std::map<std::tuple<std::string, std::string>, std::map<int, Sum>> kinds;
  for (const CollectiveLine &line : explained.prediction.collectives) {
    Sum &sum = kinds[{name(line.count.kind), line.count.axes}][line.count.stage];
    double count = double(line.count.count);
    sum.count += count;
    sum.bytes += count * double(line.count.bytes);
    sum.seconds += count * line.seconds;
  }
  Table table{"collectives",
              "collectives of one step and device, on the stage that spends most on them",
              {{"kind", "kind"},
               {"axes", "over"},
               {"stage", "stage"},
               {"count", "count"},
               {"bytes", "bytes"},
               {"seconds", "seconds"}},
              {},
              ""};
  for (const auto &[key, byStage] : kinds) {
    auto most = std::max_element(byStage.begin(), byStage.end(), [](const auto &a, const auto &b) {
      return a.second.seconds < b.second.seconds;
    });
    table.rows.push_back({Cell::of(std::get<0>(key)), Cell::of(std::get<1>(key)),
                          Cell::count(most->first), Cell::count(most->second.count),
                          Cell::bytes(most->second.bytes), Cell::seconds(most->second.seconds)});
  }

  std::map<int, int> parameterOfGradient;
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    for (const GradientParts::Part &part : explained.derivation.gradientParts[p].parts)
      parameterOfGradient[part.value] = graph.parameters[p].value;
    if (graph.parameters[p].gradient >= 0)
      parameterOfGradient[graph.parameters[p].gradient] = graph.parameters[p].value;
  }
  const StageDevices devices = stageDevices(explained.plan);
  StageNetworks network(devices, assignment.mesh, assignment.pipelineAxis);
  using Cause = std::tuple<std::string, std::string, Where, std::string>;
  std::map<Cause, Sum> causes;
  auto add = [&](const Reshard &reshard, const Collective &step) {
    CollectiveCount line;
    line.kind = step.kind;
    line.axes = step.axes.empty() ? "pp" : toString(assignment.mesh, step.axes);
    line.stage = reshard.stage;
    line.bytes = step.bytes;
    double count = reshard.perStep ? 1 : double(assignment.microBatches);
    std::string cause = causeOf(explained.plan.job, graph, parameterOfGradient, reshard);
    if (explained.overlap.bucket(explained.derivation, reshard) >= 0)
      cause = "buckets that end with " + cause;
    Sum &sum = causes[{name(step.kind), line.axes, reshard.where, cause}];
    sum.count += count;
    sum.bytes += count * double(step.bytes);
    sum.seconds += count * collectiveSeconds(network, assignment.mesh, line);
  };
  forEachCollective(explained.derivation, explained.overlap, add);
  std::vector<std::pair<Cause, Sum>> order(causes.begin(), causes.end());
  // Causes are distinct, so the order is unique.
  std::sort(order.begin(), order.end(), [](const auto &a, const auto &b) {
    return a.second.seconds != b.second.seconds ? a.second.seconds > b.second.seconds
                                                : a.first < b.first;
  });
  Table why{"causes",
            "what causes them, on all stages",
            {{"kind", "kind"},
             {"axes", "over"},
             {"purpose", "for"},
             {"cause", "of"},
             {"count", "count"},
             {"bytes", "bytes"},
             {"seconds", "seconds"}},
            {},
            ""};
  constexpr size_t most = 24;
  double rest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto &[cause, sum] = order[i];
    if (i >= most) {
      rest += sum.seconds;
      continue;
    }
    why.rows.push_back({Cell::of(std::get<0>(cause)), Cell::of(std::get<1>(cause)),
                        Cell::of(purposeOf(std::get<2>(cause))), Cell::of(std::get<3>(cause)),
                        Cell::count(sum.count), Cell::bytes(sum.bytes),
                        Cell::seconds(sum.seconds)});
  }
  if (order.size() > most)
    why.note =
        std::to_string(order.size() - most) + " more, together " + Cell::seconds(rest).toText();
  Report report;
  report.facts = {
      {"exposed_operand_seconds", "exposed, between ops", Cell::seconds(time.operands)},
      {"exposed_data_seconds", "exposed, of parameters and gradients", Cell::seconds(time.data)},
      {"hidden_data_seconds", "hidden behind kernels", Cell::seconds(time.hiddenData)},
      {"pipeline_seconds", "sends between stages and waiting for them",
       Cell::seconds(time.pipeline)}};
  report.tables = {table, why};
  return report;
}

} // namespace tbc::planner
