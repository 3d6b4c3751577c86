//===- Families.cpp - Strategies by name, and the simplest of equals -------===//

#include "planner/search/Families.h"
#include "planner/search/CandidateOrder.h"

#include <algorithm>
#include <map>
#include <set>

namespace tbc::planner {

static DataFamily dataFamilyOf(const MeshShape &mesh, const ZeroChoice &zero) {
  if (mesh.tokenRanks() == 1)
    return DataFamily::None;
  switch (zero.zero) {
  case 0:
    return DataFamily::Ddp;
  case 1:
    return DataFamily::Zero1;
  case 2:
    return DataFamily::Zero2;
  default:
    return mesh.dp > 1 && mesh.fsdp > 1 ? DataFamily::Hsdp : DataFamily::Fsdp;
  }
}

Family familyOf(const MeshShape &mesh, const ZeroChoice &zero) {
  return {dataFamilyOf(mesh, zero), mesh.pp > 1, mesh.ep > 1, mesh.cp > 1, mesh.tp > 1};
}

/// Returns the number of free tenths of memory, by the upper end of the estimate.
static int64_t freeTenths(const Prediction &prediction) {
  constexpr int64_t parts = 10;
  int64_t limit = std::max<int64_t>(1, prediction.limitBytes);
  return std::max<int64_t>(0, limit - prediction.highBytes) * parts / limit;
}

/// Returns the rank of a schedule; the kinds are in order from simple to complicated.
static size_t scheduleRank(const Plan &plan) {
  return plan.schedule ? 1 + size_t(*plan.schedule) : 0;
}

static auto simplicityKey(const Plan &plan) {
  const ZeroChoice zero{plan.parameterDefault.zero, plan.parameterDefault.keepGathered};
  const Family family = familyOf(plan.mesh, zero);
  const MeshShape &mesh = plan.mesh;
  const bool leavesNode = mesh.tp * mesh.cp * mesh.ep > plan.cluster.devicesPerNode;
  return std::make_tuple(family.modelAxes(), family.data, mesh.numAxes(), plan.recompute.mode,
                         !plan.offload.isNone(), scheduleRank(plan), leavesNode,
                         -freeTenths(plan.prediction));
}

bool isSimpler(const Plan &a, const Plan &b) { return simplicityKey(a) < simplicityKey(b); }

void preferSimplest(std::vector<ExactCandidate> &exact, MemoryVerdict goal, double tie) {
  if (exact.empty() || !exact.front().plan.prediction.meets(goal))
    return;
  constexpr double leastTie = 1e-3;
  const double limit = exact.front().plan.prediction.stepSeconds * (1 + std::max(tie, leastTie));
  size_t best = 0;
  for (size_t i = 1; i < exact.size(); ++i) {
    const Prediction &prediction = exact[i].plan.prediction;
    if (prediction.meets(goal) && prediction.stepSeconds <= limit &&
        isSimpler(exact[i].plan, exact[best].plan))
      best = i;
  }
  std::rotate(exact.begin(), exact.begin() + int64_t(best), exact.begin() + int64_t(best) + 1);
}

namespace {

/// The families of a list of candidates, each with its candidates in order of their bounds.
class FamilyScan {
public:
  FamilyScan(Searcher &searcher, const FamilyQuestion &question, const Deadline &deadline)
      : searcher(searcher), question(question), deadline(deadline) {
    for (const Candidate &candidate : question.candidates) {
      auto [place, isNew] = members.try_emplace(familyOf(candidate));
      if (isNew)
        order.push_back(place->first);
      place->second.push_back(&candidate);
    }
    for (const Candidate &candidate : question.scored) {
      known.insert(candidate.order);
      if (candidate.feasible && candidate.recompute == RecomputeMode::None)
        fitting.insert(twinsOf(candidate));
      keep(candidate);
    }
  }

  std::vector<Candidate> run() {
    const std::vector<Family> families = wanted();
    for (const Family &family : families)
      scan(family);
    std::vector<Candidate> found;
    // The best of a family may have been scored before, but be too slow to be derived.
    for (const Family &family : families) {
      auto leader = best.find(family);
      if (leader != best.end() && known.count(leader->second.order) && leader->second.feasible &&
          (family.isDdp() ||
           leader->second.seconds <= question.fastestSeconds * (1 + question.tie)))
        found.push_back(leader->second);
    }
    for (const Candidate &candidate : fresh) {
      const Candidate &first = best.at(familyOf(candidate));
      if (first.order == candidate.order && (candidate.feasible || familyOf(candidate).isDdp()))
        found.push_back(candidate);
    }
    if (auto ddp = hopelessDdp())
      found.push_back(*ddp);
    return found;
  }

private:
  void keep(const Candidate &candidate) {
    auto [place, isNew] = best.try_emplace(familyOf(candidate), candidate);
    if (!isNew && isBetter(candidate, place->second))
      place->second = candidate;
  }

