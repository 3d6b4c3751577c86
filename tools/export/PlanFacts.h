//===- PlanFacts.h - A plan in the terms of other frameworks ---------------===//
//
// Facts that several targets of tbc export need: transformer blocks, the blocks of each stage, and
// how matrices are split. All of them come from plan.json alone.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TOOLS_EXPORT_PLANFACTS_H
#define TBC_TOOLS_EXPORT_PLANFACTS_H

#include "planner/plan/Plan.h"

#include <set>
#include <string>
#include <vector>

namespace tbc::exporter {

/// The blocks of one chunk of the model.
struct ChunkBlocks {
  int stage = 0;
  std::set<int64_t> blocks;       ///< numbers of the blocks with a module in this chunk
  std::string begin;              ///< the module at its start
  bool beginsInsideBlock = false; ///< an earlier chunk has a part of its first block
};

/// How the plan splits the activations between blocks over tp.
enum class ResidualForm {
  Whole,    ///< every rank of tp has all of it
  Sequence, ///< along the sequence: sequence parallelism
  Other     ///< along another dim, or in different ways
};

/// How the plan splits a matrix over tp.
enum class MatrixSplit {
  Whole,
  Column, ///< along a dim of its result
  Row     ///< along the dim that the matmul sums over
};

/// How long the used form of the trained parameters stays, in the words of ZeRO.
enum class ZeroForm { Replicated, Zero1, Zero2, ShardGradOp, Zero3 };

/// Returns the name that messages use. Example: "ZeRO-3".
const char *name(ZeroForm form);

/// A plan with the facts about it.
struct PlanFacts {
  /// Errors: Usage for a layout that is missing, stale, or without modules.
  static Result<PlanFacts> make(const planner::Plan &plan);

  const planner::Plan *plan = nullptr;
  std::string
      blockPath; ///< the path of the list of blocks, for example "transformer.h"; may be empty
  int64_t numBlocks = 0;
  std::vector<ChunkBlocks> chunks;
  ResidualForm residual = ResidualForm::Whole;
  ZeroForm zero = ZeroForm::Replicated;
  /// Parameters with another distribution than the default, if there are any.
  std::vector<std::string> otherZero;

  const planner::MeshShape &mesh() const { return plan->mesh; }
  const planner::Job &job() const { return plan->job; }
  /// Returns the number of the block that a module or parameter belongs to; -1: none.
  int64_t blockOf(const std::string &path) const;
  /// Returns the number of chunks per stage.
  int64_t chunksPerStage() const;
  /// Whether chunk c lies on stage c mod pp.
  bool isLooped() const;
  /// Whether two chunks per stage are V-shaped. Example: the stages 0, 1, 1, 0.
  bool isVee() const;
  /// Returns the first chunk that begins inside a block, or nullptr.
  const ChunkBlocks *cutBlock() const;
  /// Whether every chunk has the same number of blocks.
  bool isEven() const;
  /// Returns how many blocks of a stage the plan recomputes in its stronger mode, by stage.
  std::vector<int64_t> recomputedBlocks() const;
  /// Returns the numbers of experts of all layers with experts split over ep. Example: {64}.
  std::set<int64_t> numExperts() const;
  /// Whether experts get all tokens of the ranks of ep, and not the routed ones alone.
  bool gathersTokensForExperts() const;
  /// Returns the parameters with a padded vocabulary that tp splits. A module has the sizes of the
  /// model, so tp may not divide its table.
  std::vector<std::string> paddedTablesOverTp() const;
  /// Returns the padding in words; empty if no vocabulary is padded. Example: "the vocabulary of
  /// 50257 is padded to 50304".
  std::string paddingText() const;
  /// Returns a setting of the job, or `otherwise`.
  double setting(const std::string &key, double otherwise) const;
  /// Whether parameters are sharded over `axis` by default.
  bool shardsOver(planner::Axis axis) const;
  /// Whether matmuls are in 16 bits, and gradients are summed in f32. Executors may sum in 16.
  bool widensGradients() const;
  bool hasSetting(const std::string &key) const { return plan->job.settings.count(key) > 0; }
  /// Returns the devices that run on each node, and the nodes.
  int64_t perNode() const;
  int64_t nodes() const;
};

/// Returns how tp splits `parameter` where ops read it.
MatrixSplit splitOverTensorAxis(const planner::LayoutParameters &parameter);

/// Whether some dim of `placement` is split over `axis`.
bool isSplitOver(const planner::TensorPlacement &placement, const std::string &axis);

} // namespace tbc::exporter

#endif // TBC_TOOLS_EXPORT_PLANFACTS_H
