//===- ClosestWord.h - The closest word, for suggestions -------------------===//
//
// Plain C++, header only. Every room may use it, as it may use Status.h.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_CLOSESTWORD_H
#define TBC_RUNTIME_ABI_CLOSESTWORD_H

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace tbc {

/// Returns the number of letters to insert, delete, replace or swap with their neighbour to turn
/// `a` into `b`: the optimal string alignment (Damerau 1964, Levenshtein 1966).
inline size_t editDistance(const std::string &a, const std::string &b) {
  std::vector<size_t> before, above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::move(above);
    above = row;
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

/// Returns the one of `candidates` that is closest to `word` by optimal string alignment (Damerau
/// 1964, Levenshtein 1966), or "" if more than a third of the letters differ.
///
/// Example: "fdsp" among {"dp", "fsdp", "tp"} is "fsdp", one swap away.
inline std::string closestWord(const std::string &word,
                               const std::vector<std::string> &candidates) {
  std::string best;
  size_t bestDistance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string &candidate : candidates) {
    size_t distance = editDistance(word, candidate);
    if (distance < bestDistance) {
      bestDistance = distance;
      best = candidate;
    }
  }
  return best;
}

} // namespace tbc

#endif // TBC_RUNTIME_ABI_CLOSESTWORD_H
