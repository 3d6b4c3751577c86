//===- Piece.h - The piece of a global tensor that a rank holds ------------===//
//
// Part of tbc. Plain C++. What a Program says about shardings, in the words of ranks and indices.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_PIECE_H
#define TBC_RUNTIME_ABI_PIECE_H

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::program {

struct MeshAxis {
  std::string name;
  int64_t size = 1;
  bool operator==(const MeshAxis &o) const { return name == o.name && size == o.size; }
};

/// The grid of ranks. Ranks are numbered in row-major order, the first axis slowest.
struct Mesh {
  std::vector<MeshAxis> axes;

  int64_t numRanks() const;
  /// The index of the axis called `name`, or -1.
  int axisIndex(const std::string &name) const;
  /// The coordinate of `rank` along every axis.
  std::vector<int64_t> coordinates(int64_t rank) const;
  int64_t rankOf(const std::vector<int64_t> &coordinates) const;
  bool operator==(const Mesh &o) const { return axes == o.axes; }
};

/// Axis number `axis` read as pre x size x rest, of which this is the middle part. The whole axis
/// has pre = 1 and size = the axis' size.
struct AxisRef {
  int axis = 0;
  int64_t pre = 1;
  int64_t size = 1;
  bool operator==(const AxisRef &o) const {
    return axis == o.axis && pre == o.pre && size == o.size;
  }
};

AxisRef wholeAxis(const Mesh &mesh, int axis);
/// "dp" for a whole axis, "dp:(2)4" for the part with pre 2 and size 4.
std::string toString(const Mesh &mesh, const AxisRef &axis);
/// The same, joined by "+"; "" for none.
std::string toString(const Mesh &mesh, const std::vector<AxisRef> &axes);

/// The number of ranks that `axes` span.
int64_t groupSize(const std::vector<AxisRef> &axes);
/// The index of a rank within its group along `axes`, the first axis slowest.
int64_t groupIndex(const Mesh &mesh, const std::vector<AxisRef> &axes,
                   const std::vector<int64_t> &coordinates);
/// The ranks that differ from `coordinates` along `axes` only, in the order of their group index.
std::vector<int64_t> groupRanks(const Mesh &mesh, const std::vector<AxisRef> &axes,
                                const std::vector<int64_t> &coordinates);
/// Why `axes` cannot name a group of `mesh`, or "": an axis out of range, a part that does not
/// divide its axis, overlapping parts.
std::string whyInvalid(const Mesh &mesh, const std::vector<AxisRef> &axes);

/// A factor of a dim: `axes` (the first is the slowest) cut it into groupSize(axes) equal runs.
struct PieceFactor {
  int64_t size = 1;
  std::vector<AxisRef> axes;
  /// Of how many ranks this is the zigzag order, in which the factor's elements stand before they
  /// are cut: of 2n equal parts of the original order, rank r has part r and then part 2n-1-r, so
  /// that each has early and late ones. 1: the original order.
  int64_t zigzag = 1;
  bool operator==(const PieceFactor &o) const {
    return size == o.size && axes == o.axes && zigzag == o.zigzag;
  }
};
/// An ordered product of factors, the first slowest; none means one element.
using PieceSegment = std::vector<PieceFactor>;
/// A dim: the concatenation of its segments.
using PieceDim = std::vector<PieceSegment>;

/// How a rank's local tensor is cut from the global one: a rank takes its run of every factor of
/// every segment of every dim. Then, if `flat` is not empty, what is left is flattened, padded at
/// its end to a multiple of groupSize(flat) and cut into that many chunks, chunk i on group index
/// i. Axes named nowhere hold replicas.
struct Piece {
  std::vector<PieceDim> dims;
  std::vector<AxisRef> flat;
  bool operator==(const Piece &o) const { return dims == o.dims && flat == o.flat; }
};

/// A piece that is the whole tensor, on every rank.
Piece wholePiece(const std::vector<int64_t> &shape);

/// The shape of the global tensor.
std::vector<int64_t> globalShape(const Piece &piece);
/// The shape every rank holds; for a flat piece the chunk, padding included: {ceil(numel / n)}.
std::vector<int64_t> localShape(const Piece &piece);

/// Why no tensor of `shape` is cut so on `mesh`, or "": the factors do not multiply up to the
/// shape, the axes do not divide a factor, an axis is used twice.
std::string whyInvalid(const Mesh &mesh, const Piece &piece, const std::vector<int64_t> &shape);

/// The row-major index in the global tensor of each element that the rank at `coordinates` holds,
/// in local order; -1 for the padding of a flat piece. The piece must be valid.
std::vector<int64_t> ownedIndices(const Mesh &mesh, const Piece &piece,
                                  const std::vector<int64_t> &coordinates);

/// The place in the original order of element `index` of `size` that stand in the zigzag order of
/// `ranks` ranks; 2 * ranks divides size, or ranks is 1.
int64_t unzigzag(int64_t index, int64_t size, int64_t ranks);

/// e.g. "[16@dp, 3*12@tp*64] flat{fsdp}"; zigzag order of 2 ranks is written "16~2@cp".
std::string toString(const Mesh &mesh, const Piece &piece);

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_PIECE_H
