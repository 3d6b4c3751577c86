//===- SequenceOrder.cpp - Generators in the order of the sequence ---------===//

#include "passes/partition/LocalBlock.h"

#include "ir/Formula.h"
#include "ir/Movement.h"
#include "planner/reshard/SequenceOrder.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

/// `value` with its dim `dim` in the zigzag order of `ranks` ranks.
static Value zigzag(Formula &f, Value value, int64_t dim, int64_t ranks) {
  int64_t part = tensorType(value).getDimSize(dim) / (2 * ranks);
  SmallVector<Value> parts;
  for (int64_t i = 0; i < 2 * ranks; ++i)
    parts.push_back(f.make<SliceOp>(value, dim, part * reshard::zigzagPart(i, ranks), part));
  return f.make<ConcatOp>(parts, dim);
}

/// Data-independent ops number a sequence in its original order; other values have the plan's
/// order.
Value LocalBlock::inSequenceOrder(int value, Value generated) {
  if (in.zigzag == 1 || !in.positionValues[size_t(value)])
    return generated;
  Formula f{function.builder(), generated.getLoc()};
  const reshard::TensorLayout &layout = in.graph.values[value].layout;
  SmallVector<int64_t> shape(tensorType(generated).getShape());
  for (auto [d, dimLayout] : llvm::enumerate(layout.dims)) {
    // If the dim has other factors too, the factor gets a dim of its own in between.
    int64_t outer = 1, inner = 1, tokens = 0;
    if (dimLayout.segments.size() == 1)
      for (const reshard::Factor &factor : dimLayout.segments[0].factors) {
        const reshard::FactorSharding *split =
            reshard::find(in.derivation.raw[value], int(d), factor.id);
        const int64_t size = factor.size / (split ? reshard::groupSize(split->axes) : 1);
        if (factor.id == in.graph.sequenceFactor)
          tokens = size;
        else
          (tokens ? inner : outer) *= size;
      }
    if (tokens == 0)
      continue;
    SmallVector<int64_t> split(shape), groups(shape.size(), 1), one(shape.size() + 2, 1);
    split[d] = tokens;
    split.insert(split.begin() + d, outer);
    split.insert(split.begin() + d + 2, inner);
    groups[d] = 3;
    bool isAlone = outer == 1 && inner == 1;
    if (!isAlone)
      generated = f.make<ReshapeOp>(generated, split, groups, one);
    generated = zigzag(f, generated, isAlone ? d : d + 1, in.zigzag);
    if (!isAlone)
      generated = f.make<ReshapeOp>(generated, split, one, groups);
  }
  return generated;
}

} // namespace tbc
