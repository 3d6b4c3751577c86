//===- Mixture.cpp - Routers and experts ---------------------------------------===//

#include "tools/new/Blocks.h"

namespace tbc::newmodel {

using Module = GraphWriter::Module;

static GraphWriter::Attribute lastAxis() { return {"axis", int64_t(-1)}; }

static std::string sumOver(GraphWriter &w, const std::string &x, int64_t dim, bool keepsDim) {
  return w.op("ReduceSum", {x, w.ints({dim})}, {{"keepdims", int64_t(keepsDim)}});
}

/// The experts of a token, [tokens, top], and the weights of each.
struct Choice {
  std::string weights, indices;
};

/// Returns scores, [tokens, experts], with 0 for all experts outside the best groups. A group
/// counts by the sum of its two best. Source: DeepSeek-V3 technical report (2024), section 2.1.2.
static std::string bestGroups(GraphWriter &w, const Architecture &a, const std::string &scores) {
  const int64_t width = a.experts / a.groups;
  std::string grouped = w.op("Reshape", {scores, w.ints({-1, a.groups, width})});
  auto two = w.ops("TopK", {grouped, w.ints({2})}, 2, {lastAxis()});
  std::string worth = sumOver(w, two[0], -1, false);
  auto best = w.ops("TopK", {worth, w.ints({a.topGroups})}, 2, {lastAxis()});
  Ints numbers;
  for (int64_t group = 0; group < a.groups; ++group)
    numbers.push_back(group);
  std::string equal = w.op("Equal", {w.op("Unsqueeze", {best[1], w.ints({-1})}), w.ints(numbers)});
  std::string mask = sumOver(w, w.op("Cast", {equal}, {{"to", int64_t(1)}}), 1, false);
  std::string masked = w.op("Mul", {grouped, w.op("Unsqueeze", {mask, w.ints({-1})})});
  return w.op("Reshape", {masked, w.ints({-1, a.experts})});
}

/// Chooses by sigmoids of the logits. The table "e_score_correction_bias" balances the load: it
/// changes the choice, not the weights, and no gradient trains it.
static Choice chooseBySigmoid(GraphWriter &w, const Architecture &a, const std::string &logits) {
  std::string scores = w.op("Sigmoid", {logits});
  std::vector<float> zeros(size_t(a.experts), 0);
  std::string corrected = w.op("Add", {scores, w.constant({a.experts}, zeros)});
  if (a.groups > 1)
    corrected = bestGroups(w, a, corrected);
  auto chosen = w.ops("TopK", {corrected, w.ints({a.expertsPerToken})}, 2, {lastAxis()});
  return {w.op("GatherElements", {scores, chosen[1]}, {{"axis", int64_t(1)}}), chosen[1]};
}

static Choice choose(GraphWriter &w, const Architecture &a, const std::string &tokens) {
  std::string logits = w.linear(tokens, "gate", a.hidden, a.experts, false);
  Choice choice;
  if (a.routesBySigmoid) {
    choice = chooseBySigmoid(w, a, logits);
  } else {
    std::string likes = w.op("Softmax", {logits}, {lastAxis()});
    auto chosen = w.ops("TopK", {likes, w.ints({a.expertsPerToken})}, 2, {lastAxis()});
    choice = {chosen[0], chosen[1]};
  }
  if (a.normalizesWeights)
    choice.weights = w.op("Div", {choice.weights, sumOver(w, choice.weights, -1, true)});
  if (a.routedScale != 1)
    choice.weights = w.op("Mul", {choice.weights, w.constant({}, {float(a.routedScale)})});
  return choice;
}

/// Experts written densely with stacked weights: every expert computes every token, with weight 0
/// if it is not chosen. The importer turns this into one routed op, which computes only the chosen
/// ones. Source: Jiang et al., "Mixtral of experts" (2024), section 2.1.
static std::string routedExperts(GraphWriter &w, const Architecture &a, const std::string &tokens) {
  Choice choice = choose(w, a, tokens);
  std::string weights = w.op("Unsqueeze", {choice.weights, w.ints({-1})});
  Ints numbers;
  for (int64_t expert = 0; expert < a.experts; ++expert)
    numbers.push_back(expert);
  std::string equal =
      w.op("Equal", {w.op("Unsqueeze", {choice.indices, w.ints({-1})}), w.ints(numbers)});
  std::string isChosen = w.op("Cast", {equal}, {{"to", int64_t(1)}});
  std::string routed = sumOver(w, w.op("Mul", {isChosen, weights}), 1, false);
  Module each(w, "experts");
  const int64_t inner = a.isGated ? 2 * a.ffn : a.ffn;
  std::string up = w.weight(a.isGated ? "gate_up_proj" : "up_proj", {a.experts, inner, a.hidden});
  std::string y = w.op("Einsum", {tokens, up}, {{"equation", std::string("nd,efd->enf")}});
  if (a.isGated) {
    auto halves = w.ops("Split", {y}, 2, {lastAxis(), {"num_outputs", int64_t(2)}});
    y = w.op("Mul", {w.activation(a.activation, halves[0]), halves[1]});
  } else {
    y = w.activation(a.activation, y);
  }
  y = w.op("Einsum", {y, w.weight("down_proj", {a.experts, a.hidden, a.ffn})},
           {{"equation", std::string("enf,edf->end")}});
  return w.op("Einsum", {y, routed}, {{"equation", std::string("end,ne->nd")}});
}

std::string mixtureOfExperts(GraphWriter &w, const Architecture &a, const std::string &x) {
  Module module(w, a.expertModule);
  std::string tokens = w.op("Reshape", {x, w.ints({-1, a.hidden})});
  std::string y = w.op("Reshape", {routedExperts(w, a, tokens), w.op("Shape", {x})});
  if (a.sharedFfn == 0)
    return y;
  std::string shared;
  {
    Module module(w, a.hasSharedGate ? "shared_expert" : "shared_experts");
    shared = mlpLayers(w, a, x, a.sharedFfn);
  }
  if (a.hasSharedGate)
    shared = w.op(
        "Mul", {shared, w.op("Sigmoid", {w.linear(x, "shared_expert_gate", a.hidden, 1, false)})});
  return w.op("Add", {y, shared});
}

} // namespace tbc::newmodel
