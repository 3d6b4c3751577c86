//===- Problem.h - The kinds of problems that users meet -----------------------===//
//
// Plain C++. Every room may use it, as it may use Status.h.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_PROBLEM_H
#define TBC_RUNTIME_ABI_PROBLEM_H

#include "runtime/abi/Status.h"

#include <string>
#include <vector>

namespace tbc {

/// A kind of problem: the exit code of the process times 100, and a number. It is printed behind
/// the message, as in "[TBC0206]"; `tbc help TBC0206` prints its page. A number keeps its meaning.
enum class Problem : int {
#define TBC_PROBLEM(number, name, title, meaning, example, remedy) name = (number),
#include "runtime/abi/Problems.def"
#undef TBC_PROBLEM
};

/// The page of a problem.
struct ProblemPage {
  Problem problem;
  std::string title;   // one line
  std::string meaning; // sentences
  std::string example; // a command, and the message that it prints
  std::string remedy;  // sentences
};

/// Returns the pages of all problems, in the order of their numbers.
const std::vector<ProblemPage> &problemPages();

/// Returns the code of a problem. Example: "TBC0206".
std::string codeOf(Problem problem);

/// Returns the exit code of a problem.
inline ErrorCode exitCodeOf(Problem problem) { return ErrorCode(int(problem) / 100); }

/// Returns an error of this kind: the message, then the code. Example: "plan.json: cannot read it
/// [TBC0205]".
Error problem(Problem kind, const std::string &message);

/// Returns `error` as an error of this kind. An error that has a kind keeps it, and so does one
/// with another exit code.
Error ofKind(Problem kind, Error error);

/// Returns `error` with its code at the end of the message. An error of no special kind has the
/// code of its exit code. Example: "x [TBC0205]; y" becomes "x; y [TBC0205]".
Error withCode(Error error);

} // namespace tbc

#endif // TBC_RUNTIME_ABI_PROBLEM_H
