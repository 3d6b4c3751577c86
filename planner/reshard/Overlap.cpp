//===- Overlap.cpp - Joined collectives, and gathers ahead ------------------===//

#include "planner/reshard/Overlap.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tbc::reshard {

static bool isMessage(const Collective &step) { return step.kind != CollectiveKind::ShardSlice; }

static bool hasMessage(const Reshard &reshard) {
  return std::any_of(reshard.steps.begin(), reshard.steps.end(), isMessage);
}

//===----------------------------------------------------------------------===//
// Buckets
//===----------------------------------------------------------------------===//

static bool isReduction(Where where) {
  return where == Where::GradientMicro || where == Where::GradientLast ||
         where == Where::GradientStep;
}

static bool isGather(Where where) {
  return where == Where::ParameterUse || where == Where::ParameterStep;
}

static bool mayBeJoint(const Collective &step, Where where) {
  const bool isFlat = step.dim < 0;
  if (isGather(where))
    return step.kind == CollectiveKind::AllGather && isFlat;
  return step.stages.empty() && step.reduce == ReduceKind::Sum &&
         (step.kind == CollectiveKind::AllReduce ||
          (step.kind == CollectiveKind::ReduceScatter && isFlat));
}

namespace {

/// The common properties of the members of a bucket.
struct Likeness {
  Where where;
  int stage, chunk;
  Phase phase;
  int64_t elementBytes;
  std::vector<std::pair<CollectiveKind, std::vector<AxisRef>>> messages;

  bool operator<(const Likeness &o) const {
    return std::tie(where, stage, chunk, phase, elementBytes, messages) <
           std::tie(o.where, o.stage, o.chunk, o.phase, o.elementBytes, o.messages);
  }
};

class BucketFormer {
public:
  BucketFormer(const Graph &graph, const Derivation &derivation, const OverlapSettings &settings,
               Overlap &out)
      : graph(graph), derivation(derivation), settings(settings), out(out) {
    for (const std::vector<Derivation::Operand> &operands : derivation.operands)
      for (const Derivation::Operand &operand : operands)
        read.insert(operand.reshard);
    for (size_t p = 0; p < graph.parameters.size(); ++p) {
      const GraphParameter &parameter = graph.parameters[p];
      if (parameter.gradient < 0)
        continue;
      ++numParameters[parameter.gradient];
      if (derivation.parameterStages[p].size() > 1)
        shared.insert({parameter.gradient, parameter.value});
    }
  }

  /// Fills buckets per likeness in order of derivation, and closes a bucket before it exceeds the
  /// limit.
  void run() {
    struct Open {
      Bucket bucket;
      int64_t bytes = 0;
    };
    std::map<Likeness, Open> open;
    for (size_t r = 0; r < derivation.reshards.size(); ++r) {
      if (!isJoinable(static_cast<int>(r)))
        continue;
      const Reshard &reshard = derivation.reshards[r];
      Open &here = open[likenessOf(reshard)];
      int64_t more = 0;
      for (const Collective &step : reshard.steps)
        more = std::max(more, isMessage(step) ? step.bytes : 0);
      if (here.bytes + more > limitOf(reshard.where))
        close(here.bucket), here.bytes = 0;
      here.bucket.reshards.push_back(static_cast<int>(r));
      here.bytes += more;
    }
    for (auto &[likeness, last] : open)
      close(last.bucket);
  }

private:
  int64_t limitOf(Where where) const {
    return where == Where::ParameterUse ? settings.gatherBytes : settings.bucketBytes;
  }

  /// Whether the reshard may share messages (see planOverlap).
  bool isJoinable(int index) const {
    const Reshard &reshard = derivation.reshards[index];
    if ((!isReduction(reshard.where) && !isGather(reshard.where)) || limitOf(reshard.where) == 0 ||
        !hasMessage(reshard))
      return false;
    for (const Collective &step : reshard.steps)
      if (isMessage(step) && !mayBeJoint(step, reshard.where))
        return false;
    if (reshard.where == Where::ParameterUse)
      return true;
    if (reshard.where == Where::ParameterStep)
      return settings.joinsUpdates && !shared.count(reshard.value);
    if (reshard.where == Where::GradientStep || reshard.where == Where::GradientLast)
      return !shared.count(reshard.value) && numParameters.at(reshard.value) == 1;
    return !read.count(index) &&
           std::none_of(derivation.residuals.begin(), derivation.residuals.end(),
                        [&](const Residual &residual) {
                          return residual.value == reshard.value && residual.sharding == reshard.to;
                        });
  }

