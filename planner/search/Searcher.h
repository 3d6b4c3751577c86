//===- Searcher.h - Scoring of candidates, with shared results ------------===//

#ifndef TBC_PLANNER_SEARCH_SEARCHER_H
#define TBC_PLANNER_SEARCH_SEARCHER_H

#include "planner/bound/CutBound.h"
#include "planner/bound/KeepBound.h"
#include "planner/bound/PipelineBound.h"
#include "planner/bound/PipelineRoom.h"
#include "planner/bound/WholeWork.h"
#include "planner/pins/Space.h"
#include "planner/search/Candidate.h"
#include "planner/search/CostTables.h"
#include "planner/search/Partition.h"
#include "planner/search/SearchCounts.h"
#include "planner/support/OnceMap.h"
#include "planner/support/Workers.h"

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace tbc::planner {

/// Returns a lower bound on the fullest device of any plan of the job: all parameter-related bytes
/// divided over all devices, plus context and margin. Example: 16 bytes for each of 8.03e9
/// parameters on 8 devices are 15 GiB each.
double leastBytesAnywhere(const reshard::Graph &graph, const Job &job, const Cluster &cluster,
                          bool offloadsStates);

/// Scores candidates of one job in closed form. Functions marked thread-safe may be called
/// concurrently.
class Searcher {
  RunningCounts counted;

public:
  const SearchProblem problem;
  const CostTables costs;

  Searcher(const reshard::Graph &graph, const Job &job, const Cluster &cluster, const Space &space,
           int64_t limitBytes, PinnedOps pinned, Workers &workers);

  /// Returns every candidate with its lower bound, cheapest bound first, ties in order of
  /// enumeration. The budget and the deadline of `limits` may end it early (end()). If every
  /// candidate's `leastBytes` is over the limit, they have no bounds and are ordered by
  /// `leastBytes`.
  std::vector<Candidate> enumerate(const Pins &limits);
  /// Whether enumerate() ended early, and the reason.
  SearchEnd end() const { return enumerationEnd; }
  /// Whether no plan fits: neither a listed candidate nor any other allowed by the pins.
  bool provesNothingFits() const { return nothingFits; }
  /// Lower bound on the fullest device of any plan.
  double leastBytesOfAll() const { return leastOfAll; }
  /// Whether the candidate's bound must also hold for unlisted meshes with cp. Such a mesh takes a
  /// factor of tp or of the data axes for cp, and no other candidate covers it. Larger
  /// micro-batches are better split over data ranks.
  bool mayBeContext(const Candidate &candidate) const;
  /// Whether memory rules out `candidate`.
  bool isHopeless(const Candidate &candidate) const {
    return candidate.leastBytes > double(limitBytes);
  }
  /// Lower bound on any plan of the job on this many devices: its matmuls at the peak rate.
  double peakRateSeconds() const;
  /// The reason for omitted candidates with too large numbers, or "".
  const std::string &leftOut() const { return whyLeftOut; }

  /// Scores `candidate`. Returns false if the graph has too few positions for the stages, or if an
  /// unpinned tp would split nothing. `refine`: improves stage cuts by pricing neighbouring cuts.
  /// Thread-safe.
  bool score(Candidate &candidate, bool refine);
  /// Whether pins fix the beginnings of stages, so cuts may not move.
  bool cutsArePinned() const { return !problem.pinned.begins.empty(); }
  RunningCounts &counts() { return counted; }
  /// Moves the beginning of chunk `chunk` of a scored candidate to forward op `first`, between its
  /// neighbours' beginnings, and scores it again.
  void moveCut(Candidate &candidate, size_t chunk, int first);
  /// If the candidate recomputes nothing and recomputation is open, gives it the next stronger
  /// mode, at first for no block: the start for recomputeMore(). Returns false otherwise.
  bool recomputeSome(Candidate &candidate) const;

  /// For a partially recomputing candidate: recomputes enough further blocks, at least one, on each
  /// stage with negative `roomBytes` (its headroom). Returns false if no further block can be
  /// recomputed.
  bool recomputeMore(Candidate &candidate, const std::vector<double> &roomBytes);

  /// Recomputes fewer blocks, as many as their kept values fit in the headroom `roomBytes` (by
  /// stage). Returns false if there is no such block. Thread-safe, like the functions around it.
  bool recomputeLess(Candidate &candidate, const std::vector<double> &roomBytes);
  /// Offloads the residuals of one more block on each stage with negative headroom `roomBytes`, for
  /// a candidate that offloads as few as fit. Returns false if all are offloaded.
  bool offloadMore(Candidate &candidate, const std::vector<double> &roomBytes) const;

  /// Returns a tighter and more expensive provenBound of `candidate`, or `limit` if the bound
  /// reaches it, because only faster plans matter. Reuses the result for an earlier limit if it is
  /// as strong.
  double refinedBound(const Candidate &candidate, double limit);
  /// Computes the result of refinedBound() ahead. Thread-safe, but not concurrently with
  /// refinedBound().
  double boundAhead(const Candidate &candidate, double limit);

  /// Returns the plan of `candidate`, without predictions. Thread-safe.
  Plan planOf(const Candidate &candidate);

  /// The reason why a requested schedule does not allow some number of micro-batches, or "".
  const std::string &refusedSchedule() const { return whyNoSchedule; }
  /// An error if every open mesh of all devices has a stage with devices of several types.
  Status checkTypes() const;
  /// Returns variants of `candidate`, which has no cp, with a factor of another axis moved to cp,
  /// in every form allowed by the model and the pins. Only with one sample per micro-batch: larger
  /// ones are better split over data ranks, which need no communication between ops.
  std::vector<Candidate> withContext(const Candidate &candidate);

private:
  void measureGraph();
  const WholeWork &wholeWorkFor(int64_t samples);
  double idealSecondsOf(int64_t samples, int64_t devices, const std::vector<bool> *part);
  double idealSeconds(int64_t devices, int64_t samples);
  /// Lower bound on the seconds of forward and backward of `samples` samples, for any placement
  /// over tp, from the repeated block's own bound.
  double leastSeconds(int64_t tp, int64_t samples);
  /// The same for a micro-batch on each rank along ep, if cp and ep split everything perfectly.
  double leastSeconds(const MeshShape &mesh, int64_t microBatch);
  // SearcherBound.cpp
  /// Sums over parameters: bytes of all, of those read in forward, of those read in backward, and
  /// of those trained.
  struct ParameterTotals {
    double bytes = 0, inForward = 0, forwardBytes = 0, inBackward = 0, backwardBytes = 0;
    double trained = 0, trainedBytes = 0, gradientBytes = 0, stateBytes = 0, updateBytes = 0;
  };
  /// Totals of parameters whole on every rank along ep, and of experts' parameters.
  const std::array<ParameterTotals, 2> &totals() const { return knownTotals; }
  std::array<ParameterTotals, 2>
  computeTotals(const std::function<bool(const reshard::GraphParameter &)> &isCounted) const;
  static double partsOf(const MeshShape &mesh, bool isExpert);
  double leastUpdateSeconds(const Candidate &candidate, const DataMode &mode);
  double reduceStepSeconds(const Candidate &candidate, const DataMode &mode);
  /// As in PipelineSchedule.
  static bool reducesInBackward(const Candidate &candidate) {
    return candidate.accumulation == 1 && candidate.mesh.pp == 1;
  }
  double transferSeconds(const Candidate &candidate, const DataMode &mode,
                         reshard::CollectiveKind kind, double ParameterTotals::*count,
                         double ParameterTotals::*bytes);
  double leastScalarSeconds(const MeshShape &shape);
  double expertSeconds(const MeshShape &shape, int64_t microBatch);
  // LeastMemory.cpp
  /// Totals of parameters with a factor divided by tp, and of the others, which are whole on every
  /// device of a tp group.
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
  /// Seconds of forward ops, each with its backward, divided over `parts` devices.
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
  /// Bytes across a position where a stage may begin.
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
  /// Computes refinedBound() without cached results. Thread-safe.
  double boundWithContexts(const Candidate &candidate, double limit);
  // SearcherStages.cpp
  /// Whether the stages of `mesh` have devices of one type each.
  bool mayLie(const MeshShape &mesh) const;
  /// Returns the bytes of a stage, scaled from its own limit to the largest limit, `limitBytes`.
  double scaled(const Candidate &candidate, int stage, double bytes);
  bool fits(const Candidate &candidate, const Mix &mix, const DataMode &mode, int stage) {
    return stageBytes(candidate, mix, mode, stage) <= double(limitBytes);
  }
  static int cutBuckets(int64_t chunks);
  const StageCutter &cutterFor(const Candidate &candidate, const Profile &profile);
  double unlikeStagesBound(const Candidate &candidate);
  void price(Candidate &candidate, const Mix &mix, const DataMode &mode);
  void addHostCopies(const Candidate &candidate, const Mix &mix, const DataMode &mode, int index,
                     int last, StageSeconds &chunk);
  void refineCuts(Candidate &candidate, const Mix &mix, const DataMode &mode);
  // PartialRecompute.cpp
  int endOf(const Candidate &candidate, int chunk) const;
  /// The first and the past-the-end index of the `starts` in the chunk.
  std::pair<size_t, size_t> startsIn(const Candidate &candidate, int chunk) const;
  int64_t blocksOn(const Candidate &candidate, int stage) const;
  std::vector<std::pair<int, int>> endsOf(const Candidate &candidate, int stage,
                                          int64_t blocks) const;
  int64_t share(const Candidate &candidate, int stage, int64_t blocks) const;
  void setAgain(Candidate &candidate, int stage, int64_t blocks) const;
  void setAway(Candidate &candidate, int stage, int64_t blocks) const;
  /// Sets `away` to all blocks, to the pinned number, or to the fewest that fit.
  void chooseAway(Candidate &candidate, const Mix &mix, const DataMode &mode);
  Offload offloadOf(const Candidate &candidate);
  /// Sets `again` to the fewest blocks per stage that fit, or to the pinned number. Returns false
  /// if no block recomputes.
  bool chooseAgain(Candidate &candidate, const Mix &mix, const DataMode &mode);
  std::vector<bool> flagsOf(const Candidate &candidate);
  Recompute recomputeOf(const Candidate &candidate) const;
  double lossSeconds(const Candidate &candidate, const Profile &profile);
  bool mayRun(const Candidate &candidate);
  void bound(Candidate &candidate);
  void boundAll(std::vector<Candidate> &candidates, const Deadline &deadline);
  void enumerateOn(int64_t devices, bool isPossibleOnly, const Pins &limits,
                   std::vector<Candidate> &candidates);
  /// Returns the possible stage cuts: the pinned ones, else positions suited to the size of the
  /// graph.
  std::vector<int> cutPlaces(const Profile &profile, int64_t chunks) const;
  std::optional<std::vector<int>> cut(const Candidate &candidate, const Profile &profile,
                                      const DataMode &mode);
  double heldBytes(const Candidate &candidate, const Mix &mix, const DataMode &mode, int stage);
  /// The same, scaled().
  double stageBytes(const Candidate &candidate, const Mix &mix, const DataMode &mode, int stage) {
    return scaled(candidate, stage, heldBytes(candidate, mix, mode, stage));
  }

  const reshard::Graph &graph;
  const Job &job;
  const Cluster &cluster;
  const Space &space;
  const int64_t limitBytes;
  Workers &workers;
  std::array<ParameterTotals, 2> knownTotals;
  SearchEnd enumerationEnd = SearchEnd::Complete;
  bool nothingFits = false;
  double leastOfAll = 0;
  std::string whyLeftOut;
  int64_t numPlaces = 0;                        // positions where a stage may begin
  std::vector<int64_t> loopSizes;               // possibly divided by tp, each once
  double mostBytesPerSample = 0;                // of one value
  double mostResultPerSample = 0;               // bytes of one matmul in forward
  OnceMap<int64_t, DividedTotals> knownDivided; // by tp

  OnceMap<int64_t, WholeWork> wholeWorks;
  OnceMap<std::pair<int64_t, int64_t>, double> ideals, leasts;
  /// By profile, number of chunks and whether they span several nodes. For heterogeneous devices
  /// also by ranks of a stage, chunks of a stage and whether these are V-shaped.
  OnceMap<std::tuple<const Profile *, int64_t, bool, std::array<int64_t, 3>>,
          std::unique_ptr<StageCutter>>
      cutters;
  OnceMap<std::array<int64_t, 4>, double> unlikeStages;
  Once<MostSaved> saving;
  OnceMap<std::pair<int64_t, int64_t>, std::unique_ptr<KeepBound>> keepBounds;
  OnceMap<std::pair<int64_t, int64_t>, Work> works;
  OnceMap<std::pair<int64_t, int64_t>, double> beyondBlocks, expertExchanges;
  Once<std::vector<Crossing>> crossing;
  Once<std::vector<std::pair<Crossing, int64_t>>> readAcross;
  /// Mixtures by schedule and by proportions of the work.
  OnceMap<std::tuple<ScheduleKind, int, bool, int64_t, int64_t, std::array<int, 3>, bool>,
          ChainMixture>
      mixtures;

  /// All inputs of a refined bound except its limit.
  using BoundKey =
      std::tuple<std::array<int64_t, 6>, int64_t, int64_t, int, bool, ScheduleKind, int, bool>;
  static BoundKey boundKeyOf(const Candidate &candidate);
  struct RefinedBound {
    double seconds = 0, limit = 0;
    /// Whether a larger `limit` may give a better bound.
    bool isTooLow(double newLimit) const { return seconds >= limit && limit < newLimit; }
  };
  std::map<BoundKey, RefinedBound> refinedBounds;              // requested one after another
  OnceMap<std::pair<BoundKey, double>, double> preparedBounds; // by limit
  std::string whyNoSchedule;                                   // for the first omitted pipeline
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_SEARCHER_H
