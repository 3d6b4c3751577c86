//===- ExplainDiff.cpp - Differences between two plans --------------------===//

#include "planner/cost/Buckets.h"
#include "planner/explain/Explain.h"
#include "planner/plan/Describe.h"
#include "planner/plan/PlanFile.h"
#include "planner/report/Summary.h"
#include "planner/search/Explore.h"
#include "planner/support/Format.h"
#include "planner/support/IdList.h"

#include <algorithm>
#include <map>
#include <set>

namespace tbc::planner {

namespace {

/// Rows of the differences.
class Differences {
public:
  Differences(const Plan &a, const Plan &b) : a(a), b(b) {}

  Report run() {
    asked();
    decided();
    operations();
    predicted();
    Report report;
    report.facts.push_back({"differences", "differences", Cell::count(double(table.rows.size()))});
    report.tables = {table};
    return report;
  }

private:
  void add(const char *area, const std::string &what, const std::string &x, const std::string &y) {
    if (x != y)
      table.rows.push_back({Cell::of(area), Cell::of(what), Cell::of(x), Cell::of(y)});
  }
  /// Compares numbers as they are shown: a pipeline's 1e-18 s of rounding is no difference.
  void add(const char *area, const std::string &what, const Cell &x, const Cell &y) {
    add(area, what, x.toText(), y.toText());
  }

  template <typename T> void addMaps(const char *area, const T &x, const T &y) {
    std::map<std::string, std::pair<std::string, std::string>> both;
    auto number = [](double value) {
      char digits[32];
      std::snprintf(digits, sizeof digits, "%g", value);
      return std::string(digits);
    };
    for (const auto &[key, value] : x)
      both[key].first = number(double(value));
    for (const auto &[key, value] : y)
      both[key].second = number(double(value));
    for (const auto &[key, values] : both)
      add(area, key, values.first, values.second);
  }

  void asked() {
    const Job &x = a.job, &y = b.job;
    add("asked", "model", x.modelHash.substr(0, 12), y.modelHash.substr(0, 12));
    if (x.modelHash == y.modelHash)
      add("asked", "step", x.stepHash.substr(0, 12), y.stepHash.substr(0, 12));
    add("asked", "cluster", a.cluster.name, b.cluster.name);
    if (a.cluster.name == b.cluster.name && writeCluster(a.cluster) != writeCluster(b.cluster))
      add("asked", "cluster", a.cluster.name, b.cluster.name + ", with other numbers");
    add("asked", "gpus", Cell::count(double(x.gpus)), Cell::count(double(y.gpus)));
    add("asked", "batch", Cell::count(double(x.globalBatch)), Cell::count(double(y.globalBatch)));
    add("asked", "sequence", Cell::count(double(x.sequence)), Cell::count(double(y.sequence)));
    add("asked", "task", name(x.task), name(y.task));
    add("asked", "loss", x.loss, y.loss);
    add("asked", "optimizer", name(x.optimizer), name(y.optimizer));
    add("asked", "precision", name(x.precision), name(y.precision));
    addMaps("asked", x.settings, y.settings);
    addMaps("asked", x.bindings, y.bindings);
    add("asked", "memory limit", Cell::bytes(double(a.memoryLimitBytes)),
        Cell::bytes(double(b.memoryLimitBytes)));
  }

  static std::string parametersText(const ParameterDecision &decision) {
    std::string text = zeroName(decision.zero, decision.keepGathered);
    if (!decision.zeroAxes.empty())
      text += " over " + joined(decision.zeroAxes);
    return text +
           (decision.reduceAxes.empty() ? "" : ", reduced over " + joined(decision.reduceAxes));
  }

  void decided() {
    add("decided", "mesh", toString(a.mesh), toString(b.mesh));
    add("decided", "idle devices", Cell::count(double(a.idleDevices)),
        Cell::count(double(b.idleDevices)));
    add("decided", "parameters", parametersText(a.parameterDefault),
        parametersText(b.parameterDefault));
    add("decided", "micro-batch", Cell::count(double(a.microBatch)),
        Cell::count(double(b.microBatch)));
    add("decided", "accumulation", Cell::count(double(a.accumulation)),
        Cell::count(double(b.accumulation)));
    add("decided", "schedule", scheduleText(a), scheduleText(b));
    add("decided", "stages", joined(compressIds(a.stages)), joined(compressIds(b.stages)));
    add("decided", "recompute", toString(a.recompute), toString(b.recompute));
    add("decided", "offload", offloadText(a.offload), offloadText(b.offload));
    add("decided", "bucket size", bucketText(a.overlap.bucketBytes),
        bucketText(b.overlap.bucketBytes));
    add("decided", "gather size", bucketText(a.overlap.gatherBytes),
        bucketText(b.overlap.gatherBytes));
    add("decided", "prefetch", Cell::count(double(a.overlap.prefetch)),
        Cell::count(double(b.overlap.prefetch)));
    std::map<std::string, std::string> x, y;
    for (auto [plan, map] : {std::pair(&a, &x), {&b, &y}})
      for (const ParameterOverride &entry : plan->parameterOverrides)
        for (const std::string &name : entry.parameters)
          (*map)[name] = parametersText(entry.decision);
    addGroups("parameters", x, y, "as the others");
  }

