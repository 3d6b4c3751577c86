//===- CompileCommand.cpp - tbc compile, tbc program show ------------------------===//

#include "planner/core/Summary.h"
#include "runtime/verify/Verify.h"
#include "tools/driver/Compile.h"
#include "tools/driver/Context.h"
#include "tools/driver/RunManifest.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
#include <memory>

namespace tbc::cli {

using train::programFile;

namespace {

struct Options {
  std::string plan, model, output, program;
};

} // namespace

static Result<int> runCompile(const Options &options) {
  auto text = readFile(options.plan, ErrorCode::Usage);
  if (!text)
    return text.error();
  auto loaded = driver::loadPlan(options.plan, *text, options.model);
  if (!loaded)
    return loaded.error();
  auto compiled = driver::compilePlan(*loaded->step, loaded->plan);
  if (!compiled)
    return compiled.error();
  std::error_code error;
  std::filesystem::create_directories(options.output, error);
  if (error)
    return Error{ErrorCode::Other, "cannot create " + options.output + ": " + error.message()};
  std::string path = (std::filesystem::path(options.output) / programFile).string();
  std::string programText = program::writeProgram(compiled->program);
  auto manifest = driver::makeRunManifest(*loaded->step, loaded->plan, programText, options.output);
  if (!manifest)
    return manifest.error();
  if (Status status = writeFile(path, programText); !status)
    return status.error();
  std::string manifestPath = (std::filesystem::path(options.output) / train::manifestFile).string();
  if (Status status = writeFile(manifestPath, train::writeManifest(*manifest)); !status)
    return status.error();
  std::cout << "wrote " << path << ": " << compiled->program.numStages() << " stage(s), "
            << compiled->program.mesh.numRanks() << " ranks, checked\n";
  for (size_t s = 0; s < compiled->program.stages.size(); ++s)
    std::cout << "  stage " << s << ": an arena of "
              << planner::formatBytes(double(compiled->program.stages[s].memory.arenaBytes))
              << " per rank, predicted "
              << planner::formatBytes(double(planner::programBytes(compiled->predictedMemory[s])))
              << "\n";
  return 0;
}

static Result<int> runShow(const Options &options) {
  std::filesystem::path path = options.program;
  if (std::filesystem::is_directory(path))
    path /= programFile;
  auto text = readFile(path.string(), ErrorCode::Usage);
  if (!text)
    return text.error();
  auto program = program::readProgram(*text);
  if (!program)
    return Error{program.error().code, path.string() + ": " + program.error().message};
  if (Status status = verify::verifyProgram(*program); !status)
    return Error{ErrorCode::Usage, path.string() + ": " + status.error().message};
  std::cout << program::show(*program);
  return 0;
}

void addCompileCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command =
      app.add_subcommand("compile", "Make a plan into the Program that ranks execute");
  auto options = std::make_shared<Options>();
  command->add_option("plan", options->plan, "plan.json")->required();
  command->add_option("--model", options->model, "Model file, if not where the plan says");
  command->add_option("-o,--output", options->output, "Folder to write")->required();
  command->callback(
      [options, setAction] { setAction([options] { return runCompile(*options); }); });
}

void addProgramCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand("program", "Look at a compiled Program");
  command->require_subcommand(1);
  CLI::App *show = command->add_subcommand("show", "Print it as text");
  auto options = std::make_shared<Options>();
  show->add_option("program", options->program, "Folder written by tbc compile, or its file")
      ->required();
  show->callback([options, setAction] { setAction([options] { return runShow(*options); }); });
}

} // namespace tbc::cli
