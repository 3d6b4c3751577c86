//===- StepOutput.cpp - Outputs of a run's step reports -----------------------===//

#include "tools/tbc-run/StepOutput.h"

#include "runtime/abi/Problem.h"
#include "runtime/launch/Say.h"

#include <cerrno>
#include <cstring>
#include <iostream>

namespace tbc::cli {

constexpr const char *printed = "stdout";

Status StepOutput::begin(int64_t done, int64_t lastStep) {
  steps = lastStep;
  if (done >= lastStep)
    launch::say("the newest checkpoint is of step " + std::to_string(done) + ", so no step of " +
                std::to_string(lastStep) +
                " is left: --steps and --epochs count from the first step");
  else if (done > 0)
    launch::say("going on after step " + std::to_string(done));
  else if (options.checkpoint.resumes)
    launch::say("no checkpoint in " + options.checkpoint.folder + ", beginning at step 1");
  if (!options.logFile.empty()) {
    auto opened = train::JsonLog::open(options.logFile, done);
    if (!opened)
      return opened.error();
    log = std::move(*opened);
  }
  if (!options.eventFolder.empty()) {
    auto opened = train::EventFile::create(options.eventFolder, done);
    if (!opened)
      return opened.error();
    events = std::move(*opened);
  }
  bar.emplace(done, steps);
  phase.setPhase("step " + std::to_string(done + 1) + " of " + std::to_string(steps));
  return Status::ok();
}

/// Says at once after `step` that `where` cannot be written, with the reason in errno.
void StepOutput::fail(const std::string &where, int64_t step) {
  const std::string why = errno != 0 ? std::string(": ") + std::strerror(errno) : "";
  if (!full.empty())
    return;
  launch::say("could not write all of " + where + why +
              (step < steps ? "; the run ends after step " + std::to_string(step + 1) : ""));
  full = where;
}

void StepOutput::put(int64_t step, const std::string &line, const std::string &json,
                     const std::vector<train::Scalar> &scalars) {
  clear();
  errno = 0;
  if (!(std::cout << (printsJson ? json : line + "\n") << std::flush))
    fail(printed, step);
  if (log && !log.write(json))
    fail("--log " + options.logFile, step);
  if (events && !events.write(step, scalars))
    fail("--tensorboard " + options.eventFolder, step);
  bar->show(step);
}

void StepOutput::report(const train::StepReport &report) {
  put(report.step, lineOf(report, steps, hasTokens), jsonOf(report, hasTokens),
      scalarsOf(report, hasTokens));
}

void StepOutput::report(const train::EvaluationReport &report) {
  put(report.step, lineOf(report, steps), jsonOf(report), scalarsOf(report));
}

void StepOutput::clear() {
  phase.finish();
  if (bar)
    bar->clear();
}

Status StepOutput::end() {
  clear();
  if (full.empty() && std::cout) // the tables at the end go there, too
    return Status::ok();
  if (full.empty() || full == printed)
    return problem(Problem::CannotPrint, "could not write all of stdout");
  return Error{ErrorCode::Other, "could not write all of " + full};
}

} // namespace tbc::cli
