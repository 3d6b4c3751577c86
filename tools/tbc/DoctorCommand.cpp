//===- DoctorCommand.cpp - tbc doctor ----------------------------------------===//

#include "tools/doctor/Doctor.h"
#include "tools/tbc-run/Terminal.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <memory>

namespace tbc::cli {

static Result<int> runDoctor(bool isJson) {
  std::vector<doctor::Finding> findings;
  for (auto examine : {doctor::examineMachine, doctor::examineNetwork, doctor::examineSoftware})
    for (doctor::Finding &finding : examine())
      findings.push_back(std::move(finding));
  for (doctor::Finding &finding : doctor::examineGpus(doctor::gpuLibraries()))
    findings.push_back(std::move(finding));
  if (isJson) {
    std::cout << doctor::jsonOf(findings);
  } else {
    FittedOutput fitted;
    std::cout << doctor::textOf(findings);
  }
  bool isWell = std::none_of(findings.begin(), findings.end(), [](const doctor::Finding &finding) {
    return finding.state == doctor::State::Problem;
  });
  return isWell ? 0 : int(ErrorCode::Other);
}

void addDoctorCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command =
      app.add_subcommand("doctor", "Check what this machine has for training, and what is wrong");
  auto isJson = std::make_shared<bool>(false);
  command->add_flag("--json", *isJson, "Print JSON");
  command->callback([isJson, setAction] { setAction([isJson] { return runDoctor(*isJson); }); });
}

} // namespace tbc::cli
