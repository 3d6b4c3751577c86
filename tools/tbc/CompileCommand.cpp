//===- CompileCommand.cpp - tbc compile, tbc program show ------------------------===//

#include "codegen/cpu/CompileKernels.h"
#include "planner/core/Summary.h"
#include "runtime/abi/CompiledKernel.h"
#include "runtime/abi/Sha256.h"
#include "runtime/verify/Verify.h"
#include "tools/driver/Compile.h"
#include "tools/driver/Context.h"
#include "tools/driver/RunManifest.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

namespace tbc::cli {

using train::programFile;

namespace {

struct Options {
  std::string plan, model, output, program;
  std::string cpu = "native";
  bool noKernels = false, noCache = false;
};

} // namespace

/// Compiles the kernels of a program whose file is `programText`, and says what it did; without
/// kernels removes what an earlier compile left, which the executor would refuse.
static Status writeKernels(const driver::CompiledPlan &compiled, const cpu::CpuTarget *target,
                           const std::string &programText, const std::string &folder,
                           const cpu::KernelCache *cache) {
  std::string path = (std::filesystem::path(folder) / program::kernelsFile).string();
  if (!target) {
    std::error_code error;
    std::filesystem::remove(path, error);
    return error ? Error{ErrorCode::Other, "cannot remove " + path + ": " + error.message()}
                 : Status::ok();
  }
  auto begin = std::chrono::steady_clock::now();
  Result<size_t> numFound =
      cpu::compileKernels(compiled.kernels, *target, sha256Hex(programText), path, cache);
  if (!numFound)
    return numFound.error();
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  size_t kernels = 0, inRegions = 0, regions = 0;
  for (const program::Stage &stage : compiled.program.stages)
    for (program::BlockId id : stage.blocks()) {
      const program::Block &block = stage.block(id);
      for (const program::Instruction &instruction : block.instructions)
        kernels += instruction.kind == program::InstructionKind::Kernel;
      for (const program::Region &region : block.regions)
        inRegions += size_t(region.count);
      regions += block.regions.size();
    }
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", seconds.count());
  std::cout << "wrote " << path << ": " << regions << " regions with " << inRegions << " of "
            << kernels << " kernels, " << compiled.kernels.size() << " distinct (" << *numFound
            << " in the cache), for " << target->name << ", in " << text << " s\n";
  return Status::ok();
}

static std::string onHost(const program::MemoryPlan &plan, const planner::StageMemory &predicted) {
  if (plan.hostArenaBytes == 0)
    return "";
  return "; " + planner::formatBytes(double(plan.hostArenaBytes)) + " on the host, predicted " +
         planner::formatBytes(double(predicted.hostBytes()));
}

static Result<int> runCompile(const Options &options) {
  auto text = readFile(options.plan, ErrorCode::Usage);
  if (!text)
    return text.error();
  auto loaded = driver::loadPlan(options.plan, *text, options.model);
  if (!loaded)
    return loaded.error();
  std::optional<cpu::CpuTarget> target;
  if (!options.noKernels) {
    auto found = cpu::findCpuTarget(options.cpu);
    if (!found)
      return found.error();
    target = *found;
  }
  auto compiled = driver::compilePlan(*loaded->step, loaded->plan, target ? &*target : nullptr);
  if (!compiled)
    return compiled.error();
  std::error_code error;
  std::filesystem::create_directories(options.output, error);
  if (error)
    return Error{ErrorCode::Other, "cannot create " + options.output + ": " + error.message()};
  std::string path = (std::filesystem::path(options.output) / programFile).string();
  std::string programText = program::writeProgram(compiled->program);
  std::optional<cpu::KernelCache> cache;
  if (!options.noCache)
    cache = cpu::KernelCache::ofUser();
  if (Status status = writeKernels(*compiled, target ? &*target : nullptr, programText,
                                   options.output, cache ? &*cache : nullptr);
      !status)
    return status.error();
  auto manifest = driver::makeRunManifest(*loaded->step, loaded->plan, compiled->program,
                                          programText, options.output);
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
              << onHost(compiled->program.stages[s].memory, compiled->predictedMemory[s]) << "\n";
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
  CLI::Option *cpu = command->add_option(
      "--cpu", options->cpu, "CPU to compile kernels for: native, x86-64-v2, x86-64-v3, x86-64-v4");
  command->add_flag("--no-cache", options->noCache,
                    "Compile every kernel again; neither read nor write $XDG_CACHE_HOME/tbc");
  command->add_flag("--no-kernels", options->noKernels, "Compile none: reference kernels, slow")
      ->excludes(cpu);
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
