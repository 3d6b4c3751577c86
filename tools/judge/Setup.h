//===- Setup.h - A parallel configuration of any framework ------------------===//

#ifndef TBC_TOOLS_JUDGE_SETUP_H
#define TBC_TOOLS_JUDGE_SETUP_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tbc::judge {

/// Something in a configuration that cannot run, with a name for scripts.
struct Problem {
  std::string name; // for example "Heads"
  std::string text;
};

/// Keys of a configuration with their values as text. Nested keys have dots.
struct Entry {
  std::string key, value;
};

/// What a key of some framework says.
enum class Field {
  Ignored, ///< known, and without effect on the plan
  Dp,
  Fsdp,
  Tp,
  Pp,
  Cp,
  Ep,
  MicroBatch,
  LocalBatch,
  Accumulation,
  GlobalBatch,
  Sequence,
  Layers,
  Hidden,
  Heads,
  KvHeads,
  Vocabulary,
  Experts,
  Ranks,
  PerNode,
  Nodes,
  Zero,
  Sharding,
  Reshard,
  DistributedOptimizer,
  Instances,
  OuterFsdp,
  TorchFsdp,
  Schedule,
  LayersPerVirtualStage,
  VirtualStages,
  PipelineLayout,
  FirstLayers,
  LastLayers,
  CountsEmbedding,
  CountsLoss,
  VocabularyMultiple,
  ExpertTp,
  RampUp,
  Recompute,
  RecomputeMethod,
  RecomputeLayers,
  RecomputeModules,
  RecomputeActivations,
  OffloadOptimizer,
  OffloadParameters,
  Context,
  Precision,
  Bf16,
  Fp8Format,
  Converters,
  F16,
  GradientType,
  SequenceParallel,
  ClipNorm,
  Distributed
};

/// A key of a framework.
struct Word {
  const char *key;
  Field field;
};

/// A configuration in the planner's terms. Unset fields are open.
struct Setup {
  std::string kind; // the word of --from
  /// The executor that runs it; empty if no file in planner/executors describes its programs.
  std::string executor;
  std::map<Field, std::string> values, keys; // `keys`: the words of the configuration
  int64_t dp = 0, fsdp = 0, tp = 1, pp = 1, cp = 1, ep = 1; // dp and fsdp 0: open
  std::optional<int64_t> microBatch, accumulation, globalBatch, sequence, virtualStages;
  /// Vocabularies are padded to a multiple of this times `tp`, for each rank's part of the table.
  /// Unset: the framework keeps the model's size, and parts may be uneven.
  std::optional<int64_t> vocabularyMultiple;
  /// Ranks that split each expert, where a framework takes those of experts from all ranks of a
  /// stage. Unset: experts are split as other matrices, and `ep` takes data ranks.
  std::optional<int64_t> expertTp;
  /// Layers of each chunk of the pipeline; empty: open.
  std::vector<int64_t> chunkLayers;
  /// Layers of each chunk that are recomputed in full, or all where a chunk has fewer. Unset:
  /// `recompute` is of all layers.
  std::optional<int64_t> chunkRecompute;
  /// Bytes of an element of the accumulated gradients. Unset: as the executor has them.
  std::optional<int64_t> gradientWidth;
  std::optional<int> zero;
  bool keepGathered = false;
  std::string schedule, recompute, offload, context, precision;
  std::string matmulPrecision = "own"; // of --matmul-precision
  std::optional<int64_t> ranks;        // that the configuration starts
  std::vector<Problem> problems;
  std::vector<std::string> notes; // parts that the judgement leaves out

  void refuse(const std::string &name, const std::string &text) {
    problems.push_back({name, text});
  }
  void set(Field field, const std::string &key, const std::string &value) {
    values[field] = value;
    keys[field] = key;
  }
  bool has(Field field) const { return values.count(field) > 0; }
  /// Returns a number; `otherwise` if it is not given. A value that is no positive integer is a
  /// problem.
  int64_t number(Field field, int64_t otherwise);
  std::optional<int64_t> number(Field field);
  /// Whether a switch is on.
  bool isOn(Field field) const;
  /// Returns the text of a field, or "".
  std::string text(Field field) const;
};

/// Reads `entries` with the table of words. An unknown key is a problem with a suggestion.
/// `ignored`: more known keys without effect.
void readWords(Setup &setup, const std::vector<Entry> &entries, const std::vector<Word> &words,
               const std::vector<std::string> &ignored);

/// Notes entries that a plan has no form for, though they may change time and memory. `words`:
/// keys, or beginnings of keys that end with a dot.
void noteLeftOut(Setup &setup, const std::vector<Entry> &entries,
                 const std::vector<std::string> &words);

} // namespace tbc::judge

#endif // TBC_TOOLS_JUDGE_SETUP_H
