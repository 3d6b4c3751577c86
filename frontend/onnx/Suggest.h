//===- Suggest.h - Suggestions for misspelt names --------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_SUGGEST_H
#define TBC_FRONTEND_ONNX_SUGGEST_H

#include <string>
#include <vector>

namespace tbc::frontend {

/// Returns "; did you mean 'NAME'?" with the closest of `names` by edit distance, or "" if all are
/// far. For a glob, compares the part before its first wildcard with a prefix of each name.
std::string suggestion(const std::string &word, const std::vector<std::string> &names);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_SUGGEST_H
