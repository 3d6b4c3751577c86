//===- Say.cpp - Lines for the user beside a progress line -----------------===//

#include "runtime/launch/Say.h"

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <unistd.h>

namespace tbc::launch {

bool canRewriteALine() {
  const char *terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) && terminal && std::strcmp(terminal, "dumb") != 0;
}

void say(const std::string &sentence) {
  const std::string clear = canRewriteALine() ? "\r\033[K" : "";
  std::cerr << clear + "tbc: " + sentence + "\n" << std::flush;
}

} // namespace tbc::launch
