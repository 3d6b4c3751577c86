//===- VerifyCommand.cpp - tbc verify --------------------------------------------===//

#include "frontend/onnx/NotFinite.h"
#include "planner/search/Search.h"
#include "runtime/abi/Problem.h"
#include "runtime/train/Trainer.h"
#include "tools/driver/Context.h"
#include "tools/driver/VerifyKernels.h"
#include "tools/tbc-run/NumberFlags.h"
#include "tools/tbc-run/Terminal.h"
#include "tools/tbc/Command.h"
#include "tools/tbc/Progress.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>

namespace tbc::cli {

using driver::KernelLine;
using driver::KernelSizes;
using Json = nlohmann::ordered_json;

namespace {

struct Options {
  std::string path, model, budgetMemory = "8GiB";
  driver::VerifyOptions verify;
  bool residuesOnly = false, full = false, listsKernels = false, isJson = false;
  driver::ShrinkOptions shrink;
  int64_t budgetSeconds = 60;
};

/// A plan, and its compiled Program if that is verified.
struct Subject {
  driver::LoadedPlan loaded;
  std::optional<train::LoadedProgram> program;
};

/// The results of all checks.
struct Findings {
  std::vector<std::string> seal, shrunk, notes; // a sentence each
  std::string mesh;
  int steps = 0;
  driver::VerifyReport report;
  std::vector<KernelLine> kernels;

