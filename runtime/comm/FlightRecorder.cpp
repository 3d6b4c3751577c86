//===- FlightRecorder.cpp - The last calls of a rank -------------------------===//

#include "runtime/comm/FlightRecorder.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sstream>
#include <unistd.h>

namespace tbc::comm {

//===----------------------------------------------------------------------===//
// A standing as text
//===----------------------------------------------------------------------===//

std::string toText(const Standing &standing) {
  std::ostringstream text;
  text << standing.numCalls << ' ' << standing.isInCall << ' ' << standing.seconds << ' '
       << standing.cpuSeconds << ' ' << standing.waitsFor.size();
  for (int64_t rank : standing.waitsFor)
    text << ' ' << rank;
  text << ' ' << standing.call;
  return text.str();
}

std::optional<Standing> parseStanding(const std::string &text) {
  std::istringstream in(text);
  Standing standing;
  size_t count = 0;
  if (!(in >> standing.numCalls >> standing.isInCall >> standing.seconds >> standing.cpuSeconds >>
        count) ||
      count > size_t(1) << 20)
    return std::nullopt;
  for (; count > 0; --count) {
    int64_t rank = 0;
    if (!(in >> rank))
      return std::nullopt;
    standing.waitsFor.push_back(rank);
  }
  in.get(); // skip the space
  std::getline(in, standing.call);
  return standing;
}

static std::string inSeconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

std::string describe(const Standing &standing) {
  std::string number = "call " + std::to_string(standing.numCalls);
  if (standing.numCalls == 0)
    return "before its first call, for " + inSeconds(standing.seconds);
  if (!standing.isInCall)
    return "behind " + number + " (" + standing.call + ") for " + inSeconds(standing.seconds) +
           ", of which it computed " + inSeconds(standing.cpuSeconds);
  std::string text = "in " + number + " (" + standing.call + ") for " + inSeconds(standing.seconds);
  for (size_t i = 0; i < standing.waitsFor.size(); ++i)
    text += (i == 0 ? "; it waits for rank " : " and rank ") + std::to_string(standing.waitsFor[i]);
  return text;
}

//===----------------------------------------------------------------------===//
// Recording
//===----------------------------------------------------------------------===//

double FlightRecorder::cpuTime() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

void FlightRecorder::add(Event event) {
  if (events.size() == capacity)
    events.pop_front();
  events.push_back(std::move(event));
}

void FlightRecorder::begin(const std::string &call) {
  double cpu = cpuTime();
  std::lock_guard<std::mutex> lock(mutex);
  since = Clock::now();
  cpuSince = cpu;
  ++now.numCalls;
  now.call = call;
  now.isInCall = true;
  now.waitsFor.clear();
  add({now.numCalls, false, std::chrono::duration<double>(since - start).count(), call, {}});
}

void FlightRecorder::waitFor(std::vector<int64_t> ranks) {
  std::lock_guard<std::mutex> lock(mutex);
  now.waitsFor = std::move(ranks);
}

void FlightRecorder::end() {
  double cpu = cpuTime();
  std::lock_guard<std::mutex> lock(mutex);
  since = Clock::now();
  cpuSince = cpu;
  now.isInCall = false;
  add({now.numCalls, true, std::chrono::duration<double>(since - start).count(), now.call,
       now.waitsFor});
  now.waitsFor.clear();
}

Standing FlightRecorder::standing() const {
  double cpu = cpuTime();
  std::lock_guard<std::mutex> lock(mutex);
  Standing result = now;
  result.seconds = std::chrono::duration<double>(Clock::now() - since).count();
  result.cpuSeconds = cpu - cpuSince;
  return result;
}

static std::string quoted(const std::string &text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + "\"";
}

Result<std::string> FlightRecorder::write() const {
  const char *folder = std::getenv("TMPDIR");
  std::string path = (folder && *folder ? folder : "/tmp") + std::string("/tbc-rank-") +
                     std::to_string(rank) + "-XXXXXX.jsonl";
  auto failed = [&] {
    return Error{ErrorCode::Other, "cannot write " + path + ": " + std::strerror(errno)};
  };
  constexpr int suffixLength = 6; // the length of ".jsonl"
  int descriptor = mkstemps(path.data(), suffixLength);
  FILE *file = descriptor < 0 ? nullptr : fdopen(descriptor, "w");
  if (!file)
    return failed();
  std::lock_guard<std::mutex> lock(mutex);
  for (const Event &event : events) {
    std::string waited;
    for (int64_t other : event.waitedFor)
      waited += (waited.empty() ? "" : ",") + std::to_string(other);
    std::fprintf(file,
                 "{\"rank\":%lld,\"call\":%lld,\"event\":\"%s\",\"seconds\":%.6f,\"what\":%s,"
                 "\"waited_for\":[%s]}\n",
                 static_cast<long long>(rank), static_cast<long long>(event.number),
                 event.isEnd ? "end" : "begin", event.seconds, quoted(event.call).c_str(),
                 waited.c_str());
  }
  return std::fclose(file) == 0 ? Result<std::string>(path) : Result<std::string>(failed());
}

} // namespace tbc::comm
