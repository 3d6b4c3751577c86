//===- output_test.cpp - Damaged plans and Programs, full disks -----------===//

#include "tests/frontend/ModelBuilder.h"
#include "tests/hostile/Import.h"
#include "tests/hostile/Process.h"
#include "tests/hostile/WireMutator.h"

#include "runtime/abi/ProgramFile.h"
#include "runtime/abi/Sha256.h"
#include "runtime/abi/Status.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <fstream>
#include <iostream>
#include <sstream>

using namespace tbc;
using namespace tbc::test;
using ::testing::HasSubstr;

namespace {

const std::string model = TBC_SOURCE_DIR "/models/tiny-mlp.onnx";

std::string readWhole(const std::string &path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string repeated(const std::string &text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i)
    result += text;
  return result;
}

/// Returns `text` with one change: a byte changed, a piece removed or repeated, or a number
/// replaced.
std::string mutateText(const std::string &text, Random &random) {
  std::string changed = text;
  uint64_t at = random.below(text.size());
  switch (random.below(4)) {
  case 0:
    changed[at] = char(random.next());
    return changed;
  case 1:
    return changed.erase(at, 1 + random.below(64));
  case 2:
    return changed.insert(at, text.substr(random.below(text.size()), 1 + random.below(256)));
  default: {
    size_t digit = changed.find_first_of("0123456789", at);
    if (digit == std::string::npos)
      return changed.substr(0, at);
    const char *numbers[] = {"0", "-1", "9223372036854775807", "1e308", "1e999", "null", "0.5"};
    return changed.replace(digit, 1, numbers[random.below(std::size(numbers))]);
  }
  }
}

class HostileInput : public ::testing::Test {
protected:
  void SetUp() override {
    ProcessOutcome plan = tbc({"plan", model, "--gpus", "4", "--batch", "32", "--mesh", "pp=2,dp=2",
                               "--precision", "f32", "-o", "plan.json"});
    ASSERT_EQ(plan.code, 0) << plan.err;
  }
  ProcessOutcome tbc(std::vector<std::string> arguments, const std::string &output = "") {
    arguments.insert(arguments.begin(), TBC_PROGRAM);
    return runProcess(arguments, folder.path(""), output);
  }
  /// Expects exit code 2 within 10 s, with one message that names the file.
  void expectRefused(const ProcessOutcome &outcome, const std::string &file) {
    EXPECT_EQ(outcome.code, int(ErrorCode::Usage)) << outcome.err;
    EXPECT_EQ(outcome.err.rfind("tbc: ", 0), 0u) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(file));
    EXPECT_EQ(outcome.out, "");
    EXPECT_LT(outcome.err.size(), 2000u);
    EXPECT_LT(outcome.seconds, 10);
  }
  TemporaryFolder folder;
};

TEST_F(HostileInput, PlansAreRefused) {
  std::string plan = readWhole(folder.path("plan.json"));
  auto replaced = [&](const std::string &what, const std::string &by) {
    std::string text = plan;
    size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return text.replace(at, what.size(), by);
  };
  const std::pair<const char *, std::string> plans[] = {
      {"empty", ""},
      {"text", "this is not a plan"},
      {"array", "[]"},
      {"number", "1"},
      {"null", "null"},
      {"deep", repeated("[", 1000000)},
      {"deep-object", repeated("{\"a\":", 1000000)},
      {"deep-and-closed", repeated("[", 200000) + repeated("]", 200000)},
      {"deep-version",
       replaced("\"version\": 6", "\"version\": " + repeated("[", 200000) + repeated("]", 200000))},
      {"deep-format", "{\"format\": " + repeated("[", 200000) + repeated("]", 200000) + "}"},
      {"deep-mesh", replaced("\"mesh\": {", "\"mesh\": {\"x\": " + repeated("[", 200000) +
                                                repeated("]", 200000) + ",")},
      {"later", replaced("\"version\": 6", "\"version\": 7")},
      {"version-text", replaced("\"version\": 6", "\"version\": \"1\"")},
      {"not-utf8", replaced("tiny-mlp", "tiny\xff")},
      {"nul", replaced("tiny-mlp", std::string("tiny\0", 5))},
      {"pp-huge", replaced("\"pp\": 2", "\"pp\": 9223372036854775807")},
      {"pp-negative", replaced("\"pp\": 2", "\"pp\": -2")},
      {"pp-infinite", replaced("\"pp\": 2", "\"pp\": 1e999")},
      {"pp-fraction", replaced("\"pp\": 2", "\"pp\": 1.5")},
      {"batch-huge", replaced("\"batch\": 32", "\"batch\": 1099511627776")},
      {"other-model", replaced("\"hash\": \"", "\"hash\": \"0")},
  };
  for (const auto &[name, text] : plans) {
    SCOPED_TRACE(name);
    folder.write("bad.json", text);
    expectRefused(tbc({"verify", "bad.json"}), "bad.json");
  }
}

