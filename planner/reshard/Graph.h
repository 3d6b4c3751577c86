//===- Graph.h - The training step as the planner and the partitioner see it ===//
//
// Plain C++. Opaque nodes with loops, values with layouts: no notion of "attention" or "layer". The
// compiler extracts it from the IR; the planner searches over it; `derive` turns a choice of
// strategies into the exact list of collectives, which the planner prices and the partitioner
// emits.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_GRAPH_H
#define TBC_PLANNER_RESHARD_GRAPH_H

#include "planner/reshard/Collective.h"
#include "planner/reshard/KernelClass.h"
#include "planner/reshard/Sharding.h"
#include "runtime/dtype/DType.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tbc::reshard {

using tbc::DType;

/// Weight: the wgrad, if a schedule splits it from the rest of the backward.
enum class Phase { Forward, Backward, Weight };
/// An OptimizerState is a scalar of the update, equal on every rank (the loss
/// scale).
enum class ValueRole { Activation, Parameter, State, Input, Loss, OptimizerState };
/// Parallel: in the result. Reduction: summed away (the result is partial). Max: reduced by max.
/// Fixed: may not be sharded. Streamed: only over axes on another loop of the op (queries). The op
/// takes its blocks (keys) one by one around a ring; its sums over those axes are complete after
/// one round.
enum class LoopKind { Parallel, Reduction, Max, Fixed, Streamed };
/// The form of an op with several loops over a split sequence (attention: queries and keys). Ring:
/// keys circulate block by block. AllGather: keys are gathered. AllToAll: the op is whole along the
/// sequence and split along another loop (heads) instead.
enum class ContextForm { Ring, AllGather, AllToAll };

struct TensorDim {
  int tensor = 0; // operand number or result number
  int dim = 0;
};

/// One loop of an op: a factor as it runs through the op's operands and results (as in an einsum).
struct Loop {
  FactorId factor = 0;
  int64_t size = 1;
  LoopKind kind = LoopKind::Parallel;
  std::vector<TensorDim> operandDims;
  std::vector<TensorDim> resultDims;
  /// Whether the op combines elements along it. Example: the last dim of a softmax.
  bool isReduced = false;
};

struct GraphValue {
  std::string name;
  TensorLayout layout;
  ValueRole role = ValueRole::Activation;
  int producer = -1; // op index; -1: an input of the step
  int producerResult = 0;
  DType dtype = DType::F32; // of `layout.elementBytes` bytes
  /// The forward value this is the cotangent of, or -1.
  int cotangentOf = -1;
  std::vector<int> users; // op indices, ascending, each once
};

/// Which rows of tokens an op needs. Its tensors without loop `experts` have a row per token, which
/// is of use for `copies` elements of `experts` at most; 0: of all. Example: x and y of experts, of
/// which each token has the 2 best of 8. The op computes `inner` values for each row, copy and
/// element of `innerLoop`, which a backward that does not compute them again reads. Of the ranks
/// that divide `experts`, the fullest gets `imbalance` times the mean of the copies.
struct Routing {
  int experts = -1, innerLoop = -1;
  int64_t copies = 0, inner = 0;
  double imbalance = 1;

  /// Returns by how much the fullest of `ranks` has fewer copies than all together. Example: 4
  /// ranks with an imbalance of 1.25: 3.2.
  double divisor(int64_t ranks) const { return std::max(1.0, double(ranks) / imbalance); }
};

/// How the operands of a matmul are rounded to 8 bits right before it, if the job asks for that.
struct Fp8Use {
  bool isRounded = false;
  /// The most bytes of both operands on a rank; a larger matmul keeps its own types. 0: any.
  int64_t mostBytes = 0;
};

