//===- Legal.cpp - Whether a configuration can run with a model -------------===//

#include "tools/judge/Legal.h"

#include "planner/support/Format.h"
#include "tools/judge/Accelerate.h"
#include "tools/judge/DeepSpeed.h"
#include "tools/judge/Megatron.h"
#include "tools/judge/Torchtitan.h"
#include "tools/judge/Trainer.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace tbc::judge {

using planner::format;

const std::vector<Kind> &kinds() {
  static const std::vector<Kind> table = {{"megatron", readMegatron},
                                          {"torchtitan", readTorchtitan},
                                          {"deepspeed", readDeepSpeed},
                                          {"accelerate", readAccelerate},
                                          {"trainer", readTrainer}};
  return table;
}

const Kind &recognise(const std::string &text, const std::string &source) {
  auto endsWith = [&](const std::string &ending) {
    return source.size() > ending.size() &&
           source.compare(source.size() - ending.size(), ending.size(), ending) == 0;
  };
  enum { Megatron, Torchtitan, DeepSpeed, Accelerate, Trainer };
  size_t first = text.find_first_not_of(" \t\r\n");
  if (endsWith(".json") || (first != std::string::npos && text[first] == '{'))
    return kinds()[DeepSpeed];
  if (endsWith(".toml") || endsWith(".py") || source.find(".py:") != std::string::npos)
    return kinds()[Torchtitan];
  if (endsWith(".yaml") || endsWith(".yml"))
    return kinds()[Accelerate];
  bool hasFlags = text.rfind("--", 0) == 0 || text.find(" --") != std::string::npos ||
                  text.find("\n--") != std::string::npos;
  if (hasFlags)
    return kinds()[Megatron];
  if (text.find("\n[") != std::string::npos || text.rfind("[", 0) == 0)
    return kinds()[Torchtitan];
  return text.find(": ") != std::string::npos ? kinds()[Accelerate] : kinds()[Trainer];
}

/// Sets the numbers of heads of an attention, in any order of its dims. Its second result is
/// [b, h, s]; loops over h that the keys have too are those of their heads.
static void takeHeads(const reshard::Graph &graph, const reshard::GraphOp &op, ModelSizes &sizes) {
  constexpr int statistic = 1, headDim = 1, key = 1;
  sizes.heads = graph.values[size_t(op.results[statistic])].layout.shape()[headDim];
  sizes.kvHeads = 1;
  for (const reshard::Loop &loop : op.loops) {
    auto isOfHeads = [](const reshard::TensorDim &at) {
      return at.tensor == statistic && at.dim == headDim;
    };
    auto isOfKey = [](const reshard::TensorDim &at) { return at.tensor == key; };
    if (std::any_of(loop.resultDims.begin(), loop.resultDims.end(), isOfHeads) &&
        std::any_of(loop.operandDims.begin(), loop.operandDims.end(), isOfKey))
      sizes.kvHeads *= loop.size;
  }
}

ModelSizes sizesOf(const reshard::Graph &graph, const std::vector<std::string> &paths) {
  ModelSizes sizes;
  for (const reshard::GraphOp &op : graph.ops) {
    if (op.phase != reshard::Phase::Forward || op.operands.size() < 2)
      continue;
    auto shape = [&](size_t operand) {
      return graph.values[size_t(op.operands[operand])].layout.shape();
    };
    if (op.kind == "attention")
      takeHeads(graph, op, sizes);
    if (op.kind == "embedding" && shape(0).size() == 2 && shape(0)[0] > sizes.vocabulary) {
      sizes.vocabulary = shape(0)[0];
      sizes.hidden = shape(0)[1];
    }
  }
  sizes.experts = reshard::commonExperts(graph);
  std::set<std::string> lists; // paths of numbered modules
  for (const std::string &path : paths)
    for (size_t begin = 0; begin < path.size();) {
      size_t end = std::min(path.find('.', begin), path.size());
      int64_t number = 0;
      auto [rest, error] = std::from_chars(path.data() + begin, path.data() + end, number);
      if (error == std::errc() && rest == path.data() + end) {
        sizes.layers = std::max(sizes.layers, number + 1);
        lists.insert(path.substr(0, begin));
        break;
      }
      begin = end + 1;
    }
  if (lists.size() == 1 && lists.begin()->size() > 1)
    sizes.layerPath = lists.begin()->substr(0, lists.begin()->size() - 1);
  return sizes;
}

