//===- WhyNone.cpp - Why a search has no candidates -----------------------===//

#include "planner/search/WhyNone.h"
#include "planner/pins/Conditions.h"
#include "planner/reshard/SequenceOrder.h"

using namespace tbc::reshard;

namespace tbc::planner {

static std::string text(int64_t number) { return std::to_string(number); }

/// Returns why the sequence cannot be split over `size` ranks of cp in any form that is allowed, or
/// "".
static std::string whyNoContexts(const SearchProblem &problem, const Pins &pins, int64_t size) {
  MeshShape mesh;
  mesh.cp = size;
  std::string why;
  for (ContextForm form : problem.space.contexts(mesh)) {
    why = whyNoContext(problem.graph, size, form);
    if (why.empty())
      break;
  }
  if (why.empty() && pins.sequenceOrder == "zigzag")
    why = whyNoZigzag(problem.graph, size);
  return why;
}

/// Returns why no mesh of the job has `size` ranks along `axis`, or "".
static std::string whyNoSize(const SearchProblem &problem, const Pins &pins, Axis axis,
                             int64_t size) {
  const Job &job = problem.job;
  const std::string asked = std::string(mesh::row(axis).name) + "=" + text(size);
  if (job.gpus % size != 0)
    return asked + " does not divide " + text(job.gpus) + (job.gpus == 1 ? " device" : " devices");
  switch (axis) {
  case Axis::Pipeline:
    if (size > problem.measures.numPositions)
      return asked + ": a stage can begin at " + text(problem.measures.numPositions) +
             " ops of the model";
    break;
  case Axis::Data:
  case Axis::ShardedData:
    if (!job.batchIsDefault && job.globalBatch % size != 0)
      return asked + " does not divide --batch " + text(job.globalBatch);
    break;
  case Axis::Expert:
    if (const int64_t experts = commonExperts(problem.graph); experts % size != 0)
      return experts == 1 ? asked + ": the model has no routed experts"
                          : asked + " does not divide " + text(experts) + " experts";
    break;
  case Axis::Context:
    if (const std::string why = whyNoContexts(problem, pins, size); !why.empty())
      return asked + ": " + why;
    break;
  case Axis::Tensor:
    if (!problem.measures.mayDivide(size))
      return asked + " divides no dim of the model but the batch";
    break;
  }
  return "";
}

std::string whyNoSizes(const SearchProblem &problem, const Pins &pins) {
  std::string reasons, product;
  int64_t ranks = 1;
  for (Axis axis : mesh::allAxes()) {
    const Condition *asked = askedSize(pins, axis);
    if (!asked)
      continue;
    const int64_t size = numberOf(*asked);
    if (const std::string why = whyNoSize(problem, pins, axis, size); !why.empty())
      reasons += (reasons.empty() ? "" : "; ") + why;
    if (ranks > problem.job.gpus)
      continue; // long enough, and the product could overflow
    ranks *= size;
    product += (product.empty() ? "" : " ") + asked->decision + "=" + asked->value;
  }
  if (reasons.empty() && problem.job.gpus % ranks != 0)
    return product + " has " + text(ranks) + " ranks, which do not divide " +
           text(problem.job.gpus) + " devices";
  return reasons;
}

Error whyNone(const Searcher &searcher, const Pins &pins) {
  const Job &job = searcher.problem.job;
  if (!searcher.space.leftOut().empty())
    return Error{ErrorCode::Usage, searcher.space.leftOut() + "; choose a smaller --batch" +
                                       (pins.microBatch ? ", or another --micro-batch" : "")};
  if (!searcher.space.refusedSchedule().empty())
    return Error{ErrorCode::Usage, searcher.space.refusedSchedule() +
                                       "; choose --batch and --micro-batch accordingly"};
  if (Status status = searcher.space.checkTypes(); !status)
    return status.error();
  if (!pins.conditions.empty()) {
    const std::string why = whyNoSizes(searcher.problem, pins);
    return Error{ErrorCode::Usage,
                 "no configuration of " + text(job.gpus) + " devices and --batch " +
                     text(job.globalBatch) +
                     (pins.strategy == "auto" ? "" : " under --strategy " + pins.strategy) +
                     " is " + toString(pins.conditions) + (why.empty() ? "" : ": " + why)};
  }
  return Error{ErrorCode::Usage,
               "no mesh of " + text(job.gpus) + " devices divides --batch " +
                   text(job.globalBatch) +
                   (pins.microBatch ? " with --micro-batch " + text(*pins.microBatch) : "") +
                   (pins.strategy != "auto" ? " under --strategy " + pins.strategy : "") +
                   "; choose a batch that is a multiple of the data-parallel size"};
}

} // namespace tbc::planner
