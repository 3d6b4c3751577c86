//===- MeshShape.h - The mesh of a plan, by strategy ----------------------===//

#ifndef TBC_PLANNER_PLAN_MESHSHAPE_H
#define TBC_PLANNER_PLAN_MESHSHAPE_H

#include "planner/reshard/Sharding.h"
#include "runtime/mesh/Axes.h"

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tbc::planner {

using mesh::Axis;
using mesh::axisNames;
using mesh::dataAxisNames;
using mesh::Divides;
using mesh::tokenAxisNames;

/// The sizes of the axes (runtime/mesh/Axes.h), in the order of ranks: pp slowest, tp fastest.
struct MeshShape {
  int64_t pp = 1, dp = 1, fsdp = 1, ep = 1, cp = 1, tp = 1;

  static int64_t MeshShape::*memberOf(Axis axis);
  int64_t &of(Axis axis) { return this->*memberOf(axis); }
  int64_t of(Axis axis) const { return this->*memberOf(axis); }
  /// Returns the size of the axis `name`, or nullptr.
  int64_t *find(const std::string &name);
  /// Every axis with its name, and the sizes alone, in the order of ranks.
  std::vector<std::pair<const char *, int64_t>> axes() const;
  std::array<int64_t, 6> sizes() const { return {pp, dp, fsdp, ep, cp, tp}; }
  /// Returns the number of axes longer than 1.
  int numAxes() const {
    int count = 0;
    for (int64_t size : sizes())
      count += size > 1;
    return count;
  }
  int64_t numRanks() const { return pp * dataRanks() * cp * tp; }
  /// The number of ranks with different samples.
  int64_t dataRanks() const { return dp * fsdp * ep; }
  /// The number of ranks with different tokens; a gradient is a sum over them.
  int64_t tokenRanks() const { return dataRanks() * cp; }
  bool operator==(const MeshShape &o) const { return sizes() == o.sizes(); }
  /// Returns the mesh with only the axes longer than 1.
  reshard::Mesh mesh() const;
};

/// Describes a mesh. Example: "dp=2 fsdp=4 tp=2"; "one device" for a mesh of one.
std::string toString(const MeshShape &mesh);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_MESHSHAPE_H
