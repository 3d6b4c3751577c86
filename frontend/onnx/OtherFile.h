//===- OtherFile.h - Files that people take for models ---------------------===//

#ifndef TBC_FRONTEND_ONNX_OTHERFILE_H
#define TBC_FRONTEND_ONNX_OTHERFILE_H

#include <string>
#include <string_view>

namespace tbc::frontend {

/// Returns a sentence on the kind of a file that is no ONNX model, with a remedy; "" if its first
/// bytes show no such kind. Example: "it is a pointer of Git LFS; git lfs pull fetches the file".
std::string otherKindOf(std::string_view bytes);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_OTHERFILE_H
