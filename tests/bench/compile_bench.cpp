//===- compile_bench.cpp - Time to compile a plan -------------------------===//
//
// Run: ninja -C build compile-bench && build/bin/compile-bench [MODEL MESH [SECONDS [GIB]]]
//
// Imports MODEL (default models/gpt2.onnx; weights are not read), plans it on MESH (default fsdp=8)
// and compiles that plan to a checked Program, as `tbc compile` does from the file. Prints the
// processor seconds of each part and the peak memory. Exit code 1 if import and compilation take
// SECONDS (default 10) or more, or GIB (default 4) or more.
//
//===----------------------------------------------------------------------===//

#include "planner/search/Search.h"
#include "tools/driver/Compile.h"
#include "tools/driver/Context.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <sys/resource.h>

using namespace tbc;

namespace {

/// Processor time, so other work on the machine does not count.
double seconds(std::clock_t since) { return double(std::clock() - since) / CLOCKS_PER_SEC; }

double peakGiB() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_maxrss) / (1 << 20); // from KiB
}

Result<planner::Plan> plan(const driver::TrainingStep &step, const std::string &mesh) {
  planner::Pins pins;
  auto sizes = planner::parseMesh(mesh);
  if (!sizes)
    return sizes.error();
  pins.mesh = *sizes;
  planner::Job job;
  job.stepHash = step.hash;
  job.precision = *step.options.precision;
  job.optimizer = step.options.optimizer;
  job.settings = step.options.settings;
  job.sequence = step.model.seq;
  for (const auto &[axis, size] : *sizes)
    job.gpus *= size;
  job.globalBatch = 2 * job.gpus;
  auto cluster = planner::loadCluster("h100-sxm");
  if (!cluster)
    return cluster.error();
  auto answer = planner::search(step.step.graph, job, *cluster, pins);
  if (!answer)
    return answer.error();
  return answer->plan;
}

int fail(const Error &error) {
  std::fprintf(stderr, "compile-bench: %s\n", error.message.c_str());
  return 2;
}

} // namespace

int main(int argc, char **argv) {
  if (argc == 2 || argc > 5) {
    std::fprintf(stderr, "usage: compile-bench [MODEL MESH [SECONDS [GIB]]]\n");
    return 2;
  }
  driver::StepOptions options;
  options.modelPath = argc > 2 ? argv[1] : TBC_SOURCE_DIR "/models/gpt2.onnx";
  options.precision = planner::Precision::BF16;
  const char *mesh = argc > 2 ? argv[2] : "fsdp=8";
  double secondsLimit = argc > 3 ? std::atof(argv[3]) : 10;
  double gibLimit = argc > 4 ? std::atof(argv[4]) : 4;

  auto context = driver::makeContext();
  auto importing = std::clock();
  auto step = driver::buildTrainingStep(*context, options);
  if (!step)
    return fail(step.error());
  double importSeconds = seconds(importing);
  auto planning = std::clock();
  auto chosen = plan(**step, mesh);
  if (!chosen)
    return fail(chosen.error());
  std::printf("import %.2f s, planning %.2f s (not counted), ", importSeconds, seconds(planning));
  auto compiling = std::clock();
  auto compiled = driver::compilePlan(**step, *chosen);
  if (!compiled)
    return fail(compiled.error());
  double compileSeconds = seconds(compiling);
  std::printf("compilation %.2f s, peak %.2f GiB; %d stage(s), %lld ranks\n", compileSeconds,
              peakGiB(), compiled->program.numStages(),
              (long long)compiled->program.mesh.numRanks());
  bool isFast = importSeconds + compileSeconds < secondsLimit && peakGiB() < gibLimit;
  std::printf("%s %g s and %g GiB\n", isFast ? "within" : "NOT within", secondsLimit, gibLimit);
  return isFast ? 0 : 1;
}
