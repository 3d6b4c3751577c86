//===- KernelBound.cpp - Bounds on the kernels of a micro-batch -----------===//

#include "planner/search/KernelBound.h"

#include <algorithm>

namespace tbc::planner {

double leastKernelSeconds(const BoundTables &tables, const MeshShape &mesh, int64_t microBatch) {
  int64_t parts = mesh.cp * mesh.ep, samples = microBatch * mesh.ep;
  double ideal = tables.idealSeconds(mesh.tp * parts, samples);
  if (mesh.ep > 1 && tables.costs.problem.space.tensorAxisIsPinned())
    return ideal;
  return std::max(ideal, tables.leastSeconds(mesh.tp, samples) / double(parts));
}

double idealRecomputedSeconds(const BoundTables &tables, const MeshShape &mesh,
                              int64_t microBatch) {
  int64_t samples = microBatch * mesh.ep, parts = mesh.tp * mesh.cp * mesh.ep;
  return tables.idealSeconds(parts, samples) - tables.mostSaved(double(samples), double(parts));
}

double leastRecomputedSeconds(const BoundTables &tables, const MeshShape &mesh,
                              int64_t microBatch) {
  return std::max(idealRecomputedSeconds(tables, mesh, microBatch),
                  leastKernelSeconds(tables, mesh, microBatch) -
                      tables.mostSaved(double(microBatch * mesh.ep), 1));
}

} // namespace tbc::planner
