//===- Diagnosis.cpp - Finds the rank that the others wait for ---------------===//

#include "runtime/comm/Diagnosis.h"

#include <algorithm>
#include <set>

namespace tbc::comm {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

static std::string ranksText(const std::vector<int64_t> &ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0                  ? "rank "
             : i + 1 == ranks.size() ? " and rank "
                                     : ", rank ") +
            std::to_string(ranks[i]);
  return text;
}

//===----------------------------------------------------------------------===//
// The wait-for graph
//===----------------------------------------------------------------------===//

Culprits findCulprits(int64_t self, const std::vector<int64_t> &waitsFor,
                      const std::function<std::optional<Standing>(int64_t rank)> &ask,
                      Standings &answers) {
  Culprits culprits;
  std::map<int64_t, int64_t> cameFrom; // by reached rank: the rank that waits for it
  std::vector<int64_t> queue;
  auto reach = [&](int64_t from, const std::vector<int64_t> &ranks) {
    for (int64_t rank : ranks)
      if (rank != self && cameFrom.emplace(rank, from).second)
        queue.push_back(rank);
  };
  reach(self, waitsFor);
  for (size_t i = 0; i < queue.size(); ++i) {
    int64_t rank = queue[i];
    const std::optional<Standing> &answer = answers[rank] = ask(rank);
    if (!answer)
      culprits.silent.push_back(rank);
    else if (!answer->isInCall || answer->waitsFor.empty())
      culprits.busy.push_back(rank);
    else
      reach(rank, answer->waitsFor);
  }
  std::sort(culprits.silent.begin(), culprits.silent.end());
  // A rank that is busy only briefly is probably making progress; the longest busy ones count.
  double longest = 0;
  for (int64_t rank : culprits.busy)
    longest = std::max(longest, answers[rank]->seconds);
  auto isPassing = [&](int64_t rank) { return answers[rank]->seconds < longest / 2; };
  culprits.busy.erase(std::remove_if(culprits.busy.begin(), culprits.busy.end(), isPassing),
                      culprits.busy.end());
  std::sort(culprits.busy.begin(), culprits.busy.end());
  if (culprits.silent.empty() && culprits.busy.empty()) {
    culprits.cycle = queue;
    culprits.cycle.push_back(self);
    std::sort(culprits.cycle.begin(), culprits.cycle.end());
    return culprits;
  }
  int64_t end = culprits.silent.empty() ? culprits.busy[0] : culprits.silent[0];
  for (int64_t rank = end; rank != self; rank = cameFrom.at(rank))
    culprits.path.insert(culprits.path.begin(), rank);
  return culprits;
}

//===----------------------------------------------------------------------===//
// Answering
//===----------------------------------------------------------------------===//

/// Returns how long a rank may take to answer: several times its polling interval (see `answer`).
static milliseconds graceOf(milliseconds timeout, int64_t numRanks) {
  return std::clamp<milliseconds>(timeout, milliseconds(2000), milliseconds(5000)) +
         milliseconds(4 * numRanks);
}

Diagnosis::Diagnosis(int64_t rank, int64_t numRanks, int64_t servingRank, Store &store,
                     FlightRecorder &recorder, milliseconds timeout,
                     std::function<void(const std::string &)> say)
    : rank(rank), numRanks(numRanks), servingRank(servingRank), recorder(recorder),
      timeout(timeout), grace(graceOf(timeout, numRanks)), say(std::move(say)), store(store) {}

void Diagnosis::start() {
  isStarted = true;
  thread = std::thread([this] { answer(); });
}

Diagnosis::~Diagnosis() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    isClosing = true;
  }
  changed.notify_all();
  if (thread.joinable())
    thread.join();
  constexpr milliseconds farewell(2000);
  if (hasFound && servingRank == rank)
    std::this_thread::sleep_for(farewell);
}

Result<std::string> Diagnosis::claim(const std::string &key, const std::string &value) {
  std::lock_guard<std::mutex> lock(storeMutex);
  return store.claim(key, value);
}

Result<std::string> Diagnosis::get(const std::string &key, milliseconds limit) {
  Clock::time_point deadline = Clock::now() + limit;
  while (true) {
    // In short turns, so that the other thread gets the lock.
    constexpr milliseconds turn(100);
    auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    std::unique_lock<std::mutex> lock(storeMutex);
    Result<std::string> value = store.get(key, std::clamp(left, milliseconds(0), turn));
    lock.unlock();
    if (value || value.error().code != ErrorCode::HangDetected || Clock::now() >= deadline)
      return value;
  }
}

