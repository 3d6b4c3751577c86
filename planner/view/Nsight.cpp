//===- Nsight.cpp - Exports of Nsight Systems ------------------------------===//

#include "planner/view/Nsight.h"

#include "planner/view/Kineto.h"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace tbc::planner {

using Json = nlohmann::json;

bool isSqlite(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 16> head = {};
  return file.read(head.data(), head.size()) &&
         std::string(head.data(), head.size()) == std::string("SQLite format 3\0", 16);
}

static std::string lower(std::string text) {
  for (char &c : text)
    c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool isStepRange(const std::string &text) {
  std::string word = lower(text);
  word.erase(word.find_last_not_of("0123456789") + 1);
  word.erase(word.find_last_not_of(" #:=_-") + 1);
  static const std::set<std::string> words = {"step",          "train_step",  "train step",
                                              "training_step", "iteration",   "iter",
                                              "training step", "profilerstep"};
  return words.count(word) > 0;
}

std::string actionOfRange(const std::string &text) {
  const std::string word = lower(text);
  const std::pair<const char *, const char *> actions[] = {
      {"forward", "forward"}, {"backward", "backward"}, {"weight", "weight"},
      {"wgrad", "weight"},    {"update", "update"},     {"optimizer", "update"}};
  for (const auto &[begin, action] : actions)
    if (word.rfind(begin, 0) == 0)
      return action;
  return "";
}

namespace {

/// A range of NVTX on one thread.
struct Range {
  int64_t begin = 0, end = 0; // nanoseconds of the host
  int64_t process = 0;
  std::string text;
};

/// A kernel, copy or fill on a device.
struct Work {
  int64_t begin = 0, end = 0; // nanoseconds of the device, on the clock of the host
  int64_t launch = 0;         // nanoseconds, begin of the call that launched it
  int64_t device = 0, stream = 0, process = 0;
  std::string name;
  bool isKernel = false;
};

/// Identifies a rank: its device and its process.
using Rank = std::pair<int64_t, int64_t>;

struct CloseDatabase {
  void operator()(sqlite3 *database) const { sqlite3_close(database); }
};
struct EndStatement {
  void operator()(sqlite3_stmt *statement) const { sqlite3_finalize(statement); }
};

class NsightReader {
public:
  explicit NsightReader(const std::string &path) : path(path) {}

  Result<Json> read(const Plan &plan, std::optional<int64_t> firstRank);

private:
  Error wrong(const std::string &why) const { return Error{ErrorCode::Usage, path + ": " + why}; }
  Error failed() const {
    return wrong(std::string("cannot be read as SQLite: ") + sqlite3_errmsg(database.get()));
  }

  Status open() {
    sqlite3 *opened = nullptr;
    const int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr);
    database.reset(opened);
    return code == SQLITE_OK ? Status::ok() : failed();
  }

  /// Calls `take` with every row.
  template <typename Take> Status query(const std::string &sql, Take take) const {
    sqlite3_stmt *prepared = nullptr;
    if (sqlite3_prepare_v2(database.get(), sql.c_str(), -1, &prepared, nullptr) != SQLITE_OK)
      return failed();
    std::unique_ptr<sqlite3_stmt, EndStatement> statement(prepared);
    int code = SQLITE_ROW;
    while ((code = sqlite3_step(prepared)) == SQLITE_ROW)
      take(prepared);
    return code == SQLITE_DONE ? Status::ok() : failed();
  }

  static std::string textAt(sqlite3_stmt *row, int column) {
    const unsigned char *text = sqlite3_column_text(row, column);
    return text ? reinterpret_cast<const char *>(text) : "";
  }

  Status readTables() {
    return query("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')",
                 [&](sqlite3_stmt *row) { tables.insert(textAt(row, 0)); });
  }

  Status readRanges();
  Status readWork(const std::string &table, const std::string &name, bool isKernel);
  /// Returns the last range of a step with work for each rank.
  std::map<Rank, const Range *> lastSteps() const;
  Result<int64_t> rankOfFirst(size_t numProcesses, const Plan &plan,
                              std::optional<int64_t> firstRank) const;
  std::string actionOf(const Work &work) const;
  Json event(const Work &work, int64_t rank, int64_t origin, const Plan &plan) const;

  const std::string &path;
  std::unique_ptr<sqlite3, CloseDatabase> database;
  std::set<std::string> tables;
  std::vector<Range> steps, actions; // by begin
  std::vector<Work> works;
};

// The identifier of a process is that of its threads without the lowest 24 bits.
static const std::string processBits = " >> 24";

Status NsightReader::readRanges() {
  if (!tables.count("NVTX_EVENTS"))
    return Status::ok();
  // Push-pop and start-end ranges have an end; marks have none.
  return query("SELECT n.start, n.end, n.globalTid" + processBits +
                   ", COALESCE(n.text, s.value) FROM NVTX_EVENTS n LEFT JOIN StringIds s "
                   "ON s.id = n.textId WHERE n.end IS NOT NULL ORDER BY n.start",
               [&](sqlite3_stmt *row) {
                 Range range{sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1),
                             sqlite3_column_int64(row, 2), textAt(row, 3)};
                 if (isStepRange(range.text))
                   steps.push_back(range);
                 else if (!actionOfRange(range.text).empty())
                   actions.push_back(range);
               });
}

Status NsightReader::readWork(const std::string &table, const std::string &name, bool isKernel) {
  if (!tables.count(table))
    return Status::ok();
  return query("SELECT w.start, w.end, r.start, w.deviceId, w.streamId, w.globalPid" + processBits +
                   ", " + name + " FROM " + table +
                   " w JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = w.correlationId AND "
                   "(r.globalTid" +
                   processBits + ") = (w.globalPid" + processBits + ") ORDER BY w.start",
               [&](sqlite3_stmt *row) {
                 works.push_back({sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1),
                                  sqlite3_column_int64(row, 2), sqlite3_column_int64(row, 3),
                                  sqlite3_column_int64(row, 4), sqlite3_column_int64(row, 5),
                                  textAt(row, 6), isKernel});
               });
}

