//===- Piece.h - The piece of a global tensor that a rank holds ------------===//
//
// Part of tbc. Plain C++. Shardings as a Program stores them: in ranks and indices.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_PIECE_H
#define TBC_RUNTIME_ABI_PIECE_H

#include "runtime/mesh/Mesh.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::program {

using mesh::AxisRef;
using mesh::groupIndex;
using mesh::groupRanks;
using mesh::groupSize;
using mesh::Mesh;
using mesh::MeshAxis;
using mesh::toString;
using mesh::wholeAxis;
using mesh::whyInvalid;

/// A factor of a dim, cut by `axes` (the first is the slowest) into groupSize(axes) equal runs.
struct PieceFactor {
  int64_t size = 1;
  std::vector<AxisRef> axes;
  /// The number `n` of ranks of the zigzag order, or 1 for the original order. The factor's
  /// elements stand in that order before they are cut. Of 2n equal parts of the original order,
  /// rank r has part r and then part 2n - 1 - r. So each rank has early and late elements, and
  /// equal work under a causal mask. Example: n = 2 has the parts 0, 3 on rank 0 and 1, 2 on rank
  /// 1.
  int64_t zigzag = 1;
  bool operator==(const PieceFactor &o) const {
    return size == o.size && axes == o.axes && zigzag == o.zigzag;
  }
};
/// An ordered product of factors, the first slowest; an empty one is a single element.
using PieceSegment = std::vector<PieceFactor>;
/// A dim: the concatenation of its segments.
using PieceDim = std::vector<PieceSegment>;

/// The cut of a global tensor into local ones.
///
/// (1) A rank takes its run of every factor of every segment of every dim.
/// (2) If `flat` is not empty, the rest is flattened and padded at its end to a multiple of
///     groupSize(flat). It is cut into that many chunks; chunk i is on group index i.
///
/// Axes that are not named hold replicas. Example: [4, 6] with dim 0 on `tp` of 2 and flat {dp of
/// 8}: each rank has 2 of 16 elements; the last 4 elements are padding.
struct Piece {
  std::vector<PieceDim> dims;
  std::vector<AxisRef> flat;
  bool operator==(const Piece &o) const { return dims == o.dims && flat == o.flat; }
};

/// A piece that is the whole tensor, on every rank.
Piece wholePiece(const std::vector<int64_t> &shape);

/// The shape of the global tensor.
std::vector<int64_t> globalShape(const Piece &piece);
/// The local shape, equal on all ranks. A flat piece has {ceil(numel / n)}, padding included.
std::vector<int64_t> localShape(const Piece &piece);

/// Why a tensor of `shape` cannot be cut like this on `mesh`, or "". Reasons: the factors do not
/// multiply up to the shape, the axes do not divide a factor, an axis is used twice.
std::string whyInvalid(const Mesh &mesh, const Piece &piece, const std::vector<int64_t> &shape);

/// Returns the row-major index in the global tensor of each local element of the rank at
/// `coordinates`, in local order. Padding of a flat piece is -1. The piece must be valid.
std::vector<int64_t> ownedIndices(const Mesh &mesh, const Piece &piece,
                                  const std::vector<int64_t> &coordinates);

/// The same range by range, for tensors of billions of elements.
class OwnedIndices {
public:
  OwnedIndices(const Mesh &mesh, const Piece &piece, const std::vector<int64_t> &coordinates);
  /// Returns the number of local elements.
  int64_t size() const { return count; }
  /// Returns the indices of local elements `begin` to `end`.
  std::vector<int64_t> range(int64_t begin, int64_t end) const;

private:
  std::vector<std::vector<int64_t>> along; // by dim: the owned positions
  std::vector<int64_t> strides;            // by dim, in the global tensor
  int64_t count = 0;
  int64_t first = 0;    // of a flat piece, in the list of all owned elements
  int64_t numOwned = 0; // elements from there on are padding
};

/// Returns the original position of element `index` of `size` elements in the zigzag order of
/// `ranks` ranks. `2 * ranks` divides `size`, or `ranks` is 1. Example: size 8, 2 ranks: elements 0
/// to 7 come from 0, 1, 6, 7, 2, 3, 4, 5.
int64_t unzigzag(int64_t index, int64_t size, int64_t ranks);

/// e.g. "[16@dp, 3*12@tp*64] flat{fsdp}"; zigzag order of 2 ranks is written "16~2@cp".
std::string toString(const Mesh &mesh, const Piece &piece);

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_PIECE_H