/// Compares the sizes that the configuration names with the model's.
static void checkSizes(Setup &setup, const ModelSizes &model) {
  auto compare = [&](Field field, int64_t size, const char *name, const char *what) {
    std::optional<int64_t> asked = setup.number(field);
    if (asked && size > 0 && *asked != size)
      setup.refuse(name, format("the configuration has %lld %s, and the model %lld",
                                (long long)*asked, what, (long long)size));
  };
  compare(Field::Layers, model.layers, "Layers", "layers");
  compare(Field::Heads, model.heads, "Heads", "attention heads");
  compare(Field::Hidden, model.hidden, "Hidden", "columns of the residual stream");
  if (setup.has(Field::KvHeads))
    compare(Field::KvHeads, model.kvHeads, "KvHeads", "heads of keys and values");
  auto divide = [&](int64_t size, int64_t parts, const char *name, const char *what,
                    const char *axis) {
    if (size > 0 && size % parts != 0)
      setup.refuse(name, format("%lld %s do not divide over %s=%lld", (long long)size, what, axis,
                                (long long)parts));
  };
  divide(model.heads, setup.tp, "Heads", "attention heads", "tp");
  if (model.kvHeads > 0 && model.kvHeads % setup.tp != 0 && setup.tp % model.kvHeads != 0)
    divide(model.kvHeads, setup.tp, "KvHeads", "heads of keys and values", "tp");
  else if (model.kvHeads > 0 && setup.tp > model.kvHeads)
    setup.refuse("KvHeads", format("tp=%lld is more than the %lld heads of keys and values",
                                   (long long)setup.tp, (long long)model.kvHeads));
  divide(model.vocabulary, setup.tp, "Vocabulary", "rows of the token table", "tp");
  if (setup.ep > 1 && (model.experts < 2 || model.experts % setup.ep != 0))
    setup.refuse("Experts",
                 model.experts < 2
                     ? format("ep=%lld, and the model has no experts", (long long)setup.ep)
                     : format("%lld experts do not divide over ep=%lld", (long long)model.experts,
                              (long long)setup.ep));
  int64_t chunks = setup.pp * setup.virtualStages.value_or(1);
  if (model.layers > 0 && chunks > model.layers)
    setup.refuse("Layers", format("%lld layers for %lld pieces of the pipeline",
                                  (long long)model.layers, (long long)chunks));
  if (setup.sequence && *setup.sequence % (2 * setup.cp) != 0 && setup.cp > 1)
    setup.refuse("Sequence", format("a sequence of %lld does not divide into 2 x cp=%lld parts",
                                    (long long)*setup.sequence, (long long)setup.cp));
  if (setup.has(Field::SequenceParallel) && setup.sequence && *setup.sequence % setup.tp != 0)
    setup.refuse("Sequence", format("a sequence of %lld does not divide over tp=%lld",
                                    (long long)*setup.sequence, (long long)setup.tp));
}

/// Checks that `ep` x its ranks for each expert divide the `ranks` of a stage.
/// Source: initialize_model_parallel of megatron/core/parallel_state.py.
static bool checkExpertRanks(Setup &setup, int64_t ranks) {
  if (!setup.expertTp)
    return true;
  if (ranks % setup.ep == 0 && ranks / setup.ep % *setup.expertTp == 0)
    return true;
  setup.refuse("Ranks", format("%lld ranks of a stage do not divide into ep=%lld x expert tp=%lld",
                               (long long)ranks, (long long)setup.ep, (long long)*setup.expertTp));
  return false;
}

static void noteExpertTp(Setup &setup, const ModelSizes &model) {
  if (!setup.expertTp || *setup.expertTp == setup.tp)
    return;
  setup.notes.push_back(
      model.experts < 2
          ? "--expert-tensor-parallel-size has no effect without experts"
          : format("--expert-tensor-parallel-size %lld is left out: experts are taken to be split "
                   "over tp=%lld, as other matrices",
                   (long long)*setup.expertTp, (long long)setup.tp));
}

