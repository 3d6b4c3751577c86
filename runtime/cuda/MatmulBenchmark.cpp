//===- MatmulBenchmark.cpp - Timing of matmul algorithms ------------------===//

#include "runtime/cuda/Matmuls.h"

#include <algorithm>
#include <cstdio>

namespace tbc::cuda {

/// Returns the device's seconds for one matmul with this algorithm; nullopt if the library refuses
/// it after all.
Result<std::optional<double>> Matmul::timeOf(const MatmulChoice &choice, const Stream &stream,
                                             const MatmulAddresses &at) {
  constexpr int numTimed = 3;
  take(choice);
  // The first call also loads the kernel.
  CublasCode code = multiply(stream, at);
  if (code == CublasCode::NotSupported)
    return std::optional<double>();
  Status status = checkCublas(library, code, "timing a matmul");
  if (!status)
    return status.error();
  Result<Event> begin = Event::create(device, /*isTimed=*/true);
  if (!begin)
    return begin.error();
  Result<Event> end = Event::create(device, /*isTimed=*/true);
  if (!end)
    return end.error();
  status = stream.record(*begin);
  for (int i = 0; i < numTimed && status; ++i)
    status = checkCublas(library, multiply(stream, at), "timing a matmul");
  if (status)
    status = stream.record(*end);
  if (status)
    status = timedIn->waitUntil(*end);
  if (!status)
    return status.error();
  Result<double> all = end->secondsSince(*begin);
  if (!all)
    return all.error();
  return std::optional<double>(*all / numTimed);
}

/// Times the algorithms on the operands of the current matmul; each run computes its result again.
/// An accumulating matmul uses a separate result.
Status Matmul::chooseFastest(const Stream &stream, const MatmulAddresses &addresses) {
  std::vector<MatmulChoice> choices = std::move(candidates);
  candidates.clear();
  MatmulAddresses at = addresses;
  DeviceMemory elsewhere;
  if (at.added == at.c) {
    // Memory outside the memory plan may not be available.
    auto memory = DeviceMemory::allocate(device, resultBytes, "a matmul that is timed");
    if (!memory) {
      hasNoRoom = true;
      return Status::ok();
    }
    elsewhere = std::move(*memory);
    at.c = elsewhere.address();
  }
  const MatmulChoice *fastest = nullptr;
  std::optional<double> first;
  for (const MatmulChoice &choice : choices) {
    Result<std::optional<double>> time = timeOf(choice, stream, at);
    if (!time)
      return time.error();
    if (!*time)
      continue;
    if (&choice == &choices[0])
      first = **time;
    if (!fastest || **time < seconds) {
      fastest = &choice;
      seconds = **time;
    }
  }
  isTimed = fastest != nullptr;
  firstSeconds = first.value_or(seconds); // refused: no comparison
  take(fastest ? *fastest : choices[0]);
  return Status::ok();
}

std::string Matmuls::gain() const {
  int64_t numTimed = 0, numOther = 0, numUntimed = 0;
  double first = 0, best = 0;
  for (const auto &[shape, matmul] : matmuls) {
    if (!matmul)
      continue;
    numUntimed += matmul->hasNoRoom;
    if (!matmul->isTimed)
      continue;
    ++numTimed;
    numOther += matmul->seconds < matmul->firstSeconds;
    first += matmul->firstSeconds * double(matmul->numCalls);
    best += matmul->seconds * double(matmul->numCalls);
  }
  if (numTimed + numUntimed == 0)
    return "";
  char text[256];
  std::snprintf(text, sizeof text,
                "benchmark: of %lld shapes of matmuls %lld are faster by another algorithm than "
                "cuBLASLt's first; all take %.3f ms of a step, in place of %.3f",
                static_cast<long long>(numTimed), static_cast<long long>(numOther), best * 1e3,
                first * 1e3);
  std::string untimed =
      "; " + std::to_string(numUntimed) + " not timed, for want of memory to write to";
  return text + (numUntimed ? untimed : "");
}

} // namespace tbc::cuda
