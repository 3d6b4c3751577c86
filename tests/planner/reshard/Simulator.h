//===- Simulator.h - Collectives on many ranks, on plain numbers -----------===//
//
// Executes collectives by their documented meaning alone (planner/reshard/Collective.h), so that a
// sequence of them can be checked against what the two shardings say each rank holds.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_PLANNER_RESHARD_SIMULATOR_H
#define TBC_TESTS_PLANNER_RESHARD_SIMULATOR_H

#include "planner/reshard/Collective.h"

#include <functional>
#include <string>
#include <vector>

namespace tbc::reshard::test {

/// What one rank holds.
struct LocalTensor {
  std::vector<int64_t> shape;
  std::vector<int64_t> data; // row-major
};

/// The values of a tensor by global linear index.
using Values = std::function<int64_t(int64_t)>;
/// Some values, all different.
int64_t valueOf(int64_t globalIndex);

/// What every rank holds of the tensor under `sharding`: a pending value as parts that add up (or
/// whose maximum is) the value, flat padding as zeros.
std::vector<LocalTensor> distribute(const Mesh &mesh, const TensorLayout &layout,
                                    const Sharding &sharding, const Values &values = valueOf);

/// Executes one collective on all ranks. `shapeAfter` is needed only to unflatten a gather along
/// the flattened tensor. Failures (shapes that do not fit) are reported through GoogleTest.
void execute(const Mesh &mesh, const Collective &collective, const std::vector<int64_t> &shapeAfter,
             std::vector<LocalTensor> &ranks);

/// "" if `ranks` hold the tensor under `sharding`, else the first difference. Pending values are
/// added up (or their maximum taken) over the pending axes first. With a modulus, equality is
/// modulo it.
std::string difference(const Mesh &mesh, const TensorLayout &layout, const Sharding &sharding,
                       const std::vector<LocalTensor> &ranks, const Values &values = valueOf,
                       int64_t modulus = 0);

} // namespace tbc::reshard::test

#endif // TBC_TESTS_PLANNER_RESHARD_SIMULATOR_H