  bool passed() const {
    return report.passed() && std::none_of(kernels.begin(), kernels.end(), [](const auto &line) {
             return !line.comparison.difference.empty();
           });
  }
};

} // namespace

/// Compares the Program's source files with its seal.
static Status checkSources(const program::SealedFolder &files, const std::string &model) {
  for (const program::FileSeal &source : files.seal().sources) {
    bool isModel = &source == &files.seal().sources.front();
    std::filesystem::path path = std::filesystem::path(files.folder()) / source.path;
    if (isModel && !model.empty())
      path = model;
    auto file = program::OpenFile::open(path.lexically_normal().string());
    if (!file)
      return Error{ErrorCode::Usage, file.error().message + " (the Program was made from it" +
                                         (isModel ? "; name it with --model)" : ")")};
    auto why = program::differenceFrom(source, *file);
    if (!why)
      return why.error();
    if (!why->empty())
      return Error{ErrorCode::Usage, file->path() +
                                         " has changed since the Program was compiled: " + *why +
                                         "; compile again"};
  }
  return Status::ok();
}

/// Opens the Program in a folder with its plan and model.
static Result<Subject> openFolder(const Options &options, Findings &findings) {
  auto program = train::loadProgram(options.path);
  if (!program)
    return ofKind(Problem::BadProgram, program.error());
  const program::Seal &seal = program->files.seal();
  if (Status status = checkSources(program->files, options.model); !status)
    return status.error();
  findings.seal.push_back(std::to_string(seal.files.size()) + " files and " +
                          std::to_string(seal.sources.size()) +
                          " that they were made from are as tbc compile left them");
  auto text = program->files.text(program::planFile);
  if (!text)
    return text.error();
  std::filesystem::path folder = options.path;
  std::string model = options.model;
  if (model.empty() && !seal.sources.empty())
    model = (folder / seal.sources.front().path).lexically_normal().string();
  std::string planPath = (folder / program::planFile).string();
  auto loaded = driver::loadPlan(planPath, *text, model);
  if (!loaded)
    return loaded.error();
  if (Status status = driver::checkExecutor(*loaded, planPath); !status)
    return status.error();
  if (Status status = driver::checkPredictions(*loaded, planPath); !status)
    return status.error();
  return Subject{std::move(*loaded), std::move(*program)};
}

static Result<Subject> openPlan(const Options &options) {
  auto text = readFile(options.path, ErrorCode::Usage);
  if (!text)
    return text.error();
  auto loaded = driver::loadPlan(options.path, *text, options.model);
  if (!loaded)
    return loaded.error();
  if (Status status = driver::checkExecutor(*loaded, options.path); !status)
    return status.error();
  if (Status status = driver::checkPredictions(*loaded, options.path); !status)
    return status.error();
  return Subject{std::move(*loaded), std::nullopt};
}

/// The same Program without the kernels of a target. Regions of several instructions stay: the
/// memory plan has no place for values inside of them.
static program::Program withoutKernels(program::Program program) {
  for (program::Stage &stage : program.stages)
    for (program::BlockId id : stage.blocks()) {
      std::vector<program::Region> planned;
      for (const program::Region &region : stage.block(id).regions)
        if (region.count > 1)
          planned.push_back({region.first, region.count, "", 0});
      stage.block(id).regions = planned;
    }
  return program;
}

/// The executed Program: the given one, or one compiled from a plan.
struct Executed {
  program::Program program;
  driver::ProgramKernels kernels;
  bool hasKernels = false; // the kernels of a run work on this machine
};

static Result<Executed> prepare(const Subject &subject, driver::TrainingStep &step,
                                const planner::Plan &plan, bool isAsIs, bool residuesOnly,
                                Findings &findings) {
  Executed executed;
  executed.kernels.comparisons =
      std::make_shared<cpu::KernelComparisons>(driver::comparedExecutions);
  if (!subject.program || !isAsIs) {
    auto compiled =
        residuesOnly ? driver::compilePlan(step, plan) : driver::compileForThisMachine(step, plan);
    if (!compiled)
      return compiled.error();
    if (!residuesOnly) {
      auto kernels = driver::compileHere(*compiled);
      if (!kernels)
        return kernels.error();
      executed.kernels.compiled = kernels->compiled;
      executed.hasKernels = true;
    }
    executed.program = std::move(compiled->program);
    return executed;
  }
  executed.program = subject.program->program;
  if (residuesOnly)
    return executed;
  if (subject.program->manifest.target == train::Target::Cuda) {
    findings.notes.emplace_back("kernels for GPUs: not run here");
    return executed;
  }
  auto kernels = cpu::compiledKernelsOf(executed.program, subject.program->files,
                                        subject.program->manifest.programHash);
  if (!kernels)
    return kernels.error();
  executed.kernels.compiled = *kernels;
  executed.hasKernels = true;
  return executed;
}

/// Returns the CPU seconds of this process.
static double cpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

/// Returns the arena bytes of all ranks.
static double arenaBytes(const program::Program &program) {
  double bytes = 0;
  for (const program::Stage &stage : program.stages)
    bytes += double(stage.memory.arenaBytes + stage.memory.hostArenaBytes);
  return bytes * double(program.mesh.numRanks()) / double(program.numStages());
}

/// Checks that the Program equals the one compiled from its plan, because a shrunk proof covers
/// only that one.
static Status checkIsOfItsPlan(const Subject &subject) {
  // Kernels for GPUs are joined over several planned ones.
  cuda::CudaTarget target;
  target.allowsHostOps = true;
  bool isCuda = subject.program->manifest.target == train::Target::Cuda;
  auto compiled = driver::compilePlan(*subject.loaded.step, subject.loaded.plan, nullptr,
                                      isCuda ? &target : nullptr);
  if (!compiled)
    return compiled.error();
  if (program::writeProgram(withoutKernels(compiled->program)) ==
      program::writeProgram(withoutKernels(subject.program->program)))
    return Status::ok();
  return Error{ErrorCode::VerificationFailed,
               subject.program->folder +
                   "/program.json is not what this tbc makes of its plan.json: it was changed, or "
                   "another tbc compiled it; compile again"};
}

/// Refuses a model whose weights or constants have NaN: nothing can be compared with it.
static Status checkHasNoNan(const frontend::ImportedModel &model) {
  std::vector<frontend::NotFinite> faults = frontend::notFiniteTensors(model);
  faults.erase(std::remove_if(faults.begin(), faults.end(),
                              [](const frontend::NotFinite &tensor) { return !tensor.isNan; }),
               faults.end());
  if (faults.empty())
    return Status::ok();
  return Error{ErrorCode::ModelRejected, frontend::textOf(faults) +
                                             ", so no result can be compared; export the model "
                                             "again with finite numbers"};
}

static Result<Findings> verifySubject(const Options &options) {
  Progress progress("importing the model");
  Findings findings;
  auto subject = std::filesystem::is_directory(options.path) ? openFolder(options, findings)
                                                             : openPlan(options);
  if (!subject)
    return subject.error();
  auto budgetBytes = planner::parseBytes(options.budgetMemory);
  if (!budgetBytes)
    return Error{ErrorCode::Usage, "--budget-memory: " + budgetBytes.error().message};
  driver::TrainingStep *step = subject->loaded.step.get();
  const planner::Plan *plan = &subject->loaded.plan;
  if (Status status = checkHasNoNan(step->model); !status)
    return status.error();
  driver::Shrunk shrunk;
  if (!options.full) {
    auto small = driver::shrink(*step, *plan, options.shrink);
    if (!small)
      return small.error();
    shrunk = std::move(*small);
    step = shrunk.step.get();
    plan = &shrunk.plan;
    findings.shrunk = shrunk.notes;
  }
  progress.setPhase("compiling the program");
  const bool isAsIs = findings.shrunk.empty();
  if (subject->program)
    if (Status status = checkIsOfItsPlan(*subject); !status)
      return status.error();
  auto executed = prepare(*subject, *step, *plan, isAsIs, options.residuesOnly, findings);
  if (!executed)
    return executed.error();
  if (arenaBytes(executed->program) > double(*budgetBytes) && !options.full)
    return Error{ErrorCode::Usage, "the ranks' arenas take more than --budget-memory " +
                                       options.budgetMemory +
                                       " together; allow more, or fewer "
                                       "ranks with --ranks"};
  progress.setPhase("running all ranks and the serial program");
  driver::VerifyOptions verify = options.verify;
  verify.floats = !options.residuesOnly;
  if (executed->hasKernels)
    verify.machines = executed->kernels.machines();
  auto report = driver::verifyProgram(*step, *plan, executed->program, verify);
  if (!report)
    return report.error();
  findings.report = std::move(*report);
  findings.mesh = planner::toString(plan->mesh);
  findings.steps = verify.steps;
  for (cpu::KernelComparison &one : executed->kernels.comparisons->list())
    findings.kernels.push_back({std::move(one), isAsIs ? KernelSizes::AsIs : KernelSizes::Shrunk});
  if (options.residuesOnly)
    return findings;
  if (plan->job.matmulPrecision == planner::MatmulPrecision::Fp8)
    findings.notes.emplace_back("matmuls in fp8: not rounded here, compared in their own types");
  progress.setPhase("comparing kernels of other sizes");
  auto mayGoOn = [&] { return cpuSeconds() < double(options.budgetSeconds); };
  auto others = driver::verifyOtherSizes(
      *subject->loaded.step, subject->loaded.plan, options.shrink, verify.seed,
      findings.report.range.value_or(driver::InputRange()), mayGoOn, findings.notes);
  if (!others)
    return others.error();
  findings.kernels.insert(findings.kernels.end(), others->begin(), others->end());
  return findings;
}

//===----------------------------------------------------------------------===//
// Findings
//===----------------------------------------------------------------------===//

static const char *nameOf(cpu::KernelComparison::Kind kind) {
  switch (kind) {
  case cpu::KernelComparison::Kind::Native:
    return "native";
  case cpu::KernelComparison::Kind::Compiled:
    return "compiled";
  case cpu::KernelComparison::Kind::Reference:
    return "reference";
  }
  return "";
}

/// Prints the verdict on one kind of comparison, and the first tensors that differ.
static void printComparisons(const char *title, const std::vector<driver::Comparison> &lines,
                             bool floats) {
  size_t equal = 0;
  double worst = 0;
  for (const driver::Comparison &line : lines) {
    equal += line.equal;
    if (floats && line.bound > 0)
      worst = std::max(worst, line.error / line.bound);
  }
  std::printf("%-9s %zu of %zu tensors %s", title, equal, lines.size(),
              floats ? "within their bound" : "equal bit for bit");
  if (floats)
    std::printf(" (worst at %.2f of it)", worst);
  std::printf("\n");
  int shown = 0;
  for (const driver::Comparison &line : lines)
    if (!line.equal && shown++ < 10) {
      if (floats)
        std::printf("  differs: %s, error %.3g, bound %.3g\n", line.name.c_str(), line.error,
                    line.bound);
      else
        std::printf("  differs: %s\n", line.name.c_str());
    }
}

/// Prints, for example, "kernels   31 of 31 agree with the reference kernels, as is", and the
/// kernels that differ.
static void printKernels(const std::vector<KernelLine> &lines, KernelSizes sizes, bool listsAll) {
  size_t agree = 0, count = 0;
  for (const KernelLine &line : lines)
    if (line.sizes == sizes) {
      ++count;
      agree += line.comparison.difference.empty();
    }
  if (count == 0)
    return;
  std::printf("kernels   %zu of %zu agree with the reference kernels, %s\n", agree, count,
              driver::name(sizes));
  int shown = 0;
  for (const KernelLine &line : lines) {
    const cpu::KernelComparison &one = line.comparison;
    if (line.sizes == sizes && listsAll)
      std::printf("  %-9s x%-3lld %8.2g  %s\n", nameOf(one.kind), (long long)one.count, one.worst,
                  one.name.c_str());
    if (line.sizes == sizes && !one.difference.empty() && shown++ < 10)
      std::printf("  differs: %s: the %s kernel (%s): %s\n", one.place.c_str(), nameOf(one.kind),
                  one.name.c_str(), one.difference.c_str());
  }
}

static void print(const Options &options, const Findings &findings) {
  FittedOutput fitted;
  for (const std::string &line : findings.seal)
    std::printf("seal      %s\n", line.c_str());
  if (!findings.shrunk.empty())
    std::printf("shrunk for this check, structure kept (--full: do not):\n");
  for (const std::string &note : findings.shrunk)
    std::printf("  %s\n", note.c_str());
  const driver::VerifyReport &report = findings.report;
  std::printf("%s on %lld ranks against the serial program, %d steps\n", findings.mesh.c_str(),
              (long long)report.ranks, findings.steps);
  printComparisons("residues", report.residues, false);
  if (!report.overflow.empty()) {
    printComparisons("overflow", report.overflow, false);
    std::printf("  in %s, planted in step 1, which is skipped\n", report.overflowPlace.c_str());
  }
  if (!options.residuesOnly)
    printComparisons("floats", report.floats, true);
  if (!report.native.empty())
    printComparisons("run", report.native, true);
  if (report.lossScale)
    std::printf("  at loss scale %g, where no step overflows\n", *report.lossScale);
  if (report.range)
    std::printf("  on float inputs from %g to %g: others make a number that is not finite\n",
                report.range->low, report.range->high);
  for (KernelSizes sizes : {KernelSizes::AsIs, KernelSizes::Shrunk, KernelSizes::Other})
    printKernels(findings.kernels, sizes, options.listsKernels);
  for (const std::string &note : findings.notes)
    std::printf("  %s\n", note.c_str());
  std::printf("%lld collectives per step on stage 0, as predicted\n",
              (long long)report.collectives);
  std::printf("%s\n", findings.passed() ? "verified: the parallel program is the serial one"
                                        : "FAILED: the parallel program is not the serial one");
}

static Json jsonOf(const std::vector<driver::Comparison> &lines) {
  Json list = Json::array();
  for (const driver::Comparison &line : lines)
    list.push_back({{"name", line.name},
                    {"agrees", line.equal},
                    {"error", line.error},
                    {"bound", line.bound}});
  return list;
}

static Json jsonOf(const Findings &findings) {
  Json kernels = Json::array();
  for (const KernelLine &line : findings.kernels) {
    const cpu::KernelComparison &one = line.comparison;
    kernels.push_back({{"name", one.name},
                       {"kind", nameOf(one.kind)},
                       {"sizes", driver::name(line.sizes)},
                       {"place", one.place},
                       {"executions", one.count},
                       {"worst", one.worst},
                       {"difference", one.difference}});
  }
  const driver::VerifyReport &report = findings.report;
  return {{"format", "tbc-verify"},
          {"version", 1},
          {"passed", findings.passed()},
          {"seal", findings.seal},
          {"shrunk", findings.shrunk},
          {"notes", findings.notes},
          {"mesh", findings.mesh},
          {"ranks", report.ranks},
          {"steps", findings.steps},
          {"residues", jsonOf(report.residues)},
          {"overflow", jsonOf(report.overflow)},
          {"floats", jsonOf(report.floats)},
          {"run", jsonOf(report.native)},
          {"kernels", kernels},
          {"collectives", report.collectives}};
}

static Result<int> runVerify(const Options &options) {
  auto findings = verifySubject(options);
  if (!findings)
    return findings.error();
  if (options.isJson)
    std::cout << jsonOf(*findings).dump(1) << "\n";
  else
    print(options, *findings);
  return findings->passed() ? 0 : int(ErrorCode::VerificationFailed);
}

void addVerifyCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand(
      "verify", "Run all ranks here by the kernels of a run, and compare with the serial program");
  auto options = std::make_shared<Options>();
  command
      ->add_option("program", options->path,
                   "Folder that tbc compile wrote, or plan.json, which is compiled for this")
      ->required();
  command->add_option("--model", options->model, "Model file, if not where the plan says");
  command->add_option("--steps", options->verify.steps, "Training steps to run")
      ->check(between(1, 100))
      ->capture_default_str();
  command->add_option("--seed", options->verify.seed, "Seed of the inputs")->capture_default_str();
  command
      ->add_option("--ranks", options->shrink.ranks,
                   "Most ranks to run; a larger mesh is shrunk to 2 per axis")
      ->check(between(1, 1024))
      ->capture_default_str();
  command->add_flag("--all-layers", options->shrink.allLayers,
                    "Run all layers, also repeats of equal ones");
  command->add_flag("--full", options->full,
                    "Run the plan as it is: no smaller mesh, batch or sizes");
  command
      ->add_option("--budget", options->budgetSeconds,
                   "CPU seconds; kernels at other sizes that would begin later are not run")
      ->check(between(1, 1000000))
      ->capture_default_str();
  command->add_option("--budget-memory", options->budgetMemory, "Most that the ranks' arenas take")
      ->capture_default_str();
  command->add_flag("--kernels", options->listsKernels,
                    "List every kernel: executions, worst error over its bound, types");
  command->add_flag("--residues-only", options->residuesOnly,
                    "Leave out floats, and the kernels of a run");
  command->add_flag("--json", options->isJson, "Print JSON");
  command->callback([options, setAction] { setAction([options] { return runVerify(*options); }); });
}

} // namespace tbc::cli
