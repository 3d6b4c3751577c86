//===- RunOptions.h - The flags of tbc run -----------------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_RUNOPTIONS_H
#define TBC_TOOLS_TBC_RUN_RUNOPTIONS_H

#include "runtime/train/Trainer.h"

#include <cstdint>
#include <memory>
#include <string>

namespace CLI {
class App;
} // namespace CLI

namespace tbc::cli {

struct RunOptions {
  std::string program;
  int64_t numProcesses = 0; // 0: set by the launcher's environment; else the program's ranks
  std::string init;
  int64_t rank = -1, numRanks = -1;
  /// 0: 30 s on CPUs, 600 s on GPUs. For connecting, the larger of that and `timeoutSeconds`.
  int64_t timeoutSeconds = 0, connectTimeoutSeconds = 0;
  std::string host, arith = "native", schedule = "constant";
  std::string kernels = "native", onNan = "stop";
  std::string commDtype = "f32";   // of gradient sums over data axes: f32 or bf16
  std::string lrGrowth;            // --scale-lr; empty: no scaling
  std::string compression;         // of gradient sums: topk:SHARE; empty: uncompressed
  std::string communicator;        // gloo or nccl; empty: nccl between GPUs, else gloo
  std::string cudaGraphs = "auto"; // or on, off
  std::string matmulPrecision;     // of the operands' types ("own"), or fp8; empty: as planned
  bool isDeterministic = false, isBenchmark = false;
  bool checksItself = false; // also runs the first step on reference kernels
  int threads = 0;           // per rank; 0: an equal share of the machine's cores
  bool isVerbose = false;
  bool printsJson = false;
  int tokenBits = 16;
  bool isOrdered = false, isDevRun = false;
  int64_t lrSteps = 0;
  train::TrainOptions train;
  std::string initWeights; // a seed or a path; empty: the model's weights
};

/// Adds the flags and the positional argument to `command`.
std::shared_ptr<RunOptions> addRunOptions(CLI::App &command);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_RUNOPTIONS_H
