//===- AttentionRules.h - Checks and loops of all forms of attention --------===//
//
// Internal to the ops of attention.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_ATTENTIONRULES_H
#define TBC_IR_ATTENTIONRULES_H

#include "ir/Attention.h"
#include "ir/AttentionSizes.h"

#include "llvm/ADT/StringExtras.h"

#include <cmath>

namespace tbc::attention {

/// Returns true if `letters` are some of `all`, each once and in this order.
inline bool areLettersOf(llvm::StringRef letters, llvm::StringRef all) {
  size_t next = 0;
  for (char letter : letters) {
    size_t found = all.find(letter, next);
    if (found == llvm::StringRef::npos)
      return false;
    next = found + 1;
  }
  return true;
}

/// The size of the dim with this letter: b, h, s or t.
template <typename Adaptor> int64_t sizeOfLetter(Adaptor adaptor, char letter) {
  const Sizes sizes(adaptor);
  return letter == 'b' ? sizes.b : letter == 'h' ? sizes.h() : letter == 's' ? sizes.s : sizes.t;
}

template <typename Adaptor>
llvm::SmallVector<int64_t> shapeOfLetters(Adaptor adaptor, llvm::StringRef letters) {
  llvm::SmallVector<int64_t> shape;
  for (char letter : letters)
    shape.push_back(sizeOfLetter(adaptor, letter));
  return shape;
}

/// Checks that the mask operands have the types of the flags.
template <typename Adaptor>
mlir::LogicalResult verifyMasks(std::optional<mlir::Location> loc, Adaptor adaptor) {
  enum Kind { Floats, Booleans, Integers };
  llvm::SmallVector<std::pair<llvm::StringRef, Kind>> expected; // the dims
  for (llvm::StringRef letters : biasesOf(adaptor.getBiases())) {
    if (letters.empty() || !areLettersOf(letters, "bhst")) // attention_c7
      return mlir::emitOptionalError(loc, "has a bias with the dims \"", letters,
                                     "\"; expected some of b, h, s and t, in this order");
    expected.push_back({letters, Floats});
  }
  if (adaptor.getSink())
    expected.push_back({"h", Floats});
  if (adaptor.getKeyMask())
    expected.push_back({"bt", Booleans});
  for (bool isThere : {adaptor.getSegments(), adaptor.getOrdered()})
    if (isThere)
      expected.append({{"bs", Integers}, {"bt", Integers}});
  if (adaptor.getPlaced())
    expected.append({{"s", Integers}, {"t", Integers}});
  if (adaptor.getDropsOut())
    for (llvm::StringRef letters : {"", "b", "h", "s", "t"})
      expected.push_back({letters, Integers});
  mlir::ValueRange masks = adaptor.getMasks();
  if (masks.size() != expected.size())
    return mlir::emitOptionalError(loc, "has ", masks.size(), " masks, expected ", expected.size());
  for (auto [mask, want] : llvm::zip_equal(masks, expected)) {
    auto type = tensorType(mask);
    llvm::SmallVector<int64_t> shape = shapeOfLetters(adaptor, want.first);
    mlir::Type element = type.getElementType();
    Kind kind = llvm::isa<mlir::FloatType>(element) ? Floats
                : element.isInteger(1)              ? Booleans
                                                    : Integers;
    constexpr llvm::StringRef names[] = {"floats", "booleans", "integers"};
    if (type.getShape() != llvm::ArrayRef<int64_t>(shape) || kind != want.second)
      return mlir::emitOptionalError(
          loc, "has a mask of type ", type, ", expected ", names[want.second], " of shape [",
          llvm::join(llvm::map_range(shape, [](int64_t size) { return std::to_string(size); }),
                     ", "),
          "]");
  }
  return mlir::success();
}

/// Checks windows, masks and numbers of an attention whose heads and operands fit each other, and
/// sets the types of its results. `element` is that of q.
template <typename Adaptor>
mlir::LogicalResult checkAttention(std::optional<mlir::Location> loc, Adaptor adaptor,
                                   mlir::Type element, llvm::SmallVectorImpl<mlir::Type> &types) {
  const Sizes sizes(adaptor);
  int64_t left = int64_t(adaptor.getLeft()), right = int64_t(adaptor.getRight());
  bool hasWindow = adaptor.getCausal() || left >= 0 || right >= 0;
  if (left < -1 || right < -1 ||
      (hasWindow && !adaptor.getPlaced() && sizes.t < sizes.s)) // attention_c3
    return mlir::emitOptionalError(loc, adaptor.getCausal() ? "is causal" : "has a window",
                                   " (left ", left, ", right ", right, ") with ", sizes.t,
                                   " keys for ", sizes.s, " queries");
  if (mlir::failed(verifyMasks(loc, adaptor))) // attention_c4
    return mlir::failure();
  llvm::StringRef rows = adaptor.getHiddenRows();
  if (!llvm::is_contained({"zero", "mean", "window", "nearest", "scores"}, rows)) // attention_c5
    return mlir::emitOptionalError(loc, "has unknown hidden_rows \"", rows,
                                   "\"; expected zero, mean, window, nearest or scores");
  if (rows == "window" && adaptor.getOrdered()) // attention_c5
    return mlir::emitOptionalError(loc,
                                   "reads its window in hidden rows, which positions that are data "
                                   "may leave empty");
  if (rows != "zero" && adaptor.getSink()) // attention_c5
    return mlir::emitOptionalError(loc, "has a sink and hidden_rows \"", rows, "\"; expected zero");
  double cap = adaptor.getSoftCap().convertToDouble();
  if (!(cap >= 0 && std::isfinite(cap))) // attention_c8
    return mlir::emitOptionalError(loc, "has soft_cap ", cap,
                                   "; expected a finite number, 0 or more");
  double ratio = adaptor.getDropout().convertToDouble();
  if (!(ratio >= 0 && ratio < 1)) // attention_c6
    return mlir::emitOptionalError(loc, "has dropout ", ratio,
                                   "; expected 0 or more and less than 1");
  auto shape = Order(adaptor.getTokenMajor(), 'o').shape(sizes.b, sizes.h(), sizes.s, sizes.dv);
  auto result = mlir::RankedTensorType::get(shape, element);
  mlir::Type statistic =
      mlir::RankedTensorType::get({sizes.b, sizes.h(), sizes.s}, wideElementType(result));
  types.assign({result, statistic, statistic});
  return mlir::success();
}

template <typename Op> bool hasWindow(Op op) {
  return op.getCausal() || int64_t(op.getLeft()) >= 0 || int64_t(op.getRight()) >= 0;
}

/// Returns true if keys may come in blocks: the read of some keys must not depend on the others. So
/// fully masked rows must read no key. A bias over queries and keys cannot be split along both, and
/// each block would have the sink.
template <typename Op> bool takesBlocks(Op op) {
  return op.getHiddenRows() == "zero" && op.getBiases().empty() && !op.getSink();
}

/// Returns the dims of a tensor with these loops.
inline llvm::SmallVector<FactorRule::Dim, 4>
dimsOf(Order order, unsigned b, llvm::ArrayRef<unsigned> heads, unsigned tokens, unsigned columns) {
  auto one = [](unsigned loop) { return FactorRule::dim(loop); };
  if (order.isMerged) {
    llvm::SmallVector<unsigned, 3> merged(heads);
    merged.push_back(columns);
    return {one(b), one(tokens), FactorRule::dim(merged)};
  }
  if (order.isTokenMajor)
    return {one(b), one(tokens), FactorRule::dim(heads), one(columns)};
  return {one(b), FactorRule::dim(heads), one(tokens), one(columns)};
}

/// The factor rule's dims of all operands and results of an attention.
struct AttentionDims {
  /// `shared` is the kind of the loops without keys and values: the query heads of one key head
  /// and, if they may be split, the queries.
  template <typename Op>
  AttentionDims(FactorRule &rule, Op op, const Sizes &sizes, LoopKind shared) {
    unsigned b = rule.addLoop(sizes.b), hk = rule.addLoop(sizes.hk);
    unsigned g = rule.addLoop(sizes.g, shared);
    bool isPlaced = op.getPlaced() || !hasWindow(op);
    unsigned s = rule.addLoop(sizes.s, isPlaced ? shared : LoopKind::Fixed);
    unsigned t =
        rule.addLoop(sizes.t, isPlaced && takesBlocks(op) ? LoopKind::Streamed : LoopKind::Fixed);
    unsigned d = rule.addLoop(sizes.d, LoopKind::Fixed);
    unsigned dv = rule.addLoop(sizes.dv, LoopKind::Fixed);
    FactorRule::Dim heads = FactorRule::dim({hk, g});
    auto one = [](unsigned loop) { return FactorRule::dim(loop); };
    llvm::StringRef tokenMajor = op.getTokenMajor();
    query = dimsOf(Order(tokenMajor, 'q'), b, {hk, g}, s, d);
    key = dimsOf(Order(tokenMajor, 'k'), b, {hk}, t, d);
    value = dimsOf(Order(tokenMajor, 'v'), b, {hk}, t, dv);
    result = dimsOf(Order(tokenMajor, 'o'), b, {hk, g}, s, dv);
    statistic = {one(b), heads, one(s)};
    byQuery = {one(b), one(s)};
    byKey = {one(b), one(t)};
    places = {{one(s)}, {one(t)}};
    numbers = {{}, {one(b)}, {heads}, {one(s)}, {one(t)}};
  }
  /// The dims of a tensor with these letters.
  llvm::SmallVector<FactorRule::Dim, 4> ofLetters(llvm::StringRef letters) const {
    llvm::SmallVector<FactorRule::Dim, 4> dims;
    for (char letter : letters)
      dims.push_back(letter == 't' ? byKey[1]
                                   : statistic[letter == 'b'   ? 0
                                               : letter == 'h' ? 1
                                                               : 2]);
    return dims;
  }
  /// Appends the dims of the mask operands.
  template <typename Op> void addMasks(FactorRule &rule, Op op) const {
    for (llvm::StringRef letters : biasesOf(op.getBiases()))
      rule.operands.push_back(ofLetters(letters));
    if (op.getSink())
      rule.operands.push_back(ofLetters("h"));
    if (op.getKeyMask())
      rule.operands.push_back(byKey);
    for (bool isThere : {op.getSegments(), op.getOrdered()})
      if (isThere)
        rule.operands.append({byQuery, byKey});
    if (op.getPlaced())
      rule.operands.append(places);
    if (op.getDropsOut())
      rule.operands.append(numbers);
  }
  /// The positions of queries and keys.
  llvm::SmallVector<llvm::SmallVector<FactorRule::Dim, 4>, 2> places;
  /// The step and the indices of dropout.
  llvm::SmallVector<llvm::SmallVector<FactorRule::Dim, 4>, 5> numbers;
  llvm::SmallVector<FactorRule::Dim, 4> query, key, value, result, statistic, byQuery, byKey;
};

/// Sets the numbers of heads in merged dims; `sizes` are those of the loops b, hk, g, ...
template <typename Op> void resizeHeads(Op op, llvm::ArrayRef<int64_t> sizes) {
  if (op.getHeads() != 0)
    op.setHeads(sizes[1] * sizes[2]);
  if (op.getKeyHeads() != 0)
    op.setKeyHeads(sizes[1]);
}
} // namespace tbc::attention

#endif // TBC_IR_ATTENTIONRULES_H
