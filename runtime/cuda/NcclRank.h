//===- NcclRank.h - A rank with a GPU and its running calls -----------------===//
//
// Part of tbc. Plain C++. Internal to runtime/cuda. NcclConnection.cpp connects and waits. Calls on
// tensors are in NcclCommunicator.cpp, messages in NcclMessages.cpp, and calls on device memory in
// NcclDevice.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_NCCLRANK_H
#define TBC_RUNTIME_CUDA_NCCLRANK_H

#include "runtime/comm/Call.h"
#include "runtime/comm/SharedStore.h"
#include "runtime/cuda/DeviceCommunicator.h"
#include "runtime/cuda/NcclCommunicator.h"
#include "runtime/cuda/NcclLink.h"

#include <map>
#include <optional>

namespace tbc::cuda {

/// The memory of a tensor in transit.
struct Buffers {
  PinnedMemory hostIn, hostOut;
  DeviceMemory in, out;
  Event done;
};

/// A rank's description of a call, for comparison.
struct Header {
  char call[128];
  char place[128];
};

/// Bytes in transit, and the action on arrival.
struct Transfer {
  NcclLink *link = nullptr;
  int64_t number = 0; // of the call on the link
  std::string what;   // place and call, for errors
  Buffers buffers;
  bool isCalled = false; // NCCL has it, and `done` is recorded
  std::function<Result<kernels::Tensor>(const unsigned char *)> finish;
};

/// A call on device memory, enqueued in a stream.
struct DeviceCall {
  NcclLink *link = nullptr;
  int64_t number = 0; // of the call on the link
  std::string what;   // place and call, for errors
  Event begun, done;
  DeviceMemory sent;       // a copy of a message's content
  bool isMessage = false;  // a sent message, which waits for no other rank
  bool isEnqueued = false; // NCCL has it, and `done` is recorded
  bool hasBegun = false;   // seen to have begun, at `since`
  int toldBegin = 0;       // in a graph: the number told at its begin; its end tells the next
  std::chrono::steady_clock::time_point since;
};

class NcclRank : public comm::Communicator, public DeviceCommunicator {
public:
  NcclRank(int64_t self, int64_t size, comm::Store &store, const Nccl &nccl, DevicePtr device,
           NcclOptions options);
  ~NcclRank() override;

  Status connect();

  int64_t rank() const override { return self; }
  int64_t numRanks() const override { return size; }
  comm::RequestPtr allReduce(const comm::Group &group, comm::Reduction reduction,
                             const kernels::Tensor &input, const std::string &place) override;
  comm::RequestPtr broadcast(const comm::Group &group, int64_t root, const kernels::Tensor &input,
                             const std::string &place) override;
  comm::RequestPtr allGather(const comm::Group &group, const kernels::Tensor &input,
                             const std::string &place) override;
  comm::RequestPtr reduceScatter(const comm::Group &group, const kernels::Tensor &input,
                                 const std::string &place) override;
  comm::RequestPtr allToAll(const comm::Group &group, const kernels::Tensor &input,
                            const std::string &place) override;
  comm::RequestPtr barrier(const comm::Group &group, const std::string &place) override;
  comm::RequestPtr send(int64_t to, comm::Tag tag, const kernels::Tensor &input,
                        const std::string &place) override;
  comm::RequestPtr recv(int64_t from, comm::Tag tag, const kernels::TensorType &type,
                        const std::string &place) override;

