//===- StepOutput.cpp - Outputs of a run's step reports -----------------------===//

#include "tools/tbc-run/StepOutput.h"

#include <iostream>

namespace tbc::cli {

Status StepOutput::begin(int64_t done, int64_t lastStep) {
  steps = lastStep;
  if (done >= lastStep)
    std::cerr << "tbc: the newest checkpoint is of step " << done << ", so no step of " << lastStep
              << " is left: --steps and --epochs count from the first step\n";
  else if (done > 0)
    std::cerr << "tbc: going on after step " << done << "\n";
  else if (options.checkpoint.resumes)
    std::cerr << "tbc: no checkpoint in " << options.checkpoint.folder << ", beginning at step 1\n";
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
  return Status::ok();
}

void StepOutput::put(int64_t step, const std::string &line, const std::string &json,
                     const std::vector<train::Scalar> &scalars) {
  bar->clear();
  std::cout << (printsJson ? json : line + "\n") << std::flush;
  bar->show(step);
  if (log && !log.write(json))
    full = "--log " + options.logFile;
  if (events && !events.write(step, scalars))
    full = "--tensorboard " + options.eventFolder;
}

void StepOutput::report(const train::StepReport &report) {
  put(report.step, lineOf(report, steps, hasTokens), jsonOf(report, hasTokens),
      scalarsOf(report, hasTokens));
}

void StepOutput::report(const train::EvaluationReport &report) {
  put(report.step, lineOf(report, steps), jsonOf(report), scalarsOf(report));
}

Status StepOutput::end() {
  if (bar)
    bar->clear();
  if (full.empty())
    return Status::ok();
  return Error{ErrorCode::Other, "could not write all of " + full};
}

} // namespace tbc::cli
