//===- Elements.h - What the elements of an initializer say ----------------===//

#ifndef TBC_FRONTEND_ONNX_ELEMENTS_H
#define TBC_FRONTEND_ONNX_ELEMENTS_H

#include "frontend/onnx/Import.h"

#include <optional>

namespace tbc::frontend {

// All of these say no where the data is not there. They read as few elements as decide.

/// Whether all elements are equal, as those of fresh norms and biases are.
bool isUniform(const ParameterSource &source);

/// Whether the elements are 0 and numbers so negative that a score to which they are added is
/// hidden, both.
bool isAdditiveMask(const ParameterSource &source);

/// Whether a table [.., positions, columns] holds sines and cosines of the positions times a
/// frequency per column. Two tests, of which one suffices:
///
///  - every column x obeys x[p+1] + x[p-1] = c x[p] (c = 2 cos of its frequency), and some column
///    oscillates: tables for attention and for rotary embeddings;
///  - the squares of every row sum to half of the columns, for sin^2 + cos^2 = 1, but for rows of
///    zeros (class tokens): also the tables of images, of which rows count two positions.
///
/// Example: [[0, 1], [sin 1, cos 1], [sin 2, cos 2], ...]. Rows of random numbers obey neither.
bool areSinusoids(const ParameterSource &source);

/// A mask [.., queries, keys] that is 0 where low <= key - query <= high, and `hidden` elsewhere.
struct MaskBand {
  int64_t low = 0, high = 0;
  double hidden = 0;
};

/// `source` as a band; nothing if it is none, or if dims in front of the last two are not 1.
std::optional<MaskBand> bandOf(const ParameterSource &source);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_ELEMENTS_H