TEST_F(HostileInput, MutatedPlansAreReadOrRefused) {
  std::string plan = readWhole(folder.path("plan.json"));
  int refused = 0, count = std::max(1, numberFromEnvironment("TBC_MUTATIONS", 200) / 4);
  for (int i = 0; i < count; ++i) {
    SCOPED_TRACE(i);
    Random random(7000 + uint64_t(i));
    folder.write("bad.json", mutateText(plan, random));
    ProcessOutcome outcome = tbc({"explain", "bad.json"});
    if (outcome.code == 0)
      continue;
    ++refused;
    expectRefused(outcome, "bad.json");
  }
  EXPECT_GT(refused, count / 10);
}

TEST_F(HostileInput, MutatedProgramsAreReadOrRefused) {
  ASSERT_EQ(tbc({"compile", "plan.json", "-o", "program"}).code, 0);
  std::string text = readWhole(folder.path("program/program.json"));
  size_t begin = text.find(program::filePayload) + program::filePayload.size();
  ASSERT_LT(begin, text.size());
  std::string payload = text.substr(begin, text.size() - begin - program::fileEnd.size());
  std::string frame(program::fileBegin);
  frame += std::to_string(program::fileVersion) + std::string(program::fileHash);
  int refused = 0, count = std::max(1, numberFromEnvironment("TBC_MUTATIONS", 200) / 4);
  for (int i = 0; i < count; ++i) {
    SCOPED_TRACE(i);
    Random random(9000 + uint64_t(i));
    std::string changed = mutateText(payload, random);
    // The hash is right, so the reader must check the content.
    folder.write("bad.json", frame + sha256Hex(changed) + std::string(program::filePayload) +
                                 changed + std::string(program::fileEnd));
    ProcessOutcome outcome = tbc({"program", "show", "bad.json"});
    if (outcome.code == 0)
      continue;
    ++refused;
    expectRefused(outcome, "bad.json");
  }
  EXPECT_GT(refused, count / 10);
  folder.write("bad.json", text.substr(0, text.size() / 2));
  expectRefused(tbc({"program", "show", "bad.json"}), "bad.json");
}

TEST_F(HostileInput, AResultThatCannotBePrintedIsAFailure) {
  for (const std::vector<std::string> &arguments :
       std::vector<std::vector<std::string>>{{"explain", "plan.json"},
                                             {"check", model},
                                             {"check", model, "--json"},
                                             {"verify", "plan.json", "--residues-only"},
                                             {"plan", model, "--gpus", "4", "-o", "-"}}) {
    SCOPED_TRACE(arguments[0]);
    ProcessOutcome outcome = tbc(arguments, "/dev/full");
    EXPECT_EQ(outcome.code, int(ErrorCode::Other)) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("cannot write to stdout"));
  }
}

/// Uses a file system of one page, in the test's own namespace.
TEST_F(HostileInput, AFullDiskKeepsWhatWasThere) {
  std::string script = folder.write("full.sh", "set -e\n"
                                               "mkdir full\n"
                                               "mount -t tmpfs -o size=4k tmpfs full || exit 77\n"
                                               "echo before > full/plan.json\n"
                                               "set +e\n" TBC_PROGRAM " plan " +
                                                   model +
                                                   " --gpus 4 -o full/plan.json\n"
                                                   "code=$?\n"
                                                   "ls -A full\n"
                                                   "cat full/plan.json\n"
                                                   "exit $code\n");
  ProcessOutcome outcome =
      runProcess({"/usr/bin/unshare", "-rm", "/bin/sh", script}, folder.path(""));
  if (outcome.code == 77 || outcome.err.find("unshare") != std::string::npos)
    GTEST_SKIP() << "no file system can be mounted here: " << outcome.err;
  EXPECT_EQ(outcome.code, int(ErrorCode::Other)) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("full/plan.json: No space left on device"));
  EXPECT_EQ(outcome.out, "plan.json\nbefore\n");
}

} // namespace
