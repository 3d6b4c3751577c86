//===- Values.h - Views, and the bytes of whole values --------------------===//

#ifndef TBC_PLANNER_GRAPH_VALUES_H
#define TBC_PLANNER_GRAPH_VALUES_H

#include "planner/devices/Cluster.h"
#include "planner/reshard/Graph.h"

namespace tbc::planner {

/// Whether `op` is only another view of its one operand.
bool isView(const reshard::GraphOp &op);

/// Returns the value that `value` is a view of, through any number of views.
int viewedBy(const reshard::Graph &graph, int value);

/// Returns the size of the factor `id` in `layout`; 0 if it is no part of it.
int64_t factorSize(const reshard::TensorLayout &layout, reshard::FactorId id);
/// Whether the factor `id` is part of `layout`.
bool hasFactor(const reshard::TensorLayout &layout, reshard::FactorId id);

/// Returns the bytes of a whole tensor of this layout, in floating point, because the product may
/// exceed 64 bits.
double fullBytes(const reshard::TensorLayout &layout);
/// The same of a value of `graph`.
double fullBytes(const reshard::Graph &graph, int value);

/// Errors: Usage if an op on matrix units has a float operand without a rate in `cluster`, with the
/// op and the missing key of the cluster file.
Status checkRates(const reshard::Graph &graph, const Cluster &cluster);

} // namespace tbc::planner

#endif // TBC_PLANNER_GRAPH_VALUES_H
