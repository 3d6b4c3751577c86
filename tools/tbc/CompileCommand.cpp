//===- CompileCommand.cpp - tbc compile --------------------------------------===//

#include "codegen/cpu/CompileKernels.h"
#include "codegen/cuda/CompileCudaKernels.h"
#include "planner/report/Summary.h"
#include "planner/support/Format.h"
#include "planner/support/JsonText.h"
#include "runtime/abi/CompiledKernel.h"
#include "runtime/abi/Problem.h"
#include "runtime/abi/Sha256.h"
#include "runtime/cuda/Epilogues.h"
#include "runtime/verify/Verify.h"
#include "tools/driver/Compile.h"
#include "tools/driver/Context.h"
#include "tools/driver/EmitIr.h"
#include "tools/driver/RunManifest.h"
#include "tools/tbc-run/WordFlags.h"
#include "tools/tbc/Command.h"

#include "llvm/Support/raw_ostream.h"

#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>

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
  std::string plan, model, output;
  std::string emitIrAfter; // a pass, "all", or empty
  std::string target = "cpu";
  // Option of --target cpu.
  std::string cpu; // empty: native
  bool noKernels = false, noCache = false;
  // Option of --target cuda.
  std::string architectures; // empty: the default ones
  bool hostOps = false;
  bool json = false;
};

} // namespace

/// The target of kernels: CPU, CUDA or neither.
struct Targets {
  std::optional<cpu::CpuTarget> cpu;
  std::optional<cuda::CudaTarget> cuda;
};

static Result<Targets> targetsOf(const Options &options) {
  Targets targets;
  bool isCuda = options.target == "cuda";
  if (isCuda && (!options.cpu.empty() || options.noKernels || options.noCache))
    return problem(Problem::BadTarget, "--cpu, --no-kernels and --no-cache go with --target cpu");
  if (!isCuda && (!options.architectures.empty() || options.hostOps))
    return problem(Problem::BadTarget, "--arch and --host-ops go with --target cuda");
  if (isCuda) {
    auto found = cuda::parseCudaTarget(options.architectures.empty() ? cuda::defaultArchitectures
                                                                     : options.architectures);
    if (!found)
      return ofKind(Problem::BadTarget, found.error());
    targets.cuda = *found;
    targets.cuda->allowsHostOps = options.hostOps;
  } else if (!options.noKernels) {
    auto found = cpu::findCpuTarget(options.cpu.empty() ? "native" : options.cpu);
    if (!found)
      return ofKind(Problem::BadTarget, found.error());
    targets.cpu = *found;
  }
  return targets;
}

/// Example: "sm_80 (PTX, machine code), ops on the host: einsum".
static std::string describe(const program::CudaKernels &list) {
  std::string text;
  for (const program::CudaImage &image : list.images)
    if (image.code == program::CudaCode::Ptx)
      text += (text.empty() ? "sm_" : ", sm_") + std::to_string(image.architecture);
    else
      text += " with machine code";
  for (size_t i = 0; i < list.hostOps.size(); ++i)
    text += (i == 0 ? "; on the host: " : ", ") + list.hostOps[i];
  return text;
}

/// Prints the matmuls that cuBLASLt fuses with an epilogue, and the reason for each other one.
static void sayEpilogues(const program::Program &program, std::ostream &notes) {
  std::map<std::string, int64_t> together, apart;
  for (const program::Stage &stage : program.stages)
    for (program::BlockId id : stage.blocks()) {
      cuda::Epilogues found = cuda::findEpilogues(stage, stage.block(id));
      for (const cuda::Epilogue &epilogue : found.list)
        ++together[epilogue.name()];
      for (const auto &[why, count] : found.apart)
        apart[why] += count;
    }
  if (!together.empty())
    notes << "  with their matmul, where cuBLASLt can: " << cuda::describe(together) << "\n";
  if (!apart.empty())
    notes << "  apart from their matmul: " << cuda::describe(apart) << "\n";
}

