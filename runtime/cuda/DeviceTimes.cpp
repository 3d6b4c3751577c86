//===- DeviceTimes.cpp - Times of enqueued work on a GPU --------------------===//

#include "runtime/cuda/DeviceTimes.h"

#include <map>

namespace tbc::cuda {

using Clock = std::chrono::steady_clock;

namespace {

class Span : public runtime::DeviceSpan {
public:
  Span(std::shared_ptr<Streams> streams, DeviceTimes::Origin origin,
       std::shared_ptr<const Event> begun, std::shared_ptr<const Event> ended)
      : streams(std::move(streams)), origin(std::move(origin)), begun(std::move(begun)),
        ended(std::move(ended)) {}

  Result<Times> times() const override {
    // With the time-out of all waits: the kernel may hang, or a communicator may be aborted.
    if (Status status = streams->waitUntil(*ended); !status)
      return status.error();
    auto at = [&](const Event &event) -> Result<Clock::time_point> {
      Result<double> seconds = event.secondsSince(*origin.event);
      if (!seconds)
        return seconds.error();
      return origin.time +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*seconds));
    };
    Result<Clock::time_point> begin = at(*begun), end = at(*ended);
    if (!begin || !end)
      return (begin ? end : begin).error();
    return Times{*begin, *end};
  }

private:
  std::shared_ptr<Streams> streams;
  DeviceTimes::Origin origin;
  std::shared_ptr<const Event> begun, ended;
};

} // namespace

static Result<std::shared_ptr<const Event>> recordIn(const DevicePtr &device,
                                                     const Stream &stream) {
  Result<Event> event = Event::create(device, /*isTimed=*/true);
  if (!event)
    return event.error();
  if (Status status = stream.record(*event); !status)
    return status.error();
  return std::shared_ptr<const Event>(std::make_shared<Event>(std::move(*event)));
}

Status DeviceTimes::turn(bool isOn) {
  forget();
  isTiming = isOn;
  if (!isOn)
    return Status::ok();
  if (Status status = streams->wait(); !status)
    return status;
  for (auto stream : {program::Stream::Compute, program::Stream::Communication}) {
    auto event = recordIn(device, streams->of(stream));
    if (!event)
      return event.error();
    if (Status status = streams->waitUntil(**event); !status)
      return status;
    origins[size_t(stream)] = {Clock::now(), std::move(*event)};
  }
  return Status::ok();
}

Status DeviceTimes::begin(program::Stream stream) {
  auto event = recordIn(device, streams->of(stream));
  if (!event)
    return event.error();
  begun = std::move(*event);
  return Status::ok();
}

Status DeviceTimes::end(program::Stream stream, const std::string &op) {
  auto event = recordIn(device, streams->of(stream));
  if (!event)
    return event.error();
  lastSpan =
      std::make_shared<Span>(streams, origins[size_t(stream)], std::move(begun), std::move(*event));
  spans.emplace_back(op, lastSpan);
  return Status::ok();
}

Result<std::vector<runtime::KernelShare>> DeviceTimes::shares() const {
  std::map<std::string, runtime::KernelShare> byOp;
  for (const auto &[op, span] : spans) {
    auto times = span->times();
    if (!times)
      return times.error();
    runtime::KernelShare &share = byOp[op];
    share.op = op;
    ++share.count;
    share.seconds += std::chrono::duration<double>(times->end - times->begin).count();
  }
  std::vector<runtime::KernelShare> all;
  for (auto &[op, share] : byOp)
    all.push_back(std::move(share));
  return all;
}

} // namespace tbc::cuda
