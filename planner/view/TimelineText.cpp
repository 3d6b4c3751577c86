//===- TimelineText.cpp - The predicted step as lines of text ----------------===//

#include "planner/view/TimelineText.h"
#include "planner/support/Format.h"
#include "runtime/schedule/Schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace tbc::planner {

namespace {

using Kind = schedule::Action::Kind;

/// What the compute thread does, as a letter each.
constexpr char idleLetter = '.', waitLetter = '~';

bool isCategory(const Slice &slice, const char *category) {
  return std::strcmp(slice.category, category) == 0;
}

/// Returns the letter of an action. Example: 'f' for forward 3.
char letterOf(const Slice &slice) {
  char letter = 'U'; // the update has no micro-batch
  for (auto [kind, of] :
       {std::pair(Kind::Forward, 'F'), {Kind::Backward, 'B'}, {Kind::Weight, 'W'}})
    if (slice.microBatch >= 0 && slice.name.rfind(schedule::name(kind), 0) == 0)
      letter = of;
  return slice.microBatch % 2 == 1 ? char(letter - 'A' + 'a') : letter;
}

/// Nanoseconds of each activity in each column of a step.
class Columns {
public:
  Columns(int64_t stepNs, int count) : stepNs(stepNs), columns(size_t(count)) {}

  void add(int64_t beginNs, int64_t endNs, char letter, double sign = 1) {
    const double width = double(stepNs) / double(columns.size());
    const auto last = int64_t(columns.size()) - 1;
    auto columnOf = [&](int64_t ns) {
      return std::clamp<int64_t>(int64_t(double(ns) / width), 0, last);
    };
    for (int64_t c = columnOf(beginNs); c <= columnOf(endNs); ++c) {
      const double from = std::max(double(beginNs), width * double(c));
      const double to = std::min(double(endNs), width * double(c + 1));
      if (to > from)
        columns[size_t(c)][size_t(letter)] += sign * (to - from);
    }
  }

  /// Returns "=" where `letter` takes most of a column, "-" where it takes a part.
  std::string shareOf(char letter) const {
    const double width = double(stepNs) / double(columns.size());
    std::string text;
    for (const auto &column : columns) {
      const double ns = column[size_t(letter)];
      text += ns > width / 2 ? '=' : ns > 0 ? '-' : ' ';
    }
    return text;
  }

  /// Returns the letter with the most time in each column; `otherwise` has the rest of it.
  std::string mostOf(char otherwise) const {
    const double width = double(stepNs) / double(columns.size());
    std::string text;
    for (const auto &column : columns) {
      double rest = width;
      for (double ns : column)
        rest -= ns;
      char best = otherwise;
      double most = rest;
      for (size_t letter = 0; letter < column.size(); ++letter)
        if (column[letter] > most) {
          most = column[letter];
          best = char(letter);
        }
      text += best;
    }
    return text;
  }

private:
  int64_t stepNs;
  std::vector<std::array<double, 128>> columns;
};

std::string computeLine(const StageTimeline &stage, int64_t stepNs, int count) {
  Columns columns(stepNs, count);
  for (const Slice &slice : stage.slices) {
    if (slice.thread != int(StageThread::Compute))
      continue;
    if (isCategory(slice, "action"))
      columns.add(slice.beginNs, slice.endNs, letterOf(slice));
  }
  // A wait is a part of its action.
  const Slice *action = nullptr;
  for (const Slice &slice : stage.slices) {
    if (slice.thread != int(StageThread::Compute))
      continue;
    if (isCategory(slice, "action"))
      action = &slice;
    if (action && isCategory(slice, "wait")) {
      columns.add(slice.beginNs, slice.endNs, waitLetter);
      columns.add(slice.beginNs, slice.endNs, letterOf(*action), -1);
    }
  }
  return columns.mostOf(idleLetter);
}

/// Returns the share of a thread in each column, or "" if it is never busy.
std::string threadLine(const StageTimeline &stage, StageThread thread, int64_t stepNs, int count) {
  Columns columns(stepNs, count);
  bool isUsed = false;
  for (const Slice &slice : stage.slices) {
    const bool isOfThread =
        thread == StageThread::Sends ? slice.thread >= int(thread) : slice.thread == int(thread);
    if (!isOfThread)
      continue;
    columns.add(slice.beginNs, slice.endNs, '=');
    isUsed = true;
  }
  return isUsed ? columns.shareOf('=') : "";
}

/// Seconds of the compute thread of a stage.
struct StageSums {
  double forward = 0, backward = 0, weight = 0, update = 0;
  int64_t peakBytes = 0;
  double busy() const { return forward + backward + weight + update; }
};

StageSums sumsOf(const StageTimeline &stage) {
  StageSums sums;
  for (const Slice &slice : stage.slices)
    if (slice.thread == int(StageThread::Compute) && isCategory(slice, "action")) {
      const char letter = letterOf(slice);
      double &sum = letter == 'F' || letter == 'f'   ? sums.forward
                    : letter == 'B' || letter == 'b' ? sums.backward
                    : letter == 'W' || letter == 'w' ? sums.weight
                                                     : sums.update;
      sum += 1e-9 * double(slice.endNs - slice.beginNs);
    }
  for (const MemoryPoint &point : stage.memory)
    sums.peakBytes = std::max(sums.peakBytes, point.total());
  return sums;
}

/// Returns a scale with times below their columns.
std::string scaleLine(int64_t stepNs, int count) {
  constexpr int between = 16; // columns
  std::string line;
  for (int column = 0; column < count; column += between) {
    const std::string text =
        column == 0 ? "0" : formatSeconds(1e-9 * double(stepNs) * column / count);
    if (column + int(text.size()) + 1 > count)
      break;
    line.resize(size_t(column), ' ');
    line += "|" + text;
  }
  return line;
}

} // namespace

