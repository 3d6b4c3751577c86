//===- PlanSupport.cpp - Plans for the small models, for end-to-end tests ----===//

#include "tests/tools/PlanSupport.h"

#include <cstdio>
#include <cstdlib>

namespace tbc::test {

Model loadModel(const std::string &name, const std::string &optimizer,
                const std::map<std::string, double> &settings, const std::string &kept,
                const std::string &precision, int64_t tokens) {
  Model model;
  model.context = driver::makeContext();
  driver::StepOptions options;
  options.modelPath = std::string(TBC_SOURCE_DIR) + "/models/" + name + ".onnx";
  options.import.seq = tokens;
  if (!kept.empty())
    options.import.fix[kept] = "input";
  options.optimizer = planner::parseOptimizer(optimizer).value();
  options.settings = settings;
  options.precision = planner::parsePrecision(precision);
  auto step = driver::buildTrainingStep(*model.context, options);
  if (!step) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), step.error().message.c_str());
    std::abort();
  }
  model.step = std::move(*step);
  return model;
}

Result<planner::Plan> makePlan(const Model &model, const PlanRequest &request) {
  planner::Pins pins;
  auto mesh = planner::parseMesh(request.mesh);
  if (!mesh)
    return mesh.error();
  pins.mesh = *mesh;
  pins.strategy = request.strategy;
  pins.zero = request.zero;
  pins.schedule = request.schedule;
  pins.recompute = request.recompute;
  pins.microBatch = request.microBatch;
  if (request.virtualStages > 0)
    pins.virtualStages = request.virtualStages;
  pins.placement = request.placement;
  pins.context = request.context;
  pins.sequenceOrder = request.sequenceOrder;
  pins.offload = request.offload;
  pins.bucketSize = request.bucketSize;
  pins.prefetch = request.prefetch;
  pins.gatherSize = request.gatherSize;
  if (!request.begin.empty())
    pins.ops = {{request.begin, "begin", false}};
  planner::Job job;
  job.modelHash = model.step->model.hash;
  job.stepHash = model.step->hash;
  job.precision = *model.step->options.precision;
  job.optimizer = model.step->options.optimizer;
  job.settings = model.step->options.settings;
  job.globalBatch = request.globalBatch;
  job.sequence = model.step->model.seq;
  job.gpus = 1;
  for (const auto &[axis, size] : *mesh)
    job.gpus *= size;
  auto cluster = planner::loadCluster("h100-sxm");
  if (!cluster)
    return cluster.error();
  auto answer = planner::search(model.step->step.graph, job, *cluster, pins);
  if (!answer)
    return answer.error();
  return answer->plan;
}

Result<driver::CompiledPlan> compileForGpus(const Model &model, const planner::Plan &plan) {
  cuda::CudaTarget target;
  target.architectures = {80};
  return driver::compilePlan(*model.step, plan, nullptr, &target);
}

} // namespace tbc::test
