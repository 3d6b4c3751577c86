//===- Structure.h - Ops that rearrange a value ----------------------------===//

#ifndef TBC_FRONTEND_ONNX_STRUCTURE_H
#define TBC_FRONTEND_ONNX_STRUCTURE_H

#include "frontend/onnx/Emitter.h"

namespace tbc::frontend {

/// Returns `axis` counted from the front; ImportError unless it is a dim of a tensor of rank
/// `rank`. Example: -1 with rank 3 is 2.
unsigned checkAxis(int64_t axis, int64_t rank);
/// The same for several axes, sorted; ImportError for duplicates.
std::vector<unsigned> checkAxes(const std::vector<int64_t> &axes, int64_t rank);

/// Returns `value` with dims of size 1 repeated to `shape`, of at least its rank. Emits no op.
Value expand(Emitter &emitter, const Value &value, const Shape &shape);

/// Inserts dims of size 1 as the dims `axes` of the result.
Value unsqueeze(const Value &value, const std::vector<unsigned> &axes);

/// Removes the dims `axes` of size 1.
Value squeeze(Emitter &emitter, const Value &value, const std::vector<unsigned> &axes);

Value transpose(Emitter &emitter, const Value &value, const std::vector<unsigned> &permutation);

/// Returns the same elements in row-major order under another shape of equal size.
Value reshape(Emitter &emitter, const Value &value, const Shape &shape);

/// Returns `count` elements of dim `axis`, from `start` in steps of `step` (which may be negative).
Value slice(Emitter &emitter, const Value &value, unsigned axis, int64_t start, int64_t step,
            int64_t count);

/// Joins values of one dtype along `axis`.
Value concat(Emitter &emitter, const std::vector<Value> &values, unsigned axis);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_STRUCTURE_H
