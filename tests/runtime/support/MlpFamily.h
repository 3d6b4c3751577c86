//===- MlpFamily.h - Many perceptron programs, for tests -------------------===//

#ifndef TBC_TESTS_RUNTIME_SUPPORT_MLPFAMILY_H
#define TBC_TESTS_RUNTIME_SUPPORT_MLPFAMILY_H

#include "tests/runtime/support/MlpProgram.h"

#include <string>

namespace tbc::program {

/// Returns four-layer programs for every combination of: pp 1, 2, 4; dp 1, 2; tp 1, 2; zero 0, 1,
/// 3; one and five micro-batches; both schedules; tied weights, a skip, a last backward that
/// reduces gradients, or none of these.
inline std::vector<MlpOptions> mlpFamily() {
  std::vector<MlpOptions> family;
  for (int pp : {1, 2, 4})
    for (int64_t dp : {1, 2})
      for (int64_t tp : {1, 2})
        for (int zero : {0, 1, 3})
          for (int64_t microBatches : {1, 5})
            for (const char *schedule : {"gpipe", "1f1b"})
              for (int variant : {0, 1, 2, 3}) {
                if ((variant == 1 && tp > 1) || (variant == 3 && (microBatches == 1 || zero == 3)))
                  continue;
                MlpOptions o;
                o.numLayers = 4, o.pp = pp, o.dp = dp, o.tp = tp, o.zero = zero;
                o.microBatches = microBatches, o.schedule = schedule;
                o.isTied = variant == 1, o.hasSkip = variant == 2, o.reducesLast = variant == 3;
                family.push_back(o);
              }
  return family;
}

inline std::string describe(const MlpOptions &o) {
  return "layers " + std::to_string(o.numLayers) + " pp " + std::to_string(o.pp) + " dp " +
         std::to_string(o.dp) + " tp " + std::to_string(o.tp) + " zero " + std::to_string(o.zero) +
         " micro " + std::to_string(o.microBatches) + " " + o.schedule + (o.isTied ? " tied" : "") +
         (o.hasSkip ? " skip" : "") + (o.reducesLast ? " reduces last" : "");
}

} // namespace tbc::program

#endif // TBC_TESTS_RUNTIME_SUPPORT_MLPFAMILY_H
