//===- MeshShape.h - The mesh of a plan, by strategy ----------------------===//

#ifndef TBC_PLANNER_PLAN_MESHSHAPE_H
#define TBC_PLANNER_PLAN_MESHSHAPE_H

#include "planner/reshard/Sharding.h"

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tbc::planner {

/// The axes of the mesh, in the order of ranks: pp slowest, tp fastest.
struct MeshShape {
  int64_t pp = 1, dp = 1, fsdp = 1, ep = 1, cp = 1, tp = 1;

  /// Every axis with its name, in this order.
  std::array<std::pair<const char *, int64_t>, 6> axes() const {
    return {{{"pp", pp}, {"dp", dp}, {"fsdp", fsdp}, {"ep", ep}, {"cp", cp}, {"tp", tp}}};
  }
  std::array<int64_t, 6> sizes() const { return {pp, dp, fsdp, ep, cp, tp}; }
  /// Returns the size of the axis `name`, or nullptr.
  int64_t *find(const std::string &name);
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

/// The names of all axes, of the batch axes, and of the axes that split tokens.
const std::vector<std::string> &axisNames();
const std::vector<std::string> &dataAxisNames();
const std::vector<std::string> &tokenAxisNames();

/// Describes a mesh. Example: "dp=2 fsdp=4 tp=2"; "one device" for a mesh of one.
std::string toString(const MeshShape &mesh);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_MESHSHAPE_H
