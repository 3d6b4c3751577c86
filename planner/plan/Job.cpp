//===- Job.cpp - The training job, without the graph ----------------------===//

#include "planner/plan/Job.h"
#include "planner/reshard/Graph.h"

#include <algorithm>

namespace tbc::planner {

const char *name(Task task) {
  switch (task) {
  case Task::Train:
    return "train";
  }
  return nullptr;
}

const char *name(Optimizer optimizer) {
  switch (optimizer) {
  case Optimizer::AdamW:
    return "adamw";
  case Optimizer::Adam:
    return "adam";
  case Optimizer::SgdMomentum:
    return "sgd-momentum";
  case Optimizer::Sgd:
    return "sgd";
  case Optimizer::Muon:
    return "muon";
  case Optimizer::Adafactor:
    return "adafactor";
  case Optimizer::Adagrad:
    return "adagrad";
  case Optimizer::RowwiseAdagrad:
    return "rowwise-adagrad";
  }
  return nullptr;
}

const char *name(Precision precision) {
  switch (precision) {
  case Precision::BF16:
    return "bf16";
  case Precision::F16:
    return "f16";
  case Precision::F32:
    return "f32";
  }
  return nullptr;
}

const char *name(MatmulPrecision precision) {
  switch (precision) {
  case MatmulPrecision::Own:
    return "own";
  case MatmulPrecision::Fp8:
    return "fp8";
  }
  return nullptr;
}

/// Returns the names of all values of an enum: name() is null beyond the last one.
template <typename Enum> static std::vector<std::string> namesOf() {
  std::vector<std::string> names;
  for (int value = 0; name(Enum(value)); ++value)
    names.push_back(name(Enum(value)));
  return names;
}

template <typename Enum>
static std::optional<Enum> parse(const std::vector<std::string> &names, const std::string &word) {
  auto found = std::find(names.begin(), names.end(), word);
  if (found == names.end())
    return std::nullopt;
  return Enum(found - names.begin());
}

const std::vector<std::string> &taskNames() {
  static const std::vector<std::string> names = namesOf<Task>();
  return names;
}

const std::vector<std::string> &optimizerNames() {
  static const std::vector<std::string> names = namesOf<Optimizer>();
  return names;
}

const std::vector<std::string> &precisionNames() {
  static const std::vector<std::string> names = namesOf<Precision>();
  return names;
}

const std::vector<std::string> &matmulPrecisionNames() {
  static const std::vector<std::string> names = namesOf<MatmulPrecision>();
  return names;
}

std::optional<Task> parseTask(const std::string &word) { return parse<Task>(taskNames(), word); }

std::optional<Optimizer> parseOptimizer(const std::string &word) {
  return parse<Optimizer>(optimizerNames(), word);
}

std::optional<Precision> parsePrecision(const std::string &word) {
  return parse<Precision>(precisionNames(), word);
}

std::optional<MatmulPrecision> parseMatmulPrecision(const std::string &word) {
  return parse<MatmulPrecision>(matmulPrecisionNames(), word);
}

/// Whether plain SGD keeps a momentum, by its settings or else `otherwise`.
static bool hasMomentum(const Job &job, bool otherwise) {
  auto momentum = job.settings.find("momentum");
  return momentum == job.settings.end() ? otherwise : momentum->second != 0;
}

int64_t Job::stateBytesPerElement() const {
  switch (optimizer) {
  case Optimizer::AdamW:
  case Optimizer::Adam:
  case Optimizer::Muon: // its parameters that are no matrices step by AdamW
    return 8;
  case Optimizer::SgdMomentum:
    return hasMomentum(*this, true) ? 4 : 0;
  case Optimizer::Sgd:
    return hasMomentum(*this, false) ? 4 : 0;
  case Optimizer::Adagrad:
  case Optimizer::RowwiseAdagrad: // its parameters that are no tables step by Adagrad
    return 4;
  case Optimizer::Adafactor: // moments of rows and columns
    return 0;
  }
  return 0;
}

int64_t Job::stateBytesPerElement(const reshard::GraphParameter &parameter) const {
  constexpr int64_t bytesPerMoment = 4;
  return parameter.moments < 0 ? stateBytesPerElement() : parameter.moments * bytesPerMoment;
}

int64_t masterBytes(int64_t parameterBytes) { return parameterBytes < 4 ? 4 : 0; }

} // namespace tbc::planner
