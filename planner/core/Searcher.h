//===- Searcher.h - Scoring of candidates, with what they share kept -------===//

#ifndef TBC_PLANNER_CORE_SEARCHER_H
#define TBC_PLANNER_CORE_SEARCHER_H

#include "planner/core/Fold.h"
#include "planner/core/KeepBound.h"
#include "planner/core/OpPins.h"
#include "planner/core/Partition.h"
#include "planner/core/Pins.h"
#include "planner/core/PipelineBound.h"
#include "planner/core/Profile.h"
#include "planner/core/Search.h"

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

/// Scores candidates of one job in closed form.
class Searcher {
public:
  Searcher(const reshard::Graph &graph, const Job &job, const Cluster &cluster, const Space &space,
           int64_t limitBytes, PinnedOps pinned = {});

  /// Every candidate with its lower bound, cheapest bound first, ties in order of enumeration.
  std::vector<Candidate> enumerate();

  /// Fills in the rest. False where the graph has too few places for the stages, or tp, not being
  /// pinned, would split nothing. `refine`: looks
  /// for better stage cuts by pricing their neighbours.
  bool score(Candidate &candidate, bool refine);

  /// Recomputes one block more on each of `stages` (by stage) of a candidate that recomputes in
  /// part. False where that is all it can.
  bool recomputeMore(Candidate &candidate, const std::vector<bool> &stages) const;

  /// Recomputes fewer blocks, by what their results take of `roomBytes` (by stage), but one fewer
  /// at least wherever there is one. False where none recomputes.
  bool recomputeLess(Candidate &candidate, const std::vector<double> &roomBytes);

  /// A tighter provenBound of `candidate`, and dearer. Infinite where nothing fits.
  double refinedBound(const Candidate &candidate);
  /// The same of blocks whose residuals are on the host, where as few are as fit.
  bool offloadMore(Candidate &candidate, const std::vector<bool> &stages) const;

  /// The number of graph blocks that may be recomputed or not.
  int64_t numBlocks() const { return int64_t(starts.size()); }

  /// The plan that `candidate` stands for, without predictions.
  Plan planOf(const Candidate &candidate);

  int64_t evaluations = 0; // candidates scored
  /// Why a schedule that was asked for does not go with some number of micro-batches, or "".
  const std::string &refusedSchedule() const { return whyNoSchedule; }
  /// Why a form of context parallelism does not go with the model, or "".
  const std::string &refusedContext() const { return whyNotContext; }