struct GraphOp {
  std::string id;
  std::string kind; // the op's mnemonic, for people
  Phase phase = Phase::Forward;
  /// Its piece of the model (virtual stage); chunks follow each other in
  /// forward.
  int chunk = 0;
  /// The forward op this belongs to (itself for a forward op; -1 if none).
  int forwardOp = -1;
  std::vector<int> operands;
  std::vector<int> results;
  std::vector<Loop> loops;
  /// Linear in all operands jointly (add, neg, a cast between floats): the result is partial,
  /// without a reduction, if all operands are partial over the same axes.
  bool additive = false;
  /// Constant-derived: depends on no input, parameter or state (constants, iota, ops on these).
  /// Cloned into every block with a use, never sent. Evaluated on the shard that its readers need,
  /// if they agree, and else whole (Derivation::generatorStrategies).
  bool generator = false;
  /// The loop over parallel networks, each with its work and parameters (experts); -1 without. The
  /// axis ep lies on it, instead of on the batch.
  int expertLoop = -1;
  Routing routing;
  bool isRecomputed = false; // a forward op that backward runs again (withRecompute)
  /// Floating-point operations for the sizes in `loops` (all global); sharding a loop divides it.
  double flops = 0;
  KernelClass kernelClass = KernelClass::Elementwise;
  /// Whether it is a nest of loops that may be a part of a larger one (CostOpInterface).
  bool isLoopNest = false;
  ElementFunction function = ElementFunction::Other;
  /// The operand with the logits of a loss, for each of which executors of others hold buffers; -1
  /// without.
  int logitsOperand = -1;
  WorkspaceFn workspace = nullptr;
  OwnKernel own;
  ColumnUse columns;
  Fp8Use fp8;
};

struct MatrixUpdate;

/// One trained parameter: its input value and its gradient value.
struct GraphParameter {
  int value = -1;
  int gradient = -1; // value index of the completed gradient, -1 if frozen or unused
  /// The tensors of its shape that the optimizer keeps, without the master copy; -1: as the
  /// optimizer keeps for most.
  int moments = -1;
  /// The part of its update that reads whole matrices; null if each element is updated by itself.
  std::shared_ptr<const MatrixUpdate> matrices;
};

struct Graph {
  std::vector<GraphValue> values;
  std::vector<GraphOp> ops; // in topological order: all forward ops, then all backward ops
  std::vector<GraphParameter> parameters;
  /// New values of State inputs: {state input value, new value}.
  std::vector<std::pair<int, int>> stateUpdates;
  int loss = -1;
  /// The weights of the loss elements, if the update corrects for them; -1: each counts as
  /// one.
  int count = -1;
  /// Bytes of the scalars that the update sums over all ranks; if there are any, the loss is
  /// one.
  int64_t stepTotalBytes = 0;
  /// Bytes of the scalars that the update keeps on every rank between steps.
  int64_t stepStateBytes = 0;
  FactorId batchFactor = -1;
  /// The tokens of a sample, if the inputs have such a dim; else -1.
  FactorId sequenceFactor = -1;
};

/// The ops of an update between tbc.gather_matrices and tbc.shard_matrices. A parameter of more
/// than two dims is a stack of matrices, over its dims but the last two.
struct MatrixUpdate {
  /// Value 0 is the gathered tensor, with the element type of the parameter. The last op makes the
  /// result. Factor `stackFactor` is the first dim of a stack. Values with the role OptimizerState
  /// are states that every rank with a part of the matrices holds, e.g. moments of rows; the new
  /// ones are in `stateUpdates`.
  Graph graph;
  /// By op: whether it shares a kernel with the op before.
  std::vector<bool> joinsPrevious;
  /// The f32 scalars behind the ops that are sums over all elements of the parameter.
  int totals = 0;
  /// The rows of a matrix are a stack, too: only columns are gathered.
  bool isByRows = false;
  static constexpr FactorId stackFactor = 0;
};

/// The axes on each loop of one op. Loops that are not listed are not sharded.
struct OpStrategy {
  std::string tag; // e.g. "loop:h" for people; free text
  std::map<int, std::vector<AxisRef>> loopAxes;
};

/// The ordinary strategies of an op for one more mesh axis: not sharded, or on one shardable loop
/// whose size the axis divides (after the axes of `base` there). Example: a matmul has up to 4.
std::vector<OpStrategy> enumerateStrategies(const Graph &graph, int op, const OpStrategy &base,
                                            const AxisRef &axis);

