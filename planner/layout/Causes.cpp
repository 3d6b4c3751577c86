//===- Causes.cpp - Why a collective runs ---------------------------------===//

#include "planner/layout/Causes.h"
#include "planner/plan/ModelNames.h"

#include <algorithm>
#include <map>

using namespace tbc::reshard;

namespace tbc::planner {

static const char *purposeOf(Where where) {
  switch (where) {
  case Where::Operand:
    return "between ops";
  case Where::ParameterUse:
    return "parameter, before its use";
  case Where::GradientMicro:
    return "gradient, each micro-batch";
  case Where::GradientLast:
    return "gradient, in the last backward";
  case Where::GradientStep:
    return "gradient, once per step";
  case Where::MatrixTotals:
    return "size of a parameter and its direction, within the update";
  case Where::MatrixStep:
    return "matrix, within the update";
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

namespace {

/// Names the causes of the reshards of one step.
class Causes {
public:
  Causes(const Job &job, const Graph &graph, const Derivation &derivation, const Overlap &overlap)
      : job(job), graph(graph), derivation(derivation), overlap(overlap) {
    for (size_t p = 0; p < graph.parameters.size(); ++p) {
      for (const GradientParts::Part &part : derivation.gradientParts[p].parts)
        parameterOfGradient[part.value] = graph.parameters[p].value;
      if (graph.parameters[p].gradient >= 0)
        parameterOfGradient[graph.parameters[p].gradient] = graph.parameters[p].value;
    }
  }

  std::string of(const Reshard &reshard) const {
    const std::string cause = ownCause(reshard);
    return overlap.bucket(derivation, reshard) >= 0 ? "buckets that end with " + cause : cause;
  }

  std::string of(int op) const {
    std::string module = shownModuleOf(job, graph, op);
    return starred(module.empty() ? graph.ops[op].id : module + " " + graph.ops[op].kind);
  }

private:
  std::string ownCause(const Reshard &reshard) const {
    if (reshard.where == Where::StepTotal || reshard.value < 0)
      return "";
    int value = reshard.value;
    if (auto gradient = parameterOfGradient.find(value); gradient != parameterOfGradient.end())
      value = gradient->second;
    const GraphValue &v = graph.values[value];
    if (v.producer < 0)
      return starred(displayName(job, v));
    return of(reshard.op >= 0 ? reshard.op : v.producer);
  }

  const Job &job;
  const Graph &graph;
  const Derivation &derivation;
  const Overlap &overlap;
  std::map<int, int> parameterOfGradient; // by value
};

} // namespace

std::vector<CausedCollective> causedCollectives(const Job &job, const PlannedStep &step,
                                                const Derivation &derivation,
                                                const Overlap &overlap) {
  const Graph &graph = step.graph;
  const Assignment &assignment = step.assignment;
  const Causes causes(job, graph, derivation, overlap);
  std::vector<CausedCollective> all;
  forEachCollective(derivation, overlap, [&](const Reshard &reshard, const Collective &collective) {
    all.push_back({collective, reshard.stage, reshard.perStep ? 1 : assignment.microBatches,
                   purposeOf(reshard.where), causes.of(reshard)});
  });
  for (int op = 0; op < int(graph.ops.size()); ++op)
    for (const Collective &collective : ringCollectives(graph, op, assignment.strategies[op]))
      all.push_back({collective, assignment.stageOf(graph.ops[op].chunk), assignment.microBatches,
                     "inside an op, block by block", causes.of(op)});
  return all;
}

AxisNames axesOf(const Mesh &mesh, const Collective &collective) {
  AxisNames names;
  for (const AxisRef &axis : collective.axes)
    names.push_back(toString(mesh, {axis}));
  return names.empty() ? AxisNames{mesh::row(Axis::Pipeline).name} : names;
}

} // namespace tbc::planner
