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
#include "planner/reshard/Sharding.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tbc::reshard {

/// Weight: what of the backward no other chunk waits for, where a schedule parts it from the rest.
enum class Phase { Forward, Backward, Weight };
/// An OptimizerState is a scalar that only the update writes, the same on every rank (the loss
/// scale).
enum class ValueRole { Activation, Parameter, State, Input, Loss, OptimizerState };
/// Parallel: in the result. Reduction: summed away (the result is pending). Max: reduced by max.
/// Fixed: may not be sharded. Streamed: only over axes that lie on another loop of the op as well
/// (queries): the op takes its blocks (of keys) one by one as they go round in a ring, and what it
/// sums over those axes is complete when they have been round.
enum class LoopKind { Parallel, Reduction, Max, Fixed, Streamed };
/// What ops with several loops over the sequence do when it is split (attention has queries and
/// keys). Ring: keys circulate block by block. AllGather: keys are gathered. AllToAll: the op is
/// whole along the sequence and split along another loop (heads) instead.
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
};

struct GraphValue {
  std::string name;
  TensorLayout layout;
  ValueRole role = ValueRole::Activation;
  int producer = -1; // op index; -1: an input of the step
  int producerResult = 0;
  bool isFloat = true;
  /// Of two bytes, f16 rather than bf16: devices may compute in one of them only.
  bool isF16 = false;
  /// The forward value this is the cotangent of, or -1.
  int cotangentOf = -1;
  std::vector<int> users; // op indices, ascending, each once
};

struct GraphOp {
  std::string id;
  std::string kind; // the op's mnemonic, for people
  Phase phase = Phase::Forward;
  /// The piece of the model (virtual stage) that it belongs to; chunks follow each other in
  /// forward.
  int chunk = 0;
  /// The forward op this belongs to (itself for a forward op; -1 if none).
  int forwardOp = -1;
  std::vector<int> operands;
  std::vector<int> results;
  std::vector<Loop> loops;
  /// Linear in all operands jointly (add, neg, a cast between floats): pending operands may pass
  /// through as a pending result when all operands are pending over the same axes.
  bool additive = false;
  /// Depends on no input, parameter or state (constants, iota and what is computed from them):
  /// cloned into every stage that needs it and evaluated replicated, never sent.
  bool generator = false;
  /// The loop that counts networks beside each other, each with a part of the work and parameters
  /// of its own (experts); -1: none. The axis ep lies on it, instead of on the batch.
  int expertLoop = -1;
  /// Floating-point operations for the sizes in `loops` (all global); sharding a loop divides it.
  double flops = 0;
  /// Kernel class for the cost model: "matmul", "conv", "attention", "elementwise", "reduction",
  /// "gather", "none" (free: views and generators).
  std::string kernelClass = "elementwise";
};

/// One trained parameter: where its value enters and where its gradient leaves.
struct GraphParameter {
  int value = -1;
  int gradient = -1; // value index of the completed gradient, -1 if frozen or unused
};

struct Graph {
  std::vector<GraphValue> values;
  std::vector<GraphOp> ops; // in topological order: all forward ops, then all backward ops
  std::vector<GraphParameter> parameters;
  /// New values of State inputs: {state input value, new value}.
  std::vector<std::pair<int, int>> stateUpdates;
  int loss = -1;
  /// What the elements of the loss count, where the update corrects for that; -1: each counts as
  /// one.
  int count = -1;
  /// The bytes of the scalars that the update adds up over all ranks; the loss is one of them if
  /// there are any.
  int64_t stepTotalBytes = 0;
  /// The bytes of the scalars that the update keeps on every rank from step to step.
  int64_t stepStateBytes = 0;
  FactorId batchFactor = -1;
  /// The tokens of a sample, where the inputs have a dim of them; -1: they have none.
  FactorId sequenceFactor = -1;
};

/// Which axes lie on which loops of one op. Loops not named are not sharded.
struct OpStrategy {
  std::string tag; // e.g. "loop:h" for people; free text
  std::map<int, std::vector<AxisRef>> loopAxes;
};

/// The ordinary strategies of an op for one more mesh axis: not at all, or on any one loop that may
/// be sharded and whose size the axis divides (after the axes that `base` puts there).
std::vector<OpStrategy> enumerateStrategies(const Graph &graph, int op, const OpStrategy &base,
                                            const AxisRef &axis);

/// Strategy with the batch factor's loops over `dataAxes` and then `expertAxes`; an op with an
/// expert loop that `expertAxes` divide has them there instead.
OpStrategy batchStrategy(const Graph &graph, int op, const std::vector<AxisRef> &dataAxes,
                         const std::vector<AxisRef> &expertAxes = {});

/// What the expert loops of `graph` have in common: the sizes of `ep` that split all of them are
/// its divisors. 1 where there are none, or one that may not be sharded.
int64_t commonExperts(const Graph &graph);

/// "ring", "all-gather", "all-to-all".
const char *name(ContextForm form);
std::optional<ContextForm> parseContextForm(const std::string &name);

