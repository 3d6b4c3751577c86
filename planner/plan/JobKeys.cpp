//===- JobKeys.cpp - The model and the job in plan.json --------------------===//

#include "planner/plan/JobKeys.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>

namespace tbc::planner {

using Json = nlohmann::json;

static constexpr int64_t maxCount = int64_t(1) << 40;

Json jobJson(const Job &job) {
  Json bindings = Json::object();
  for (const auto &[name, value] : job.bindings)
    bindings[name] = value;
  Json json = {{"task", name(job.task)},
               {"loss", job.loss},
               {"optimizer", name(job.optimizer)},
               {"precision", name(job.precision)},
               {"gpus", job.gpus},
               {"batch", job.globalBatch},
               {"sequence", job.sequence},
               {"batch_is_default", job.batchIsDefault},
               {"bindings", bindings},
               {"settings", job.settings}};
  if (job.matmulPrecision != MatmulPrecision::Own)
    json["matmul_precision"] = name(job.matmulPrecision);
  if (job.expertImbalance > 1)
    json["expert_imbalance"] = job.expertImbalance;
  return json;
}

Json modelJson(const Job &job) {
  Json json = {{"path", job.modelPath}, {"hash", job.modelHash}, {"step_hash", job.stepHash}};
  for (const auto &[size, padded] : job.paddedVocabularies)
    json["padded_vocabularies"][std::to_string(size)] = padded;
  return json;
}

static void readModel(JsonObject &root, KeyProblem &problem, Job &job) {
  JsonObject model(root.get("model"), "model", problem);
  job.modelPath = model.text("path");
  job.modelHash = model.text("hash");
  job.stepHash = model.text("step_hash");
  const std::string key = "padded_vocabularies";
  if (!model.has(key))
    return;
  JsonObject sizes(model.get(key), model.at(key), problem);
  for (const auto &[name, value] : model.get(key).items()) {
    const int64_t size = std::min<int64_t>(std::strtoll(name.c_str(), nullptr, 10), maxCount);
    if (size < 1 || std::to_string(size) != name)
      problem.report(sizes.at(name), "must have a size as its name");
    job.paddedVocabularies[size] = sizes.integer(name, size + 1, maxCount);
  }
}

void readJob(JsonObject &root, KeyProblem &problem, Job &job) {
  readModel(root, problem, job);
  JsonObject object(root.get("job"), "job", problem);
  job.task = parseTask(object.word("task", taskNames())).value_or(job.task);
  job.loss = object.text("loss");
  job.optimizer =
      parseOptimizer(object.word("optimizer", optimizerNames())).value_or(job.optimizer);
  job.precision =
      parsePrecision(object.word("precision", precisionNames())).value_or(job.precision);
  job.gpus = object.integer("gpus", 1, 1 << 20);
  job.globalBatch = object.integer("batch", 1, maxCount);
  job.sequence = object.integer("sequence", 0, maxCount);
  job.batchIsDefault = object.flag("batch_is_default");
  if (object.has("matmul_precision"))
    job.matmulPrecision =
        parseMatmulPrecision(object.word("matmul_precision", matmulPrecisionNames()))
            .value_or(job.matmulPrecision);
  job.expertImbalance = object.numberOr("expert_imbalance", 1);
  if (job.expertImbalance < 1)
    problem.report("job.expert_imbalance", "must be at least 1, the mean of all ranks");
  const Json &settings = object.get("settings");
  if (!settings.is_object())
    return problem.report("job.settings", "must be an object");
  for (const auto &[name, value] : settings.items())
    if (value.is_number())
      job.settings[name] = value.get<double>();
    else
      problem.report("job.settings." + name, "must be a number");
  const Json &bindings = object.get("bindings");
  if (!bindings.is_object())
    return problem.report("job.bindings", "must be an object");
  JsonObject values(bindings, "job.bindings", problem);
  for (const auto &[name, value] : bindings.items())
    job.bindings[name] = values.integer(name, 0, maxCount);
}

} // namespace tbc::planner
