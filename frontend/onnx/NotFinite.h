//===- NotFinite.h - Tensors of a model with NaN or infinity ---------------===//

#ifndef TBC_FRONTEND_ONNX_NOTFINITE_H
#define TBC_FRONTEND_ONNX_NOTFINITE_H

#include "frontend/onnx/ImportedModel.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace tbc::frontend {

/// A tensor with an element that is NaN or infinite; if it has both, it counts as NaN.
struct NotFinite {
  /// Example: "initializer 'w' is NaN at [2, 3]".
  std::string text;
  bool isNan = false;
  bool isTrained = false;
  /// Masks are infinite on purpose. No training goes well from NaN or from infinite weights.
  bool isFault() const { return isNan || isTrained; }
};

/// Lists such constants of the model's functions, then such initializers. Of the initializers that
/// are there it reads at most `mostElements` elements, in their order.
std::vector<NotFinite> notFiniteTensors(const ImportedModel &model,
                                        int64_t mostElements = std::numeric_limits<int64_t>::max());

/// Joins the texts of at most three of them. Example: "initializer 'a' is NaN at [0], 'b' ..., and
/// 4 more".
std::string textOf(const std::vector<NotFinite> &tensors);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_NOTFINITE_H
