//===- Searcher.h - Scoring of candidates, with what they share kept -------===//

#ifndef TBC_PLANNER_CORE_SEARCHER_H
#define TBC_PLANNER_CORE_SEARCHER_H

#include "planner/core/BatchSums.h"
#include "planner/core/CutBound.h"
#include "planner/core/Fold.h"
#include "planner/core/KeepBound.h"
#include "planner/core/OnceMap.h"
#include "planner/core/OpPins.h"
#include "planner/core/Partition.h"
#include "planner/core/Pins.h"
#include "planner/core/PipelineBound.h"
#include "planner/core/PipelineRoom.h"
#include "planner/core/Profile.h"
#include "planner/core/Search.h"
#include "planner/core/StageDevices.h"
#include "planner/core/WholeWork.h"
#include "planner/core/Workers.h"

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace tbc::planner {

/// One complete configuration, bounded and then scored.
struct Candidate {
  MeshShape mesh;
  ZeroChoice zero;
  int64_t batch = 1; // global, perhaps rounded up
  int64_t microBatch = 1, accumulation = 1;
  ScheduleChoice schedule;
  reshard::ContextForm context = reshard::ContextForm::AllGather; // with cp > 1
  std::string recompute;
  bool offloadsStates = false, offloadsResiduals = false;
  double lowerBound = 0;  // no plan that the search makes of it is faster
  double provenBound = 0; // nor any other with its mesh, micro-batch and schedule
  double leastBytes = 0;  // that its fullest device holds at least
  int order = 0;          // of enumeration

  // Set by scoring.
  std::vector<int> firstOps;
  /// Where not all blocks recompute alike: by stage, the blocks that do as `recompute` says, and by
  /// chunk the op at which those end. Else empty.
  std::vector<int64_t> blocksAgain;
  std::vector<int> again;
  /// Where residuals are on the host: by stage, the blocks whose are, and by chunk the op at which
  /// those end.
  std::vector<int64_t> blocksAway;
  std::vector<int> away;
  double seconds = 0;
  double peakBytes = 0;
  int fullestStage = 0;
  bool feasible = false;
};

/// No plan of the job takes less on its fullest device: everything that belongs to parameters
/// divided over all devices, with context and margin. E.g. 16 bytes for each of 8.03e9 parameters
/// on 8 devices are 15 GiB each.
double leastBytesAnywhere(const reshard::Graph &graph, const Job &job, const Cluster &cluster,
                          bool offloadsStates);

/// Scores candidates of one job in closed form. What is said to be for any thread may be asked by
/// several at once: all that candidates share is made once, and follows from what it is made for
/// alone, so that no answer depends on who asked what before.
class Searcher {
public:
  Searcher(const reshard::Graph &graph, const Job &job, const Cluster &cluster, const Space &space,
           int64_t limitBytes, PinnedOps pinned, Workers &workers);

  /// Every candidate with its lower bound, cheapest bound first, ties in order of enumeration. The
  /// budget and the deadline of `limits` may end it early (end()). Where none can fit by its
  /// leastBytes, they have no bounds, and come in order of those bytes.
  std::vector<Candidate> enumerate(const Pins &limits);
  /// Whether it ended early, and why.
  SearchEnd end() const { return enumerationEnd; }
  /// Whether no plan fits: none of what enumerate() listed can, nor any other that the pins allow.
  bool provesNothingFits() const { return nothingFits; }
  /// What the fullest device of any plan holds at least.
  double leastBytesOfAll() const { return leastOfAll; }
  /// Whether what is proven of the candidate has to hold for meshes with cp as well, which are not
  /// listed: with a part of tp on cp, or of the data axes, where no other candidate stands for
  /// that. Larger micro-batches are no worse over data ranks.
  bool mayBeContext(const Candidate &candidate) const;
  /// Whether `candidate` cannot fit.
  bool isHopeless(const Candidate &candidate) const {
    return candidate.leastBytes > double(limitBytes);
  }
  /// No plan of the job on so many devices takes less: matrix products at the peak rate.
  double peakRateSeconds() const;
  /// What was left out because numbers would be too large, or "".
  const std::string &leftOut() const { return whyLeftOut; }

  /// Fills in the rest. False where the graph has too few places for the stages, or where tp, not
  /// being pinned, would split nothing. `refine`: looks for better stage cuts by pricing their
  /// neighbours. For any thread.
  bool score(Candidate &candidate, bool refine);
  /// Makes what scoring these will ask for, on all threads.
  void prepare(const std::vector<const Candidate *> &candidates);
  /// Whether pins say where stages begin: then no cut may be moved.
  bool cutsArePinned() const { return !pinned.begins.empty(); }
  RunningCounts &counts() { return counted; }
  /// Lets chunk `chunk` of a scored candidate begin with forward op `first`, which lies between the
  /// beginnings of its neighbours, and scores it again.
  void moveCut(Candidate &candidate, size_t chunk, int first);
  /// Makes a candidate that recomputes nothing, though it is open what, one of the next stronger
  /// mode, as yet in no block: for recomputeMore(). False if it is none.
  bool recomputeSome(Candidate &candidate) const;

  /// Recomputes as many blocks more as make up for what is missing, at least one, wherever
  /// `roomBytes` (by stage) is negative; for a candidate that recomputes in part. False where all
  /// is recomputed that can be.
  bool recomputeMore(Candidate &candidate, const std::vector<double> &roomBytes);

  /// Recomputes as many blocks fewer as have room for what they keep in `roomBytes` (by stage).
  /// False where that is none. As those before and after for any thread.
  bool recomputeLess(Candidate &candidate, const std::vector<double> &roomBytes);
  /// Puts the residuals of a block more on the host wherever `roomBytes` (by stage) is negative, of
  /// a candidate that has as few there as fit. False where all are.
  bool offloadMore(Candidate &candidate, const std::vector<double> &roomBytes) const;

  /// A tighter provenBound of `candidate`, and dearer; `limit` where it is no less than that: only
  /// plans that are faster matter. What was found for another limit before serves, if it says as
  /// much.
  double refinedBound(const Candidate &candidate, double limit);
  /// What refinedBound() would say, which it then need not work out. For any thread, though not
  /// beside refinedBound().
  double boundAhead(const Candidate &candidate, double limit);

  /// The number of graph blocks that may be recomputed or not.
  int64_t numBlocks() const { return int64_t(starts.size()); }

  /// The plan that `candidate` stands for, without predictions. For any thread.
  Plan planOf(const Candidate &candidate);
  /// Whether sequences split over `cp` ranks stand in zigzag order: where that is left open, where
  /// it spares work and can be.
  bool takesZigzag(int64_t cp) const;

  /// Why a schedule that was asked for does not go with some number of micro-batches, or "".
  const std::string &refusedSchedule() const { return whyNoSchedule; }
  /// Why every mesh of all devices that is open has a stage with devices of several types, if so.
  Status checkTypes() const;
  /// Why the candidate's form of context parallelism does not go with the model, or "".
  const std::string &refusedContext(const Candidate &candidate);

  /// `candidate`, which has no cp, with a part of one of its other axes on cp instead, in every
  /// form that the model and the pins allow. Only with one sample per micro-batch: larger ones are
  /// better split over data ranks, which says nothing between ops.
  std::vector<Candidate> withContext(const Candidate &candidate);

private:
  void measureGraph();
  const reshard::Graph &graphFor(int64_t microBatch);
  /// `hasExperts`: the experts lie on ep, and tp splits what is inside each.
  const Placement &placementFor(int64_t tp, int64_t microBatch, bool hasExperts);
  const std::vector<bool> &flagsFor(const std::string &recompute, int64_t microBatch);
  /// How ops are split on devices that hold one model: tp, ep, cp and, with cp, its form. On ep
  /// each has a micro-batch of its own.
  struct ModelSplit {
    int64_t tp, ep, cp;
    reshard::ContextForm form;
    bool operator<(const ModelSplit &o) const {
      return std::tie(tp, ep, cp, form) < std::tie(o.tp, o.ep, o.cp, o.form);
    }
  };
  static ModelSplit splitOf(const Candidate &candidate);
  static ModelSplit withoutContext(ModelSplit split);
  static reshard::Mesh meshOf(const ModelSplit &split);
  /// The strategies of all ops on meshOf(split); none where the form does not go with the model.
  const std::vector<reshard::OpStrategy> *strategiesFor(const ModelSplit &split,
                                                        int64_t microBatch);
  struct KnownStrategies {
    std::vector<reshard::OpStrategy> ofOps;
    std::string whyNot; // if there are none
  };
  const KnownStrategies &splitStrategies(const ModelSplit &split, int64_t microBatch);
  const ProfiledGraph &profiledGraphFor(int64_t microBatch, const std::string &recompute);
  /// On the devices of stage `stage` of the candidate: what is placed and kept is the same on all.
  const Profile &profileOf(const Candidate &candidate, const std::string &recompute, int stage = 0);
  const WholeWork &wholeWorkFor(int64_t samples);
  double idealSecondsOf(int64_t samples, int64_t devices, const std::vector<bool> *part);
  double idealSeconds(int64_t devices, int64_t samples);
  /// Of so many samples, forward and backward, under any placement over tp: the repeated block's
  /// own.
  double leastSeconds(int64_t tp, int64_t samples);
  /// Of a micro-batch on each rank along ep, with cp and ep, which split at best everything.
  double leastSeconds(const MeshShape &mesh, int64_t microBatch);
  // BatchSums.cpp
  /// What completing BatchSums over the data ranks takes in a micro-batch, of forward ops [0, i)
  /// and of their backward.
  struct BatchSumSeconds {
    std::vector<double> forward, backward;
    double total() const { return forward.back() + backward.back(); }
  };
  const BatchSumSeconds &batchSumSeconds(const MeshShape &shape);
  const BatchSumSeconds &batchSumSeconds(const MeshShape &shape, const NetworkCost &network,
                                         const StageKind &kind);
  // SearcherBound.cpp
  /// Of parameters; bytes are of all, of those that forward reads and that backward does, and of
  /// those that are trained.
  struct ParameterTotals {
    double bytes = 0, inForward = 0, forwardBytes = 0, inBackward = 0, backwardBytes = 0;
    double trained = 0, trainedBytes = 0, gradientBytes = 0, stateBytes = 0, updateBytes = 0;
  };
  /// Of those that every rank along ep holds, and of those of experts.
  const std::array<ParameterTotals, 2> &totals() const { return knownTotals; }
  std::array<ParameterTotals, 2>
  computeTotals(const std::function<bool(const reshard::GraphParameter &)> &isCounted) const;
  static double partsOf(const MeshShape &mesh, bool isExpert);
  double leastUpdateSeconds(const Candidate &candidate, const DataMode &mode);
  double reduceStepSeconds(const Candidate &candidate, const DataMode &mode);
  /// As of PipelineSchedule.
  static bool reducesInBackward(const Candidate &candidate) {
    return candidate.accumulation == 1 && candidate.mesh.pp == 1;
  }
  double transferSeconds(const Candidate &candidate, const DataMode &mode,
                         reshard::CollectiveKind kind, double ParameterTotals::*count,
                         double ParameterTotals::*bytes);
  double leastScalarSeconds(const MeshShape &shape);
  double expertSeconds(const MeshShape &shape, int64_t microBatch);
  // LeastMemory.cpp
  /// The sums over parameters that have a factor which tp divides, and over the others, which every
  /// device of a tp group holds whole.
  struct DividedTotals {
    std::array<ParameterTotals, 2> divided, whole;
  };
  const DividedTotals &dividedTotals(int64_t tp);
  double leastFixedBytes(const Candidate &candidate, const DataMode &mode);
  double leastBytes(const Candidate &candidate);
  void boundMemory(std::vector<Candidate> &candidates);
  bool isTooLarge(const Candidate &candidate);
  bool mayHoldStages(const MeshShape &mesh) const;
  bool mayDivide(int64_t tp) const;
  double mostSaved(double samples, double parts);
  double secondsWhateverIsKept(const MeshShape &mesh, int64_t microBatch);
  double idealWhateverIsKept(const MeshShape &mesh, int64_t microBatch);
  // RefinedBound.cpp
  double fixedBytes(const Candidate &candidate, const DataMode &mode, const ParameterTotals &of,
                    bool isExpert) const;
  double mostKeptBytes(const Candidate &candidate, const DataMode &mode, double limit);
  std::vector<BlockPart> blockPartsFor(const Candidate &candidate, const DataMode &mode);
  void addFixed(const Candidate &candidate, const DataMode &mode,
                const reshard::GraphParameter &parameter, int first,
                std::vector<BlockPart> &block) const;
  KeepBound &keepBoundFor(const MeshShape &mesh, int64_t microBatch);
  /// Forward ops, each with its backward: what they take if they divide over `parts` devices.
  struct Work {
    std::vector<WorkShare> byOp;
    std::vector<WorkShare> leastByOp; // as WorkShare::least
    WorkInOrder inOrder;
    std::optional<CutBound> cuts; // of leastByOp
    WorkShare total, least;       // of byOp, and of leastByOp
    double largest = 0;           // seconds of one op with its backward
  };
  const Work &workOf(int64_t parts, int64_t samples);
  Work computeWork(int64_t parts, int64_t samples);
  double placedBeyondBlocks(int64_t tp, int64_t samples);
  double computePlacedBeyondBlocks(int64_t tp, int64_t samples);
  const ChainMixture &mixtureFor(const Candidate &candidate, const WorkShare &total, bool isFine);
  /// What crosses a place where a stage may begin.
  struct Crossing {
    double bytesPerSample = 0, bytes = 0;
  };
  static std::vector<Crossing> leastCrossing(const reshard::Graph &graph);
  static std::vector<std::pair<Crossing, int64_t>> readAcrossCuts(const reshard::Graph &graph);
  int64_t numHops(const Candidate &candidate) const;
  double leastSendSeconds(const Candidate &candidate);
  std::vector<Candidate> contextVariants(const Candidate &candidate) const;
  double exposedSeconds(double transfer, double kernels) const;
  double exposedData(const Candidate &candidate, const DataMode &mode, const WorkShare &total,
                     double again);
  double passSeconds(const Candidate &candidate, const Work &known, double seconds);
  double scheduleSeconds(const Candidate &candidate, const Work &known, double more, double again,
                         double least, double limit);
  double computeRefinedBound(const Candidate &candidate, double limit);
  /// refinedBound() as if nothing were known. For any thread.
  double boundWithContexts(const Candidate &candidate, double limit);
  // SearcherStages.cpp
  /// The devices of the stages of one mesh.
  struct Stages {
    StageDevices devices;
    std::unique_ptr<StageNetworks> networks;
  };
  const Stages &stagesFor(const MeshShape &mesh);
  /// Whether the types of devices let the stages of `mesh` be.
  bool mayLie(const MeshShape &mesh) const;
  const Cluster &clusterOf(const Candidate &candidate, int stage);
  /// What a stage holds as a share of what it may, in bytes of the largest limit: `limitBytes`.
  double scaled(const Candidate &candidate, int stage, double bytes);
  bool fits(const Candidate &candidate, const Mix &mix, const DataMode &mode, int stage) {
    return stageBytes(candidate, mix, mode, stage) <= double(limitBytes);
  }
  /// `mix` and `mode`, which are those of stage 0, on another stage.
  Mix mixOn(const Candidate &candidate, const Mix &mix, int stage);
  DataMode modeOn(const Candidate &candidate, const DataMode &mode, int stage);
  static int cutBuckets(int64_t chunks);
  const StageCutter &cutterFor(const Candidate &candidate, const Profile &profile);
  double unlikeStagesBound(const Candidate &candidate);
  /// Of one on devices that are all as good as the best of a mixed cluster, for bounds.
  const NetworkCost &networkFor(const MeshShape &mesh);
  DataMode dataMode(const Candidate &candidate) {
    return dataMode(candidate, networkFor(candidate.mesh));
  }
  DataMode dataMode(const Candidate &candidate, const NetworkCost &network);
  /// As stage 0 has it.
  DataMode firstMode(const Candidate &candidate) {
    return dataMode(candidate, stagesFor(candidate.mesh).networks->of(0));
  }
  void price(Candidate &candidate, const Mix &mix, const DataMode &mode);
  void addHostCopies(const Candidate &candidate, const Mix &mix, const DataMode &mode, int index,
                     int last, StageSeconds &chunk);
  void refineCuts(Candidate &candidate, const Mix &mix, const DataMode &mode);
  // PartialRecompute.cpp
  /// Of what `candidate` recomputes and of the next weaker mode.
  Mix mixOf(const Candidate &candidate);
  /// Where the chunks of a schedule lie.
  struct KnownChunks {
    std::vector<int> stageOf;               // by chunk
    std::vector<std::vector<int>> chunksOf; // by stage
  };
  const KnownChunks &chunksFor(const Candidate &candidate) const;
  static KnownChunks computeChunks(const ScheduleChoice &choice, int64_t stages);
  const std::vector<int> &chunksOf(const Candidate &candidate, int stage) const {
    return chunksFor(candidate).chunksOf[size_t(stage)];
  }
  int endOf(const Candidate &candidate, int chunk) const;
  /// The first and the last but one of `starts` that lie in the chunk.
  std::pair<size_t, size_t> startsIn(const Candidate &candidate, int chunk) const;
  int64_t blocksOn(const Candidate &candidate, int stage) const;
  std::vector<std::pair<int, int>> endsOf(const Candidate &candidate, int stage,
                                          int64_t blocks) const;
  int64_t share(const Candidate &candidate, int stage, int64_t blocks) const;
  void setAgain(Candidate &candidate, int stage, int64_t blocks) const;
  void setAway(Candidate &candidate, int stage, int64_t blocks) const;
  /// Sets `away` to all blocks, to those that are pinned, or to the fewest that fit.
  void chooseAway(Candidate &candidate, const Mix &mix, const DataMode &mode);
  Offload offloadOf(const Candidate &candidate);
  /// Sets `again` to the fewest blocks per stage that fit, or to those that are pinned. False where
  /// no block recomputes.
  bool chooseAgain(Candidate &candidate, const Mix &mix, const DataMode &mode);
  std::vector<bool> flagsOf(const Candidate &candidate);
  std::string recomputeOf(const Candidate &candidate) const;
  double lossSeconds(const Candidate &candidate, const Profile &profile);
  bool mayRun(const Candidate &candidate);
  bool mayPlace(const Candidate &candidate);
  bool isPartial(const Candidate &candidate) const;
  void bound(Candidate &candidate);
  void boundAll(std::vector<Candidate> &candidates, const Deadline &deadline);
  void enumerateOn(int64_t devices, bool isPossibleOnly, const Pins &limits,
                   std::vector<Candidate> &candidates);
  /// Where stages may be cut: where pins say, else the places that a graph of this size offers.
  std::vector<int> cutPlaces(const Profile &profile, int64_t chunks) const;
  std::optional<std::vector<int>> cut(const Candidate &candidate, const Profile &profile,
                                      const DataMode &mode);
  /// A schedule with what its stages keep: run for so few micro-batches that no more are kept of
  /// any number.
  struct KnownSchedule {
    PipelineSchedule schedule;
    std::vector<schedule::Moments> moments; // by stage
  };
  const KnownSchedule &scheduleFor(const Candidate &candidate, int64_t accumulation);
  const std::vector<schedule::Moments> &momentsOf(const Candidate &candidate);
  double heldBytes(const Candidate &candidate, const Mix &mix, const DataMode &mode, int stage);
  /// The same, scaled().
  double stageBytes(const Candidate &candidate, const Mix &mix, const DataMode &mode, int stage) {
    return scaled(candidate, stage, heldBytes(candidate, mix, mode, stage));
  }

  const reshard::Graph &graph;
  const Job &job;
  const Cluster &cluster;
  const bool isMixed;
  const Space &space;
  int64_t limitBytes;
  PinnedOps pinned;

  Workers &workers;
  Repeat repeat;
  int numForward;          // ops
  std::vector<int> starts; // of graph blocks
  std::array<ParameterTotals, 2> knownTotals;
  SearchEnd enumerationEnd = SearchEnd::Complete;
  bool nothingFits = false;
  double leastOfAll = 0;
  std::string whyLeftOut;
  int64_t numPlaces = 0;                        // where a stage may begin
  std::vector<int64_t> loopSizes;               // that tp may divide, each once
  double mostBytesPerSample = 0;                // of one value
  double mostResultPerSample = 0;               // of one matrix product in forward, bytes
  OnceMap<int64_t, DividedTotals> knownDivided; // by tp

  OnceMap<int64_t, reshard::Graph> graphs;
  OnceMap<int64_t, WholeWork> wholeWorks;
  OnceMap<std::tuple<int64_t, int64_t, bool>, Placement> placements;
  OnceMap<std::pair<int64_t, std::string>, std::vector<bool>> flags;
  OnceMap<std::pair<int64_t, std::string>, ProfiledGraph> profiledGraphs;
  OnceMap<std::pair<ModelSplit, int64_t>, KnownStrategies> strategies;
  OnceMap<std::tuple<ModelSplit, int64_t, std::string, StageKind>, Profile> profiles;
  mutable OnceMap<std::tuple<int, bool, int64_t>, KnownChunks> knownChunks;
  OnceMap<std::pair<int64_t, int64_t>, double> ideals, leasts;
  Once<std::vector<BatchSum>> sumsOverBatch;
  OnceMap<std::pair<std::array<int64_t, 6>, StageKind>, BatchSumSeconds> knownBatchSums;
  OnceMap<std::array<int64_t, 6>, std::unique_ptr<NetworkCost>> networks;
  OnceMap<std::array<int64_t, 6>, std::unique_ptr<Stages>> stages;
  /// By profile, number of chunks, whether they are on several nodes, and on unlike devices by
  /// ranks of a stage, chunks of a stage and whether those go there and back.
  OnceMap<std::tuple<const Profile *, int64_t, bool, std::array<int64_t, 3>>,
          std::unique_ptr<StageCutter>>
      cutters;
  OnceMap<std::array<int64_t, 4>, double> unlikeStages;
  OnceMap<std::tuple<std::string, int, bool, int64_t, int64_t>, KnownSchedule> knownSchedules;
  Once<MostSaved> saving;
  OnceMap<std::pair<int64_t, int64_t>, std::unique_ptr<KeepBound>> keepBounds;
  OnceMap<std::pair<int64_t, int64_t>, Work> works;
  OnceMap<std::pair<int64_t, int64_t>, double> beyondBlocks, expertExchanges;
  Once<std::vector<Crossing>> crossing;
  Once<std::vector<std::pair<Crossing, int64_t>>> readAcross;
  /// Of schedules, for work of some proportions.
  OnceMap<std::tuple<std::string, int, bool, int64_t, int64_t, std::array<int, 3>, bool>,
          ChainMixture>
      mixtures;

  /// All that a refined bound depends on but its limit.
  using BoundKey =
      std::tuple<std::array<int64_t, 6>, int64_t, int64_t, int, bool, std::string, int, bool>;
  static BoundKey boundKeyOf(const Candidate &candidate);
  struct RefinedBound {
    double seconds = 0, limit = 0;
    /// Whether more may be found for `limit`.
    bool isTooLow(double newLimit) const { return seconds >= limit && limit < newLimit; }
  };
  std::map<BoundKey, RefinedBound> refinedBounds;              // as asked for, one after the other
  OnceMap<std::pair<BoundKey, double>, double> preparedBounds; // by limit
  std::string whyNoSchedule; // the first pipeline that was left out
  RunningCounts counted;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_SEARCHER_H
