//===- FakeDriver.h - A CUDA driver whose devices are this process ---------===//
//
// A table of functions for runtime/cuda that needs no GPU and is stricter than one:
//  - Device memory is host memory at addresses that the host cannot follow.
//  - Streams are lazy. An operation runs when somebody waits for what comes after it, and of those
//    that may run the next is taken at random: where an event is missing, sooner or later a number
//    is wrong.
//  - Every operation says which bytes it touches, and two that are not ordered are a race, whether
//    or not they ran in the wrong order this time (RaceChecker).
//  - What a real driver leaves undefined or slow is complained about: the default stream, copies
//    from memory that is not pinned, addresses outside of an allocation, what is never freed.
//  - Streams are captured into graphs, whose operations run as lazily, on lanes of their own; what
//    may not be done meanwhile fails, and what is not joined at the end.
//  - Any function can be told to fail, and any kernel; after a failed kernel all fails.
//
// One at a time in a process; used by any number of threads.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_CUDA_FAKEDRIVER_H
#define TBC_TESTS_RUNTIME_CUDA_FAKEDRIVER_H

#include "runtime/cuda/Driver.h"
#include "tests/runtime/cuda/RaceChecker.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>

namespace tbc::test {

struct FakeKernel;

/// Device memory that somebody else holds.
class FakeMemory {
public:
  virtual ~FakeMemory() = default;
  /// So many bytes of the host, for this address of a device. Throws std::bad_alloc.
  virtual unsigned char *allocate(cuda::DeviceAddress address, size_t bytes) = 0;
  virtual void release(cuda::DeviceAddress address) = 0;
  /// An operation that is no kernel of an image is about to write these bytes.
  virtual void willWrite(cuda::DeviceAddress address, size_t bytes) = 0;
};

struct FakeOptions {
  int numDevices = 1;
  size_t deviceBytes = size_t(1) << 26;
  int capability = 90;                                  // 10 major + minor
  std::map<int, int> capabilities = {};                 // of devices with another
  std::set<std::pair<int, int>> withoutPeerAccess = {}; // from, to
  uint64_t seed = 1;
  /// Streams wait for no event: what depends on one has to show.
  bool ignoresWaits = false;
  /// Whether memory of the host is given back only when its device has nothing to do: where all of
  /// a rank ends.
  bool keepsHostMemoryWhileBusy = false;
  std::string name = "Fake"; // of every device
  FakeMemory *memory = nullptr;
  /// Reads an image into the kernels that it has; empty: every module has those of addKernel.
  std::function<cuda::DriverCode(const char *image, std::map<std::string, FakeKernel> &kernels)>
      load = {};
  /// Hears every complaint and race at once; the device is then lost.
  std::function<void(const std::string &)> onComplaint = {};
  /// Memory is freed once its device has nothing to do, as a driver does; else that is complained
  /// about, as it is slow.
  bool freeWaits = false;
  /// How often the operations of other libraries are asked whether they may run, and for how long.
  std::chrono::milliseconds poll{20}, patience{60000};
};

class FakeDriver;

/// What an operation sees while it runs. Addresses outside of an allocation end it.
class FakeAccess {
public:
  /// `count` elements at a device address.
  template <typename T> const T *read(cuda::DeviceAddress address, size_t count) {
    return static_cast<const T *>(touch(address, count * sizeof(T), false));
  }
  template <typename T> T *write(cuda::DeviceAddress address, size_t count) {
    return static_cast<T *>(touch(address, count * sizeof(T), true));
  }

  /// Pinned memory of the host, for the race checker: what the host itself does there is not seen.
  void touchHost(const void *memory, size_t bytes, bool isWrite);

private:
  friend class FakeDriver;
  FakeAccess(FakeDriver &driver, int lane, Clock clock, std::string name)
      : driver(driver), lane(lane), clock(std::move(clock)), name(std::move(name)) {}
  void *touch(cuda::DeviceAddress address, size_t bytes, bool isWrite);

