//===- Reshard.cpp - The cheapest collectives between two shardings --------===//
//
// Dijkstra over shardings. Mesh axes at the same place in `from` and `to` (a common prefix of its
// list) stay: moving them makes every other step larger. Rarely more than two axes remain, so the
// search sees tens of shardings. Example: [d0@dp] to [d0@dp, d1@tp] keeps dp.
//
//===----------------------------------------------------------------------===//

#include "planner/reshard/Move.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>

namespace tbc::reshard {
namespace {

class Search {
public:
  Search(const Mesh &mesh, const TensorLayout &layout, const Sharding &from, const Sharding &to,
         const CollectiveCost &cost)
      : mesh(mesh), layout(layout), from(from), to(to), cost(cost) {
    findMovableAxes();
    findPlaces();
    auto isSum = [&](const AxisRef &axis) {
      return std::find(from.partial.begin(), from.partial.end(), Partial{axis, ReduceKind::Sum}) !=
             from.partial.end();
    };
    scattersFlat = !to.flat.empty() && std::all_of(to.flat.begin(), to.flat.end(), isSum);
    // Breaks ties in favour of fewer steps; larger than rounding errors of cost sums.
    double scale = 0;
    for (const AxisRef &axis : movable) {
      Collective probe;
      probe.axes = {axis};
      probe.bytes = localBytes(layout, {});
      scale = std::max(scale, cost(probe));
    }
    stepPenalty = 1e-9 * scale;
  }

  std::vector<Move> run();

private:
  struct Node {
    double cost = 0;
    bool done = false;
    Move move; // the last one
    const Sharding *previous = nullptr;
  };

  void findMovableAxes();
  void findPlaces();
  bool isFree(const Sharding &state, const AxisRef &axis) const {
    return !overlap(usedAxes(state), axis);
  }
  /// The number of axes that stay at `place`.
  size_t numFixed(const Place &place) const;
  bool fits(const Sharding &state, const Place &place, const std::vector<AxisRef> &axes) const;
  std::vector<Place> shardedPlaces(const Sharding &state) const;
  std::vector<Move> moves(const Sharding &state) const;
  double costOf(const Sharding &state, const Move &move) const {
    return cost(describeSize(layout, state, move)) + stepPenalty;
  }
  double costOfGatheringAll() const;
  void addAllReduces(const std::vector<AxisRef> &partial, std::vector<Move> &result) const;
  void addToPlaces(const Sharding &state, CollectiveKind kind, const std::vector<AxisRef> &axes,
                   std::vector<Move> &result) const;
  void addGathers(const Sharding &state, std::vector<Move> &result) const;
  void addFlat(const Sharding &state, const std::vector<AxisRef> &partial,
               std::vector<Move> &result) const;