/// `strategy` with the sequence split over `axes` too: on the op's loop over it, before the axes
/// that lie there, or for an op with several such loops as `form` says: the first of them, and with
/// Ring those that stream as well; with AllToAll its first other parallel loop that can be split,
/// after the axes that lie there. An op for which that is impossible stays as it is.
OpStrategy contextStrategy(const Graph &graph, int op, const OpStrategy &strategy,
                           const std::vector<AxisRef> &axes, ContextForm form);

/// Why the sequence of `graph` cannot be split into `parts` in this form, naming the op and saying
/// what else can be, or "".
std::string whyNoContext(const Graph &graph, int64_t parts, ContextForm form);

/// How many blocks op `op` takes one after another under `strategy`: 1 but for streamed loops.
int64_t streamedBlocks(const Graph &graph, int op, const OpStrategy &strategy);

/// The communication inside op `op`, per execution: each operand that runs along a streamed loop
/// goes round, once less than there are blocks, and each result along it goes round with them and
/// then home. Generators are not sent: every rank makes what it needs of them.
std::vector<Collective> ringCollectives(const Graph &graph, int op, const OpStrategy &strategy);

/// A backward op does what its forward op did: each of its loops that runs through an operand or a
/// result of the forward op, or through a cotangent of either, takes the axes of the forward loop
/// with the same factor at the same place; other loops take the axes of the forward loop with the
/// same factor, if there is just one. A loop that may not be sharded so stays whole.
OpStrategy inheritStrategy(const Graph &graph, int backwardOp,
                           const std::vector<OpStrategy> &strategies);

/// The sharding in which an op wants operand `operand`, and produces result `result` (pending over
/// the axes of its reduction loops).
Sharding operandSharding(const Graph &graph, int op, const OpStrategy &strategy, int operand);
Sharding resultSharding(const Graph &graph, int op, const OpStrategy &strategy, int result);

/// How one parameter is stored, gathered and its gradient reduced (docs/design.md, section 3).
///   zero 0  gradients all_reduced over reduceAxes + zeroAxes once per step
///   zero 1  gradients reduce_scattered over zeroAxes once per step, parameter all_gathered once
///           per step
///   zero 2  gradients reduce_scattered each micro-batch, parameter all_gathered once per step
///   zero 3  parameter stored flat over zeroAxes, gathered in forward and again in backward, where
///           backward reads it (or kept to the end of backward: keepGathered), gradients
///           reduce_scattered each micro-batch
/// In 1 to 3 the state is flat over zeroAxes, and reduceAxes (other data axes) are all_reduced once
/// per step on the shard. Zero axes that shard the parameter anyhow are left out.
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
  /// The stage that holds each chunk; empty: chunk s lies on stage s.
  std::vector<int> chunkStage;
  int numChunks() const { return chunkStage.empty() ? numStages : int(chunkStage.size()); }
  int stageOf(int chunk) const { return chunkStage.empty() ? chunk : chunkStage[chunk]; }
  int64_t microBatches = 1;                  // per step and data rank
  std::vector<OpStrategy> strategies;        // one per op
  std::vector<ParameterPlan> parameterPlans; // one per parameter
  /// Per op, whether what is kept of its results from forward on lies on the host; empty: of none.
  std::vector<bool> offloadedOps;
  /// Whether optimizer states and master weights lie on the host.
  bool offloadsStates = false;
  bool offloads(int op) const {
    return op >= 0 && op < int(offloadedOps.size()) && offloadedOps[size_t(op)];
  }
};

/// Why `derive` cannot take `assignment`, naming the op or parameter, or "" if it can: a strategy
/// that the sizes do not allow, an axis used twice, a value that flows to a stage which has gone
/// by.
std::string whyInvalid(const Graph &graph, const Assignment &assignment);

/// What is added up to the gradient of a parameter: one value per use in a chunk. With one chunk,
/// just the gradient. Where uses lie in several chunks (tied weights), the backward adds that would
/// join their gradients across chunks are left out (`skippedAdds`): each stage accumulates the
/// parts of its chunks, and rule 5 below sums over stages once per step.
struct GradientParts {
  struct Part {
    int chunk = 0;
    int value = -1;
  };
  std::vector<Part> parts;
  std::vector<int> skippedAdds; // op indices that derive and the partitioner do not execute
};
GradientParts gradientParts(const Graph &graph, int parameter);

