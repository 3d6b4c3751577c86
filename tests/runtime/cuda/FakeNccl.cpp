//===- FakeNccl.cpp - NCCL between ranks of this process -------------------===//

#include "tests/runtime/cuda/FakeNccl.h"

#include "runtime/comm/Reduce.h"
#include "tests/runtime/cuda/NcclTypes.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace tbc::test {

using comm::ReduceKind;
using cuda::NcclCode;
using cuda::NcclOp;
using cuda::NcclType;
using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using Bytes = std::vector<unsigned char>;

namespace {

enum class Kind { AllReduce, Broadcast, AllGather, ReduceScatter, Send, Recv };

struct Operation {
  Kind kind = Kind::AllReduce;
  cuda::DeviceAddress from = 0, to = 0;
  size_t count = 0; // elements: of the output for ReduceScatter, else of the input
  NcclType type = NcclType::U8;
  NcclOp op = NcclOp::Sum;
  int peer = 0; // peer of a message, or root of a Broadcast
  bool isInGraph = false;
  bool isFromRegistered = false, isToRegistered = false;
};

/// State shared by the ranks of a communicator.
struct World {
  int size = 0;
  std::set<int> joined;
  /// The k-th collective: its ranks so far, with their bytes.
  struct Meeting {
    Operation operation;
    std::map<int, Bytes> inputs;
  };
  std::map<int64_t, Meeting> meetings;
  /// The k-th message from one rank to another: its bytes, and whether it is awaited.
  struct Message {
    std::optional<Bytes> bytes;
    bool isAwaited = false;
  };
  std::map<std::tuple<int, int, int64_t>, Message> messages;
  /// The communicators made by the k-th split, by color.
  std::map<std::pair<int64_t, int>, std::shared_ptr<World>> parts;
  std::map<int64_t, std::map<int, int>> splitCalls; // by split and rank: the color
  /// The ranks that called their first collective, and the ends of first messages that were called:
  /// (from, to, is the sender). NCCL connects at the first call, which needs all of them.
  std::set<int> ranksInCollectives;
  std::set<std::tuple<int, int, bool>> messageEnds;
};

/// Calls of one endpoint that wait for NCCL's thread.
struct Taken {
  std::vector<Operation> operations;
  cuda::StreamHandle stream = nullptr;
};

/// One rank's end of a communicator.
struct Endpoint {
  std::shared_ptr<World> world;
  int rank = 0;
  bool isAlive = true, isAborted = false;
  int64_t numCollectives = 0, numSplits = 0;
  std::map<std::pair<int, bool>, int64_t> numMessages; // by peer and whether sent
  std::function<bool()> isSplitDone;                   // set if a split made it
  std::map<cuda::DeviceAddress, size_t> registered;    // memory
  std::vector<std::weak_ptr<int>> graphs;              // graphs that contain its operations
  std::optional<Taken> pending;
  int64_t numUnderWay = 0; // operations in streams
};

/// Operations between groupStart and groupEnd of this thread.
struct Pending {
  int endpoint;
  Operation operation;
  cuda::StreamHandle stream;
};
thread_local int groupDepth = 0;
thread_local std::vector<Pending> grouped;

FakeNccl *theNccl = nullptr;

int indexOf(cuda::NcclHandle handle) { return int(reinterpret_cast<uintptr_t>(handle)) - 1; }
cuda::NcclHandle handleOf(int index) {
  return reinterpret_cast<cuda::NcclHandle>(static_cast<uintptr_t>(index + 1));
}

Tensor tensorOf(const Bytes &bytes, NcclType type) {
  DType dtype = dtypeOf(type);
  return Tensor::fromBytes({dtype, {int64_t(bytes.size()) / kernels::byteWidth(dtype)}},
                           Arith::Native, bytes.data());
}

constexpr int firstMadeOp = 100; // first result of createPremulSum

bool agree(const Operation &a, const Operation &b) {
  bool areMade = int(a.op) >= firstMadeOp && int(b.op) >= firstMadeOp; // each rank has its own
  return a.kind == b.kind && a.count == b.count && a.type == b.type && (a.op == b.op || areMade) &&
         a.peer == b.peer && a.isInGraph == b.isInGraph &&
         a.isFromRegistered == b.isFromRegistered && a.isToRegistered == b.isToRegistered;
}

} // namespace

