//===- LayoutTensors.h - Tensors of a derived step in plan.json's terms ---===//

#ifndef TBC_PLANNER_LAYOUT_LAYOUTTENSORS_H
#define TBC_PLANNER_LAYOUT_LAYOUTTENSORS_H

#include "planner/plan/Layout.h"
#include "planner/reshard/Graph.h"

namespace tbc::planner {

/// Returns `sharding` of a tensor with layout `layout` in the terms of plan.json.
/// Example: factor 12 of a dim 3 * (12 * 64) on tp gives segments {12 over tp, 64}, three times.
TensorPlacement placementOf(const reshard::Mesh &mesh, const reshard::TensorLayout &layout,
                            const reshard::Sharding &sharding);

/// Returns shape, dtype and placement of a value.
LayoutTensor tensorOf(const reshard::Mesh &mesh, const reshard::GraphValue &value,
                      const reshard::Sharding &sharding);

} // namespace tbc::planner

#endif // TBC_PLANNER_LAYOUT_LAYOUTTENSORS_H
