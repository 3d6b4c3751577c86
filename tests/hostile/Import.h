//===- Import.h - Imports a file and watches the clock --------------------===//

#ifndef TBC_TESTS_HOSTILE_IMPORT_H
#define TBC_TESTS_HOSTILE_IMPORT_H

#include <string>

namespace tbc::test {

/// How an import ended. `code` is the exit code that it means: 0 or that of the error.
struct ImportOutcome {
  int code = 0;
  std::string message;
  /// Processor time.
  double seconds = 0;
};

/// Imports the file at `path` with the default options.
ImportOutcome importOutcome(const std::string &path);

/// Whether an error says where: a byte of the file, a node, tensor or value by name, or a part of
/// the model that there is once.
bool namesAPlace(const std::string &message);

/// Processor seconds that nothing may take longer than. Sanitizers slow everything down.
double maxSeconds();

/// The number in the environment variable `name`, or `otherwise`.
int numberFromEnvironment(const char *name, int otherwise);

} // namespace tbc::test

#endif // TBC_TESTS_HOSTILE_IMPORT_H
