//===- LostBatch.cpp - The op that joins the batch with another dim --------===//

#include "ir/LostBatch.h"

#include "ir/FactorAnalysis.h"
#include "ir/Movement.h"

#include "mlir/IR/OwningOpRef.h"

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

/// Whether op `index` of `func` takes a part of the batch by its place, as x[:2] does.
static bool cutsBatch(func::FuncOp func, size_t index) {
  OwningOpRef<func::FuncOp> copy = func.clone();
  Block &body = copy->getBody().front();
  auto slice = dyn_cast<SliceOp>(*std::next(body.begin(), index));
  if (!slice)
    return false;
  const Value input = slice.getInput();
  const unsigned dim = slice.getDim();
  body.getTerminator()->setOperands({});
  while (body.getOperations().size() > index + 1)
    std::prev(body.end(), 2)->erase();
  const FactorAnalysis analysis(*copy);
  const reshard::DimLayout layout = analysis.dimLayout(input, dim);
  return llvm::any_of(layout.segments, [&](const reshard::Segment &segment) {
    return llvm::any_of(segment.factors, [&](const reshard::Factor &factor) {
      return factor.id == analysis.batchFactor();
    });
  });
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
  const Location at = std::next(body.begin(), least)->getLoc();
  if (cutsBatch(func, least))
    return emitError(at) << "takes samples of the batch by their places, which ranks and "
                            "micro-batches do not have; give those samples by an input of their "
                            "own, [batch, ...]";
  return emitError(at)
         << "joins the batch with another dim, which then is no dim of samples; keep the batch in "
            "front of the dims that are merged with it";
}

} // namespace tbc