/// Completes dp and fsdp. Returns the number of data ranks, or 0 after a problem.
static int64_t checkRanks(Setup &setup, int64_t gpus) {
  if (setup.ranks && *setup.ranks != gpus)
    setup.refuse("Ranks", format("the configuration starts %lld processes, and there are %lld GPUs",
                                 (long long)*setup.ranks, (long long)gpus));
  int64_t model = setup.tp * setup.pp * setup.cp;
  if (gpus % model != 0) {
    setup.refuse("Ranks",
                 format("%lld GPUs do not divide into tp=%lld x pp=%lld x cp=%lld", (long long)gpus,
                        (long long)setup.tp, (long long)setup.pp, (long long)setup.cp));
    return 0;
  }
  int64_t data = gpus / model;
  bool isSharded = setup.zero.value_or(0) == 3;
  if (setup.fsdp == 0 && setup.dp == 0)
    (isSharded ? setup.fsdp : setup.dp) = data;
  else if (setup.fsdp == 0)
    setup.fsdp = data % setup.dp == 0 ? data / setup.dp : 0;
  setup.dp = std::max<int64_t>(setup.dp, 1);
  if (setup.fsdp == 0 && setup.dp == data)
    setup.fsdp = 1;
  if (setup.dp * setup.fsdp != data) {
    setup.refuse("Ranks", format("%lld GPUs are %lld data ranks, and the configuration has "
                                 "%lld x %lld",
                                 (long long)gpus, (long long)data, (long long)setup.dp,
                                 (long long)setup.fsdp));
    return 0;
  }
  if (!checkExpertRanks(setup, gpus / setup.pp))
    return 0;
  if (setup.ep > 1 && data % setup.ep != 0) {
    if (setup.expertTp)
      setup.refuse("Planner", format("ep=%lld with %lld data ranks takes ranks of tp or cp, which "
                                     "tbc has no plan for",
                                     (long long)setup.ep, (long long)data));
    else
      setup.refuse("Ranks", format("ep=%lld does not divide %lld data ranks", (long long)setup.ep,
                                   (long long)data));
    return 0;
  }
  return data;
}

static void checkBatch(Setup &setup, int64_t data) {
  auto &micro = setup.microBatch, &steps = setup.accumulation, &global = setup.globalBatch;
  if (micro && steps && global && *micro * *steps * data != *global) {
    setup.refuse("Batch", format("micro-batch %lld x accumulation %lld x %lld data ranks are %lld "
                                 "samples, and the global batch is %lld",
                                 (long long)*micro, (long long)*steps, (long long)data,
                                 (long long)(*micro * *steps * data), (long long)*global));
    return;
  }
  if (micro && global && *global % (*micro * data) != 0) {
    setup.refuse("Batch", format("a global batch of %lld is no multiple of micro-batch %lld x %lld "
                                 "data ranks",
                                 (long long)*global, (long long)*micro, (long long)data));
    return;
  }
  if (!micro && global && *global % (data * steps.value_or(1)) != 0) {
    setup.refuse("Batch",
                 format("a global batch of %lld is no multiple of %lld data ranks x "
                        "accumulation %lld",
                        (long long)*global, (long long)data, (long long)steps.value_or(1)));
    return;
  }
  if (!micro && global)
    micro = *global / (data * steps.value_or(1));
  if (micro && !global && steps)
    global = *micro * *steps * data;
  if (micro && global)
    steps = *global / (*micro * data);
  if (setup.schedule == "interleaved" && steps && *steps % setup.pp != 0)
    setup.refuse("Schedule", format("%lld micro-batches are no multiple of pp=%lld, as interleaved "
                                    "stages need",
                                    (long long)*steps, (long long)setup.pp));
  if (!setup.schedule.empty() && steps && *steps < setup.pp)
    setup.notes.push_back(format("%lld micro-batches do not fill %lld stages", (long long)*steps,
                                 (long long)setup.pp));
}

