//===- RankSlices.h - The elements of a tensor on one rank -----------------===//
//
// Plain C++. Reads the placements of plan.json (Layout.h) for a rank, as docs/plan.md prints the
// function in Python.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_LAYOUT_RANKSLICES_H
#define TBC_PLANNER_LAYOUT_RANKSLICES_H

#include "planner/plan/Layout.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tbc::planner {

/// A rank along the axes of a layout.
struct RankPlace {
  std::map<std::string, int64_t> size, stride, coordinate; // by axis
};

/// Returns the place of `rank` = sum of coordinate * stride. Example: rank 5 of axes pp=2 (stride
/// 4) and tp=4 (stride 1) has coordinates pp=1, tp=1.
RankPlace placeOf(const Layout &layout, int64_t rank);

/// Half-open, in the order in which the rank has them.
using Ranges = std::vector<std::pair<int64_t, int64_t>>;

/// The most ranges of a dim; an edited layout may have any number of them.
inline constexpr size_t mostRanges = size_t(1) << 20;

/// Returns the indices that a rank has of a dim of `size` elements. Neighbours are joined. Example:
/// 2304 columns of three segments of 12 heads over tp=4 and width 64 give rank 1 the ranges 192 to
/// 384, 960 to 1152 and 1728 to 1920.
Ranges rangesOf(const DimSplit &dim, int64_t size, const RankPlace &place);

/// The part of a tensor on one rank.
struct RankSlice {
  std::vector<Ranges> dims;
  /// Of the flattened part, if it is cut further: this range of its elements, padding included.
  std::pair<int64_t, int64_t> flat = {0, 0};
  bool isFlat = false;
  int64_t elements = 0; // on this rank, padding included
};

RankSlice sliceOf(const TensorPlacement &placement, const std::vector<int64_t> &shape,
                  const RankPlace &place);

/// Returns a slice as Python writes it. Examples: "[:, 192:384]", "[0:4, 0:64+128:192]",
/// "[:, 0:768] flat 0:1024". At most four ranges per dim are written.
std::string toString(const RankSlice &slice, const std::vector<int64_t> &shape);

/// Returns the ranks of the group of `rank` along `axes` (Layout.h), joined by "+", ascending. Only
/// the pipeline stages `stages` take part; none: all. Returns none for axes that the layout lacks.
/// Example: rank 5 in pp=2, tp=4 along "tp": 4, 5, 6, 7.
std::vector<int64_t> groupOf(const std::vector<std::string> &axes, const std::vector<int> &stages,
                             int64_t rank, const RankPlace &place);

/// Returns numbers in short. Example: 4, 5, 6, 7 give "4 to 7"; 0, 8, 16 give "0 to 16 by 8".
std::string shortList(const std::vector<int64_t> &numbers);

} // namespace tbc::planner

#endif // TBC_PLANNER_LAYOUT_RANKSLICES_H
