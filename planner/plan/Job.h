//===- Job.h - The training job, without the graph ------------------------===//

#ifndef TBC_PLANNER_PLAN_JOB_H
#define TBC_PLANNER_PLAN_JOB_H

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tbc::reshard {
struct GraphParameter;
} // namespace tbc::reshard

namespace tbc::planner {

struct ModelNames;

/// What the step does with the model.
enum class Task { Train };
enum class Optimizer { AdamW, Adam, Sgd, SgdMomentum, Muon, Adafactor, Adagrad, RowwiseAdagrad };
/// The element type of parameters and matmuls. Optimizer states and master weights are f32.
enum class Precision { F32, BF16, F16 };
/// The types that matmuls read. Own: those of their operands. Fp8: 8 bits, rounded right before.
enum class MatmulPrecision { Own, Fp8 };

/// Returns the word of flags and of plan.json. Example: "train", "sgd-momentum", "bf16".
const char *name(Task task);
const char *name(Optimizer optimizer);
const char *name(Precision precision);
const char *name(MatmulPrecision precision);
/// All words of flags and of plan.json.
const std::vector<std::string> &taskNames();
const std::vector<std::string> &optimizerNames();
const std::vector<std::string> &precisionNames();
const std::vector<std::string> &matmulPrecisionNames();
/// The inverse of name(); nullopt for any other text.
std::optional<Task> parseTask(const std::string &word);
std::optional<Optimizer> parseOptimizer(const std::string &word);
std::optional<Precision> parsePrecision(const std::string &word);
std::optional<MatmulPrecision> parseMatmulPrecision(const std::string &word);

/// The training job, without the graph.
struct Job {
  std::string modelPath; // as written in the plan: relative to it
  std::string modelHash; // of the model file
  std::string stepHash;  // of the canonical step functions
  /// The vocabularies that were padded, with their padded sizes. Example: {50257: 50304}.
  std::map<int64_t, int64_t> paddedVocabularies;
  std::map<std::string, int64_t> bindings; // --dim NAME=VALUE and other bindings
  Task task = Task::Train;
  std::string loss = "cross-entropy";
  Optimizer optimizer = Optimizer::AdamW;
  /// Given numbers of the step: of the optimizer, the loss, clipping.
  std::map<std::string, double> settings;
  Precision precision = Precision::BF16;
  MatmulPrecision matmulPrecision = MatmulPrecision::Own;
  int64_t gpus = 1;
  int64_t globalBatch = 1;     // samples per step
  bool batchIsDefault = false; // true: it may be rounded up to fit the mesh
  int64_t sequence = 0;        // tokens per sample; 0 for a model without sequences
  /// The tokens of the fullest rank of ep over the mean of all, for experts without a capacity.
  double expertImbalance = 1;

  /// For people; may be null.
  std::shared_ptr<const ModelNames> names;

  /// Bytes of optimizer state per parameter element, of most parameters.
  int64_t stateBytesPerElement() const;
  /// The same of one parameter, without states of whole matrices (reshard::wholeStateBytes).
  /// Example: 4 for a matrix of muon, 8 for its other parameters.
  int64_t stateBytesPerElement(const reshard::GraphParameter &parameter) const;
};

/// Returns the bytes per element of the f32 master copy of a parameter with `parameterBytes` per
/// element. Example: 4 for bf16, 0 for f32.
int64_t masterBytes(int64_t parameterBytes);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_JOB_H
