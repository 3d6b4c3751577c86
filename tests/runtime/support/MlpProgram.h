//===- MlpProgram.h - Training a multi-layer perceptron, for tests ---------===//
//
// h[0] = x; h[l+1] = relu(h[l] W[l]), without relu in the last layer; loss = sum((h[L] - t)^2) /
// (samples of the step). Trained by SGD with momentum.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_SUPPORT_MLPPROGRAM_H
#define TBC_TESTS_RUNTIME_SUPPORT_MLPPROGRAM_H

#include "runtime/abi/Program.h"

namespace tbc::program {

struct MlpOptions {
  /// Must be even if tp > 1: layers alternate between column and row parallel.
  int numLayers = 2;
  /// Each stage gets an equal number of layers; the first stages get the remainder. Example: 5
  /// layers on 2 stages are 3 and 2.
  int pp = 1;
  int64_t dp = 1;
  int64_t tp = 1;
  /// 0: replicas; 1: optimizer state flat over dp; 3: parameters too, gathered in each block.
  int zero = 0;
  int64_t microBatches = 1;
  std::string schedule = "1f1b";
  /// The first and the last layer share their weight (needs tp = 1).
  bool isTied = false;
  /// The last stage also uses x, sent by the first stage directly.
  bool hasSkip = false;
  /// The first stage reduces gradients in its last backward (needs untied weights and several
  /// micro-batches; not with zero 3, which reduces every one).
  bool reducesLast = false;
  int64_t width = 6;
  int64_t samples = 8; // per micro-batch, all data ranks
  double momentum = 0.5;
};

/// Returns a program with parameters "W0", "W1" ... from initializers of the same names, with their
/// "W0.buf" and "W0.grad". The inputs are "x" and "t" [samples, width].
Program mlpProgram(const MlpOptions &options);

} // namespace tbc::program

#endif // TBC_TESTS_RUNTIME_SUPPORT_MLPPROGRAM_H
