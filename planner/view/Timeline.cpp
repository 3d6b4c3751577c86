//===- Timeline.cpp - The predicted step as slices, sends and counters ----===//

#include "planner/view/Timeline.h"
#include "planner/plan/PlanDevices.h"
#include "planner/predict/Time.h"
#include "planner/support/Format.h"
#include "planner/view/MeshView.h"
#include "planner/view/PlanView.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

namespace tbc::planner {

using schedule::Action;
using schedule::Event;

static int64_t nanoseconds(double seconds) { return int64_t(std::llround(seconds * 1e9)); }

namespace {

/// The parts of a chunk that one kind of action spends its time in.
struct ActionParts {
  StagePart host, operands, messages; // the last may be null
  std::vector<StagePart> kernels, data;
  StagePart first, last;        // gathers before the kernels, reductions after them; may be null
  double ExposedSeconds::*wait; // for launches
};

const ActionParts &partsOf(Action::Kind kind) {
  using S = StageSeconds;
  static const ActionParts forward = {
      &S::hostForward, &S::operandsForward,         &S::messageForward,
      {&S::forward},   {&S::gatherForward},         &S::firstGatherForward,
      nullptr,         &ExposedSeconds::waitForward};
  static const ActionParts backward = {&S::hostBackward,
                                       &S::operandsBackward,
                                       &S::messageBackward,
                                       {&S::recompute, &S::backward},
                                       {&S::gatherBackward, &S::reduceMicro},
                                       &S::firstGatherBackward,
                                       &S::lastReduceMicro,
                                       &ExposedSeconds::waitBackward};
  static const ActionParts weight = {&S::hostWeight,   &S::operandsWeight,
                                     nullptr,          {&S::recomputeWeight, &S::weight},
                                     {&S::dataWeight}, nullptr,
                                     nullptr,          &ExposedSeconds::waitWeight};
  return kind == Action::Kind::Forward    ? forward
         : kind == Action::Kind::Backward ? backward
                                          : weight;
}

/// Whether the groups of collectives cross nodes, by their axes.
class Links {
public:
  explicit Links(const Plan &plan) {
    for (const LinkView &link : meshView(plan).links)
      if (link.shape.nodes > 1) {
        std::string key;
        for (const std::string &axis : link.axes)
          key += (key.empty() ? "" : "+") + axis;
        crossing.insert(key);
      }
  }
  /// A part of an axis, "tp:(2)4", counts as the axis; of several axes, one is enough.
  bool crossNodes(const std::string &axes) const {
    if (crossing.count(axes))
      return true;
    for (size_t begin = 0; begin < axes.size();) {
      const size_t end = std::min(axes.find('+', begin), axes.size());
      const std::string axis = axes.substr(begin, end - begin);
      if (crossing.count(axis.substr(0, axis.find(':'))))
        return true;
      begin = end + 1;
    }
    return false;
  }

private:
  std::set<std::string> crossing;
};

constexpr const char *waitForData = "wait for parameters and gradients";

/// Writes the slices of one stage.
class StageWriter {
public:
  StageWriter(StageTimeline &stage, const Links &links, bool namesChunks)
      : stage(stage), links(links), namesChunks(namesChunks), freeNs(numStageThreads, 0) {}

