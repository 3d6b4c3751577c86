//===- AttentionScore.cpp - The score of a query and a key -----------------===//
//
// Part of tbc. The formulas stand in Attention.h.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/AttentionScore.h"

namespace tbc::kernels {

/// The letters of each bias. Example: "hst,bt" is {"hst", "bt"}.
static std::vector<std::string> lettersOf(const Attrs &attrs) {
  std::vector<std::string> list;
  if (!attrs.has("biases") || attrs.getString("biases").empty())
    return list;
  list.emplace_back();
  for (char letter : attrs.getString("biases")) {
    if (letter == ',')
      list.emplace_back();
    else
      list.back() += letter;
  }
  return list;
}

size_t numScoreOperands(const Attrs &attrs) {
  return lettersOf(attrs).size() + (attrs.getBool("sink", false) ? 1 : 0);
}

std::vector<BiasLayout> biasLayouts(const Attrs &attrs, const std::array<int64_t, 4> &sizes) {
  const std::string known = "bhst";
  std::vector<BiasLayout> layouts;
  for (const std::string &letters : lettersOf(attrs)) {
    BiasLayout layout;
    size_t next = 0;
    for (char letter : letters) {
      size_t dim = known.find(letter, next);
      require(dim != std::string::npos, [&] { return "attention has no bias over " + letters; });
      layout.shape.push_back(sizes[dim]);
      next = dim + 1;
    }
    int64_t stride = 1;
    for (size_t i = letters.size(); i-- > 0;) {
      size_t dim = known.find(letters[i]);
      layout.strides[dim] = stride;
      stride *= sizes[dim];
    }
    layouts.push_back(layout);
  }
  return layouts;
}

} // namespace tbc::kernels
