//===- Prediction.cpp - The predicted time and memory of a plan -----------===//

#include "planner/plan/Prediction.h"

namespace tbc::planner {

static int64_t sumOf(const std::vector<MemoryLine> &lines) {
  int64_t total = 0;
  for (const MemoryLine &line : lines)
    total += line.bytes;
  return total;
}

const std::vector<TimeRow> &timeRows() {
  static const std::vector<TimeRow> rows = {
      {"compute", "kernels", &TimeSplit::compute},
      {"recompute", "recompute", &TimeSplit::recompute},
      {"operands", "between ops", &TimeSplit::operands},
      {"data", "data communication", &TimeSplit::data},
      {"pipeline", "pipeline", &TimeSplit::pipeline},
      {"update", "update", &TimeSplit::update},
      {"host", "copies to and from the host", &TimeSplit::host},
      {"launches", "waiting for launches", &TimeSplit::launches}};
  return rows;
}

int64_t StageMemory::totalBytes() const { return sumOf(lines); }
int64_t StageMemory::hostBytes() const { return sumOf(host); }

const char *name(MemoryVerdict verdict) {
  return verdict == MemoryVerdict::Fits    ? "fits"
         : verdict == MemoryVerdict::Tight ? "tight"
                                           : "does not fit";
}

} // namespace tbc::planner
