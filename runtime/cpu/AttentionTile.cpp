//===- AttentionTile.cpp - The keys that a tile of queries reads ----------===//

#include "runtime/cpu/AttentionTile.h"

#include <algorithm>

namespace tbc::cpu {

using kernels::Attrs;
using kernels::DType;

AttentionMasking::AttentionMasking(const Attrs &attrs, const Types &operands, size_t firstMask,
                                   int64_t queries, int64_t keys)
    : queries(queries), keys(keys), isCausal(attrs.getBool("causal", false)),
      left(attrs.getInt("left", -1)), right(attrs.getInt("right", -1)) {
  std::string rows = attrs.has("hidden_rows") ? attrs.getString("hidden_rows") : "zero";
  hiddenRows = rows == "mean"      ? HiddenRows::Mean
               : rows == "window"  ? HiddenRows::Window
               : rows == "nearest" ? HiddenRows::Nearest
               : rows == "scores"  ? HiddenRows::Scores
                                   : HiddenRows::Zero;
  int next = int(firstMask);
  auto take = [&](const char *attribute, int count, DType dtype) {
    if (!attrs.getBool(attribute, false))
      return -1;
    int at = next;
    next += count;
    for (int i = at; i < next; ++i)
      isWide &= operands[size_t(i)].dtype == dtype;
    return at;
  };
  keyMask = take("key_mask", 1, DType::Bool);
  segments = take("segments", 2, DType::I64);
  order = take("ordered", 2, DType::I64);
  places = take("placed", 2, DType::I64);
  dropout = take("drops_out", 5, DType::I64);
  if (dropout >= 0) {
    ratio = attrs.getDouble("dropout");
    seed = attrs.getInt("dropout_seed");
    key = attrs.getInt("dropout_key");
  }
}

AttentionTile::AttentionTile(const AttentionMasking &masking, const Buffers &buffers,
                             int64_t sample, int64_t firstQuery, int64_t rows)
    : masking(masking), buffers(buffers), sample(sample), first(firstQuery), rows(rows) {
  if (!takeRanges())
    takeConditions();
  // Whole vectors, so matmuls have few shapes.
  begin = begin / 64 * 64;
  end = std::min(masking.keys, (end + 63) / 64 * 64);
  if (masking.dropout < 0)
    return;
  int64_t step = *operand<int64_t>(masking.dropout);
  if (kernels::DropoutMask::ratioOf(masking.ratio, step) > 0)
    dropped.emplace(masking.ratio, masking.seed, masking.key, step);
}

/// Returns the keys in the window of a query. The positions of keys are consecutive.
AttentionTile::Range AttentionTile::windowOf(int64_t query, const int64_t *queryPlaces,
                                             const int64_t *keyPlaces) const {
  // ahead = key - middle
  int64_t middle =
      queryPlaces ? queryPlaces[query] - keyPlaces[0] : query + masking.keys - masking.queries;
  Range range{0, masking.keys};
  if (masking.isCausal)
    range.end = std::min(range.end, middle + 1);
  if (masking.left >= 0)
    range.begin = std::max(range.begin, middle - masking.left);
  if (masking.right >= 0)
    range.end = std::min(range.end, middle + masking.right + 1);
  return range;
}

/// Sets a range of keys for each query. Returns false if there are other conditions than the
/// window, if positions of keys are not consecutive, or if fully masked rows need other treatment
/// than zeros.
bool AttentionTile::takeRanges() {
  if (masking.keyMask >= 0 || masking.segments >= 0 || masking.order >= 0)
    return false;
  const int64_t *queryPlaces = nullptr, *keyPlaces = nullptr;
  if (masking.places >= 0) {
    queryPlaces = operand<int64_t>(masking.places);
    keyPlaces = operand<int64_t>(masking.places + 1);
    for (int64_t j = 1; j < masking.keys; ++j)
      if (keyPlaces[j] != keyPlaces[0] + j)
        return false;
  }
  begin = masking.keys;
  for (int64_t row = 0; row < rows; ++row) {
    Range range = windowOf(first + row, queryPlaces, keyPlaces);
    bool isHidden = range.begin >= range.end;
    if (isHidden && masking.hiddenRows != AttentionMasking::HiddenRows::Zero) {
      ranges.clear();
      return false;
    }
    ranges.push_back(isHidden ? Range{0, 0} : range);
    if (!isHidden) {
      begin = std::min(begin, range.begin);
      end = std::max(end, range.end);
    }
  }
  return true;
}

/// Evaluates every condition for every key, by the rule of kernels::AttentionMask.
void AttentionTile::takeConditions() {
  using HiddenRows = AttentionMasking::HiddenRows;
  int64_t keys = masking.keys;
  keeps.assign(size_t(rows * keys), 0);
  flat.assign(size_t(rows), 0);
  std::vector<uint8_t> outside(static_cast<size_t>(keys)), violations(outside.size());
  for (int64_t row = 0; row < rows; ++row) {
    int64_t query = first + row, at = sample * masking.queries + query;
    int64_t middle = query + keys - masking.queries;
    const int64_t *keyPlaces = nullptr;
    if (masking.places >= 0) {
      middle = operand<int64_t>(masking.places)[query];
      keyPlaces = operand<int64_t>(masking.places + 1);
    }
    for (int64_t j = 0; j < keys; ++j) {
      int64_t ahead = (keyPlaces ? keyPlaces[j] : j) - middle;
      outside[size_t(j)] = (masking.isCausal && ahead > 0) ||
                           (masking.left >= 0 && ahead < -masking.left) ||
                           (masking.right >= 0 && ahead > masking.right);
    }
    if (masking.order >= 0) {
      int64_t position = operand<int64_t>(masking.order)[at];
      const int64_t *positions = operand<int64_t>(masking.order + 1, sample * keys);
      for (int64_t j = 0; j < keys; ++j)
        outside[size_t(j)] |= positions[j] > position;
    }
    violations = outside;
    if (masking.keyMask >= 0) {
      const auto *mask = operand<uint8_t>(masking.keyMask, sample * keys);
      for (int64_t j = 0; j < keys; ++j)
        violations[size_t(j)] += mask[j] == 0;
    }
    if (masking.segments >= 0) {
      int64_t segment = operand<int64_t>(masking.segments)[at];
      const int64_t *segments = operand<int64_t>(masking.segments + 1, sample * keys);
      for (int64_t j = 0; j < keys; ++j)
        violations[size_t(j)] += segments[j] != segment;
    }
    uint8_t fewest = keys ? *std::min_element(violations.begin(), violations.end()) : 0;
    bool isHidden = fewest > 0;
    flat[size_t(row)] = isHidden && masking.hiddenRows != HiddenRows::Zero &&
                        masking.hiddenRows != HiddenRows::Scores;
    uint8_t *kept = keeps.data() + row * keys;
    for (int64_t j = 0; j < keys; ++j) {
      bool isRead = violations[size_t(j)] == fewest;
      if (isHidden && masking.hiddenRows == HiddenRows::Window)
        isRead = !outside[size_t(j)];
      else if (isHidden && masking.hiddenRows != HiddenRows::Nearest)
        isRead = masking.hiddenRows != HiddenRows::Zero;
      kept[j] = isRead;
    }
  }
  begin = 0, end = keys;
}

bool AttentionTile::mask(int64_t row, int64_t key, int64_t count, float *scores,
                         float hidden) const {
  if (!ranges.empty()) {
    Range range = ranges[size_t(row)];
    int64_t from = std::clamp<int64_t>(range.begin - key, 0, count);
    int64_t to = std::clamp<int64_t>(range.end - key, 0, count);
    if (from >= to)
      return false;
    std::fill(scores, scores + from, hidden);
    std::fill(scores + to, scores + count, hidden);
    return true;
  }
  const uint8_t *kept = keeps.data() + row * masking.keys + key;
  bool isAny = false, isZero = isFlat(row);
  for (int64_t j = 0; j < count; ++j) {
    isAny |= kept[j] != 0;
    scores[j] = !kept[j] ? hidden : isZero ? 0.0f : scores[j];
  }
  return isAny;
}

void AttentionTile::drop(int64_t head, int64_t key, int64_t count, float *weights) {
  if (!dropped)
    return;
  auto index = [&](int dim, int64_t at) { return operand<int64_t>(masking.dropout + 1 + dim)[at]; };
  float factor = 1.0f / float(1 - masking.ratio);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t start = index(0, sample) + index(1, head) + index(2, first + row);
    float *line = weights + row * tileKeys;
    for (int64_t j = 0; j < count; ++j)
      line[j] = dropped->keeps(start + index(3, key + j)) ? line[j] * factor : 0;
  }
}

} // namespace tbc::cpu
