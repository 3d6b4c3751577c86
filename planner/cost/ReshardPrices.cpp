//===- ReshardPrices.cpp - Costs of moves between shardings ---------------===//

#include "planner/cost/ReshardPrices.h"

#include <algorithm>
#include <limits>

using namespace tbc::reshard;

namespace tbc::planner {

static constexpr double infinity = std::numeric_limits<double>::infinity();

int64_t ReshardPrices::rename(FactorId id) {
  return names.emplace(id, int64_t(names.size())).first->second;
}

int ReshardPrices::intern(const TensorLayout &layout, const Sharding &sharding) {
  key.clear();
  names.clear();
  key.push_back(layout.elementBytes);
  for (const DimLayout &dim : layout.dims) {
    key.push_back(-1);
    for (const Segment &segment : dim.segments) {
      key.push_back(-2);
      for (const Factor &factor : segment.factors) {
        key.push_back(rename(factor.id));
        key.push_back(factor.size);
      }
    }
  }
  std::vector<FactorSharding> factors = sharding.factors;
  for (FactorSharding &factor : factors)
    factor.factor = rename(factor.factor);
  std::sort(factors.begin(), factors.end());
  for (const FactorSharding &factor : factors) {
    key.push_back(-3);
    key.push_back(factor.dim);
    key.push_back(factor.factor);
    key.push_back(groupSize(factor.axes));
  }
  for (const Partial &partial : sharding.partial)
    key.push_back(partial.kind == ReduceKind::Sum ? -4 : -5);
  auto [found, isNew] = numbers.emplace(key, int(entries.size()));
  if (isNew)
    entries.push_back({layout, sharding});
  return found->second;
}

double ReshardPrices::seconds(int from, int to) {
  if (from == to)
    return 0;
  auto [found, isNew] = prices.emplace(std::make_pair(from, to), 0.0);
  if (isNew)
    found->second = compute(entries[from], entries[to]);
  return found->second;
}

int64_t ReshardPrices::localElements(int number) const {
  const Entry &entry = entries[number];
  return localBytes(entry.layout, entry.sharding) / entry.layout.elementBytes;
}

Sharding ReshardPrices::shardingFor(int number, const TensorLayout &layout) const {
  return carried(entries[number], layout);
}

/// Returns the factors of `dim` longer than 1, segment by segment. A parameter and its gradient may
/// differ in the others.
static std::vector<FactorId> splittable(const DimLayout &dim) {
  std::vector<FactorId> ids;
  for (const Segment &segment : dim.segments)
    for (const Factor &factor : segment.factors)
      if (factor.size > 1)
        ids.push_back(factor.id);
  return ids;
}

/// Returns the sharding of `entry` with the factor names of `layout`, a layout of the same
/// structure. The two may come from different blocks.
Sharding ReshardPrices::carried(const Entry &entry, const TensorLayout &layout) {
  Sharding sharding = entry.sharding;
  std::map<FactorId, FactorId> carry;
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    std::vector<FactorId> from = splittable(entry.layout.dims[d]);
    std::vector<FactorId> to = splittable(layout.dims[d]);
    for (size_t f = 0; f < from.size(); ++f)
      carry[from[f]] = to[f];
  }
  for (FactorSharding &factor : sharding.factors)
    factor.factor = carry.at(factor.factor);
  normalize(sharding);
  return sharding;
}

double ReshardPrices::compute(const Entry &from, const Entry &toEntry) {
  Sharding to = carried(toEntry, from.layout);
  for (const Partial &partial : to.partial)
    if (std::find(from.sharding.partial.begin(), from.sharding.partial.end(), partial) ==
        from.sharding.partial.end())
      return infinity;
  double total = 0; // of the same sequence as in derive
  for (const Collective &step : reshard::reshard(mesh, from.layout, from.sharding, to))
    total += network.seconds(step);
  return total * (1 - hidden);
}

} // namespace tbc::planner
