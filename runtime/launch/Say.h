//===- Say.h - Lines for the user beside a progress line -------------------===//
//
// Part of tbc. Plain C++ on POSIX. One rank shows its progress in the last line of a terminal, and
// any process of the job may have something to say meanwhile.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_LAUNCH_SAY_H
#define TBC_RUNTIME_LAUNCH_SAY_H

#include <string>

namespace tbc::launch {

/// Whether stderr is a terminal on which a line can be rewritten.
bool canRewriteALine();

/// Writes "tbc: `sentence`" as a line to stderr, in one write, so that lines of several ranks do
/// not mix. On a terminal it takes the place of the progress line, which its rank writes again.
void say(const std::string &sentence);

} // namespace tbc::launch

#endif // TBC_RUNTIME_LAUNCH_SAY_H
