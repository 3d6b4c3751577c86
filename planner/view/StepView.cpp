//===- StepView.cpp - The schedule and the memory of a step over time ------===//

#include "planner/view/StepView.h"
#include "planner/plan/PlanDevices.h"
#include "planner/predict/Time.h"

#include <algorithm>
#include <cmath>

namespace tbc::planner {

using schedule::Action;
using schedule::ChunkTimes;
using schedule::Timeline;

/// Returns the schedule of `plan` for another number of micro-batches.
static PipelineSchedule scheduleFor(const Plan &plan, int64_t microBatches) {
  Plan other;
  other.mesh = plan.mesh;
  other.schedule = plan.schedule;
  other.chunkStage = plan.chunkStage;
  other.accumulation = microBatches;
  return scheduleOf(other);
}

std::vector<ChunkTimes> chunkTimes(const Plan &plan) {
  const PipelineSchedule schedule = scheduleFor(plan, plan.mesh.pp);
  const std::vector<int> &stageOf = schedule.pipeline.chunkStage;
  std::vector<StageSeconds> seconds(stageOf.size());
  for (size_t chunk = 0; chunk < std::min(seconds.size(), plan.prediction.chunks.size()); ++chunk)
    seconds[chunk] = plan.prediction.chunks[chunk].seconds;
  std::vector<ChunkTimes> times = planner::chunkTimes(stageDevices(plan), seconds, schedule);
  for (size_t chunk = 0; chunk < times.size(); ++chunk) {
    if (chunk + 1 == times.size() || stageOf[chunk + 1] == stageOf[chunk])
      times[chunk].sendForwardSeconds = 0;
    if (chunk == 0 || stageOf[chunk - 1] == stageOf[chunk])
      times[chunk].sendBackwardSeconds = 0;
  }
  return times;
}

/// Returns all micro-batches of the step, or as many as have at most `events` events.
static int64_t microBatchesWithin(const Plan &plan, const PipelineSchedule &schedule,
                                  int64_t events) {
  const int64_t kinds = schedule::splitsBackward(schedule.kind) ? 3 : 2;
  const int64_t most = std::max<int64_t>(events / (kinds * schedule.pipeline.numChunks()), 1);
  for (int64_t count = std::min(most, plan.accumulation); count > 0; --count)
    if (schedule::whyInvalid(schedule.kind, schedule.pipeline, count).empty())
      return count;
  return std::min(plan.accumulation, plan.mesh.pp); // interleaved: a multiple of the stages
}

namespace {

using Points = std::vector<std::pair<double, double>>; // (share of time, share of bytes)

/// Returns the growth of the residuals of one micro-batch over its forward. With one chunk it
/// follows the blocks of the layer table, else it is a line.
Points growthOf(const Plan &plan) {
  Points points = {{0, 0}};
  double seconds = 0, bytes = 0;
  for (const BlockRow &row : plan.blocks) {
    seconds += row.seconds * double(row.count);
    bytes += double(row.residualBytes) * double(row.count);
  }
  if (plan.numChunks() == 1 && seconds > 0 && bytes > 0) {
    Points::value_type at = {0, 0};
    for (const BlockRow &row : plan.blocks) {
      at.first += row.seconds * double(row.count) / seconds;
      at.second += double(row.residualBytes) * double(row.count) / bytes;
      points.push_back(at);
    }
  }
  points.push_back({1, 1});
  return points;
}

/// Returns the largest value of each of `count` equal slices of [0, end], as steps.
Points slicesOf(const Points &points, double end, int64_t count) {
  std::vector<double> most(size_t(count), 0);
  for (size_t i = 0; i < points.size(); ++i) {
    const auto &[from, value] = points[i];
    double to = i + 1 < points.size() ? points[i + 1].first : end;
    auto slice = [&](double at) {
      return std::clamp<int64_t>(int64_t(at / end * double(count)), 0, count - 1);
    };
    for (int64_t s = slice(from); s <= slice(to); ++s)
      most[size_t(s)] = std::max(most[size_t(s)], value);
  }
  Points steps;
  for (int64_t s = 0; s < count; ++s) {
    steps.push_back({end * double(s) / double(count), most[size_t(s)]});
    steps.push_back({end * double(s + 1) / double(count), most[size_t(s)]});
  }
  return steps;
}

/// Returns the residuals of a stage of `chunks` chunks, with each chunk's part of a micro-batch
/// alike.
KeptCurve keptCurve(const std::vector<schedule::Event> &events, bool isSplit, const Points &growth,
                    double end, int64_t mostPointsOfStage) {
  KeptCurve curve;
  double kept = 0, most = 0; // chunks times micro-batches
  curve.points.push_back({0, 0});
  for (const schedule::Event &event : events) {
    const double length = event.endSeconds - event.startSeconds;
    const bool frees =
        event.action.kind == (isSplit ? Action::Kind::Weight : Action::Kind::Backward);
    if (event.action.kind == Action::Kind::Forward) {
      for (const auto &[time, share] : growth)
        curve.points.push_back({event.startSeconds + time * length, kept + share});
      kept += 1;
    } else if (frees) {
      for (auto point = growth.rbegin(); point != growth.rend(); ++point)
        curve.points.push_back(
            {event.startSeconds + (1 - point->first) * length, kept - 1 + point->second});
      kept -= 1;
    }
    if (kept > most) {
      most = kept;
      curve.peakSeconds = event.endSeconds;
    }
  }
  curve.points.push_back({end, kept});
  for (auto &[time, share] : curve.points)
    share = most > 0 ? share / most : 0;
  if (int64_t(curve.points.size()) > mostPointsOfStage) {
    curve.points = slicesOf(curve.points, end, mostPointsOfStage / 2);
    curve.isSliced = true;
  }
  return curve;
}

} // namespace

StepView stepView(const Plan &plan) {
  const PipelineSchedule schedule = scheduleFor(plan, plan.mesh.pp);
  StepView view;
  view.pipeline = schedule.pipeline;
  view.times = chunkTimes(plan);
  auto simulated = [&](int64_t microBatches) {
    return schedule::simulate(schedule.kind, schedule.pipeline, view.times, microBatches);
  };
  constexpr int64_t mostSimulated = 1000000; // events
  const int64_t count = microBatchesWithin(plan, schedule, mostSimulated);
  const Timeline whole = simulated(count);
  // Further micro-batches add the time of the slowest stage each.
  std::vector<double> busy(size_t(schedule.pipeline.numStages));
  for (size_t chunk = 0; chunk < view.times.size(); ++chunk) {
    const ChunkTimes &times = view.times[chunk];
    busy[size_t(schedule.pipeline.chunkStage[chunk])] +=
        times.forwardSeconds + times.backwardSeconds + times.weightSeconds;
  }
  const double slowest = *std::max_element(busy.begin(), busy.end());
  const double more = double(plan.accumulation - count);
  view.wholeSeconds = whole.makespanSeconds + more * slowest;
  view.endSeconds = std::max(0.0, plan.prediction.stepSeconds - view.wholeSeconds);
  view.microBatches = microBatchesWithin(plan, schedule, mostEvents);
  view.timeline = view.microBatches == count ? whole : simulated(view.microBatches);
  const Points growth = growthOf(plan);
  const int64_t perStage =
      std::clamp<int64_t>(mostPoints / schedule.pipeline.numStages, 64, mostPoints / 8);
  for (int stage = 0; stage < schedule.pipeline.numStages; ++stage) {
    view.bubbleSeconds.push_back(whole.bubbleSeconds(stage) +
                                 more * (slowest - busy[size_t(stage)]));
    view.kept.push_back(keptCurve(whole.stages[size_t(stage)],
                                  schedule::splitsBackward(schedule.kind), growth,
                                  whole.makespanSeconds, perStage));
  }
  return view;
}

} // namespace tbc::planner