/// Strategy with the batch loops over `dataAxes`, then `expertAxes`; an op with an expert loop that
/// `expertAxes` divide has them on that loop.
OpStrategy batchStrategy(const Graph &graph, int op, const std::vector<AxisRef> &dataAxes,
                         const std::vector<AxisRef> &expertAxes = {});

/// The greatest common divisor of the expert loops of `graph`: sizes of `ep` are its divisors. 1
/// without such loops, or if one may not be sharded. Example: 8 and 12 give 4.
int64_t commonExperts(const Graph &graph);

/// Returns `graph` with `imbalance` (at least 1) for all ops with a Routing.
Graph withExpertImbalance(Graph graph, double imbalance);
/// Whether an op of `graph` has a Routing.
bool routesTokens(const Graph &graph);

/// "ring", "all-gather", "all-to-all".
const char *name(ContextForm form);
std::optional<ContextForm> parseContextForm(const std::string &name);

/// Returns `strategy` with the sequence split over `axes` too: on the op's loop over it, before its
/// other axes. If the op has several such loops:
/// - AllGather splits the first of them;
/// - Ring also splits the streamed ones;
/// - AllToAll instead splits the first other parallel loop with a divisible size, after its other
///   axes.
///
/// An op without such a loop stays as it is.
OpStrategy contextStrategy(const Graph &graph, int op, const OpStrategy &strategy,
                           const std::vector<AxisRef> &axes, ContextForm form);

/// Why the sequence of `graph` cannot be split into `parts` in this form, with the op and the
/// possible forms, or "".
std::string whyNoContext(const Graph &graph, int64_t parts, ContextForm form);

/// The number of blocks that op `op` takes in turn under `strategy`: 1 without streamed loops.
int64_t streamedBlocks(const Graph &graph, int op, const OpStrategy &strategy);

/// The communication inside op `op`, per execution: each operand along a streamed loop travels n -
/// 1 times for n blocks, and each result along it n times, the last one home. Generators are not
/// sent: every rank computes its own blocks.
std::vector<Collective> ringCollectives(const Graph &graph, int op, const OpStrategy &strategy);

/// A backward op follows its forward op. A loop through an operand or result of the forward op, or
/// through a cotangent of one, takes the axes of the forward loop with the same factor at the same
/// position. Other loops take the axes of the forward loop with the same factor, if there is just
/// one. A loop for which these are not allowed stays whole.
OpStrategy inheritStrategy(const Graph &graph, int backwardOp,
                           const std::vector<OpStrategy> &strategies);

/// The sharding that an op requires of operand `operand`, and gives to result `result` (partial
/// over the axes of its reduction loops).
Sharding operandSharding(const Graph &graph, int op, const OpStrategy &strategy, int operand);
Sharding resultSharding(const Graph &graph, int op, const OpStrategy &strategy, int result);
/// Returns the shapes of the operands of `op` on one rank.
std::vector<std::vector<int64_t>> localOperandShapes(const Graph &graph, int op,
                                                     const OpStrategy &strategy);

/// How one parameter is stored, gathered and its gradient reduced (docs/design.md, section 3).
///   zero 0  gradients all_reduced over reduceAxes + zeroAxes once per step
///   zero 1  gradients reduce_scattered over zeroAxes once per step, parameter all_gathered once
///           per step
///   zero 2  gradients reduce_scattered each micro-batch, parameter all_gathered once per step
///   zero 3  parameter stored flat over zeroAxes, gathered in forward and again in backward, where
///           backward reads it (or kept to the end of backward: keepGathered), gradients
///           reduce_scattered each micro-batch
/// In 1 to 3 the state is flat over zeroAxes, and reduceAxes (other data axes) are all_reduced once
/// per step on the shard. Zero axes that already shard the parameter are omitted.
struct ParameterPlan {
  int zero = 0;
  bool keepGathered = false;
  std::vector<AxisRef> zeroAxes;
  std::vector<AxisRef> reduceAxes;
};

