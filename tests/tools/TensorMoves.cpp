//===- TensorMoves.cpp - Cheapest collectives, enumerated a second time ---===//

#include "tests/tools/TensorMoves.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

using namespace tbc::reshard;

namespace tbc::test {

bool names(const std::vector<int> &axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

bool uses(const Placement &placement, int axis) {
  for (const auto &[place, axes] : placement.split)
    if (names(axes, axis))
      return true;
  return placement.partial.count(axis) || names(placement.flat, axis);
}

int64_t TensorMoves::ranks(const std::vector<int> &axes) const {
  int64_t product = 1;
  for (int axis : axes)
    product *= mesh.axes[axis].size;
  return product;
}

int64_t TensorMoves::localElements(const TensorLayout &layout, const Placement &placement) const {
  int64_t elements = 1;
  for (const DimLayout &dim : layout.dims) {
    int64_t sum = 0;
    for (const Segment &segment : dim.segments) {
      int64_t product = 1;
      for (const Factor &factor : segment.factors)
        product *= factor.size;
      sum += product;
    }
    elements *= sum;
  }
  // A split factor is in every segment of its dim, so it divides the dim.
  for (const auto &[place, axes] : placement.split)
    elements /= ranks(axes);
  int64_t chunks = ranks(placement.flat);
  return (elements + chunks - 1) / chunks;
}

int64_t TensorMoves::localBytes(const TensorLayout &layout, const Placement &placement) const {
  return localElements(layout, placement) * layout.elementBytes;
}

/// Dijkstra over placements by (bytes on the wire, steps). Each step adds at least 0 bytes and 1
/// step. So all best paths to a placement are known when it is left.
struct TensorMoves::Search {
  using Price = std::pair<int64_t, int64_t>;
  struct Node {
    Price price;
    std::set<Messages> ways;
  };

  const TensorMoves &moves;
  const TensorLayout &layout;
  const Placement &origin, &goal;
  std::map<Place, int64_t> places; // size of each factor that may be split
  std::vector<int> axes;           // named by origin or goal
  int64_t scale;                   // makes costs whole numbers
  std::map<Placement, Node> nodes;
  std::set<std::pair<Price, Placement>> open;
  Node current; // of the placement being left

  Search(const TensorMoves &moves, const TensorLayout &layout, const Placement &from,
         const Placement &to)
      : moves(moves), layout(layout), origin(from), goal(to), scale(1) {
    for (int axis = 0; axis < int(moves.mesh.axes.size()); ++axis) {
      scale *= moves.mesh.axes[axis].size;
      if (uses(from, axis) || uses(to, axis))
        axes.push_back(axis);
    }
    findPlaces();
  }

  void findPlaces() {
    for (int dim = 0; dim < int(layout.dims.size()); ++dim) {
      std::map<FactorId, size_t> holders; // equal to the number of segments: once in each
      std::map<FactorId, int64_t> sizes;
      const std::vector<Segment> &segments = layout.dims[dim].segments;
      for (const Segment &segment : segments)
        for (const Factor &factor : segment.factors) {
          bool once = std::count(segment.factors.begin(), segment.factors.end(), factor) == 1;
          holders[factor.id] += once ? 1 : segments.size() + 1;
          sizes[factor.id] = factor.size;
        }
      for (const auto &[factor, count] : holders)
        if (count == segments.size())
          places[{dim, factor}] = sizes.at(factor);
    }
  }

  std::vector<Messages> run() {
    nodes[origin] = {{0, 0}, {{}}};
    open.insert({{0, 0}, origin});
    while (!open.empty()) {
      Placement here = open.extract(open.begin()).value().second;
      current = nodes.at(here);
      if (here == goal)
        return {current.ways.begin(), current.ways.end()};
      leave(here);
    }
    std::fprintf(stderr, "no way between two placements\n");
    std::abort();
  }

  /// Returns the bytes sent by a rank, times `scale`.
  int64_t cost(const Message &message) const {
    int64_t n = moves.ranks(message.axes);
    int64_t share = message.bytes * (n - 1) * (scale / n);
    if (message.kind == CollectiveKind::ShardSlice)
      return 0;
    return message.kind == CollectiveKind::AllReduce ? 2 * share : share;
  }

  /// Takes one step to `there`. `fullSide`: the placement that is full along the axes `along`; its
  /// elements are padded to a multiple of `padTo`.
  void go(CollectiveKind kind, std::vector<int> along, const Placement &there,
          const Placement &fullSide, int64_t padTo = 1) {
    std::sort(along.begin(), along.end());
    int64_t elements = moves.localElements(layout, fullSide);
    Message message{kind, std::move(along),
                    (elements + padTo - 1) / padTo * padTo * layout.elementBytes};
    Price price{current.price.first + cost(message), current.price.second + 1};
    auto [found, isNew] = nodes.try_emplace(there, Node{price, {}});
    Node &node = found->second;
    if (!isNew && node.price < price)
      return;
    if (isNew || price < node.price) {
      open.erase({node.price, there});
      node = {price, {}};
      open.insert({price, there});
    }
    for (Messages way : current.ways) {
      if (kind != CollectiveKind::ShardSlice)
        way.insert(std::upper_bound(way.begin(), way.end(), message), message);
      node.ways.insert(std::move(way));
    }
  }

  /// Returns all orders of all non-empty subsets of `from`.
  static std::vector<std::vector<int>> sequences(const std::vector<int> &from) {
    std::vector<std::vector<int>> result;
    for (unsigned mask = 1; mask < (1u << from.size()); ++mask) {
      std::vector<int> chosen;
      for (size_t i = 0; i < from.size(); ++i)
        if (mask >> i & 1)
          chosen.push_back(from[i]);
      do
        result.push_back(chosen);
      while (std::next_permutation(chosen.begin(), chosen.end()));
    }
    return result;
  }

  /// Returns the axes that a step may still reduce, and those free to be put anywhere.
  std::vector<int> reducible(const Placement &here) const {
    std::vector<int> result;
    for (const auto &[axis, kind] : here.partial)
      if (!goal.partial.count(axis))
        result.push_back(axis);
    return result;
  }
  std::vector<int> unused(const Placement &here) const {
    std::vector<int> result;
    for (int axis : axes)
      if (!uses(here, axis))
        result.push_back(axis);
    return result;
  }

  /// Returns the number of last axes of a factor that may be removed. Axes already in their final
  /// position stay.
  size_t removable(const Placement &here, const Place &place) const {
    const std::vector<int> &have = here.split.at(place);
    auto wanted = goal.split.find(place);
    size_t good = 0;
    if (wanted != goal.split.end())
      while (good < have.size() && good < wanted->second.size() &&
             have[good] == wanted->second[good])
        ++good;
    return have.size() - good;
  }

  bool fits(const Placement &here, const Place &place, const std::vector<int> &more) const {
    auto at = here.split.find(place);
    int64_t have = at == here.split.end() ? 1 : moves.ranks(at->second);
    return places.at(place) % (have * moves.ranks(more)) == 0;
  }
  static void append(Placement &placement, const Place &place, const std::vector<int> &more) {
    std::vector<int> &at = placement.split[place];
    at.insert(at.end(), more.begin(), more.end());
  }
  static void removeLast(Placement &placement, const Place &place, size_t count) {
    std::vector<int> &at = placement.split[place];
    at.resize(at.size() - count);
    if (at.empty())
      placement.split.erase(place);
  }

  bool allSums(const Placement &here, const std::vector<int> &group) const {
    return std::all_of(group.begin(), group.end(),
                       [&](int axis) { return here.partial.at(axis) == ReduceKind::Sum; });
  }

  void leave(const Placement &here) {
    reduce(here);
    flatten(here);
    if (!here.flat.empty())
      return; // flat chunks do not follow dims
    for (const auto &[place, size] : places) {
      for (const std::vector<int> &more : sequences(unused(here)))
        if (fits(here, place, more)) {
          Placement there = here;
          append(there, place, more);
          go(CollectiveKind::ShardSlice, more, there, here);
        }
      for (const std::vector<int> &more : sequences(reducible(here)))
        if (allSums(here, more) && fits(here, place, more) && !mustFlatten(here, more)) {
          Placement there = here;
          append(there, place, more);
          for (int axis : more)
            there.partial.erase(axis);
          go(CollectiveKind::ReduceScatter, more, there, here);
        }
    }
    for (const auto &[place, have] : here.split)
      for (size_t count = 1; count <= removable(here, place); ++count)
        gatherOrMove(here, place, std::vector<int>(have.end() - count, have.end()));
  }

  void gatherOrMove(const Placement &here, const Place &place, const std::vector<int> &last) {
    Placement full = here;
    removeLast(full, place, last.size());
    go(CollectiveKind::AllGather, last, full, full);
    for (const auto &[other, size] : places)
      if (other.first != place.first && fits(here, other, last)) {
        Placement there = full;
        append(there, other, last);
        go(CollectiveKind::AllToAll, last, there, here);
      }
  }

  /// Returns whether a sum over all axes over which the goal is flat must be scattered to flat
  /// chunks.
  bool mustFlatten(const Placement &here, const std::vector<int> &group) const {
    if (goal.flat.empty() || !here.flat.empty())
      return false;
    for (int axis : goal.flat)
      if (!here.partial.count(axis))
        return false;
    return std::any_of(group.begin(), group.end(),
                       [&](int axis) { return names(goal.flat, axis); });
  }

  void reduce(const Placement &here) {
    for (const std::vector<int> &group : sequences(reducible(here))) {
      bool alike = std::all_of(group.begin(), group.end(), [&](int axis) {
        return here.partial.at(axis) == here.partial.at(group[0]);
      });
      if (!alike || !std::is_sorted(group.begin(), group.end()) || mustFlatten(here, group))
        continue;
      Placement there = here;
      for (int axis : group)
        there.partial.erase(axis);
      go(CollectiveKind::AllReduce, group, there, there);
    }
  }

  /// Chunks of chunks are chunks over both groups if there is no padding.
  bool cutsEvenly(const std::vector<int> &flat) const {
    Placement whole = goal;
    whole.flat.clear();
    return moves.localElements(layout, whole) % moves.ranks(flat) == 0;
  }

  /// Returns whether the chunks are right up to flat axis `index`, and may stay so.
  bool isRight(const Placement &here, size_t index) const {
    if (here.split != goal.split || index >= goal.flat.size() ||
        !std::equal(here.flat.begin(), here.flat.begin() + index + 1, goal.flat.begin()))
      return false;
    return here.flat == goal.flat || cutsEvenly(goal.flat);
  }

  void flatten(const Placement &here) {
    for (size_t count = 1; count <= here.flat.size(); ++count) {
      Placement there = here;
      there.flat.resize(here.flat.size() - count);
      std::vector<int> last(here.flat.end() - count, here.flat.end());
      bool isWhole = there.flat.empty();
      if (!isRight(here, there.flat.size()) && (isWhole || cutsEvenly(here.flat)))
        go(CollectiveKind::AllGather, last, there, there, isWhole ? moves.ranks(last) : 1);
    }
    if (here.split != goal.split || here.flat.size() >= goal.flat.size() ||
        !std::equal(here.flat.begin(), here.flat.end(), goal.flat.begin()))
      return;
    for (size_t size = here.flat.size() + 1; size <= goal.flat.size(); ++size) {
      Placement there = here;
      there.flat.assign(goal.flat.begin(), goal.flat.begin() + size);
      std::vector<int> more(goal.flat.begin() + here.flat.size(), goal.flat.begin() + size);
      bool isWhole = here.flat.empty() && size == goal.flat.size();
      if (isWhole || cutsEvenly(goal.flat))
        cut(here, std::move(there), more);
    }
  }

  void cut(const Placement &here, Placement there, const std::vector<int> &more) {
    bool anyUsed = false, allPartial = true;
    for (int axis : more) {
      anyUsed |= uses(here, axis);
      allPartial &= here.partial.count(axis) != 0;
      there.partial.erase(axis);
    }
    if (!anyUsed)
      go(CollectiveKind::ShardSlice, more, there, here, moves.ranks(more));
    if (allPartial && allSums(here, more))
      go(CollectiveKind::ReduceScatter, more, there, here, moves.ranks(more));
  }
};

std::vector<Messages> TensorMoves::cheapest(const TensorLayout &layout, const Placement &from,
                                            const Placement &to) const {
  return Search(*this, layout, from, to).run();
}

} // namespace tbc::test
