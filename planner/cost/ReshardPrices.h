//===- ReshardPrices.h - Costs of moves between shardings -----------------===//

#ifndef TBC_PLANNER_COST_RESHARDPRICES_H
#define TBC_PLANNER_COST_RESHARDPRICES_H

#include "planner/cost/Cost.h"
#include "planner/reshard/Graph.h"

#include <map>
#include <utility>
#include <vector>

namespace tbc::planner {

/// Gives each sharding of a layout a small number, and computes the cost between two numbers once.
/// Layouts that differ only in the names of their factors share numbers, and so do repeated blocks.
class ReshardPrices {
public:
  ReshardPrices(const reshard::Mesh &mesh, const Cluster &cluster)
      : mesh(mesh), network(cluster, mesh), hidden(cluster.executor.hiddenOperands) {}

  /// Returns the number of `sharding` for values with layout `layout`.
  int intern(const reshard::TensorLayout &layout, const reshard::Sharding &sharding);

  /// Returns the exposed seconds from one sharding to another of the same layout; infinite if `to`
  /// is partial and `from` is not.
  double seconds(int from, int to);

  int64_t localElements(int number) const;

  /// Returns sharding `number` for a value of another layout of the same structure.
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
  double hidden; // the part that kernels of the executor hide
  std::vector<int64_t> key;
  std::map<reshard::FactorId, int64_t> names;
  std::map<std::vector<int64_t>, int> numbers;
  std::vector<Entry> entries;
  std::map<std::pair<int, int>, double> prices;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_COST_RESHARDPRICES_H
