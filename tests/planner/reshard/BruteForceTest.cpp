//===- BruteForceTest.cpp - No sequence of up to three steps is cheaper ----===//
//
// Tries all sequences of collectives, written from their documentation and independent of the
// library's own search. Prices are bytes on the wire, counted here from local shapes.
//
//===----------------------------------------------------------------------===//

#include "planner/reshard/Collective.h"
#include "tests/planner/reshard/RandomShardings.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <functional>
#include <map>

namespace tbc::reshard {
namespace {

class BruteForce {
public:
  BruteForce(const Mesh &mesh, const TensorLayout &layout, const Sharding &from, const Sharding &to)
      : mesh(mesh), layout(layout), to(to), named(usedAxes(from)) {
    for (const AxisRef &axis : usedAxes(to))
      if (!overlap(named, axis))
        named.push_back(axis);
  }

  /// The price of the best sequence of at most `steps`, or kNever.
  double search(const Sharding &state, int steps) {
    if (state == to)
      return 0;
    if (steps == 0)
      return kNever;
    auto [it, isNew] = known.try_emplace({state, steps}, kNever);
    double &found = it->second;
    if (isNew)
      forEachStep(state, [&](const Sharding &next, double price) {
        found = std::min(found, price + search(next, steps - 1));
      });
    return found;
  }

  static constexpr double kNever = 1e30;

private:
  using Visit = std::function<void(const Sharding &, double)>;

  double bytes(const Sharding &s) const { return static_cast<double>(localBytes(layout, s)); }
  static double share(const std::vector<AxisRef> &axes) {
    double n = static_cast<double>(groupSize(axes));
    return (n - 1) / n;
  }
  bool isValid(const Sharding &s) const { return whyInvalid(mesh, layout, s).empty(); }

  /// Every ordered choice of one or more of `axes`.
  static void choices(const std::vector<AxisRef> &axes, std::vector<AxisRef> &chosen,
                      const std::function<void(const std::vector<AxisRef> &)> &visit) {
    for (const AxisRef &axis : axes) {
      if (overlap(chosen, axis))
        continue;
      chosen.push_back(axis);
      visit(chosen);
      choices(axes, chosen, visit);
      chosen.pop_back();
    }
  }

  void appendEverywhere(const Sharding &s, const std::vector<AxisRef> &axes,
                        const std::function<void(const Sharding &, int dim)> &visit) const {
    for (size_t dim = 0; dim < layout.dims.size(); ++dim)
      for (const Factor &factor : layout.dims[dim].segments[0].factors) {
        Sharding next = s;
        auto entry = std::find_if(next.factors.begin(), next.factors.end(), [&](const auto &f) {
          return f.dim == static_cast<int>(dim) && f.factor == factor.id;
        });
        if (entry == next.factors.end())
          entry = next.factors.insert(entry, {static_cast<int>(dim), factor.id, {}});
        entry->axes.insert(entry->axes.end(), axes.begin(), axes.end());
        normalize(next);
        if (isValid(next))
          visit(next, static_cast<int>(dim));
      }
  }

  static Sharding without(const Sharding &s, const std::vector<AxisRef> &partial) {
    Sharding next = s;
    next.partial.clear();
    for (const Partial &p : s.partial)
      if (!overlap(partial, p.axis))
        next.partial.push_back(p);
    return next;
  }

  void forEachStep(const Sharding &s, const Visit &visit) const {
    std::vector<AxisRef> partial, free, used = usedAxes(s), chosen;
    for (const Partial &p : s.partial)
      partial.push_back(p.axis);
    for (const AxisRef &axis : named)
      if (!overlap(used, axis))
        free.push_back(axis);
    bool isSum = !s.partial.empty() && s.partial[0].kind == ReduceKind::Sum;
    choices(partial, chosen, [&](const std::vector<AxisRef> &axes) {
      Sharding next = without(s, axes);
      visit(next, 2 * share(axes) * bytes(s));
      if (!isSum || !s.flat.empty())
        return;
      appendEverywhere(next, axes,
                       [&](const Sharding &t, int) { visit(t, share(axes) * bytes(s)); });
      next.flat = axes;
      double n = static_cast<double>(groupSize(axes));
      visit(next, share(axes) * bytes(next) * n);
    });
    if (!s.flat.empty()) {
      Sharding next = s;
      next.flat.clear();
      visit(next, share(s.flat) * bytes(s) * static_cast<double>(groupSize(s.flat)));
      return;
    }
    choices(free, chosen, [&](const std::vector<AxisRef> &axes) {
      appendEverywhere(s, axes, [&](const Sharding &t, int) { visit(t, 0); });
      Sharding next = s;
      next.flat = axes;
      visit(next, 0);
    });
    forEachGather(s, visit);
  }

  void forEachGather(const Sharding &s, const Visit &visit) const {
    for (size_t i = 0; i < s.factors.size(); ++i)
      for (size_t first = 0; first < s.factors[i].axes.size(); ++first) {
        const std::vector<AxisRef> &list = s.factors[i].axes;
        std::vector<AxisRef> suffix(list.begin() + first, list.end());
        Sharding next = s;
        next.factors[i].axes.resize(first);
        normalize(next);
        visit(next, share(suffix) * bytes(next));
        appendEverywhere(next, suffix, [&](const Sharding &t, int dim) {
          if (dim != s.factors[i].dim)
            visit(t, share(suffix) * bytes(s));
        });
      }
  }

  const Mesh &mesh;
  const TensorLayout &layout;
  const Sharding &to;
  std::vector<AxisRef> named; // axes of the two shardings; no others are tried
  std::map<std::pair<Sharding, int>, double> known;
};

class ReshardOptimal : public testing::TestWithParam<int> {};

TEST_P(ReshardOptimal, NoSequenceOfThreeStepsIsCheaper) {
  test::RandomShardings random(77 + GetParam());
  int compared = 0, improvable = 0;
  for (int i = 0; i < 400; ++i) {
    Mesh mesh = random.mesh(random.below(2) ? 3 : 2);
    TensorLayout layout = random.layout(3, random.below(4) == 0);
    Sharding from = random.sharding(mesh, layout, false, true);
    Sharding to = random.target(mesh, layout, from, false, true);
    double price = 0;
    for (const Collective &c : reshard(mesh, layout, from, to))
      price += bytesOnWire(c);
    double best = BruteForce(mesh, layout, from, to).search(from, 3);
    // Partial sums over the axes of a flat target are scattered by rule, even if padding makes that
    // expensive.
    auto isPartial = [&](const AxisRef &axis) {
      return std::any_of(from.partial.begin(), from.partial.end(),
                         [&](const Partial &p) { return p.axis == axis; });
    };
    if (!to.flat.empty() && std::any_of(to.flat.begin(), to.flat.end(), isPartial))
      continue;
    EXPECT_LE(price, best * (1 + 1e-9)) << toString(mesh, from) << " -> " << toString(mesh, to);
    compared += best < BruteForce::kNever;
    improvable += best > 0;
  }
  EXPECT_GT(compared, 125);
  EXPECT_GT(improvable, 50);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ReshardOptimal, testing::Range(0, 6));

} // namespace
} // namespace tbc::reshard
