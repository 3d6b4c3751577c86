//===- OutputFile.h - Files that are written whole ----------------------------===//
//
// Part of tbc. Plain C++ on POSIX.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_OUTPUTFILE_H
#define TBC_RUNTIME_ABI_OUTPUTFILE_H

#include "runtime/abi/Status.h"

#include <string>

namespace tbc {

/// Returns whether `path` is a device or a pipe. It is written into: to replace /dev/null by a file
/// would break the machine.
bool isStream(const std::string &path);

/// Returns the file that `path` means: a link stays a link to the file that is replaced.
std::string behindLinks(const std::string &path);

/// Returns the temporary path of a file that is being written.
std::string temporaryFor(const std::string &path);

/// Replaces a file by one that is there as a whole, or leaves it as it was. A device or a pipe gets
/// the text as it comes. Errors: CannotWrite.
Status writeWhole(const std::string &path, const std::string &text);

} // namespace tbc

#endif // TBC_RUNTIME_ABI_OUTPUTFILE_H
