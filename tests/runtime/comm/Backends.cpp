//===- Backends.cpp - The same calls on every backend ----------------------===//

#include "tests/runtime/comm/Backends.h"

#include "runtime/comm/SimulatedWorld.h"
#include "runtime/comm/Wire.h"
#include "runtime/cuda/NcclCommunicator.h"
#include "runtime/launch/Stores.h"
#include "tests/runtime/cuda/FakeNccl.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace tbc::test {

using kernels::Tensor;

std::string name(Backend backend) {
  switch (backend) {
  case Backend::Gloo:
    return "Gloo";
  case Backend::GlooSockets:
    return "GlooSockets";
  case Backend::GlooHosts:
    return "GlooHosts";
  case Backend::Nccl:
    return "Nccl";
  case Backend::NcclDevices:
    return "NcclDevices";
  case Backend::Simulated:
    break;
  }
  return "Simulated";
}

std::vector<Backend> allBackends() {
  std::vector<Backend> backends = {Backend::Simulated, Backend::Gloo, Backend::GlooSockets,
                                   Backend::GlooHosts, Backend::Nccl};
  const char *asked = std::getenv("TBC_GPU_TESTS");
  if (asked && std::string(asked) == "1")
    backends.push_back(Backend::NcclDevices);
  return backends;
}

static std::vector<Result<Tensor>> runThreads(int64_t numRanks, const RankFn &function,
                                              const RunOptions &options) {
  comm::SimulatedWorld world(numRanks, options.timeout);
  std::vector<Result<Tensor>> results(numRanks, Tensor());
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < numRanks; ++rank) {
    threads.emplace_back([&, rank] {
      results[rank] = function(world.communicator(rank));
      world.finish(rank);
    });
  }
  for (std::thread &thread : threads)
    thread.join();
  return results;
}

namespace {
/// Writes and reads numbers and bytes through a pipe.
class Packet {
public:
  void put(int64_t value) { text.append(reinterpret_cast<const char *>(&value), sizeof value); }
  void put(const std::string &bytes) {
    put(int64_t(bytes.size()));
    text += bytes;
  }
  int64_t number() {
    int64_t value = 0;
    std::memcpy(&value, text.data() + position, sizeof value);
    position += sizeof value;
    return value;
  }
  std::string bytes() {
    size_t size = size_t(number());
    position += size;
    return text.substr(position - size, size);
  }
  std::string text;

private:
  size_t position = 0;
};
} // namespace

static std::string pack(const Result<Tensor> &result) {
  Packet packet;
  if (!result) {
    packet.put(int64_t(result.error().code));
    packet.put(result.error().message);
    return packet.text;
  }
  packet.put(0);
  packet.put(*result ? 1 : 0);
  if (!*result)
    return packet.text;
  packet.put(int64_t(result->dtype()));
  packet.put(int64_t(comm::arithOf(*result)));
  packet.put(int64_t(result->shape().size()));
  for (int64_t size : result->shape())
    packet.put(size);
  std::vector<unsigned char> bytes = comm::encode(*result);
  packet.put(std::string(bytes.begin(), bytes.end()));
  return packet.text;
}

static Result<Tensor> unpack(const std::string &text) {
  if (text.empty())
    return Error{ErrorCode::Other, "died"};
  Packet packet;
  packet.text = text;
  if (int64_t code = packet.number())
    return Error{ErrorCode(code), packet.bytes()};
  if (!packet.number())
    return Tensor();
  kernels::TensorType type;
  type.dtype = kernels::DType(packet.number());
  auto arith = kernels::Arith(packet.number());
  type.shape.resize(packet.number());
  for (int64_t &size : type.shape)
    size = packet.number();
  return comm::decode(type, arith, packet.bytes().data());
}

static Result<Tensor> runOn(const Result<std::unique_ptr<comm::Communicator>> &communicator,
                            const RankFn &function) {
  if (!communicator)
    return communicator.error();
  try {
    return function(**communicator);
  } catch (const kernels::KernelError &error) {
    return Error{ErrorCode::Other, error.what()};
  }
}

static Result<Tensor> runOnGloo(int64_t rank, int64_t numRanks, const std::string &folder,
                                const RankFn &function, const RunOptions &options,
                                bool sharesMemory, const std::string &hostKey = "") {
  auto store = launch::openFileStore(folder, "shared");
  if (!store)
    return store.error();
  comm::GlooOptions gloo;
  gloo.timeout = options.timeout;
  gloo.token = options.token ? options.token(rank) : "shared";
  gloo.sharesMemory = sharesMemory;
  gloo.hostKey = options.hostKey ? options.hostKey(rank) : hostKey;
  gloo.byHost = options.byHost;
  auto communicator = comm::connectGloo(rank, numRanks, **store, gloo);
  return runOn(communicator, function);
}

static Result<Tensor> runProcess(int64_t rank, int64_t numRanks, const std::string &folder,
                                 const RankFn &function, const RunOptions &options) {
  return runOnGloo(rank, numRanks, folder, function, options, true);
}

static Result<Tensor> runSocketProcess(int64_t rank, int64_t numRanks, const std::string &folder,
                                       const RankFn &function, const RunOptions &options) {
  return runOnGloo(rank, numRanks, folder, function, options, false);
}

static Result<Tensor> runHostProcess(int64_t rank, int64_t numRanks, const std::string &folder,
                                     const RankFn &function, const RunOptions &options) {
  return runOnGloo(rank, numRanks, folder, function, options, true,
                   "host " + std::to_string(rank / 2));
}