  /// Adds an action of `chunk`, and returns the index of its slice.
  size_t addAction(const Event &event, int chunk, const ChunkSeconds &seconds,
                   const ExposedSeconds &exposed) {
    microBatch = event.action.microBatch;
    this->chunk = chunk;
    const int64_t endNs = nanoseconds(event.endSeconds);
    const size_t index = stage.slices.size();
    std::string title = std::string(schedule::name(event.action.kind));
    title += " " + std::to_string(microBatch);
    if (namesChunks)
      title += ", chunk " + std::to_string(chunk);
    add(StageThread::Compute, nanoseconds(event.startSeconds), endNs, title, "action");
    const ActionParts &parts = partsOf(event.action.kind);
    double at = event.startSeconds;
    at = addExposed(seconds, parts.host, at, endNs, "copies from and to the host");
    if (parts.messages)
      at = addExposed(seconds, parts.messages, at, endNs, "wait for messages between stages");
    at = addExposed(seconds, parts.operands, at, endNs, "wait for collectives between ops");
    if (parts.first)
      at = addExposed(seconds, parts.first, at, endNs, waitForData);
    double data = at; // gathers and reductions begin with the kernels
    for (StagePart part : parts.kernels)
      for (const WorkSum &work : seconds.of(part)) {
        const std::string recomputed =
            part == &StageSeconds::recompute || part == &StageSeconds::recomputeWeight
                ? "recompute "
                : "";
        add(StageThread::Compute, nanoseconds(at), std::min(nanoseconds(at + work.seconds), endNs),
            recomputed + work.name, "kernel", part, &work);
        at += work.seconds;
      }
    for (StagePart part : parts.data)
      data = addWork(seconds, part, data, endNs);
    if (parts.last)
      addWork(seconds, parts.last, std::max(at, data), endNs);
    const int64_t launchedNs = endNs - nanoseconds(exposed.*parts.wait);
    add(StageThread::Compute, nanoseconds(at), launchedNs, waitForData, "wait");
    add(StageThread::Compute, std::max(nanoseconds(at), launchedNs), endNs, "wait for launches",
        "wait");
    return index;
  }

  /// Adds the update of the stage: `seconds` of its chunks, from `begin`.
  void addUpdate(const std::vector<const ChunkSeconds *> &chunks, const ExposedSeconds &exposed,
                 double begin) {
    microBatch = chunk = -1;
    const int64_t endNs = nanoseconds(begin + exposed.stepEnd);
    add(StageThread::Compute, nanoseconds(begin), endNs, "update", "action");
    double reduce = 0, parameters = 0;
    for (const ChunkSeconds *one : chunks) {
      reduce += one->seconds.reduceStep + one->seconds.reduceLast + one->seconds.lastReduceStep;
      parameters += one->seconds.parameterStep;
    }
    const double exposedReduce = std::max(0.0, exposed.dataStep - parameters);
    double at = begin + exposedReduce;
    add(StageThread::Compute, nanoseconds(begin), nanoseconds(at), "wait for gradients", "wait");
    // Reductions may begin beside the kernels of the last backward.
    double reduction = at - reduce;
    for (const ChunkSeconds *one : chunks)
      for (StagePart part :
           {&StageSeconds::reduceLast, &StageSeconds::lastReduceStep, &StageSeconds::reduceStep})
        reduction = addWork(*one, part, reduction, nanoseconds(at));
    for (const ChunkSeconds *one : chunks)
      at = addExposed(*one, &StageSeconds::hostStep, at, endNs, "copies from and to the host");
    for (const ChunkSeconds *one : chunks)
      for (const WorkSum &work : one->of(&StageSeconds::updateStep)) {
        add(StageThread::Compute, nanoseconds(at), std::min(nanoseconds(at + work.seconds), endNs),
            work.name, "kernel", &StageSeconds::updateStep, &work);
        at += work.seconds;
      }
    add(StageThread::Compute, nanoseconds(at), endNs, "wait for parameters and scalars", "wait");
    for (const ChunkSeconds *one : chunks)
      at = addWork(*one, &StageSeconds::parameterStep, at, endNs);
  }