  bool reduces(kernels::DType dtype, comm::ReduceKind kind) const override;
  Status enqueueAllReduce(const comm::Group &group, comm::ReduceKind kind,
                          const std::vector<DeviceOperand> &tensors, const Stream &stream,
                          const std::string &place) override;
  Status enqueueAllGather(const comm::Group &group, const std::vector<DeviceOperand> &tensors,
                          const Stream &stream, const std::string &place) override;
  Status enqueueReduceScatter(const comm::Group &group, const std::vector<DeviceOperand> &tensors,
                              const Stream &stream, const std::string &place) override;
  Status enqueueExchange(const comm::Group &group, const std::vector<DevicePart> &sent,
                         const std::vector<DevicePart> &received, const Stream &stream,
                         const std::string &what, const std::string &place) override;
  Status enqueueSend(int64_t to, comm::Tag tag, DeviceAddress from, int64_t bytes,
                     const Stream &stream, const std::string &place) override;
  Status enqueueRecv(int64_t from, comm::Tag tag, DeviceAddress into, int64_t bytes,
                     const Stream &stream, const std::string &place) override;
  Status registerMemory(const comm::Group &group, DeviceAddress begin, int64_t bytes,
                        const std::string &place) override;
  void deregisterAll() override;
  Status beginRecording(std::shared_ptr<const Progress> progress) override;
  void endRecording() override { isRecording = false; }
  void standsAt(const std::string &kernels) override;
  void movesOn() override;
  Status launched() override;
  Status checkCalls() override;
  std::optional<Error> hangingCall() override;
  bool isAnyUnderWay() const override;
  int64_t numEnded() const override { return numCallsEnded; }
  Error giveUp(Error error) override { return fail(std::move(error)); }

  /// Waits for a transfer until its deadline.
  Result<kernels::Tensor> wait(Transfer &transfer);

private:
  /// Makes the NCCL call, from and to these addresses.
  using CallFn = std::function<NcclCode(const NcclLink &link, void *from, void *to)>;
  struct Plan {
    comm::Group group;
    comm::Call call;
    std::string callText; // e.g. "all_reduce sum of 4xf32"
    std::vector<unsigned char> input;
    int64_t outBytes = 0;
    CallFn function;
    std::function<Result<kernels::Tensor>(const unsigned char *)> finish;
  };

  comm::RequestPtr start(Plan plan, const std::string &place);
  Result<std::unique_ptr<Transfer>> begin(NcclLink &link, Plan plan, const std::string &place);
  Status enqueue(Transfer &transfer, const CallFn &function, int64_t inBytes, int64_t outBytes);
  Status joinAll();
  Status meet();
  Status splitWorld(NcclLink &world, const std::vector<comm::Group> &partition);
  Result<NcclLink *> linkOf(const comm::Group &group, const std::string &name);
  Result<std::string> idFor(const comm::Group &group, const std::string &name);
  Result<Buffers> takeBuffers(int64_t inBytes, int64_t outBytes);

  comm::RequestPtr hostReduce(const comm::Group &group, comm::Reduction reduction,
                              const kernels::Tensor &input, const std::string &place,
                              bool isScattered);
  Plan movement(const comm::Group &group, const comm::Call &call, const kernels::Tensor &input,
                int64_t outBytes, const kernels::Shape &outShape, CallFn function) const;
  comm::RequestPtr message(const comm::Group &pair, comm::Tag tag, Plan plan,
                           const std::string &verb, const std::string &place);

  Status compareCalls(NcclLink &link, const std::string &callText, const std::string &place);
  Status compareMessage(NcclLink &link, const std::string &callText, bool isSender,
                        const std::string &place);

  using GroupFn = std::function<NcclCode(const NcclLink &link)>;
  Status enqueueCall(const comm::Group &group, const std::string &callText, const Stream &stream,
                     const std::string &place, const GroupFn &function);
  Result<std::unique_ptr<DeviceCall>> takeCall(NcclLink &link, const std::string &what);
  Result<NcclLink *> joinedLink(const comm::Group &group, const std::string &name,
                                const std::string &what);
  Status recordCall(NcclLink &link, const std::string &what, const Stream &stream,
                    const GroupFn &function);
  Result<bool> hasEnded(const DeviceCall &call) const;
  Result<bool> hasBegun(const DeviceCall &call) const;
  Result<DeviceMemory> takeSent(int64_t bytes);
  Status pollCalls();
  void noteOldest();
  Status finishMessages();

