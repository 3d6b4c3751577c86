//===- AxisIndex.h - Axes of a plan in a mesh ------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_MESH_AXISINDEX_H
#define TBC_RUNTIME_MESH_AXISINDEX_H

#include "runtime/mesh/Axes.h"
#include "runtime/mesh/Mesh.h"

namespace tbc::mesh {

/// Returns the index of `axis` in `mesh`, or -1: the mesh of a plan lacks axes of size 1. Example:
/// Tensor has index 1 in dp=2, tp=4.
inline int axisIndex(const Mesh &mesh, Axis axis) { return mesh.axisIndex(row(axis).name); }

} // namespace tbc::mesh

#endif // TBC_RUNTIME_MESH_AXISINDEX_H
