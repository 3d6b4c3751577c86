//===- CheckpointCommand.cpp - tbc checkpoint --------------------------------===//

#include "planner/support/JsonText.h"
#include "runtime/abi/Problem.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/train/Trainer.h"
#include "tools/driver/TrainedFolder.h"
#include "tools/driver/TrainedModel.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <iostream>
#include <memory>

namespace tbc::cli {

namespace {

struct ConsolidateOptions {
  std::string folder, output;
  std::string like, program; // a folder of Hugging Face, and a compiled Program
  bool withOptimizer = false, json = false;
  std::string model; // path of an ONNX file
  frontend::ImportOptions import;
};

} // namespace

/// Prints the answer for the output that was written from the checkpoint at `path`. `counts`: with
/// --like, the tensors of the folder.
static void say(const ConsolidateOptions &options, const std::string &path, const char *kind,
                const driver::FolderCounts *counts = nullptr) {
  if (options.json) {
    nlohmann::json answer = {{"format", "tbc-checkpoint"},
                             {"version", 1},
                             {"checkpoint", path},
                             {"output", options.output},
                             {"kind", kind}};
    if (counts)
      answer["tensors"] = {{"all", counts->all}, {"trained", counts->trained}};
    std::cout << planner::jsonText(answer);
    return;
  }
  std::cout << "wrote " << options.output << " from " << path;
  if (counts)
    std::cout << ": " << counts->trained << " of " << counts->all
              << " tensors trained, the others as in " << options.like;
  std::cout << "\n";
}

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
  say(options, path, "onnx");
  return 0;
}

/// Writes a folder like the pretrained one, with the weights of the checkpoint at `path`.
static Result<int> writeFolder(const ConsolidateOptions &options, const std::string &path) {
  auto program = train::loadProgram(options.program);
  if (!program)
    return ofKind(Problem::BadProgram, program.error());
  auto opened = checkpoint::Checkpoint::open(path);
  if (!opened)
    return opened.error();
  auto counts =
      driver::writeTrainedFolder(options.like, program->manifest, *opened, options.output);
  if (!counts)
    return counts.error();
  say(options, path, "folder", &*counts);
  return 0;
}

/// Writes the requested output from the checkpoint at `path`.
static Result<int> consolidateOne(const ConsolidateOptions &options, const std::string &path) {
  if (!options.like.empty())
    return writeFolder(options, path);
  if (std::filesystem::path(options.output).extension() == ".onnx")
    return writeModel(options, path);
  if (Status status = checkpoint::consolidate(path, options.output, options.withOptimizer); !status)
    return status.error();
  say(options, path, "safetensors");
  return 0;
}

/// Runs the command. `folder` is a checkpoint, or holds several; then the newest complete one is
/// used.
static Result<int> runConsolidate(const ConsolidateOptions &options) {
  if (options.like.empty()) {
    if (Status status = checkWritable(options.output, {options.model}); !status)
      return status.error();
    if (Status status = checkReplaceable(options.output); !status)
      return status.error();
  }
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
                   "File to write: safetensors, or the trained model where it ends in .onnx; with "
                   "--like a folder")
      ->required();
  consolidate->add_option("--model", options->model, "For .onnx: the model that was trained");
  consolidate->add_option("--tie", options->import.ties, "For .onnx: as for tbc plan");
  consolidate->add_option("--constant", options->import.constants, "For .onnx: as for tbc plan");
  consolidate->add_option("--parameter", options->import.parameters, "For .onnx: as for tbc plan");
  consolidate->add_option("--external-data-root", options->import.externalDataRoot,
                          "For .onnx: as for tbc plan");
  CLI::Option *like = consolidate->add_option(
      "--like", options->like,
      "Write a folder with the names, shapes and types of these safetensors, and with the config "
      "beside them: a file, an index, or a folder of Hugging Face");
  CLI::Option *program = consolidate->add_option(
      "--program", options->program, "With --like: the compiled Program that was trained");
  like->needs(program)->excludes(consolidate->get_option("--model"));
  program->needs(like);
  consolidate
      ->add_flag("--optimizer", options->withOptimizer,
                 "Moments and master weights too, not only parameters and states")
      ->excludes(like);
  consolidate->add_flag("--json", options->json, "Answer as JSON");
  consolidate->callback(
      [options, setAction] { setAction([options] { return runConsolidate(*options); }); });
}

} // namespace tbc::cli
