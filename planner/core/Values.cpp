//===- Values.cpp - Views, and the bytes of whole values ------------------===//

#include "planner/core/Values.h"

using namespace tbc::reshard;

namespace tbc::planner {

bool isView(const GraphOp &op) {
  return op.kernelClass == "none" && op.operands.size() == 1 && op.results.size() == 1;
}

double fullBytes(const TensorLayout &layout) {
  double elements = double(layout.elementBytes);
  for (const DimLayout &dim : layout.dims)
    elements *= double(dim.numElements());
  return elements;
}

double fullBytes(const Graph &graph, int value) { return fullBytes(graph.values[value].layout); }

} // namespace tbc::planner
