//===- ExplainComms.cpp - Collectives of a plan, and their causes ---------===//

#include "planner/cost/Cost.h"
#include "planner/cost/StageNetworks.h"
#include "planner/devices/StageDevices.h"
#include "planner/explain/Explain.h"
#include "planner/layout/Causes.h"
#include "planner/plan/PlanDevices.h"
#include "planner/predict/CollectivePrices.h"
#include "planner/reshard/Count.h"
#include "planner/reshard/Overlap.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace tbc::reshard;

namespace tbc::planner {

Report explainCommunication(const ExplainedPlan &explained) {
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

  const StageDevices devices = stageDevices(explained.plan);
  StageNetworks network(devices, assignment.mesh, assignment.pipelineAxis);
  using Cause = std::tuple<std::string, std::string, std::string, std::string>;
  std::map<Cause, Sum> causes;
  for (const CausedCollective &one : causedCollectives(explained.plan.job, explained.step,
                                                       explained.derivation, explained.overlap)) {
    CollectiveCount line;
    line.kind = one.collective.kind;
    line.axes = axesText(assignment.mesh, one.collective);
    line.stage = one.stage;
    line.bytes = one.collective.bytes;
    const double count = double(one.count);
    Sum &sum = causes[{name(line.kind), line.axes, one.purpose, one.cause}];
    sum.count += count;
    sum.bytes += count * double(line.bytes);
    sum.seconds +=
        count * listedSeconds(explained.prediction.collectives, network, assignment.mesh, line);
  }
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
  for (const auto &[cause, sum] : order)
    why.rows.push_back({Cell::of(std::get<0>(cause)), Cell::of(std::get<1>(cause)),
                        Cell::of(std::get<2>(cause)), Cell::of(std::get<3>(cause)),
                        Cell::count(sum.count), Cell::bytes(sum.bytes),
                        Cell::seconds(sum.seconds)});
  keepFirst(why, 24);
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
