//===- Terminal.cpp - Output that fits the terminal --------------------------===//

#include "tools/tbc-run/Terminal.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sys/ioctl.h>
#include <unistd.h>

namespace tbc::cli {

constexpr int usualColumns = 80, mostColumns = 1000;

/// Returns the columns of $COLUMNS, else those of the terminal `fd`, else 80.
static int columnsOf(int fd, int least) {
  if (const char *text = std::getenv("COLUMNS"))
    if (int columns = std::atoi(text); columns > 0)
      return std::clamp(columns, least, mostColumns);
  winsize size = {};
  if (isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::clamp(int(size.ws_col), least, mostColumns);
  return std::max(usualColumns, least);
}

int outputColumns(int least) { return columnsOf(STDOUT_FILENO, least); }

int errorColumns() { return columnsOf(STDERR_FILENO, 20); }

std::optional<int> terminalColumns() {
  if (!isatty(STDOUT_FILENO))
    return std::nullopt;
  return outputColumns(usualColumns);
}

/// Returns the bytes of the first `columns` code points of `line`.
static size_t bytesOf(const std::string &line, size_t columns) {
  size_t at = 0;
  for (; at < line.size(); ++at) {
    bool isStart = (static_cast<unsigned char>(line[at]) & 0xc0) != 0x80;
    if (isStart && columns-- == 0)
      break;
  }
  return at;
}

std::string firstColumns(const std::string &line, int columns) {
  return line.substr(0, bytesOf(line, size_t(columns)));
}

static std::string foldedLine(std::string line, size_t columns) {
  std::string text;
  size_t indent = std::min(line.find_first_not_of(' '), line.size());
  std::string margin(std::min(indent + 4, columns / 2), ' ');
  size_t least = indent; // a break may be behind it
  for (size_t end; (end = bytesOf(line, columns)) < line.size(); least = margin.size()) {
    size_t blank = line.rfind(' ', end);
    size_t cut = blank == std::string::npos || blank <= least ? end : blank;
    text += line.substr(0, line.find_last_not_of(' ', cut - 1) + 1) + "\n";
    size_t next = line.find_first_not_of(' ', cut);
    if (next == std::string::npos)
      return text;
    line = margin + line.substr(next);
  }
  return text + line + "\n";
}

std::string folded(const std::string &text, int columns) {
  std::string result;
  for (size_t start = 0; start < text.size();) {
    size_t end = text.find('\n', start);
    if (end == std::string::npos) {
      std::string last = foldedLine(text.substr(start), size_t(columns));
      return result + last.substr(0, last.size() - 1);
    }
    result += foldedLine(text.substr(start, end - start), size_t(columns));
    start = end + 1;
  }
  return result;
}

namespace {
/// Writes to the current stdout of C, unlike the buffer that std::cout begins with.
class StdoutBuffer : public std::streambuf {
  int overflow(int character) override {
    return character == traits_type::eof() ? 0 : std::fputc(character, stdout);
  }
  std::streamsize xsputn(const char *text, std::streamsize count) override {
    return std::streamsize(std::fwrite(text, 1, size_t(count), stdout));
  }
};
} // namespace

FittedOutput::FittedOutput() : columns(terminalColumns()) {
  if (!columns)
    return;
  std::cout.flush();
  std::FILE *memory = open_memstream(&text, &size);
  if (!memory) { // printed as it is
    columns.reset();
    return;
  }
  terminal = stdout;
  stdout = memory;
  buffer = std::make_unique<StdoutBuffer>();
  before = std::cout.rdbuf(buffer.get());
}

FittedOutput::~FittedOutput() {
  if (!columns)
    return;
  std::cout.rdbuf(before);
  std::fclose(stdout);
  stdout = terminal;
  std::cout << folded(std::string(text, size), *columns);
  std::free(text);
}

} // namespace tbc::cli
