//===- SparseSum.cpp - Compressed sums of gradients --------------------------===//

#include "runtime/exec/SparseSum.h"
#include "runtime/exec/LargestElements.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tbc::runtime {

using comm::ElementType;
using comm::Runs;

static constexpr int64_t floatBytes = 4;

int64_t numLargest(double share, int64_t numElements) {
  int64_t number = int64_t(std::ceil(share * double(numElements)));
  return std::clamp<int64_t>(number, numElements > 0 ? 1 : 0, numElements);
}

static int64_t countOf(const Stretches &stretches) {
  int64_t bytes = 0;
  for (const Stretch &stretch : stretches)
    bytes += stretch.bytes;
  return bytes / floatBytes;
}

/// Returns whether compression saves bytes; see SparseSum.h. `count` is the size of the tensor's
/// largest slice.
static bool pays(bool isAllReduce, int64_t count, int64_t numEntries, int64_t n) {
  bool isShorter = isAllReduce ? n * numEntries < count : 2 * numEntries < count;
  return n > 1 && isShorter && count < int64_t(1) << 31;
}

/// Returns the entries of these tensors alone.
static std::vector<std::vector<Stretches>> only(const std::vector<size_t> &tensors,
                                                const std::vector<std::vector<Stretches>> &parts) {
  std::vector<std::vector<Stretches>> list;
  for (const std::vector<Stretches> &part : parts) {
    list.emplace_back();
    for (size_t t : tensors)
      list.back().push_back(part[t]);
  }
  return list;
}

SparseLayout::SparseLayout(const program::Instruction &instruction, GroupPlace place,
                           const MemoryLayout &layout,
                           const std::vector<kernels::TensorType> &inputs, double share)
    : isAllReduce(instruction.kind == program::InstructionKind::AllReduce),
      group(std::move(place)) {
  std::vector<int64_t> numEntries(inputs.size(), 0); // 0: sent uncompressed
  for (size_t t = 0; t < inputs.size(); ++t) {
    int64_t count = 0;
    for (const std::vector<Stretches> &part : layout.inputs)
      count = std::max(count, countOf(part[t]));
    int64_t number = numLargest(share, count);
    if (pays(isAllReduce, count, number, int64_t(group.ranks.size()))) {
      numEntries[t] = number;
      messageWords += 2 * size_t(number);
    } else {
      wholes.push_back(t);
      wholeBytes += program::sizeBytes(inputs[t]);
    }
  }
  wholeLayout = {only(wholes, layout.inputs), only(wholes, layout.results)};
  for (size_t index = 0; index < layout.inputs.size(); ++index)
    for (size_t t = 0; t < inputs.size(); ++t) {
      if (numEntries[t] == 0)
        continue;
      const Stretches &elements = layout.inputs[index][t];
      slices.push_back({t, index, elements, residualCount, countOf(elements), numEntries[t]});
      residualCount += slices.back().count;
    }
}

int64_t SparseLayout::messageBytes() const {
  return wholeBytes + int64_t(numMessages() * messageWords * sizeof(int32_t));
}

void SparseSum::setResiduals(std::vector<float> elements) {
  kernels::require(elements.size() == residual.size(), "residuals of another sum");
  residual = std::move(elements);
}

void SparseSum::addGradient(const Slice &slice, const PlacedTensor &input) {
  float *into = residual.data() + slice.begin;
  for (const Stretch &stretch : slice.elements) {
    auto *gradient = reinterpret_cast<const float *>(input.data + stretch.offset);
    int64_t count = stretch.bytes / floatBytes;
    for (int64_t i = 0; i < count; ++i)
      into[i] += gradient[i];
    into += count;
  }
}

/// Returns the messages to send: one in an all_reduce, else one per index of the group.
std::vector<SparseSum::Message> SparseSum::takeMessages() {
  std::vector<Message> messages(layout.numMessages());
  std::vector<float> values;
  for (const Slice &slice : layout.slices) {
    Message &message = messages[slice.index];
    size_t first = message.size(), numEntries = size_t(slice.numEntries);
    message.resize(first + 2 * numEntries, -1);
    values.assign(numEntries, 0);
    takeLargest(residual.data() + slice.begin, slice.count, std::min(slice.numEntries, slice.count),
                message.data() + first, values.data());
    std::memcpy(message.data() + first + numEntries, values.data(), numEntries * sizeof(float));
  }
  return messages;
}