  /// Adds a send that begins at `begin`; returns the index of its slice. Sends at the same time get
  /// threads of their own.
  size_t addSend(const std::string &name, double begin, double seconds, int64_t ofMicroBatch,
                 int fromChunk, StagePart part, const ChunkSeconds &of) {
    const int64_t beginNs = nanoseconds(begin), endNs = nanoseconds(begin + seconds);
    size_t thread = size_t(StageThread::Sends);
    while (thread < freeNs.size() && freeNs[thread] > beginNs)
      ++thread;
    if (thread == freeNs.size())
      freeNs.push_back(0);
    freeNs[thread] = endNs;
    stage.numThreads = int(freeNs.size());
    Slice slice;
    slice.thread = int(thread);
    slice.beginNs = beginNs, slice.endNs = endNs;
    slice.name = name, slice.category = "send";
    slice.microBatch = ofMicroBatch, slice.chunk = fromChunk;
    slice.part = planner::name(part), slice.axes = mesh::row(Axis::Pipeline).name;
    for (const WorkSum &work : of.of(part))
      slice.count += work.count, slice.bytes += work.bytes;
    stage.slices.push_back(std::move(slice));
    return stage.slices.size() - 1;
  }

  void add(StageThread thread, int64_t beginNs, int64_t endNs, const std::string &name,
           const char *category, StagePart part = nullptr, const WorkSum *work = nullptr) {
    if (endNs <= beginNs)
      return;
    Slice slice;
    slice.thread = int(thread);
    slice.beginNs = beginNs, slice.endNs = endNs;
    slice.name = name, slice.category = category;
    slice.microBatch = microBatch, slice.chunk = chunk;
    if (part)
      slice.part = planner::name(part);
    if (work)
      slice.axes = work->axes, slice.count = work->count, slice.bytes = work->bytes;
    stage.slices.push_back(std::move(slice));
  }

private:
  /// Adds the collectives or copies of `part` one after another from `at`, none after `lastNs`.
  /// Returns their end in seconds.
  double addWork(const ChunkSeconds &seconds, StagePart part, double at, int64_t lastNs) {
    for (const WorkSum &work : seconds.of(part)) {
      const bool isCopy = work.axes.empty();
      const StageThread thread = isCopy                        ? StageThread::Host
                                 : links.crossNodes(work.axes) ? StageThread::BetweenNodes
                                                               : StageThread::WithinNode;
      int64_t &free = freeNs[size_t(thread)];
      const int64_t beginNs = std::max(nanoseconds(at), free);
      const int64_t endNs = std::min(std::max(nanoseconds(at + work.seconds), beginNs), lastNs);
      add(thread, beginNs, endNs, isCopy ? work.name : work.name + " " + work.axes,
          isCopy ? "copy" : "communication", part, &work);
      free = std::max(free, endNs);
      at += work.seconds;
    }
    return at;
  }

  /// The same for work that the stage waits for. Returns the end of the wait in seconds.
  double addExposed(const ChunkSeconds &seconds, StagePart part, double at, int64_t lastNs,
                    const char *wait) {
    const double end = at + seconds.seconds.*part;
    add(StageThread::Compute, nanoseconds(at), std::min(nanoseconds(end), lastNs), wait, "wait",
        part);
    addWork(seconds, part, at, std::min(nanoseconds(end), lastNs));
    return end;
  }

  StageTimeline &stage;
  const Links &links;
  bool namesChunks;
  std::vector<int64_t> freeNs; // the end of the last slice, by thread
  int64_t microBatch = -1;
  int chunk = -1;
};

/// Follows the memory of one stage.
class MemoryCurve {
public:
  MemoryCurve(StageTimeline &stage, const StageMemory &memory) : stage(stage) {
    for (const MemoryLine &line : memory.lines) {
      const bool isKept = line.name == "inputs" || line.name == "saved residuals";
      const bool isWorking = line.name == "transients" || line.name == "gathered parameters" ||
                             line.name == "collective buffers";
      (isKept ? kept : isWorking ? working : fixed) += line.bytes;
    }
  }

