//===- Structure.h - Ops that only rearrange a value -----------------------===//

#ifndef TBC_FRONTEND_ONNX_STRUCTURE_H
#define TBC_FRONTEND_ONNX_STRUCTURE_H

#include "frontend/onnx/Emitter.h"

namespace tbc::frontend {

/// `axis` counted from the front; ImportError unless it is a dim of a tensor of rank `rank`.
unsigned checkAxis(int64_t axis, int64_t rank);
/// The same for several, sorted; ImportError if one is there twice.
std::vector<unsigned> checkAxes(const std::vector<int64_t> &axes, int64_t rank);

/// `value` with dims of size 1 repeated to `shape`, which has at least its rank. Emits nothing.
Value expand(Emitter &emitter, const Value &value, const Shape &shape);

/// `value` with dims of size 1 inserted so that they are the dims `axes` of the result.
Value unsqueeze(const Value &value, const std::vector<unsigned> &axes);

/// `value` without the dims `axes`, which have size 1.
Value squeeze(Emitter &emitter, const Value &value, const std::vector<unsigned> &axes);

Value transpose(Emitter &emitter, const Value &value, const std::vector<unsigned> &permutation);

/// The same elements in row-major order under another shape, which has as many.
Value reshape(Emitter &emitter, const Value &value, const Shape &shape);

/// `count` elements of dim `axis`, from `start` in steps of `step` (which may be negative).
Value slice(Emitter &emitter, const Value &value, unsigned axis, int64_t start, int64_t step,
            int64_t count);

/// Values of one dtype joined along `axis`.
Value concat(Emitter &emitter, const std::vector<Value> &values, unsigned axis);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_STRUCTURE_H
