//===- Architecture.cpp - Model families and their hyper-parameters ------------===//

#include "tools/new/Architecture.h"
#include "tools/new/Families.h"

#include <cassert>

namespace tbc::newmodel {

namespace {

struct Kind {
  const char *name;
  void (*write)(GraphWriter &, const Architecture &);
};

} // namespace

static const Kind table[] = {{"gpt2", writeGpt2},  {"llama", writeLlama}, {"mpt", writeMpt},
                             {"neox", writeNeox},  {"bloom", writeBloom}, {"nemotron", writeLlama},
                             {"grok", writeLlama}, {"bert", writeBert},   {"vit", writeVit}};

const std::vector<std::string> &kinds() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Kind &kind : table)
      all.push_back(kind.name);
    return all;
  }();
  return names;
}

/// Sizes common to all transformers.
static Architecture transformer(const std::string &kind, int64_t layers, int64_t hidden,
                                int64_t heads, int64_t keyHeads, int64_t ffn, int64_t vocabulary) {
  Architecture a;
  a.kind = kind;
  a.layers = layers;
  a.hidden = hidden;
  a.heads = heads;
  a.keyHeads = keyHeads;
  a.ffn = ffn;
  a.vocabulary = vocabulary;
  return a;
}

Architecture defaultsOf(const std::string &kind) {
  Architecture a;
  if (kind == "gpt2") { // openai-community/gpt2
    a = transformer(kind, 12, 768, 12, 12, 3072, 50257);
    a.positions = 1024;
    a.isTied = true;
    a.activation = "gelu_new";
  } else if (kind == "llama") { // meta-llama/Meta-Llama-3-8B
    a = transformer(kind, 32, 4096, 32, 8, 14336, 128256);
    a.isGated = true;
    a.activation = "silu";
    a.rotaryBase = 500000;
  } else if (kind == "mpt") { // mosaicml/mpt-7b
    a = transformer(kind, 32, 4096, 32, 32, 16384, 50432);
    a.isTied = a.hasAlibi = true;
  } else if (kind == "neox") { // EleutherAI/gpt-neox-20b
    a = transformer(kind, 44, 6144, 64, 64, 24576, 50432);
    a.isParallel = true;
    a.rotaryFraction = 0.25;
  } else if (kind == "bloom") { // bigscience/bloom
    a = transformer(kind, 70, 14336, 112, 112, 57344, 250880);
    a.isTied = a.hasAlibi = true;
    a.activation = "gelu_new";
  } else if (kind == "nemotron") { // Nemotron-4 15B
    a = transformer(kind, 32, 6144, 48, 8, 24576, 256000);
    a.activation = "relu2";
    a.rotaryFraction = 0.5;
  } else if (kind == "grok") { // xai-org/grok-1
    a = transformer(kind, 64, 6144, 48, 8, 32768, 131072);
    a.experts = 8;
    a.expertsPerToken = 2;
    a.isGated = a.isTied = true;
  } else if (kind == "bert") { // google-bert/bert-base-uncased
    a = transformer(kind, 12, 768, 12, 12, 3072, 30522);
    a.positions = 512;
    a.tokenTypes = 2;
    a.isTied = true;
    a.epsilon = 1e-12;
  } else {
    assert(kind == "vit" && "a kind of kinds()");
    a = transformer(kind, 12, 768, 12, 12, 3072, 0); // google/vit-base-patch16-224
    a.imageSize = 224;
    a.patchSize = 16;
    a.channels = 3;
    a.classes = 1000;
    a.epsilon = 1e-12;
  }
  return a;
}

static Error usage(const std::string &message) { return Error{ErrorCode::Usage, message}; }

Status check(const Architecture &a) {
  constexpr int64_t most = int64_t(1) << 24;
  std::vector<std::pair<const char *, int64_t>> sizes = {
      {"--layers", a.layers}, {"--hidden", a.hidden}, {"--heads", a.heads}, {"--ffn", a.ffn}};
  if (a.kind == "vit")
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
  bool hasKeyHeads = a.kind == "llama" || a.kind == "nemotron" || a.kind == "grok";
  if (!hasKeyHeads && a.keyHeads != a.heads)
    return usage("--kv-heads: " + a.kind + " has as many as --heads");
  if (!hasKeyHeads && a.headDim > 0 && a.headDim * a.heads != a.hidden)
    return usage("--head-dim: of " + a.kind + " it is --hidden divided by --heads");
  if (hasKeyHeads && int64_t(double(a.headWidth()) * a.rotaryFraction) < 2)
    return usage("heads of " + std::to_string(a.headWidth()) + " are too narrow to rotate");
  if (a.kind == "vit" && a.imageSize % a.patchSize != 0)
    return divides("--patch", a.patchSize, "--image", a.imageSize);
  bool mayHaveExperts = a.kind == "llama" || a.kind == "grok";
  if (a.experts != 0 && !mayHaveExperts)
    return usage("--experts: of llama and grok, not of " + a.kind);
  if (a.experts < 0 || a.experts > 4096 || a.experts == 1)
    return usage("--experts " + std::to_string(a.experts) + ": at least 2, at most 4096");
  if (a.experts > 0 && (a.expertsPerToken < 1 || a.expertsPerToken > a.experts))
    return usage("--experts-per-token " + std::to_string(a.expertsPerToken) +
                 ": between 1 and --experts " + std::to_string(a.experts));
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
