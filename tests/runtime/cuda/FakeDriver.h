//===- FakeDriver.h - A fake CUDA driver in this process -------------------===//
//
// A table of functions for runtime/cuda. It needs no GPU and is stricter than one:
//
// - Device memory is host memory at addresses that the host cannot dereference.
// - Streams are lazy. An operation runs only when the host waits for it or for a later one. The
//   next operation is taken at random from those ready, so a missing event sooner or later gives a
//   wrong number.
// - Every operation declares the bytes it touches. Two unordered operations on the same bytes are a
//   race, even if they ran in the right order this time (RaceChecker).
// - Behaviour that a real driver leaves undefined or slow is a complaint: the default stream,
//   copies from pageable memory, addresses outside of an allocation, leaked memory.
// - Streams are captured into graphs. Their operations run as lazily, on lanes of their own. Calls
//   forbidden during a capture fail, and so does a capture with unjoined streams at its end.
// - Any function and any kernel can be told to fail. After a failed kernel every call fails.
//
// At most one exists in a process. Any number of threads may use it.
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

/// An owner of device memory outside of the fake.
class FakeMemory {
public:
  virtual ~FakeMemory() = default;
  /// Allocates `bytes` bytes of the host for this device address. Throws std::bad_alloc.
  virtual unsigned char *allocate(cuda::DeviceAddress address, size_t bytes) = 0;
  virtual void release(cuda::DeviceAddress address) = 0;
  /// Called before an operation that is no kernel of an image writes these bytes.
  virtual void willWrite(cuda::DeviceAddress address, size_t bytes) = 0;
};

struct FakeOptions {
  int numDevices = 1;
  size_t deviceBytes = size_t(1) << 26;
  int capability = 90;                                  // 10 * major + minor
  std::map<int, int> capabilities = {};                 // of the other devices, by device
  std::set<std::pair<int, int>> withoutPeerAccess = {}; // from, to
  uint64_t seed = 1;
  /// Streams do not wait for events. A test uses this to show that a missing wait is detected.
  bool ignoresWaits = false;
  /// Freeing host memory while its device is busy is a complaint. For tests in which a whole rank
  /// ends.
  bool keepsHostMemoryWhileBusy = false;
  std::string name = "Fake"; // of every device
  FakeMemory *memory = nullptr;
  /// Reads an image and returns its kernels. If empty: every module has the kernels of addKernel.
  std::function<cuda::DriverCode(const char *image, std::map<std::string, FakeKernel> &kernels)>
      load = {};
  /// Called at every complaint and race. The device is then lost.
  std::function<void(const std::string &)> onComplaint = {};
  /// Memory is freed once its device is idle, as a driver does. If false, freeing the memory of a
  /// busy device is a complaint, because it is slow.
  bool freeWaits = false;
  /// `poll`: how often the operations of other libraries are asked whether they may run.
  /// `patience`: for how long.
  std::chrono::milliseconds poll{20}, patience{60000};
};

class FakeDriver;

/// The memory access of a running operation. An address outside of an allocation ends the
/// operation.
class FakeAccess {
public:
  /// Returns `count` elements at a device address.
  template <typename T> const T *read(cuda::DeviceAddress address, size_t count) {
    return static_cast<const T *>(touch(address, count * sizeof(T), false));
  }
  template <typename T> T *write(cuda::DeviceAddress address, size_t count) {
    return static_cast<T *>(touch(address, count * sizeof(T), true));
  }

  /// Tells the race checker of an access to pinned host memory. Accesses by the host are not seen.
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
  int maxThreads = 1024; // as limited by its registers
  int staticSharedBytes = 0;
};

class FakeDriver {
public:
  explicit FakeDriver(FakeOptions options = {});
  ~FakeDriver();
  FakeDriver(const FakeDriver &) = delete;
  FakeDriver &operator=(const FakeDriver &) = delete;

  static const cuda::Driver &table();
  /// Returns the only instance.
  static FakeDriver &current();

  /// Adds a kernel to every module.
  void addKernel(const std::string &name, FakeKernel kernel);
  /// The function of this symbol returns `code` instead of working, after `skip` more calls.
  /// Example: skip = 1 lets the next call succeed and fails the one after.
  void failCall(const std::string &symbol, cuda::DriverCode code, int skip = 0);
  /// The kernel fails when it runs. From then on every call returns this code.
  void failKernel(const std::string &name, cuda::DriverCode code);

