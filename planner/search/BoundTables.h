//===- BoundTables.h - Results shared by the bounds of candidates ---------===//

#ifndef TBC_PLANNER_SEARCH_BOUNDTABLES_H
#define TBC_PLANNER_SEARCH_BOUNDTABLES_H

#include "planner/bound/DividedWork.h"
#include "planner/bound/KeepBound.h"
#include "planner/bound/SendBound.h"
#include "planner/bound/ShortestCut.h"
#include "planner/search/CostTables.h"
#include "planner/search/ParameterTotals.h"
#include "planner/search/ReaderBytes.h"

#include <array>
#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>

namespace tbc::planner {

/// Sends of a micro-batch over the cuts of a model.
struct CutSeconds {
  SendSeconds sends;  // by forward op; without `least`
  double typical = 0; // the median of a send
  /// By number of cuts: the seconds of a send each way over the cheapest of them.
  std::vector<double> cheapest;
};

/// Memo tables of the bounds. A value depends only on its key and on the problem, and most hold
/// for many candidates: bounds do not see ZeRO, cuts or recomputation in them. Thread-safe.
/// `devices` is the number of devices of a model replica's stage, tp * cp * ep; `samples` the
/// samples of a micro-batch on them, microBatch * ep.
class BoundTables {
public:
  explicit BoundTables(const CostTables &costs);

  const CostTables &costs;
  const TotalsByKind totals; // of all parameters
  const EndTensors ends;

  /// Returns dividedTotals() of all parameters.
  const DividedTotals &totalsDividedBy(int64_t tp) const;
  /// Returns parameterReaders() of the graph.
  const std::vector<ParameterReaders> &readersDividedBy(int64_t tp) const;
  /// Returns the unsplit work of the graph with `samples` samples.
  const WholeWork &wholeWorkFor(int64_t samples) const;
  /// Returns the kernel seconds of a micro-batch, forward and backward, each kernel divided evenly:
  /// a lower bound on every strategy without recomputation.
  double idealSeconds(int64_t devices, int64_t samples) const;
  /// Returns a lower bound on the seconds of a micro-batch on `tp` devices with their collectives
  /// between ops: idealSeconds(), plus for each repeated block the excess of placementBound() of
  /// the block over its even division. Blocks are disjoint, so their bounds add up. Example: 12
  /// blocks of 1 ms, placed at least 1.2 ms each, and 3 ms outside: 3 + 12 * 1.2 = 17.4 ms.
  double leastSeconds(int64_t tp, int64_t samples) const;
  /// Returns a lower bound on the seconds of the ops outside of repeated blocks over tp, beyond
  /// their evenly divided kernels. 0 for more than 4000 such ops, because it is expensive.
  double beyondBlocks(int64_t tp, int64_t samples) const;
  /// Returns the work of a micro-batch by op, divided evenly.
  const DividedWork &workFor(int64_t devices, int64_t samples) const;
  /// Returns the largest saving by recomputation in a micro-batch of `samples` divided over
  /// `parts`.
  double mostSaved(double samples, double parts) const;
  const KeepBound &keepBoundFor(int64_t devices, int64_t samples) const;
  /// Returns the least seconds of exchanges with the experts along ep, of a micro-batch on each
  /// rank. It counts only values needed with any recomputation: forward values within forward, and
  /// cotangents. 0 with cp.
  ///
  /// Theorem: without tp the split of ops over ep is fixed, so these are the exchanges of every
  /// plan. With tp, an exchange of b bytes takes at least min(t(ep, b / tp), t(ep and tp, b)),
  /// where t are the seconds of its kind over these axes (of an all_reduce, if that is faster than
  /// a reduce_scatter).
  ///
  /// Proof sketch: experts need the tokens of all ep ranks, and give sums of them back. With tp, a
  /// rank may have its share of a token only, and the exchange may be one collective with that over
  /// tp. Bytes grow with the samples.
  ///
  /// Example: tokens of 58.7 MB per sample gathered over ep=64 make 3.76 GB; with tp=2 at least
  /// 1.88 GB over ep, or 3.76 GB over both.
  double expertSeconds(const MeshShape &mesh, int64_t microBatch) const;
  const std::vector<SampledBytes> &firstSendsFor(int64_t others) const;
  /// Returns cutSends() in seconds, on the fastest link between neighbouring stages.
  const CutSeconds &cutSecondsFor(const Candidate &candidate) const;
  /// Returns sentValues() of the graph.
  const std::vector<SentValue> &sentValuesOfGraph() const;
  /// Returns leastPassSends() of the candidate; 0 if the graph has many places to cut. `least`: of
  /// every send.
  double passSendSeconds(const Candidate &candidate, double least) const;
  /// Returns a lower bound on the kernels of all updates on whole matrices
  /// (planner::matrixSeconds), if `devices` share a parameter and its state. `isExpert`: index into
  /// TotalsByKind.
  ///
  /// Theorem: each device with a part of a parameter updates the whole matrix, or of a stack of
  /// matrices at least its share (reshard::matrixSharding).
  ///
  /// Example: 3 ms for a matrix and 8 ms for a stack of 16 matrices, on 4 devices: 3 + 8 / 4 ms.
  double matrixSeconds(bool isExpert, int64_t devices) const;
  /// Returns slowestStageSeconds() of a micro-batch on the stages of `mesh`; 0 if all stages have
  /// one type of device.
  double heterogeneousSeconds(const MeshShape &mesh, int64_t microBatch) const;
  /// Returns a mixture of chains of the candidate's schedule, for work with roughly the proportions
  /// of `total` and of a send, so many candidates share one.
  const ChainMixture &mixtureFor(const Candidate &candidate, const WorkShare &total,
                                 double sendSeconds, bool isFine) const;

private:
  const std::vector<KernelShare> &sharesFor(int64_t samples) const;
  double computeLeastSeconds(int64_t tp, int64_t samples) const;
  double computeBeyondBlocks(int64_t tp, int64_t samples) const;
  /// An exchange along ep, for one sample on each rank.
  struct Exchange {
    reshard::CollectiveKind kind;
    double bytes = 0; // reshard::Collective::bytes
    bool hasBatch = true;
    double count = 0;
  };
  std::vector<Exchange> exchangesOver(int64_t ep) const;
  double computeExpertSeconds(int64_t ep, int64_t tp, int64_t microBatch) const;
  double computeHeterogeneous(const MeshShape &mesh, int64_t microBatch) const;