void checkSetup(Setup &setup, const ModelSizes &model, int64_t gpus) {
  checkSizes(setup, model);
  noteExpertTp(setup, model);
  if (int64_t data = checkRanks(setup, gpus); data > 0)
    checkBatch(setup, data);
}

/// Pins the cuts of the pipeline. A chunk begins with its first layer, so one without layers has no
/// pin, and then tbc cuts all of them.
static void pinCuts(Setup &setup, const ModelSizes &model, planner::Pins &pins) {
  if (setup.chunkLayers.empty())
    return;
  const auto &chunks = setup.chunkLayers;
  const bool hasLayers =
      std::all_of(chunks.begin() + 1, chunks.end(), [](int64_t layers) { return layers > 0; });
  if (!hasLayers || model.layerPath.empty()) {
    setup.notes.push_back("stages are cut by tbc, not by the configuration");
    return;
  }
  int64_t layer = 0;
  for (size_t chunk = 1; chunk < chunks.size(); ++chunk)
    pins.ops.push_back(
        {model.layerPath + "." + std::to_string(layer += chunks[chunk - 1]) + ".*", "begin"});
}

/// Returns the pin of recompute. tbc recomputes the first layers of the model, in the chunks where
/// most micro-batches are in flight.
/// Example: 2 layers of each of 4 chunks with 8 layers are "full:8"; 8 of each are "full".
static std::string recomputeOf(Setup &setup, const ModelSizes &model) {
  if (!setup.chunkRecompute)
    return setup.recompute;
  const int64_t count = setup.pp * setup.virtualStages.value_or(1);
  std::vector<int64_t> chunks = setup.chunkLayers;
  if (chunks.empty())
    chunks.assign(size_t(count), model.layers / count);
  int64_t recomputed = 0, all = 0;
  for (int64_t layers : chunks) {
    recomputed += std::min(layers, *setup.chunkRecompute);
    all += layers;
  }
  if (recomputed == all)
    return planner::name(planner::RecomputeMode::Full);
  if (count > 1)
    setup.notes.push_back(format("tbc recomputes the first %lld layers, not the first %lld of each "
                                 "chunk",
                                 (long long)recomputed, (long long)*setup.chunkRecompute));
  return planner::name(planner::RecomputeMode::Full) + std::string(":") +
         std::to_string(recomputed);
}

planner::Pins pinsOf(Setup &setup, const ModelSizes &model) {
  planner::Pins pins;
  int64_t dp = setup.dp, fsdp = setup.fsdp;
  // ep takes its ranks from the data ranks.
  if (setup.ep > 1)
    (fsdp % setup.ep == 0 ? fsdp : dp) /= setup.ep;
  const planner::MeshShape shape{setup.pp, dp, fsdp, setup.ep, setup.cp, setup.tp};
  for (auto [axis, size] : shape.axes())
    if (size > 1)
      pins.mesh.push_back({axis, size});
  if (pins.mesh.empty())
    pins.mesh.push_back({"dp", 1});
  if (setup.zero && *setup.zero == 3 && setup.keepGathered && setup.fsdp > 1)
    pins.strategy = setup.dp > 1 ? "auto" : "shard-grad-op";
  else if (setup.zero && setup.dp * setup.fsdp > 1)
    pins.zero = *setup.zero == 3 && setup.fsdp == 1 ? 0 : *setup.zero;
  pins.microBatch = setup.microBatch;
  pins.schedule = setup.pp > 1 ? setup.schedule : "";
  pins.virtualStages = setup.pp > 1 ? setup.virtualStages : std::nullopt;
  // Without recomputation of layers, kernels still make values again where that costs nothing.
  if (setup.recompute == planner::name(planner::RecomputeMode::None))
    for (planner::RecomputeMode mode :
         {planner::RecomputeMode::Selective, planner::RecomputeMode::Full})
      pins.conditions.push_back({"recompute", planner::name(mode), /*isForbidden=*/true});
  else if (!setup.recompute.empty())
    pins.recompute = recomputeOf(setup, model);
  pinCuts(setup, model, pins);
  if (!setup.offload.empty())
    pins.offload = setup.offload;
  if (setup.cp > 1)
    pins.context = setup.context;
  return pins;
}

} // namespace tbc::judge