std::string timelineText(const StepTimeline &timeline, int width) {
  constexpr size_t mostDetailed = 4;
  constexpr int name = 11, sums = 17;
  const int count = std::max(width, 40) - name - sums;
  const double step = 1e-9 * double(timeline.stepNs);
  std::string text = format("one step: %s, a column is %s\n", formatSeconds(step).c_str(),
                            formatSeconds(step / count).c_str());
  bool hasWeight = false, waits = false, isIdle = false, hasThreads = false;
  for (size_t index = 0; index < timeline.stages.size(); ++index) {
    const StageTimeline &stage = timeline.stages[index];
    const std::string line = computeLine(stage, timeline.stepNs, count);
    const StageSums of = sumsOf(stage);
    hasWeight |= of.weight > 0;
    waits |= line.find(waitLetter) != std::string::npos;
    isIdle |= line.find(idleLetter) != std::string::npos;
    text +=
        format("stage %-4d %s %3.0f %% %9s\n", int(index), line.c_str(),
               100 * std::min(1.0, of.busy() / step), formatBytes(double(of.peakBytes)).c_str());
    if (timeline.stages.size() > mostDetailed)
      continue;
    for (auto [thread, label] : {std::pair(StageThread::WithinNode, " in node"),
                                 {StageThread::BetweenNodes, " nodes"},
                                 {StageThread::Host, " copies"},
                                 {StageThread::Sends, " sends"}})
      if (std::string busy = threadLine(stage, thread, timeline.stepNs, count); !busy.empty()) {
        hasThreads = true;
        std::string padded = format("%-10s %s", label, busy.c_str());
        text += padded.substr(0, padded.find_last_not_of(' ') + 1) + "\n";
      }
  }
  text += std::string(size_t(name), ' ') + scaleLine(timeline.stepNs, count) + "\n";
  text += std::string("F forward, B backward, ") + (hasWeight ? "W wgrad, " : "") + "U update";
  text += "; small letters: odd micro-batches\n";
  if (waits)
    text += "~ exposed communication and copies\n";
  if (hasThreads)
    text += "= communication or copies, most of a column; - a part of it\n";
  if (isIdle)
    text += ". idle, waiting for other stages\n";
  return text + "right: share of the step that is not idle, most memory of a device\n";
}

Report timelineReport(const StepTimeline &timeline) {
  const double step = 1e-9 * double(timeline.stepNs);
  Table table{"stages",
              "seconds of each stage",
              {{"stage", "stage"},
               {"forward", "forward"},
               {"backward", "backward"},
               {"weight", "wgrad"},
               {"update", "update"},
               {"idle", "idle"},
               {"busy_share", "busy"},
               {"peak_bytes", "most memory"}},
              {},
              ""};
  for (size_t index = 0; index < timeline.stages.size(); ++index) {
    const StageSums sums = sumsOf(timeline.stages[index]);
    const double busy = std::min(step, sums.busy());
    table.rows.push_back({Cell::count(double(index)), Cell::seconds(sums.forward),
                          Cell::seconds(sums.backward), Cell::seconds(sums.weight),
                          Cell::seconds(sums.update), Cell::seconds(step - busy),
                          Cell::share(busy / step), Cell::bytes(double(sums.peakBytes))});
  }
  Report report;
  report.facts.push_back({"step_seconds", "step", Cell::seconds(step)});
  report.tables = {std::move(table)};
  return report;
}

} // namespace tbc::planner
