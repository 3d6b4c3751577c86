//===- RandomProgram.h - Random training programs, for tests ---------------===//
//
// Random feed-forward networks with:
//
// - meshes with axes in any order, and parts of axes
// - stages of one or several chunks
// - schedules (generated and tables, with and without wgrad)
// - data, tensor and sequence parallelism
// - stored parameters as replicas, flat chunks or split dims, at three levels of ZeRO
// - gradient accumulation, skips between stages, tied weights, running statistics, clipping
//
// Valid by construction, and executable.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_SUPPORT_RANDOMPROGRAM_H
#define TBC_TESTS_RUNTIME_SUPPORT_RANDOMPROGRAM_H

#include "runtime/abi/Program.h"

namespace tbc::program {

struct RandomProgramOptions {
  unsigned seed = 0;
  int64_t maxRanks = 48;
  /// The number of layers per stage.
  int maxLayersPerStage = 3;
  int maxStages = 4;
};

/// Returns the same program for the same options. Instruction ids are unique. The inputs are "x"
/// and "t" [samples, width].
Program randomProgram(const RandomProgramOptions &options);

} // namespace tbc::program

#endif // TBC_TESTS_RUNTIME_SUPPORT_RANDOMPROGRAM_H