  Status callNow(NcclLink &link, NcclLink::Call call);
  Status settle(NcclLink &link, const std::string &what);
  Status settleAll(const std::string &what);
  Status progressAll();
  Status waitFor(const Event &event, const std::string &what);
  Error isBlocked(const std::string &what, std::chrono::milliseconds waited);
  Error explain(const Error &error, bool isOfJob);
  Error timedOut(const NcclLink &link, const std::string &what);
  Error fail(Error error);
  Error failOfNccl(const Error &error);
  /// Fails with an error that does not name its call.
  Error fail(const Error &error, const std::string &what) {
    return fail({error.code, what + ": " + error.message});
  }

  const int64_t self, size;
  comm::SharedStore store;
  const Nccl &nccl;
  const DevicePtr device;
  const NcclOptions options;
  const std::shared_ptr<HostWatch> watch;
  std::unique_ptr<comm::FlightRecorder> ownRecorder;
  std::unique_ptr<comm::Diagnosis> ownDiagnosis;
  comm::FlightRecorder &recorder;
  comm::Diagnosis &diagnosis;
  std::string standing; // as in `recorder`, for a wait on a stream
  std::mutex oldestMutex;
  std::string oldest; // the oldest of the possibly running calls
  comm::Group oldestOthers;
  std::map<std::string, std::unique_ptr<NcclLink>> links; // by name
  std::vector<std::unique_ptr<Transfer>> orphans;         // sends without a waiting request
  /// The bytes of `meet`. They are kept until the end, because freeing memory waits for all work of
  /// the device, possibly that of another thread.
  DeviceMemory firstBytes;
  std::vector<Buffers> spare;
  std::vector<std::unique_ptr<DeviceCall>> calls, spareCalls;
  std::vector<DeviceMemory> spareSent;
  int64_t numCallsEnded = 0;
  struct Registration {
    NcclLink *link;
    DeviceAddress begin;
    void *handle;
  };
  std::vector<Registration> registrations;
  /// The calls of the graph, in order. Call i tells 2 i + 1 at its begin and 2 i + 2 at its end.
  struct RecordedCall {
    NcclLink *link;
    std::string what;
  };
  std::vector<RecordedCall> recordedCalls;
  std::shared_ptr<const Progress> progress; // of the graph
  bool isRecording = false, isConnecting = false;
  friend class NcclRequest;
};

/// A request of a communicator, which outlives it.
class NcclRequest : public comm::Request {
public:
  NcclRequest(NcclRank &owner, std::unique_ptr<Transfer> transfer)
      : owner(owner), transfer(std::move(transfer)) {}
  ~NcclRequest() override {
    // Its buffers are in use until it has ended.
    if (transfer)
      owner.orphans.push_back(std::move(transfer));
  }
  Result<kernels::Tensor> wait() override {
    std::unique_ptr<Transfer> mine = std::move(transfer);
    return owner.wait(*mine);
  }

private:
  NcclRank &owner;
  std::unique_ptr<Transfer> transfer;
};

/// Returns a finished request with this result.
inline comm::RequestPtr ended(Result<kernels::Tensor> result) {
  return std::make_unique<comm::EndedRequest>(std::move(result));
}

/// Returns the name of a group's link. Example: "group.0.2".
std::string nameOf(const comm::Group &group);
/// Returns the name of the link for messages (from, to, lane). Example: "message.0.1.0".
std::string nameOfMessages(const comm::Group &pair, int lane);

/// Returns, for example, "4x6xf32", with the arithmetic unless it is the type's own.
std::string describeType(const kernels::TensorType &type, kernels::Arith arith);

/// Returns the NCCL type that reduces elements of this one; nullopt if NCCL cannot.
std::optional<NcclType> reducedType(kernels::DType dtype, kernels::Arith arith,
                                    comm::ReduceKind kind);

/// Whether NCCL has taken a call of a group, whose end reports the work in progress.
inline bool isTaken(NcclCode code) {
  return code == NcclCode::Success || code == NcclCode::InProgress;
}

/// Returns NCCL's operation for a kind other than PremulSum.
NcclOp plainOp(comm::ReduceKind kind);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_NCCLRANK_H