struct FakeNccl::State {
  FakeDriver &driver;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::map<std::string, std::shared_ptr<World>> worlds; // by id
  std::map<int, double> factors;                        // of ops made by createPremulSum
  std::map<cuda::DeviceAddress, size_t> memory;         // of memAlloc
  int numRegistered = 0;                                // calls with registered memory
  int numIds = 0, numSplits = 0, numOps = firstMadeOp;
  NcclCode failure = NcclCode::Success;
  int numAborting = 0;
  bool isEnding = false; // abort stops waiting
};

FakeNccl::FakeNccl(FakeDriver &driver) : state(new State{driver, {}, {}, {}, {}}) {
  theNccl = this;
}
FakeNccl::~FakeNccl() {
  std::unique_lock<std::recursive_mutex> guard(state->driver.lock());
  state->isEnding = true;
  state->driver.wake();
  while (state->numAborting > 0) {
    guard.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    guard.lock();
  }
  theNccl = nullptr;
}

int FakeNccl::numAlive() const {
  std::lock_guard<std::recursive_mutex> guard(state->driver.lock());
  int count = 0;
  for (const auto &endpoint : state->endpoints)
    count += endpoint->isAlive;
  return count;
}
int FakeNccl::numRegisteredCalls() const {
  std::lock_guard<std::recursive_mutex> guard(state->driver.lock());
  return state->numRegistered;
}
int FakeNccl::numSplits() const { return state->numSplits; }
void FakeNccl::failAll(NcclCode code) {
  std::lock_guard<std::recursive_mutex> guard(state->driver.lock());
  state->failure = code;
}

struct FakeNcclCalls {
  using Guard = std::lock_guard<std::recursive_mutex>;
  using State = FakeNccl::State;

  // -- Communicators