struct Assignment {
  Mesh mesh;
  int pipelineAxis = -1; // index of the "pp" axis in mesh, or -1
  int numStages = 1;     // coordinates along it
  /// The stage of each chunk; empty: chunk s on stage s.
  std::vector<int> chunkStage;
  int numChunks() const { return chunkStage.empty() ? numStages : int(chunkStage.size()); }
  int stageOf(int chunk) const { return chunkStage.empty() ? chunk : chunkStage[chunk]; }
  int64_t microBatches = 1;                  // per step and data rank
  std::vector<OpStrategy> strategies;        // one per op
  std::vector<ParameterPlan> parameterPlans; // one per parameter
  /// Per op, whether its saved results are offloaded to the host; empty: all stay.
  std::vector<bool> offloadedOps;
  /// Whether optimizer states and master weights lie on the host.
  bool offloadsStates = false;
  /// Whether accumulated gradients are completed in the last backward (rule 5): of tbc's own
  /// executor.
  bool reducesInLastBackward = true;
  /// Whether a token goes to the ranks of its experts alone (TokenExchange.h). Of executors of
  /// others: tbc's own gathers all tokens.
  bool exchangesTokens = false;
  bool offloads(int op) const {
    return op >= 0 && op < int(offloadedOps.size()) && offloadedOps[size_t(op)];
  }
};

/// Returns why `assignment` is invalid for `derive`, with the op or parameter, or "". Examples: a
/// strategy that the sizes do not allow, an axis used twice, a value that flows to an earlier
/// stage.
std::string whyInvalid(const Graph &graph, const Assignment &assignment);

/// The summands of a parameter's gradient: one value per use in a chunk. With one chunk, the
/// gradient itself. With uses in several chunks (tied weights), backward adds across chunks are
/// omitted (`skippedAdds`). Each stage then accumulates the parts of its chunks, and rule 5 below
/// sums over stages once per step.
struct GradientParts {
  struct Part {
    int chunk = 0;
    int value = -1;
  };
  std::vector<Part> parts;
  std::vector<int> skippedAdds; // op indices that derive and the partitioner do not execute
};
GradientParts gradientParts(const Graph &graph, int parameter);

/// The position of a piece of communication.
enum class Where {
  Operand,       // on an activation: before op `op`, or right after its producer (`op` is -1)
  ParameterUse,  // gather of a stored parameter before `op`, its first use in a block
  GradientMicro, // after a part of a gradient is produced, each micro-batch
  GradientLast,  // in the last backward of the step, on the accumulated gradient
  GradientStep,  // in update, on the accumulated gradient
  MatrixStep,    // in update, on a direction whose optimizer reads whole matrices
  ParameterStep, // in update, after the optimizer
  Loss,          // once per step: the scalar loss
  StepTotal,     // once per step, on every stage: stepTotalBytes
  Stage,         // a send between stages, after the value's completion
  MatrixTotals,  // in update, after MatrixStep: MatrixUpdate::totals, over the state's shards
};

/// Takes value `value` from `from` to `to`, once per block execution (or once per step).
struct Reshard {
  int value = -1;
  Where where = Where::Operand;
  Phase phase = Phase::Forward;
  int stage = 0;
  int chunk = -1; // -1: once per step
  int op = -1;    // the op before which it runs; -1: see Where
  Sharding from, to;
  std::vector<Collective> steps;
  bool perStep = false; // else per micro-batch
};

/// A value saved for another block of the same stage, in the given sharding. It is one of
/// - an activation or an input for backward;
/// - a cotangent for wgrad;
/// - a gathered parameter with keepGathered;
/// - a value between two chunks of a stage.
///
/// Generators are evaluated again instead.
struct Residual {
  int value = -1;
  int chunk = 0; // the block that keeps it: of this chunk and phase
  Sharding sharding;
  Phase phase = Phase::Forward;
  /// It is offloaded once computed, and fetched once per block that reads it.
  bool isOnHost = false;
};

/// A value sent from one stage to another, in the given sharding.
struct Transfer {
  int value = -1;
  int fromChunk = 0, toChunk = 0;
  Phase phase = Phase::Forward;
  Sharding sharding;
};

