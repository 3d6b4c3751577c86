//===- AttentionSizes.h - Sizes and biases of an attention ------------------===//

#ifndef TBC_IR_ATTENTIONSIZES_H
#define TBC_IR_ATTENTIONSIZES_H

#include "ir/Formula.h"
#include "ir/Tbc.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>

namespace tbc::attention {

/// The dims of a tensor of an attention: [b, h, s, d], [b, s, h, d] if it is token-major, or
/// [b, s, h * d] if heads and columns are merged, too.
struct Order {
  /// `tensor`: its letter, q, k, v or o. A capital in `letters` means that it is merged.
  Order(llvm::StringRef letters, char tensor)
      : isMerged(letters.contains(llvm::toUpper(tensor))),
        isTokenMajor(isMerged || letters.contains(tensor)) {}
  int64_t rank() const { return isMerged ? 3 : 4; }
  unsigned tokens() const { return isTokenMajor ? 1 : 2; }
  /// The dim of the heads, together with the columns if they are merged.
  unsigned heads() const { return isTokenMajor ? 2 : 1; }
  llvm::SmallVector<int64_t> shape(int64_t b, int64_t h, int64_t s, int64_t d) const {
    if (isMerged)
      return {b, s, h * d};
    return isTokenMajor ? llvm::SmallVector<int64_t>{b, s, h, d}
                        : llvm::SmallVector<int64_t>{b, h, s, d};
  }
  bool isMerged, isTokenMajor;
};

/// The sizes of an attention: batch, key heads, query heads of a key head, queries, keys, width of
/// queries and keys, width of values. Example: 16 query heads on 4 key heads have hk = 4, g = 4.
struct Sizes {
  /// `op`: an attention, one of its gradients, a packed one, or an adaptor of one.
  template <typename Op> explicit Sizes(Op op) {
    if constexpr (isPacked<Op>(0))
      takePacked(op);
    else
      takeTensors(op);
  }
  int64_t h() const { return hk * g; }
  int64_t b, hk, g, s, t, d, dv;

private:
  template <typename Op> static constexpr auto isPacked(int) -> decltype(&Op::getPacked, true) {
    return true;
  }
  template <typename Op> static constexpr bool isPacked(long) { return false; }

  template <typename Op> void takePacked(Op op) {
    auto packed = tensorType(op.getPacked());
    d = int64_t(op.getPackedWidth());
    hk = std::max<int64_t>(1, int64_t(op.getKeyHeads()));
    g = int64_t(op.getHeads()) / hk;
    b = packed.getDimSize(0);
    s = t = packed.getDimSize(1);
    dv = (packed.getDimSize(2) - (h() + hk) * d) / hk;
  }
  template <typename Op> void takeTensors(Op op) {
    llvm::StringRef letters = op.getTokenMajor();
    const int64_t mergedHeads = int64_t(op.getHeads()), mergedKeyHeads = int64_t(op.getKeyHeads());
    auto headsOf = [&](mlir::Value value, Order order, int64_t merged) {
      return order.isMerged ? merged : tensorType(value).getDimSize(order.heads());
    };
    auto widthOf = [&](mlir::Value value, Order order, int64_t merged) {
      int64_t last = tensorType(value).getShape().back();
      return order.isMerged ? last / std::max<int64_t>(1, merged) : last;
    };
    const Order ofQuery(letters, 'q'), ofKey(letters, 'k'), ofValue(letters, 'v');
    b = tensorType(op.getQuery()).getDimSize(0);
    hk = headsOf(op.getKey(), ofKey, mergedKeyHeads);
    g = hk ? headsOf(op.getQuery(), ofQuery, mergedHeads) / hk : 0;
    s = tensorType(op.getQuery()).getDimSize(ofQuery.tokens());
    t = tensorType(op.getKey()).getDimSize(ofKey.tokens());
    d = widthOf(op.getQuery(), ofQuery, mergedHeads);
    dv = widthOf(op.getValue(), ofValue, mergedKeyHeads);
  }
};

/// Returns the letters of the dims of each bias. Example: "hst,bt" is {"hst", "bt"}.
inline llvm::SmallVector<llvm::StringRef> biasesOf(llvm::StringRef biases) {
  llvm::SmallVector<llvm::StringRef> list;
  if (!biases.empty())
    biases.split(list, ',');
  return list;
}

/// Returns a tensor with the dims of the op's first result as [b, h, s, dv], in f32 or f64.
mlir::Value rowsByHead(Formula &f, AttentionOp op, mlir::Value result);

} // namespace tbc::attention

#endif // TBC_IR_ATTENTIONSIZES_H