  /// `candidate`, which has no cp, with a part of one of its other axes on cp instead, in every
  /// form that the model and the pins allow. Only with one sample per micro-batch: larger ones are
  /// better split over data ranks, which says nothing between ops.
  std::vector<Candidate> withContext(const Candidate &candidate);

private:
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
  const ProfiledGraph &profiledGraphFor(int64_t microBatch, const std::string &recompute);
  const Profile &profileFor(const ModelSplit &split, int64_t microBatch,
                            const std::string &recompute);
  double idealSecondsOf(const reshard::Graph &batched, int64_t devices,
                        const std::vector<bool> *part) const;
  double idealSeconds(int64_t devices, int64_t samples);
  /// Of so many samples, forward and backward, under any placement over tp: the repeated block's
  /// own.
  double leastSeconds(int64_t tp, int64_t samples);
  /// Of a micro-batch on each rank along ep, with cp and ep, which split at best everything.
  double leastSeconds(const MeshShape &mesh, int64_t microBatch);
  // SearcherBound.cpp
  /// Of all parameters.
  struct Totals {
    int64_t trained = -1;                                  // not known yet
    double bytes = 0, forwardBytes = 0, backwardBytes = 0; // all, used by forward, by backward
    double trainedBytes = 0, gradientBytes = 0, stateBytes = 0, updateBytes = 0;
  };
  const Totals &totals();
  double dividedSeconds(const reshard::Graph &batched, int op, int64_t devices) const;
  double leastUpdateSeconds(const Candidate &candidate, const DataMode &mode);
  double transferSeconds(const Candidate &candidate, const DataMode &mode,
                         reshard::CollectiveKind kind, double bytes);
  double mostSaved(double samples, double parts);
  double secondsWhateverIsKept(const MeshShape &mesh, int64_t microBatch);
  double idealWhateverIsKept(const MeshShape &mesh, int64_t microBatch);
  bool mayBeContext(const Candidate &candidate) const;
  double mostKeptBytes(const Candidate &candidate, const DataMode &mode);
  KeepBound &keepBoundFor(const MeshShape &mesh, int64_t microBatch);
  /// Forward ops, each with its backward: what they take if they divide over `parts` devices.
  struct Work {
    std::vector<WorkShare> shares; // of ops that take the same together
    WorkShare total;
    double largest = 0; // seconds of one op with its backward
  };
  const Work &workOf(int64_t parts, int64_t samples);
  double computeRefinedBound(const Candidate &candidate);
  const ChainMixture &mixtureFor(const Candidate &candidate, const WorkShare &total);
  const NetworkCost &networkFor(const MeshShape &mesh);
  DataMode dataMode(const Candidate &candidate);
  void price(Candidate &candidate, const Mix &mix, const DataMode &mode);
  void addHostCopies(const Candidate &candidate, const Mix &mix, const DataMode &mode, int index,
                     int last, StageSeconds &chunk) const;
  void refineCuts(Candidate &candidate, const Mix &mix, const DataMode &mode);
  // PartialRecompute.cpp
  std::vector<int> chunksOf(const Candidate &candidate, int stage) const;
  int endOf(const Candidate &candidate, int chunk) const;
  std::vector<int> startsIn(const Candidate &candidate, int chunk) const;
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
  void bound(Candidate &candidate);
  void enumerateOn(int64_t devices, std::vector<Candidate> &candidates);
  std::optional<std::vector<int>> cut(const Candidate &candidate, const Profile &profile,
                                      const DataMode &mode);
  /// A schedule with what its stages keep: run for so few micro-batches that no more are kept of
  /// any number.
  struct KnownSchedule {
    PipelineSchedule schedule;
    std::vector<std::vector<schedule::InFlight>> inFlight; // by stage and chunk of it
  };
  const KnownSchedule &scheduleFor(const Candidate &candidate, int64_t accumulation);
  const std::vector<std::vector<schedule::InFlight>> &inFlightOf(const Candidate &candidate);
  double stageBytes(const Candidate &candidate, const Mix &mix, const DataMode &mode, int stage);

  const reshard::Graph &graph;
  const Job &job;
  const Cluster &cluster;
  const Space &space;
  int64_t limitBytes;
  PinnedOps pinned;

  std::map<int64_t, reshard::Graph> graphs;
  std::map<std::tuple<int64_t, int64_t, bool>, Placement> placements;
  std::map<std::pair<int64_t, std::string>, std::vector<bool>> flags;
  std::map<std::pair<int64_t, std::string>, ProfiledGraph> profiledGraphs;
  std::map<std::pair<ModelSplit, int64_t>, std::vector<reshard::OpStrategy>> strategies;
  std::map<std::tuple<ModelSplit, int64_t, std::string>, Profile> profiles;
  Repeat repeat;
  std::vector<int> starts; // of graph blocks
  std::map<std::pair<int64_t, int64_t>, double> ideals, leasts;
  std::map<std::array<int64_t, 6>, std::unique_ptr<NetworkCost>> networks;
  std::map<std::tuple<const Profile *, int64_t, bool>, std::unique_ptr<StageCutter>> cutters;
  std::map<std::tuple<std::string, int, bool, int64_t, int64_t>, KnownSchedule> knownSchedules;
  Totals knownTotals;
  std::optional<MostSaved> saving;
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<KeepBound>> keepBounds;
  std::map<std::pair<int64_t, int64_t>, Work> works;
  std::map<std::tuple<std::array<int64_t, 6>, int64_t, int64_t, int, bool, std::string, int, bool>,
           double>
      refinedBounds;
  std::map<std::tuple<std::string, int, bool, int64_t, int64_t>, std::unique_ptr<ChainMixture>>
      mixtures;
  std::string whyNotContext;
  std::string whyNoSchedule; // the first pipeline that was left out
};

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_SEARCHER_H
