//===- DeviceSparseSum.cpp - Compressed sums of gradients on a GPU ----------===//

#include "runtime/cuda/DeviceSparseSum.h"
#include "runtime/abi/SparseKernels.h"

#include <algorithm>

namespace tbc::cuda {

namespace sparse = program::sparse;

//===----------------------------------------------------------------------===//
// Preparation
//===----------------------------------------------------------------------===//

// The layout of a slice's i64 numbers: the first index of each kernel's part.
static constexpr int sizesAt = 0, stateAt = 2, sumAt = 5, numNumbers = 10;
static constexpr int numStates = sumAt - stateAt;

DeviceAddress DeviceSparseSum::numbersOf(size_t slice) const {
  return memory.address() + DeviceAddress(numbersBegin + int64_t(slice) * numNumbers * 8);
}
static DeviceAddress part(DeviceAddress numbers, int at) {
  return numbers + DeviceAddress(at) * sizeof(int64_t);
}

/// Returns the numbers of all slices, in order.
static std::vector<int64_t> tableOf(const runtime::SparseLayout &layout) {
  std::vector<int64_t> numbers;
  size_t index = 0;
  int64_t first = 0; // word of a message
  for (const runtime::SparseLayout::Slice &slice : layout.slices) {
    first = slice.index == index ? first : 0;
    index = slice.index;
    int64_t numSteps = 1; // halvings of numEntries + 1 places to one
    while ((int64_t(1) << numSteps) <= slice.numEntries)
      ++numSteps;
    for (int64_t number : {slice.count, slice.numEntries,                          // sizes
                           int64_t(0), std::min(slice.numEntries, slice.count),    // state
                           sparse::firstShift, int64_t(layout.group.ranks.size()), // sum
                           slice.numEntries, int64_t(layout.messageWords), first, numSteps})
      numbers.push_back(number);
    first += 2 * slice.numEntries;
  }
  return numbers;
}

Result<std::unique_ptr<DeviceSparseSum>>
DeviceSparseSum::create(const DevicePtr &device, const KernelModule &kernels,
                        const runtime::SparseLayout &layout, Streams &streams) {
  std::unique_ptr<DeviceSparseSum> sum(new DeviceSparseSum(layout));
  for (auto [kernel, symbol] :
       {std::pair(&sum->kernels.add, sparse::add), std::pair(&sum->kernels.count, sparse::count),
        std::pair(&sum->kernels.choose, sparse::choose),
        std::pair(&sum->kernels.tally, sparse::tally), std::pair(&sum->kernels.take, sparse::take),
        std::pair(&sum->kernels.sum, sparse::sum)}) {
    *kernel = kernels.find(symbol);
    if (!*kernel)
      return Error{ErrorCode::Usage, std::string("the program has no kernel \"") + symbol +
                                         "\", which compressed gradients need; compile it again"};
  }
  std::vector<int64_t> numbers = tableOf(layout);
  sum->numbersBegin = aligned(layout.residualCount * 4);
  auto numberBytes = int64_t(numbers.size() * sizeof(int64_t));
  auto memory = DeviceMemory::allocate(device, sum->numbersBegin + numberBytes,
                                       "what is kept back of compressed gradients");
  if (!memory)
    return memory.error();
  sum->memory = std::move(*memory);
  Status status = streams.clear(sum->memory.address(), sum->numbersBegin);
  if (status)
    status = streams.upload(sum->numbersOf(0),
                            reinterpret_cast<const unsigned char *>(numbers.data()), numberBytes);
  return status ? Result<std::unique_ptr<DeviceSparseSum>>(std::move(sum)) : status.error();
}

Result<std::vector<float>> DeviceSparseSum::residuals(Streams &streams) const {
  std::vector<float> elements(size_t(layout.residualCount));
  Status status = streams.download(reinterpret_cast<unsigned char *>(elements.data()),
                                   memory.address(), layout.residualCount * 4);
  return status ? Result<std::vector<float>>(std::move(elements)) : status.error();
}

Status DeviceSparseSum::setResiduals(Streams &streams, const std::vector<float> &elements) {
  return streams.upload(memory.address(), reinterpret_cast<const unsigned char *>(elements.data()),
                        layout.residualCount * 4);
}

//===----------------------------------------------------------------------===//
// A sum
//===----------------------------------------------------------------------===//

Status DeviceSparseSum::addGradients(const std::vector<DeviceTensor> &inputs, const Stream &stream,
                                     const ScratchFn &scratch, const LaunchFn &launch) const {
  int64_t most = 0; // bytes of the largest non-contiguous slice
  for (const Slice &slice : layout.slices)
    if (slice.elements.size() > 1)
      most = std::max(most, slice.count * 4);
  DeviceAddress packed = most ? scratch(most) : 0;
  for (size_t s = 0; s < layout.slices.size(); ++s) {
    const Slice &slice = layout.slices[s];
    if (slice.count == 0) // only padding
      continue;
    DeviceRuns from = runsOf(slice.elements, inputs[slice.tensor].address);
    DeviceAddress gradient = from.size() == 1 ? from[0].address : packed;
    if (from.size() > 1)
      if (Status status = copyRuns(stream, from, {{packed, slice.count * 4}}); !status)
        return status;
    launch(*kernels.add, {gradient, part(numbersOf(s), sizesAt), residualOf(slice)});
  }
  return Status::ok();
}

Status DeviceSparseSum::takeMessages(const Places &at, const Stream &stream,
                                     const LaunchFn &launch) const {
  auto sentBytes = int64_t(layout.numMessages()) * messageBytes();
  // An index of -1 marks an empty entry; its value is not read.
  if (Status status = stream.fill(at.sent, 0xff, sentBytes); !status)
    return status;
  DeviceAddress next = at.sent;
  for (size_t s = 0; s < layout.slices.size(); ++s) {
    const Slice &slice = layout.slices[s];
    DeviceAddress indices = next, values = next + DeviceAddress(slice.numEntries * 4);
    next += DeviceAddress(2 * slice.numEntries * 4);
    if (slice.count == 0)
      continue;
    DeviceAddress residual = residualOf(slice), sizes = part(numbersOf(s), sizesAt);
    if (Status status = stream.copyWithin(at.state, part(numbersOf(s), stateAt), numStates * 8);
        !status)
      return status;
    for (int64_t round = 0; round < sparse::numRounds; ++round) {
      launch(*kernels.count, {residual, at.state, sizes, at.counts});
      launch(*kernels.choose, {at.counts, at.state});
    }
    launch(*kernels.tally, {residual, at.state, sizes, at.tallies, at.warpTallies});
    launch(*kernels.take, {at.tallies, at.warpTallies, at.state, sizes, residual, indices, values});
  }
  return Status::ok();
}

Status DeviceSparseSum::exchange(DeviceCommunicator &communicator, const Places &at,
                                 const Stream &stream, const std::string &place) const {
  const comm::Group &group = layout.group.ranks;
  if (layout.isAllReduce) // values travel as their bits
    return communicator.enqueueAllGather(
        group, {{at.sent, at.received, int64_t(layout.messageWords), kernels::DType::I32}}, stream,
        place);
  std::vector<DevicePart> sent, received;
  for (int64_t i = 0; i < int64_t(group.size()); ++i) {
    auto offset = DeviceAddress(i * messageBytes());
    sent.push_back({i, at.sent + offset, messageBytes()});
    received.push_back({i, at.received + offset, messageBytes()});
  }
  return communicator.enqueueExchange(group, sent, received, stream, "all_to_all", place);
}

Status DeviceSparseSum::addUp(const Places &at, const std::vector<DeviceTensor> &results,
                              const Stream &stream, const LaunchFn &launch) const {
  for (size_t s = 0; s < layout.slices.size(); ++s) {
    const Slice &slice = layout.slices[s];
    if (slice.index != layout.ownIndex())
      continue;
    const DeviceTensor &result = results[slice.tensor];
    if (Status status = stream.fill(result.address, 0, result.bytes()); !status)
      return status;
    launch(*kernels.sum, {at.received, at.received, part(numbersOf(s), sumAt), result.address});
  }
  return Status::ok();
}

Status DeviceSparseSum::run(DeviceCommunicator &communicator,
                            const program::Instruction &instruction,
                            const std::vector<DeviceTensor> &inputs,
                            const std::vector<DeviceTensor> &results, bool isUniform,
                            const Stream &stream, const ScratchFn &scratch, const LaunchFn &launch,
                            const std::string &place) const {
  // Results are written after all operands that they may overlap are read.
  if (Status status = addGradients(inputs, stream, scratch, launch); !status)
    return status;
  if (!layout.wholes.empty()) {
    std::vector<DeviceTensor> from, to;
    for (size_t t : layout.wholes) {
      from.push_back(inputs[t]);
      to.push_back(results[t]);
    }
    if (Status status =
            communicateOnDevice(&communicator, instruction, layout.group, layout.wholeLayout, from,
                                to, isUniform, stream, scratch, place);
        !status)
      return status;
  }
  Places at{};
  int64_t total = 0;
  std::vector<std::pair<DeviceAddress *, int64_t>> pieces = {
      {&at.state, numStates * 8},
      {&at.counts, sparse::numWarps * sparse::numDigits * 4},
      {&at.tallies, 2 * sparse::numThreads * 4},
      {&at.warpTallies, 2 * sparse::numWarps * 4},
      {&at.sent, int64_t(layout.numMessages()) * messageBytes()},
      {&at.received, int64_t(layout.group.ranks.size()) * messageBytes()}};
  for (auto [begin, bytes] : pieces)
    total += aligned(bytes);
  DeviceAddress next = scratch(total);
  for (auto [begin, bytes] : pieces) {
    *begin = next;
    next += DeviceAddress(aligned(bytes));
  }
  Status status = takeMessages(at, stream, launch);
  if (status)
    status = exchange(communicator, at, stream, place);
  return status ? addUp(at, results, stream, launch) : status;
}

} // namespace tbc::cuda
