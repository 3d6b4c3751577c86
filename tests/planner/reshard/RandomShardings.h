//===- RandomShardings.h - Random meshes, layouts and shardings ------------===//

#ifndef TBC_TESTS_PLANNER_RESHARD_RANDOMSHARDINGS_H
#define TBC_TESTS_PLANNER_RESHARD_RANDOMSHARDINGS_H

#include "planner/reshard/Sharding.h"

#include <random>

namespace tbc::reshard::test {

/// Draws valid cases; the same seed gives the same cases everywhere.
class RandomShardings {
public:
  explicit RandomShardings(uint32_t seed) : engine(seed) {}

  int64_t below(int64_t n) { return static_cast<int64_t>(engine() % static_cast<uint64_t>(n)); }

  /// Up to `maxAxes` axes and 24 ranks.
  Mesh mesh(int maxAxes);
  /// Up to three dims, two segments per dim and 4000 elements; some factors are in several dims.
  TensorLayout layout(int maxDims, bool segmented);
  /// Whole axes, or parts of them with `split`, on factors, partial or flat.
  Sharding sharding(const Mesh &mesh, const TensorLayout &layout, bool split, bool flat);
  /// A sharding that `from` can be resharded to: keeps some of its partial axes and adds no new
  /// one.
  Sharding target(const Mesh &mesh, const TensorLayout &layout, const Sharding &from, bool split,
                  bool flat);

private:
  std::vector<AxisRef> parts(const Mesh &mesh, bool split);
  void place(const Mesh &mesh, const TensorLayout &layout, const AxisRef &axis, bool flat,
             Sharding &sharding);
  std::mt19937 engine;
};

} // namespace tbc::reshard::test

#endif // TBC_TESTS_PLANNER_RESHARD_RANDOMSHARDINGS_H
