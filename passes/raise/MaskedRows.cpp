//===- MaskedRows.cpp - Rows of an attention that read no key --------------===//

#include "passes/raise/MaskedRows.h"

#include "passes/raise/Match.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace mlir;

namespace tbc::raise {

/// Returns true if a score plus `number` is `number`, after rounding in its type: scores of 16 are
/// half a unit in its last place. Example: true for -1e9 in f32, whose unit is 64.
static bool isAbsorbing(double number, Type element) {
  return number <= -std::ldexp(16.0, int(cast<FloatType>(element).getFPMantissaWidth()));
}

/// Whether the window, the key mask and the segments come from one step each.
static bool areOneConditionEach(ArrayRef<MaskTerms> steps) {
  unsigned windows = 0, keyMasks = 0, segments = 0;
  for (const MaskTerms &step : steps) {
    bool hasWindow = !step.positions.isEmpty() || !step.orders.empty();
    bool hasKeys = !step.keys.empty();
    bool hasSegments = !step.segments.empty() || !step.queries.empty();
    if (hasWindow + hasKeys + hasSegments > 1)
      return false;
    windows += hasWindow;
    keyMasks += hasKeys;
    segments += hasSegments;
  }
  return windows <= 1 && keyMasks <= 1 && segments <= 1;
}

/// Returns true if in fully masked rows the keys outside the window are hidden more than all
/// others: by -inf, or once more by the one step that also hides by data. `areEqual`: every step
/// adds the same number.
bool MaskedRows::areAllInWindow(ArrayRef<unsigned> active, bool areEqual) const {
  if (!mask.orders.empty())
    return false;
  unsigned withData = 0;
  bool arePositionsInfinite = true, hidesPositionsWithData = false, isReplaced = false;
  for (unsigned i : active) {
    bool isInfinite = std::isinf(masks[i].number);
    if (!steps[i].haveData()) {
      // Scores that are replaced later are hidden less, outside the window too.
      if (isReplaced)
        return false;
      arePositionsInfinite &= isInfinite;
      continue;
    }
    isReplaced |= masks[i].replacesScores;
    if (++withData > 1 || isInfinite || !isAbsorbing(masks[i].number, element))
      return false;
    auto own = windowOf(steps[i].positions, numQueries, numKeys);
    hidesPositionsWithData = own && own->left == window.left && own->right == window.right;
  }
  return arePositionsInfinite || (areEqual && hidesPositionsWithData);
}

std::optional<StringRef> MaskedRows::hiddenRows(std::string &reason) const {
  // The masks that hide any key, the last applied one first.
  SmallVector<unsigned> active;
  bool areAllInfinite = true, areAllAbsorbing = true, isBounded = false;
  for (auto [i, step] : llvm::enumerate(masks)) {
    bool isBound = step.kept.kind == Truth::Kind::Always;
    if (!isBound && !steps[i].haveData() && steps[i].positions.isEmpty())
      continue;
    // A bound makes all hidden scores equal, so the masks inside it do not matter.
    if (!isBounded)
      active.push_back(i);
    isBounded |= isBound;
    areAllInfinite &= std::isinf(step.number);
    areAllAbsorbing &= isAbsorbing(step.number, element) && !std::isinf(step.number) &&
                       isClose(step.number, masks[active.front()].number);
  }
  auto replaces = [&](unsigned i) { return masks[i].replacesScores; };
  auto outer = ArrayRef(active).drop_back();
  if (llvm::any_of(active, [&](unsigned i) { return masks[i].hasOtherNumbers; })) {
    reason = "one of its masks hides keys by several numbers, and another one by data";
    return std::nullopt;
  }
  if (llvm::any_of(active, [&](unsigned i) {
        return masks[i].replacesScores && masks[i].isBiased &&
               !isAbsorbing(masks[i].number, element);
      })) {
    reason = "something is added to its scores after a mask has replaced them";
    return std::nullopt;
  }
  if (isBounded && !areAllAbsorbing) {
    reason = "its masks are bounded by another number than they add";
    return std::nullopt;
  }
  if (areAllInfinite)
    return "zero"; // NaN, unless it is replaced
  if (active.size() == 1 && !std::isinf(masks[active[0]].number))
    return areAllAbsorbing || replaces(active[0]) ? "mean" : "scores";
  if (areAllAbsorbing && llvm::all_of(outer, replaces))
    return "mean";
  const bool areAdded = areAllAbsorbing && llvm::none_of(outer, replaces);
  if (areAdded && areOneConditionEach(steps))
    return "nearest";
  if (areAllInWindow(active, areAdded))
    return "window";
  reason = "its masks weigh keys in a way of their own where they hide all of them";
  return std::nullopt;
}

} // namespace tbc::raise
