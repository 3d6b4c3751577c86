//===- AttentionMask.cpp - The keys of a query, and their dropout ---------===//
//
// Part of tbc. The formulas stand in Attention.h.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/AttentionMask.h"

#include <algorithm>

namespace tbc::kernels {

size_t AttentionMask::numOperands(const Attrs &attrs) {
  return (attrs.getBool("key_mask", false) ? 1 : 0) + (attrs.getBool("segments", false) ? 2 : 0) +
         (attrs.getBool("ordered", false) ? 2 : 0) + (attrs.getBool("placed", false) ? 2 : 0);
}

AttentionMask::AttentionMask(const Attrs &attrs, const std::vector<Tensor> &inputs, size_t first,
                             int64_t batch, int64_t queries, int64_t keys)
    : queries(queries), keys(keys), isCausal(attrs.getBool("causal", false)),
      left(attrs.getInt("left", -1)), right(attrs.getInt("right", -1)),
      hasKeyMask(attrs.getBool("key_mask", false)), hasSegments(attrs.getBool("segments", false)),
      isOrdered(attrs.getBool("ordered", false)), isPlaced(attrs.getBool("placed", false)) {
  std::string rows = attrs.has("hidden_rows") ? attrs.getString("hidden_rows") : "zero";
  const std::pair<const char *, HiddenRows> names[] = {{"zero", HiddenRows::Zero},
                                                       {"mean", HiddenRows::Mean},
                                                       {"window", HiddenRows::Window},
                                                       {"nearest", HiddenRows::Nearest},
                                                       {"scores", HiddenRows::Scores}};
  const auto *found = std::find_if(std::begin(names), std::end(names),
                                   [&](const auto &name) { return rows == name.first; });
  require(found != std::end(names), [&] { return "attention has no hidden_rows " + rows; });
  hiddenRows = found->second;
  auto take = [&](const char *what, const Shape &shape) {
    requireShape(what, inputs[first].shape(), shape);
    require(inputs[first].holds<int64_t>(), "an attention mask holds no integers");
    return inputs[first++];
  };
  if (hasKeyMask)
    keyMask = take("the key mask", {batch, keys});
  if (hasSegments) {
    querySegments = take("the query segments", {batch, queries});
    keySegments = take("the key segments", {batch, keys});
  }
  if (isOrdered) {
    queryPositions = take("the query positions", {batch, queries});
    keyPositions = take("the key positions", {batch, keys});
  }
  if (isPlaced) {
    queryPlaces = take("the places of queries", {queries});
    keyPlaces = take("the places of keys", {keys});
  }
}

bool AttentionMask::isInside(int64_t sample, int64_t query, int64_t key) const {
  int64_t ahead = isPlaced ? keyPlaces.data<int64_t>()[key] - queryPlaces.data<int64_t>()[query]
                           : key - (query + keys - queries);
  bool isLater = isOrdered && keyPositions.data<int64_t>()[sample * keys + key] >
                                  queryPositions.data<int64_t>()[sample * queries + query];
  return !isLater && !(isCausal && ahead > 0) && !(left >= 0 && ahead < -left) &&
         !(right >= 0 && ahead > right);
}

int AttentionMask::violations(int64_t sample, int64_t query, int64_t key) const {
  int count = isInside(sample, query, key) ? 0 : 1;
  if (hasKeyMask)
    count += keyMask.data<int64_t>()[sample * keys + key] == 0;
  if (hasSegments)
    count += querySegments.data<int64_t>()[sample * queries + query] !=
             keySegments.data<int64_t>()[sample * keys + key];
  return count;
}

ReadableKeys AttentionMask::row(int64_t sample, int64_t query) const {
  std::vector<int> counts(keys);
  for (int64_t j = 0; j < keys; ++j)
    counts[j] = violations(sample, query, j);
  int fewest = keys ? *std::min_element(counts.begin(), counts.end()) : 0;
  bool isHidden = fewest > 0;
  ReadableKeys result;
  result.isFlat = isHidden && hiddenRows != HiddenRows::Zero && hiddenRows != HiddenRows::Scores;
  for (int64_t j = 0; j < keys; ++j) {
    bool isRead = counts[j] == fewest;
    if (isHidden && hiddenRows == HiddenRows::Window)
      isRead = isInside(sample, query, j);
    else if (isHidden && hiddenRows != HiddenRows::Nearest)
      isRead = hiddenRows != HiddenRows::Zero;
    result.keys.push_back(isRead);
  }
  return result;
}

AttentionDropout::AttentionDropout(const Attrs &attrs, const std::vector<Tensor> &inputs,
                                   size_t first, int64_t batch, int64_t heads, int64_t queries,
                                   int64_t keys) {
  if (!attrs.getBool("drops_out", false))
    return;
  requireShape("the step", inputs[first].shape(), {});
  int64_t step = inputs[first].data<int64_t>()[0];
  mask.emplace(attrs.getDouble("dropout"), attrs.getInt("dropout_seed"),
               attrs.getInt("dropout_key"), step);
  ratio = DropoutMask::ratioOf(attrs.getDouble("dropout"), step);
  const int64_t sizes[] = {batch, heads, queries, keys};
  for (size_t dim = 0; dim < 4; ++dim) {
    requireShape("the indices of a dim", inputs[first + 1 + dim].shape(), {sizes[dim]});
    indices[dim] = inputs[first + 1 + dim];
  }
}

size_t AttentionDropout::numOperands(const Attrs &attrs) {
  return attrs.getBool("drops_out", false) ? 5 : 0;
}

std::vector<uint8_t> AttentionDropout::row(int64_t sample, int64_t head, int64_t query) {
  int64_t start = indices[0].data<int64_t>()[sample] + indices[1].data<int64_t>()[head] +
                  indices[2].data<int64_t>()[query];
  std::vector<uint8_t> kept;
  for (int64_t index : indices[3].data<int64_t>())
    kept.push_back(mask->keeps(start + index));
  return kept;
}

} // namespace tbc::kernels
