//===- Serial.cpp - The unpartitioned step, run by the interpreter ----------===//

#include "ir/Rebatch.h"
#include "ir/SerialTrainer.h"
#include "passes/loss/AttachLoss.h"
#include "passes/optimizer/LossScale.h"
#include "tools/driver/Verify.h"

using namespace mlir;

namespace tbc::driver {

Result<RunRecord> runSerial(TrainingStep &step, const planner::Plan &plan, const RunData &data,
                            const kernels::KernelContext &context) {
  DiagnosticCollector diagnostics(*step.train.getContext());
  OwningOpRef<ModuleOp> module = cast<ModuleOp>(step.model.module->clone());
  auto train = module->lookupSymbol<func::FuncOp>("train");
  int64_t samples = plan.microBatch * plan.mesh.dataRanks();
  setBatchSizes(train, plan.job.globalBatch, samples);
  setBatchSizes(module->lookupSymbol<func::FuncOp>("update"), plan.job.globalBatch, samples);
  if (failed(rebatch(train, samples)))
    return diagnostics.error(ErrorCode::Other, "the step could not be rebatched");

  SerialTrainer trainer(*module, context);
  for (const auto &[name, value] : data.initial)
    if (failed(trainer.set(name, value)))
      return diagnostics.error(ErrorCode::Other, "cannot set \"" + name + "\"");
  if (data.lossScale &&
      failed(trainer.set(kLossScaleName.str(),
                         kernels::Tensor::fromDoubles({kernels::DType::F32, {}}, context.arith,
                                                      {*data.lossScale}))))
    return diagnostics.error(ErrorCode::Other, "the step has no loss scale to set");
  RunRecord record;
  for (size_t s = 0; s < data.steps.size(); ++s) {
    if (failed(trainer.step(data.steps[s], data.learningRate)))
      return diagnostics.error(ErrorCode::Other, "the serial step could not be evaluated");
    record["loss " + std::to_string(s + 1)] = trainer.loss();
  }
  for (const auto &[name, value] : trainer.values())
    record[name] = value;
  for (const auto &[name, value] : trainer.gradients())
    record[name + ".grad"] = value;
  return record;
}

Result<RunRecord> SerialRuns::run(TrainingStep &step, const planner::Plan &plan,
                                  const Setting &setting) {
  const Key key{step.model.hash,      step.hash,
                plan.job.globalBatch, plan.microBatch * plan.mesh.dataRanks(),
                setting.steps,        setting.arith,
                setting.seed,         setting.lossScale,
                setting.range.low,    setting.range.high,
                setting.neighbour};
  if (auto known = made.find(key); known != made.end())
    return known->second;
  auto data = makeRunData(step, plan, setting.steps, setting.arith, setting.seed, setting.range);
  if (!data)
    return data.error();
  if (setting.neighbour > 0)
    moveParameters(*data, step, setting.arith, setting.neighbour);
  data->lossScale = setting.lossScale;
  auto record = runSerial(step, plan, *data, setting.arith);
  if (record)
    made[key] = *record;
  return record;
}

} // namespace tbc::driver