static bool contains(const Range &range, const Work &work) {
  return range.process == work.process && range.begin <= work.launch && work.launch < range.end;
}

std::map<Rank, const Range *> NsightReader::lastSteps() const {
  std::map<Rank, const Range *> last;
  for (const Work &work : works) {
    // Steps of a process follow each other, so the one of a launch is the last that began before.
    auto later =
        std::upper_bound(steps.begin(), steps.end(), work.launch,
                         [](int64_t launch, const Range &step) { return launch < step.begin; });
    while (later != steps.begin() && !contains(*std::prev(later), work))
      --later;
    if (!work.isKernel || later == steps.begin())
      continue;
    const Range *&found = last[{work.device, work.process}];
    if (!found || found->begin < std::prev(later)->begin)
      found = &*std::prev(later);
  }
  return last;
}

Result<int64_t> NsightReader::rankOfFirst(size_t numProcesses, const Plan &plan,
                                          std::optional<int64_t> firstRank) const {
  const int64_t numRanks = plan.mesh.numRanks();
  if (!firstRank && int64_t(numProcesses) == numRanks)
    return int64_t(0);
  if (!firstRank)
    return wrong("has " + std::to_string(numProcesses) + " of " + std::to_string(numRanks) +
                 " ranks, and Nsight Systems does not say which; give the first one with "
                 "--profile-rank");
  if (*firstRank + int64_t(numProcesses) > numRanks)
    return wrong("has " + std::to_string(numProcesses) + " processes, so --profile-rank " +
                 std::to_string(*firstRank) + " is beyond the plan's " + std::to_string(numRanks) +
                 " ranks");
  return *firstRank;
}

std::string NsightReader::actionOf(const Work &work) const {
  for (const Range &range : actions)
    if (contains(range, work))
      return actionOfRange(range.text);
  return actions.empty() ? "" : "others";
}

Json NsightReader::event(const Work &work, int64_t rank, int64_t origin, const Plan &plan) const {
  const std::string kind = work.isKernel ? collectiveOfKernel(work.name, plan) : "";
  const std::string category = !work.isKernel ? "copy" : kind.empty() ? "kernel" : "communication";
  return {{"ph", "X"},
          {"name", work.name},
          {"cat", category},
          {"pid", rank},
          {"tid", work.stream + 1},
          {"ts", double(work.begin - origin) * 1e-3},
          {"dur", double(work.end - work.begin) * 1e-3},
          {"args", {{"op", kind}, {"block", category == "kernel" ? actionOf(work) : ""}}}};
}

Result<Json> NsightReader::read(const Plan &plan, std::optional<int64_t> firstRank) {
  Status status = open();
  for (const auto &step : {&NsightReader::readTables, &NsightReader::readRanges})
    if (status)
      status = (this->*step)();
  if (!status)
    return status.error();
  if (!tables.count("CUPTI_ACTIVITY_KIND_KERNEL") || !tables.count("CUPTI_ACTIVITY_KIND_RUNTIME"))
    return wrong("has no kernels (CUPTI_ACTIVITY_KIND_KERNEL); profile with nsys profile "
                 "--trace=cuda,nvtx --cuda-graph-trace=node");
  status = readWork("CUPTI_ACTIVITY_KIND_KERNEL",
                    "(SELECT value FROM StringIds WHERE id = w.demangledName)", true);
  if (status)
    status = readWork("CUPTI_ACTIVITY_KIND_MEMCPY", "'copy of ' || w.bytes || ' bytes'", false);
  if (status)
    status = readWork("CUPTI_ACTIVITY_KIND_MEMSET", "'fill of ' || w.bytes || ' bytes'", false);
  if (!status)
    return status.error();

  const std::map<Rank, const Range *> last = lastSteps();
  // Ranges of other steps would only be searched in vain.
  actions.erase(std::remove_if(actions.begin(), actions.end(),
                               [&](const Range &range) {
                                 return std::none_of(
                                     last.begin(), last.end(), [&](const auto &entry) {
                                       const Range &step = *entry.second;
                                       return range.process == step.process &&
                                              range.begin < step.end && step.begin < range.end;
                                     });
                               }),
                actions.end());
  if (last.empty())
    return wrong("has no kernel within an NVTX range of a step; mark each step, for example with "
                 "torch.cuda.nvtx.range(\"step 3\"), and profile with --trace=cuda,nvtx");
  auto first = rankOfFirst(last.size(), plan, firstRank);
  if (!first)
    return first.error();
  Json events = Json::array();
  std::set<std::pair<int64_t, int64_t>> streams; // rank, stream
  const int64_t origin = last.begin()->second->begin;
  for (const Work &work : works) {
    auto found = last.find({work.device, work.process});
    if (found == last.end() || !contains(*found->second, work))
      continue;
    const int64_t rank = *first + std::distance(last.begin(), found);
    streams.insert({rank, work.stream});
    events.push_back(event(work, rank, origin, plan));
  }
  for (const auto &[rank, stream] : streams)
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", rank},
                      {"tid", stream + 1},
                      {"args", {{"name", "stream " + std::to_string(stream)}}}});
  return Json{{"traceEvents", std::move(events)}};
}

} // namespace

Result<Json> fromNsight(const std::string &path, const Plan &plan,
                        std::optional<int64_t> firstRank) {
  return NsightReader(path).read(plan, firstRank);
}

} // namespace tbc::planner
