//===- LoopIndices.cpp - Indices of loops from a linear one ----------------===//

#include "codegen/region/LoopIndices.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace tbc::region {

void splitIndex(const Elements &e, const Domain &domain, ArrayRef<int> loops, Value index,
                DenseMap<int, Value> &indices) {
  for (int i = int(loops.size()) - 1; i >= 0; --i) {
    Value size = e.builder.create<arith::ConstantIntOp>(e.loc, domain.sizes[loops[i]], 64);
    indices[loops[i]] = i == 0 ? index : e.make<arith::RemUIOp>(index, size);
    if (i > 0)
      index = e.make<arith::DivUIOp>(index, size);
  }
}

} // namespace tbc::region
