//===- DroppedOffsets.h - Small offsets that an exporter left out -*- C++ -*-===//
//
// The optimizer of torch's newer exporter takes numbers up to 1e-8 for zero and leaves out
// `x + 1e-8`. Readers then read x, and keep their call: "args = (%add,)". The number is lost. Most
// such sums keep the argument of a division, root or logarithm from zero, because a gradient there
// is infinite or NaN.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_DROPPEDOFFSETS_H
#define TBC_FRONTEND_ONNX_DROPPEDOFFSETS_H

#include "frontend/onnx/Model.h"

#include <string>
#include <vector>

namespace tbc::frontend {

/// Returns a warning if nodes with a singularity at zero read x in place of a sum or difference of
/// x, and the file has no node for this sum; else an empty list.
std::vector<std::string> droppedOffsetWarnings(const Model &model);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_DROPPEDOFFSETS_H
