//===- ExternalData.h - Weights in files beside the model ------------------===//
//
// Part of tbc. Plain C++.
//
// The model file is not trusted: it names files that are read and, later, sent to other machines.
// The rules:
//  - the location is relative, and no component of it is "..";
//  - opened beneath its folder without following symbolic links (openat2 where the kernel has it,
//  else
//    component by component), it is a regular file, and checked after opening, not before;
//  - it has one link: a hard link could name any file of the same owner;
//  - ranges lie inside the file, are not negative and do not overlap.
// A root that the user names (--external-data-root) permits links, as caches and package tools make
// them, as long as they stay beneath that root.
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

/// Says whether `location` has an allowed form.
Status checkLocation(const std::string &tensor, const std::string &location);

/// Opens `location` as named by a model in `directory`; nothing if there is no such file. Errors
/// (ModelRejected): a location or file that the rules above forbid.
Result<std::optional<data::MappedFile>> openExternal(const std::string &tensor,
                                                     const std::string &directory,
                                                     const std::string &location,
                                                     const std::string &externalDataRoot);

/// Collects the ranges that a model's tensors claim and rejects those outside their file or
/// overlapping.
class ExternalLedger {
public:
  ExternalLedger(std::string directory, std::string externalDataRoot)
      : directory(std::move(directory)), root(std::move(externalDataRoot)) {}

  /// Claims `bytes` bytes for `tensor` and returns the file, nothing if it is not there. A file is
  /// opened once, however many tensors lie in it.
  Result<std::optional<data::MappedFile>> claim(const std::string &tensor,
                                                const ExternalRange &range, int64_t bytes);
  /// The file alone, without a claim.
  Result<std::optional<data::MappedFile>> open(const std::string &tensor,
                                               const ExternalRange &range);

  /// Says whether any two ranges overlap.
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
  /// The file at a location, opened where this is the first time.
  Result<File *> find(const std::string &tensor, const std::string &location);

  std::string directory, root;
  /// By location, as components.
  std::map<std::string, File> files;
};

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_EXTERNALDATA_H
