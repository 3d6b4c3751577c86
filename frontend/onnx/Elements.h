//===- Elements.h - Evidence in the elements of an initializer -------------===//

#ifndef TBC_FRONTEND_ONNX_ELEMENTS_H
#define TBC_FRONTEND_ONNX_ELEMENTS_H

#include "frontend/onnx/ImportedModel.h"

#include <optional>

namespace tbc::frontend {

// All of these return false without data. They read as few elements as possible.

/// Whether all elements are equal, as in fresh norms and biases.
bool isUniform(const ParameterSource &source);

/// Whether all elements are 0 or very negative, with both present. A very negative element hides
/// its score.
bool isAdditiveMask(const ParameterSource &source);

/// Whether all elements hide scores (ir/HidingNumber.h). Example: -10000, the number of GPT-2's
/// buffer `masked_bias`.
bool isHidingNumber(const ParameterSource &source);

/// Whether all elements are above 0 and at most 1e-4, as epsilons of norms. Parameters begin with 0
/// or with more.
bool isTiny(const ParameterSource &source);

/// Whether a table [.., positions, columns] holds sines and cosines of the positions times a
/// frequency per column. One of two tests suffices:
///
///   - Every column x obeys x[p+1] + x[p-1] = c x[p] (c = 2 cos of its frequency), and some column
///     oscillates: tables for attention and for rotary embeddings.
///   - The squares of every row sum to half of the columns, because sin^2 + cos^2 = 1; rows of
///     zeros (class tokens) are skipped. Also finds tables of images, with two positions per row.
///
/// Example: [[0, 1], [sin 1, cos 1], [sin 2, cos 2], ...]. Rows of random numbers obey neither.
bool areSinusoids(const ParameterSource &source);

/// Whether `a` and `b` hold the cosine and the sine of the same angles, in either order: a^2 + b^2
/// is 1 everywhere. Example: tables of a rotary embedding of rows and columns, in any layout. The
/// first 4,096 elements are read.
bool areCosineAndSine(const ParameterSource &a, const ParameterSource &b);

/// Whether the elements are positive and descend, as the frequencies of rotary embeddings do, also
/// scaled ones. Example: 1, 0.1, 0.01, 0.001. A trained tensor has another order.
bool areFrequencies(const ParameterSource &source);

/// Whether a weight holds numbers of a formula or a graph, as neither fresh nor trained weights do.
/// Identities, zeros and matrices of one number do not count, because layers begin with them. One
/// of these suffices:
///
///   - Windows [out, in, window..] are the same from both ends, but for their sign, as those of
///     blurs, Laplacians and Sobel filters; or all channels have one window.
///   - A matrix is its transpose (a Laplacian), or holds sines and cosines, or is never negative
///     and a quarter of it is 0 (a graph, a bank of filters).
///
/// Example: [1, 3, 3, 1] of a blur.
bool isOfFormula(const ParameterSource &source);

/// A mask [.., queries, keys] with `kept` if low <= key - query <= high, and `hidden` elsewhere.
/// Example: a causal mask that is added has low = -queries, high = 0, and keeps by 0.
struct MaskBand {
  int64_t low = 0, high = 0;
  double kept = 0, hidden = 0;
};

/// Returns `source` as a band: of floats that keep by 0, or of booleans, which keep by either.
/// Returns nullopt if it is not one, or differs along a dim before the last two. Example: jax2onnx
/// stores a causal mask for every head.
std::optional<MaskBand> bandOf(const ParameterSource &source);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_ELEMENTS_H