  static NcclCode getVersion(int *version) {
    *version = 22304;
    return NcclCode::Success;
  }
  static NcclCode getUniqueId(cuda::NcclId *id) {
    State &state = *theNccl->state;
    Guard guard(state.driver.lock());
    *id = {};
    std::string text = "id " + std::to_string(state.numIds++);
    text.copy(id->bytes, sizeof id->bytes);
    return NcclCode::Success;
  }
  static cuda::NcclHandle add(State &state, std::shared_ptr<World> world, int rank) {
    world->joined.insert(rank);
    state.endpoints.push_back(std::make_unique<Endpoint>());
    state.endpoints.back()->world = std::move(world);
    state.endpoints.back()->rank = rank;
    return handleOf(int(state.endpoints.size()) - 1);
  }
  static NcclCode initRank(cuda::NcclHandle *comm, int numRanks, cuda::NcclId id, int rank,
                           cuda::NcclConfig *config) {
    State &state = *theNccl->state;
    Guard guard(state.driver.lock());
    if (config->blocking != 0 || config->magic != 0xcafebeef)
      return NcclCode::InvalidArgument;
    auto &world = state.worlds[id.bytes];
    if (!world)
      world = std::make_shared<World>();
    world->size = numRanks;
    *comm = add(state, world, rank);
    return NcclCode::InProgress;
  }
  static NcclCode split(cuda::NcclHandle comm, int color, int key, cuda::NcclHandle *part,
                        cuda::NcclConfig *) {
    State &state = *theNccl->state;
    Guard guard(state.driver.lock());
    Endpoint &parent = *state.endpoints.at(indexOf(comm));
    std::shared_ptr<World> world = parent.world;
    int64_t number = parent.numSplits++;
    ++state.numSplits;
    world->splitCalls[number][parent.rank] = color;
    *part = nullptr;
    if (color < 0)
      return NcclCode::Success;
    auto &made = world->parts[{number, color}];
    if (!made)
      made = std::make_shared<World>();
    ++made->size;
    *part = add(state, made, key);
    state.endpoints.back()->isSplitDone = [world, number] {
      return int(world->splitCalls[number].size()) == world->size;
    };
    return NcclCode::Success;
  }
  static NcclCode destroy(cuda::NcclHandle comm) {
    State &state = *theNccl->state;
    Guard guard(state.driver.lock());
    Endpoint &endpoint = *state.endpoints.at(indexOf(comm));
    endpoint.isAlive = false;
    for (const std::weak_ptr<int> &graph : endpoint.graphs)
      if (!graph.expired()) // NCCL would wait for the graph
        state.driver.complain("a communicator is destroyed before a graph that it is part of");
    return NcclCode::Success;
  }
  static NcclCode abort(cuda::NcclHandle comm) {
    State &state = *theNccl->state;
    Guard guard(state.driver.lock());
    Endpoint &endpoint = *state.endpoints.at(indexOf(comm));
    if (!endpoint.isAlive)
      state.driver.complain("a communicator is aborted that is gone");
    endpoint.isAlive = false;
    endpoint.isAborted = true;
    endpoint.pending.reset();
    state.driver.wake();
    // NCCL's kernels end by themselves, but earlier operations of the user's streams do not. NCCL
    // also waits until every graph with the communicator is destroyed.
    ++state.numAborting;
    state.driver.runWhileWaiting(
        [&] { return state.isEnding || (endpoint.numUnderWay == 0 && !isInGraph(endpoint)); });
    --state.numAborting;
    return NcclCode::Success;
  }
  static bool isInGraph(const Endpoint &endpoint) {
    return std::any_of(endpoint.graphs.begin(), endpoint.graphs.end(),
                       [](const std::weak_ptr<int> &graph) { return !graph.expired(); });
  }
  static bool isJoined(const Endpoint &endpoint) {
    return endpoint.isSplitDone ? endpoint.isSplitDone()
                                : int(endpoint.world->joined.size()) == endpoint.world->size;
  }
  static NcclCode getAsyncError(cuda::NcclHandle comm, NcclCode *code) {
    State &state = *theNccl->state;
    Guard guard(state.driver.lock());
    Endpoint &endpoint = *state.endpoints.at(indexOf(comm));
    if (endpoint.isAborted) {
      state.driver.complain("a communicator is asked that is aborted");
      return NcclCode::InvalidArgument;
    }
    state.driver.passTime();
    *code = state.failure != NcclCode::Success                     ? state.failure
            : isJoined(endpoint) && takeOver(state, indexOf(comm)) ? NcclCode::Success
                                                                   : NcclCode::InProgress;
    return NcclCode::Success;
  }
  /// Puts the pending calls into their stream once all ranks needed for the connection have called.
  /// Returns false if some are missing.
  static bool takeOver(State &state, int index) {
    Endpoint &endpoint = *state.endpoints.at(size_t(index));
    if (!endpoint.pending)
      return true;
    World &world = *endpoint.world;
    for (const Operation &operation : endpoint.pending->operations) {
      bool isSend = operation.kind == Kind::Send;
      if (!isSend && operation.kind != Kind::Recv) {
        world.ranksInCollectives.insert(endpoint.rank);
        continue;
      }
      int from = isSend ? endpoint.rank : operation.peer;
      int to = isSend ? operation.peer : endpoint.rank;
      world.messageEnds.insert({from, to, isSend});
    }
    for (const Operation &operation : endpoint.pending->operations) {
      bool isSend = operation.kind == Kind::Send;
      int from = isSend ? endpoint.rank : operation.peer;
      int to = isSend ? operation.peer : endpoint.rank;
      bool isMet = isSend || operation.kind == Kind::Recv
                       ? world.messageEnds.count({from, to, true}) > 0 &&
                             world.messageEnds.count({from, to, false}) > 0
                       : int(world.ranksInCollectives.size()) == world.size;
      if (!isMet)
        return false;
    }
    Taken taken = std::move(*endpoint.pending);
    endpoint.pending.reset();
    launch(state, index, taken.operations, taken.stream);
    return true;
  }
  static const char *getErrorString(NcclCode code) {
    return code == NcclCode::RemoteError ? "remote process exited" : "an error";
  }
  static const char *getLastError(cuda::NcclHandle) { return "as told"; }
  static NcclCode createPremulSum(NcclOp *op, void *scalar, NcclType type, cuda::NcclResidence,
                                  cuda::NcclHandle) {
    State &state = *theNccl->state;
    Guard guard(state.driver.lock());
    auto *bytes = static_cast<unsigned char *>(scalar);
    DType dtype = dtypeOf(type);
    double factor =
        tensorOf(Bytes(bytes, bytes + kernels::byteWidth(dtype)), type).toDoubles().at(0);
    state.factors[state.numOps] = factor;
    *op = NcclOp(state.numOps++);
    return NcclCode::Success;
  }
  static NcclCode destroyOp(NcclOp op, cuda::NcclHandle) {
    return int(op) >= firstMadeOp ? NcclCode::Success : NcclCode::InvalidArgument;
  }

  // -- Memory

