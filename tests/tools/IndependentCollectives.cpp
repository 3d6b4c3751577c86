//===- IndependentCollectives.cpp - The expected collectives of a step ----===//

#include "tests/tools/IndependentCollectives.h"

#include "tests/tools/StepWalk.h"

#include <algorithm>
#include <map>
#include <set>

using namespace tbc::reshard;

namespace tbc::test {

static std::vector<ResidentBytes> residentByStage(const StepPlaces &places,
                                                  int64_t stateBytesPerElement) {
  const Graph &graph = places.graph;
  const Assignment &assignment = places.assignment;
  TensorMoves moves(assignment.mesh);
  std::vector<ResidentBytes> resident(assignment.numStages);
  for (size_t p = 0; p < places.parameters.size(); ++p) {
    const ParameterPlaces &parameter = places.parameters[p];
    const TensorLayout &layout = graph.values[graph.parameters[p].value].layout;
    for (int stage : parameter.stages) {
      ResidentBytes &bytes = resident[stage];
      bytes.parameters += moves.localBytes(layout, parameter.stored);
      if (graph.parameters[p].gradient < 0)
        continue;
      if (std::any_of(parameter.parts.begin(), parameter.parts.end(),
                      [&](const auto &part) { return places.stageOf(part.first) == stage; }))
        bytes.gradients += moves.localBytes(places.gradientLayout(p), parameter.accumulated);
      // A sum that is scattered lies beside the accumulated gradients, until the update.
      if (parameter.reducesLast && parameter.state.flat != parameter.accumulated.flat)
        bytes.gradients += moves.localBytes(places.gradientLayout(p), parameter.state);
      (assignment.offloadsStates ? bytes.hostOptimizerState : bytes.optimizerState) +=
          moves.localElements(layout, parameter.state) *
          (stateBytesPerElement + (layout.elementBytes < 4 ? 4 : 0));
    }
  }
  for (ResidentBytes &bytes : resident)
    bytes.optimizerState += graph.stepStateBytes;
  std::map<int, int> updates(graph.stateUpdates.begin(), graph.stateUpdates.end());
  for (int value = 0; value < int(graph.values.size()); ++value) {
    if (graph.values[value].producer >= 0 || graph.values[value].role != ValueRole::State)
      continue;
    std::set<int> stages;
    for (const StepPlaces::Use &use : places.uses[value])
      stages.insert(places.stageOf(graph.ops[use.op].chunk));
    if (auto next = updates.find(value); next != updates.end())
      stages.insert(places.stageOf(graph.ops[graph.values[next->second].producer].chunk));
    if (stages.empty())
      stages.insert(0);
    for (int stage : stages)
      resident[stage].state += moves.localBytes(graph.values[value].layout, places.home[value]);
  }
  return resident;
}

std::ostream &operator<<(std::ostream &out, const ResidentBytes &bytes) {
  return out << bytes.parameters << " of parameters, " << bytes.gradients << " of gradients, "
             << bytes.optimizerState << " of optimizer state, " << bytes.hostOptimizerState
             << " of it on the host, " << bytes.state << " of state";
}

JoinedSizes joinedSizes(const planner::Plan &plan) {
  return {plan.overlap.bucketBytes, plan.overlap.gatherBytes};
}

StepSignature expectedSignature(const Graph &graph, const Assignment &assignment,
                                int64_t stateBytesPerElement, const JoinedSizes &sizes) {
  StepPlaces places(graph, assignment);
  StepSignature result;
  StepWalk(places, sizes).run().addTo(result);
  result.resident = residentByStage(places, stateBytesPerElement);
  return result;
}

} // namespace tbc::test
