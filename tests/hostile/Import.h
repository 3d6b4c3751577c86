//===- Import.h - Imports a file and measures its time --------------------===//

#ifndef TBC_TESTS_HOSTILE_IMPORT_H
#define TBC_TESTS_HOSTILE_IMPORT_H

#include <string>

namespace tbc::test {

/// How an import ended. `code` is the exit code: 0 or that of the error.
struct ImportOutcome {
  int code = 0;
  std::string message;
  /// Processor time.
  double seconds = 0;
};

/// Imports the file at `path` with the default options.
ImportOutcome importOutcome(const std::string &path);

/// Returns whether an error names its location: a byte of the file, a node, tensor or value by
/// name, or a unique part of the model.
bool namesAPlace(const std::string &message);

/// Returns the limit in processor seconds. It is larger under sanitizers.
double maxSeconds();

/// Returns the number in the environment variable `name`, or `otherwise`.
int numberFromEnvironment(const char *name, int otherwise);

} // namespace tbc::test

#endif // TBC_TESTS_HOSTILE_IMPORT_H
