//===- Values.cpp - Views, and the bytes of whole values ------------------===//

#include "planner/graph/Values.h"

using namespace tbc::reshard;

namespace tbc::planner {

bool isView(const GraphOp &op) {
  return op.kernelClass == KernelClass::None && op.operands.size() == 1 && op.results.size() == 1;
}

int64_t factorSize(const TensorLayout &layout, FactorId id) {
  for (const DimLayout &dim : layout.dims)
    for (const Segment &segment : dim.segments)
      for (const Factor &factor : segment.factors)
        if (factor.id == id)
          return factor.size;
  return 0;
}

int viewedBy(const Graph &graph, int value) {
  for (int producer = graph.values[size_t(value)].producer;
       producer >= 0 && isView(graph.ops[size_t(producer)]);
       producer = graph.values[size_t(value)].producer)
    value = graph.ops[size_t(producer)].operands[0];
  return value;
}

bool hasFactor(const TensorLayout &layout, FactorId id) { return factorSize(layout, id) > 0; }

double fullBytes(const TensorLayout &layout) {
  double bytes = double(layout.elementBytes);
  for (const DimLayout &dim : layout.dims)
    bytes *= double(dim.numElements());
  return bytes;
}

double fullBytes(const Graph &graph, int value) { return fullBytes(graph.values[value].layout); }

Status checkRates(const Graph &graph, const Cluster &cluster) {
  for (const GraphOp &op : graph.ops)
    for (int value : op.operands) {
      const DType dtype = graph.values[value].dtype;
      if (!isMatrixClass(op.kernelClass) || !isFloat(dtype))
        continue;
      if (std::string key = cluster.missingRate(op.fp8.isRounded ? DType::F8E4M3 : dtype);
          op.fp8.isRounded && !key.empty())
        return Error{ErrorCode::Usage, "--matmul-precision fp8: cluster " + cluster.name +
                                           " has no " + key +
                                           ", as its devices multiply nothing in 8 bits; leave the "
                                           "flag out, or add the rate to the cluster file"};
      if (std::string key = cluster.missingRate(dtype); !key.empty())
        return Error{ErrorCode::Usage, "op \"" + op.id + "\" reads " + std::string(name(dtype)) +
                                           ", but cluster " + cluster.name + " has no " + key +
                                           "; add it to the cluster file"};
    }
  return Status::ok();
}

} // namespace tbc::planner
