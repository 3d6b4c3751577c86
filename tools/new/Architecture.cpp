//===- Architecture.cpp - Model families and their hyper-parameters ------------===//

#include "tools/new/Architecture.h"
#include "tools/new/Families.h"

namespace tbc::newmodel {

namespace {

struct Kind {
  const char *name;
  void (*write)(GraphWriter &, const Architecture &);
};

} // namespace

static const Kind table[] = {{"gpt2", writeGpt2},
                             {"llama", writeLlama},
                             {"mixtral", writeLlama},
                             {"qwen2", writeLlama},
                             {"qwen2_moe", writeLlama},
                             {"qwen3", writeLlama},
                             {"qwen3_moe", writeLlama},
                             {"gemma2", writeLlama},
                             {"gemma3", writeLlama},
                             {"phi", writePhi},
                             {"phi3", writeLlama},
                             {"olmo", writeLlama},
                             {"olmo2", writeLlama},
                             {"olmoe", writeLlama},
                             {"deepseek_v3", writeLlama},
                             {"nemotron", writeLlama},
                             {"grok", writeLlama},
                             {"mpt", writeMpt},
                             {"neox", writeNeox},
                             {"bloom", writeBloom},
                             {"t5", writeT5},
                             {"bert", writeBert},
                             {"modernbert", writeModernBert},
                             {"vit", writeVit},
                             {"dit", writeDit}};

static bool isLlamaLike(const std::string &kind) {
  for (const Kind &row : table)
    if (kind == row.name)
      return row.write == writeLlama;
  return false;
}

bool hasKeyHeads(const std::string &kind) {
  return (isLlamaLike(kind) && kind != "deepseek_v3") || kind == "phi";
}

bool mayHaveExperts(const std::string &kind) {
  return isLlamaLike(kind) && kind != "nemotron" && kind != "phi3";
}

const std::vector<std::string> &kinds() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Kind &kind : table)
      all.push_back(kind.name);
    return all;
  }();
  return names;
}

static Error usage(const std::string &message) { return Error{ErrorCode::Usage, message}; }

Status check(const Architecture &a) {
  constexpr int64_t most = int64_t(1) << 24;
  std::vector<std::pair<const char *, int64_t>> sizes = {
      {"--layers", a.layers}, {"--hidden", a.hidden}, {"--heads", a.heads}, {"--ffn", a.ffn}};
  const bool isImage = a.kind == "vit" || a.kind == "dit";
  if (isImage)
    sizes.insert(sizes.end(),
                 {{"--image", a.imageSize}, {"--patch", a.patchSize}, {"--classes", a.classes}});
  else
    sizes.push_back({"--vocab", a.vocabulary});
  if (a.kind == "gpt2" || a.kind == "bert")
    sizes.push_back({"--seq", a.positions});
  sizes.push_back({"--kv-heads", a.keyHeads});
  for (auto [flag, size] : sizes)
    if (size < 1 || size > most)
      return usage(std::string(flag) + " is " + std::to_string(size) +
                   ", but must be between 1 and " + std::to_string(most));
  if (a.layers > 4096)
    return usage("--layers " + std::to_string(a.layers) + ": at most 4096");
  auto divides = [](const char *small, int64_t d, const char *large, int64_t n) {
    return usage(std::string(small) + " " + std::to_string(d) + " does not divide " + large + " " +
                 std::to_string(n));
  };
  if (a.headDim == 0 && a.hidden % a.heads != 0)
    return divides("--heads", a.heads, "--hidden", a.hidden);
  if (a.heads % a.keyHeads != 0)
    return divides("--kv-heads", a.keyHeads, "--heads", a.heads);
  const bool isAnyWidth = hasKeyHeads(a.kind) || a.keyRank > 0 || a.kind == "t5";
  if (!hasKeyHeads(a.kind) && a.keyHeads != a.heads)
    return usage("--kv-heads: " + a.kind + " has as many as --heads");
  if (!isAnyWidth && a.headDim > 0 && a.headDim * a.heads != a.hidden)
    return usage("--head-dim: of " + a.kind + " it is --hidden divided by --heads");
  if (hasKeyHeads(a.kind) && int64_t(double(a.headWidth()) * a.rotaryFraction) < 2)
    return usage("heads of " + std::to_string(a.headWidth()) + " are too narrow to rotate");
  if (isImage && a.imageSize % a.patchSize != 0)
    return divides("--patch", a.patchSize, "--image", a.imageSize);
  if (a.experts != 0 && !mayHaveExperts(a.kind))
    return usage("--experts: of llama and its relatives, not of " + a.kind);
  if (a.experts < 0 || a.experts > 4096 || a.experts == 1)
    return usage("--experts " + std::to_string(a.experts) + ": at least 2, at most 4096");
  if (a.experts > 0 && (a.expertsPerToken < 1 || a.expertsPerToken > a.experts))
    return usage("--experts-per-token " + std::to_string(a.expertsPerToken) +
                 ": between 1 and --experts " + std::to_string(a.experts));
  if (a.groups > 0 && (a.experts % a.groups != 0 || a.experts / a.groups < 2))
    return usage("--experts " + std::to_string(a.experts) + ": " + a.kind + " has " +
                 std::to_string(a.groups) + " groups of at least 2; choose a multiple");
  if (a.groups > 0 && a.expertsPerToken > a.experts / a.groups * a.topGroups)
    return usage("--experts-per-token " + std::to_string(a.expertsPerToken) + ": the " +
                 std::to_string(a.topGroups) + " best groups have " +
                 std::to_string(a.experts / a.groups * a.topGroups) + " experts");
  if (a.positions < 0)
    return usage("--seq " + std::to_string(a.positions) + ": must be positive");
  return Status::ok();
}

NewModel writeModel(const Architecture &architecture, const std::string &dataFile) {
  GraphWriter writer(architecture.kind, dataFile);
  for (const Kind &kind : table)
    if (architecture.kind == kind.name)
      kind.write(writer, architecture);
  return {writer.bytes(), writer.numParameters()};
}

} // namespace tbc::newmodel
