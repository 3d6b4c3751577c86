//===- LostBatch.cpp - The op that joins the batch with another dim --------===//

#include "ir/LostBatch.h"

#include "ir/FactorAnalysis.h"

using namespace mlir;

namespace tbc {

/// Whether the first `count` ops of `func` leave the batch a factor of its own.
static bool keepsBatch(func::FuncOp func, size_t count) {
  OwningOpRef<func::FuncOp> copy = func.clone();
  Block &body = copy->getBody().front();
  body.getTerminator()->setOperands({});
  while (body.getOperations().size() > count + 1)
    std::prev(body.end(), 2)->erase();
  return FactorAnalysis(*copy).batchFactor().has_value();
}

InFlightDiagnostic emitLostBatch(func::FuncOp func) {
  Block &body = func.getBody().front();
  size_t least = 0, most = body.getOperations().size() - 1; // `most` ops lose the batch
  if (!keepsBatch(func, 0))
    return func.emitError("the batch dims of the inputs are not one factor of their own");
  while (least + 1 < most) {
    size_t middle = (least + most) / 2;
    (keepsBatch(func, middle) ? least : most) = middle;
  }
  return emitError(std::next(body.begin(), least)->getLoc())
         << "joins the batch with another dim, which then is no dim of samples; keep the batch in "
            "front of the dims that are merged with it";
}

} // namespace tbc
