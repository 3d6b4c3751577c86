//===- HostCourse.cpp - A hierarchical all_reduce over several hosts --------===//

#include "runtime/comm/HostCourse.h"
#include "runtime/comm/ReduceRuns.h"
#include "runtime/comm/Traffic.h"

#include <algorithm>

namespace tbc::comm {

namespace {

using Bytes = std::vector<unsigned char>;

constexpr int64_t portionBytes = 1 << 18;
/// The number of portions that this rank sends to another host before it waits for the first.
constexpr int64_t numAhead = 4;

Runs runOf(Bytes &bytes) {
  return bytes.empty() ? Runs() : Runs{{bytes.data(), int64_t(bytes.size())}};
}

/// Processes a rank's elements portion by portion. It cannot deadlock, for three reasons: (1) all
/// ranks take the same steps in the same order; (2) no rank waits for a later step of another; (3)
/// portions within a host have left before any wait for another host.
class HostReducer {
public:
  HostReducer(const HostShape &shape, const Course &within, const Course &across,
              const Reduction &reduction, const ElementType &type, const std::vector<Runs> &inputs,
              const std::vector<Runs> &outputs)
      : shape(shape), own(within.own), host(across.own), reduction(reduction), type(type),
        local(within), others(local.others()), remote(across.courier),
        ownElements(sizeBytes(inputs[own]) / type.width()), terms(shape.numLocal),
        states(size_t(numAhead)) {
    for (size_t index = 0; index < shape.numLocal; ++index) {
      leaving.emplace_back(inputs[index]);
      arriving.emplace_back(outputs[index]);
      numSteps = std::max(numSteps, numPortions(sizeBytes(inputs[index]), portionBytes));
    }
  }

  Status run() {
    // A result comes back after its sum has reached the last host.
    int64_t lag = 2 * int64_t(shape.numHosts - 1);
    for (int64_t step = 0; step < numSteps + lag; ++step) {
      if (Status status = step < numSteps ? sum(step) : Status::ok(); !status)
        return status;
      if (Status status = step >= lag ? spread(step - lag) : Status::ok(); !status)
        return status;
    }
    if (Status status = untilSent(1, numSums, 0); !status)
      return status;
    return untilSent(-1, numResults, 0);
  }

private:
  bool isFirst() const { return host == 0; }
  bool isLast() const { return host + 1 == shape.numHosts; }

  /// Returns the elements of a portion of the own part.
  int64_t countOf(int64_t step) const {
    int64_t most = portionBytes / type.width();
    return std::clamp<int64_t>(ownElements - step * most, 0, most);
  }

  /// Waits until at most `left` of `number` portions are in flight to the next (1) or previous (-1)
  /// host.
  Status untilSent(int direction, int64_t number, int64_t left) {
    if (direction > 0 ? isLast() : isFirst())
      return Status::ok();
    return remote.waitSent(size_t(int64_t(host) + direction), std::max<int64_t>(0, number - left));
  }

  /// Adds this host's terms of a portion to the sum of the hosts before it, and sends it on.
  Status sum(int64_t step) {
    int64_t count = countOf(step);
    for (size_t index = 0; index < shape.numLocal; ++index) {
      Runs portion = leaving[index].next(portionBytes);
      terms[index].resize(size_t(count * type.width()));
      if (index == own) {
        pack(portion, terms[own].data());
        continue;
      }
      if (Status status = local.send(index, portion); !status)
        return status;
      if (Status status = local.receive(index, runOf(terms[index])); !status)
        return status;
    }
    if (Status status = local.waitUntilLeft(0); !status || count == 0)
      return status;
    if (Status status = untilSent(1, numSums, numAhead - 1); !status)
      return status; // so that its state memory can be reused
    Bytes &state = states[size_t(step % numAhead)];
    state.resize(size_t(count * stateWidth(type)));
    if (!isFirst()) {
      if (Status status = remote.receive(host - 1, runOf(state)); !status)
        return status;
      if (Status status = remote.waitReceived(host - 1, step + 1); !status)
        return status;
    }
    std::vector<const unsigned char *> inputs;
    for (const Bytes &term : terms)
      inputs.push_back(term.data());
    foldElements(reduction, type, isFirst() ? nullptr : state.data(), inputs, state.data(), count);
    ++numSums;
    return isLast() ? finish(state, count) : remote.send(host + 1, runOf(state));
  }

