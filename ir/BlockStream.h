//===- BlockStream.h - The operands of a streamed loop, block by block ----===//

#ifndef TBC_IR_BLOCKSTREAM_H
#define TBC_IR_BLOCKSTREAM_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>

namespace tbc {

/// One rank's view of the ring of an op with a streamed loop.
class BlockStream {
public:
  virtual ~BlockStream() = default;

  virtual int64_t numBlocks() const = 0;
  /// The op's operands with the block that arrives after `block` passes; 0 is the rank's own block.
  /// Must be called in ascending order of `block`.
  virtual llvm::SmallVector<mlir::Value> operands(int64_t block) = 0;
  /// The local types of the op's results.
  virtual llvm::ArrayRef<mlir::Type> resultTypes() const = 0;
  /// Sends `value` to the next rank and returns the value of the previous rank.
  virtual mlir::Value pass(mlir::Value value) = 0;
};

} // namespace tbc

#endif // TBC_IR_BLOCKSTREAM_H
