//===- Suggest.cpp - Suggestions for misspelt names ------------------------===//

#include "frontend/onnx/Suggest.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>

namespace tbc::frontend {

std::string suggestion(const std::string &word, const std::vector<std::string> &names) {
  llvm::StringRef stem = llvm::StringRef(word).take_until(
      [](char c) { return c == '*' || c == '?' || c == '[' || c == '{'; });
  bool isGlob = stem.size() < word.size();
  std::string closest;
  unsigned least = unsigned(std::max<size_t>(stem.size() / 3, 1)) + 1;
  for (const std::string &name : names) {
    llvm::StringRef compared = isGlob ? llvm::StringRef(name).take_front(stem.size()) : name;
    unsigned distance = stem.edit_distance_insensitive(compared, /*AllowReplacements=*/true, least);
    if (distance < least) {
      least = distance;
      closest = name;
    }
  }
  return closest.empty() ? "" : "; did you mean '" + closest + "'?";
}

} // namespace tbc::frontend