/// NCCL refuses two ranks of one host on one GPU. With fewer GPUs than ranks, each rank pretends to
/// be a host of its own and uses sockets. Otherwise NCCL uses the links between the GPUs.
static void shareGpus(int64_t rank) {
  setenv("NCCL_HOSTID", ("tbc-" + std::to_string(rank)).c_str(), 1);
  setenv("NCCL_NET", "Socket", 1);
  setenv("NCCL_P2P_DISABLE", "1", 1);
  setenv("NCCL_SHM_DISABLE", "1", 1);
}

static Result<Tensor> runDeviceProcess(int64_t rank, int64_t numRanks, const std::string &folder,
                                       const RankFn &function, const RunOptions &options) {
  auto driver = cuda::loadDriver();
  auto nccl = driver ? cuda::loadNccl() : Result<cuda::Nccl>(driver.error());
  if (!nccl)
    return nccl.error();
  int numDevices = 0;
  driver->deviceGetCount(&numDevices);
  if (numDevices == 0)
    return Error{ErrorCode::Other, "there is no GPU"};
  if (numRanks > numDevices)
    shareGpus(rank);
  auto device = cuda::Device::open(*driver, int(rank) % numDevices);
  auto store = launch::openFileStore(folder, "shared");
  if (!device || !store)
    return device ? store.error() : device.error();
  cuda::NcclOptions gpu;
  gpu.timeout = options.timeout;
  gpu.checksCalls = true;
  auto communicator = cuda::connectNccl(rank, numRanks, **store, *nccl, *device, gpu);
  return runOn(communicator, function);
}

static std::vector<Result<Tensor>> runProcesses(decltype(runProcess) *runRank, int64_t numRanks,
                                                const RankFn &function, const RunOptions &options) {
  std::string folder = (std::filesystem::temp_directory_path() / "tbc-comm-XXXXXX").string();
  if (!mkdtemp(folder.data()))
    std::abort();
  std::vector<int> pipes;
  std::vector<pid_t> pids;
  for (int64_t rank = 0; rank < numRanks; ++rank) {
    int ends[2];
    if (pipe(ends) != 0)
      std::abort();
    pid_t pid = fork();
    if (pid == 0) {
      for (int other : pipes)
        close(other);
      close(ends[0]);
      std::string text = pack(runRank(rank, numRanks, folder, function, options));
      for (size_t done = 0; done < text.size();) {
        ssize_t count = write(ends[1], text.data() + done, text.size() - done);
        if (count <= 0)
          _exit(1);
        done += size_t(count);
      }
      _exit(0);
    }
    close(ends[1]);
    pipes.push_back(ends[0]);
    pids.push_back(pid);
  }
  std::vector<Result<Tensor>> results;
  for (int64_t rank = 0; rank < numRanks; ++rank) {
    std::string text;
    char chunk[65536];
    ssize_t count = 0;
    while ((count = read(pipes[rank], chunk, sizeof chunk)) > 0)
      text.append(chunk, size_t(count));
    close(pipes[rank]);
    results.push_back(unpack(text));
  }
  for (pid_t pid : pids)
    waitpid(pid, nullptr, 0);
  std::filesystem::remove_all(folder);
  return results;
}

static Result<Tensor> runOnGpu(int64_t rank, int64_t numRanks, const std::string &folder,
                               const RankFn &function, const RunOptions &options) {
  auto store = launch::openFileStore(folder, "shared");
  if (!store)
    return store.error();
  auto device = cuda::Device::open(FakeDriver::table(), int(rank));
  if (!device)
    return device.error();
  cuda::NcclOptions nccl;
  nccl.timeout = options.timeout;
  nccl.checksCalls = true;
  auto communicator = cuda::connectNccl(rank, numRanks, **store, FakeNccl::table(), *device, nccl);
  return runOn(communicator, function);
}

/// Runs each rank as a thread with a GPU of its own.
static std::vector<Result<Tensor>> runOnGpus(int64_t numRanks, const RankFn &function,
                                             const RunOptions &options) {
  std::string folder = (std::filesystem::temp_directory_path() / "tbc-nccl-XXXXXX").string();
  if (!mkdtemp(folder.data()))
    std::abort();
  FakeOptions fake;
  fake.numDevices = int(numRanks);
  FakeDriver driver(fake);
  FakeNccl nccl(driver);
  std::vector<Result<Tensor>> results(numRanks, Tensor());
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < numRanks; ++rank)
    threads.emplace_back(
        [&, rank] { results[rank] = runOnGpu(rank, numRanks, folder, function, options); });
  for (std::thread &thread : threads)
    thread.join();
  std::filesystem::remove_all(folder);
  std::vector<std::string> complaints = driver.complaints();
  for (const std::string &leak : driver.leaks())
    complaints.push_back("not given back: " + leak);
  for (const Result<Tensor> &result : results)
    if (!result)
      return results; // after an error the shutdown may not be clean
  if (!complaints.empty())
    results[0] = Error{ErrorCode::Other, complaints[0]};
  return results;
}

std::vector<Result<Tensor>> runRanks(Backend backend, int64_t numRanks, const RankFn &function,
                                     RunOptions options) {
  switch (backend) {
  case Backend::Gloo:
    return runProcesses(runProcess, numRanks, function, options);
  case Backend::GlooSockets:
    return runProcesses(runSocketProcess, numRanks, function, options);
  case Backend::GlooHosts:
    return runProcesses(runHostProcess, numRanks, function, options);
  case Backend::Nccl:
    return runOnGpus(numRanks, function, options);
  case Backend::NcclDevices:
    return runProcesses(runDeviceProcess, numRanks, function, options);
  case Backend::Simulated:
    break;
  }
  return runThreads(numRanks, function, options);
}

} // namespace tbc::test
