//===- Trace.cpp - A timeline of executed instructions --------------------===//

#include "runtime/train/Trace.h"
#include "runtime/abi/OutputFile.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace tbc::train {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
using kernels::DType;
using kernels::Tensor;

/// Above all channels of Programs, which count from 0.
static constexpr int64_t traceChannel = int64_t(1) << 40;

static double secondsOf(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

//===----------------------------------------------------------------------===//
// One clock
//===----------------------------------------------------------------------===//

static constexpr const char *clockPlace = "comparing clocks";

/// Answers rank 0 with the current time, `count` times.
static Status tellTime(comm::Communicator &communicator, int count) {
  const kernels::TensorType type{DType::F64, {1}};
  for (int i = 0; i < count; ++i) {
    auto asked = communicator.recv(0, traceChannel, type, clockPlace)->wait();
    if (!asked)
      return asked.error();
    Tensor now = Tensor::fromDoubles(type, kernels::Arith::Native, {secondsOf(Clock::now())});
    if (auto sent = communicator.send(0, traceChannel, now, clockPlace)->wait(); !sent)
      return sent.error();
  }
  return Status::ok();
}

static Result<double> offsetOf(comm::Communicator &communicator, int64_t rank, int count) {
  const kernels::TensorType type{DType::F64, {1}};
  double offset = 0, fastest = 1e30;
  for (int i = 0; i < count; ++i) {
    double begin = secondsOf(Clock::now());
    Tensor question = Tensor::fromDoubles(type, kernels::Arith::Native, {begin});
    if (auto sent = communicator.send(rank, traceChannel, question, clockPlace)->wait(); !sent)
      return sent.error();
    auto answer = communicator.recv(rank, traceChannel, type, clockPlace)->wait();
    if (!answer)
      return answer.error();
    double end = secondsOf(Clock::now());
    if (end - begin >= fastest)
      continue;
    fastest = end - begin;
    offset = answer->toDoubles()[0] - (begin + end) / 2;
  }
  return std::abs(offset) <= fastest / 2 ? 0 : offset;
}

Result<std::vector<double>> clockOffsets(comm::Communicator &communicator) {
  constexpr int count = 16;
  std::vector<double> offsets(size_t(communicator.numRanks()), 0);
  if (communicator.rank() != 0) {
    Status told = tellTime(communicator, count);
    return told ? Result<std::vector<double>>(offsets) : told.error();
  }
  for (int64_t rank = 1; rank < communicator.numRanks(); ++rank) {
    Result<double> offset = offsetOf(communicator, rank, count);
    if (!offset)
      return offset.error();
    offsets[size_t(rank)] = *offset;
  }
  return offsets;
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

namespace {
enum Thread { Blocks, Kernels, Communication, NumThreads };
constexpr const char *threadNames[NumThreads] = {"blocks", "kernels", "communication"};
} // namespace

Status Trace::executed(const runtime::Executed &executed) {
  if (!isOn)
    return Status::ok();
  const program::Instruction &instruction = executed.instruction(executed.first);
  using Kind = program::InstructionKind;
  // A slice moves elements within its rank.
  bool isKernel = instruction.kind == Kind::Kernel || instruction.kind == Kind::ShardSlice;
  Event event;
  event.name = instruction.id;
  event.op = instruction.kind == Kind::Kernel ? instruction.op
                                              : std::string(program::name(instruction.kind));
  event.category = isKernel ? "kernel" : "communication";
  if (executed.end - executed.first > 1) {
    event.category = "region";
    event.name += " .. " + executed.instruction(executed.end - 1).id;
  }
  event.thread = isKernel ? Kernels : Communication;
  event.block = std::string(schedule::name(executed.action.kind));
  if (executed.stage.chunks.size() > 1 && executed.action.kind != schedule::Action::Kind::Update)
    event.block += " of chunk " + std::to_string(executed.action.chunk);
  event.microBatch = executed.action.microBatch;
  if (!isKernel)
    event.bytes = program::messageBytes(program, executed.stage, instruction);
  event.begin = secondsOf(executed.begin);
  event.seconds = std::chrono::duration<double>(executed.finish - executed.begin).count();
  event.onDevice = executed.onDevice;
  events.push_back(std::move(event));
  return Status::ok();
}

Status Trace::finish() {
  isOn = false;
  for (Event &event : events) {
    if (!event.onDevice)
      continue;
    auto times = event.onDevice->times();
    if (!times)
      return times.error();
    event.begin = secondsOf(times->begin);
    event.seconds = std::chrono::duration<double>(times->end - times->begin).count();
    event.onDevice = nullptr;
  }
  addBlocks();
  return Status::ok();
}

/// Adds an event for each block, before its instructions: from the first one's begin to the last
/// one's end. On concurrent streams, an instruction may begin before another one and end after it.
void Trace::addBlocks() {
  std::vector<Event> all;
  for (size_t first = 0, end = 0; first < events.size(); first = end) {
    Event whole = events[first];
    double last = 0;
    for (; end < events.size() && events[end].block == whole.block &&
           events[end].microBatch == whole.microBatch;
         ++end) {
      whole.begin = std::min(whole.begin, events[end].begin);
      last = std::max(last, events[end].begin + events[end].seconds);
    }
    whole.name = whole.block;
    whole.category = "block";
    whole.thread = Blocks;
    whole.bytes = 0;
    whole.seconds = last - whole.begin;
    all.push_back(std::move(whole));
    std::move(events.begin() + int64_t(first), events.begin() + int64_t(end),
              std::back_inserter(all));
  }
  events = std::move(all);
}

/// The events as JSON objects, separated by commas.
std::string Trace::text(double offset) const {
  std::string text;
  auto add = [&](const Json &json) { text += (text.empty() ? "" : ",\n") + json.dump(); };
  std::string place;
  std::vector<int64_t> coordinates = program.mesh.coordinates(rank);
  for (size_t i = 0; i < program.mesh.axes.size(); ++i)
    if (program.mesh.axes[i].size > 1)
      place += (place.empty() ? " (" : ", ") + program.mesh.axes[i].name + "=" +
               std::to_string(coordinates[i]);
  add({{"name", "process_name"},
       {"ph", "M"},
       {"pid", rank},
       {"args", {{"name", "rank " + std::to_string(rank) + place + (place.empty() ? "" : ")")}}}});
  for (int thread = 0; thread < NumThreads; ++thread)
    add({{"name", "thread_name"},
         {"ph", "M"},
         {"pid", rank},
         {"tid", thread},
         {"args", {{"name", threadNames[thread]}}}});
  for (const Event &event : events) {
    Json arguments = {{"micro_batch", event.microBatch}};
    if (event.thread != Blocks) {
      arguments["op"] = event.op;
      arguments["block"] = event.block;
    }
    if (event.bytes > 0)
      arguments["bytes"] = event.bytes;
    add({{"name", event.name},
         {"cat", event.category},
         {"ph", "X"},
         {"ts", (event.begin - offset) * 1e6},
         {"dur", event.seconds * 1e6},
         {"pid", rank},
         {"tid", event.thread},
         {"args", arguments}});
  }
  return text;
}

/// On rank 0: receives the texts of the other ranks and joins them.
static Result<std::string> receiveTexts(comm::Communicator &communicator) {
  std::string all;
  for (int64_t rank = 1; rank < communicator.numRanks(); ++rank) {
    auto size = communicator.recv(rank, traceChannel, {DType::I64, {1}}, "the profile")->wait();
    if (!size)
      return size.error();
    auto text =
        communicator
            .recv(rank, traceChannel, {DType::U8, {size->data<int64_t>()[0]}}, "the profile")
            ->wait();
    if (!text)
      return text.error();
    all += ",\n";
    for (int64_t c : text->data<int64_t>())
      all += char(c);
  }
  return all;
}

static Status sendText(comm::Communicator &communicator, const std::string &text) {
  int64_t size = int64_t(text.size());
  std::vector<int64_t> bytes;
  for (unsigned char c : text)
    bytes.push_back(c);
  for (const Tensor &message :
       {Tensor::fromInts({DType::I64, {1}}, {size}), Tensor::fromInts({DType::U8, {size}}, bytes)})
    if (auto sent = communicator.send(0, traceChannel, message, "the profile")->wait(); !sent)
      return sent.error();
  return Status::ok();
}

Status Trace::write(comm::Communicator &communicator, const std::vector<double> &offsets,
                    const std::string &path) const {
  // Only rank 0 has measured the offsets; each rank receives its own.
  Tensor all =
      Tensor::fromDoubles({DType::F64, {int64_t(offsets.size())}}, kernels::Arith::Native, offsets);
  comm::Group everyone;
  for (int64_t r = 0; r < communicator.numRanks(); ++r)
    everyone.push_back(r);
  auto told = communicator.broadcast(everyone, 0, all, "the profile")->wait();
  if (!told)
    return told.error();
  std::string own = text(told->toDoubles()[size_t(rank)]);
  if (rank != 0)
    return sendText(communicator, own);
  Result<std::string> others = receiveTexts(communicator);
  if (!others)
    return others.error();
  Status written = writeWhole(path, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + own +
                                        *others + "\n]}\n");
  if (written)
    return written;
  Error error = written.error();
  error.message = "--profile: " + error.message;
  return error;
}

} // namespace tbc::train
