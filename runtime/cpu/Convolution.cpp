//===- Convolution.cpp - Native convolution and its two gradients -------------===//
//
// A convolution is cut into boxes of samples and channels; each is a piece of work. It cuts
// channels of the result or, if there are several, groups. Several boxes of a gradient of the
// weights may add to the same elements, for example those of different samples. Each then has its
// own partial sum, and these are added in the order of the samples. The cut depends on the shape
// alone.
//
//===----------------------------------------------------------------------===//

#include "runtime/cpu/ConvolutionPart.h"
#include "runtime/cpu/Families.h"
#include "runtime/cpu/Floats.h"
#include "runtime/kernels/Support.h"

#include <algorithm>
#include <cstring>

namespace tbc::cpu {

using kernels::Attrs;
using kernels::numElements;
using kernels::Shape;
using kernels::TensorType;

namespace {

/// [0, total) in ranges of equal size; the last may be smaller. Example: {10, 4} is 4, 4, 2.
struct Cut {
  int64_t total, size;

  int64_t count() const { return (total + size - 1) / size; }
  int64_t sizeOf(int64_t i) const { return std::min(size, total - i * size); }
  bool isLast(int64_t i) const { return i == count() - 1; }
};

Cut cutInto(int64_t total, int64_t count, int64_t multiple = 1) {
  int64_t size = (total + count - 1) / count;
  return {total, std::min(total, (size + multiple - 1) / multiple * multiple)};
}

constexpr int64_t piecesWanted = 16;
/// FLOPs that are worth a piece of their own.
constexpr int64_t pieceFlops = 4 << 20;
/// The least channels of a box; with fewer the other operand is read too often.
constexpr int64_t leastChannels = 128;
/// Largest size of the partial sums of a gradient of the weights.
constexpr int64_t mostPartialBytes = 32 << 20;
/// From this number of positions on, a single sample is large enough for a box.
constexpr int64_t manyPositions = 256;

class Convolution {
public:
  Convolution(const ConvolutionShape &whole)
      : whole(whole), inputs(numElements(whole.input)), positions(numElements(whole.output)),
        taps(numElements(whole.window)) {
    cut();
    for (bool lastSample : {false, true})
      for (bool lastChannel : {false, true})
        parts[lastSample][lastChannel] =
            partOf(samples.sizeOf(lastSample ? samples.count() - 1 : 0),
                   slices.sizeOf(lastChannel ? slices.count() - 1 : 0));
  }

  bool isComplete() const { return parts[0][0] && parts[0][1] && parts[1][0] && parts[1][1]; }

  void run(Threads &threads, const float *first, const float *second, float *result) const {
    if (whole.kind == ConvolutionKind::WeightGradient)
      return runWeightGradient(threads, first, second, result);
    // Weights are packed once for all samples.
    std::vector<size_t> places;
    size_t bytes = 0;
    for (int64_t c = 0; c < slices.count(); ++c) {
      places.push_back(bytes);
      bytes += (partAt(0, c).packedBytes() + 4095) / 4096 * 4096;
    }
    char *packed = threads.sharedScratch(bytes);
    if (bytes > 0)
      threads.run(slices.count(), [&](int64_t c) {
        if (partAt(0, c).packedBytes() > 0)
          partAt(0, c).pack(second + weightAt(c), packed + places[size_t(c)]);
      });
    bool isForward = whole.kind == ConvolutionKind::Forward;
    threads.run(samples.count() * slices.count(), [&](int64_t piece) {
      int64_t n = piece / slices.count(), c = piece % slices.count();
      const ConvolutionPart &part = partAt(n, c);
      const void *weights = second + weightAt(c);
      if (part.packedBytes() > 0)
        weights = packed + places[size_t(c)];
      if (isForward)
        part.run(first + inputAt(n, c), weights, result + outputAt(n, c));
      else
        part.run(first + outputAt(n, c), weights, result + inputAt(n, c));
    });
  }

private:
  int64_t channelsIn() const { return whole.groups * whole.inChannels; }
  int64_t channelsOut() const { return whole.groups * whole.outChannels; }
  bool isGrouped() const { return whole.groups > 1; }
  bool cutsInputs() const { return !isGrouped() && whole.kind == ConvolutionKind::InputGradient; }
  bool cutsOutputs() const { return !isGrouped() && !cutsInputs(); }

