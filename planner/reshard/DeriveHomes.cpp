//===- DeriveHomes.cpp - Homes of values, parameters and gradients --------===//

#include "planner/reshard/Derive.h"

#include <algorithm>

namespace tbc::reshard {

/// Returns the sharding of most uses; the first in op order on a tie.
Sharding ShardingChooser::majority(int value) const {
  std::vector<const Sharding *> wants = wantsOf(value);
  auto isFirst = [&](const Sharding *want) { return *want == *wants[0]; };
  if (!wants.empty() && std::all_of(wants.begin(), wants.end(), isFirst))
    return *wants[0];
  std::map<Sharding, int> votes;
  for (const Sharding *want : wants)
    ++votes[*want];
  Sharding best;
  int most = 0;
  for (const Sharding *want : wants) {
    int count = votes[*want];
    if (count <= most)
      continue;
    most = count;
    best = *want;
  }
  return best;
}

/// The common place of `axis` in all required shardings, or nullptr.
static const FactorSharding *commonPlace(const std::vector<const Sharding *> &wants,
                                         const AxisRef &axis) {
  const FactorSharding *common = nullptr;
  for (const Sharding *want : wants) {
    const FactorSharding *here = nullptr;
    for (const FactorSharding &f : want->factors)
      if (std::find(f.axes.begin(), f.axes.end(), axis) != f.axes.end())
        here = &f;
    if (!here || (common && (common->dim != here->dim || common->factor != here->factor)))
      return nullptr;
    if (!common)
      common = here;
  }
  return common;
}

static bool startsWith(const std::vector<AxisRef> &list, const std::vector<AxisRef> &prefix) {
  return list.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), list.begin());
}

/// Scatters the partial axes of `value` to the place that all its users require: at the end of one
/// factor's list, in the users' order. Returns false, without changes, if no axis has such a place;
/// axes without one are completed by all_reduce.
bool ShardingChooser::scatter(int value, Sharding &sharding) const {
  std::vector<const Sharding *> wants = wantsOf(value);
  std::vector<Partial> partial = out.raw[value].partial;
  if (wants.empty() || partial.front().kind != ReduceKind::Sum)
    return false;
  bool any = false;
  for (bool changed = true; changed;) { // until no axis fits behind those placed so far
    changed = false;
    for (auto p = partial.begin(); p != partial.end(); ++p) {
      const FactorSharding *place = commonPlace(wants, p->axis);
      if (!place)
        continue;
      std::vector<AxisRef> axes;
      if (const FactorSharding *have = find(sharding, place->dim, place->factor))
        axes = have->axes;
      axes.push_back(p->axis);
      if (!std::all_of(wants.begin(), wants.end(), [&](const Sharding *want) {
            return startsWith(find(*want, place->dim, place->factor)->axes, axes);
          }))
        continue;
      auto same = [&](const FactorSharding &f) {
        return f.dim == place->dim && f.factor == place->factor;
      };
      auto &factors = sharding.factors;
      factors.erase(std::remove_if(factors.begin(), factors.end(), same), factors.end());
      factors.push_back({place->dim, place->factor, axes});
      normalize(sharding);
      partial.erase(p);
      any = changed = true;
      break;
    }
  }
  return any;
}

Sharding ShardingChooser::completed(int value) const {
  if (index.stateFor[value] >= 0)
    return out.home[index.stateFor[value]];
  Sharding sharding = out.raw[value];
  if (sharding.partial.empty())
    return sharding;
  sharding.partial.clear();
  scatter(value, sharding);
  return sharding;
}

void ShardingChooser::chooseHomes() {
  out.home.resize(graph.values.size());
  for (size_t i = 0; i < graph.values.size(); ++i)
    if (graph.values[i].producer < 0)
      out.raw[i] = out.home[i] = majority(static_cast<int>(i));
  for (size_t i = 0; i < graph.values.size(); ++i) {
    int value = static_cast<int>(i);
    if (graph.values[value].producer < 0)
      continue;
    bool leaves = deferred[value] || (!isUsed(value) && index.stateFor[value] < 0);
    out.home[value] = leaves ? out.raw[value] : completed(value);
  }
  for (size_t p = 0; p < graph.parameters.size(); ++p)
    placeParameter(static_cast<int>(p));
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

/// The zero axes over which the parameter is replicated.
static std::vector<AxisRef> zeroAxesOf(const ParameterPlan &plan, const Sharding &home) {
  std::vector<AxisRef> used = usedAxes(home), result;
  for (const AxisRef &axis : plan.zeroAxes)
    if (axis.size > 1 && !overlap(used, axis))
      result.push_back(axis);
  return result;
}

void ShardingChooser::placeParameter(int parameter) {
  const ParameterPlan &plan = assignment.parameterPlans[parameter];
  int value = graph.parameters[parameter].value;
  const Sharding &home = out.home[value];
  Sharding flat = home;
  flat.flat = zeroAxesOf(plan, home);
  out.stored.push_back(plan.zero >= 3 ? flat : home);
  out.state.push_back(plan.zero >= 1 ? flat : home);
  out.gradient.push_back(gradientOf(parameter));

  std::set<int> stages;
  for (int user : graph.values[value].users)
    if (!index.skipped[user])
      stages.insert(assignment.stageOf(graph.ops[user].chunk));
  // A part that is also another value's cotangent may be on a stage without a use of the
  // parameter.
  for (const GradientParts::Part &part : out.gradientParts[parameter].parts)
    stages.insert(assignment.stageOf(part.chunk));
  if (stages.empty())
    stages.insert(0);
  out.parameterStages.emplace_back(stages.begin(), stages.end());
}

/// The accumulated gradient: like the parameter, partial over the data axes common to all parts;
/// with zero >= 2 scattered over the zero axes. A gradient without accumulation is completed at
/// once, so its reduction may run beside the rest of the backward.
Sharding ShardingChooser::gradientOf(int parameter) const {
  const ParameterPlan &plan = assignment.parameterPlans[parameter];
  Sharding result = out.home[graph.parameters[parameter].value];
  const auto &parts = out.gradientParts[parameter].parts;
  if (parts.empty())
    return result;
  std::vector<AxisRef> flat, data = plan.reduceAxes;
  bool isAtOnce = assignment.microBatches == 1 && assignment.numStages == 1 && parts.size() == 1;
  if (plan.zero >= (isAtOnce ? 1 : 2))
    flat = zeroAxesOf(plan, result);
  data.insert(data.end(), plan.zeroAxes.begin(), plan.zeroAxes.end());
  std::vector<AxisRef> used = usedAxes(result);
  used.insert(used.end(), flat.begin(), flat.end());
  for (const Partial &p : out.home[parts[0].value].partial) {
    bool everywhere = std::all_of(parts.begin(), parts.end(), [&](const auto &part) {
      const std::vector<Partial> &other = out.home[part.value].partial;
      return std::find(other.begin(), other.end(), p) != other.end();
    });
    if (!isAtOnce && everywhere && overlap(data, p.axis) && !overlap(used, p.axis))
      result.partial.push_back(p);
  }
  result.flat = flat;
  normalize(result);
  return result;
}

} // namespace tbc::reshard