  /// Rounds the final sum of a portion.
  Status finish(const Bytes &state, int64_t count) {
    Bytes result(size_t(count * type.width()));
    int64_t numTerms = int64_t(shape.numHosts * shape.numLocal);
    endFolds(reduction, type, state.data(), numTerms, result.data(), count);
    finished.push_back(arriving[own].next(portionBytes));
    unpack(result.data(), finished.back());
    return Status::ok();
  }

  /// Receives the result of a portion from the next host, and sends it to the previous one and to
  /// all ranks of this host.
  Status spread(int64_t step) {
    Runs result;
    if (countOf(step) > 0) {
      result = isLast() ? finished[size_t(step)] : arriving[own].next(portionBytes);
      if (!isLast()) {
        if (Status status = remote.receive(host + 1, result); !status)
          return status;
        if (Status status = remote.waitReceived(host + 1, step + 1); !status)
          return status;
      }
      if (!isFirst()) {
        if (Status status = remote.send(host - 1, result); !status)
          return status;
        if (Status status = untilSent(-1, ++numResults, numAhead); !status)
          return status;
      }
    }
    for (size_t index : others) {
      if (Status status = local.send(index, result); !status)
        return status;
      if (Status status = local.receive(index, arriving[index].next(portionBytes)); !status)
        return status;
    }
    return local.waitUntilLeft(0);
  }

  const HostShape shape;
  const size_t own, host;
  const Reduction &reduction;
  const ElementType &type;
  Traffic local;
  const std::vector<size_t> others;
  Courier &remote;
  const int64_t ownElements;
  std::vector<Cutter> leaving, arriving; // by index within the host
  std::vector<Bytes> terms, states;      // by index within the host; by step modulo `numAhead`
  std::vector<Runs> finished;            // on the last host: its own results
  int64_t numSteps = 0, numSums = 0, numResults = 0;
};

} // namespace

std::optional<HostShape> hostShape(const std::vector<int64_t> &hostOfIndex) {
  std::vector<int64_t> hosts;
  for (int64_t host : hostOfIndex)
    if (hosts.empty() || host != hosts.back())
      hosts.push_back(host);
  HostShape shape;
  shape.numHosts = hosts.size();
  shape.numLocal = hostOfIndex.size() / std::max<size_t>(hosts.size(), 1);
  for (size_t i = 0; i < hostOfIndex.size(); ++i)
    if (shape.numHosts * shape.numLocal != hostOfIndex.size() ||
        hostOfIndex[i] != hosts[i / shape.numLocal])
      return std::nullopt;
  std::sort(hosts.begin(), hosts.end());
  bool isInTurns = std::adjacent_find(hosts.begin(), hosts.end()) != hosts.end();
  if (isInTurns || hosts.empty())
    return std::nullopt;
  return shape;
}

bool paysByHost(const HostShape &shape, const ElementType &type) {
  int64_t numHosts = int64_t(shape.numHosts), numLocal = int64_t(shape.numLocal);
  if (numHosts < 2 || numLocal < 2)
    return false;
  // With two hosts, each sends in one direction only.
  int64_t most =
      numHosts == 2 ? std::max(stateWidth(type), type.width()) : stateWidth(type) + type.width();
  return most * numHosts < 2 * type.width() * numLocal * (numHosts - 1);
}

Status reduceByHost(const HostShape &shape, const Course &within, const Course &across,
                    const Reduction &reduction, const ElementType &type, const Runs &input,
                    const Runs &output) {
  std::vector<Runs> inputs = equalParts(input, type, shape.numLocal),
                    outputs = equalParts(output, type, shape.numLocal);
  return HostReducer(shape, within, across, reduction, type, inputs, outputs).run();
}

} // namespace tbc::comm
