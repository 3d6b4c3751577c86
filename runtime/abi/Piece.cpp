//===- Piece.cpp - The piece of a global tensor that a rank holds ----------===//

#include "runtime/abi/Piece.h"

#include <algorithm>
#include <cassert>

namespace tbc::program {

Piece wholePiece(const std::vector<int64_t> &shape) {
  Piece piece;
  for (int64_t size : shape)
    piece.dims.push_back({{PieceFactor{size, {}}}});
  return piece;
}

int64_t unzigzag(int64_t index, int64_t size, int64_t ranks) {
  if (ranks <= 1)
    return index;
  int64_t part = size / (2 * ranks);
  int64_t number = index / part, rank = number / 2;
  int64_t original = number % 2 == 0 ? rank : 2 * ranks - 1 - rank;
  return original * part + index % part;
}

namespace {
/// The global indices along one dim of the rank's elements, in local order.
std::vector<int64_t> dimIndices(const Mesh &mesh, const PieceDim &dim,
                                const std::vector<int64_t> &coordinates) {
  std::vector<int64_t> indices;
  int64_t base = 0;
  for (const PieceSegment &segment : dim) {
    std::vector<int64_t> current = {0};
    int64_t segmentSize = 1;
    for (const PieceFactor &factor : segment) {
      int64_t local = factor.size / groupSize(factor.axes);
      int64_t first = groupIndex(mesh, factor.axes, coordinates) * local;
      std::vector<int64_t> next;
      next.reserve(current.size() * local);
      for (int64_t outer : current)
        for (int64_t i = first; i < first + local; ++i)
          next.push_back(outer * factor.size + unzigzag(i, factor.size, factor.zigzag));
      current = std::move(next);
      segmentSize *= factor.size;
    }
    for (int64_t index : current)
      indices.push_back(base + index);
    base += segmentSize;
  }
  return indices;
}

int64_t dimSize(const PieceDim &dim, bool local) {
  int64_t size = 0;
  for (const PieceSegment &segment : dim) {
    int64_t product = 1;
    for (const PieceFactor &factor : segment)
      product *= local ? factor.size / groupSize(factor.axes) : factor.size;
    size += product;
  }
  return size;
}
} // namespace

std::vector<int64_t> globalShape(const Piece &piece) {
  std::vector<int64_t> shape;
  for (const PieceDim &dim : piece.dims)
    shape.push_back(dimSize(dim, /*local=*/false));
  return shape;
}

std::vector<int64_t> localShape(const Piece &piece) {
  std::vector<int64_t> shape;
  int64_t numElements = 1;
  for (const PieceDim &dim : piece.dims) {
    shape.push_back(dimSize(dim, /*local=*/true));
    numElements *= shape.back();
  }
  if (piece.flat.empty())
    return shape;
  int64_t n = groupSize(piece.flat);
  return {(numElements + n - 1) / n};
}

std::string whyInvalid(const Mesh &mesh, const Piece &piece, const std::vector<int64_t> &shape) {
  if (piece.dims.size() != shape.size())
    return "the piece has " + std::to_string(piece.dims.size()) + " dims, the tensor " +
           std::to_string(shape.size());
  // Factors of one dim are distinct, so a segment uses an axis at most once. A segmented dim uses
  // the same axis in each segment that has the factor. So axes are collected per segment.
  std::vector<AxisRef> usedByDims;
  for (size_t d = 0; d < piece.dims.size(); ++d) {
    std::vector<AxisRef> usedByDim;
    int64_t left = shape[d];
    for (const PieceSegment &segment : piece.dims[d]) {
      int64_t product = 1;
      std::vector<AxisRef> usedBySegment;
      for (const PieceFactor &factor : segment) {
        if (std::string why = whyInvalid(mesh, factor.axes); !why.empty())
          return why;
        if (factor.size < 0 || factor.size % groupSize(factor.axes) != 0)
          return "a factor of size " + std::to_string(factor.size) + " of dim " +
                 std::to_string(d) + " is not divided by \"" + toString(mesh, factor.axes) + "\"";
        if (factor.zigzag != 1 && (factor.zigzag < 1 || factor.zigzag > factor.size ||
                                   factor.size % (2 * factor.zigzag) != 0))
          return "a factor of size " + std::to_string(factor.size) + " of dim " +
                 std::to_string(d) + " has no zigzag order of " + std::to_string(factor.zigzag) +
                 " ranks";
        if (factor.size != 0 && product > left / factor.size)
          return "the factors of dim " + std::to_string(d) + " exceed its size " +
                 std::to_string(shape[d]);
        product *= factor.size;
        for (const AxisRef &axis : factor.axes) {
          usedBySegment.push_back(axis);
          if (std::find(usedByDim.begin(), usedByDim.end(), axis) == usedByDim.end())
            usedByDim.push_back(axis);
        }
      }
      if (std::string why = whyInvalid(mesh, usedBySegment); !why.empty())
        return why;
      left -= product;
    }
    if (left != 0)
      return "the factors of dim " + std::to_string(d) + " do not make up its size " +
             std::to_string(shape[d]);
    usedByDims.insert(usedByDims.end(), usedByDim.begin(), usedByDim.end());
  }
  usedByDims.insert(usedByDims.end(), piece.flat.begin(), piece.flat.end());
  return whyInvalid(mesh, usedByDims);
}

OwnedIndices::OwnedIndices(const Mesh &mesh, const Piece &piece,
                           const std::vector<int64_t> &coordinates) {
  numOwned = 1;
  for (const PieceDim &dim : piece.dims) {
    along.push_back(dimIndices(mesh, dim, coordinates));
    numOwned *= int64_t(along.back().size());
  }
  strides.assign(piece.dims.size(), 1);
  for (size_t d = piece.dims.size(); d-- > 1;)
    strides[d - 1] = strides[d] * dimSize(piece.dims[d], /*local=*/false);
  count = numOwned;
  if (piece.flat.empty())
    return;
  int64_t n = groupSize(piece.flat);
  count = (numOwned + n - 1) / n;
  first = groupIndex(mesh, piece.flat, coordinates) * count;
}

std::vector<int64_t> OwnedIndices::range(int64_t begin, int64_t end) const {
  std::vector<int64_t> indices(size_t(end - begin), -1);
  const int64_t stop = std::min(first + end, numOwned);
  const int64_t inner = along.empty() ? 1 : int64_t(along.back().size());
  for (int64_t local = first + begin; local < stop;) {
    // The elements of one row, from here on.
    int64_t row = local / inner, at = local % inner, base = 0;
    for (size_t d = along.size(); d-- > 1;) {
      auto size = int64_t(along[d - 1].size());
      base += along[d - 1][size_t(row % size)] * strides[d - 1];
      row /= size;
    }
    for (; at < inner && local < stop; ++at, ++local)
      indices[size_t(local - first - begin)] =
          base + (along.empty() ? 0 : along.back()[size_t(at)]);
  }
  return indices;
}

std::vector<int64_t> ownedIndices(const Mesh &mesh, const Piece &piece,
                                  const std::vector<int64_t> &coordinates) {
  OwnedIndices owned(mesh, piece, coordinates);
  return owned.range(0, owned.size());
}

std::string toString(const Mesh &mesh, const Piece &piece) {
  std::string text = "[";
  for (size_t d = 0; d < piece.dims.size(); ++d) {
    text += d ? ", " : "";
    for (size_t s = 0; s < piece.dims[d].size(); ++s) {
      text += s ? " + " : "";
      const PieceSegment &segment = piece.dims[d][s];
      for (size_t f = 0; f < segment.size(); ++f) {
        text += (f ? "*" : "") + std::to_string(segment[f].size);
        if (segment[f].zigzag > 1)
          text += "~" + std::to_string(segment[f].zigzag);
        if (!segment[f].axes.empty())
          text += "@" + toString(mesh, segment[f].axes);
      }
      text += segment.empty() ? "1" : "";
    }
  }
  text += "]";
  if (!piece.flat.empty())
    text += " flat{" + toString(mesh, piece.flat) + "}";
  return text;
}

} // namespace tbc::program