/// Compiles the kernels of a program and writes a summary to `notes`. `programText`: the content of
/// the program's file. Removes kernels of an earlier compile for another target, since the executor
/// would refuse them. Returns the names of the written files.
static Result<std::vector<std::string>>
writeKernels(const driver::CompiledPlan &compiled, const Targets &targets,
             const std::string &programText, const std::string &folder,
             const cpu::KernelCache *cache, std::ostream &notes) {
  std::string path = (std::filesystem::path(folder) / program::kernelsFile).string();
  if (!targets.cpu) {
    std::error_code error;
    std::filesystem::remove(path, error);
    if (error)
      return problem(Problem::CannotWrite, "cannot remove " + path + ": " + error.message());
  }
  if (Status status = cuda::removeCudaKernels(folder); !status)
    return status.error();
  std::vector<std::string> written;
  if (!targets.cpu && !targets.cuda)
    return written;
  auto begin = std::chrono::steady_clock::now();
  std::string hash = sha256Hex(programText), what, inCache;
  size_t distinct = compiled.kernels.size();
  if (targets.cuda) {
    auto list = cuda::compileCudaKernels(compiled.cudaKernels, *targets.cuda, hash, folder,
                                         cuda::findAssembler());
    if (!list)
      return list.error();
    written.emplace_back(program::cudaKernelsFile);
    for (const program::CudaImage &image : list->images)
      written.push_back(image.file);
    path = (std::filesystem::path(folder) / program::cudaKernelsFile).string();
    distinct = list->kernels.size();
    what = describe(*list);
  } else {
    Result<size_t> numFound =
        cpu::compileKernels(compiled.kernels, *targets.cpu, hash, path, cache);
    if (!numFound)
      return numFound.error();
    written.emplace_back(program::kernelsFile);
    inCache = " (" + std::to_string(*numFound) + " in the cache)";
    what = targets.cpu->name;
  }
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
  notes << "wrote " << path << ": " << regions << " regions with " << inRegions << " of " << kernels
        << " kernels, " << distinct << " distinct" << inCache << ", for " << what << ", in " << text
        << " s\n";
  if (compiled.kernelsApart > 0)
    notes << "  " << compiled.kernelsApart
          << " planned kernels have no code for it: their ops are executed one by one, with "
             "more memory than predicted\n";
  if (targets.cuda)
    sayEpilogues(compiled.program, notes);
  return written;
}

static std::string onHost(const program::MemoryPlan &plan, const planner::StageMemory &predicted) {
  if (plan.hostArenaBytes == 0)
    return "";
  return "; " + planner::formatBytes(double(plan.hostArenaBytes)) + " on the host, predicted " +
         planner::formatBytes(double(predicted.hostBytes()));
}

/// Prints the IR after one pass, or writes the IR after each pass into a folder.
static Result<int> emitIr(const driver::LoadedPlan &loaded, const Options &options) {
  bool isAll = options.emitIrAfter == "all";
  if (isAll == options.output.empty())
    return problem(isAll ? Problem::MissingArgument : Problem::FlagsExclude,
                   isAll ? "--emit-ir-after all writes a folder: name it with -o"
                         : "--emit-ir-after PASS prints to stdout and takes no -o");
  std::error_code error;
  if (isAll)
    std::filesystem::create_directories(options.output, error);
  if (error)
    return problem(Problem::CannotWrite,
                   "cannot create " + options.output + ": " + error.message());
  Status status = Status::ok();
  int number = 0;
  auto afterPass = [&](llvm::StringRef pass, mlir::ModuleOp module) {
    if (!isAll && pass != options.emitIrAfter)
      return;
    std::string text;
    llvm::raw_string_ostream stream(text);
    module.print(stream);
    stream << "\n";
    if (!isAll) {
      std::cout << text;
      return;
    }
    char name[96];
    std::snprintf(name, sizeof name, "%02d-%s.mlir", number++, pass.str().c_str());
    std::string path = (std::filesystem::path(options.output) / name).string();
    if (Status written = writeFile(path, text); !written && status)
      status = written;
    std::cout << "wrote " << path << "\n";
  };
  if (Status passes = driver::runPasses(*loaded.step, loaded.plan, afterPass); !passes)
    return ofKind(Problem::NotCompiled, ofKind(Problem::BadPlan, passes.error()));
  if (!status)
    return status.error();
  return 0;
}

