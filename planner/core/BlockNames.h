//===- BlockNames.h - What people call a piece of the graph ----------------===//
//
// Plain C++. Names are for people alone: no decision depends on one.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_BLOCKNAMES_H
#define TBC_PLANNER_CORE_BLOCKNAMES_H

#include "planner/core/Fold.h"
#include "planner/core/Plan.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tbc::planner {

/// Names of blocks by the modules (components joined by dots) that their ops are
/// in.
class BlockNames {
public:
  BlockNames(const reshard::Graph &graph, const Job &job);

  /// Of a repeated block what the modules of its repeats have in common, "transformer.h.*"; of
  /// another one the modules that lie in it whole, and of the others the innermost that its ops are
  /// in: "transformer.ln_f, lm_head". Empty where no op tells its module.
  std::string modulesOf(const Block &block) const;

  /// What `a` and `b` have in common, with a star where they differ.
  static std::string common(const std::string &a, const std::string &b);

private:
  std::string repeated(const Block &block) const;
  std::string listed(const Block &block) const;

  std::vector<std::vector<std::string>> modules; // per forward op: components
  /// By path: the first and the last forward op in that module.
  std::map<std::string, std::pair<int, int>> extent;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_BLOCKNAMES_H