  FakeDriver &driver;
  int lane;
  Clock clock;
  std::string name;
};

/// One launch of a kernel.
struct FakeLaunch {
  FakeAccess &memory;
  unsigned gridX, blockX, sharedBytes;
  std::vector<std::vector<unsigned char>> arguments;

  template <typename T> T argument(size_t index) const {
    T value;
    std::memcpy(&value, arguments.at(index).data(), sizeof(T));
    return value;
  }
};

struct FakeKernel {
  std::vector<size_t> argumentBytes;
  std::function<void(FakeLaunch &)> run;
  int maxThreads = 1024; // as its registers allow
  int staticSharedBytes = 0;
};

class FakeDriver {
public:
  explicit FakeDriver(FakeOptions options = {});
  ~FakeDriver();
  FakeDriver(const FakeDriver &) = delete;
  FakeDriver &operator=(const FakeDriver &) = delete;

  static const cuda::Driver &table();
  /// The one there is.
  static FakeDriver &current();

  /// Every module has it.
  void addKernel(const std::string &name, FakeKernel kernel);
  /// The function of this symbol returns `code` instead of working, after `skip` more calls.
  void failCall(const std::string &symbol, cuda::DriverCode code, int skip = 0);
  /// The kernel fails when it runs; from then on every call does, with this code.
  void failKernel(const std::string &name, cuda::DriverCode code);

  /// From now on the kernel never ends, also as part of a graph, nor does what comes after it in
  /// its stream: on one device, or with -1 on all.
  void hangKernel(const std::string &name, int device = -1);
  /// The wait of a stream for an event of this number, counted from 0, does nothing.
  void ignoreWait(int number);
  /// Of streams for events, so far.
  int numStreamWaits() const { return numWaits; }

  /// Operations in the order in which they ran, with their numbers in the order of the calls.
  struct Ran {
    std::string name;
    int device;
    int64_t number;
  };
  std::vector<Ran> ran() const;

  /// All calls by symbol, in order; what `enqueue` put into a stream by its name.
  std::vector<std::string> calls() const;
  int numCalls(const std::string &symbol) const;
  /// Races, and what else a real driver would not have told.
  std::vector<std::string> complaints() const;
  /// What was made and not given back.
  std::vector<std::string> leaks() const;
  /// The images of modules that were loaded.
  std::vector<std::string> images() const;

  /// What an operation does: it may run from when `isReady` says so, asked when it is the next of
  /// its stream. Both are called with the driver's lock held.
  struct Work {
    std::function<bool()> isReady;
    std::function<void(FakeAccess &)> run;
  };
  /// For other libraries on the same streams (FakeNccl): an operation. `make` says what it does:
  /// now, or where the stream is captured at every launch of the graph.
  void enqueue(cuda::StreamHandle stream, const std::string &name, std::function<Work()> make);
  /// One that does the same each time.
  void enqueue(cuda::StreamHandle stream, const std::string &name, std::function<bool()> isReady,
               std::function<void(FakeAccess &)> run) {
    enqueue(stream, name, [work = Work{std::move(isReady), std::move(run)}] { return work; });
  }
  bool isCapturing(cuda::StreamHandle stream);
  /// What is in the stream now took so long, for events that are timed.
  void pass(cuda::StreamHandle stream, double seconds);
  /// What may run next does.
  void passTime() { runOne(); }
  /// Something that isReady looks at has changed.
  void wake();
  /// Runs what may run until `isDone`, or the device is lost, for as long as it takes. With the
  /// lock held once.
  void runWhileWaiting(const std::function<bool()> &isDone);
  /// The bytes at a device address, as isReady may see them; nothing of what is outside of memory.
  std::vector<unsigned char> peek(cuda::DeviceAddress address, size_t bytes) const;
  /// Adds a complaint.
  void complain(const std::string &text);
  /// From now on every call fails with this code.
  void lose(cuda::DriverCode code) { sticky = code; }
  std::recursive_mutex &lock() { return mutex; }

private:
  friend class FakeAccess;
  friend struct FakeCalls;
  friend struct FakeGraphCalls;

