//===- LoopIndices.h - Indices of loops from a linear one ------------------===//

#ifndef TBC_CODEGEN_REGION_LOOPINDICES_H
#define TBC_CODEGEN_REGION_LOOPINDICES_H

#include "codegen/region/Domain.h"
#include "codegen/region/ops/Elements.h"

namespace tbc::region {

/// Splits the linear `index` into the indices of `loops` and sets these; the last loop is the
/// fastest. Example: index 7 over loops of sizes 2 and 4 is 1 and 3.
void splitIndex(const Elements &e, const Domain &domain, llvm::ArrayRef<int> loops,
                mlir::Value index, llvm::DenseMap<int, mlir::Value> &indices);

} // namespace tbc::region

#endif // TBC_CODEGEN_REGION_LOOPINDICES_H
