//===- Executor.h - The program that runs a plan ---------------------------===//
//
// Plain C++. tbc's own Programs, or a framework with other kernels, overlap and buffers. Every
// number comes from a file in planner/executors.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_DEVICES_EXECUTOR_H
#define TBC_PLANNER_DEVICES_EXECUTOR_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

struct Cluster;

/// The name of tbc's own Programs.
constexpr const char *ownExecutor = "tbc";

/// How the programs of an executor split ops over tp.
enum class TensorParallel {
  Any,           // as the planner finds
  Megatron,      // matmuls by columns, then by rows; the rest whole. See pins/Megatron.h
  MegatronTokens // the same, with the tokens split where values are whole (sequence parallelism)
};

/// "any", "megatron", "megatron-sp".
const char *toString(TensorParallel layout);
std::optional<TensorParallel> parseTensorParallel(const std::string &name);

/// Which blocks of a stage an executor may recompute.
enum class RecomputeShare {
  Any,  // any number, another on each stage
  Even, // any number, the same on each stage
  All   // all of them
};

/// "any", "even", "all".
const char *toString(RecomputeShare share);
std::optional<RecomputeShare> parseRecomputeShare(const std::string &name);

/// The plans that an executor can run. A search keeps to them in decisions that the user leaves
/// open. Empty lists: all. The defaults are those of tbc.
struct RunnablePlans {
  std::vector<std::string> axes;      // of the mesh that may be longer than 1
  std::vector<std::string> zero;      // words of `--pin zero=`: "0" to "3", "shard-grad-op"
  std::vector<std::string> schedules; // of pipelines, words of --schedule
  std::vector<std::string> contexts;  // forms of context parallelism, words of --context
  /// States sharded over fsdp and copied over dp.
  bool shardsInGroups = true;
  /// Chunks of a pipeline in a V.
  bool placesInV = true;
  /// Stages may begin inside of a layer.
  bool cutsLayers = true;
  RecomputeShare recompute = RecomputeShare::Any;

  /// Whether `word` is in `list`, or the list is empty.
  static bool has(const std::vector<std::string> &list, const std::string &word);
  bool operator==(const RunnablePlans &o) const {
    return axes == o.axes && zero == o.zero && schedules == o.schedules && contexts == o.contexts &&
           shardsInGroups == o.shardsInGroups && placesInV == o.placesInV &&
           cutsLayers == o.cutsLayers && recompute == o.recompute;
  }
};

/// How an executor multiplies in 8 bits. The defaults are those of tbc (runtime/cuda/Fp8Matmuls.h).
struct Fp8Rule {
  bool exists = true;
  /// Of matmuls, only products with a parameter and their gradients, without those of the logits;
  /// then also those of routed experts.
  bool linearOnly = false;
  /// Whether the first matmul of an operand rounds it for all others, also for those of backward,
  /// and parameters are rounded once per step.
  bool roundsOnce = false;
  /// To round an operand: how often it is read, the bytes written for an element, and launches.
  double reads = 2, writtenBytes = 1, launches = 3;
  /// Bytes kept in 8 bits for each element of these parameters on a rank.
  double weightBytes = 0;

  bool operator==(const Fp8Rule &o) const {
    return exists == o.exists && linearOnly == o.linearOnly && roundsOnce == o.roundsOnce &&
           reads == o.reads && writtenBytes == o.writtenBytes && launches == o.launches &&
           weightBytes == o.weightBytes;
  }
};