/// Writes the summary of the Program at `path`.
static void sayProgram(const driver::CompiledPlan &compiled, const std::string &path,
                       const program::Seal &seal, std::ostream &notes) {
  auto counted = [](int64_t count, const std::string &what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  notes << "wrote " << path << ": " << counted(compiled.program.numStages(), "stage") << ", "
        << counted(compiled.program.mesh.numRanks(), "rank") << ", checked\n";
  for (size_t s = 0; s < compiled.program.stages.size(); ++s)
    notes << "  stage " << s << ": an arena of "
          << planner::formatBytes(double(compiled.program.stages[s].memory.arenaBytes))
          << " per rank, predicted "
          << planner::formatBytes(double(planner::programBytes(compiled.predictedMemory[s])))
          << onHost(compiled.program.stages[s].memory, compiled.predictedMemory[s]) << "\n";
  for (const program::FileSeal &source : seal.sources)
    if (!source.isHashed())
      notes << "  " << source.path << " has more than "
            << planner::formatBytes(double(program::largestHashedBytes))
            << ": its size and time of change are sealed, not its content\n";
}

/// Returns the answer of --json. `files` are the names of the files in the folder.
static std::string answerOf(const driver::CompiledPlan &compiled, const Options &options,
                            const std::vector<std::string> &files) {
  const program::Program &program = compiled.program;
  nlohmann::json stages = nlohmann::json::array();
  for (size_t s = 0; s < program.stages.size(); ++s) {
    const program::MemoryPlan &memory = program.stages[s].memory;
    const planner::StageMemory &predicted = compiled.predictedMemory[s];
    stages.push_back({{"arena_bytes", memory.arenaBytes},
                      {"predicted_bytes", planner::programBytes(predicted)},
                      {"host_arena_bytes", memory.hostArenaBytes},
                      {"predicted_host_bytes", predicted.hostBytes()}});
  }
  return planner::jsonText({{"format", "tbc-compile"},
                            {"version", 1},
                            {"folder", options.output},
                            {"target", options.target},
                            {"ranks", program.mesh.numRanks()},
                            {"micro_batches", program.microBatches},
                            {"files", files},
                            {"kernels_without_code", compiled.kernelsApart},
                            {"stages", std::move(stages)}});
}

static Result<int> runCompile(const Options &options) {
  if (options.output.empty() && options.emitIrAfter.empty())
    return problem(Problem::MissingArgument, "--output is required: the folder of the Program");
  auto text = readFile(options.plan, ErrorCode::Usage);
  if (!text)
    return text.error();
  auto loaded = driver::loadPlan(options.plan, *text, options.model);
  if (!loaded)
    return loaded.error();
  if (Status status = driver::checkExecutor(*loaded, options.plan); !status)
    return status.error();
  if (Status status = driver::checkPredictions(*loaded, options.plan); !status)
    return status.error();
  if (!options.emitIrAfter.empty())
    return emitIr(*loaded, options);
  auto targets = targetsOf(options);
  if (!targets)
    return targets.error();
  if (loaded->plan.job.matmulPrecision == planner::MatmulPrecision::Fp8 && !targets->cuda)
    return problem(
        Problem::BadTarget,
        "the plan has matmuls in fp8, and CPUs have none: compile it with --target cuda, "
        "or plan without --matmul-precision fp8");
  auto compiled =
      driver::compilePlan(*loaded->step, loaded->plan, targets->cpu ? &*targets->cpu : nullptr,
                          targets->cuda ? &*targets->cuda : nullptr);
  if (!compiled)
    return ofKind(Problem::NotCompiled,
                  ofKind(Problem::BadPlan, ofKind(Problem::NotVerified, compiled.error())));
  std::error_code error;
  std::filesystem::create_directories(options.output, error);
  if (error)
    return problem(Problem::CannotWrite,
                   "cannot create " + options.output + ": " + error.message());
  std::string path = (std::filesystem::path(options.output) / programFile).string();
  std::string programText = program::writeProgram(compiled->program);
  // The seal is written last: an incomplete folder has no seal and is not a valid Program.
  std::string sealPath = (std::filesystem::path(options.output) / program::sealFile).string();
  std::filesystem::remove(sealPath, error);
  if (error)
    return problem(Problem::CannotWrite, "cannot remove " + sealPath + ": " + error.message());
  std::ostream &notes = options.json ? std::cerr : std::cout;
  std::optional<cpu::KernelCache> cache;
  if (!options.noCache)
    cache = cpu::KernelCache::ofUser();
  auto names = writeKernels(*compiled, *targets, programText, options.output,
                            cache ? &*cache : nullptr, notes);
  if (!names)
    return ofKind(Problem::NotCompiled, names.error());
  auto manifest = driver::makeRunManifest(*loaded->step, loaded->plan, compiled->program,
                                          programText, options.output);
  if (!manifest)
    return ofKind(Problem::CannotImport, manifest.error());
  manifest->target = targets->cuda ? train::Target::Cuda : train::Target::Cpu;
  if (Status status = writeFile(path, programText); !status)
    return status.error();
  std::string manifestPath = (std::filesystem::path(options.output) / train::manifestFile).string();
  if (Status status = writeFile(manifestPath, train::writeManifest(*manifest)); !status)
    return status.error();
  std::string planPath = (std::filesystem::path(options.output) / program::planFile).string();
  if (Status status = writeFile(planPath, *text); !status)
    return status.error();
  names->insert(names->begin(), {programFile, train::manifestFile, program::planFile});
  auto seal = driver::makeSeal(options.output, *names, *manifest, loaded->step->options.modelPath);
  if (!seal)
    return ofKind(Problem::CannotRead, seal.error());
  if (Status status = writeFile(sealPath, program::writeSeal(*seal)); !status)
    return status.error();
  sayProgram(*compiled, path, *seal, notes);
  names->emplace_back(program::sealFile);
  if (options.json)
    std::cout << answerOf(*compiled, options, *names);
  return 0;
}

void addCompileCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command =
      app.add_subcommand("compile", "Make a plan into the Program that ranks execute");
  auto options = std::make_shared<Options>();
  command->add_option("plan", options->plan, "plan.json")->required();
  command->add_option("--model", options->model, "Model file, if not where the plan says");
  command->add_option("-o,--output", options->output, "Folder to write");
  std::vector<std::string> passes = driver::passNames();
  passes.insert(passes.begin(), "all");
  CLI::Option *emitIr =
      command
          ->add_option("--emit-ir-after", options->emitIrAfter,
                       "Stop after this pass and print the IR; all: write that after each pass to "
                       "the folder of -o, in numbered files")
          ->transform(oneOf(passes));
  CLI::Option *cpu = command->add_option(
      "--cpu", options->cpu,
      "CPU to compile kernels for: native (default), x86-64-v2, x86-64-v3, x86-64-v4");
  command->add_flag("--no-cache", options->noCache,
                    "Compile every kernel again; neither read nor write $XDG_CACHE_HOME/tbc");
  command->add_flag("--no-kernels", options->noKernels, "Compile none: reference kernels, slow")
      ->excludes(cpu);
  command->add_option("--target", options->target, "What executes kernels: cpu, or cuda for GPUs")
      ->transform(oneOf({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--arch", options->architectures,
                      "With --target cuda: for these GPUs and later ones (default: sm_80,sm_90)");
  command->add_flag("--json", options->json, "Answer as JSON; text goes to stderr")
      ->excludes(emitIr);
  command->add_flag("--host-ops", options->hostOps,
                    "With --target cuda: let the host execute what has no kernel there, slowly");
  command->callback(
      [options, setAction] { setAction([options] { return runCompile(*options); }); });
}

} // namespace tbc::cli
