//===- ExportCommand.cpp - tbc export --------------------------------------------===//

#include "planner/plan/PlanFile.h"
#include "runtime/abi/Problem.h"
#include "tools/driver/AnnotateOnnx.h"
#include "tools/driver/Context.h"
#include "tools/driver/EmitIr.h"
#include "tools/export/Launch.h"
#include "tools/export/Targets.h"
#include "tools/tbc-run/WordFlags.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

#include <cctype>
#include <filesystem>
#include <iostream>
#include <memory>

namespace tbc::cli {

namespace {

struct Options {
  std::string plan, target, launcher, output, model;
};

} // namespace

/// The targets that need the model: --to mlir, the training step with the plan as attributes, and
/// --to onnx, the model with the plan as annotations.
constexpr const char *irTarget = "mlir", *onnxTarget = "onnx";

static std::vector<std::string> targetWords() {
  std::vector<std::string> words;
  for (const exporter::Target &target : exporter::targets())
    words.push_back(target.word);
  words.push_back(onnxTarget);
  words.push_back(irTarget);
  return words;
}

static Result<int> writeIr(const std::string &text, const Options &options) {
  if (!options.launcher.empty())
    return Error{ErrorCode::Usage, "--launcher: --to mlir writes nothing that runs"};
  auto loaded = driver::loadPlan(options.plan, text, options.model);
  if (!loaded)
    return loaded.error();
  auto ir = driver::annotatedText(*loaded->step, loaded->plan, false);
  if (!ir)
    return ir.error();
  if (Status status = writeFile(options.output, *ir); !status)
    return status.error();
  if (options.output != "-")
    std::cerr << "tbc: wrote " << options.output << " for tbc-opt\n";
  return 0;
}

/// Errors: Usage if the annotated model would lie apart from the files of its weights.
static Status checkFolder(const std::string &model, const std::string &external,
                          const std::string &output) {
  namespace fs = std::filesystem;
  std::error_code error;
  auto folderOf = [&](const std::string &path) {
    fs::path folder = fs::absolute(path, error).parent_path();
    return fs::weakly_canonical(folder, error);
  };
  if (external.empty() || (output != "-" && folderOf(model) == folderOf(output)))
    return Status::ok();
  return Error{ErrorCode::Usage, "-o " + output + ": weights of " + model + " are in " + external +
                                     " beside it; write the annotated model into the same folder"};
}

static Result<int> writeOnnx(const std::string &text, const Options &options) {
  namespace fs = std::filesystem;
  if (!options.launcher.empty())
    return Error{ErrorCode::Usage, "--launcher: --to onnx writes nothing that runs"};
  auto loaded = driver::loadPlan(options.plan, text, options.model);
  if (!loaded)
    return loaded.error();
  if (Status status = driver::checkPredictions(*loaded, options.plan); !status)
    return status.error();
  const std::string model =
      options.model.empty()
          ? (fs::path(options.plan).parent_path() / loaded->plan.job.modelPath).string()
          : options.model;
  std::error_code error;
  if (fs::equivalent(model, options.output, error))
    return Error{ErrorCode::Usage, "-o " + options.output + " is the model itself; name another"};
  auto annotated = driver::annotateOnnx(*loaded, model);
  if (!annotated)
    return annotated.error();
  if (Status status = checkFolder(model, annotated->externalData, options.output); !status)
    return status.error();
  for (const std::string &warning : annotated->warnings)
    std::cerr << "tbc: warning: " << warning << "\n";
  if (Status status = writeFile(options.output, annotated->bytes); !status)
    return status.error();
  if (options.output != "-")
    std::cerr << "tbc: wrote " << options.output << " for onnx 1.19 or newer\n";
  return 0;
}

/// Returns the path of the launch script. Example: "ds.json" gives "ds.sh".
static std::string scriptPath(const std::string &output) {
  std::filesystem::path path = output;
  std::string script = path.replace_extension(".sh").string();
  return script == output ? output + ".launch.sh" : script;
}

/// Whether Python can import `name`. Example: "my_plan", not "my-plan".
static bool isModuleName(const std::string &name) {
  bool isFirst = true;
  for (char c : name) {
    bool isLetter = std::isalpha(static_cast<unsigned char>(c)) || c == '_';
    if (!isLetter && (isFirst || !std::isdigit(static_cast<unsigned char>(c))))
      return false;
    isFirst = false;
  }
  return !isFirst;
}

/// Checks the name of an output that other Python code imports.
static Status checkName(const exporter::Target &target, const std::string &output) {
  using exporter::Program;
  Program program = target.program;
  bool isImported = program == Program::TrainAsModule || program == Program::Jax ||
                    program == Program::Torchtitan;
  std::filesystem::path path = output;
  if (!isImported || output == "-" ||
      (path.extension() == ".py" && isModuleName(path.stem().string())))
    return Status::ok();
  return Error{ErrorCode::Usage, "-o " + output + ": --to " + target.word +
                                     " writes a Python module; name it as one, such as "
                                     "plan_" +
                                     target.word + ".py"};
}

static Result<int> runExport(const Options &options) {
  if (Status status = checkWritable(options.output, {options.plan, options.model}); !status)
    return status.error();
  if (!options.launcher.empty() && options.output == "-")
    return Error{ErrorCode::Usage, "--launcher writes a script beside the output; name a file "
                                   "with -o"};
  auto text = readFile(options.plan, ErrorCode::Usage);
  if (!text)
    return text.error();
  if (options.target == irTarget)
    return writeIr(*text, options);
  if (options.target == onnxTarget)
    return writeOnnx(*text, options);
  if (!options.model.empty())
    return Error{ErrorCode::Usage,
                 "--model is for --to mlir and onnx; other targets read the plan alone"};
  auto plan = planner::readPlan(*text, options.plan);
  if (!plan)
    return ofKind(Problem::BadPlan, plan.error());
  auto facts = exporter::PlanFacts::make(*plan);
  if (!facts)
    return Error{facts.error().code, options.plan + ": " + facts.error().message};
  const exporter::Target &target = *exporter::findTarget(options.target);
  if (Status status = checkName(target, options.output); !status)
    return status.error();
  auto exported = target.write(*facts);
  if (!exported)
    return Error{exported.error().code, options.plan + ": " + exported.error().message};
  std::string script;
  if (!options.launcher.empty()) {
    auto launch = exporter::launchScript(*facts, target, *exporter::parseLauncher(options.launcher),
                                         std::filesystem::path(options.output).filename().string());
    if (!launch)
      return launch.error();
    script = std::move(*launch);
  }
  for (const exporter::Warning &warning : exported->warnings)
    std::cerr << "tbc: warning: " << warning.name << ": " << warning.text << "\n";
  if (Status status = writeFile(options.output, exported->text); !status)
    return status.error();
  if (options.output == "-")
    return 0;
  std::cerr << "tbc: wrote " << options.output << " for " << target.package << "\n";
  if (script.empty())
    return 0;
  const std::string path = scriptPath(options.output);
  if (Status status = writeFile(path, script); !status)
    return status.error();
  std::error_code error;
  using std::filesystem::perms;
  std::filesystem::permissions(path, perms::owner_exec | perms::group_exec | perms::others_exec,
                               std::filesystem::perm_options::add, error);
  if (error)
    return Error{ErrorCode::Other, path + " cannot be made executable: " + error.message()};
  std::cerr << "tbc: wrote " << path << ", which starts it\n";
  return 0;
}

void addExportCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command =
      app.add_subcommand("export", "Write a plan as a configuration of another framework");
  auto options = std::make_shared<Options>();
  command->add_option("plan", options->plan, "plan.json")->required();
  command->add_option("--to", options->target, "Framework or form")
      ->required()
      ->transform(oneOf(targetWords()));
  command->add_option("-o,--output", options->output, "File to write; - for standard output")
      ->required();
  command
      ->add_option("--launcher", options->launcher,
                   "Also write a script that starts it, beside the output: FILE.sh")
      ->transform(oneOf(exporter::launcherNames()));
  command->add_option("--model", options->model,
                      "With --to mlir or onnx: the model file, if not where the plan says");
  command->callback([options, setAction] { setAction([options] { return runExport(*options); }); });
}

} // namespace tbc::cli