  int64_t flops() const {
    return 2 * whole.samples * channelsOut() * positions * whole.inChannels * taps;
  }

  /// Chooses the boxes.
  void cut() {
    int64_t wanted = std::clamp<int64_t>(flops() / pieceFlops, 1, piecesWanted);
    int64_t channels = cutsInputs() ? channelsIn() : channelsOut();
    int64_t mostSlices = std::clamp<int64_t>(channels / leastChannels, 1, wanted);
    int64_t numSlices, numSamples;
    if (whole.kind != ConvolutionKind::WeightGradient && positions >= manyPositions) {
      // Few samples at a time, so less is reordered at a time.
      int64_t flopsPerSample = std::max<int64_t>(1, flops() / whole.samples);
      int64_t each = std::clamp<int64_t>(pieceFlops / flopsPerSample, 1, whole.samples);
      numSamples = (whole.samples + each - 1) / each;
      numSlices = std::min(mostSlices, (wanted + numSamples - 1) / numSamples);
    } else {
      numSlices = mostSlices;
      numSamples = std::min(whole.samples, (wanted + numSlices - 1) / numSlices);
    }
    if (whole.kind == ConvolutionKind::WeightGradient)
      numSamples = std::clamp<int64_t>(mostPartialBytes / 4 / numWeights(), 1, numSamples);
    samples = cutInto(whole.samples, numSamples);
    // Whole blocks of channels, for any processor's block size.
    slices = isGrouped() ? cutInto(whole.groups, std::min(whole.groups, numSlices))
                         : cutInto(channels, numSlices, 16);
  }

  int64_t numWeights() const { return channelsOut() * whole.inChannels * taps; }

  std::shared_ptr<const ConvolutionPart> partOf(int64_t numSamples, int64_t sliceSize) const {
    ConvolutionShape part = whole;
    part.samples = numSamples;
    if (isGrouped())
      part.groups = sliceSize;
    else
      (cutsInputs() ? part.inChannels : part.outChannels) = sliceSize;
    return ConvolutionPart::find(part);
  }

  const ConvolutionPart &partAt(int64_t n, int64_t c) const {
    return *parts[samples.isLast(n)][slices.isLast(c)];
  }

  // The offset of a box in x, y and w.
  int64_t inputAt(int64_t n, int64_t c) const {
    int64_t channel = isGrouped()    ? c * slices.size * whole.inChannels
                      : cutsInputs() ? c * slices.size
                                     : 0;
    return n * samples.size * whole.sampleX + channel * inputs;
  }
  int64_t outputAt(int64_t n, int64_t c) const {
    int64_t channel = isGrouped()     ? c * slices.size * whole.outChannels
                      : cutsOutputs() ? c * slices.size
                                      : 0;
    return n * samples.size * whole.sampleY + channel * positions;
  }
  int64_t weightAt(int64_t c) const {
    int64_t perSlice = cutsInputs()  ? taps
                       : isGrouped() ? whole.outChannels * whole.outChannelW
                                     : whole.outChannelW;
    return c * slices.size * perSlice;
  }

  void runWeightGradient(Threads &threads, const float *x, const float *dy, float *dw) const {
    int64_t size = numWeights(), sums = samples.count();
    auto *partial =
        sums == 1 ? dw : reinterpret_cast<float *>(threads.sharedScratch(size_t(sums * size) * 4));
    threads.run(sums * slices.count(), [&](int64_t piece) {
      int64_t n = piece / slices.count(), c = piece % slices.count();
      partAt(n, c).run(x + inputAt(n, c), dy + outputAt(n, c), partial + n * size + weightAt(c));
    });
    if (sums == 1)
      return;
    threads.runRanges(size, pieceBytes / 4, [&](int64_t begin, int64_t end) {
      std::copy(partial + begin, partial + end, dw + begin);
      for (int64_t n = 1; n < sums; ++n)
        vectors().addScaled(partial + n * size + begin, dw + begin, end - begin, 1);
    });
  }

