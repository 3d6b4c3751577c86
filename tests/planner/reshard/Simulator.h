//===- Simulator.h - Collectives on many ranks, on plain numbers -----------===//
//
// Executes collectives by their documented meaning alone (planner/reshard/Collective.h). A sequence
// of them can then be checked against the two shardings.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_PLANNER_RESHARD_SIMULATOR_H
#define TBC_TESTS_PLANNER_RESHARD_SIMULATOR_H

#include "planner/reshard/Collective.h"

#include <functional>
#include <string>
#include <vector>

namespace tbc::reshard::test {

/// The part of a tensor on one rank.
struct LocalTensor {
  std::vector<int64_t> shape;
  std::vector<int64_t> data; // row-major
};

/// The values of a tensor by global linear index.
using Values = std::function<int64_t(int64_t)>;
/// Some values, all different.
int64_t valueOf(int64_t globalIndex);

/// Returns the global indices along dim `dim` on the rank with these coordinates, in local order.
/// Ignores `flat`.
std::vector<int64_t> localIndices(const Mesh &mesh, const TensorLayout &layout,
                                  const Sharding &sharding, int dim,
                                  const std::vector<int64_t> &coordinates);

/// Distributes the tensor to every rank under `sharding`. A partial value becomes parts with the
/// value as sum (or maximum); flat padding becomes zeros.
std::vector<LocalTensor> distribute(const Mesh &mesh, const TensorLayout &layout,
                                    const Sharding &sharding, const Values &values = valueOf);

/// Executes one collective on all ranks. `shapeAfter` is needed only to unflatten a gather along
/// the flattened tensor. Shapes that do not fit are reported as failures through GoogleTest.
void execute(const Mesh &mesh, const Collective &collective, const std::vector<int64_t> &shapeAfter,
             std::vector<LocalTensor> &ranks);

/// Returns "" if `ranks` hold the tensor under `sharding`, else the first difference. Partial
/// values are first reduced over their axes (sum or maximum). With a modulus, equality is modulo
/// it.
std::string difference(const Mesh &mesh, const TensorLayout &layout, const Sharding &sharding,
                       const std::vector<LocalTensor> &ranks, const Values &values = valueOf,
                       int64_t modulus = 0);

} // namespace tbc::reshard::test

#endif // TBC_TESTS_PLANNER_RESHARD_SIMULATOR_H
