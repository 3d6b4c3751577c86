//===- AttentionSizes.h - Sizes and biases of an attention ------------------===//

#ifndef TBC_IR_ATTENTIONSIZES_H
#define TBC_IR_ATTENTIONSIZES_H

#include "ir/Tbc.h"

namespace tbc::attention {

/// The sizes of an attention: batch, key heads, query heads of a key head, queries, keys, width of
/// queries and keys, width of values. Example: 16 query heads on 4 key heads have hk = 4, g = 4.
struct Sizes {
  Sizes(mlir::Value query, mlir::Value key, mlir::Value value) {
    auto q = tensorType(query).getShape(), k = tensorType(key).getShape();
    b = q[0], hk = k[1], g = q[1] / k[1], s = q[2], t = k[2], d = q[3];
    dv = tensorType(value).getShape()[3];
  }
  int64_t b, hk, g, s, t, d, dv;
};

/// Returns the letters of the dims of each bias. Example: "hst,bt" is {"hst", "bt"}.
inline llvm::SmallVector<llvm::StringRef> biasesOf(llvm::StringRef biases) {
  llvm::SmallVector<llvm::StringRef> list;
  if (!biases.empty())
    biases.split(list, ',');
  return list;
}

} // namespace tbc::attention

#endif // TBC_IR_ATTENTIONSIZES_H