  struct EventState {
    int lane = -1; // -1: never recorded, which counts as done
    int64_t number = 0;
    Clock clock;
    int capture = -1; // -1: it was not recorded in a captured stream
    int item = 0;     // of the capture
    double seconds = 0;
  };
  struct Operation {
    std::string name;
    Clock clock;
    std::function<bool()> isReady;
    std::function<void(FakeAccess &)> run;
    int64_t number = 0;
  };
  /// What was put into streams while they were captured, in the order of the calls.
  struct Capture {
    struct Item {
      int lane;
      int event = -1; // it waits for this item, which is where an event was recorded
      std::string name;
      std::function<Work()> make; // empty: an event is recorded, or waited for
    };
    int origin = 0; // lane
    std::thread::id thread;
    std::set<int> lanes;
    std::map<int, Clock> clocks; // of lanes: how many items of each lane they come after
    std::vector<Item> items;
    bool isValid = true;
  };
  struct Executable {
    std::shared_ptr<const Capture> graph;
    int device;
    std::map<int, int> lanes; // of the capture: where its operations run
  };
  struct Stream {
    int capture = -1; // -1: it is not captured
    int device = 0;
    std::deque<Operation> queue;
    Clock clock;         // of what was enqueued
    int64_t numDone = 0; // in the lane's numbers
    double seconds = 0;  // that it took so far
    bool isAlive = true;
  };
  struct Allocation {
    int device = 0;
    size_t size = 0;
    unsigned char *data = nullptr;
    std::unique_ptr<unsigned char[]> own = {}; // where no FakeMemory holds it
  };

  cuda::DriverCode enter(const char *symbol, bool needsContext);
  bool isPinned(const void *memory, size_t bytes) const;
  cuda::DriverCode push(cuda::StreamHandle stream, Operation operation);
  void pushTo(int lane, Operation operation);
  Capture *captureOfThread();
  EventState record(int lane);
  void waitIn(int lane, const EventState &state);
  void launch(const Executable &executable, int lane);
  bool isUnderWay(const Executable &executable) const;
  void bury();
  Stream *find(cuda::StreamHandle stream);
  /// Runs what may run, at random, until `isDone`; waits for other threads where nothing may.
  cuda::DriverCode runUntil(const std::function<bool()> &isDone);
  bool runOne();
  void hearRaces();

  const FakeOptions options;
  mutable std::recursive_mutex mutex;
  std::condition_variable_any changed;
  std::mt19937_64 random;
  std::map<std::string, FakeKernel> kernels;
  std::map<std::string, std::deque<cuda::DriverCode>> callFailures;
  std::map<std::string, cuda::DriverCode> kernelFailures;
  std::map<std::string, int> hangingKernels; // where
  int numWaits = 0, ignoredWait = -1;
  cuda::DriverCode sticky = cuda::DriverCode::Success;

  std::vector<std::string> callList, complaintList, imageList;
  std::vector<Ran> ranList;
  int64_t numOperations = 0;
  RaceChecker checker;
  size_t numRacesHeard = 0;
  Clock hostClock;
  std::vector<std::unique_ptr<Stream>> streams; // lane = index
  std::map<int, EventState> events;
  std::set<int> timedEvents;
  std::map<cuda::DeviceAddress, Allocation> allocations;
  std::vector<size_t> usedBytes; // by device
  cuda::DeviceAddress nextAddress;
  std::map<const void *, std::unique_ptr<unsigned char[]>> pinned;
  std::map<const void *, size_t> pinnedBytes;
  std::vector<std::string> functions; // by handle
  std::set<int> modules;
  int numModules = 0, numEvents = 0, numCaptures = 0, numExecutables = 0;
  std::map<int, Capture> captures; // under way
  std::map<int, std::shared_ptr<const Capture>> graphs;
  std::map<int, Executable> executables;
  std::vector<Executable> dying; // destroyed while they were under way
  std::vector<int> contexts;     // how often each device's is retained
};

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CUDA_FAKEDRIVER_H
