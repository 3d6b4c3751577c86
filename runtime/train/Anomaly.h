//===- Anomaly.h - The origin of the first NaN ----------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_ANOMALY_H
#define TBC_RUNTIME_TRAIN_ANOMALY_H

#include "runtime/exec/Observer.h"

#include <set>
#include <utility>

namespace tbc::train {

/// Ends a step at the first instruction of this rank that makes a NaN. An infinity also ends it if
/// an elementwise op or a matmul makes it from finite operands. Other ops may make infinities on
/// purpose: many models mask scores with -inf. It reads every result, so steps take longer.
class AnomalyDetector : public runtime::Observer {
public:
  /// Error: RankFailed, with the kind of value and its index in the result.
  Status executed(const runtime::Executed &executed) override;

private:
  bool hasInfiniteOperand(const runtime::Executed &executed, int index) const;
  void remember(const runtime::Executed &executed, program::ValueId value, bool isInfinite);

  // Operands may already be overwritten by results when `executed` is called, so this is
  // remembered.
  std::set<program::ValueId> infiniteValues;
  std::set<std::pair<int, int64_t>> infiniteSlots; // slot, micro-batch (0 if it lives longer)
};

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_ANOMALY_H
