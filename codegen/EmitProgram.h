//===- EmitProgram.h - From per-rank IR to a Program ------------------------===//

#ifndef TBC_CODEGEN_EMITPROGRAM_H
#define TBC_CODEGEN_EMITPROGRAM_H

#include "ir/PerRank.h"
#include "runtime/abi/Program.h"
#include "runtime/schedule/Schedule.h"

#include <map>
#include <string>

namespace tbc {

struct EmitOptions {
  reshard::Mesh mesh;
  int pipelineAxis = -1;
  int numStages = 1;
  int64_t microBatches = 1;
  schedule::ScheduleKind schedule = schedule::kindWithoutPipeline;
  std::vector<int> chunkStage; // empty: one chunk per stage
  std::map<std::string, std::string> metadata;
};

/// The source op of each instruction, by stage and block; null for sends and receives.
using EmittedOps = std::vector<std::map<program::BlockId, std::vector<mlir::Operation *>>>;

/// Translates per-rank IR one to one: functions to blocks, ops to kernel instructions of the same
/// name, collectives to communication, roles of arguments and results to slots.
///
/// Errors: an op attribute or type that a Program cannot hold, at the op. `origins`, if given,
/// receives the source op of every instruction.
mlir::FailureOr<program::Program> emitProgram(PartitionedStep &step, const EmitOptions &options,
                                              EmittedOps *origins = nullptr);

} // namespace tbc

#endif // TBC_CODEGEN_EMITPROGRAM_H