/// Polls for questions of other ranks, more often while this rank itself waits.
void Diagnosis::answer() {
  std::unique_lock<std::mutex> lock(mutex);
  while (!isClosing && !hasAnswered) {
    Standing standing = recorder.standing();
    bool isWaiting = standing.isInCall && standing.seconds > 0.25;
    auto pause = milliseconds(isWaiting ? 250 : 1000) + milliseconds(numRanks);
    changed.wait_for(lock, pause, [&] { return isClosing || hasAnswered; });
    if (isClosing || hasAnswered)
      return;
    lock.unlock();
    Result<std::string> trouble = get("trouble", milliseconds(0));
    if (trouble)
      answerNow();
    bool isOver = !trouble && trouble.error().code != ErrorCode::HangDetected;
    lock.lock();
    if (isOver) // there is no store to answer in
      return;
  }
}

void Diagnosis::answerNow() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (hasAnswered)
      return;
    hasAnswered = true;
  }
  changed.notify_all();
  // A failed claim leaves this rank silent; there is no other way to report it.
  static_cast<void>(claim("standing/" + std::to_string(rank), toText(recorder.standing())));
}

//===----------------------------------------------------------------------===//
// Asking
//===----------------------------------------------------------------------===//

std::string Diagnosis::finding(const Culprits &culprits, const Standings &answers,
                               milliseconds limit) const {
  std::string waited = " for " + std::to_string(limit.count()) + " ms";
  if (!culprits.silent.empty())
    return "no answer from " + ranksText(culprits.silent) + waited +
           (culprits.silent.size() == 1
                ? ", and no sign of life: its process is stopped, or its host cut off"
                : ", and no sign of life: their processes are stopped, or their hosts cut off");
  if (!culprits.busy.empty()) {
    const Standing &standing = *answers.at(culprits.busy[0]);
    return "no answer from " + ranksText(culprits.busy) + waited + ", though it is alive: rank " +
           std::to_string(culprits.busy[0]) + " is " + describe(standing) +
           "; where it is only slow, --timeout S waits longer";
  }
  std::string text = ranksText(culprits.cycle) + " wait for each other" + waited;
  for (int64_t other : culprits.cycle)
    if (auto answer = answers.find(other); answer != answers.end() && answer->second)
      text += "; rank " + std::to_string(other) + " is " + describe(*answer->second);
  return text;
}

std::string Diagnosis::table(const Standings &answers) const {
  constexpr int64_t mostLines = 64;
  std::string text = "where ranks stand:";
  for (const auto &[other, answer] : answers) {
    if (other >= mostLines)
      return text + "\n  … of " + std::to_string(numRanks) + " ranks";
    text += "\n  rank " + std::to_string(other) + "  " +
            (answer ? describe(*answer) : "gives no answer");
  }
  return text;
}

/// Publishes `own`, unless there is a finding already. Returns the error that all ranks report.
Error Diagnosis::conclude(const std::string &place, const Error &own, const std::string &found,
                          const Standings &answers) {
  if (!isStarted)
    return own;
  hasFound = true;
  std::string mine = std::to_string(int(own.code)) + " " + std::to_string(rank) + " " + found;
  Result<std::string> first = claim("finding", mine);
  if (!first || *first == mine) {
    if (!answers.empty() && say)
      say(table(answers));
    return own;
  }
  return heard(place, *first);
}

/// Returns the error for a finding of another rank.
Error Diagnosis::heard(const std::string &place, const std::string &first) const {
  char *end = nullptr;
  long code = std::strtol(first.c_str(), &end, 10);
  long finder = std::strtol(end, &end, 10);
  while (*end == ' ')
    ++end;
  return {ErrorCode(code), "rank " + std::to_string(rank) + " at " + place + ": stops, for " + end +
                               " (found by rank " + std::to_string(finder) + ")"};
}

/// Returns the error with which the job was already given up, if it was.
std::optional<Error> Diagnosis::heardEnd(const std::string &place) {
  std::optional<Error> end = store.givenUp();
  if (end)
    end->message = "rank " + std::to_string(rank) + " at " + place + ": stops, for " + end->message;
  return end;
}

