//===- RunSubcommand.cpp - tbc run, tbc checkpoint ---------------------------===//

#include "runtime/checkpoint/Checkpoint.h"
#include "tools/tbc-run/RunCommand.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>

namespace tbc::cli {

void addRunCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand("run", "Train with a compiled Program");
  auto options = addRunOptions(*command);
  command->callback(
      [options, setAction] { setAction([options] { return runProgram(*options); }); });
}

namespace {

struct ConsolidateOptions {
  std::string folder, output;
  bool withOptimizer = false;
};

} // namespace

/// `folder` is a checkpoint, or holds some, of which the latest is meant.
static Result<int> runConsolidate(const ConsolidateOptions &options) {
  std::string path = options.folder;
  if (!std::filesystem::exists(std::filesystem::path(path) / "index.json")) {
    std::optional<std::string> latest = checkpoint::latest(path);
    if (!latest)
      return Error{ErrorCode::CheckpointUnreadable, path + " has no checkpoint in it"};
    path = *latest;
  }
  if (Status status = checkpoint::consolidate(path, options.output, options.withOptimizer); !status)
    return status.error();
  std::cout << "wrote " << options.output << " from " << path << "\n";
  return 0;
}

void addCheckpointCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand("checkpoint", "Work on checkpoints");
  command->require_subcommand(1);
  CLI::App *consolidate = command->add_subcommand(
      "consolidate", "Join a checkpoint's pieces into one safetensors file");
  auto options = std::make_shared<ConsolidateOptions>();
  consolidate
      ->add_option("checkpoint", options->folder, "A checkpoint, or the folder of --checkpoint")
      ->required();
  consolidate->add_option("-o,--output", options->output, "File to write")->required();
  consolidate->add_flag("--optimizer", options->withOptimizer,
                        "Moments and master weights too, not only parameters and states");
  consolidate->callback(
      [options, setAction] { setAction([options] { return runConsolidate(*options); }); });
}

} // namespace tbc::cli
