//===- Anomaly.h - Where the first NaN comes from ---------------------------===//
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

/// Ends a step at the first instruction of this rank that makes a NaN, or by arithmetic on each
/// element or a matmul an infinity that none of its operands has. (Others may mean it: what masks
/// scores is -inf in many models.) Reads every result, so that a step takes longer.
class AnomalyDetector : public runtime::Observer {
public:
  /// Error: RankFailed, with what it made and where in the result.
  Status executed(const runtime::Executed &executed) override;

private:
  bool hasInfiniteOperand(const runtime::Executed &executed, int index) const;
  void remember(const runtime::Executed &executed, program::ValueId value, bool isInfinite);

  // Operands may be overwritten by results when this is told of them.
  std::set<program::ValueId> infiniteValues;
  std::set<std::pair<int, int64_t>> infiniteSlots; // slot, micro-batch (0 if it lives longer)
};

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_ANOMALY_H