  static NcclCode memAlloc(void **memory, size_t bytes) {
    State &state = *theNccl->state;
    Guard guard(state.driver.lock());
    cuda::DeviceAddress begin = 0;
    if (FakeDriver::table().memAlloc(&begin, bytes) != cuda::DriverCode::Success)
      return NcclCode::UnhandledCudaError;
    state.memory[begin] = bytes;
    *memory = reinterpret_cast<void *>(begin);
    return NcclCode::Success;
  }
  static NcclCode memFree(void *memory) {
    State &state = *theNccl->state;
    Guard guard(state.driver.lock());
    cuda::DeviceAddress begin = addressOf(memory);
    if (!state.memory.erase(begin))
      return NcclCode::InvalidArgument;
    for (const auto &endpoint : state.endpoints)
      if (endpoint->isAlive && endpoint->registered.count(begin))
        state.driver.complain("memory is freed that is registered with a communicator");
    return FakeDriver::table().memFree(begin) == cuda::DriverCode::Success
               ? NcclCode::Success
               : NcclCode::UnhandledCudaError;
  }
  static NcclCode registerMemory(cuda::NcclHandle comm, void *memory, size_t bytes, void **handle) {
    State &state = *theNccl->state;
    Guard guard(state.driver.lock());
    Endpoint &endpoint = *state.endpoints.at(indexOf(comm));
    auto found = state.memory.find(addressOf(memory));
    if (found == state.memory.end() || found->second < bytes)
      state.driver.complain("memory is registered that is not NCCL's");
    if (!endpoint.registered.emplace(addressOf(memory), bytes).second)
      state.driver.complain("memory is registered twice");
    *handle = memory;
    return NcclCode::Success;
  }
  static NcclCode deregister(cuda::NcclHandle comm, void *handle) {
    State &state = *theNccl->state;
    Guard guard(state.driver.lock());
    return state.endpoints.at(indexOf(comm))->registered.erase(addressOf(handle))
               ? NcclCode::Success
               : NcclCode::InvalidArgument;
  }
  static bool isRegistered(const Endpoint &endpoint, cuda::DeviceAddress address) {
    auto next = endpoint.registered.upper_bound(address);
    return next != endpoint.registered.begin() &&
           address < std::prev(next)->first + std::prev(next)->second;
  }

  // -- Operations

  static size_t widthOf(const Operation &operation) {
    return size_t(kernels::byteWidth(dtypeOf(operation.type)));
  }
  static size_t inputBytes(const Operation &operation, int size) {
    size_t bytes = operation.count * widthOf(operation);
    return operation.kind == Kind::ReduceScatter ? bytes * size_t(size)
           : operation.kind == Kind::Recv        ? 0
                                                 : bytes;
  }

  /// An operation and its index among the operations of its kind.
  struct Numbered {
    Operation operation;
    int64_t number;
  };

  /// Records that the rank has arrived, with its bytes. Returns true if all ranks it needs have
  /// arrived too.
  static bool arrive(State &state, Endpoint &endpoint, const Numbered &call) {
    World &world = *endpoint.world;
    const Operation &operation = call.operation;
    auto snapshot = [&] {
      return state.driver.peek(operation.from, inputBytes(operation, world.size));
    };
    if (operation.kind == Kind::Send) {
      auto &message = world.messages[{endpoint.rank, operation.peer, call.number}];
      if (!message.bytes)
        message.bytes = snapshot();
      return message.isAwaited;
    }
    if (operation.kind == Kind::Recv) {
      auto &message = world.messages[{operation.peer, endpoint.rank, call.number}];
      message.isAwaited = true;
      return message.bytes.has_value();
    }
    World::Meeting &meeting = world.meetings[call.number];
    if (meeting.inputs.empty())
      meeting.operation = operation;
    if (!agree(meeting.operation, operation))
      state.driver.complain("ranks call NCCL for different things");
    if (!meeting.inputs.count(endpoint.rank))
      meeting.inputs[endpoint.rank] = snapshot();
    return int(meeting.inputs.size()) == world.size;
  }

