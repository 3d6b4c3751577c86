//===- Values.cpp - Views, and the bytes of whole values ------------------===//

#include "planner/graph/Values.h"

using namespace tbc::reshard;

namespace tbc::planner {

bool isView(const GraphOp &op) {
  return op.kernelClass == KernelClass::None && op.operands.size() == 1 && op.results.size() == 1;
}

double fullBytes(const TensorLayout &layout) {
  double bytes = double(layout.elementBytes);
  for (const DimLayout &dim : layout.dims)
    bytes *= double(dim.numElements());
  return bytes;
}

double fullBytes(const Graph &graph, int value) { return fullBytes(graph.values[value].layout); }

} // namespace tbc::planner