  const SearchProblem &problem;
  template <typename Value> using ByDevicesAndSamples = OnceMap<std::pair<int64_t, int64_t>, Value>;
  mutable OnceMap<int64_t, DividedTotals> divided;                 // by tp
  mutable OnceMap<int64_t, std::vector<ParameterReaders>> readers; // by tp
  mutable OnceMap<int64_t, WholeWork> wholeWorks;                  // by samples
  mutable ByDevicesAndSamples<double> ideals, leasts, beyonds;
  mutable OnceMap<int64_t, std::vector<Exchange>> exchanges;       // by ep
  mutable OnceMap<std::array<int64_t, 3>, double> exchangeSeconds; // by ep, tp, samples
  mutable ByDevicesAndSamples<DividedWork> works;
  mutable ByDevicesAndSamples<std::unique_ptr<KeepBound>> keepBounds;
  mutable Once<MostSaved> saving;
  mutable OnceMap<std::pair<bool, int64_t>, double> matrices;
  mutable OnceMap<std::tuple<std::array<int64_t, 4>, int, bool>, double> passSends;
  CutSeconds computeCutSeconds(const MeshShape &mesh, int64_t microBatch) const;
  mutable OnceMap<int64_t, std::vector<SampledBytes>> sends; // by other chunks
  mutable Once<std::vector<SentValue>> sent;
  mutable Once<CutSends> sendsOverCuts;
  mutable OnceMap<std::array<int64_t, 4>, CutSeconds> secondsOverCuts;
  mutable OnceMap<std::array<int64_t, 4>, double> heterogeneous;
  /// By schedule and by proportions of the work.
  mutable OnceMap<
      std::tuple<ScheduleKind, int, bool, int64_t, int64_t, std::array<int, 3>, int, bool>,
      ChainMixture>
      mixtures;
};

/// Returns the seconds of sentValues(), on the fastest link between neighbouring stages. `least`:
/// of all sends.
PieceSends pieceSends(const BoundTables &tables, const Candidate &candidate, double least);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_BOUNDTABLES_H
