//===- Suggest.h - What a name may have been meant to be -------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_SUGGEST_H
#define TBC_FRONTEND_ONNX_SUGGEST_H

#include <string>
#include <vector>

namespace tbc::frontend {

/// "; did you mean 'NAME'?" for the one of `names` that is closest to `word` by edits, or "" if
/// none is close. Of a glob the part in front of its first wildcard counts, and is compared to as
/// much of each name.
std::string suggestion(const std::string &word, const std::vector<std::string> &names);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_SUGGEST_H
