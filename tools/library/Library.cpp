//===- Library.cpp - tbc as a shared library ----------------------------------===//
//
// A command runs in a thread of its own, so that the caller's thread can poll for Ctrl-C. Commands
// print to std::cout and std::cerr; what that thread prints is the answer, and what others print
// goes where it went.
//
//===----------------------------------------------------------------------===//

#include "tools/library/Library.h"

#include "runtime/abi/Problem.h"
#include "tools/library/FlagTable.h"
#include "tools/tbc-run/HelpFormat.h"
#include "tools/tbc-run/Shell.h"
#include "tools/tbc/Command.h"
#include "tools/tbc/CommandLine.h"
#include "tools/tbc/FindBatch.h"
#include "tools/tbc/Progress.h"

#include <CLI/CLI.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <iostream>
#include <mutex>
#include <streambuf>
#include <thread>

#ifndef TBC_VERSION
#error "TBC_VERSION is set by the build"
#endif

using namespace tbc;

namespace {

/// An answer that owns its texts.
struct OwnedAnswer : TbcAnswer {
  std::string outputText, messageText, errorText;

  void publish() {
    output = outputText.c_str();
    outputSize = int64_t(outputText.size());
    messages = messageText.c_str();
    error = errorText.c_str();
  }
};

/// Keeps what the thread that made it prints to a stream; other threads print as before.
class Captured : public std::streambuf {
public:
  explicit Captured(std::ostream &stream)
      : stream(stream), thread(std::this_thread::get_id()), previous(stream.rdbuf(this)) {}
  ~Captured() override {
    stream.rdbuf(previous);
    stream.clear();
  }
  const std::string &str() const { return text; }

private:
  bool isOurs() const { return std::this_thread::get_id() == thread; }
  int_type overflow(int_type character) override {
    if (traits_type::eq_int_type(character, traits_type::eof()))
      return traits_type::not_eof(character);
    if (!isOurs())
      return previous->sputc(traits_type::to_char_type(character));
    text += traits_type::to_char_type(character);
    return character;
  }
  std::streamsize xsputn(const char *data, std::streamsize size) override {
    if (!isOurs())
      return previous->sputn(data, size);
    text.append(data, size_t(size));
    return size;
  }
  int sync() override { return isOurs() ? 0 : previous->pubsync(); }

  std::string text;
  std::ostream &stream;
  std::thread::id thread;
  std::streambuf *previous;
};

/// The state that the worker and the polling thread share.
struct Exchange {
  std::mutex mutex;
  std::condition_variable changed;
  std::string phase;
  bool isDone = false;
  std::atomic<bool> isStopped{false};
};

/// Sends the phases of commands to an exchange while it lives.
class PhasesTo {
public:
  explicit PhasesTo(Exchange &exchange) {
    cli::setPhaseSink([&exchange](const std::string &phase) {
      std::lock_guard<std::mutex> lock(exchange.mutex);
      exchange.phase = phase;
      return !exchange.isStopped;
    });
  }
  ~PhasesTo() { cli::setPhaseSink({}); }
};

} // namespace

/// Adds the subcommands that plan. Others start ranks or compile, which is the program's part.
static void addCommands(CLI::App &app, const cli::SetAction &setAction) {
  cli::addCheckCommand(app, setAction);
  cli::addClusterCommand(app, setAction);
  cli::addNewCommand(app, setAction);
  cli::addPlanCommand(app, setAction);
  cli::addSizeCommand(app, setAction);
  cli::addExplainCommand(app, setAction);
  cli::addExportCommand(app, setAction);
  cli::addJudgeCommand(app, setAction);
  cli::addReportCommand(app, setAction);
  cli::addTimelineCommand(app, setAction);
  cli::addHelpCommand(app, setAction);
}

/// Parses and runs a command line; its output goes to std::cout.
static Result<int> runWords(const std::vector<std::string> &words) {
  CLI::App app{"Plans how to train an ONNX model on a cluster.", "tbc"};
  app.require_subcommand(1);
  cli::Action action;
  addCommands(app, [&](cli::Action chosen) { action = std::move(chosen); });
  cli::formatHelp(app);
  try {
    cli::parseWords(app, words);
  } catch (const CLI::CallForHelp &request) {
    return app.exit(request);
  } catch (const CLI::ParseError &error) {
    return cli::wrongCommandLine(app, error, words);
  }
  return action();
}

/// Runs a command line with captured streams.
static void runCaptured(const std::vector<std::string> &words, Exchange &exchange,
                        OwnedAnswer &answer) {
  static std::mutex oneAtATime;
  std::lock_guard<std::mutex> lock(oneAtATime);
  Captured output(std::cout), messages(std::cerr);
  PhasesTo phases(exchange);
  try {
    Result<int> code = runWords(words);
    answer.exitCode = code ? *code : int(code.error().code);
    if (!code)
      answer.errorText = withCode(code.error()).message;
  } catch (const cli::StopRequested &) {
    answer.wasStopped = 1;
  } catch (const std::exception &error) { // of libraries: out of memory
    answer.exitCode = int(ErrorCode::Other);
    answer.errorText = problem(Problem::Failed, error.what()).message;
  }
  answer.outputText = output.str();
  answer.messageText = messages.str();
}

/// Polls until the worker is done.
static void pollUntilDone(Exchange &exchange, TbcPoll poll) {
  constexpr auto interval = std::chrono::milliseconds(50);
  std::unique_lock<std::mutex> lock(exchange.mutex);
  while (!exchange.changed.wait_for(lock, interval, [&] { return exchange.isDone; })) {
    const std::string phase = exchange.phase;
    lock.unlock();
    if (poll && poll(phase.c_str()) == 0)
      exchange.isStopped = true;
    lock.lock();
  }
}

const TbcAnswer *tbc_command(int64_t count, const char *const *words, TbcPoll poll) {
  auto *answer = new OwnedAnswer();
  Exchange exchange;
  std::vector<std::string> list(words, words + count);
  std::thread worker([&] {
    runCaptured(list, exchange, *answer);
    std::lock_guard<std::mutex> lock(exchange.mutex);
    exchange.isDone = true;
    exchange.changed.notify_all();
  });
  pollUntilDone(exchange, poll);
  worker.join();
  // A command that ended before it saw the request was stopped too.
  answer->wasStopped |= exchange.isStopped ? 1 : 0;
  answer->publish();
  return answer;
}

void tbc_release(const TbcAnswer *answer) { delete static_cast<const OwnedAnswer *>(answer); }

const char *tbc_flags(void) {
  static const std::string table = [] {
    CLI::App app{"", "tbc"};
    addCommands(app, [](const cli::Action &) {});
    return cli::flagTable(app);
  }();
  return table.c_str();
}

const char *tbc_version(void) { return TBC_VERSION; }

void tbc_set_program(const char *path) { cli::setTrialProgram(path); }