/// The chunk on the stage of `chunk` in whose block `value` is computed or received: its producer's
/// if that is on the stage, else `chunk` itself.
int holderOf(const Graph &graph, const Assignment &assignment, int value, int chunk);
/// The phase of this block.
Phase phaseHeld(const Graph &graph, const Assignment &assignment, int value, int chunk);

/// The rows of a tensor in `sharding` that a rank has for its experts, as a part of all: 0.25 on
/// each of 8 ranks with an expert, of which a token has 2.
struct RoutedRows {
  Sharding sharding;
  double share = 1;
};

/// What a forward op of experts keeps on a rank for its backward, beside residuals: copies of rows,
/// and their inner values.
struct KeptRows {
  int op = -1;
  int64_t bytes = 0;
};

struct Derivation {
  /// Per op and operand: the required sharding, and the index into `reshards` of the *last* reshard
  /// to it; -1: the value is used in its home or, in backward, saved sharding. No operands for
  /// skipped adds.
  struct Operand {
    Sharding sharding;
    int reshard = -1;
  };
  std::vector<std::vector<Operand>> operands;
  /// Per value: as produced, partial axes included.
  std::vector<Sharding> raw;
  /// Of generators on shards; all others are whole on every rank.
  std::map<int, OpStrategy> generatorStrategies;
  /// Per value: its home; complete, unless an additive op passes the partial axes on or no op uses
  /// the value (as most parts of gradients). The new value of a state has the home of the state.
  std::vector<Sharding> home;
  std::vector<Sharding> stored;   // per parameter (index into graph.parameters)
  std::vector<Sharding> gradient; // per parameter: as accumulated (may be partial)
  std::vector<Sharding> state;    // per parameter: optimizer state and master weights
  /// Per parameter: the stages with a copy, of its users and of the parts of its gradient
  /// (0 without any), ascending. A stage without a part adds zeros to the sum over
  /// stages.
  std::vector<std::vector<int>> parameterStages;
  std::vector<GradientParts> gradientParts; // per parameter
  /// Per parameter: whether its accumulated gradient is completed by a GradientLast.
  std::vector<bool> isReducedLast;
  /// Values by number, where ranks have the rows of their experts alone (TokenExchange.h). Empty
  /// unless Assignment::exchangesTokens.
  std::map<int, RoutedRows> routed;
  std::vector<KeptRows> keptRows; // of the ops that are not recomputed; empty likewise
  std::vector<Reshard> reshards;  // in program order
  std::vector<Residual> residuals;
  std::vector<Transfer> transfers;

  /// Returns the bytes of `value` on a rank in `sharding`.
  int64_t bytesOf(const Graph &graph, int value, const Sharding &sharding) const {
    const int64_t bytes = localBytes(graph.values[size_t(value)].layout, sharding);
    const auto rows = routed.find(value);
    const bool isRouted = rows != routed.end() && rows->second.sharding == sharding;
    return isRouted ? int64_t(double(bytes) * rows->second.share) : bytes;
  }
  /// Whether the gradient of a parameter with isReducedLast keeps its shape, and so its slot.
  /// Example: yes after an all_reduce, no after a reduce_scatter.
  bool isReducedInPlace(int parameter) const {
    Sharding whole = gradient[size_t(parameter)];
    whole.partial.clear();
    return whole == state[size_t(parameter)];
  }

  /// Returns the strategy of op `op`, also of a generator.
  const OpStrategy &strategyOf(const Assignment &assignment, int op) const {
    auto generator = generatorStrategies.find(op);
    return generator == generatorStrategies.end() ? assignment.strategies[size_t(op)]
                                                  : generator->second;
  }
};