  /// Adds the points of all events of the stage and of its update. The lines of the plan are the
  /// largest values; residuals follow the micro-batches in flight, whose chunks count alike.
  void add(const std::vector<Event> &events, bool splitsBackward, int64_t updateNs, int64_t endNs) {
    const Action::Kind frees = splitsBackward ? Action::Kind::Weight : Action::Kind::Backward;
    int64_t most = 0, inFlight = 0;
    for (const Event &event : events) {
      most = std::max(most, inFlight += event.action.kind == Action::Kind::Forward);
      inFlight -= event.action.kind == frees;
    }
    auto share = [&] { return most > 0 ? kept * inFlight / most : 0; };
    point(0, 0, 0);
    for (const Event &event : events) {
      inFlight += event.action.kind == Action::Kind::Forward;
      point(nanoseconds(event.startSeconds), share(), working);
      inFlight -= event.action.kind == frees;
      point(nanoseconds(event.endSeconds), share(), 0);
    }
    point(updateNs, share(), working);
    point(endNs, share(), 0);
  }

private:
  /// Adds a point; of several at one moment the last counts.
  void point(int64_t atNs, int64_t keptNow, int64_t workingNow) {
    if (!stage.memory.empty() && stage.memory.back().atNs >= atNs)
      stage.memory.pop_back();
    stage.memory.push_back({atNs, fixed, keptNow, workingNow});
  }

  StageTimeline &stage;
  int64_t fixed = 0, kept = 0, working = 0;
};

/// Writes the sends of all stages, when their actions are known.
class SendWriter {
public:
  SendWriter(StepTimeline &timeline, const Plan &plan, const PipelineSchedule &schedule,
             const StepTrace &trace, std::vector<StageWriter> &writers)
      : timeline(timeline), plan(plan), schedule(schedule), trace(trace), writers(writers) {
    const size_t size = trace.times.size() * size_t(schedule.accumulation);
    forwardBegin.assign(size, 0);
    backwardBegin.assign(size, 0);
    forEach([&](int, int chunk, const Event &event) {
      if (event.action.kind != Action::Kind::Weight)
        beginOf(event.action.kind, chunk, event.action.microBatch) = event.startSeconds;
    });
  }

  void add() {
    const std::vector<int> &stageOf = schedule.pipeline.chunkStage;
    forEach([&](int stage, int chunk, const Event &event) {
      const bool isForward = event.action.kind == Action::Kind::Forward;
      const int to = chunk + (isForward ? 1 : -1);
      if (event.action.kind == Action::Kind::Weight || to < 0 || to >= int(stageOf.size()) ||
          stageOf[size_t(to)] == stage)
        return;
      const schedule::ChunkTimes &times = trace.times[size_t(chunk)];
      const double seconds = isForward ? times.sendForwardSeconds : times.sendBackwardSeconds;
      if (nanoseconds(event.endSeconds + seconds) <= nanoseconds(event.endSeconds))
        return; // no slice that an arrow could begin at
      const int receiver = stageOf[size_t(to)];
      std::string name = isForward ? "activations " : "gradients ";
      name += std::to_string(event.action.microBatch) + " to stage " + std::to_string(receiver);
      const size_t slice = writers[size_t(stage)].addSend(
          name, event.endSeconds, seconds, event.action.microBatch, chunk,
          isForward ? &StageSeconds::sendForward : &StageSeconds::sendBackward,
          plan.prediction.chunks[size_t(chunk)]);
      timeline.stages[size_t(stage)].flows.push_back(
          {slice, receiver, nanoseconds(beginOf(event.action.kind, to, event.action.microBatch))});
    });
  }

private:
  void forEach(const std::function<void(int stage, int chunk, const Event &)> &visit) const {
    for (int stage = 0; stage < schedule.pipeline.numStages; ++stage) {
      const std::vector<int> chunks = schedule.pipeline.chunksOf(stage);
      for (const Event &event : trace.timeline.stages[size_t(stage)])
        visit(stage, chunks[size_t(event.action.chunk)], event);
    }
  }
  double &beginOf(Action::Kind kind, int chunk, int64_t microBatch) {
    return (
        kind == Action::Kind::Forward
            ? forwardBegin
            : backwardBegin)[size_t(chunk) * size_t(schedule.accumulation) + size_t(microBatch)];
  }