  Likeness likenessOf(const Reshard &reshard) const {
    Likeness likeness{reshard.where,
                      reshard.stage,
                      reshard.chunk,
                      reshard.phase,
                      graph.values[reshard.value].layout.elementBytes,
                      {}};
    for (const Collective &step : reshard.steps)
      if (isMessage(step))
        likeness.messages.push_back({step.kind, step.axes});
    return likeness;
  }

  void close(Bucket &bucket) {
    if (bucket.reshards.size() > 1) {
      for (int member : bucket.reshards)
        out.bucketOf[member] = static_cast<int>(out.buckets.size());
      out.buckets.push_back(bucket);
    }
    bucket.reshards.clear();
  }

  const Graph &graph;
  const Derivation &derivation;
  const OverlapSettings &settings;
  Overlap &out;
  std::set<int> read;               // reshards read by ops
  std::set<int> shared;             // parameters on several stages, and their gradients
  std::map<int, int> numParameters; // by gradient
};

} // namespace

std::vector<Collective> jointMessages(const Derivation &derivation, const Bucket &bucket) {
  std::vector<Collective> messages;
  for (int member : bucket.reshards) {
    size_t number = 0;
    for (const Collective &step : derivation.reshards[member].steps) {
      if (!isMessage(step))
        continue;
      if (number == messages.size()) {
        messages.push_back(step);
      } else {
        messages[number].bytes += step.bytes;
        messages[number].numElements += step.numElements;
      }
      ++number;
    }
  }
  return messages;
}

void forEachCollective(const Derivation &derivation, const Overlap &overlap,
                       const std::function<void(const Reshard &, const Collective &)> &visit) {
  for (size_t r = 0; r < derivation.reshards.size(); ++r) {
    const Reshard &reshard = derivation.reshards[r];
    int bucket = overlap.bucket(derivation, reshard);
    if (bucket < 0) {
      for (const Collective &step : reshard.steps)
        if (isMessage(step))
          visit(reshard, step);
      continue;
    }
    if (overlap.buckets[bucket].reshards.back() == static_cast<int>(r))
      for (const Collective &step : jointMessages(derivation, overlap.buckets[bucket]))
        visit(reshard, step);
  }
}

//===----------------------------------------------------------------------===//
// Gathers ahead of their use
//===----------------------------------------------------------------------===//

/// Whether reshard `r` is alone or the first member of its bucket.
static bool isFirstMember(const Overlap &overlap, size_t r) {
  const int bucket = overlap.bucketOf[r];
  return bucket < 0 || overlap.buckets[bucket].reshards.front() == int(r);
}

/// Issues the members of a bucket together before the first one's op, and all gathers `ahead`.
static void gatherAhead(const Derivation &derivation, size_t ahead, Overlap &out) {
  std::map<std::pair<int, Phase>, std::vector<int>> usesOf; // by block: the ops of its gathers
  for (size_t r = 0; r < derivation.reshards.size(); ++r) {
    const Reshard &reshard = derivation.reshards[r];
    if (reshard.where != Where::ParameterUse)
      continue;
    const int bucket = out.bucketOf[r];
    if (!isFirstMember(out, r)) {
      out.issuedBefore[r] = out.issuedBefore[out.buckets[bucket].reshards.front()];
      continue;
    }
    std::vector<int> &uses = usesOf[{reshard.chunk, reshard.phase}];
    uses.push_back(reshard.op);
    size_t number = uses.size() - 1;
    if (ahead > 0 || bucket >= 0)
      out.issuedBefore[r] = uses[number < ahead ? 0 : number - ahead];
  }
}

Overlap planOverlap(const Graph &graph, const Derivation &derivation,
                    const OverlapSettings &settings) {
  Overlap out;
  out.bucketOf.assign(derivation.reshards.size(), -1);
  out.issuedBefore.assign(derivation.reshards.size(), -1);
  BucketFormer(graph, derivation, settings, out).run();
  gatherAhead(derivation, static_cast<size_t>(settings.prefetch), out);
  return out;
}

} // namespace tbc::reshard