/// The collectives of every rank under `assignment`: a pure function shared by planner and
/// partitioner. Rules, in order:
///  1. A value is completed once, right after its producer; the result is its home. If all users,
///     forward and backward, need the partial axes on one factor, right after the value's axes
///     there, they are reduce_scattered to it; the others are all_reduced. An additive op passes
///     partial axes on if all operands are partial over the same axes, used only by it, produced in
///     its block, and needed with those axes nowhere: sums are deferred and merged.
///  2. An operand that needs another sharding is resharded before the op; a second use of the same
///     value in the same sharding, stage and phase reuses the first.
///  3. A value that a later block of its stage needs (backward, wgrad, another chunk there) is
///     saved in the sharding of its first user if its own block has it in that sharding, else in
///     its home. Another use reshards the saved value. Saved results of Assignment::offloadedOps
///     lie on the host.
///  4. The home of an input or a parameter is the sharding of most of its uses (first in op order
///     on a tie); with zero 3 the stored parameter is flat over zeroAxes on top, and it is gathered
///     at the first use in each block.
///  5. A gradient (each of its gradientParts) is resharded to its parameter's home each micro-batch
///     (partial data axes common to all of its parts stay partial; with zero >= 2, only
///     reduceAxes), accumulated, and completed once per step. The gradient of a parameter held by
///     several stages, when complete on the state's shard, is all_reduced over these stages of the
///     pipeline axis. With one micro-batch and one stage a gradient of one part is completed in the
///     backward, onto the state's shard: nothing is accumulated. With several micro-batches the
///     gradients of the first chunk are completed in its backward of the last one, the end of the
///     step: beside the rest of that backward. Later stages wait for the first anyway, and
///     complete theirs in the update. (Excluded: split backwards, several chunks per stage,
///     parameters of several stages, and a gradient of two parameters.)
///  6. A value used by a chunk of another stage is sent directly, once per receiving chunk, in its
///     home sharding: forward values to later chunks in forward, cotangents in backward. (A forward
///     value that the backward of an earlier chunk needs is sent in backward too, as it was kept.)
///     Operands of wgrad are received in backward. Between chunks of one stage there is no send.
///     Inputs are fed to every chunk that uses them; generators are cloned into every block.
///  7. The loss, if no op uses it, is completed once per step: in one all_reduce over every axis of
///     the mesh, together with the other scalars of the step, if any.
/// The assignment must be valid (whyInvalid): derive aborts if it notices an invalid one. `cost`
/// chooses between collectives only; it sees kind, axes, reduce, bytes and numElements.
Derivation derive(const Graph &graph, const Assignment &assignment,
                  const CollectiveCost &cost = bytesOnWire);

/// Whether the first dim of a parameter with `numDims` dims numbers what its update reads whole.
bool isStack(const MatrixUpdate *update, int numDims);

/// Returns the sharding in which `update` (or null) reads whole matrices of a parameter with
/// `numDims` dims whose state has sharding `state`: the axes on the first dim stay where it numbers
/// matrices, all others are gathered. Example: experts [E, in, out] with E on ep and out on tp are
/// gathered over tp alone.
Sharding matrixSharding(const Sharding &state, const MatrixUpdate *update, int numDims);

/// Returns the bytes on a rank of each state that the rank holds for whole matrices, of a parameter
/// with this layout whose other states have sharding `state`. Example: a 4096 x 1024 matrix under
/// Adafactor has 16,384 for rows and 4,096 for columns.
std::vector<int64_t> wholeStateBytes(const GraphParameter &parameter, const TensorLayout &layout,
                                     const Sharding &state);

/// Returns the strategy of op `op` of `update` for a stack with this sharding.
OpStrategy matrixStrategy(const MatrixUpdate &update, int op, const Sharding &matrices);

/// One line of the list of collectives: `count` executions per step on each rank of `stage`.
struct CollectiveCount {
  CollectiveKind kind;
  std::string axes; // names joined by "+", e.g. "dp", "dp+fsdp", "tp"
  int stage = 0;
  int64_t bytes = 0; // per execution
  int64_t count = 0; // per step
  bool operator<(const CollectiveCount &o) const;
  bool operator==(const CollectiveCount &o) const;
};

/// The collectives of one step, merged by (kind, axes, stage, bytes) and sorted, without
/// ShardSlice. A send is counted at the sending stage with axes "pp".
std::vector<CollectiveCount> countCollectives(const Graph &graph, const Assignment &assignment,
                                              const Derivation &derivation);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_GRAPH_H
