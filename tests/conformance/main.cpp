//===- main.cpp - Runs ONNX's backend tests through the interpreter -------===//
//
// conformance [--brief] FOLDER EXCLUDED [KIND [SUBSTRING]]
//
// Prints a line per test (not with --brief), contradictions to EXCLUDED, and the counts. README.md
// beside this file defines them.
//
//===----------------------------------------------------------------------===//

#include "tests/conformance/NodeTest.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fnmatch.h>
#include <fstream>
#include <map>
#include <vector>

using namespace tbc::conformance;
namespace fs = std::filesystem;

namespace {

constexpr int exitSkipped = 77;

/// One pattern of the list of excluded tests.
struct Exclusion {
  std::string pattern, reason;
  int matches = 0;
};

/// Reads sections "[reason]" of patterns KIND/TEST, one per line; "#" starts a comment.
std::vector<Exclusion> readExclusions(const std::string &path) {
  std::ifstream file(path);
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    std::exit(2);
  }
  std::vector<Exclusion> exclusions;
  std::string reason;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#')
      continue;
    if (line.front() == '[' && line.back() == ']') {
      reason = line.substr(1, line.size() - 2);
      continue;
    }
    if (reason.empty()) {
      std::fprintf(stderr, "%s: '%s' has no reason\n", path.c_str(), line.c_str());
      std::exit(2);
    }
    exclusions.push_back({line, reason});
  }
  return exclusions;
}

/// All tests below `folder`, as KIND/TEST.
std::vector<std::string> listTests(const fs::path &folder, const std::string &kind,
                                   const std::string &part) {
  std::vector<std::string> tests;
  for (const fs::directory_entry &group : fs::directory_iterator(folder)) {
    if (!group.is_directory() || (!kind.empty() && group.path().filename() != kind))
      continue;
    for (const fs::directory_entry &test : fs::directory_iterator(group)) {
      std::string name = test.path().filename();
      if (name.find(part) != std::string::npos)
        tests.push_back(group.path().filename().string() + "/" + name);
    }
  }
  std::sort(tests.begin(), tests.end());
  return tests;
}

const char *word(Outcome outcome) {
  return outcome == Outcome::Passed ? "pass" : outcome == Outcome::Refused ? "refused" : "FAILED";
}

/// Contradictions to the list: listed tests that pass, unlisted tests that do not, and patterns
/// without a match.
struct Contradictions {
  std::vector<std::string> lines;

  void check(const std::string &test, const Verdict &verdict, std::vector<Exclusion> &exclusions) {
    // A node with its defaults written out is expected to do the same as without them.
    const std::string spelled = "node-defaults/";
    std::string listed = test.rfind(spelled, 0) == 0 ? "node/" + test.substr(spelled.size()) : test;
    Exclusion *found = nullptr;
    for (Exclusion &exclusion : exclusions)
      if (fnmatch(exclusion.pattern.c_str(), listed.c_str(), 0) == 0) {
        ++exclusion.matches;
        found = &exclusion;
      }
    if (verdict.outcome == Outcome::Passed && found)
      lines.push_back(test + " passes, but is excluded by '" + found->pattern + "': remove that");
    if (verdict.outcome != Outcome::Passed && !found)
      lines.push_back(test + " does not pass and is not excluded: " + verdict.text);
  }
};

} // namespace

int main(int argc, char **argv) {
  bool brief = argc > 1 && std::string(argv[1]) == "--brief";
  if (brief)
    --argc, ++argv;
  if (argc < 3 || argc > 5) {
    std::fprintf(stderr, "usage: conformance [--brief] FOLDER EXCLUDED [KIND [SUBSTRING]]\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  fs::path folder = argv[1];
  std::string kind = argc > 3 ? argv[3] : "", part = argc > 4 ? argv[4] : "";
  const char *ci = std::getenv("CI");
  if (!fs::is_directory(folder)) {
    std::printf("there are no tests in %s; fetch.py makes them\n", argv[1]);
    return ci && std::string(ci) == "true" ? 1 : exitSkipped;
  }
  std::vector<Exclusion> exclusions = readExclusions(argv[2]);
  Contradictions contradictions;
  std::map<Outcome, int> counts;
  std::vector<std::string> tests = listTests(folder, kind, part);
  constexpr unsigned secondsPerTest = 120;
  for (const std::string &test : tests) {
    Verdict verdict = runIsolated(folder / test, secondsPerTest);
    ++counts[verdict.outcome];
    std::string line = verdict.text.substr(0, 300);
    std::replace(line.begin(), line.end(), '\n', ' ');
    if (!brief)
      std::printf("%-8s %s%s%s\n", word(verdict.outcome), test.c_str(), line.empty() ? "" : ": ",
                  line.c_str());
    contradictions.check(test, verdict, exclusions);
  }
  if (part.empty())
    for (const Exclusion &exclusion : exclusions)
      if (exclusion.matches == 0 && (kind.empty() || exclusion.pattern.rfind(kind + "/", 0) == 0))
        contradictions.lines.push_back("'" + exclusion.pattern + "' excludes no test: remove it");

  for (const std::string &line : contradictions.lines)
    std::printf("NOT AS LISTED: %s\n", line.c_str());
  std::printf("%d of %zu %s tests pass, %d refused, %d failed\n", counts[Outcome::Passed],
              tests.size(), kind.empty() ? "ONNX" : kind.c_str(), counts[Outcome::Refused],
              counts[Outcome::Failed]);
  if (tests.empty())
    return 1;
  return contradictions.lines.empty() ? 0 : 1;
}