  std::vector<Family> wanted() const {
    std::vector<Family> families;
    for (size_t i = 0; i < order.size(); ++i)
      if (order[i].isDdp() || i < size_t(question.top) ||
          members.at(order[i]).front()->lowerBound <= question.fastestSeconds * (1 + question.tie))
        families.push_back(order[i]);
    return families;
  }

  /// Scores members of `family` until their bounds exclude a better one. Beyond the tie it is only
  /// a runner-up, so a few are enough.
  void scan(const Family &family) {
    constexpr int mostScored = 8;
    int scored = 0;
    for (const Candidate *member : members.at(family)) {
      auto leader = best.find(family);
      const bool hasFit = leader != best.end() && leader->second.feasible;
      const bool mayTie = member->lowerBound <= question.fastestSeconds * (1 + question.tie);
      if ((hasFit && member->lowerBound >= leader->second.seconds) ||
          (!mayTie && scored >= mostScored) || scored >= 4 * mostScored || deadline.isOver())
        return;
      if (known.count(member->order))
        continue;
      ++scored;
      if (member->recompute != RecomputeMode::None && fitting.count(twinsOf(*member)) > 0)
        continue; // needless, as for LookAhead::isRuledOut
      Candidate candidate = *member;
      if (!searcher.pricer.score(candidate, /*refine=*/false))
        continue;
      keep(candidate);
      fresh.push_back(std::move(candidate));
    }
  }

  /// Returns the DDP candidate with the least memory among the hopeless ones, if no other DDP
  /// candidate is known.
  std::optional<Candidate> hopelessDdp() {
    const Candidate *least = nullptr;
    for (const auto &[family, candidate] : best)
      if (family.isDdp())
        return std::nullopt;
    auto holdsLess = [](const Candidate &a, const Candidate &b) {
      return std::tie(a.leastBytes, a.microBatch, b.recompute, a.order) <
             std::tie(b.leastBytes, b.microBatch, a.recompute, b.order);
    };
    for (const Candidate &candidate : question.hopeless)
      if (familyOf(candidate).isDdp() && (!least || holdsLess(candidate, *least)))
        least = &candidate;
    if (!least || deadline.isOver())
      return std::nullopt;
    Candidate candidate = *least;
    if (!searcher.pricer.score(candidate, /*refine=*/false))
      return std::nullopt;
    return candidate;
  }

  Searcher &searcher;
  const FamilyQuestion &question;
  const Deadline &deadline;
  std::map<Family, std::vector<const Candidate *>> members;
  std::vector<Family> order; // by the least bound of the members
  std::map<Family, Candidate> best;
  std::set<int> known;                              // by Candidate::order
  std::set<decltype(twinsOf(Candidate()))> fitting; // without forced recomputation
  std::vector<Candidate> fresh;
};

} // namespace

std::vector<Candidate> bestOfFamilies(Searcher &searcher, const FamilyQuestion &question,
                                      const Deadline &deadline) {
  return FamilyScan(searcher, question, deadline).run();
}

std::vector<const ExactCandidate *> runnersUp(const std::vector<ExactCandidate> &exact,
                                              size_t most) {
  std::vector<size_t> chosen;
  std::set<Family> families{familyOf(exact.front().candidate)};
  auto add = [&](size_t i) {
    if (chosen.size() < most && std::find(chosen.begin(), chosen.end(), i) == chosen.end()) {
      chosen.push_back(i);
      families.insert(familyOf(exact[i].candidate));
    }
  };
  auto isFast = [&](size_t i) {
    return exact[i].plan.prediction.stepSeconds < exact[0].plan.prediction.stepSeconds;
  };
  if (exact.size() > 1 && isFast(1))
    add(1);
  for (size_t i = 1; i < exact.size(); ++i)
    if (familyOf(exact[i].candidate).isDdp() && !families.count(familyOf(exact[i].candidate)))
      add(i);
  for (size_t i = 1; i < exact.size(); ++i)
    if (!families.count(familyOf(exact[i].candidate)))
      add(i);
  for (size_t i = 1; i < exact.size(); ++i)
    add(i);
  std::sort(chosen.begin(), chosen.end());
  std::vector<const ExactCandidate *> result;
  for (size_t i : chosen)
    result.push_back(&exact[i]);
  return result;
}

} // namespace tbc::planner
