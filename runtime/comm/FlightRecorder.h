//===- FlightRecorder.h - The last calls of a rank ---------------------------===//
//
// Part of tbc. Plain C++. Always on: a call takes a fraction of a microsecond, and the memory is
// that of the last 256 events.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_FLIGHTRECORDER_H
#define TBC_RUNTIME_COMM_FLIGHTRECORDER_H

#include "runtime/abi/Status.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tbc::comm {

/// The current position of a rank.
struct Standing {
  int64_t numCalls = 0; // begun so far
  std::string call;     // the current or last call: place, kind and type
  bool isInCall = false;
  std::vector<int64_t> waitsFor; // in a call: the ranks that have not done their part
  double seconds = 0;            // since the call began or, between calls, since the last one ended
  double cpuSeconds = 0;         // CPU time of this process in that time
};

/// Writes one line, which `parseStanding` reads.
std::string toText(const Standing &standing);
std::optional<Standing> parseStanding(const std::string &text);

/// Returns, for example, "in call 17, step 3, stage 0, …, all_reduce, for 4.1 s; it waits for rank
/// 2".
std::string describe(const Standing &standing);

/// A ring buffer of one rank's calls on others. Thread-safe.
class FlightRecorder {
public:
  explicit FlightRecorder(int64_t rank, size_t capacity = 256)
      : rank(rank), capacity(capacity), start(Clock::now()) {}

  void begin(const std::string &call);
  /// Sets the ranks that the current call waits for.
  void waitFor(std::vector<int64_t> ranks);
  void end();

  Standing standing() const;
  /// Writes the events to a new file in the folder for temporary files, one JSON object per line,
  /// oldest first. Returns its path. Errors: Other.
  Result<std::string> write() const;

private:
  using Clock = std::chrono::steady_clock;
  struct Event {
    int64_t number; // of the call
    bool isEnd;
    double seconds; // since the recorder was made
    std::string call;
    std::vector<int64_t> waitedFor; // at an end: the ranks waited for last
  };
  void add(Event event);
  static double cpuTime();

  const int64_t rank;
  const size_t capacity;
  const Clock::time_point start;
  mutable std::mutex mutex;
  std::deque<Event> events;
  Standing now;
  Clock::time_point since = Clock::now();
  double cpuSince = 0;
};

/// Records a call until the end of the scope. `recorder` may be null.
class RecordedCall {
public:
  RecordedCall(FlightRecorder *recorder, const std::string &call) : recorder(recorder) {
    if (recorder)
      recorder->begin(call);
  }
  RecordedCall(const RecordedCall &) = delete;
  RecordedCall &operator=(const RecordedCall &) = delete;
  ~RecordedCall() {
    if (recorder)
      recorder->end();
  }

private:
  FlightRecorder *recorder;
};

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_FLIGHTRECORDER_H
