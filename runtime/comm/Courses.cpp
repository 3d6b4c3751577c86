//===- Courses.cpp - The algorithms of collectives --------------------------===//

#include "runtime/comm/Courses.h"
#include "runtime/comm/ReduceRuns.h"
#include "runtime/comm/Traffic.h"

#include <algorithm>

namespace tbc::comm {

namespace {

using Bytes = std::vector<unsigned char>;

/// The number of portions requested ahead of the awaited one.
constexpr int64_t numAhead = 3;

std::vector<Cutter> cutters(const std::vector<Runs> &parts) {
  std::vector<Cutter> list;
  for (const Runs &part : parts)
    list.emplace_back(part);
  return list;
}

/// A reduce_scatter, optionally followed by an all_gather, portion by portion.
class Reducer {
public:
  Reducer(const Course &course, const Reduction &reduction, const ElementType &type,
          const std::vector<Runs> &inputs, const Runs &output, const std::vector<Runs> &gathered)
      : course(course), reduction(reduction), type(type), traffic(course),
        portionBytes(course.courier.portionBytes()), outgoing(cutters(inputs)),
        passedOn(cutters(gathered)), ownInput(inputs[course.own]), ownOutput(output),
        others(traffic.others()), arrival(course.numRanks) {
    ownBytes = sizeBytes(inputs[course.own]);
    ownPortions = numPortions(ownBytes, portionBytes);
    for (const Runs &part : inputs)
      mostPortions = std::max(mostPortions, numPortions(sizeBytes(part), portionBytes));
    depth = std::clamp<int64_t>(ownPortions, 1, numAhead);
    scratch.resize(size_t(depth) * course.numRanks);
    for (size_t i = 0; i < scratch.size(); ++i)
      if (i % course.numRanks != course.own)
        scratch[i].resize(size_t(std::min(portionBytes, ownBytes)));
  }

  Status run() {
    for (int64_t k = 0; k < numAhead; ++k)
      if (Status status = begin(k); !status)
        return status;
    for (int64_t k = 0; k < mostPortions; ++k) {
      if (Status status = finish(k); !status)
        return status;
      if (Status status = begin(k + numAhead); !status)
        return status;
      // Frees the packed copies of sent portions in time.
      if (Status status = traffic.waitUntilLeft(4 * numAhead); !status)
        return status;
    }
    return traffic.waitUntilLeft(0);
  }

private:
  Bytes &scratchOf(int64_t portion, size_t index) {
    return scratch[size_t(portion % depth) * course.numRanks + index];
  }

  /// Sends portion k of every other part, and requests portion k of the own part.
  Status begin(int64_t k) {
    if (k >= mostPortions)
      return Status::ok();
    for (size_t index : others) {
      if (Status status = traffic.send(index, outgoing[index].next(portionBytes)); !status)
        return status;
      if (k >= ownPortions)
        continue;
      int64_t bytes = std::min(portionBytes, ownBytes - k * portionBytes);
      if (Status status = traffic.receive(index, {{scratchOf(k, index).data(), bytes}}); !status)
        return status;
      arrival[index].push_back(traffic.numReceived(index));
    }
    return Status::ok();
  }

  /// Reduces portion k of the own part and passes it on.
  Status finish(int64_t k) {
    Runs result;
    if (k < ownPortions) {
      for (size_t index : others)
        if (Status status = course.courier.waitReceived(index, arrival[index][size_t(k)]); !status)
          return status;
      result = ownOutput.next(portionBytes);
      reducePortion(k, ownInput.next(portionBytes), result);
    }
    for (size_t index : others) {
      if (passedOn.empty())
        break;
      if (Status status = traffic.send(index, result); !status)
        return status;
      if (Status status = traffic.receive(index, passedOn[index].next(portionBytes)); !status)
        return status;
    }
    return Status::ok();
  }

  void reducePortion(int64_t k, const Runs &from, const Runs &to) {
    int64_t bytes = sizeBytes(to);
    bool isWhole = from.size() == 1 && to.size() == 1;
    if (!isWhole) {
      packed.resize(size_t(bytes));
      pack(from, packed.data());
    }
    std::vector<const unsigned char *> inputs(course.numRanks);
    for (size_t index : others)
      inputs[index] = scratchOf(k, index).data();
    inputs[course.own] = isWhole ? from[0].data : packed.data();
    unsigned char *output = isWhole ? to[0].data : packed.data();
    reduceElements(reduction, type, inputs, output, bytes / type.width());
    if (!isWhole)
      unpack(packed.data(), to);
  }

  const Course &course;
  const Reduction &reduction;
  const ElementType &type;
  Traffic traffic;
  const int64_t portionBytes;
  std::vector<Cutter> outgoing, passedOn;
  Cutter ownInput, ownOutput;
  std::vector<size_t> others;
  std::vector<std::vector<int64_t>> arrival; // the portion's number, by index and portion
  std::vector<Bytes> scratch;                // by portion modulo `depth`, and index
  Bytes packed;
  int64_t ownBytes = 0, ownPortions = 0, mostPortions = 0, depth = 1;
};

} // namespace

Status exchange(const Course &course, const std::vector<Runs> &toIndex,
                const std::vector<Runs> &fromIndex) {
  Traffic traffic(course);
  int64_t portionBytes = course.courier.portionBytes();
  std::vector<Cutter> outgoing = cutters(toIndex), incoming = cutters(fromIndex);
  int64_t most = 0;
  for (size_t index : traffic.others())
    most = std::max({most, numPortions(sizeBytes(toIndex[index]), portionBytes),
                     numPortions(sizeBytes(fromIndex[index]), portionBytes)});
  for (int64_t k = 0; k < most; ++k) {
    for (size_t index : traffic.others()) {
      if (Status status = traffic.send(index, outgoing[index].next(portionBytes)); !status)
        return status;
      if (Status status = traffic.receive(index, incoming[index].next(portionBytes)); !status)
        return status;
    }
    if (Status status = traffic.waitUntilLeft(numAhead); !status)
      return status;
  }
  return traffic.waitUntilLeft(0);
}

Status reduceParts(const Course &course, const Reduction &reduction, const ElementType &type,
                   const std::vector<Runs> &inputs, const Runs &output,
                   const std::vector<Runs> &gathered) {
  return Reducer(course, reduction, type, inputs, output, gathered).run();
}

Status reduceSmall(const Course &course, const Reduction &reduction, const ElementType &type,
                   const Runs &input, const Runs &output) {
  int64_t bytes = sizeBytes(input);
  Bytes all(course.numRanks * size_t(bytes));
  std::vector<const unsigned char *> inputs;
  std::vector<Runs> toIndex, fromIndex;
  for (size_t index = 0; index < course.numRanks; ++index) {
    unsigned char *place = all.data() + index * size_t(bytes);
    inputs.push_back(place);
    toIndex.push_back(input);
    fromIndex.push_back(bytes > 0 ? Runs{{place, bytes}} : Runs());
    if (index == course.own)
      pack(input, place);
  }
  if (Status status = exchange(course, toIndex, fromIndex); !status)
    return status;
  if (bytes == 0)
    return Status::ok();
  reduceElements(reduction, type, inputs, all.data(), bytes / type.width());
  unpack(all.data(), output);
  return Status::ok();
}

} // namespace tbc::comm
