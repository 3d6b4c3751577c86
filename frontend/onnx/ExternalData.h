//===- ExternalData.h - Weights in files beside the model ------------------===//
//
// Part of tbc. Plain C++.
//
// The model file is not trusted: it names files that are read and later sent to other machines. The
// rules:
//   - The location is relative, without a component "..".
//   - The file is opened beneath its folder without following symbolic links (with openat2 if the
//     kernel supports it, else component by component). It must be a regular file, checked after
//     opening, not before.
//   - It has one link: a hard link could name any file of the same owner.
//   - Ranges are inside the file, not negative, and do not overlap.
// A user-given root (--external-data-root) permits links, as caches and package tools make them, if
// they stay beneath the root.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_EXTERNALDATA_H
#define TBC_FRONTEND_ONNX_EXTERNALDATA_H

#include "runtime/abi/Status.h"
#include "runtime/data/MappedFile.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tbc::frontend {

/// One `external_data` entry list, checked for form.
struct ExternalRange {
  std::string location;
  int64_t offset = 0;
  /// -1: not given.
  int64_t length = -1;
};

/// Reads the key-value pairs of a tensor. `tensor` is its name, for messages.
Result<ExternalRange>
parseExternalData(const std::string &tensor,
                  const std::vector<std::pair<std::string, std::string>> &entries);

/// Checks the form of `location`. Example: "weights/a.bin" is allowed, "../a.bin" is not.
Status checkLocation(const std::string &tensor, const std::string &location);

/// Opens `location`, named by a model in `directory`; null if the file does not exist. Errors
/// (ModelRejected): a location or file forbidden by the rules above.
Result<std::optional<data::MappedFile>> openExternal(const std::string &tensor,
                                                     const std::string &directory,
                                                     const std::string &location,
                                                     const std::string &externalDataRoot);

/// Collects the ranges claimed by a model's tensors. Rejects ranges outside of their file and
/// overlaps.
class ExternalLedger {
public:
  ExternalLedger(std::string directory, std::string externalDataRoot)
      : directory(std::move(directory)), root(std::move(externalDataRoot)) {}

  /// Claims `bytes` bytes for `tensor` and returns the file; null if it does not exist. Each file
  /// is opened once for all tensors.
  Result<std::optional<data::MappedFile>> claim(const std::string &tensor,
                                                const ExternalRange &range, int64_t bytes);
  /// Opens the file without a claim.
  Result<std::optional<data::MappedFile>> open(const std::string &tensor,
                                               const ExternalRange &range);

  /// Checks that ranges do not overlap.
  Status checkOverlaps() const;

private:
  struct Claim {
    int64_t begin, end;
    std::string tensor;
  };
  struct File {
    std::optional<data::MappedFile> opened;
    std::vector<Claim> claims;
  };
  /// Returns the file at a location, opened on first use.
  Result<File *> find(const std::string &tensor, const std::string &location);

  std::string directory, root;
  /// By location, as components.
  std::map<std::string, File> files;
};

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_EXTERNALDATA_H
