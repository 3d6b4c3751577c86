//===- Reshard.cpp - Verifier of tbc.reshard -------------------------------===//

#include "ir/Reshard.h"

using namespace mlir;

namespace tbc {

LogicalResult ReshardOp::verify() {
  if (getCollectives().empty()) // reshard_c1
    return emitOpError("has no collectives");
  for (ShardingAttr sharding : {getFrom(), getTo()})
    if (int64_t(sharding.getDims().size()) != tensorType(getInput()).getRank()) // reshard_c2
      return emitOpError() << "has a sharding of " << sharding.getDims().size()
                           << " dims for a tensor of " << tensorType(getInput()).getRank();
  if (int64_t(getNumber()) < 0) // reshard_c3
    return emitOpError() << "has the number " << int64_t(getNumber());
  return success();
}

Value throughReshards(Value value) {
  while (auto reshard = value.getDefiningOp<ReshardOp>())
    value = reshard.getInput();
  return value;
}

} // namespace tbc