  StepTimeline &timeline;
  const Plan &plan;
  const PipelineSchedule &schedule;
  const StepTrace &trace;
  std::vector<StageWriter> &writers;
  std::vector<double> forwardBegin, backwardBegin; // by chunk and micro-batch
};

} // namespace

/// Checks that the step of `plan` can be drawn.
static Status checkDrawable(const Plan &plan) {
  if (std::string why = whyNotDrawable(plan); !why.empty())
    return Error{ErrorCode::Usage, why};
  const double kinds =
      schedule::splitsBackward(plan.schedule.value_or(schedule::kindWithoutPipeline)) ? 3 : 2;
  const double actions = kinds * double(plan.numChunks()) * double(plan.accumulation);
  if (actions > double(mostActions))
    return Error{ErrorCode::Usage, "a step has " + std::to_string(int64_t(actions)) +
                                       " forwards and backwards, more than the " +
                                       std::to_string(mostActions) +
                                       " of a timeline; tbc report draws its beginning"};
  return Status::ok();
}

Result<StepTimeline> timelineOf(const Plan &plan) {
  if (Status status = checkDrawable(plan); !status)
    return status.error();
  const StageDevices devices = stageDevices(plan);
  const PipelineSchedule schedule = scheduleOf(plan);
  std::vector<StageSeconds> seconds;
  for (const ChunkSeconds &chunk : plan.prediction.chunks)
    seconds.push_back(chunk.seconds);
  StepTrace trace;
  simulatedStepTime(devices, seconds, schedule, &trace);
  const double step = plan.prediction.stepSeconds;
  if (std::abs(trace.seconds - step) > 1e-9 * step)
    return Error{ErrorCode::Usage, "key \"step_seconds\" is " + formatSeconds(step) +
                                       ", but prediction.chunks gives a step of " +
                                       formatSeconds(trace.seconds) +
                                       "; tbc explain PLAN --derive FILE derives both again"};
  const Links links(plan);
  StepTimeline timeline;
  timeline.stepNs = nanoseconds(trace.seconds);
  timeline.sendsCrossNodes = links.crossNodes(mesh::row(Axis::Pipeline).name);
  const int numStages = schedule.pipeline.numStages;
  timeline.stages.resize(size_t(numStages));
  std::vector<StageWriter> writers;
  for (int stage = 0; stage < numStages; ++stage) {
    StageTimeline &drawn = timeline.stages[size_t(stage)];
    const std::vector<Event> &events = trace.timeline.stages[size_t(stage)];
    const std::vector<int> chunks = schedule.pipeline.chunksOf(stage);
    StageWriter &writer = writers.emplace_back(drawn, links, chunks.size() > 1);
    writer.add(StageThread::Compute, 0, timeline.stepNs, "step", "step");
    std::vector<const ChunkSeconds *> own;
    for (int chunk : chunks)
      own.push_back(&plan.prediction.chunks[size_t(chunk)]);
    for (const Event &event : events)
      writer.addAction(event, chunks[size_t(event.action.chunk)], *own[size_t(event.action.chunk)],
                       trace.chunks[size_t(event.action.chunk)]);
    const ExposedSeconds &exposed = trace.stages[size_t(stage)];
    writer.addUpdate(own, exposed, trace.updateBegin);
    if (size_t(stage) < plan.prediction.stages.size())
      MemoryCurve(drawn, plan.prediction.stages[size_t(stage)])
          .add(events, schedule::splitsBackward(schedule.kind), nanoseconds(trace.updateBegin),
               nanoseconds(trace.updateBegin + exposed.stepEnd));
  }
  SendWriter(timeline, plan, schedule, trace, writers).add();
  return timeline;
}

} // namespace tbc::planner
