//===- Context.cpp - MLIR contexts with the dialects of tbc -------------------===//

#include "tools/driver/Context.h"

#include "ir/Tbc.h"
#include "planner/layout/LayoutOf.h"
#include "planner/plan/PlanCheck.h"
#include "planner/plan/PlanFile.h"
#include "planner/predict/Evaluate.h"
#include "planner/search/Search.h"
#include "runtime/abi/Problem.h"
#include "tools/driver/NameModel.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <filesystem>

namespace tbc::driver {

std::unique_ptr<mlir::MLIRContext> makeContext() {
  auto context = std::make_unique<mlir::MLIRContext>(mlir::MLIRContext::Threading::DISABLED);
  // Diagnostics name the ONNX node; the op as text, with all types, would bury the name.
  context->printOpOnDiagnostic(false);
  context->loadDialect<mlir::func::FuncDialect, TbcDialect>();
  return context;
}

static StepOptions stepOptions(const planner::Job &job, const std::string &modelPath) {
  StepOptions step;
  step.modelPath = modelPath;
  step.loss = job.loss;
  step.optimizer = job.optimizer;
  step.precision = job.precision;
  step.settings = job.settings;
  for (const auto &[key, value] : job.bindings) {
    if (key == "seq")
      step.import.seq = value;
    else if (key.rfind("dim ", 0) == 0)
      step.import.dims[key.substr(4)] = value;
    else if (key.rfind("fix ", 0) == 0)
      step.import.fix[key.substr(4)] = value == 0 ? "zeros" : value == 1 ? "ones" : "input";
    else if (key.rfind("tie ", 0) == 0)
      step.import.ties.push_back(key.substr(4));
    else if (key.rfind("constant ", 0) == 0)
      step.import.constants.push_back(key.substr(9));
    else if (key.rfind("parameter ", 0) == 0)
      step.import.parameters.push_back(key.substr(10));
    else if (key.rfind("detach ", 0) == 0)
      step.import.detached.push_back(key.substr(7));
    else if (key.rfind("freeze ", 0) == 0)
      step.freeze.push_back(key.substr(7));
    else if (key.rfind("no-decay ", 0) == 0)
      step.noDecay.push_back(key.substr(9));
    else if (key.rfind("no-muon ", 0) == 0)
      step.noMuon.push_back(key.substr(8));
  }
  return step;
}

Result<std::unique_ptr<TrainingStep>> stepOf(mlir::MLIRContext &context, const planner::Job &job,
                                             const std::string &modelPath) {
  return buildTrainingStep(context, stepOptions(job, modelPath));
}

Result<LoadedPlan> loadPlan(const std::string &planPath, const std::string &planText,
                            const std::string &modelPath) {
  LoadedPlan loaded;
  auto plan = planner::readPlan(planText, planPath);
  if (!plan)
    return ofKind(Problem::BadPlan, plan.error());
  loaded.plan = std::move(*plan);
  std::string path = modelPath;
  if (path.empty() && loaded.plan.job.modelPath.empty())
    return problem(Problem::BadPlan, planPath +
                                         ": key \"model.path\" is empty; it names the model's "
                                         "file, from the plan's folder");
  if (path.empty())
    path = (std::filesystem::path(planPath).parent_path() / loaded.plan.job.modelPath).string();
  loaded.context = makeContext();
  auto step = stepOf(*loaded.context, loaded.plan.job, path);
  if (!step)
    return step.error();
  loaded.step = std::move(*step);
  if (loaded.step->model.hash != loaded.plan.job.modelHash)
    return problem(Problem::OtherModel, planPath + " was made for another model than " + path +
                                            "; name the right one with --model, or plan again");
  loaded.plan.job.names = nameModel(*loaded.step);
  return loaded;
}

Status checkExecutor(const LoadedPlan &loaded, const std::string &planPath) {
  const planner::Executor &executor = planner::executorOf(loaded.plan.cluster);
  if (executor.isOwn())
    return Status::ok();
  return Error{ErrorCode::Usage, planPath + " was made for " + executor.name +
                                     ", which runs other programs than tbc compiles; plan again "
                                     "with --executor tbc"};
}

Status checkPredictions(const LoadedPlan &loaded, const std::string &planPath) {
  auto derived = planner::predict(loaded.step->step.graph, loaded.plan);
  if (!derived)
    return ofKind(Problem::BadPlan,
                  Error{derived.error().code, planPath + ": " + derived.error().message});
  auto layout = planner::layoutOf(loaded.step->step.graph, loaded.plan);
  if (!layout)
    return ofKind(Problem::BadPlan,
                  Error{layout.error().code, planPath + ": " + layout.error().message});
  std::string why = planner::whyNotDerived(loaded.plan, *derived, *layout);
  if (why.empty())
    return Status::ok();
  return problem(Problem::StalePlan,
                 planPath + ": " + why +
                     ": the plan was edited, or made by another tbc; plan again, or write what its "
                     "decisions give with tbc explain " +
                     planPath + " --derive FILE");
}

} // namespace tbc::driver
