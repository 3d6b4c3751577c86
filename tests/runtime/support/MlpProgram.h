//===- MlpProgram.h - Training a multi-layer perceptron, for tests ---------===//
//
// h[0] = x; h[l+1] = relu(h[l] W[l]), the last layer without relu;
// loss = sum((h[L] - t)^2) / (samples of the step). Trained by SGD with momentum.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_SUPPORT_MLPPROGRAM_H
#define TBC_TESTS_RUNTIME_SUPPORT_MLPPROGRAM_H

#include "runtime/abi/Program.h"

namespace tbc::program {

struct MlpOptions {
  /// Even with tp > 1: layers are column- and row-parallel in turns.
  int numLayers = 2;
  /// Layers per stage are even shares, the first stages get the rest.
  int pp = 1;
  int64_t dp = 1;
  int64_t tp = 1;
  /// 0: replicas; 1: the optimizer state flat over dp; 3: the parameters too, gathered in each
  /// block.
  int zero = 0;
  int64_t microBatches = 1;
  std::string schedule = "1f1b";
  /// The first and the last layer share their weight (tp = 1).
  bool isTied = false;
  /// The last stage also needs x, sent from the first directly.
  bool hasSkip = false;
  int64_t width = 6;
  int64_t samples = 8; // per micro-batch, all data ranks
  double momentum = 0.5;
};

/// Parameters "W0", "W1" ... from initializers of those names, "W0.buf" and "W0.grad" with them;
/// inputs "x" and "t" [samples, width].
Program mlpProgram(const MlpOptions &options);

} // namespace tbc::program

#endif // TBC_TESTS_RUNTIME_SUPPORT_MLPPROGRAM_H