/// Where a piece of communication sits.
enum class Where {
  Operand,       // on an activation: before op `op`, or right after its producer (`op` is -1)
  ParameterUse,  // gather of a stored parameter before `op`, its first use in a block
  GradientMicro, // after a part of a gradient is produced, each micro-batch
  GradientStep,  // in update, on the accumulated gradient
  ParameterStep, // in update, after the optimizer
  Loss,          // once per step: the scalar loss
  StepTotal,     // once per step, on every stage: stepTotalBytes
  Stage,         // a send between stages, after the value's completion
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

/// A value kept for another block of the same stage, in the sharding given: an activation or an
/// input for backward, a cotangent for the weight phase, a gathered parameter with keepGathered,
/// and what one chunk of a stage hands to another. Generators are evaluated again instead.
struct Residual {
  int value = -1;
  int chunk = 0; // the block that keeps it: of this chunk and phase
  Sharding sharding;
  Phase phase = Phase::Forward;
  /// It leaves for the host as soon as it is there, and comes back once per block that reads it.
  bool isOnHost = false;
};

/// A value that crosses from one stage to another, in the sharding given.
struct Transfer {
  int value = -1;
  int fromChunk = 0, toChunk = 0;
  Phase phase = Phase::Forward;
  Sharding sharding;
};

/// The chunk, of those that lie with `chunk`, in whose block `value` is computed or received: that
/// of its producer if it is one of them, else `chunk` itself.
int holderOf(const Graph &graph, const Assignment &assignment, int value, int chunk);
/// The phase of that block.
Phase phaseHeld(const Graph &graph, const Assignment &assignment, int value, int chunk);

struct Derivation {
  /// Per op and operand: the sharding required, and the index into `reshards` of the *last* reshard
  /// that provides it; -1: the value serves as it is at hand (its home or, in backward, what was
  /// kept of it). No operands for skipped adds.
  struct Operand {
    Sharding sharding;
    int reshard = -1;
  };
  std::vector<std::vector<Operand>> operands;
  /// Per value: as produced, pending included; generators are replicated.
  std::vector<Sharding> raw;
  /// Per value: as kept; complete, unless an additive op takes the pending axes on or no op uses
  /// the value (as most parts of gradients). The new value of a state has the home of the state.
  std::vector<Sharding> home;
  std::vector<Sharding> stored;   // per parameter (index into graph.parameters)
  std::vector<Sharding> gradient; // per parameter: as accumulated (may be pending)
  std::vector<Sharding> state;    // per parameter: optimizer state and master weights
  /// Per parameter: the stages that hold a copy, those of its users and of the parts of its
  /// gradient (0 without any), ascending. One without a part contributes zeros to the sum over
  /// stages.
  std::vector<std::vector<int>> parameterStages;
  std::vector<GradientParts> gradientParts; // per parameter
  std::vector<Reshard> reshards;            // in program order
  std::vector<Residual> residuals;
  std::vector<Transfer> transfers;
};

/// What every rank does under `assignment`, as collectives; a pure function shared by planner and
/// partitioner. Rules, in order:
///  1. A value is completed once, right after its producer; that is its home. Pending axes that all
///     users, forward and backward, want on one and the same factor, right after the axes that the
///     value has there, are reduce_scattered there; the others are all_reduced. An additive op
///     whose operands are all pending over the same axes, each used only by it and produced in its
///     block, and wanted with those axes nowhere, takes them on: sums are deferred and merged.
///  2. An operand wanted in another sharding is resharded before the op; a second use of the same
///     value in the same sharding, stage and phase reuses the first.
///  3. A value that a later block of its stage needs (backward, the weight phase, another chunk
///     there) is kept in the sharding in which the first user wants it if the block that has it had
///     it so, else in its home. Another use reshards what was kept. What forward keeps of the
///     results of Assignment::offloadedOps is kept on the host.
///  4. The home of an input or a parameter is the sharding that most of its uses want (first in op
///     order on a tie); with zero 3 the stored parameter is flat over zeroAxes on top, and it is
///     gathered at the first use in each block.
///  5. A gradient (each of its gradientParts) is resharded to its parameter's home each micro-batch
///     (what is pending over data axes, in each of its parts, stays so; with zero >= 2, over those
///     of reduceAxes only), accumulated, and completed once per step. A parameter held by several
///     stages has its accumulated gradient, once complete and on the state's shard, all_reduced
///     over those stages of the pipeline axis. With one micro-batch and one stage a gradient of one
///     part is completed in the backward, onto the state's shard: nothing is accumulated.
///  6. A value used by a chunk of another stage is sent directly, once per receiving chunk, in its
///     home sharding: forward values to later chunks in forward, cotangents in backward. (A forward
///     value that the backward of an earlier chunk needs is sent in backward too, as it was kept.)
///     What the weight phase needs is received in backward. Between chunks of one stage nothing is
///     sent. Inputs are fed to every chunk that uses them; generators are cloned into every block.
///  7. The loss, where no op uses it, is completed once per step: with the other scalars of the
///  step,
///     if there are any, in one all_reduce over every axis of the mesh.
/// The assignment must be valid (whyInvalid): derive ends the program where it notices that it is
/// not. `cost` chooses between collectives only; it sees kind, axes, reduce, bytes and numElements.
Derivation derive(const Graph &graph, const Assignment &assignment,
                  const CollectiveCost &cost = bytesOnWire);

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

/// The collectives of one step, merged by (kind, axes, stage, bytes) and sorted; ShardSlice left
/// out. A send is counted at the sending stage with axes "pp".
std::vector<CollectiveCount> countCollectives(const Graph &graph, const Assignment &assignment,
                                              const Derivation &derivation);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_GRAPH_H