  const Mesh &mesh;
  const TensorLayout &layout;
  const Sharding &from, &to;
  const CollectiveCost &cost;
  std::vector<AxisRef> movable; // parts with changing positions
  std::vector<Place> places;    // their possible positions, without flat
  /// Lists of several axes at one position of `to`, added by a single slice or scatter.
  std::vector<std::vector<AxisRef>> lists;
  /// Whether sums over all flat axes of `to` are scattered to it, for any padding. They are
  /// then never completed and cut, nor scattered along a dim and gathered.
  bool scattersFlat = false;
  double stepPenalty = 0;
};

size_t Search::numFixed(const Place &place) const {
  const auto &a = axesAt(from, place), &b = axesAt(to, place);
  size_t count = 0;
  while (count < a.size() && count < b.size() && a[count] == b[count])
    ++count;
  return count;
}

void Search::findMovableAxes() {
  std::set<AxisRef> parts;
  for (const Sharding *s : {&from, &to}) {
    for (const FactorSharding &f : s->factors)
      parts.insert(f.axes.begin() + numFixed({f.dim, f.factor}), f.axes.end());
    parts.insert(s->flat.begin(), s->flat.end());
  }
  for (const Partial &p : from.partial)
    if (std::find(to.partial.begin(), to.partial.end(), p) == to.partial.end())
      parts.insert(p.axis);
  movable.assign(parts.begin(), parts.end());
}

/// Every factor of every dim; with too many shardings, only the factors sharded in `from` or
/// `to`.
void Search::findPlaces() {
  std::set<Place> all, named;
  for (size_t dim = 0; dim < layout.dims.size(); ++dim)
    for (const Segment &segment : layout.dims[dim].segments)
      for (const Factor &factor : segment.factors) {
        Place place{static_cast<int>(dim), factor.id};
        Sharding alone{{{place.dim, place.factor, {}}}, {}, {}};
        if (factor.size > 1 && whyInvalid(mesh, layout, alone).empty())
          all.insert(place);
      }
  for (const Sharding *s : {&from, &to})
    for (const FactorSharding &f : s->factors)
      named.insert({f.dim, f.factor});
  for (const FactorSharding &f : to.factors)
    for (size_t first = numFixed({f.dim, f.factor}); first < f.axes.size(); ++first)
      for (size_t end = first + 2; end <= f.axes.size(); ++end)
        lists.emplace_back(f.axes.begin() + first, f.axes.begin() + end);
  const double mostShardings = 3000;
  double count = 1;
  for (size_t i = 0; i < movable.size(); ++i)
    count *= static_cast<double>(all.size() + i + 2);
  const std::set<Place> &chosen = count > mostShardings ? named : all;
  places.assign(chosen.begin(), chosen.end());
}

bool Search::fits(const Sharding &state, const Place &place,
                  const std::vector<AxisRef> &axes) const {
  int64_t n = groupSize(axesAt(state, place)) * groupSize(axes);
  for (const Segment &segment : layout.dims[place.dim].segments)
    for (const Factor &factor : segment.factors)
      if (factor.id == place.factor && factor.size % n != 0)
        return false;
  return true;
}

std::vector<Place> Search::shardedPlaces(const Sharding &state) const {
  std::vector<Place> result;
  for (const FactorSharding &f : state.factors)
    result.push_back({f.dim, f.factor});
  return result;
}

void Search::addAllReduces(const std::vector<AxisRef> &partial, std::vector<Move> &result) const {
  for (size_t mask = (size_t(1) << partial.size()) - 1; mask > 0; --mask) {
    std::vector<AxisRef> axes;
    for (size_t i = 0; i < partial.size(); ++i)
      if (mask >> i & 1)
        axes.push_back(partial[i]);
    result.push_back({CollectiveKind::AllReduce, axes, {}, {}});
  }
}

/// Adds `axes` one by one, and lists of several as in `to`.
void Search::addToPlaces(const Sharding &state, CollectiveKind kind,
                         const std::vector<AxisRef> &axes, std::vector<Move> &result) const {
  auto add = [&](const std::vector<AxisRef> &choice) {
    for (const Place &place : places)
      if (fits(state, place, choice))
        result.push_back({kind, choice, {}, place});
  };
  for (const AxisRef &axis : axes)
    add({axis});
  for (const std::vector<AxisRef> &list : lists)
    if (std::all_of(list.begin(), list.end(), [&](const AxisRef &axis) {
          return std::find(axes.begin(), axes.end(), axis) != axes.end();
        }))
      add(list);
}

/// Adds gathers of the last axes of a list, and moves of them to another dim.
void Search::addGathers(const Sharding &state, std::vector<Move> &result) const {
  for (const Place &place : shardedPlaces(state)) {
    const std::vector<AxisRef> &axes = axesAt(state, place);
    for (size_t first = numFixed(place); first < axes.size(); ++first) {
      std::vector<AxisRef> suffix(axes.begin() + first, axes.end());
      result.push_back({CollectiveKind::AllGather, suffix, place, {}});
      for (const Place &other : places)
        if (other.dim != place.dim && fits(state, other, suffix))
          result.push_back({CollectiveKind::AllToAll, suffix, place, other});
    }
  }
}

/// A chunk of a chunk is a valid chunk only without padding. With padding, a flat list is added and
/// removed whole.
void Search::addFlat(const Sharding &state, const std::vector<AxisRef> &partial,
                     std::vector<Move> &result) const {
  auto isPadded = [&](const Sharding &s) {
    return localLayout(layout, s).numElements() % groupSize(s.flat) != 0;
  };
  for (size_t first = 0; first < state.flat.size(); ++first) {
    if (first > 0 && isPadded(state))
      continue;
    std::vector<AxisRef> suffix(state.flat.begin() + first, state.flat.end());
    result.push_back({CollectiveKind::AllGather, suffix, {}, {}});
  }
  size_t have = state.flat.size();
  if (state.factors != to.factors || have >= to.flat.size() ||
      !std::equal(state.flat.begin(), state.flat.end(), to.flat.begin()))
    return;
  for (size_t end = have + 1; end <= to.flat.size(); ++end) {
    bool whole = have == 0 && end == to.flat.size();
    if (!whole && isPadded(to))
      continue;
    std::vector<AxisRef> axes(to.flat.begin() + have, to.flat.begin() + end);
    auto isPartial = [&](const AxisRef &a) {
      return std::find(partial.begin(), partial.end(), a) != partial.end();
    };
    bool isSum = !state.partial.empty() && state.partial.front().kind == ReduceKind::Sum;
    if (isSum && std::all_of(axes.begin(), axes.end(), isPartial))
      result.push_back({CollectiveKind::ReduceScatter, axes, {}, {}});
    if (std::all_of(axes.begin(), axes.end(), [&](const AxisRef &a) { return isFree(state, a); }))
      result.push_back({CollectiveKind::ShardSlice, axes, {}, {}});
  }
}

/// All possible steps from `state`, in the order of kinds, axes and places.
std::vector<Move> Search::moves(const Sharding &state) const {
  std::vector<Move> result;
  std::vector<AxisRef> partial, free;
  for (const Partial &p : state.partial)
    if (std::find(movable.begin(), movable.end(), p.axis) != movable.end())
      partial.push_back(p.axis);
  for (const AxisRef &axis : movable)
    if (isFree(state, axis))
      free.push_back(axis);
  std::vector<AxisRef> completed; // by all_reduce, or along a dim
  for (const AxisRef &axis : partial)
    if (!scattersFlat || !overlap(to.flat, axis))
      completed.push_back(axis);
  addAllReduces(completed, result);
  if (state.flat.empty()) {
    if (!completed.empty() && state.partial.front().kind == ReduceKind::Sum)
      addToPlaces(state, CollectiveKind::ReduceScatter, completed, result);
    addGathers(state, result);
    addToPlaces(state, CollectiveKind::ShardSlice, free, result);
  }
  addFlat(state, partial, result);
  return result;
}

/// The cost of completing and gathering all axes, then slicing to `to`: an upper bound.
double Search::costOfGatheringAll() const {
  Sharding state = from;
  double total = 0;
  auto take = [&](const Move &move) {
    if (!move.axes.empty()) {
      total += costOf(state, move);
      state = apply(state, move);
    }
  };
  take({CollectiveKind::AllGather, state.flat, {}, {}});
  Move complete;
  for (const Partial &p : from.partial)
    if (std::find(to.partial.begin(), to.partial.end(), p) == to.partial.end() &&
        !(scattersFlat && overlap(to.flat, p.axis)))
      complete.axes.push_back(p.axis);
  take(complete);
  for (const FactorSharding &f : from.factors) {
    Place place{f.dim, f.factor};
    take({CollectiveKind::AllGather, {f.axes.begin() + numFixed(place), f.axes.end()}, place, {}});
  }
  for (const FactorSharding &f : to.factors) {
    Place place{f.dim, f.factor};
    take({CollectiveKind::ShardSlice, {f.axes.begin() + numFixed(place), f.axes.end()}, {}, place});
  }
  auto last = scattersFlat ? CollectiveKind::ReduceScatter : CollectiveKind::ShardSlice;
  take({last, to.flat, {}, {}});
  return total;
}

std::vector<Move> Search::run() {
  std::map<Sharding, Node> nodes; // keys have stable addresses
  const double bound = costOfGatheringAll() * (1 + 1e-9);
  using Entry = std::tuple<double, int64_t, const Sharding *>;
  auto later = [](const Entry &a, const Entry &b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) > std::tie(std::get<0>(b), std::get<1>(b));
  };
  std::priority_queue<Entry, std::vector<Entry>, decltype(later)> queue(later);
  int64_t order = 0;
  queue.emplace(0.0, order++, &nodes.try_emplace(from).first->first);
  while (!queue.empty()) {
    const Sharding *state = std::get<2>(queue.top());
    queue.pop();
    Node &node = nodes[*state];
    if (node.done)
      continue;
    node.done = true;
    if (*state == to)
      break;
    for (Move &move : moves(*state)) {
      double total = node.cost + costOf(*state, move);
      if (total > bound)
        continue;
      auto [it, isNew] = nodes.try_emplace(apply(*state, move));
      Node &next = it->second;
      if (!isNew && (next.done || next.cost <= total))
        continue;
      next = {total, false, std::move(move), state};
      queue.emplace(total, order++, &it->first);
    }
  }
  std::vector<Move> path;
  auto end = nodes.find(to);
  if (end == nodes.end())
    brokenContract("no collectives lead from " + toString(mesh, from) + " to " +
                   toString(mesh, to));
  for (const Node *node = &end->second; node->previous; node = &nodes[*node->previous])
    path.push_back(node->move);
  std::reverse(path.begin(), path.end());
  return path;
}

/// Merges neighbouring steps of the same kind at the same position (see reshard).
std::vector<Move> mergeNeighbours(const std::vector<Move> &path) {
  std::vector<Move> result;
  for (const Move &move : path) {
    bool same = !result.empty() && move.kind == result.back().kind &&
                move.from == result.back().from && move.to == result.back().to &&
                move.kind != CollectiveKind::AllToAll;
    if (!same) {
      result.push_back(move);
      continue;
    }
    std::vector<AxisRef> &axes = result.back().axes;
    // A gather takes the last axes first; other kinds add axes at the end.
    auto where = move.kind == CollectiveKind::AllGather ? axes.begin() : axes.end();
    axes.insert(where, move.axes.begin(), move.axes.end());
    if (move.kind == CollectiveKind::AllReduce)
      std::sort(axes.begin(), axes.end());
  }
  return result;
}

void checkContract(const Mesh &mesh, const TensorLayout &layout, const Sharding &from,
                   const Sharding &to) {
  for (const Sharding *s : {&from, &to})
    if (std::string why = whyInvalid(mesh, layout, *s); !why.empty())
      brokenContract("invalid sharding " + toString(mesh, *s) + ": " + why);
  for (const Partial &p : to.partial)
    if (std::find(from.partial.begin(), from.partial.end(), p) == from.partial.end())
      brokenContract("no collective makes " + toString(mesh, from) + " partial as in " +
                     toString(mesh, to));
}

} // namespace

std::vector<Collective> reshard(const Mesh &mesh, const TensorLayout &layout, const Sharding &from,
                                const Sharding &to, const CollectiveCost &cost) {
  Sharding a = from, b = to;
  splitIntoCommonParts(mesh, a, b);
  if (a == b)
    return {};
  checkContract(mesh, layout, a, b);

  std::vector<Move> path;
  if (a.factors == b.factors && a.flat == b.flat) {
    Move move; // only sums to complete
    for (const Partial &p : a.partial)
      if (std::find(b.partial.begin(), b.partial.end(), p) == b.partial.end())
        move.axes.push_back(p.axis);
    path = {move};
  } else {
    path = mergeNeighbours(Search(mesh, layout, a, b, cost).run());
  }
  std::vector<Collective> result;
  for (const Move &move : path) {
    result.push_back(describe(layout, a, move));
    a = apply(a, move);
  }
  return result;
}

} // namespace tbc::reshard
