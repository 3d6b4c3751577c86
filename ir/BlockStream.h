//===- BlockStream.h - What runs along a streamed loop, block by block -----===//

#ifndef TBC_IR_BLOCKSTREAM_H
#define TBC_IR_BLOCKSTREAM_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>

namespace tbc {

/// The ring that an op with a streamed loop is in, as one rank sees it.
class BlockStream {
public:
  virtual ~BlockStream() = default;

  virtual int64_t numBlocks() const = 0;
  /// The operands with the block that is here after `block` passes; the rank's own at 0. Ask in
  /// ascending order.
  virtual llvm::SmallVector<mlir::Value> operands(int64_t block) = 0;
  /// The local types of the op's results.
  virtual llvm::ArrayRef<mlir::Type> resultTypes() const = 0;
  /// Gives `value` to the next rank; what comes from the one before.
  virtual mlir::Value pass(mlir::Value value) = 0;
};

} // namespace tbc

#endif // TBC_IR_BLOCKSTREAM_H
