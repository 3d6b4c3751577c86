//===- Collective.cpp - Collectives between ranks -------------------------===//

#include "ir/Collective.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace tbc {

static LogicalResult verifyAxes(Operation *op, ArrayAttr axes) {
  if (axes.empty())
    return op->emitOpError("needs at least one mesh axis");
  llvm::StringSet<> seen;
  for (StringRef axis : axes.getAsValueRange<StringAttr>())
    if (!seen.insert(axis).second)
      return op->emitOpError() << "names mesh axis \"" << axis << "\" twice";
  return success();
}

static LogicalResult verifySegments(Operation *op, int64_t dim, ArrayRef<int64_t> segments,
                                    RankedTensorType type) {
  if (dim < -1 || dim >= type.getRank())
    return op->emitOpError() << "names dim " << dim << " of " << type;
  if (dim == -1 ? segments.size() != 1 : segments.empty() || segments.size() % 3 != 0)
    return op->emitOpError()
           << "has " << segments.size()
           << " numbers in segments; expected three per segment, or the number of "
              "elements for a flat one";
  return success();
}

LogicalResult AllReduceOp::verify() {
  if (failed(verifyAxes(*this, getAxes()))) // all_reduce_c1
    return failure();
  if (getKind() != "sum" && getKind() != "max") // all_reduce_c2
    return emitOpError() << "has unknown kind \"" << getKind() << "\"; expected sum or max";
  return success();
}

#define TBC_DIM_COLLECTIVE(OP, FULL)                                                               \
  LogicalResult OP::verify() {                                                                     \
    if (failed(verifyAxes(*this, getAxes())))                                                      \
      return failure();                                                                            \
    return verifySegments(*this, getDim(), getSegments(), tensorType(FULL));                       \
  }

TBC_DIM_COLLECTIVE(AllGatherOp, getResult())
TBC_DIM_COLLECTIVE(ReduceScatterOp, getInput())
TBC_DIM_COLLECTIVE(ShardSliceOp, getInput())

LogicalResult AllToAllOp::verify() {
  if (failed(verifyAxes(*this, getAxes())))
    return failure();
  if (failed(verifySegments(*this, getDim(), getSegments(), tensorType(getResult()))))
    return failure();
  return verifySegments(*this, getSplitDim(), getSplitSegments(), tensorType(getInput()));
}

LogicalResult PermuteOp::verify() {
  if (failed(verifyAxes(*this, getAxes()))) // permute_c1
    return failure();
  if (getInput().getType() != getResult().getType()) // permute_c2
    return emitOpError() << "makes " << getResult().getType() << " of " << getInput().getType();
  return success();
}

} // namespace tbc