  /// If ranks call with different sizes, NCCL's result is undefined. The fake pads with zeros.
  static Bytes reduced(State &state, const World::Meeting &meeting, const Operation &operation) {
    size_t largest = operation.count * widthOf(operation) *
                     (operation.kind == Kind::ReduceScatter ? meeting.inputs.size() : 1);
    for (const auto &[rank, bytes] : meeting.inputs)
      largest = std::max(largest, bytes.size());
    std::vector<Tensor> inputs;
    for (const auto &[rank, bytes] : meeting.inputs) {
      Bytes input = bytes;
      input.resize(largest);
      inputs.push_back(tensorOf(input, operation.type));
    }
    int op = int(operation.op);
    comm::Reduction reduction = op >= 100
                                    ? comm::Reduction(ReduceKind::PremulSum, state.factors[op])
                                : op == int(NcclOp::Product) ? ReduceKind::Product
                                : op == int(NcclOp::Max)     ? ReduceKind::Max
                                : op == int(NcclOp::Min)     ? ReduceKind::Min
                                : op == int(NcclOp::Avg)     ? ReduceKind::Avg
                                                             : ReduceKind::Sum;
    return comm::reduce(reduction, inputs).toBytes();
  }

  static Bytes resultOf(State &state, Endpoint &endpoint, const Numbered &call) {
    World &world = *endpoint.world;
    const Operation &operation = call.operation;
    if (operation.kind == Kind::Send)
      return {};
    if (operation.kind == Kind::Recv) {
      Bytes bytes = *world.messages[{operation.peer, endpoint.rank, call.number}].bytes;
      if (bytes.size() != operation.count * widthOf(operation))
        state.driver.complain("a message has another size than its receiver expects");
      return bytes;
    }
    const World::Meeting &meeting = world.meetings[call.number];
    Bytes all;
    switch (operation.kind) {
    case Kind::Broadcast:
      return meeting.inputs.at(operation.peer);
    case Kind::AllGather:
      for (const auto &[rank, bytes] : meeting.inputs)
        all.insert(all.end(), bytes.begin(), bytes.end());
      return all;
    case Kind::ReduceScatter: {
      all = reduced(state, meeting, operation);
      size_t share = operation.count * widthOf(operation);
      auto begin = all.begin() + std::ptrdiff_t(share * size_t(endpoint.rank));
      return Bytes(begin, begin + std::ptrdiff_t(share));
    }
    default:
      return reduced(state, meeting, operation);
    }
  }

  /// Launches operations of one communicator that run at once.
  static void launch(State &state, int index, const std::vector<Operation> &operations,
                     cuda::StreamHandle stream) {
    Endpoint *endpoint = state.endpoints.at(index).get();
    // The operations get their numbers when they are made: now, or at every launch of the graph if
    // the stream is captured.
    bool isInGraph = state.driver.isCapturing(stream);
    auto user = std::make_shared<int>();
    if (isInGraph)
      endpoint->graphs.push_back(user);
    auto make = [&state, endpoint, operations, isInGraph, user] {
      std::vector<Numbered> calls;
      for (const Operation &operation : operations) {
        bool isSend = operation.kind == Kind::Send;
        int64_t &number = isSend || operation.kind == Kind::Recv
                              ? endpoint->numMessages[{operation.peer, isSend}]
                              : endpoint->numCollectives;
        calls.push_back({operation, number++});
        calls.back().operation.isInGraph = isInGraph;
      }
      static_cast<void>(user); // kept alive by the closure
      ++endpoint->numUnderWay;
      return workOf(state, endpoint, calls);
    };
    state.driver.enqueue(stream, "NCCL of rank " + std::to_string(endpoint->rank), make);
  }

  static FakeDriver::Work workOf(State &state, Endpoint *endpoint,
                                 const std::vector<Numbered> &calls) {
    auto isReady = [&state, endpoint, calls] {
      if (endpoint->isAborted)
        return true;
      bool areAllHere = true;
      for (const Numbered &call : calls)
        areAllHere &= arrive(state, *endpoint, call);
      return areAllHere;
    };
    auto run = [&state, endpoint, calls](FakeAccess &memory) {
      --endpoint->numUnderWay;
      if (endpoint->isAborted)
        return;
      for (const Numbered &call : calls) {
        memory.read<char>(call.operation.from, inputBytes(call.operation, endpoint->world->size));
        Bytes result = resultOf(state, *endpoint, call);
        size_t own = call.operation.count * widthOf(call.operation) *
                     size_t(call.operation.kind == Kind::AllGather ? endpoint->world->size : 1);
        result.resize(std::min(result.size(), own));
        if (!result.empty())
          std::memcpy(memory.write<char>(call.operation.to, result.size()), result.data(),
                      result.size());
      }
    };
    return {isReady, run};
  }

