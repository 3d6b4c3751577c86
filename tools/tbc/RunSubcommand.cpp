//===- RunSubcommand.cpp - tbc run -------------------------------------------===//

#include "planner/plan/PlanFile.h"
#include "runtime/abi/Problem.h"
#include "tools/export/Slurm.h"
#include "tools/tbc-run/RunCommand.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <iostream>

namespace tbc::cli {

/// Plans for devices of more than this are compiled for GPUs. Of CPUs a rank has a few cores.
constexpr double leastGpuFlopsPerSecond = 1e13;

static bool isForGpus(const planner::Cluster &cluster) {
  return std::any_of(cluster.peakFlopsPerSecond.begin(), cluster.peakFlopsPerSecond.end(),
                     [](const auto &peak) { return peak.second > leastGpuFlopsPerSecond; });
}

/// Returns the flags of `command` as given, without `--print-sbatch`. Example: {"--steps", "10"}.
static std::vector<std::string> givenFlags(const CLI::App &command) {
  std::vector<std::string> words;
  for (const CLI::Option *option : command.get_options()) {
    if (option->count() == 0 || option->get_positional() || option->check_lname("print-sbatch"))
      continue;
    words.push_back("--" + option->get_lnames().front());
    if (option->get_items_expected_max() > 0)
      for (const std::string &value : option->results())
        words.push_back(value);
  }
  return words;
}

/// Returns a name that Slurm takes. Example: "runs/my program" gives "my-program".
static std::string jobName(const std::string &program) {
  std::filesystem::path path = std::filesystem::path(program).lexically_normal();
  std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && !std::strchr("_-.", c))
      c = '-';
  return name;
}

/// Prints the batch script that runs `command` under Slurm.
static Result<int> printBatchScript(const CLI::App &command, const RunOptions &options) {
  namespace fs = std::filesystem;
  if (Status status = checkRunFlags(options); !status)
    return status.error();
  exporter::RunJob job;
  job.flags = givenFlags(command);
  job.hasCheckpoint = !options.train.checkpoint.folder.empty();
  // A job that is requeued goes on.
  if (job.hasCheckpoint && !options.train.checkpoint.resumes)
    job.flags.push_back("--resume");
  std::error_code ignored;
  bool isFolder = fs::is_directory(options.program, ignored);
  std::string file =
      isFolder ? (fs::path(options.program) / "plan.json").string() : options.program;
  auto text = readFile(file, ErrorCode::Usage);
  if (!text)
    return text.error();
  auto plan = planner::readPlan(*text, file);
  if (!plan)
    return ofKind(Problem::BadPlan, plan.error());
  if (isFolder) {
    auto loaded = train::loadProgram(options.program);
    if (!loaded)
      return ofKind(Problem::BadProgram, loaded.error());
    job.program = options.program;
    job.isOnGpus = loaded->manifest.target == train::Target::Cuda;
  } else {
    job.plan = file;
    job.program = fs::path(file).replace_extension(".program").string();
    job.isOnGpus = isForGpus(plan->cluster);
  }
  job.name = jobName(job.program);
  auto script = exporter::batchScript(*plan, job);
  if (!script)
    return script.error();
  std::cout << *script;
  return 0;
}

void addRunCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand("run", "Train with a compiled Program");
  auto options = addRunOptions(*command);
  command->option_defaults()->group("Ranks");
  CLI::Option *print = command->add_flag(
      "--print-sbatch",
      "Print a batch script of Slurm that starts this run, and stop; takes plan.json too");
  for (const char *flag : {"--nproc", "--rank", "--ranks", "--init", "--listen"})
    print->excludes(command->get_option(flag));
  command->callback([command, options, print, setAction] {
    bool prints = print->count() > 0;
    setAction([command, options, prints] {
      return prints ? printBatchScript(*command, *options) : runProgram(*options);
    });
  });
}

} // namespace tbc::cli
