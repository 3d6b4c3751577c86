//===- CalibrateCommand.cpp - tbc calibrate ----------------------------------===//

#include "planner/devices/Cluster.h"
#include "runtime/cpu/NativeMachine.h"
#include "runtime/launch/Environment.h"
#include "tools/calibrate/Gpu.h"
#include "tools/tbc-run/NumberFlags.h"
#include "tools/tbc/Command.h"
#include "tools/tbc/FromRun.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <memory>

namespace tbc::cli {

namespace {

struct CalibrateOptions {
  calibrate::Options measured;
  std::string output, name = "this-machine";
  int64_t gpus = 0; // 0: measure the CPUs
  FromRunOptions fromRun;
};

} // namespace

static Result<int> runCalibrate(const CalibrateOptions &options) {
  std::vector<std::string> inputs = options.fromRun.logs;
  inputs.push_back(options.fromRun.plan);
  if (Status status = checkWritable(options.output, inputs); !status)
    return status.error();
  if (!options.fromRun.logs.empty()) {
    FromRunOptions fromRun = options.fromRun;
    fromRun.output = options.output;
    return runFromRun(fromRun);
  }
  if (options.name.find_first_of("\"\\\n") != std::string::npos)
    return Error{ErrorCode::Usage, "--name must not have quotes or backslashes"};
  int64_t ranks = options.gpus ? options.gpus : options.measured.ranks;
  std::cerr << "tbc: measuring with " << ranks << " rank" << (ranks == 1 ? "" : "s")
            << "; let nothing else run meanwhile\n";
  // The same number of threads per rank as `tbc run`.
  calibrate::Options measured = options.measured;
  cpu::NativeOptions native;
  native.threads = int(std::max<int64_t>(1, launch::numCores() / measured.ranks));
  measured.threads = native.threads;
  measured.coreShare = std::min(1.0, double(launch::numCores()) / double(measured.ranks));
  measured.machine = cpu::nativeMachine(native);
  auto measurements = options.gpus
                          ? calibrate::measureGpus({options.gpus, options.measured.isQuick})
                          : calibrate::measure(measured);
  if (!measurements)
    return measurements.error();
  std::string text = calibrate::clusterText(*measurements, options.name);
  // The written text must be readable as a cluster file.
  auto cluster = planner::parseCluster(text, options.output);
  if (!cluster)
    return Error{ErrorCode::Other, "the measurements make no cluster: " + cluster.error().message};
  if (Status status = writeFile(options.output, text); !status)
    return status.error();
  if (options.output != "-")
    std::cout << "wrote " << options.output << ": f32 "
              << cluster->peakFlopsPerSecond.at("f32") / 1e9 << " GFLOP/s, bf16 "
              << cluster->peakFlopsPerSecond.at("bf16") / 1e9 << " GFLOP/s, memory "
              << cluster->memoryBytesPerSecond / 1e9 << " GB/s, network "
              << cluster->intraNode.bytesPerSecond / 1e9 << " GB/s per rank\n";
  return 0;
}

void addCalibrateCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command =
      app.add_subcommand("calibrate", "Measure this machine and write it as a cluster file");
  auto options = std::make_shared<CalibrateOptions>();
  int64_t cores = std::clamp<int64_t>(launch::numCores(), 2, 8);
  options->measured.ranks = cores;
  command->add_option("-o,--output", options->output, "Cluster file to write; -: standard output")
      ->required();
  CLI::Option *ranks =
      command->add_option("--ranks", options->measured.ranks, "How many measure at once")
          ->check(between(2, 64))
          ->capture_default_str();
  CLI::Option *gpus = command
                          ->add_option("--gpus", options->gpus,
                                       "Measure this machine's GPUs, so many, in place of CPUs")
                          ->check(between(1, 64));
  CLI::Option *name =
      command->add_option("--name", options->name, "Of the cluster")->capture_default_str();
  CLI::Option *quick = command->add_flag("--quick", options->measured.isQuick,
                                         "Small sizes only, to try it out: not for planning");
  CLI::Option *logs =
      command->add_option("--from-run", options->fromRun.logs,
                          "Measure nothing: fit the plan's cluster to steps of its run, from logs, "
                          "CSVs of step times or profiles");
  CLI::Option *plan =
      command->add_option("--plan", options->fromRun.plan, "plan.json of that run")->needs(logs);
  command
      ->add_option("--cluster", options->fromRun.cluster,
                   "Cluster file of that plan, if it was no preset")
      ->needs(logs);
  logs->needs(plan);
  for (CLI::Option *measuring : {ranks, gpus, name, quick})
    logs->excludes(measuring);
  command->callback(
      [options, setAction] { setAction([options] { return runCalibrate(*options); }); });
}

} // namespace tbc::cli