/// The properties of an executor that are no constants of a cluster; runBy() sets those. The
/// defaults are those of tbc.
struct Executor {
  std::string name = ownExecutor;
  /// Seconds in which the host launches a kernel that the planner prices, which may be several of
  /// the executor's. 0 for tbc: its device runs captured graphs.
  double hostSeconds = 0;
  /// The host's time for every other rank over tp, relative to its own, in a pipeline over nodes:
  /// hosts serve the network beside launching, and the ranks of a group wait for each of them.
  double groupWait = 0;
  /// Seconds that a message between stages holds both of its ranks, beside the network's.
  double messageSeconds = 0;
  /// Stored parameters that one all_gather gathers together.
  int64_t joinedGathers = 1;
  /// Whether new parameters are gathered together after an update, by the size of buckets.
  bool joinsUpdates = true;
  /// Seconds that a gather of parameters or a reduce_scatter of gradients takes for each of its
  /// ranks, beside the network's.
  double gatherRankSeconds = 0;
  /// Bytes read and written in the device's memory for each byte that is gathered or scattered:
  /// fills, and copies from and to the buffers of collectives. Example: zeros (1) and a copy (2)
  /// for a gathered byte are 3.
  double gatherMoved = 0, scatterMoved = 0;
  /// The part of the last backward's kernels behind which sums of accumulated gradients hide,
  /// without a pipeline. Up to ZeRO stage `lastBackwardZero`.
  double lastBackward = 0;
  int64_t lastBackwardZero = 0;
  /// Under full recomputation a block keeps its input alone and runs its whole forward again, also
  /// the ops that backward does not read.
  bool recomputesBlocks = false;
  /// Parameters of recomputed ops are gathered for the recomputation and again for backward.
  bool gathersAgain = false;
  TensorParallel tensorParallel = TensorParallel::Any;
  /// The part of the communication between ops over tp that kernels hide.
  double hiddenOperands = 0;
  /// Residuals kept, relative to those of tbc. `splitResidualFactor` with tp > 1; 0: the same.
  double residualFactor = 1, splitResidualFactor = 0;
  /// Inputs of reduce_scatters between ops over tp that forward keeps at most, because the host
  /// runs ahead of the device. Only without a pipeline: there the host waits for other stages.
  int64_t queuedScatters = 0;
  // Bytes per logit of a rank and micro-batch:
  double logitBytes = 0;      // live at once around the loss, gradients included
  double logitMovedBytes = 0; // read and written beside what tbc's loss does
  /// Bytes of an element of the accumulated gradients; 0: as tbc's.
  double gradientWidth = 0;
  /// Whether shards of weights in 16 bits are stored beside their f32 master. Otherwise they are
  /// cast from it for every gather.
  bool storesWeights = true;
  // Bytes per parameter of a rank, as gathered:
  double gradientBytes = 0;  // of its gradient, at least
  double parameterBytes = 0; // of the gradient of one micro-batch, until it is accumulated
  /// Of buffers with several data ranks: with ZeRO 1 and 2 after the last backward, else always.
  double dataParallelBytes = 0;
  Fp8Rule fp8;
  RunnablePlans plans;

  bool isOwn() const { return name == ownExecutor; }
  /// Whether accumulated gradients are summed during the last backward, under ZeRO stage `zero`.
  bool reducesInLastBackward(int64_t zero) const {
    return lastBackward > 0 && zero <= lastBackwardZero;
  }
  /// Returns the bytes of an accumulated gradient relative to tbc's, which is in f32.
  double gradientFactor() const { return gradientWidth > 0 ? gradientWidth / 4 : 1; }
  bool operator==(const Executor &o) const {
    return name == o.name && hostSeconds == o.hostSeconds && groupWait == o.groupWait &&
           messageSeconds == o.messageSeconds && joinedGathers == o.joinedGathers &&
           joinsUpdates == o.joinsUpdates && lastBackward == o.lastBackward &&
           lastBackwardZero == o.lastBackwardZero && gatherRankSeconds == o.gatherRankSeconds &&
           gatherMoved == o.gatherMoved && scatterMoved == o.scatterMoved &&
           recomputesBlocks == o.recomputesBlocks && gathersAgain == o.gathersAgain &&
           tensorParallel == o.tensorParallel && hiddenOperands == o.hiddenOperands &&
           residualFactor == o.residualFactor && splitResidualFactor == o.splitResidualFactor &&
           queuedScatters == o.queuedScatters && storesWeights == o.storesWeights &&
           logitBytes == o.logitBytes && logitMovedBytes == o.logitMovedBytes &&
           gradientWidth == o.gradientWidth && gradientBytes == o.gradientBytes &&
           parameterBytes == o.parameterBytes && dataParallelBytes == o.dataParallelBytes &&
           fp8 == o.fp8 && plans == o.plans;
  }
};

/// Returns the executor of `cluster`; kinds of nodes have the same.
const Executor &executorOf(const Cluster &cluster);

/// Returns the names of all executors, sorted; "tbc" is one.
std::vector<std::string> executorNames();

/// Returns `cluster` with the constants of executor `name` on all its devices, and with the times
/// that its file has measured for that executor (Measured.h). Errors: Usage for an
/// unknown name, with a list of all. Example: with "deepspeed", no kernel hides communication.
Result<Cluster> runBy(const Cluster &cluster, const std::string &name);

} // namespace tbc::planner

#endif // TBC_PLANNER_DEVICES_EXECUTOR_H
