//===- TraceJson.cpp - A timeline for chrome://tracing and Perfetto --------===//

#include "planner/view/Timeline.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <set>

namespace tbc::planner {

using Json = nlohmann::json;

/// The most events of a file, so that it stays below about 400 MB.
static constexpr int64_t mostEventsOfTrace = 2000000;

static const char *const threadNames[] = {"compute", "communication inside the node",
                                          "communication between nodes", "copies to the host"};

static std::string jsonString(const std::string &text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

/// Returns `nanoseconds` in the microseconds of the format. Example: 1234 gives "1.234".
static std::string microseconds(int64_t nanoseconds) {
  char text[40];
  std::snprintf(text, sizeof text, "%" PRId64 ".%03" PRId64, nanoseconds / 1000,
                nanoseconds % 1000);
  return text;
}

/// Returns the number of a thread in the file. Number 0 would be the process itself.
static std::string threadNumber(int thread) { return std::to_string(thread + 1); }

static std::string at(int64_t nanoseconds) { return ",\"ts\":" + microseconds(nanoseconds); }

/// Returns the event of `slice`, from its name on; the process is added per rank.
static std::string bodyOf(const Slice &slice) {
  std::string text = "\"name\":" + jsonString(slice.name) + ",\"cat\":\"" + slice.category +
                     "\",\"ph\":\"X\"" + at(slice.beginNs) +
                     ",\"dur\":" + microseconds(slice.endNs - slice.beginNs) +
                     ",\"tid\":" + threadNumber(slice.thread);
  std::string arguments;
  auto add = [&](const char *name, const std::string &value) {
    arguments += (arguments.empty() ? "\"" : ",\"") + std::string(name) + "\":" + value;
  };
  if (slice.microBatch >= 0)
    add("micro_batch", std::to_string(slice.microBatch));
  if (slice.chunk >= 0)
    add("chunk", std::to_string(slice.chunk));
  if (*slice.part)
    add("part", jsonString(slice.part));
  if (!slice.axes.empty())
    add("axes", jsonString(slice.axes));
  if (slice.count > 0)
    add("count", std::to_string(slice.count));
  if (slice.bytes > 0)
    add("bytes", Json(slice.bytes).dump());
  return arguments.empty() ? text : text + ",\"args\":{" + arguments + "}";
}

/// Returns the event of a point of memory, from its name on.
static std::string bodyOf(const MemoryPoint &point) {
  return "\"name\":\"memory\",\"cat\":\"memory\",\"ph\":\"C\"" + at(point.atNs) +
         ",\"args\":{\"live bytes\":" + std::to_string(point.total()) +
         ",\"inputs and residuals\":" + std::to_string(point.kept) +
         ",\"working set\":" + std::to_string(point.working) + "}";
}

namespace {

/// Writes the events of ranks.
class TraceWriter {
public:
  TraceWriter(const StepTimeline &timeline, const Plan &plan, const std::vector<int64_t> &ranks)
      : timeline(timeline), plan(plan), ranksPerStage(plan.mesh.numRanks() / plan.mesh.pp) {
    for (const StageTimeline &stage : timeline.stages) {
      std::vector<std::string> &slices = sliceBodies.emplace_back();
      for (const Slice &slice : stage.slices)
        slices.push_back(bodyOf(slice));
      std::vector<std::string> &points = memoryBodies.emplace_back();
      for (const MemoryPoint &point : stage.memory)
        points.push_back(bodyOf(point));
    }
    isDrawn.insert(ranks.begin(), ranks.end());
  }

  std::string text(bool areRepresentatives, const std::vector<std::string> &more) {
    out = "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"format\":\"tbc-timeline\",\"version\":1,"
          "\"step_seconds\":" +
          Json(plan.prediction.stepSeconds).dump() + "},\"traceEvents\":[";
    for (int64_t rank : isDrawn) {
      writeNames(rank, areRepresentatives);
      writeEvents(rank);
    }
    for (int64_t rank : isDrawn)
      writeFlows(rank);
    for (const std::string &event : more)
      out += ",\n{" + event + "}";
    out += "\n]}\n";
    return std::move(out);
  }

private:
  int64_t stageOf(int64_t rank) const { return rank / ranksPerStage; }

  void write(int64_t rank, const std::string &body) {
    out += isFirst ? "\n{" : ",\n{";
    isFirst = false;
    out += "\"pid\":" + std::to_string(rank) + "," + body + "}";
  }

  void writeName(int64_t rank, const char *kind, const std::string &thread, const char *key,
                 const std::string &value) {
    write(rank, "\"name\":\"" + std::string(kind) + "\",\"ph\":\"M\"" +
                    (thread.empty() ? "" : ",\"tid\":" + thread) + ",\"args\":{\"" + key +
                    "\":" + value + "}");
  }

  void writeNames(int64_t rank, bool isRepresentative) {
    const int64_t stage = stageOf(rank);
    std::string name = "rank " + std::to_string(rank) + " (stage " + std::to_string(stage) + ")";
    if (isRepresentative)
      name = "stage " + std::to_string(stage) + " (ranks " + std::to_string(rank) + " to " +
             std::to_string(rank + ranksPerStage - 1) + ")";
    writeName(rank, "process_name", "", "name", jsonString(name));
    writeName(rank, "process_sort_index", "", "sort_index", std::to_string(rank));
    const StageTimeline &drawn = timeline.stages[size_t(stage)];
    std::vector<bool> isUsed(size_t(drawn.numThreads), false);
    for (const Slice &slice : drawn.slices)
      isUsed[size_t(slice.thread)] = true;
    for (int thread = 0; thread < drawn.numThreads; ++thread) {
      if (!isUsed[size_t(thread)])
        continue;
      const int sends = thread - int(StageThread::Sends);
      std::string of = sends < 0
                           ? threadNames[thread]
                           : std::string("sends ") +
                                 (timeline.sendsCrossNodes ? "between nodes" : "inside the node") +
                                 (sends > 0 ? " (" + std::to_string(sends + 1) + ")" : "");
      const std::string number = threadNumber(thread);
      writeName(rank, "thread_name", number, "name", jsonString(of));
      writeName(rank, "thread_sort_index", number, "sort_index", number);
    }
  }

  /// Writes an end of the arrow number `id`: "s" where it begins, "f" where it ends.
  void writeFlow(int64_t rank, const char *end, int64_t id, int thread, int64_t ns) {
    write(rank, "\"name\":\"send\",\"cat\":\"send\",\"ph\":\"" + std::string(end) +
                    "\",\"id\":" + std::to_string(id) + at(ns) +
                    ",\"tid\":" + threadNumber(thread) + (*end == 'f' ? ",\"bp\":\"e\"" : ""));
  }

  void writeEvents(int64_t rank) {
    const size_t stage = size_t(stageOf(rank));
    for (const std::string &body : sliceBodies[stage])
      write(rank, body);
    for (const std::string &body : memoryBodies[stage])
      write(rank, body);
  }

  /// Writes the arrows of the sends of `rank`. They follow all slices, because an arrow belongs to
  /// a slice that begins at the same moment only if the slice stands before it.
  void writeFlows(int64_t rank) {
    const int64_t stage = stageOf(rank);
    const StageTimeline &drawn = timeline.stages[size_t(stage)];
    for (const SendFlow &flow : drawn.flows) {
      const int64_t to = rank + (flow.stage - stage) * ranksPerStage;
      if (!isDrawn.count(to))
        continue;
      const Slice &send = drawn.slices[flow.slice];
      writeFlow(rank, "s", ++lastFlow, send.thread, send.beginNs);
      writeFlow(to, "f", lastFlow, int(StageThread::Compute), flow.arriveNs);
    }
  }

  const StepTimeline &timeline;
  const Plan &plan;
  const int64_t ranksPerStage;
  std::vector<std::vector<std::string>> sliceBodies, memoryBodies; // by stage
  std::set<int64_t> isDrawn;                                       // ranks
  std::string out;
  bool isFirst = true;
  int64_t lastFlow = 0;
};

} // namespace

Result<std::string> traceJson(const StepTimeline &timeline, const Plan &plan,
                              const std::vector<int64_t> &ranks,
                              const std::vector<std::string> &more) {
  const int64_t ranksPerStage = plan.mesh.numRanks() / plan.mesh.pp;
  std::vector<int64_t> drawn = ranks;
  for (int64_t stage = 0; ranks.empty() && stage < plan.mesh.pp; ++stage)
    drawn.push_back(stage * ranksPerStage);
  int64_t events = int64_t(more.size());
  for (int64_t rank : drawn) {
    const StageTimeline &stage = timeline.stages[size_t(rank / ranksPerStage)];
    events += int64_t(stage.slices.size() + 2 * stage.flows.size() + stage.memory.size());
  }
  if (events > mostEventsOfTrace)
    return Error{ErrorCode::Usage, "--ranks: " + std::to_string(drawn.size()) + " ranks have " +
                                       std::to_string(events) + " events, more than the " +
                                       std::to_string(mostEventsOfTrace) +
                                       " of a file; name fewer ranks, for example --ranks 0-7"};
  return TraceWriter(timeline, plan, drawn).text(ranks.empty(), more);
}

} // namespace tbc::planner