  ConvolutionShape whole;
  int64_t inputs, positions, taps;
  Cut samples{1, 1}, slices{1, 1};                    // slices: of channels, or of groups
  std::shared_ptr<const ConvolutionPart> parts[2][2]; // [is last of samples][is last of channels]
};

/// Whether windows over `x` with `w` have the positions of `y`. Other shapes are left to the
/// reference kernel, which refuses them.
bool fits(const ConvolutionShape &shape) {
  for (size_t d = 0; d < shape.input.size(); ++d) {
    if (shape.strides[d] < 1 || shape.dilations[d] < 1 || shape.lowPads[d] < 0 ||
        shape.highPads[d] < 0)
      return false;
    int64_t padded = shape.input[d] + shape.lowPads[d] + shape.highPads[d];
    int64_t window = shape.dilations[d] * (shape.window[d] - 1) + 1;
    if (window > padded || (padded - window) / shape.strides[d] + 1 != shape.output[d])
      return false;
  }
  return true;
}

NativeKernel convolution(ConvolutionKind kind, const Attrs &attrs, const TensorType &x,
                         const TensorType &w, const TensorType &y) {
  size_t rank = x.shape.size();
  const auto f32 = kernels::DType::F32;
  if (x.dtype != f32 || w.dtype != f32 || y.dtype != f32 || rank < 3 || rank > 5 ||
      w.shape.size() != rank || y.shape.size() != rank)
    return nullptr;
  ConvolutionShape shape;
  shape.kind = kind;
  shape.samples = x.shape[0];
  shape.groups = attrs.getInt("groups", 1);
  shape.input = kernels::Shape(x.shape.begin() + 2, x.shape.end());
  shape.output = kernels::Shape(y.shape.begin() + 2, y.shape.end());
  shape.window = kernels::Shape(w.shape.begin() + 2, w.shape.end());
  shape.strides = attrs.getInts("strides");
  shape.dilations =
      attrs.has("dilations") ? attrs.getInts("dilations") : Shape(rank - 2, int64_t(1));
  const std::vector<int64_t> &pads = attrs.getInts("pads");
  if (shape.groups < 1 || w.shape[0] % shape.groups != 0 ||
      w.shape[1] * shape.groups != x.shape[1] || y.shape[0] != x.shape[0] ||
      y.shape[1] != w.shape[0] || shape.strides.size() != rank - 2 ||
      shape.dilations.size() != rank - 2 || pads.size() != 2 * (rank - 2))
    return nullptr;
  shape.lowPads.assign(pads.begin(), pads.begin() + int64_t(rank) - 2);
  shape.highPads.assign(pads.begin() + int64_t(rank) - 2, pads.end());
  shape.inChannels = w.shape[1];
  shape.outChannels = w.shape[0] / shape.groups;
  if (numElements(x.shape) == 0 || numElements(w.shape) == 0 || numElements(y.shape) == 0) {
    const TensorType &result = kind == ConvolutionKind::Forward         ? y
                               : kind == ConvolutionKind::InputGradient ? x
                                                                        : w;
    // Empty sums are 0.
    return [bytes = size_t(numElements(result.shape)) * 4](Threads &, const Buffers &buffers) {
      if (bytes > 0)
        std::memset(buffers.results[0], 0, bytes);
    };
  }
  if (!fits(shape))
    return nullptr;
  shape.sampleX = x.shape[1] * numElements(shape.input);
  shape.sampleY = y.shape[1] * numElements(shape.output);
  shape.outChannelW = shape.inChannels * numElements(shape.window);
  auto whole = std::make_shared<Convolution>(shape);
  if (!whole->isComplete())
    return nullptr;
  return [whole](Threads &threads, const Buffers &buffers) {
    whole->run(threads, buffers.operand<float>(0), buffers.operand<float>(1),
               buffers.result<float>(0));
  };
}

} // namespace

NativeKernel makeConvolution(std::string_view op, const Attrs &attrs, const Types &operands,
                             const Types &results) {
  if (operands.size() != 2 || results.size() != 1)
    return nullptr;
  if (op == "conv")
    return convolution(ConvolutionKind::Forward, attrs, operands[0], operands[1], results[0]);
  if (op == "conv_grad_input")
    return convolution(ConvolutionKind::InputGradient, attrs, results[0], operands[1], operands[0]);
  if (op == "conv_grad_weight")
    return convolution(ConvolutionKind::WeightGradient, attrs, operands[0], results[0],
                       operands[1]);
  return nullptr;
}

} // namespace tbc::cpu
