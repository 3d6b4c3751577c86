//===- Rebatch.cpp - The same function at another batch size ----------------===//

#include "ir/Rebatch.h"

#include "ir/LostBatch.h"
#include "ir/Movement.h"
#include "ir/Resize.h"

using namespace mlir;

namespace tbc {

LogicalResult rebatch(func::FuncOp func, int64_t batch) {
  FactorAnalysis analysis(func);
  if (!analysis.batchFactor())
    return emitLostBatch(func) << "; so the batch size cannot be changed";
  FactorSizes sizes{{*analysis.batchFactor(), batch}};
  // A part of the batch's constants would change the model.
  for (auto constant : func.getBody().front().getOps<ConstantOp>())
    if (!constant.getValue().isSplat())
      for (unsigned dim = 0; dim < constant.getType().getRank(); ++dim)
        if (resized(analysis.dimLayout(constant, dim), sizes) != constant.getType().getDimSize(dim))
          return constant.emitError("this constant has a batch dim, so the model cannot be "
                                    "rebatched; export it with a symbolic batch dim");
  return resizeFactors(func, analysis, sizes);
}

} // namespace tbc