  static NcclCode start(Operation operation, cuda::NcclHandle comm, cuda::StreamHandle stream) {
    State &state = *theNccl->state;
    Guard guard(state.driver.lock());
    Endpoint &endpoint = *state.endpoints.at(indexOf(comm));
    if (!isJoined(endpoint) || !endpoint.isAlive) {
      state.driver.complain("a communicator is used that is not joined");
      return NcclCode::InvalidUsage;
    }
    if (operation.count == 0)
      return NcclCode::Success; // as NCCL does
    operation.isFromRegistered = isRegistered(endpoint, operation.from);
    operation.isToRegistered = isRegistered(endpoint, operation.to);
    state.numRegistered += operation.isFromRegistered || operation.isToRegistered;
    grouped.push_back({indexOf(comm), operation, stream});
    // Within a group NCCL answers with the state of the communicator, which may be at work.
    return groupDepth > 0 ? NcclCode::InProgress : callGrouped(state);
  }
  /// From NCCL 2.23 on a thread of its own puts the calls into the stream later.
  static NcclCode callGrouped(State &state) {
    Taken taken;
    int index = grouped[0].endpoint;
    for (const Pending &pending : grouped) {
      if (pending.endpoint != index || pending.stream != grouped[0].stream)
        throw std::logic_error("groups of several communicators are not faked");
      taken.operations.push_back(pending.operation);
    }
    taken.stream = grouped[0].stream;
    grouped.clear();
    Endpoint &endpoint = *state.endpoints.at(size_t(index));
    if (endpoint.pending)
      state.driver.complain("NCCL is called while it answers InProgress");
    endpoint.pending = std::move(taken);
    return NcclCode::InProgress;
  }
  static NcclCode groupStart() {
    ++groupDepth;
    return NcclCode::Success;
  }
  static NcclCode groupEnd() {
    State &state = *theNccl->state;
    Guard guard(state.driver.lock());
    if (--groupDepth > 0 || grouped.empty())
      return NcclCode::Success;
    return callGrouped(state);
  }

  static cuda::DeviceAddress addressOf(const void *pointer) {
    return reinterpret_cast<uintptr_t>(pointer);
  }
  static NcclCode allReduce(const void *from, void *to, size_t count, NcclType type, NcclOp op,
                            cuda::NcclHandle comm, cuda::StreamHandle stream) {
    return start({Kind::AllReduce, addressOf(from), addressOf(to), count, type, op, 0}, comm,
                 stream);
  }
  static NcclCode broadcast(const void *from, void *to, size_t count, NcclType type, int root,
                            cuda::NcclHandle comm, cuda::StreamHandle stream) {
    return start({Kind::Broadcast, addressOf(from), addressOf(to), count, type, NcclOp::Sum, root},
                 comm, stream);
  }
  static NcclCode allGather(const void *from, void *to, size_t count, NcclType type,
                            cuda::NcclHandle comm, cuda::StreamHandle stream) {
    return start({Kind::AllGather, addressOf(from), addressOf(to), count, type, NcclOp::Sum, 0},
                 comm, stream);
  }
  static NcclCode reduceScatter(const void *from, void *to, size_t count, NcclType type, NcclOp op,
                                cuda::NcclHandle comm, cuda::StreamHandle stream) {
    return start({Kind::ReduceScatter, addressOf(from), addressOf(to), count, type, op, 0}, comm,
                 stream);
  }
  static NcclCode send(const void *from, size_t count, NcclType type, int peer,
                       cuda::NcclHandle comm, cuda::StreamHandle stream) {
    return start({Kind::Send, addressOf(from), 0, count, type, NcclOp::Sum, peer}, comm, stream);
  }
  static NcclCode recv(void *to, size_t count, NcclType type, int peer, cuda::NcclHandle comm,
                       cuda::StreamHandle stream) {
    return start({Kind::Recv, 0, addressOf(to), count, type, NcclOp::Sum, peer}, comm, stream);
  }
};

const cuda::Nccl &FakeNccl::table() {
  static const cuda::Nccl nccl = [] {
    cuda::Nccl table;
#define TBC_SET(name, symbol, ...) table.name = FakeNcclCalls::name;
    TBC_NCCL_FUNCTIONS(TBC_SET)
    TBC_NCCL_REGISTRATION(TBC_SET)
#undef TBC_SET
    table.getErrorString = FakeNcclCalls::getErrorString;
    table.getLastError = FakeNcclCalls::getLastError;
    return table;
  }();
  return nccl;
}

} // namespace tbc::test
