//===- NewCommand.cpp - tbc new --------------------------------------------------===//

#include "planner/devices/Cluster.h"
#include "tools/new/Architecture.h"
#include "tools/tbc-run/NumberFlags.h"
#include "tools/tbc-run/WordFlags.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

namespace tbc::cli {

namespace {

struct Options {
  std::string kind, from, output, activation;
  std::map<std::string, std::optional<int64_t>> sizes; // by flag
  std::optional<bool> tied;
  bool withoutAlibi = false;
};

/// A flag that sets one size.
struct SizeFlag {
  const char *flag;
  int64_t newmodel::Architecture::*size;
  const char *help;
};

} // namespace

static const SizeFlag sizeFlags[] = {
    {"--layers", &newmodel::Architecture::layers, "Layers"},
    {"--hidden", &newmodel::Architecture::hidden, "Width of the residual stream"},
    {"--heads", &newmodel::Architecture::heads, "Attention heads"},
    {"--kv-heads", &newmodel::Architecture::keyHeads,
     "Heads of keys and values (default: --heads)"},
    {"--head-dim", &newmodel::Architecture::headDim, "Width of a head (default: hidden / heads)"},
    {"--ffn", &newmodel::Architecture::ffn, "Inner width of the MLP, or of one expert"},
    {"--vocab", &newmodel::Architecture::vocabulary, "Rows of the token table"},
    {"--seq", &newmodel::Architecture::positions,
     "Rows of the position table; without one, the length of the input, else left open"},
    {"--experts", &newmodel::Architecture::experts, "Experts of a layer (llama and its relatives)"},
    {"--experts-per-token", &newmodel::Architecture::expertsPerToken,
     "Experts that compute a token (default: 2)"},
    {"--image", &newmodel::Architecture::imageSize, "Side of the image, in pixels (vit, dit)"},
    {"--patch", &newmodel::Architecture::patchSize, "Side of a patch, in pixels (vit, dit)"},
    {"--classes", &newmodel::Architecture::classes, "Classes (vit, dit)"}};

/// Returns an error for the first given flag of a part that the family of `a` lacks.
static Status checkParts(const Options &options, const newmodel::Architecture &a) {
  const bool isImage = a.imageSize > 0;
  auto given = [&](const char *flag) { return options.sizes.at(flag).has_value(); };
  auto lacks = [&](const std::string &flag, const char *what) {
    return Error{ErrorCode::Usage, flag + ": " + a.kind + " has no " + what};
  };
  for (const char *flag : {"--image", "--patch", "--classes"})
    if (given(flag) && !isImage)
      return lacks(flag, "pictures");
  for (const char *flag : {"--vocab", "--seq"})
    if (given(flag) && isImage)
      return lacks(flag, "tokens");
  if (options.tied && isImage)
    return lacks(*options.tied ? "--tied" : "--untied", "tokens");
  if (given("--experts-per-token") && !given("--experts") && a.experts == 0)
    return Error{ErrorCode::Usage, "--experts-per-token needs --experts"};
  return Status::ok();
}

static Result<newmodel::Architecture> architectureOf(const Options &options) {
  newmodel::Architecture a;
  if (!options.from.empty()) {
    auto text = readFile(options.from, ErrorCode::Usage);
    if (!text)
      return text.error();
    auto read = newmodel::readConfig(*text, options.from);
    if (!read)
      return read.error();
    a = *read;
    if (!options.kind.empty() && options.kind != a.kind)
      return Error{ErrorCode::Usage, options.from + " describes a " + a.kind + ", not a " +
                                         options.kind + "; leave the kind out"};
  } else if (options.kind.empty()) {
    return Error{ErrorCode::Usage, "name a kind of model, or a config.json with --from"};
  } else {
    a = newmodel::defaultsOf(options.kind);
  }
  if (Status status = checkParts(options, a); !status)
    return status.error();
  auto given = [&](const char *flag) { return options.sizes.at(flag).has_value(); };
  for (const SizeFlag &flag : sizeFlags)
    if (given(flag.flag))
      a.*flag.size = *options.sizes.at(flag.flag);
  // Derives sizes that are not given from given ones.
  if (given("--heads") && !given("--kv-heads"))
    a.keyHeads = a.heads;
  if (given("--hidden") && !given("--ffn") && options.from.empty())
    return Error{ErrorCode::Usage, "--hidden needs --ffn too: how wide the MLP is does not follow"};
  if (a.experts > 0 && a.expertsPerToken == 0)
    a.expertsPerToken = 2;
  if (options.tied)
    a.isTied = *options.tied;
  if (!options.activation.empty())
    a.activation = options.activation;
  if (options.withoutAlibi && !a.hasAlibi)
    return Error{ErrorCode::Usage, "--no-alibi is for mpt and bloom, not for " + a.kind};
  if (options.withoutAlibi)
    a.hasAlibi = false;
  if (Status status = newmodel::check(a); !status)
    return status.error();
  return a;
}

static Result<int> runNew(const Options &options) {
  auto architecture = architectureOf(options);
  if (!architecture)
    return architecture.error();
  std::string name = std::filesystem::path(options.output).filename().string();
  newmodel::NewModel model = newmodel::writeModel(*architecture, name + ".data");
  if (Status status = writeFile(options.output, model.bytes); !status)
    return status.error();
  if (options.output != "-")
    std::cout << "wrote " << options.output << ": " << architecture->kind << ", "
              << model.parameters << " parameters, without weights\n";
  return 0;
}

void addNewCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command =
      app.add_subcommand("new", "Write a model without weights from its hyper-parameters");
  auto options = std::make_shared<Options>();
  command
      ->add_option("kind", options->kind,
                   "Family; sizes that are not given are those of its "
                   "best known member")
      ->transform(oneOf(newmodel::kinds()));
  command->add_option("--from", options->from,
                      "config.json of Hugging Face's transformers; model_type decides the family");
  for (const SizeFlag &flag : sizeFlags) {
    std::optional<int64_t> &size = options->sizes[flag.flag];
    command->add_option(flag.flag, size, flag.help)->check(atLeast(1));
  }
  command->add_flag_callback(
      "--tied", [options] { options->tied = true; }, "The output's table is the input's");
  command
      ->add_flag_callback(
          "--untied", [options] { options->tied = false; }, "The output has a table of its own")
      ->excludes("--tied");
  command->add_option("--activation", options->activation, "Activation of the MLP")
      ->transform(oneOf({"gelu", "gelu_new", "silu", "relu", "relu2"}));
  command->add_flag("--no-alibi", options->withoutAlibi,
                    "Leave ALiBi out: as kernels that have it inside are priced (mpt, bloom)");
  command->add_option("-o,--output", options->output, "ONNX file to write (- for stdout)")
      ->required();
  command->callback([options, setAction] { setAction([options] { return runNew(*options); }); });
}

} // namespace tbc::cli