/// Returns the standing of another rank, if it answers by the deadline; waits at least 200 ms.
std::optional<Standing> Diagnosis::ask(int64_t other, Clock::time_point deadline, bool &hasStore) {
  auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  Result<std::string> answer =
      get("standing/" + std::to_string(other), std::max(left, milliseconds(200)));
  hasStore = hasStore && (answer || answer.error().code == ErrorCode::HangDetected);
  return answer ? parseStanding(*answer) : std::nullopt;
}

Error Diagnosis::timedOut(const std::string &place, const std::vector<int64_t> &missing,
                          std::optional<milliseconds> waited) {
  milliseconds limit = waited.value_or(timeout);
  if (!isStarted)
    return {ErrorCode::HangDetected, "rank " + std::to_string(rank) + " at " + place +
                                         ": no answer from " + ranksText(missing) + " for " +
                                         std::to_string(limit.count()) + " ms"};
  recorder.waitFor(missing);
  Standings answers;
  answers[rank] = recorder.standing();
  bool hasStore = bool(claim("trouble", "of rank " + std::to_string(rank) + " at " + place));
  if (Result<std::string> first = get("finding", milliseconds(0)); first)
    return heard(place, *first);
  answerNow();
  Clock::time_point deadline = Clock::now() + grace;
  Culprits culprits = findCulprits(
      rank, missing, [&](int64_t other) { return ask(other, deadline, hasStore); }, answers);
  if (std::optional<Error> end = heardEnd(place))
    return *end;
  if (!hasStore) {
    // No rank can be asked. Known are only the awaited ranks and the one that serves the store.
    culprits = {};
    culprits.silent = missing;
    if (servingRank >= 0 && servingRank != rank)
      culprits.silent = {servingRank};
    culprits.path = culprits.silent;
  }
  for (int64_t other = 0; hasStore && other < numRanks; ++other)
    if (!answers.count(other))
      if (Result<std::string> answer = get("standing/" + std::to_string(other), milliseconds(0)))
        answers[other] = parseStanding(*answer);
  std::string found = finding(culprits, answers, limit);
  std::string way;
  if (culprits.path.size() > 1)
    way = "; this rank waits for it by way of " +
          ranksText({culprits.path.begin(), culprits.path.end() - 1});
  Error own{ErrorCode::HangDetected,
            "rank " + std::to_string(rank) + " at " + place + ": " + found + way};
  return conclude(place, own, found, answers);
}

Error Diagnosis::lost(const std::string &place, int64_t peer, bool tellsFirst) {
  // Gloo closes connections before it reports a time-out. A rank that timed out sets "trouble" at
  // once, and its finding follows.
  milliseconds patience(isStarted ? tellsFirst ? 0 : 1000 : -1);
  if (patience.count() >= 0) {
    if (Result<std::string> first = get("finding", milliseconds(0)); first)
      return heard(place, *first);
    if (get("trouble", patience))
      if (Result<std::string> first = get("finding", grace + milliseconds(1000)); first)
        return heard(place, *first);
  }
  std::string found = "rank " + std::to_string(peer) + " is gone; it has failed or was killed";
  return conclude(place,
                  {ErrorCode::RankFailed, "rank " + std::to_string(rank) + " at " + place +
                                              ": the connection to " + found},
                  found, {});
}

Error Diagnosis::failed(const Error &error) {
  return conclude("the same time", error, error.message, {});
}

Error Diagnosis::failedAmong(const Error &error, const std::vector<int64_t> &ranks) {
  if (!isStarted)
    return error;
  bool hasStore = bool(claim("trouble", "of rank " + std::to_string(rank)));
  answerNow();
  Standings answers;
  Clock::time_point deadline = Clock::now() + grace;
  std::vector<int64_t> silent;
  for (int64_t other : ranks)
    if (other != rank && hasStore && !(answers[other] = ask(other, deadline, hasStore)))
      silent.push_back(other);
  if (std::optional<Error> end = heardEnd("the same time"))
    return *end;
  if (!hasStore || silent.empty())
    return failed(error);
  return failed(
      {error.code, ranksText(silent) + (silent.size() == 1 ? " gives" : " give") +
                       " no sign of life, and has failed or was killed: " + error.message});
}

} // namespace tbc::comm
