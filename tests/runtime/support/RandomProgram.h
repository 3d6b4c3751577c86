//===- RandomProgram.h - Random training programs, for tests ---------------===//
//
// Feed-forward networks under random meshes (axes in any order, parts of axes), stages of one chunk
// or several, schedules (generated ones and tables, with and without weight parts), data, tensor
// and sequence parallelism, ways of storing parameters (replicas, flat chunks, cut dims, at three
// depths of ZeRO), accumulation, skips between stages, tied weights, running statistics and
// clipping. Valid by construction, and executable.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_SUPPORT_RANDOMPROGRAM_H
#define TBC_TESTS_RUNTIME_SUPPORT_RANDOMPROGRAM_H

#include "runtime/abi/Program.h"

namespace tbc::program {

struct RandomProgramOptions {
  unsigned seed = 0;
  int64_t maxRanks = 48;
  /// Blocks of layers per stage.
  int maxLayersPerStage = 3;
  int maxStages = 4;
};

/// The same options give the same program. Ids of instructions are unique in it. Inputs "x" and "t"
/// [samples, width].
Program randomProgram(const RandomProgramOptions &options);

} // namespace tbc::program

#endif // TBC_TESTS_RUNTIME_SUPPORT_RANDOMPROGRAM_H
