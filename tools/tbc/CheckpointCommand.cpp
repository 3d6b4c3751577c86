//===- CheckpointCommand.cpp - tbc checkpoint --------------------------------===//

#include "runtime/checkpoint/Checkpoint.h"
#include "tools/driver/TrainedModel.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
#include <memory>

namespace tbc::cli {

namespace {

struct ConsolidateOptions {
  std::string folder, output;
  bool withOptimizer = false;
  std::string model; // path of an ONNX file
  frontend::ImportOptions import;
};

} // namespace

/// Writes the trained model with the weights of the checkpoint at `path`.
static Result<int> writeModel(const ConsolidateOptions &options, const std::string &path) {
  if (options.model.empty() || options.withOptimizer)
    return Error{ErrorCode::Usage, options.model.empty()
                                       ? "an ONNX file needs --model FILE, the one that was trained"
                                       : "an ONNX file has no place for --optimizer"};
  auto opened = checkpoint::Checkpoint::open(path);
  if (!opened)
    return opened.error();
  std::string dataName = std::filesystem::path(options.output).filename().string() + ".data";
  auto trained = driver::trainedModel(options.model, options.import, *opened, dataName);
  if (!trained)
    return trained.error();
  // The data first, so that an existing model file is complete.
  if (!trained->data.empty())
    if (Status status = writeFile(options.output + ".data", trained->data); !status)
      return status.error();
  if (Status status = writeFile(options.output, trained->model); !status)
    return status.error();
  std::cout << "wrote " << options.output << " from " << path << "\n";
  return 0;
}

/// Writes the requested output from the checkpoint at `path`.
static Result<int> consolidateOne(const ConsolidateOptions &options, const std::string &path) {
  if (std::filesystem::path(options.output).extension() == ".onnx")
    return writeModel(options, path);
  if (Status status = checkpoint::consolidate(path, options.output, options.withOptimizer); !status)
    return status.error();
  std::cout << "wrote " << options.output << " from " << path << "\n";
  return 0;
}

/// Runs the command. `folder` is a checkpoint, or holds several; then the newest complete one is
/// used.
static Result<int> runConsolidate(const ConsolidateOptions &options) {
  if (std::filesystem::path(options.output).extension() != ".onnx" && !options.model.empty())
    return Error{ErrorCode::Usage, "--model is for an output that ends in .onnx"};
  std::filesystem::path folder = options.folder;
  if (std::filesystem::exists(folder / "index.json"))
    return consolidateOne(options, options.folder);
  std::vector<int64_t> steps = checkpoint::stepsIn(folder);
  if (steps.empty())
    return Error{ErrorCode::CheckpointUnreadable, options.folder + " has no checkpoint in it"};
  Result<int> newest = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    Result<int> done = consolidateOne(options, (folder / checkpoint::nameOf(steps[i])).string());
    if (done || done.error().code != ErrorCode::CheckpointUnreadable)
      return done;
    if (i == 0)
      newest = done;
    if (i + 1 < steps.size())
      std::cerr << "tbc: warning: " << done.error().message
                << "; trying the checkpoint before it\n";
  }
  return newest;
}

void addCheckpointCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand("checkpoint", "Work on checkpoints");
  command->require_subcommand(1);
  CLI::App *consolidate =
      command->add_subcommand("consolidate", "Join a checkpoint's pieces into one file");
  auto options = std::make_shared<ConsolidateOptions>();
  consolidate
      ->add_option("checkpoint", options->folder, "A checkpoint, or the folder of --checkpoint")
      ->required();
  consolidate
      ->add_option("-o,--output", options->output,
                   "File to write: safetensors, or the trained model where it ends in .onnx")
      ->required();
  consolidate->add_option("--model", options->model, "For .onnx: the model that was trained");
  consolidate->add_option("--tie", options->import.ties, "For .onnx: as for tbc plan");
  consolidate->add_option("--constant", options->import.constants, "For .onnx: as for tbc plan");
  consolidate->add_option("--parameter", options->import.parameters, "For .onnx: as for tbc plan");
  consolidate->add_option("--external-data-root", options->import.externalDataRoot,
                          "For .onnx: as for tbc plan");
  consolidate->add_flag("--optimizer", options->withOptimizer,
                        "Moments and master weights too, not only parameters and states");
  consolidate->callback(
      [options, setAction] { setAction([options] { return runConsolidate(*options); }); });
}

} // namespace tbc::cli
