//===- ProgramCommand.cpp - tbc program show -----------------------------------===//

#include "planner/plan/PlanFile.h"
#include "runtime/abi/Problem.h"
#include "runtime/abi/Seal.h"
#include "runtime/train/Manifest.h"
#include "runtime/verify/Verify.h"
#include "tools/driver/OpCost.h"
#include "tools/tbc-run/Terminal.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

namespace tbc::cli {

namespace {

struct Options {
  std::string program, cluster;
  bool roofline = false;
  roofline::TableOptions table;
};

/// The files of a Program, from its folder or from program.json alone.
struct Files {
  std::string path; // path of program.json
  std::string program;
  std::optional<std::string> plan, kernels;
};

} // namespace

static Result<Files> readFiles(const std::string &given) {
  std::filesystem::path path = given;
  if (!std::filesystem::is_directory(path)) {
    auto text = readFile(given, ErrorCode::Usage);
    if (!text)
      return text.error();
    return Files{given, *text, std::nullopt, std::nullopt};
  }
  auto folder = program::SealedFolder::open(given);
  if (!folder)
    return folder.error();
  Files files;
  files.path = (path / train::programFile).string();
  auto text = folder->text(train::programFile);
  if (!text)
    return text.error();
  files.program = *text;
  for (auto [name, to] : {std::pair(program::planFile, &files.plan),
                          std::pair(program::cudaKernelsFile, &files.kernels)}) {
    if (!folder->has(name))
      continue;
    auto found = folder->text(name);
    if (!found)
      return found.error();
    *to = *found;
  }
  return files;
}

/// Returns the cluster named by the flag, else that of the plan in the Program's folder.
static Result<planner::Cluster> clusterOf(const Options &options, const Files &files) {
  if (!options.cluster.empty()) {
    auto cluster = planner::loadCluster(options.cluster);
    return cluster ? cluster : ofKind(Problem::BadCluster, cluster.error());
  }
  if (!files.plan)
    return Error{ErrorCode::Usage, files.path + " has no plan.json beside it that names a cluster; "
                                                "name one: --cluster h100-sxm"};
  auto plan = planner::readPlan(*files.plan, program::planFile);
  if (!plan)
    return plan.error();
  return plan->cluster;
}

static Result<int> showRoofline(const Options &options, const Files &files,
                                const program::Program &program) {
  auto cluster = clusterOf(options, files);
  if (!cluster)
    return cluster.error();
  if (cluster->isMixed())
    return Error{ErrorCode::Usage, "cluster " + cluster->name +
                                       " has devices of several types; name the one to look at: "
                                       "--cluster h100-sxm"};
  std::optional<program::CudaKernels> kernels;
  if (files.kernels) {
    auto list = program::readCudaKernels(*files.kernels);
    if (!list)
      return list.error();
    kernels = *list;
  }
  roofline::Machine machine{*cluster, roofline::processorOf(*cluster)};
  driver::OpCosts costs;
  auto estimates =
      roofline::estimate(program, kernels ? &*kernels : nullptr, machine,
                         [&](const program::Stage &stage, const program::Instruction &instruction) {
                           return costs.of(stage, instruction);
                         });
  if (!estimates)
    return Error{estimates.error().code, files.path + ": " + estimates.error().message};
  FittedOutput fitted;
  std::cout << roofline::tableOf(program, *estimates, machine, kernels.has_value(), options.table);
  return 0;
}

static Result<int> runShow(const Options &options) {
  auto files = readFiles(options.program);
  if (!files)
    return files.error();
  auto program = program::readProgram(files->program);
  if (!program)
    return Error{program.error().code, files->path + ": " + program.error().message};
  if (Status status = verify::verifyProgram(*program); !status)
    return Error{ErrorCode::Usage, files->path + ": " + status.error().message};
  if (options.roofline)
    return showRoofline(options, *files, *program);
  std::cout << program::show(*program);
  return 0;
}

void addProgramCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand("program", "Look at a compiled Program");
  command->require_subcommand(1);
  CLI::App *show = command->add_subcommand("show", "Print it as text");
  auto options = std::make_shared<Options>();
  show->add_option("program", options->program, "Folder written by tbc compile, or its file")
      ->required();
  CLI::Option *roofline = show->add_flag(
      "--roofline", options->roofline,
      "Print the kernels of a step instead, with the seconds that each takes at least");
  show->add_option("--cluster", options->cluster,
                   "With --roofline: preset or file of the devices (default: that of the plan)")
      ->needs(roofline);
  show->add_flag("--all", options->table.all, "With --roofline: a row per launch, not per kind")
      ->needs(roofline);
  show->add_flag("--json", options->table.json, "With --roofline: as JSON")->needs(roofline);
  show->callback([options, setAction] { setAction([options] { return runShow(*options); }); });
}

} // namespace tbc::cli
