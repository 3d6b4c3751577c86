//===- NcclLibrary.cpp - libnccl.so.2 of the emulated GPUs -----------------===//
//
// Connects processes of one machine. A communicator is a folder in memory (in /dev/shm, or in
// TBC_EMULATED_FOLDER). In a collective, a rank writes its bytes to a file there and continues once
// all ranks have. Files are written elsewhere and renamed, so they appear complete. Values are
// those of FakeNccl's reduction.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/Reduce.h"
#include "tests/emulated/Libraries.h"
#include "tests/runtime/cuda/NcclTypes.h"

#include <climits>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <unistd.h>

namespace tbc::emulated {

using cuda::NcclCode;
using cuda::NcclHandle;
using cuda::NcclOp;
using cuda::NcclType;
using kernels::Tensor;
using test::dtypeOf;
using test::FakeAccess;
using test::FakeDriver;
using Bytes = std::vector<unsigned char>;
namespace fs = std::filesystem;

namespace {

enum class Kind { AllReduce, Broadcast, AllGather, ReduceScatter, Send, Recv };

struct Operation {
  Kind kind = Kind::AllReduce;
  cuda::DeviceAddress from = 0, to = 0;
  size_t count = 0; // elements: of the output for ReduceScatter, else of the input
  NcclType type = NcclType::U8;
  NcclOp op = NcclOp::Sum;
  double factor = 1; // of an op made by createPremulSum
  int peer = 0;      // peer of a message, or root of a Broadcast
  size_t width() const { return size_t(kernels::byteWidth(dtypeOf(type))); }
};

/// One rank's end of a communicator.
struct Endpoint {
  fs::path folder;
  int rank = 0, size = 0;
  bool isAborted = false;
  // For a split: complete once all ranks of the parent have called it.
  fs::path parent;
  int parentSize = 0, color = 0, number = 0;
  int64_t numCollectives = 0, numSplits = 0, numRemoved = 0;
  std::map<std::pair<int, bool>, int64_t> numMessages; // by peer and whether sent
};

struct Call {
  Endpoint *endpoint;
  Operation operation;
  int64_t number = 0;
  bool isPosted = false;
};

constexpr int firstMadeOp = 100;
struct State {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::vector<double> factors;
  int numIds = 0;
};
State &state() {
  static auto &made = *new State();
  return made;
}
thread_local int groupDepth = 0;
struct Pending {
  Endpoint *endpoint;
  Operation operation;
  cuda::StreamHandle stream;
};
thread_local std::vector<Pending> grouped;

Endpoint &of(NcclHandle handle) {
  return *state().endpoints.at(size_t(reinterpret_cast<uintptr_t>(handle)) - 1);
}
NcclHandle add(std::unique_ptr<Endpoint> endpoint) {
  state().endpoints.push_back(std::move(endpoint));
  return reinterpret_cast<NcclHandle>(uintptr_t(state().endpoints.size()));
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

void post(const fs::path &path, const std::string &header, const Bytes &bytes) {
  fs::path whole = path;
  whole += ".part" + std::to_string(getpid());
  std::ofstream file(whole, std::ios::binary);
  file << header << "\n";
  file.write(reinterpret_cast<const char *>(bytes.data()), std::streamsize(bytes.size()));
  file.close();
  std::error_code failed;
  // A rank that aborts removes the shared folder. Later messages of the others are lost.
  if (!file && fs::exists(path.parent_path(), failed))
    driver().complain("NCCL: " + whole.string() + " cannot be written");
  fs::rename(whole, path, failed);
}

std::pair<std::string, Bytes> read(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  std::string header;
  std::getline(file, header);
  return {header, Bytes(std::istreambuf_iterator<char>(file), {})};
}

std::string headerOf(const Operation &operation) {
  std::ostringstream text;
  bool isMade = int(operation.op) >= firstMadeOp;
  text << int(operation.kind) << " of " << operation.count << " elements of type "
       << int(operation.type) << " by " << (isMade ? firstMadeOp : int(operation.op)) << " root "
       << operation.peer;
  return text.str();
}

fs::path meetingOf(const Call &call, int rank) {
  return call.endpoint->folder /
         ("collective" + std::to_string(call.number) + "." + std::to_string(rank));
}
fs::path messageOf(const Endpoint &endpoint, int from, int to, int64_t number) {
  return endpoint.folder / ("message" + std::to_string(from) + "." + std::to_string(to) + "." +
                            std::to_string(number));
}

/// Returns whether all ranks have joined. Completes a split once all ranks have called it.
bool isJoined(Endpoint &endpoint) {
  if (endpoint.parent.empty()) {
    for (int rank = 0; rank < endpoint.size; ++rank)
      if (!fs::exists(endpoint.folder / ("joined" + std::to_string(rank))))
        return false;
    return true;
  }
  if (endpoint.size > 0)
    return true;
  int count = 0;
  for (int rank = 0; rank < endpoint.parentSize; ++rank) {
    fs::path file =
        endpoint.parent / ("split" + std::to_string(endpoint.number) + "." + std::to_string(rank));
    if (!fs::exists(file))
      return false;
    count += read(file).first == std::to_string(endpoint.color);
  }
  endpoint.size = count;
  return true;
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

size_t inputBytes(const Call &call) {
  const Operation &operation = call.operation;
  if (operation.kind == Kind::Recv)
    return 0;
  return operation.count * operation.width() *
         size_t(operation.kind == Kind::ReduceScatter ? call.endpoint->size : 1);
}

/// Records that this rank has arrived. Returns whether all ranks it needs have arrived.
bool arrive(Call &call) {
  Endpoint &endpoint = *call.endpoint;
  const Operation &operation = call.operation;
  if (operation.kind == Kind::Recv)
    return fs::exists(messageOf(endpoint, operation.peer, endpoint.rank, call.number));
  if (!call.isPosted) {
    call.isPosted = true;
    Bytes bytes = driver().peek(operation.from, inputBytes(call));
    if (operation.kind == Kind::Send) {
      post(messageOf(endpoint, endpoint.rank, operation.peer, call.number), "", bytes);
    } else {
      post(meetingOf(call, endpoint.rank), headerOf(operation), bytes);
    }
  }
  if (operation.kind == Kind::Send)
    return true;
  for (int rank = 0; rank < endpoint.size; ++rank)
    if (!fs::exists(meetingOf(call, rank)))
      return false;
  return true;
}

comm::Reduction reductionOf(const Operation &operation) {
  using comm::ReduceKind;
  if (int(operation.op) >= firstMadeOp)
    return comm::Reduction(ReduceKind::PremulSum, operation.factor);
  return operation.op == NcclOp::Product ? ReduceKind::Product
         : operation.op == NcclOp::Max   ? ReduceKind::Max
         : operation.op == NcclOp::Min   ? ReduceKind::Min
         : operation.op == NcclOp::Avg   ? ReduceKind::Avg
                                         : ReduceKind::Sum;
}

Bytes resultOf(const Call &call) {
  const Endpoint &endpoint = *call.endpoint;
  const Operation &operation = call.operation;
  if (operation.kind == Kind::Send)
    return {};
  if (operation.kind == Kind::Recv) {
    fs::path file = messageOf(endpoint, operation.peer, endpoint.rank, call.number);
    Bytes bytes = read(file).second;
    fs::remove(file);
    if (bytes.size() != operation.count * operation.width())
      driver().complain("NCCL: a message has another size than its receiver expects");
    return bytes;
  }
  Bytes joined;
  std::vector<Tensor> inputs;
  for (int rank = 0; rank < endpoint.size; ++rank) {
    auto [header, bytes] = read(meetingOf(call, rank));
    if (header.empty())
      return {}; // that rank has aborted: its part is gone, and the result undefined
    if (header != headerOf(operation))
      driver().complain("NCCL: rank " + std::to_string(endpoint.rank) + " calls " +
                        headerOf(operation) + ", rank " + std::to_string(rank) + " " + header);
    if (operation.kind == Kind::Broadcast && rank == operation.peer)
      return bytes;
    if (operation.kind == Kind::AllGather)
      joined.insert(joined.end(), bytes.begin(), bytes.end());
    else
      inputs.push_back(
          Tensor::fromBytes({dtypeOf(operation.type), {int64_t(bytes.size() / operation.width())}},
                            kernels::Arith::Native, bytes.data()));
  }
  if (operation.kind == Kind::AllGather)
    return joined;
  Bytes all = comm::reduce(reductionOf(operation), inputs).toBytes();
  if (operation.kind == Kind::AllReduce)
    return all;
  auto share = std::ptrdiff_t(operation.count * operation.width());
  return Bytes(all.begin() + share * endpoint.rank, all.begin() + share * (endpoint.rank + 1));
}

/// Removes files of earlier collectives. All ranks have arrived here, so all have read them.
void removeBefore(Endpoint &endpoint, const std::vector<Call> &calls) {
  int64_t first = INT64_MAX;
  for (const Call &call : calls)
    if (call.endpoint == &endpoint && call.operation.kind < Kind::Send)
      first = std::min(first, call.number);
  std::error_code failed;
  for (; first != INT64_MAX && endpoint.numRemoved < first; ++endpoint.numRemoved)
    fs::remove(meetingOf({&endpoint, {}, endpoint.numRemoved}, endpoint.rank), failed);
}

/// Launches operations that run at once in one stream.
void launch(const std::vector<Pending> &list, cuda::StreamHandle stream) {
  auto make = [list] {
    auto calls = std::make_shared<std::vector<Call>>();
    for (const Pending &pending : list) {
      const Operation &operation = pending.operation;
      bool isSend = operation.kind == Kind::Send;
      int64_t &number = isSend || operation.kind == Kind::Recv
                            ? pending.endpoint->numMessages[{operation.peer, isSend}]
                            : pending.endpoint->numCollectives;
      calls->push_back({pending.endpoint, operation, number++});
    }
    auto isReady = [calls] {
      bool areAllHere = true;
      for (Call &call : *calls)
        areAllHere &= call.endpoint->isAborted || arrive(call);
      return areAllHere;
    };
    auto run = [calls](FakeAccess &memory) {
      for (const Call &call : *calls) {
        if (call.endpoint->isAborted)
          continue;
        removeBefore(*call.endpoint, *calls);
        memory.read<char>(call.operation.from, inputBytes(call));
        Bytes result = resultOf(call);
        if (!result.empty())
          std::memcpy(memory.write<char>(call.operation.to, result.size()), result.data(),
                      result.size());
      }
    };
    return FakeDriver::Work{isReady, run};
  };
  driver().enqueue(stream, "NCCL of rank " + std::to_string(list[0].endpoint->rank), make);
}

NcclCode start(Operation operation, NcclHandle comm, cuda::StreamHandle stream) {
  std::lock_guard<std::recursive_mutex> guard(driver().lock());
  if (!isJoined(of(comm)))
    return NcclCode::InvalidUsage;
  if (operation.count == 0)
    return NcclCode::Success;
  if (int(operation.op) >= firstMadeOp)
    operation.factor = state().factors.at(size_t(int(operation.op) - firstMadeOp));
  grouped.push_back({&of(comm), operation, stream});
  if (groupDepth == 0) {
    launch(grouped, stream);
    grouped.clear();
  }
  return NcclCode::Success;
}

cuda::DeviceAddress addressOf(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer); }

//===----------------------------------------------------------------------===//
// The functions of the table
//===----------------------------------------------------------------------===//

struct Calls {
  using Guard = std::lock_guard<std::recursive_mutex>;

  static NcclCode getVersion(int *version) {
    *version = 22000;
    return NcclCode::Success;
  }
  static NcclCode getUniqueId(cuda::NcclId *id) {
    Guard guard(driver().lock());
    *id = {};
    const char *given = std::getenv("TBC_EMULATED_FOLDER");
    fs::path memory = given                    ? fs::path(given)
                      : fs::exists("/dev/shm") ? fs::path("/dev/shm")
                                               : fs::temp_directory_path();
    std::random_device random;
    std::string name = "tbc-emulated-nccl-" + std::to_string(getpid()) + "-" +
                       std::to_string(state().numIds++) + "-" + std::to_string(random());
    std::string text = (memory / name).string();
    if (text.size() >= sizeof id->bytes)
      return NcclCode::SystemError;
    text.copy(id->bytes, text.size());
    return NcclCode::Success;
  }
  static NcclCode initRank(NcclHandle *comm, int numRanks, cuda::NcclId id, int rank,
                           cuda::NcclConfig *config) {
    Guard guard(driver().lock());
    if (config->blocking != 0 || config->magic != cuda::NcclConfig().magic)
      return NcclCode::InvalidArgument;
    auto made = std::make_unique<Endpoint>();
    made->folder = id.bytes;
    made->rank = rank, made->size = numRanks;
    std::error_code failed;
    fs::create_directory(made->folder, failed);
    post(made->folder / ("joined" + std::to_string(rank)), "", {});
    *comm = add(std::move(made));
    return NcclCode::InProgress;
  }
  static NcclCode split(NcclHandle comm, int color, int key, NcclHandle *part, cuda::NcclConfig *) {
    Guard guard(driver().lock());
    Endpoint &parent = of(comm);
    int64_t number = parent.numSplits++;
    *part = nullptr;
    fs::path folder =
        parent.folder / ("part" + std::to_string(number) + "." + std::to_string(color));
    std::error_code failed;
    fs::create_directory(folder, failed);
    post(parent.folder / ("split" + std::to_string(number) + "." + std::to_string(parent.rank)),
         std::to_string(color), {});
    if (color < 0)
      return NcclCode::Success;
    auto made = std::make_unique<Endpoint>();
    made->folder = folder, made->parent = parent.folder;
    made->rank = key, made->parentSize = parent.size, made->color = color;
    made->number = int(number);
    *part = add(std::move(made));
    return NcclCode::Success;
  }
  /// The last rank removes the folder.
  static NcclCode destroy(NcclHandle comm) {
    Guard guard(driver().lock());
    Endpoint &endpoint = of(comm);
    if (!endpoint.parent.empty())
      return NcclCode::Success;
    post(endpoint.folder / ("left" + std::to_string(endpoint.rank)), "", {});
    for (int rank = 0; rank < endpoint.size; ++rank)
      if (!fs::exists(endpoint.folder / ("left" + std::to_string(rank))))
        return NcclCode::Success;
    std::error_code failed;
    fs::remove_all(endpoint.folder, failed);
    return NcclCode::Success;
  }
  static NcclCode abort(NcclHandle comm) {
    Guard guard(driver().lock());
    of(comm).isAborted = true;
    driver().wake();
    std::error_code failed;
    if (of(comm).parent.empty())
      fs::remove_all(of(comm).folder, failed);
    return NcclCode::Success;
  }
  static NcclCode getAsyncError(NcclHandle comm, NcclCode *code) {
    Guard guard(driver().lock());
    *code = isJoined(of(comm)) ? NcclCode::Success : NcclCode::InProgress;
    return NcclCode::Success;
  }
  static NcclCode createPremulSum(NcclOp *op, void *scalar, NcclType type, cuda::NcclResidence,
                                  NcclHandle) {
    Guard guard(driver().lock());
    *op = NcclOp(firstMadeOp + int(state().factors.size()));
    state().factors.push_back(
        Tensor::fromBytes({dtypeOf(type), {1}}, kernels::Arith::Native, scalar).toDoubles().at(0));
    return NcclCode::Success;
  }
  static NcclCode destroyOp(NcclOp, NcclHandle) { return NcclCode::Success; }
  static NcclCode memAlloc(void **memory, size_t bytes) {
    cuda::DeviceAddress begin = 0;
    if (driverTable().memAlloc(&begin, bytes) != cuda::DriverCode::Success)
      return NcclCode::UnhandledCudaError;
    *memory = reinterpret_cast<void *>(begin);
    return NcclCode::Success;
  }
  static NcclCode memFree(void *memory) {
    return driverTable().memFree(addressOf(memory)) == cuda::DriverCode::Success
               ? NcclCode::Success
               : NcclCode::UnhandledCudaError;
  }
  static NcclCode registerMemory(NcclHandle, void *memory, size_t, void **handle) {
    *handle = memory;
    return NcclCode::Success;
  }
  static NcclCode deregister(NcclHandle, void *) { return NcclCode::Success; }

  static NcclCode groupStart() {
    ++groupDepth;
    return NcclCode::Success;
  }
  static NcclCode groupEnd() {
    Guard guard(driver().lock());
    if (--groupDepth > 0)
      return NcclCode::Success;
    std::map<cuda::StreamHandle, std::vector<Pending>> byStream;
    for (const Pending &pending : grouped)
      byStream[pending.stream].push_back(pending);
    for (const auto &[stream, list] : byStream)
      launch(list, stream);
    grouped.clear();
    return NcclCode::Success;
  }
  static NcclCode allReduce(const void *from, void *to, size_t count, NcclType type, NcclOp op,
                            NcclHandle comm, cuda::StreamHandle stream) {
    return start({Kind::AllReduce, addressOf(from), addressOf(to), count, type, op}, comm, stream);
  }
  static NcclCode broadcast(const void *from, void *to, size_t count, NcclType type, int root,
                            NcclHandle comm, cuda::StreamHandle stream) {
    return start(
        {Kind::Broadcast, addressOf(from), addressOf(to), count, type, NcclOp::Sum, 1, root}, comm,
        stream);
  }
  static NcclCode allGather(const void *from, void *to, size_t count, NcclType type,
                            NcclHandle comm, cuda::StreamHandle stream) {
    return start({Kind::AllGather, addressOf(from), addressOf(to), count, type}, comm, stream);
  }
  static NcclCode reduceScatter(const void *from, void *to, size_t count, NcclType type, NcclOp op,
                                NcclHandle comm, cuda::StreamHandle stream) {
    return start({Kind::ReduceScatter, addressOf(from), addressOf(to), count, type, op}, comm,
                 stream);
  }
  static NcclCode send(const void *from, size_t count, NcclType type, int peer, NcclHandle comm,
                       cuda::StreamHandle stream) {
    return start({Kind::Send, addressOf(from), 0, count, type, NcclOp::Sum, 1, peer}, comm, stream);
  }
  static NcclCode recv(void *to, size_t count, NcclType type, int peer, NcclHandle comm,
                       cuda::StreamHandle stream) {
    return start({Kind::Recv, 0, addressOf(to), count, type, NcclOp::Sum, 1, peer}, comm, stream);
  }
};

} // namespace

const cuda::Nccl &ncclTable() {
  static const cuda::Nccl nccl = [] {
    cuda::Nccl table;
#define TBC_SET(name, symbol, ...) table.name = Calls::name;
    TBC_NCCL_FUNCTIONS(TBC_SET)
    TBC_NCCL_REGISTRATION(TBC_SET)
#undef TBC_SET
    return table;
  }();
  return nccl;
}

} // namespace tbc::emulated

extern "C" {
const char *ncclGetErrorString(tbc::cuda::NcclCode code) {
  return code == tbc::cuda::NcclCode::InvalidUsage ? "invalid usage" : "an error";
}
const char *ncclGetLastError(tbc::cuda::NcclHandle) { return ""; }
}