  /// The names with different entries, grouped by both entries; a missing entry is `other`.
  void addGroups(const std::string &what, const std::map<std::string, std::string> &x,
                 const std::map<std::string, std::string> &y, const std::string &other) {
    std::set<std::string> names;
    for (const auto *map : {&x, &y})
      for (const auto &[name, entry] : *map)
        names.insert(name);
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> groups;
    for (const std::string &name : names) {
      auto entryOf = [&](const std::map<std::string, std::string> &map) {
        auto found = map.find(name);
        return found == map.end() ? other : found->second;
      };
      if (entryOf(x) != entryOf(y))
        groups[{entryOf(x), entryOf(y)}].push_back(name);
    }
    for (const auto &[entries, members] : groups)
      add("decided", what + " " + joined(compressIds(members)), entries.first, entries.second);
  }

  void operations() {
    std::map<std::string, std::string> x, y, again, againToo, away, awayToo;
    for (auto [plan, map] : {std::pair(&a, &x), {&b, &y}})
      for (const OpDecision &decision : plan->ops) {
        const std::string text = toString(decision.placement);
        for (const std::string &id : decision.ops)
          (*map)[id] = text;
      }
    addGroups("ops", x, y, "the batch alone");
    for (auto [plan, map] : {std::pair(&a, &again), {&b, &againToo}})
      for (const std::string &id : plan->recomputeOps)
        (*map)[id] = "computed again";
    addGroups("ops", again, againToo, "kept");
    for (auto [plan, map] : {std::pair(&a, &away), {&b, &awayToo}})
      for (const std::string &id : plan->offload.ops)
        (*map)[id] = "on the host";
    addGroups("kept of ops", away, awayToo, "on the device");
  }

  void predicted() {
    const Prediction &p = a.prediction, &q = b.prediction;
    add("predicted", "step", Cell::seconds(p.stepSeconds), Cell::seconds(q.stepSeconds));
    add("predicted", "peak", Cell::bytes(double(p.peakBytes)), Cell::bytes(double(q.peakBytes)));
    add("predicted", "memory", name(p.memory), name(q.memory));
    add("predicted", "MFU", Cell::share(p.mfu), Cell::share(q.mfu));
    const TimeSplit &t = p.time, &u = q.time;
    for (const TimeRow &row : timeRows())
      add("predicted", row.name, Cell::seconds(t.*row.seconds), Cell::seconds(u.*row.seconds));
    add("predicted", "hidden communication", Cell::seconds(t.hiddenData),
        Cell::seconds(u.hiddenData));
    auto lines = [](const Prediction &prediction) {
      std::map<std::string, int64_t> most; // over stages
      for (const StageMemory &stage : prediction.stages)
        for (const MemoryLine &line : stage.lines)
          most[line.name] = std::max(most[line.name], line.bytes);
      return most;
    };
    std::map<std::string, int64_t> x = lines(p), y = lines(q);
    for (const auto &[name, bytes] : x)
      add("predicted", name, Cell::bytes(double(bytes)), Cell::bytes(double(y[name])));
    auto collectives = [](const Prediction &prediction) {
      std::map<std::string, double> bytes;
      for (const CollectiveLine &line : prediction.collectives)
        bytes[std::string(reshard::name(line.count.kind)) + " over " + line.count.axes] +=
            double(line.count.bytes) * double(line.count.count);
      return bytes;
    };
    std::map<std::string, double> sends = collectives(p), others = collectives(q);
    others.insert(sends.begin(), sends.end()); // names of both
    std::map<std::string, double> of = collectives(q);
    for (const auto &[name, bytes] : others)
      add("predicted", name + ", all stages", Cell::bytes(sends[name]), Cell::bytes(of[name]));
  }

  const Plan &a, &b;
  Table table{"rows",
              "what differs",
              {{"area", "area"}, {"what", "what"}, {"this", "this"}, {"other", "other"}},
              {},
              ""};
};

} // namespace

Report explainDifferences(const Plan &plan, const Plan &other) {
  return Differences(plan, other).run();
}

} // namespace tbc::planner
