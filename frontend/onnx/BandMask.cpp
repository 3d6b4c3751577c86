//===- BandMask.cpp - Masks of initializers as positions -------------------===//

#include "frontend/onnx/BandMask.h"

#include "frontend/onnx/Elements.h"
#include "frontend/onnx/Elementwise.h"
#include "frontend/onnx/ops/Families.h"

namespace tbc::frontend {

Value bandMask(Emitter &emitter, const ParameterSource &source) {
  MaskBand band = *bandOf(source);
  const Shape &shape = source.shape;
  unsigned queries = unsigned(shape.size()) - 2, keys = queries + 1;
  Formula f{emitter};
  auto ahead = [&](const char *predicate, int64_t distance) {
    return f.compare(predicate, positions(shape, keys),
                     positions(shape, queries, /*offset=*/distance));
  };
  Value kept = Value::ofSplat(DType::Bool, shape, 1);
  if (band.high < shape[keys])
    kept = f.both(kept, ahead("le", band.high));
  if (band.low > -shape[queries])
    kept = f.both(kept, ahead("ge", band.low));
  if (source.dtype == DType::Bool)
    return band.kept != 0 ? kept : f.negation(kept);
  return f.select(kept, Value::ofSplat(source.dtype, shape, band.kept),
                  Value::ofSplat(source.dtype, shape, band.hidden));
}

} // namespace tbc::frontend
