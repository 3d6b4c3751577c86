//===- EmitBlock.h - From one per-rank function to a block of a stage -------===//

#ifndef TBC_CODEGEN_EMITBLOCK_H
#define TBC_CODEGEN_EMITBLOCK_H

#include "ir/Roles.h"
#include "runtime/abi/Program.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

#include <map>
#include <string>

namespace tbc {

/// The channel of each message, by (phase and value name, from chunk, to chunk).
using ChannelTable = std::map<std::tuple<std::string, int, int>, int64_t>;

/// Emits the blocks of one stage.
class StageEmitter {
public:
  StageEmitter(program::Program &program, program::Stage &stage, ChannelTable &channels);

  /// The source op of each instruction of the last block; null for sends and receives.
  std::vector<mlir::Operation *> origins;

  /// Emits `func` as block `id`. `chunk`: the model chunk that `func` belongs to; ignored for an
  /// update.
  mlir::LogicalResult emit(mlir::func::FuncOp func, program::BlockId id, int chunk);

private:
  mlir::FailureOr<program::ValueId> define(mlir::Value value);
  mlir::LogicalResult emitArguments();
  mlir::LogicalResult emitOp(mlir::Operation &op);
  mlir::LogicalResult emitResults();
  mlir::LogicalResult emitCommunication(mlir::Operation &op, program::Instruction &instruction);
  /// Returns the slot for `name` in `role`, for values of `type`. Makes it on first use.
  mlir::FailureOr<int> slot(std::optional<TensorRole> role, llvm::StringRef name,
                            kernels::TensorType type, mlir::DictionaryAttr attrs,
                            mlir::Location loc);
  /// Fills in the sender and receiver of a message of `name`; `from` and `to` are model chunks.
  void address(program::Communication &comm, llvm::StringRef name, int from, int to);

  program::Program &program;
  program::Stage &stage;
  ChannelTable &channels;
  std::map<std::string, int> slots; // by role and name
  mlir::func::FuncOp func;
  program::BlockId id = schedule::Action::Kind::Forward;
  int chunk = 0; // of the model
  program::Block *block = nullptr;
  llvm::DenseMap<mlir::Value, program::ValueId> ids;
};

/// Adds the pipeline axis to `partial` (partial over these axes) of gradients with slots on several
/// stages.
void markGradientsOfSeveralStages(program::Program &program, int pipelineAxis);

/// Makes blocks write a gradient that has one term in a step, instead of adding it to zeros: one
/// micro-batch, one block, and a value of the slot's type. The value may then be computed in its
/// slot.
void writeGradientsOfOneTerm(program::Program &program);

} // namespace tbc

#endif // TBC_CODEGEN_EMITBLOCK_H
