//===- ConvolutionPart.h - A convolution of a box of channels by oneDNN ---===//
//
// Part of tbc. Plain C++; includes no header of oneDNN.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_CONVOLUTIONPART_H
#define TBC_RUNTIME_CPU_CONVOLUTIONPART_H

#include "runtime/kernels/Tensor.h"

#include <cstdint>
#include <memory>
#include <tuple>

namespace tbc::cpu {

enum class ConvolutionKind { Forward, InputGradient, WeightGradient };

/// An f32 convolution (runtime/kernels/Convolution.h), or one of its gradients, on a box of samples
/// and channels of larger tensors:
///
/// - x [samples, groups * inChannels, input..];
/// - w [groups * outChannels, inChannels, window..];
/// - y [samples, groups * outChannels, output..].
///
/// It has 1 to 3 spatial dims, no size 0 and no negative pad.
struct ConvolutionShape {
  ConvolutionKind kind = ConvolutionKind::Forward;
  int64_t samples = 1, groups = 1, inChannels = 1, outChannels = 1; // channels per group
  kernels::Shape input, output, window, strides, dilations, lowPads, highPads;
  /// Stride between samples in x and y, in elements; channels are dense.
  int64_t sampleX = 0, sampleY = 0;
  /// Stride between output channels in w, in elements.
  int64_t outChannelW = 0;

  auto key() const {
    return std::tie(kind, samples, groups, inChannels, outChannels, input, output, window, strides,
                    dilations, lowPads, highPads, sampleX, sampleY, outChannelW);
  }
  bool operator<(const ConvolutionShape &o) const { return key() < o.key(); }
};

/// A convolution of one shape, compiled for this processor. Sums are in f32, in an order that
/// depends on the shape alone. Several threads may use it at once; each keeps its own scratch
/// memory.
///
/// Tensors are reordered to the blocked layout of oneDNN's kernels and back, unless its matmuls on
/// plain tensors are faster. Single taps that leave out elements of x work on a dense copy of those
/// that they read. Measured with oneDNN 2.6.3 of Debian 12, in GFLOP/s of one thread; registers
/// alone reach 100 on an EPYC of family 25 with AVX2 (Zen 3) and 117 on one with AVX-512 (Zen 4).
/// Reordering is included. The columns are forward / gradient of x / gradient of w, for one sample
/// on the Zen 3, and samples as in front on the Zen 4:
///
///   Zen 3                          in blocks        plain
///   1 x 1,  64 -> 64, 56 x 56      71 / 64 / 55     94 / 74 / 73
///   1 x 1, 512 -> 128, 28 x 28     81 / 74 / 64     81 / 82 / 77
///   1 x 1, 1024 -> 256, 14 x 14    90 / 86 / 81     87 / 37 / 90
///   1 x 1, 2048 -> 512, 7 x 7      84 / 86 / 53     65 / 25 / 74
///   3 x 3,  64 -> 64, 56 x 56      91 / 94 / 63     45 / 53 / 34
///   3 x 3, 256 -> 256, 14 x 14     54 / 92 / 49     78 / 61 / 75
///   3 x 3, 512 -> 512, 7 x 7       45 / 66 / 40     49 / 18 / 60
///
///   Zen 4                            in blocks        plain
///   1: 1 x 1, 512 -> 128, 28 x 28   109 / 109 / 106  115 / 114 / 111
///   2: 1 x 1, 1024 -> 256, 14 x 14  112 / 112 /  80  106 /  97 / 104
///   1: 3 x 3,  64 -> 64, 56 x 56    116 / 116 / 102   82 /  71 /  58
///   2: 3 x 3, 256 -> 64, 14 x 14    126 / 126 / 102   76 /  65 /  65
///   4: 3 x 3, 512 -> 64, 7 x 7      139 / 139 /  97   71 /  53 /  60
///
///   Zen 4                            all of x         elements read
///   4: 1 x 1, 256 -> 64, 56 x 56 by 2    45 / 43 / 57    87 / 75 / 79
///   8: 1 x 1, 1024 -> 128, 14 x 14 by 2  75 / 72 / 72   101 / 95 / 96
class ConvolutionPart {
public:
  virtual ~ConvolutionPart() = default;

  /// Bytes of packed weights, for Forward and InputGradient; 0: weights are used in place.
  virtual size_t packedBytes() const = 0;
  virtual void pack(const float *w, void *packed) const = 0;

  /// Forward: x, packed weights -> y. InputGradient: dy, packed weights -> dx. WeightGradient: x,
  /// dy -> dw.
  virtual void run(const void *first, const void *second, float *result) const = 0;

  /// Returns the shared object of this shape, or null if oneDNN has no fast kernel for it.
  static std::shared_ptr<const ConvolutionPart> find(const ConvolutionShape &shape);
};

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_CONVOLUTIONPART_H