  /// From now on the kernel never ends, also inside a graph. Later operations of its stream do not
  /// run either. `device` = -1 means all devices.
  void hangKernel(const std::string &name, int device = -1);
  /// Stream wait `number`, counted from 0, is skipped. Example: 0 skips the first wait.
  void ignoreWait(int number);
  /// Returns the number of stream waits for events so far.
  int numStreamWaits() const { return numWaits; }

  /// An operation that ran. The list is in execution order; `number` counts the calls.
  struct Ran {
    std::string name;
    int device;
    int64_t number;
  };
  std::vector<Ran> ran() const;

  /// Returns all calls by symbol, in order. An `enqueue` is listed by the name of its operation.
  std::vector<std::string> calls() const;
  int numCalls(const std::string &symbol) const;
  /// Returns races and other faults that a real driver would not have reported.
  std::vector<std::string> complaints() const;
  /// Returns the objects not yet destroyed.
  std::vector<std::string> leaks() const;
  /// Returns the images of loaded modules.
  std::vector<std::string> images() const;

  /// An operation of another library. It may run once `isReady` returns true, which is asked when
  /// it is the next of its stream. Both functions are called with the driver's lock held.
  struct Work {
    std::function<bool()> isReady;
    std::function<void(FakeAccess &)> run;
  };
  /// Adds an operation of another library on the same streams (FakeNccl). `make` returns its work.
  /// It is called now, or at every launch of the graph if the stream is captured.
  void enqueue(cuda::StreamHandle stream, const std::string &name, std::function<Work()> make);
  /// Adds an operation with the same work each time.
  void enqueue(cuda::StreamHandle stream, const std::string &name, std::function<bool()> isReady,
               std::function<void(FakeAccess &)> run) {
    enqueue(stream, name, [work = Work{std::move(isReady), std::move(run)}] { return work; });
  }
  bool isCapturing(cuda::StreamHandle stream);
  /// Adds `seconds` to the stream's time, for timed events.
  void pass(cuda::StreamHandle stream, double seconds);
  /// Runs one ready operation.
  void passTime() { runOne(); }
  /// Called when the state read by an `isReady` has changed.
  void wake();
  /// Runs ready operations until `isDone` returns true or the device is lost, without a time limit.
  /// The caller holds the lock once.
  void runWhileWaiting(const std::function<bool()> &isDone);
  /// Returns the bytes at a device address, for `isReady`. Outside of memory it returns no bytes.
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
    int capture = -1; // -1: not recorded in a captured stream
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
  /// Operations put into streams during a capture, in the order of the calls.
  struct Capture {
    struct Item {
      int lane;
      int event = -1; // -1, or the item whose event record this one waits for
      std::string name;
      std::function<Work()> make; // empty: records an event, or waits for one
    };
    int origin = 0; // lane
    std::thread::id thread;
    std::set<int> lanes;
    std::map<int, Clock> clocks; // by lane: the number of its items that precede
    std::vector<Item> items;
    bool isValid = true;
  };
  struct Executable {
    std::shared_ptr<const Capture> graph;
    int device;
    std::map<int, int> lanes; // by lane of the capture: the lane that runs its operations
  };
  struct Stream {
    int capture = -1; // -1: not captured
    int device = 0;
    std::deque<Operation> queue;
    Clock clock;         // of the enqueued operations
    int64_t numDone = 0; // highest finished number of the lane
    double seconds = 0;  // elapsed so far
    bool isAlive = true;
  };
  struct Allocation {
    int device = 0;
    size_t size = 0;
    unsigned char *data = nullptr;
    std::unique_ptr<unsigned char[]> own = {}; // unless a FakeMemory holds it
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
  /// Runs ready operations at random until `isDone`. Waits for other threads if no operation is
  /// ready.
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
  std::map<std::string, int> hangingKernels; // by name: the device, or -1
  int numWaits = 0, ignoredWait = -1;
  cuda::DriverCode sticky = cuda::DriverCode::Success;

  std::vector<std::string> callList, complaintList, imageList;
  std::vector<Ran> ranList;
  int64_t numOperations = 0;
  RaceChecker checker;
  size_t numRacesHeard = 0;
  Clock hostClock;
  std::vector<std::unique_ptr<Stream>> streams; // index = lane
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
  std::map<int, Capture> captures; // in progress
  std::map<int, std::shared_ptr<const Capture>> graphs;
  std::map<int, Executable> executables;
  std::vector<Executable> dying; // destroyed while running
  std::vector<int> contexts;     // by device: the retain count
};

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CUDA_FAKEDRIVER_H
