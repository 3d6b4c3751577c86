//===- ReaderBytes.h - Bytes of parameters while an op reads them ----------===//

#ifndef TBC_PLANNER_SEARCH_READERBYTES_H
#define TBC_PLANNER_SEARCH_READERBYTES_H

#include "planner/search/ParameterTotals.h"

#include <array>
#include <cstdint>
#include <vector>

namespace tbc::planner {

/// Bytes of whole tensors, [0] of parameters whole on every rank along ep and [1] of parameters of
/// experts: `divided` with a factor divisible by tp, `whole` without one.
struct TensorBytes {
  std::array<double, 2> divided{}, whole{};
  bool operator==(const TensorBytes &o) const { return divided == o.divided && whole == o.whole; }
  bool operator<(const TensorBytes &o) const {
    return divided != o.divided ? divided < o.divided : whole < o.whole;
  }
};

/// Forward ops of equal structure that read parameters, each with its backward ops.
struct ParameterReaders {
  int64_t count = 0;    // forward ops
  DividedTotals totals; // of the parameters that one of them is the first to read
  /// By op, forward or backward: the parameters that it reads and the gradients that it completes
  /// for a micro-batch.
  struct Use {
    TensorBytes parameters, gradients;
    /// Bytes per sample of its largest operand and its results over the batch: [1] of those that
    /// experts have of the samples of all ep ranks.
    std::array<double, 2> perSample{};
    /// Of the ep ranks of which experts have samples, at most; 0: all.
    int64_t mostRanks = 0;
    bool operator==(const Use &o) const {
      return parameters == o.parameters && gradients == o.gradients && perSample == o.perSample &&
             mostRanks == o.mostRanks;
    }
    bool operator<(const Use &o) const {
      return !(parameters == o.parameters) ? parameters < o.parameters
             : !(gradients == o.gradients) ? gradients < o.gradients
             : perSample != o.perSample    ? perSample < o.perSample
                                           : mostRanks < o.mostRanks;
    }
  };
  std::vector<Use> uses;
};

/// Returns the readers of all parameters, grouped by `hashes` (structuralHashes of `graph`) and by
/// their uses.
/// `exchangesTokens`: as reshard::Assignment.
std::vector<ParameterReaders> parameterReaders(const reshard::Graph &graph, const Job &job,
                                               const std::vector<uint64_t> &hashes, int64_t tp,
                                               bool exchangesTokens = false);

/// Returns a lower bound in bytes on parameters and all data related to them, on the fullest device
/// of a candidate on `mesh`, from `readers`.
///
/// Theorem: bytes >= F / min(pp, n) + W. n: the number of these ops. F: leastParameterBytes() of
/// the parameters that they read, all stages together. W: the largest sum, over an op or one of its
/// backward ops, of
/// - the parameters that it gathers (ZeRO-3);
/// - the gradients that it completes and that are then reduced to a shard (ZeRO-2 and 3);
/// - its largest operand and its results over the batch, divided over tp and cp. Experts have the
///   samples of all ep ranks.
///
/// Proof sketch: at most min(pp, n) stages run one of these ops. Together they hold F, so one of
/// them holds at least the average. It also runs one of the ops; the operands and results of the op
/// then lie beside the stored parameters and the shards of gradients.
///
/// Example: 58 layers on 2 stages, each with experts of 22 GB in bf16, ZeRO-3 over 1,024 ranks: 16
/// bytes for each of 638e9 parameters are F = 9.97 GB, half of it on a stage. The backward of one
/// layer's experts reads 22 GB and makes gradients of 22 GB: at least 49 GB.
double leastReaderBytes(const MeshShape &mesh, int64_t microBatch, const DataMode &mode,
                        const ParameterReaders &readers);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_READERBYTES_H
