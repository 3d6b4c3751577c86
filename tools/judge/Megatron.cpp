//===- Megatron.cpp - Configurations of Megatron-LM -------------------------===//

#include "tools/judge/Megatron.h"

#include "runtime/abi/ClosestWord.h"
#include "tools/judge/Entries.h"
#include "tools/judge/MegatronStages.h"

#include <algorithm>
#include <charconv>
#include <sstream>

namespace tbc::judge {

namespace {

/// A flag of the argument parser; `values`: 0, 1, or -1 for any number.
struct Flag {
  const char *name;
  int values;
};

} // namespace

static const Flag flags[] = {
#include "tools/judge/MegatronFlags.inc"
};

static const std::vector<Word> words = {
    {"--tensor-model-parallel-size", Field::Tp},
    {"--pipeline-model-parallel-size", Field::Pp},
    {"--context-parallel-size", Field::Cp},
    {"--expert-model-parallel-size", Field::Ep},
    {"--micro-batch-size", Field::MicroBatch},
    {"--global-batch-size", Field::GlobalBatch},
    {"--seq-length", Field::Sequence},
    {"--num-layers", Field::Layers},
    {"--hidden-size", Field::Hidden},
    {"--num-attention-heads", Field::Heads},
    {"--num-query-groups", Field::KvHeads},
    {"--vocab-size", Field::Vocabulary},
    {"--num-experts", Field::Experts},
    {"--num-layers-per-virtual-pipeline-stage", Field::LayersPerVirtualStage},
    {"--num-virtual-stages-per-pipeline-rank", Field::VirtualStages},
    {"--pipeline-model-parallel-layout", Field::PipelineLayout},
    {"--decoder-first-pipeline-num-layers", Field::FirstLayers},
    {"--decoder-last-pipeline-num-layers", Field::LastLayers},
    {"--account-for-embedding-in-pipeline-split", Field::CountsEmbedding},
    {"--account-for-loss-in-pipeline-split", Field::CountsLoss},
    {"--make-vocab-size-divisible-by", Field::VocabularyMultiple},
    {"--expert-tensor-parallel-size", Field::ExpertTp},
    {"--rampup-batch-size", Field::RampUp},
    {"--use-distributed-optimizer", Field::DistributedOptimizer},
    {"--num-distributed-optimizer-instances", Field::Instances},
    {"--use-megatron-fsdp", Field::OuterFsdp},
    {"--use-torch-fsdp2", Field::TorchFsdp},
    {"--data-parallel-sharding-strategy", Field::Sharding},
    {"--recompute-granularity", Field::Recompute},
    {"--recompute-method", Field::RecomputeMethod},
    {"--recompute-num-layers", Field::RecomputeLayers},
    {"--recompute-modules", Field::RecomputeModules},
    {"--recompute-activations", Field::RecomputeActivations},
    {"--optimizer-cpu-offload", Field::OffloadOptimizer},
    {"--cp-comm-type", Field::Context},
    {"--bf16", Field::Bf16},
    {"--fp16", Field::F16},
    {"--fp8-format", Field::Fp8Format},
    {"--sequence-parallel", Field::SequenceParallel},
    {"--grad-reduce-in-bf16", Field::GradientType},
    {"--nproc-per-node", Field::PerNode},
    {"--nnodes", Field::Nodes}};

static const std::vector<std::string> leftOut = {
    "--fp4-format",       "--main-grads-dtype",          "--main-params-dtype",
    "--exp-avg-dtype",    "--exp-avg-sq-dtype",          "--tp-comm-overlap",
    "--fp8-param-gather", "--moe-expert-capacity-factor"};

/// torchrun's flags before the script; each takes a value.
static const std::vector<std::string> launcherFlags = {
    "--nproc-per-node", "--nnodes",        "--node-rank", "--master-addr",
    "--master-port",    "--rdzv-endpoint", "--rdzv-id",   "--rdzv-backend"};

static Field fieldOf(const std::string &flag) {
  for (const Word &word : words)
    if (flag == word.key)
      return word.field;
  return Field::Ignored;
}

/// Returns how many values a flag takes; nullopt if there is no such flag.
static std::optional<int> valuesOf(const std::string &flag, bool isLauncher) {
  if (isLauncher)
    return std::find(launcherFlags.begin(), launcherFlags.end(), flag) != launcherFlags.end()
               ? std::optional<int>(1)
               : std::nullopt;
  for (const Flag &known : flags)
    if (flag == known.name)
      return known.values;
  return std::nullopt;
}

static std::string nearFlag(const std::string &flag, bool isLauncher) {
  std::vector<std::string> known = launcherFlags;
  if (!isLauncher) {
    known.clear();
    for (const Flag &entry : flags)
      known.push_back(entry.name);
  }
  return closestWord(flag, known);
}

static void readFlags(Setup &setup, const std::vector<std::string> &line) {
  auto isScript = [](const std::string &word) {
    return word.size() > 3 && word.compare(word.size() - 3, 3, ".py") == 0;
  };
  size_t script = size_t(std::find_if(line.begin(), line.end(), isScript) - line.begin());
  bool hasScript = script < line.size();
  for (size_t i = 0; i < line.size();) {
    std::string flag = line[i++], value;
    if (flag.rfind("--", 0) != 0)
      continue; // a program, a variable, or a value of a flag of torchrun
    bool hasValue = false, isLauncher = hasScript && i - 1 < script;
    if (size_t at = flag.find('='); at != std::string::npos) {
      value = flag.substr(at + 1);
      flag = flag.substr(0, at);
      hasValue = true;
    }
    if (isLauncher)
      std::replace(flag.begin(), flag.end(), '_', '-');
    auto count = valuesOf(flag, isLauncher);
    if (!count) {
      std::string near = nearFlag(flag, isLauncher);
      setup.refuse("UnknownKey", (isLauncher ? "torchrun" : "Megatron-LM") +
                                     std::string(" has no flag ") + flag +
                                     (near.empty() ? "" : "; did you mean " + near + "?"));
      continue;
    }
    while (!hasValue && *count != 0 && i < line.size() && line[i].rfind("--", 0) != 0) {
      value += (value.empty() ? "" : " ") + line[i++];
      if (*count == 1)
        break;
    }
    if (*count == 1 && value.empty())
      setup.refuse("Value", flag + " needs a value");
    if (Field field = fieldOf(flag); field != Field::Ignored)
      setup.set(field, flag, value);
    noteLeftOut(setup, {{flag, value}}, leftOut);
  }
}

static void readSharding(Setup &setup) {
  std::string strategy = setup.text(Field::Sharding);
  bool isDistributed = setup.has(Field::DistributedOptimizer);
  if (setup.has(Field::TorchFsdp)) {
    if (isDistributed)
      setup.refuse("Zero", "--use-torch-fsdp2 shards states itself: leave "
                           "--use-distributed-optimizer out");
    if (setup.pp > 1)
      setup.refuse("Zero", "--use-torch-fsdp2 does not run with pipelines");
    setup.zero = 3;
  } else if (setup.has(Field::OuterFsdp)) {
    setup.zero = strategy == "optim_grads_params" ? 3
                 : strategy == "optim_grads"      ? 2
                 : strategy == "optim"            ? 1
                                                  : 0;
  } else {
    if (!strategy.empty() && strategy != "no_shard")
      setup.refuse("Zero", "--data-parallel-sharding-strategy " + strategy +
                               " has an effect with --use-megatron-fsdp alone");
    setup.zero = isDistributed ? 1 : 0;
  }
}

/// Reads the modules of a selective recompute. tbc's selective recomputes all but matmuls and
/// attention. Attention is one kernel that keeps no scores, so recomputing it alone frees nothing
/// to speak of.
/// Source: recompute_modules of megatron/core/transformer/transformer_config.py.
static void readRecomputedModules(Setup &setup) {
  const std::string attention = "core_attn";
  const std::vector<std::string> known = {attention, "moe_act", "layernorm",     "mla_up_proj",
                                          "mlp",     "moe",     "shared_experts"};
  const std::string text =
      setup.has(Field::RecomputeModules) ? setup.text(Field::RecomputeModules) : attention;
  std::istringstream words(text);
  std::string others;
  bool hasNorms = false;
  for (std::string word; words >> word;) {
    if (std::find(known.begin(), known.end(), word) == known.end())
      setup.refuse("Recompute", "--recompute-modules has no " + word);
    hasNorms |= word == "layernorm";
    if (word != "layernorm" && word != attention)
      others += (others.empty() ? "" : " ") + word;
  }
  if (!others.empty())
    setup.notes.push_back("--recompute-modules " + others +
                          ": judged as recompute of all but matmuls and attention");
  else if (!hasNorms) {
    setup.recompute = "none";
    setup.notes.push_back("recompute of " + attention +
                          " alone: judged as none, as attention in one kernel keeps no scores");
  }
}

static void readRecompute(Setup &setup) {
  std::string granularity = setup.text(Field::Recompute),
              method = setup.text(Field::RecomputeMethod);
  bool isShort = setup.has(Field::RecomputeActivations);
  if (granularity.empty())
    setup.recompute = isShort ? "selective" : "none";
  else if (granularity == "selective" || granularity == "full")
    setup.recompute = granularity;
  else
    setup.refuse("Recompute", "--recompute-granularity is full or selective, not " + granularity);
  if (granularity == "full" && method.empty())
    setup.refuse("Recompute", "--recompute-granularity full needs --recompute-method");
  if (granularity == "selective" && !method.empty())
    setup.refuse("Recompute", "--recompute-method is for --recompute-granularity full");
  std::optional<int64_t> layers = setup.number(Field::RecomputeLayers);
  if (granularity == "full" && method == "block" && layers)
    setup.chunkRecompute = layers;
  if (setup.recompute == "selective")
    readRecomputedModules(setup);
}

/// Checks the growth of the batch: a start, an increment, and the samples that it takes. The step
/// judged is that of the full batch.
/// Source: megatron/core/num_microbatches_calculator.py.
static void readRampUp(Setup &setup) {
  if (!setup.has(Field::RampUp))
    return;
  const std::string text = setup.text(Field::RampUp);
  std::istringstream words(text);
  int64_t start = 0, increment = 0, samples = 0;
  std::string rest;
  if (!(words >> start >> increment >> samples) || words >> rest || start < 1 || increment < 1 ||
      samples < 0)
    return setup.refuse("Batch", "--rampup-batch-size takes a start, an increment and a number of "
                                 "samples, not \"" +
                                     text + "\"");
  if (setup.globalBatch &&
      (start > *setup.globalBatch || (*setup.globalBatch - start) % increment != 0))
    return setup.refuse("Batch", "a batch of " + std::to_string(start) + " that grows by " +
                                     std::to_string(increment) +
                                     " (--rampup-batch-size) does not reach " +
                                     std::to_string(*setup.globalBatch));
  setup.notes.push_back("--rampup-batch-size " + text +
                        ": the step is that of the full batch, and the smaller batches of the "
                        "first samples are left out");
}

Result<Setup> readMegatron(const std::string &text, const std::string &source) {
  Setup setup;
  setup.kind = setup.executor = "megatron";
  std::vector<std::string> line = shellWords(text);
  if (std::none_of(line.begin(), line.end(),
                   [](const std::string &word) { return word.rfind("--", 0) == 0; }))
    return Error{ErrorCode::Usage, source + " has no flags of Megatron-LM"};
  readFlags(setup, line);
  setup.tp = setup.number(Field::Tp, 1);
  setup.pp = setup.number(Field::Pp, 1);
  setup.cp = setup.number(Field::Cp, 1);
  setup.ep = setup.number(Field::Ep, 1);
  setup.expertTp = setup.number(Field::ExpertTp, setup.tp);
  setup.microBatch = setup.number(Field::MicroBatch);
  setup.globalBatch = setup.number(Field::GlobalBatch);
  setup.sequence = setup.number(Field::Sequence);
  if (!setup.microBatch)
    setup.refuse("Batch", "--micro-batch-size is required");
  if (setup.ep > 1 && !setup.has(Field::Experts))
    setup.refuse("Experts", "--expert-model-parallel-size needs --num-experts");
  if (setup.has(Field::SequenceParallel) && setup.tp == 1)
    setup.notes.push_back("--sequence-parallel has no effect without tensor parallelism");
  if (setup.has(Field::GradientType))
    setup.gradientWidth = 2;
  if (setup.has(Field::Bf16) && setup.has(Field::F16))
    setup.refuse("Precision", "--bf16 and --fp16 exclude each other");
  if (setup.has(Field::Fp8Format))
    setup.matmulPrecision = "fp8";
  setup.precision = setup.has(Field::Bf16) ? "bf16" : setup.has(Field::F16) ? "f16" : "f32";
  if (auto perNode = setup.number(Field::PerNode))
    setup.ranks = *perNode * setup.number(Field::Nodes, 1);
  readRampUp(setup);
  readStages(setup);
  readSharding(setup);
  readRecompute(setup);
  if (setup.has(Field::OffloadOptimizer)) {
    setup.offload = "optimizer";
    if (*setup.zero == 0)
      setup.refuse("Offload", "--optimizer-cpu-offload needs --use-distributed-optimizer");
  }
  // Source: _vocab_size_with_padding of megatron/training/tokenizer/tokenizer.py.
  constexpr int64_t usualMultiple = 128;
  setup.vocabularyMultiple = setup.number(Field::VocabularyMultiple, usualMultiple);
  std::string context = setup.text(Field::Context);
  if (setup.cp > 1)
    setup.context = context == "a2a"         ? "all-to-all"
                    : context == "allgather" ? "all-gather"
                                             : "ring";
  return setup;
}

} // namespace tbc::judge
