//===- ReshardPrices.h - What it costs to move between shardings -----------===//

#ifndef TBC_PLANNER_CORE_RESHARDPRICES_H
#define TBC_PLANNER_CORE_RESHARDPRICES_H

#include "planner/core/Cost.h"
#include "planner/reshard/Graph.h"

#include <map>
#include <utility>
#include <vector>

namespace tbc::planner {

/// Shardings of values of one layout get small numbers, and the cost between two numbers is
/// computed once. Layouts that differ only in the names of their factors share them, so repeated
/// blocks do too.
class ReshardPrices {
public:
  ReshardPrices(const reshard::Mesh &mesh, const Cluster &cluster)
      : mesh(mesh), network(cluster, mesh) {}

  /// The number of `sharding` for values laid out as `layout`.
  int intern(const reshard::TensorLayout &layout, const reshard::Sharding &sharding);

  /// Seconds from one to the other, both of the same layout; infinite if `to` is pending and `from`
  /// not.
  double seconds(int from, int to);

  int64_t localElements(int number) const;

  /// Sharding `number` for a value of another layout of the same structure.
  reshard::Sharding shardingFor(int number, const reshard::TensorLayout &layout) const;

private:
  struct Entry {
    reshard::TensorLayout layout;
    reshard::Sharding sharding;
  };

  static reshard::Sharding carried(const Entry &entry, const reshard::TensorLayout &layout);
  int64_t rename(reshard::FactorId id);
  double compute(const Entry &from, const Entry &toEntry);

  reshard::Mesh mesh;
  NetworkCost network;
  std::vector<int64_t> key;
  std::map<reshard::FactorId, int64_t> names;
  std::map<std::vector<int64_t>, int> numbers;
  std::vector<Entry> entries;
  std::map<std::pair<int, int>, double> prices;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_RESHARDPRICES_H
