//===- BlockNames.h - Display names for pieces of the graph ---------------===//
//
// Plain C++. Names are for people only: no decision depends on one.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_REPORT_BLOCKNAMES_H
#define TBC_PLANNER_REPORT_BLOCKNAMES_H

#include "planner/graph/Fold.h"
#include "planner/plan/ModelNames.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tbc::planner {

/// Names blocks by the modules of their ops. A module is a path of components joined by dots.
class BlockNames {
public:
  /// `moduleOf`, or `shownModuleOf` to name also blocks of ops that are in no module.
  using ModuleOfOp = std::string (*)(const Job &, const reshard::Graph &, int op);

  BlockNames(const reshard::Graph &graph, const Job &job, ModuleOfOp moduleOfOp = moduleOf);

  /// Returns the display name of `block`; empty if no op tells its module.
  /// - A repeated block: the common part of the modules of its repeats. Example: "transformer.h.*".
  /// - Another block: the modules that lie wholly in it, and the innermost modules of its other
  ///   ops. Example: "transformer.ln_f, lm_head".
  std::string modulesOf(const Block &block) const;

  /// Returns the common part of `a` and `b`, with a star where they differ. Example: "h.0.mlp" and
  /// "h.1.mlp" give "h.*.mlp".
  static std::string common(const std::string &a, const std::string &b);

private:
  std::string repeated(const Block &block) const;
  std::string listed(const Block &block) const;

  std::vector<std::vector<std::string>> modules; // per forward op: components
  /// By path: the first and the last forward op in that module.
  std::map<std::string, std::pair<int, int>> extent;
};

/// Returns the modules of the ops `ids`. An op without a module gives its id. Two ops of one module
/// also give theirs. Example: "h.1.ln_1", "h.1.attn (matmul_1)", "h.1.attn (matmul_2)".
std::vector<std::string> stageNames(const reshard::Graph &graph, const Job &job,
                                    const std::vector<std::string> &ids);

} // namespace tbc::planner

#endif // TBC_PLANNER_REPORT_BLOCKNAMES_H
