//===- Measure.cpp - Start the measuring ranks -------------------------------===//

#include "tools/calibrate/Calibrate.h"

#include "runtime/comm/Gloo.h"
#include "runtime/cuda/NcclCommunicator.h"
#include "runtime/cuda/StartLibraries.h"
#include "runtime/launch/LocalJob.h"
#include "runtime/train/Agreement.h"
#include "tools/calibrate/Gpu.h"

#include <functional>
#include <iostream>
#include <sys/mman.h>
#include <unistd.h>

namespace tbc::calibrate {

/// The file through which rank 0 sends its results to the parent process.
class Mailbox {
public:
  Mailbox()
      : memory(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~Mailbox() {
    if (isThere())
      munmap(memory, bytes);
  }
  Mailbox(const Mailbox &) = delete;
  Mailbox &operator=(const Mailbox &) = delete;
  bool isThere() const { return memory != MAP_FAILED; }
  double *numbers() const { return static_cast<double *>(memory); }
  static constexpr size_t bytes = 1 << 16;

private:
  void *memory;
};

namespace {

/// Serializes all measurements as a sequence of numbers, in the same order for writing and reading.
class Numbers {
public:
  Numbers(double *place, bool isWriting) : place(place), isWriting(isWriting) {}
  void operator()(double &value) {
    if (isWriting)
      *place = value;
    else
      value = *place;
    ++place;
  }
  template <typename Point, typename Fields>
  void list(std::vector<Point> &points, Fields &&fields) {
    double count = double(points.size());
    (*this)(count);
    points.resize(size_t(count));
    for (Point &point : points)
      fields(point);
  }

private:
  double *place;
  bool isWriting;
};

} // namespace

static void exchange(Measurements &m, Numbers numbers) {
  for (double *value :
       {&m.memoryBytes, &m.processBytes, &m.bytesPerSecond, &m.hostBytesPerSecond, &m.kernelFloor})
    numbers(*value);
  std::vector<double> letters(m.device.begin(), m.device.end());
  numbers.list(letters, numbers);
  m.device.assign(letters.begin(), letters.end());
  for (std::vector<KernelPoint> *list : {&m.matmuls, &m.rows, &m.adds})
    numbers.list(*list, [&](KernelPoint &point) {
      double size = double(point.size), isNarrow = point.dtype == "bf16";
      for (double *value : {&size, &isNarrow, &point.flops, &point.bytes, &point.seconds})
        numbers(*value);
      point.size = int64_t(size);
      point.dtype = isNarrow != 0 ? "bf16" : "f32";
    });
  numbers.list(m.collectives, [&](CollectivePoint &point) {
    double ranks = double(point.ranks), isReduce = point.kind == "all_reduce";
    for (double *value : {&ranks, &isReduce, &point.bytes, &point.seconds})
      numbers(*value);
    point.ranks = int64_t(ranks);
    point.kind = isReduce != 0 ? "all_reduce" : "all_gather";
  });
}

static Status inRank(const Options &options, const launch::LocalRank &start,
                     Measurements &measurements) {
  auto job = start.openStore();
  if (!job)
    return job.error();
  comm::GlooOptions gloo;
  gloo.token = start.token;
  gloo.timeout = std::chrono::minutes(2);
  auto communicator = comm::connectGloo(start.rank, options.ranks, *job->store, gloo);
  if (!communicator)
    return communicator.error();
  measurements.memoryBytes = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  Result<double> bytes = meanOf(**communicator, double(train::residentBytes()));
  if (!bytes)
    return bytes.error();
  measurements.processBytes = *bytes;
  if (Status status = measureKernels(options, **communicator, measurements); !status)
    return status;
  return measureCollectives(options, **communicator, measurements);
}

/// Connects over NCCL; one rank alone does not need it.
static Status inGpuRank(const GpuOptions &options, const launch::LocalRank &start,
                        Measurements &measurements) {
  auto driver = cuda::loadDriver();
  if (!driver)
    return driver.error();
  int count = 0;
  if (Status status = checkDriver(*driver, driver->deviceGetCount(&count), "counting GPUs");
      !status)
    return status;
  if (count < options.ranks)
    return Error{ErrorCode::Usage, "--gpus " + std::to_string(options.ranks) + ": " +
                                       std::to_string(count) + " are visible"};
  auto device = cuda::Device::open(*driver, int(start.rank));
  if (!device)
    return device.error();
  std::vector<std::string> refusals;
  auto cublas = cuda::startedCublasLt(*device, refusals);
  if (!cublas)
    return cublas.error();
  for (const std::string &refusal : refusals)
    std::cerr << "tbc: cuBLASLt " + versionOf(*cublas) + " is measured instead: " + refusal + "\n";
  auto job = start.openStore();
  if (!job)
    return job.error();
  if (options.ranks == 1) {
    comm::GlooOptions gloo;
    gloo.token = start.token;
    auto alone = comm::connectGloo(0, 1, *job->store, gloo);
    return alone ? measureGpu(*device, *cublas, options.isQuick, **alone, measurements)
                 : Status(alone.error());
  }
  auto nccl = cuda::loadNccl();
  if (!nccl)
    return nccl.error();
  cuda::NcclOptions ncclOptions;
  ncclOptions.timeout = std::chrono::minutes(2);
  auto communicator =
      cuda::connectNccl(start.rank, options.ranks, *job->store, *nccl, *device, ncclOptions);
  return communicator ? measureGpu(*device, *cublas, options.isQuick, **communicator, measurements)
                      : Status(communicator.error());
}

/// Returns rank 0's measurements, after all ranks have run `measureHere`.
static Result<Measurements> measureInRanks(
    int64_t numRanks,
    const std::function<Status(const launch::LocalRank &, Measurements &)> &measureHere) {
  Mailbox mailbox;
  if (!mailbox.isThere())
    return Error{ErrorCode::Other, "no memory to share with the ranks"};
  auto body = [&](const launch::LocalRank &start) {
    Measurements measurements;
    Status status = measureHere(start, measurements);
    if (launch::stopRequested())
      return int(ErrorCode::StoppedOnRequest);
    if (status && start.rank == 0)
      exchange(measurements, Numbers(mailbox.numbers(), true));
    if (status)
      return 0;
    std::cerr << "tbc: rank " + std::to_string(start.rank) + ": " + status.error().message + "\n";
    return int(status.error().code);
  };
  Result<int> code = launch::launchLocalJob(numRanks, std::chrono::seconds(30), body);
  if (!code)
    return code.error();
  if (*code == int(ErrorCode::StoppedOnRequest))
    return Error{ErrorCode::StoppedOnRequest, "stopped on request; no measurement is kept"};
  if (*code != 0)
    return Error{ErrorCode(*code), "the ranks that measure failed"};
  Measurements measurements;
  exchange(measurements, Numbers(mailbox.numbers(), false));
  measurements.ranks = numRanks;
  return measurements;
}

Result<Measurements> measure(const Options &options) {
  return measureInRanks(options.ranks, [&](const launch::LocalRank &start, Measurements &m) {
    return inRank(options, start, m);
  });
}

Result<Measurements> measureGpus(const GpuOptions &options) {
  // Checked before any rank starts.
  if (Status status = cuda::findDriver(); !status)
    return status.error();
  return measureInRanks(options.ranks, [&](const launch::LocalRank &start, Measurements &m) {
    return inGpuRank(options, start, m);
  });
}

} // namespace tbc::calibrate