Status SparseSum::sendWhole(comm::Communicator &communicator,
                            const std::vector<PlacedTensor> &inputs,
                            const std::vector<PlacedTensor> &results,
                            const std::string &place) const {
  if (layout.wholes.empty())
    return Status::ok();
  std::vector<PlacedTensor> from, to;
  for (size_t t : layout.wholes) {
    from.push_back(inputs[t]);
    to.push_back(results[t]);
  }
  return communicateOnMemory(communicator, *instruction, layout.group, layout.wholeLayout,
                             kernels::Arith::Native, from, to, place);
}

static Runs runsOf(std::vector<int32_t> &words) {
  return {{reinterpret_cast<unsigned char *>(words.data()), int64_t(words.size() * 4)}};
}

/// Returns the messages that this rank receives, by index of the group.
Result<std::vector<SparseSum::Message>> SparseSum::exchange(comm::Communicator &communicator,
                                                            std::vector<Message> messages,
                                                            const std::string &place) const {
  // Values travel as their bits.
  const ElementType words{kernels::DType::I32, kernels::Arith::Native};
  std::vector<Message> received(layout.group.ranks.size(), Message(layout.messageWords));
  std::vector<Runs> from, to;
  for (Message &message : messages)
    from.push_back(runsOf(message));
  for (Message &message : received)
    to.push_back(runsOf(message));
  const comm::Group &group = layout.group.ranks;
  Status status = layout.isAllReduce ? communicator.allGatherRuns(group, words, from[0], to, place)
                                     : communicator.allToAllRuns(group, words, from, to, place);
  return status ? Result<std::vector<Message>>(std::move(received)) : status.error();
}

namespace {
struct Entry {
  int32_t index;
  float value;
};
} // namespace

/// Returns the entries of one slice, sorted by index; entries of one index are in group order. The
/// slice begins at word `first` of every message.
static std::vector<Entry> merged(const std::vector<std::vector<int32_t>> &messages, size_t first,
                                 size_t numEntries) {
  std::vector<Entry> before, ofRank, both;
  auto isBefore = [](const Entry &a, const Entry &b) { return a.index < b.index; };
  for (const std::vector<int32_t> &message : messages) {
    ofRank.clear();
    for (size_t e = 0; e < numEntries && message[first + e] >= 0; ++e) {
      ofRank.push_back({message[first + e], 0});
      std::memcpy(&ofRank.back().value, &message[first + numEntries + e], sizeof(float));
    }
    both.resize(before.size() + ofRank.size());
    std::merge(before.begin(), before.end(), ofRank.begin(), ofRank.end(), both.begin(), isBefore);
    before.swap(both);
  }
  return before;
}

void SparseSum::addUp(const std::vector<Message> &messages,
                      const std::vector<PlacedTensor> &results) const {
  size_t own = layout.ownIndex(), first = 0;
  for (const Slice &slice : layout.slices) {
    if (slice.index != own)
      continue;
    const PlacedTensor &result = results[slice.tensor];
    std::memset(result.data, 0, size_t(result.bytes()));
    std::vector<Entry> entries = merged(messages, first, size_t(slice.numEntries));
    for (size_t e = 0; e < entries.size();) {
      int32_t index = entries[e].index;
      double sum = entries[e++].value;
      for (; e < entries.size() && entries[e].index == index; ++e)
        sum += entries[e].value;
      auto rounded = float(sum);
      std::memcpy(result.data + index * floatBytes, &rounded, sizeof rounded);
    }
    first += 2 * size_t(slice.numEntries);
  }
}

Status SparseSum::run(comm::Communicator &communicator, const std::vector<PlacedTensor> &inputs,
                      const std::vector<PlacedTensor> &results, const std::string &place) {
  // Results are written after all operands that they may overlap are read.
  for (const Slice &slice : layout.slices)
    addGradient(slice, inputs[slice.tensor]);
  std::vector<Message> messages = takeMessages();
  if (Status status = sendWhole(communicator, inputs, results, place); !status)
    return status;
  auto received = exchange(communicator, std::move(messages), place);
  if (!received)
    return received.error();
  addUp(*received, results);
  return Status::ok();
}

} // namespace tbc::runtime
