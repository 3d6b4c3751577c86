//===- Megatron.cpp - A plan as flags of Megatron-LM ------------------------===//
//
// The names of flags and their rules are those of megatron/training/arguments.py of core_v0.16.
//
//===----------------------------------------------------------------------===//

#include "tools/export/Megatron.h"

#include "planner/support/Format.h"

#include <algorithm>
#include <fnmatch.h>

namespace tbc::exporter {

using planner::format;
using planner::LayoutParameters;

namespace {

/// Lines of flags.
struct Flags {
  std::string text;
  void add(const std::string &flag) { text += flag + "\n"; }
  void add(const std::string &flag, const std::string &value) { text += flag + " " + value + "\n"; }
  void add(const std::string &flag, int64_t value) { add(flag, std::to_string(value)); }
};

} // namespace

/// Checks that tp splits matrices as Megatron's layers do: every matrix of a block by columns or
/// rows, and the tables by vocabulary.
static void checkMatrices(const PlanFacts &facts, Limits &limits) {
  if (facts.mesh().tp == 1)
    return;
  std::vector<std::string> whole, tables;
  int64_t columns = 0, rows = 0;
  for (const LayoutParameters &group : facts.plan->layout.parameters) {
    if (group.shape.size() < 2)
      continue;
    MatrixSplit split = splitOverTensorAxis(group);
    for (const std::string &name : group.names) {
      bool isInBlock = facts.blockOf(name) >= 0;
      if (isInBlock) {
        columns += split == MatrixSplit::Column;
        rows += split == MatrixSplit::Row;
        if (split == MatrixSplit::Whole)
          whole.push_back(name);
      } else if (!(group.used.dims[0].axes ==
                   planner::AxisNames{mesh::row(planner::Axis::Tensor).name})) {
        tables.push_back(name);
      }
    }
  }
  if (!whole.empty())
    limits.refuse(format("%zu matrices of blocks are whole on every rank of tp, such as %s; "
                         "Megatron splits all",
                         whole.size(), whole.front().c_str()),
                  "plan with --pin '" + whole.front() + "=tp'");
  else if (rows != 2 * facts.numBlocks || columns == 0)
    limits.refuse(
        format("tp splits %lld matrices by columns and %lld by rows; Megatron splits the "
               "last matrix of attention and of the MLP by rows, 2 of each of %lld blocks",
               (long long)columns, (long long)rows, (long long)facts.numBlocks),
        "pin the matrices with --pin 'GLOB=column' and --pin 'GLOB=row', or plan with "
        "tp=1");
  if (!tables.empty())
    limits.warn("TableForm", tables.front() +
                                 (tables.size() > 1 ? format(" and %zu others", tables.size() - 1)
                                                    : std::string()) +
                                 ": Megatron splits token tables by vocabulary and copies position "
                                 "tables, the plan differs");
}

static void writePipeline(const PlanFacts &facts, Limits &limits, Flags &flags) {
  if (facts.mesh().pp == 1)
    return;
  auto kind = facts.plan->schedule;
  if (kind != planner::ScheduleKind::OneFOneB && kind != planner::ScheduleKind::Interleaved)
    limits.refuse("the schedule " + planner::scheduleText(*facts.plan) +
                      "; Megatron has 1f1b and interleaved",
                  "plan with --schedule 1f1b or --schedule interleaved");
  if (!facts.isLooped())
    limits.refuse("chunks in a V shape; Megatron has loops", "plan with --placement loop");
  if (const ChunkBlocks *cut = facts.cutBlock()) {
    limits.refuse("a stage begins inside a block, at " + cut->begin,
                  "plan with --pin 'BLOCK.*=begin' for each stage, such as --pin '" +
                      facts.blockPath + format(".%lld", (long long)*cut->blocks.begin() + 1) +
                      ".*=begin'");
    return;
  }
  std::string layout;
  for (size_t chunk = 0; chunk < facts.chunks.size(); ++chunk) {
    layout += chunk == 0 ? "E" : "|";
    layout += std::string(facts.chunks[chunk].blocks.size(), 't');
  }
  layout += "L";
  if (!facts.isEven())
    flags.add("--pipeline-model-parallel-layout", layout);
  else if (facts.chunksPerStage() > 1)
    flags.add("--num-layers-per-virtual-pipeline-stage", int64_t(facts.chunks[0].blocks.size()));
}

static void writeSharding(const PlanFacts &facts, Limits &limits, Flags &flags) {
  const planner::MeshShape &mesh = facts.mesh();
  if (!facts.otherZero.empty())
    limits.refuse(format("%zu parameters are sharded unlike the others, such as %s",
                         facts.otherZero.size(), facts.otherZero.front().c_str()),
                  "plan with --zero");
  bool isHybrid =
      facts.zero != ZeroForm::Replicated && !facts.shardsOver(planner::Axis::Data) && mesh.dp > 1;
  if (facts.zero == ZeroForm::Zero2 || facts.zero == ZeroForm::ShardGradOp ||
      facts.zero == ZeroForm::Zero3)
    limits.refuse(std::string(name(facts.zero)) +
                      "; Megatron-LM shards optimizer states, its FSDP is another engine",
                  "plan with --zero 1 or --zero 0, or export --to torchtitan");
  if (facts.zero == ZeroForm::Zero1) {
    flags.add("--use-distributed-optimizer");
    flags.add("--overlap-grad-reduce");
    flags.add("--overlap-param-gather");
    if (isHybrid)
      flags.add("--num-distributed-optimizer-instances", mesh.dp);
  } else if (facts.zero == ZeroForm::Replicated && mesh.dataRanks() * mesh.cp > 1) {
    flags.add("--overlap-grad-reduce");
  }
  if (facts.plan->overlap.bucketBytes > 0 && mesh.dataRanks() * mesh.cp > 1) {
    constexpr int64_t gradientBytes = 4; // Megatron reduces bf16 gradients of blocks in f32
    flags.add("--ddp-bucket-size",
              std::max<int64_t>(1, facts.plan->overlap.bucketBytes / gradientBytes));
  }
}

static void writeRecompute(const PlanFacts &facts, Limits &limits, Flags &flags) {
  const planner::Recompute &recompute = facts.plan->recompute;
  if (recompute.mode == planner::RecomputeMode::None)
    return;
  if (recompute.mode == planner::RecomputeMode::Selective) {
    flags.add("--recompute-granularity", "selective");
    flags.add("--recompute-modules", "layernorm");
    limits.warn("RecomputeForm", "the plan recomputes all but matmuls and attention; Megatron "
                                 "recomputes norms, and keeps activation functions");
    if (!recompute.share.isAll())
      limits.warn("RecomputeBlocks",
                  format("the plan recomputes %lld of %lld blocks, Megatron all",
                         (long long)recompute.share.blocks, (long long)recompute.share.of));
    return;
  }
  std::vector<int64_t> blocks = facts.recomputedBlocks();
  bool isEqual = std::all_of(blocks.begin(), blocks.end(),
                             [&](int64_t count) { return count == blocks.front(); });
  bool isDivided = blocks.front() % facts.chunksPerStage() == 0;
  if (!isEqual || (!recompute.share.isAll() && !isDivided)) {
    if (recompute.share.isAll()) {
      flags.add("--recompute-granularity", "full");
      flags.add("--recompute-method", "uniform");
      flags.add("--recompute-num-layers", 1);
      return;
    }
    limits.refuse("recompute of " + planner::toString(recompute) +
                      " blocks: stages recompute different numbers of blocks; Megatron recomputes "
                      "as many on each",
                  "plan with --recompute full, selective or none");
    return;
  }
  flags.add("--recompute-granularity", "full");
  if (recompute.share.isAll()) {
    flags.add("--recompute-method", "uniform");
    flags.add("--recompute-num-layers", 1);
    return;
  }
  flags.add("--recompute-method", "block");
  flags.add("--recompute-num-layers", blocks.front() / facts.chunksPerStage());
  limits.warn("RecomputeBlocks",
              "the plan recomputes the other blocks selectively; Megatron keeps all of them");
}

static void writeContext(const PlanFacts &facts, Limits &limits, Flags &flags) {
  if (facts.mesh().cp == 1)
    return;
  using reshard::ContextForm;
  ContextForm form = facts.plan->context;
  flags.add("--cp-comm-type", form == ContextForm::Ring        ? "p2p"
                              : form == ContextForm::AllGather ? "allgather"
                                                               : "a2a");
  if (!facts.plan->zigzag)
    limits.warn("ContextOrder",
                "the plan has contiguous sequences over cp; Megatron has zigzag order");
}

/// Writes the part of Muon. Its other parameters step by Adam. Source:
/// megatron/core/optimizer/muon.py of megatron-core 0.16; get_muon_scale_factor of
/// emerging_optimizers: shape_scaling is sqrt(max(1, out / in)), spectral is sqrt(max(out, in)).
static void writeMuon(const PlanFacts &facts, Limits &limits, Flags &flags) {
  if (facts.job().precision == planner::Precision::F16)
    limits.refuse("muon in f16, which Megatron's muon does not take", "plan with --precision bf16");
  if (facts.zero == ZeroForm::Zero1)
    limits.refuse("muon with ZeRO-1; Megatron's muon has no distributed optimizer",
                  "plan with --zero 0");
  if (facts.plan->offload.optimizer)
    limits.refuse("muon with offloaded states", "plan with --offload none");
  for (const auto &[key, value] : facts.job().bindings)
    if (key.rfind("no-muon ", 0) == 0)
      limits.refuse("matrices that step by AdamW; Megatron's muon takes all of them",
                    "plan without --no-muon");
  flags.add("--muon-momentum", format("%g", facts.setting("momentum", 0.95)));
  if (facts.setting("nesterov", 1) != 0)
    flags.add("--muon-use-nesterov");
  flags.add("--muon-num-ns-steps", int64_t(facts.setting("ns_steps", 5)));
  const bool matchesRms = facts.setting("match_rms", 0) != 0;
  flags.add("--muon-scale-mode", std::string(matchesRms ? "spectral" : "shape_scaling"));
  if (matchesRms)
    flags.add("--muon-extra-scale-factor", std::string("0.2"));
  flags.add("--muon-tp-mode", std::string("duplicated"));
  limits.warn("MuonMatrices", "Megatron's parameters are its own matrices: it joins query, key and "
                              "value, and splits them again for muon where its version can");
}

/// Writes the experts, with the dispatch of tokens and the kernels that the plan counts on.
static void writeExperts(const PlanFacts &facts, Limits &limits, Flags &flags) {
  const planner::MeshShape &mesh = facts.mesh();
  if (mesh.ep == 1)
    return;
  const std::set<int64_t> numbers = facts.numExperts();
  if (numbers.size() != 1) {
    limits.refuse(format("layers with %zu numbers of experts over ep; Megatron has one number",
                         numbers.size()),
                  "plan with ep=1");
    return;
  }
  const int64_t experts = *numbers.begin();
  flags.add("--num-experts", experts);
  flags.add("--expert-model-parallel-size", mesh.ep);
  flags.add("--expert-tensor-parallel-size", mesh.tp);
  flags.add("--moe-token-dispatcher-type",
            std::string(facts.gathersTokensForExperts() ? "allgather" : "alltoall"));
  const bool isBf16 = facts.job().precision == planner::Precision::BF16;
  if (experts > mesh.ep && isBf16) // Megatron's grouped GEMM takes bf16 alone
    flags.add("--moe-grouped-gemm");
  limits.warn("RouterInModel", "the plan has no routing: --moe-router-topk and the other flags of "
                               "the router are the model's, and Megatron's default is 2 experts "
                               "for each token");
}

/// Megatron pads a vocabulary to a multiple of the flag's number times tp. Its default is 128.
/// Source: _vocab_size_with_padding of megatron/training/tokenizer/tokenizer.py.
static void writeVocabulary(const PlanFacts &facts, Limits &limits, Flags &flags) {
  constexpr int64_t usual = 128;
  for (const auto &[size, padded] : facts.job().paddedVocabularies) {
    const int64_t multiple = int64_t(facts.setting("pad_vocabulary", double(usual)));
    if (multiple % facts.mesh().tp == 0)
      return flags.add("--make-vocab-size-divisible-by", multiple / facts.mesh().tp);
    limits.warn("PaddedVocabulary",
                facts.paddingText() +
                    format(", a multiple of %lld; Megatron pads to a multiple of %lld x tp",
                           (long long)multiple, (long long)usual));
    return;
  }
}

/// Megatron decays all matrices, and no biases and other vectors.
/// Source: _get_param_groups of megatron/core/optimizer/__init__.py.
static void checkDecay(const PlanFacts &facts, Limits &limits) {
  const std::string prefix = "no-decay ";
  auto isDecayed = [&](const std::string &name) {
    const auto &bindings = facts.job().bindings;
    return std::none_of(bindings.begin(), bindings.end(), [&](const auto &binding) {
      return binding.first.rfind(prefix, 0) == 0 &&
             fnmatch(binding.first.c_str() + prefix.size(), name.c_str(), 0) == 0;
    });
  };
  std::vector<std::string> vectors, matrices;
  for (const LayoutParameters &group : facts.plan->layout.parameters)
    for (const std::string &name : group.names) {
      const bool isVector = group.shape.size() < 2;
      if (group.isTrained && isVector == isDecayed(name))
        (isVector ? vectors : matrices).push_back(name);
    }
  if (!vectors.empty())
    limits.warn("VectorDecay",
                format("the plan decays %zu vectors, such as %s, and Megatron decays "
                       "matrices alone: plan with --no-decay '%s'",
                       vectors.size(), vectors.front().c_str(), vectors.front().c_str()));
  if (!matrices.empty())
    limits.warn("MatrixDecay", format("Megatron decays all matrices, also the %zu that the plan "
                                      "does not, such as %s",
                                      matrices.size(), matrices.front().c_str()));
}

static void writeTraining(const PlanFacts &facts, Limits &limits, Flags &flags) {
  const planner::Job &job = facts.job();
  if (job.precision == planner::Precision::BF16)
    flags.add("--bf16");
  if (job.matmulPrecision == planner::MatmulPrecision::Fp8) // e5m2 for gradients, else e4m3
    flags.add("--fp8-format", std::string("hybrid"));
  if (job.precision == planner::Precision::F16) {
    flags.add("--fp16");
    if (facts.setting("loss_scale_interval", 2000) == 0)
      flags.add("--loss-scale", format("%g", facts.setting("loss_scale", 65536)));
    else
      flags.add("--initial-loss-scale", format("%g", facts.setting("loss_scale", 65536)));
  }
  if (job.optimizer == planner::Optimizer::Adafactor ||
      job.optimizer == planner::Optimizer::Adagrad ||
      job.optimizer == planner::Optimizer::RowwiseAdagrad)
    limits.refuse(std::string(planner::name(job.optimizer)) + ", which is no optimizer of Megatron",
                  "plan with --optimizer adamw");
  const bool isMuon = job.optimizer == planner::Optimizer::Muon;
  const bool isAdam = isMuon || job.optimizer == planner::Optimizer::AdamW ||
                      job.optimizer == planner::Optimizer::Adam;
  flags.add("--optimizer", isMuon ? "muon" : isAdam ? "adam" : "sgd");
  if (isMuon)
    writeMuon(facts, limits, flags);
  const double decay = isMuon ? 0.1 : job.optimizer == planner::Optimizer::AdamW ? 0.01 : 0;
  bool decays = facts.setting("weight_decay", decay) > 0;
  if (job.optimizer == planner::Optimizer::Adam && decays)
    limits.refuse("Adam with weight decay in the gradient; Megatron's decays weights (AdamW)",
                  "plan with --optimizer adamw");
  if (decays)
    checkDecay(facts, limits);
  flags.add("--weight-decay", format("%g", facts.setting("weight_decay", decay)));
  if (isAdam) {
    flags.add("--adam-beta1", format("%g", facts.setting("beta1", 0.9)));
    flags.add("--adam-beta2", format("%g", facts.setting("beta2", 0.999)));
    flags.add("--adam-eps", format("%g", facts.setting("epsilon", 1e-8)));
  } else {
    double momentum =
        facts.setting("momentum", job.optimizer == planner::Optimizer::SgdMomentum ? 0.9 : 0);
    flags.add("--sgd-momentum", format("%g", momentum));
  }
  flags.add("--clip-grad", format("%g", facts.setting("clip_norm", 0)));
  if (facts.hasSetting("clip_value"))
    limits.refuse("clipping of gradients by value", "plan with --clip-norm");
  const planner::Offload &offload = facts.plan->offload;
  if (offload.optimizer) {
    flags.add("--optimizer-cpu-offload");
    flags.add("--use-precision-aware-optimizer");
  }
  if (offload.residuals || !offload.ops.empty())
    limits.refuse("offloaded residuals", "plan with --offload none or --offload optimizer");
}

Result<Exported> writeMegatron(const PlanFacts &facts) {
  Limits limits("Megatron");
  Flags flags;
  const planner::MeshShape &mesh = facts.mesh();
  if (facts.numBlocks == 0)
    limits.refuse("a model without a list of numbered blocks", "export --to pytorch or jax");
  else
    flags.add("--num-layers", facts.numBlocks);
  flags.add("--tensor-model-parallel-size", mesh.tp);
  flags.add("--pipeline-model-parallel-size", mesh.pp);
  flags.add("--context-parallel-size", mesh.cp);
  writeExperts(facts, limits, flags);
  checkMatrices(facts, limits);
  if (mesh.tp > 1 && facts.residual == ResidualForm::Sequence)
    flags.add("--sequence-parallel");
  else if (mesh.tp > 1 && facts.residual == ResidualForm::Other)
    limits.refuse("activations between blocks that are split over tp by width",
                  "plan with another mesh, or export --to pytorch");
  else if (mesh.tp > 1 && mesh.ep > 1)
    limits.refuse("tp and ep without sequence parallelism", "plan with tp=1 or ep=1");
  flags.add("--micro-batch-size", facts.plan->microBatch);
  flags.add("--global-batch-size", facts.job().globalBatch);
  if (facts.job().sequence > 0)
    flags.add("--seq-length", facts.job().sequence);
  writeVocabulary(facts, limits, flags);
  writePipeline(facts, limits, flags);
  writeSharding(facts, limits, flags);
  writeContext(facts, limits, flags);
  writeRecompute(facts, limits, flags);
  writeTraining(facts, limits, flags);
  if (Status status = limits.status(); !status)
    return status.error();
  return Exported{header(facts, limits.warnings(), "#") + flags.text, limits.warnings()};
}

} // namespace tbc::exporter
