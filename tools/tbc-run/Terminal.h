//===- Terminal.h - Output that fits the terminal ----------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_TERMINAL_H
#define TBC_TOOLS_TBC_RUN_TERMINAL_H

#include <cstdio>
#include <memory>
#include <optional>
#include <streambuf>
#include <string>

namespace tbc::cli {

/// Returns the columns for output: $COLUMNS, else those of the terminal, else 80. Between `least`
/// and 1000.
int outputColumns(int least);

/// Returns the columns of the terminal that stdout is, 80 at least; nullopt if it is none. Output
/// into files and pipes is never folded.
std::optional<int> terminalColumns();

/// Returns the columns of the terminal that stderr is, as outputColumns does; at least 20.
int errorColumns();

/// Returns the first `columns` code points of a line of UTF-8.
std::string firstColumns(const std::string &line, int columns);

/// Folds every line of `text` that is longer than `columns`, at a blank if there is one. The rest
/// of a line is indented by four more than its beginning. Counts code points of UTF-8.
///
/// Example: "  a b c" with 5 columns gives "  a b\n" and "      c".
std::string folded(const std::string &text, int columns);

/// While it lives, holds back what is printed to stdout, by std::cout and by printf; at its end
/// prints it folded to the terminal. Does nothing if stdout is no terminal.
class FittedOutput {
public:
  FittedOutput();
  ~FittedOutput();
  FittedOutput(const FittedOutput &) = delete;
  FittedOutput &operator=(const FittedOutput &) = delete;

private:
  std::optional<int> columns;
  std::FILE *terminal = nullptr;
  char *text = nullptr;
  size_t size = 0;
  std::unique_ptr<std::streambuf> buffer;
  std::streambuf *before = nullptr;
};

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_TERMINAL_H
