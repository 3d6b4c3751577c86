//===- Fourier.cpp - Discrete Fourier transforms ---------------------------===//
//
// Transforms are matmuls with tables of cosines and sines: y[k] = sum over n of e^(-2 pi i k n / N)
// x[n]. The inverse has the other sign and is divided by N. Complex numbers are a last dim of size
// 2. Source: ONNX's definition of DFT.
//
//===----------------------------------------------------------------------===//

#include "frontend/onnx/ops/Families.h"

#include <cmath>

namespace tbc::frontend {

namespace {

/// Returns e^(sign 2 pi i k n / size) as a linear map of (real, imaginary), [n, in, k, out]. If
/// `mirrored`, a position n between 1 and size / 2 also stands for its conjugate at size - n.
Known rotations(int64_t size, int64_t inputs, int64_t places, int64_t inParts, int64_t outParts,
                int sign, bool mirrored) {
  std::vector<double> table;
  double scale = sign > 0 ? 1.0 / double(size) : 1;
  for (int64_t n = 0; n < inputs; ++n)
    for (int64_t in = 0; in < inParts; ++in)
      for (int64_t k = 0; k < places; ++k)
        for (int64_t out = 0; out < outParts; ++out) {
          // In __int128: the product n * k may overflow 64 bits.
          int64_t turn = int64_t(__int128(n) * k % size);
          double angle = 2 * M_PI * double(turn) / double(size) * sign;
          double weight = mirrored && n > 0 && 2 * n < size ? 2 * scale : scale;
          double cosine = std::cos(angle), sine = std::sin(angle);
          table.push_back(weight * (in == out ? cosine : in == 0 ? sine : -sine));
        }
  return Known::ofReals({inputs, inParts, places, outParts}, std::move(table));
}

/// A transform along dim `axis` of a tensor whose last dim has real and imaginary parts.
struct Transform {
  unsigned axis;
  int64_t size;
  bool isInverse, isHalf;
  /// Whether the other half is the conjugate, because the result is real.
  bool mirrored() const { return isInverse && isHalf; }
};

Value transformed(Emitter &e, Value x, const Transform &t) {
  unsigned last = x.rank() - 1;
  int64_t wanted = t.mirrored() ? t.size / 2 + 1 : t.size;
  int64_t places = !t.isInverse && t.isHalf ? t.size / 2 + 1 : t.size;
  int64_t inParts = x.shape.back(), outParts = t.mirrored() ? 1 : 2;
  if (t.size < 1 || saturatedElements({wanted, inParts, places, outParts}) > kMaxKnownElements)
    throw ImportError("transforms " + std::to_string(t.size) +
                      " places; the table of a transform "
                      "has at most " +
                      std::to_string(kMaxKnownElements) + " elements");
  int64_t given = std::min(x.shape[t.axis], wanted);
  x = padZeros(e, slice(e, x, t.axis, 0, 1, given), t.axis, 0, wanted - given);
  Value table = Value::ofKnown(x.dtype, rotations(t.size, wanted, places, inParts, outParts,
                                                  t.isInverse ? 1 : -1, t.mirrored()));
  std::vector<int64_t> labels, out;
  for (unsigned dim = 0; dim < x.rank(); ++dim) {
    labels.push_back(dim);
    out.push_back(dim == t.axis ? x.rank() : dim == last ? x.rank() + 1 : dim);
  }
  int64_t rank = x.rank();
  return einsum(e, x, labels, table, {t.axis, last, rank, rank + 1}, out);
}

void importDft(NodeContext &node) {
  Emitter &e = node.emitter;
  Value x = node.input(0);
  if (x.rank() < 2 || !kernels::isFloat(x.dtype) || x.shape.back() < 1 || x.shape.back() > 2)
    throw ImportError("needs floats whose last dim are real and imaginary parts");
  int64_t along = node.opset < 20    ? node.attrInt("axis", 1)
                  : node.hasInput(2) ? node.integer(2)
                                     : -2;
  unsigned axis = checkAxis(along, x.rank()), last = x.rank() - 1;
  if (axis == last)
    throw ImportError("transforms along the dim of real and imaginary parts");
  bool isInverse = node.attrInt("inverse", 0) != 0, isHalf = node.attrInt("onesided", 0) != 0;
  if (e.dependsOnBatch(x.shape[axis]))
    throw ImportError("transforms along the batch");
  // The other half of a real signal's transform is the conjugate.
  int64_t size = isInverse && isHalf ? 2 * (x.shape[axis] - 1) : x.shape[axis];
  if (node.hasInput(1))
    size = node.integer(1);
  node.setOutput(0, transformed(e, x, {axis, size, isInverse, isHalf}));
}

//===- short-time transforms ------------------------------------------------===//

/// Transforms overlapping frames of signal[n, length] or [n, length, 1 or 2]: frame i is
/// window[k] signal[i * step + k]. The result is [n, frames, places, 2].
void importStft(NodeContext &node) {
  Emitter &e = node.emitter;
  Value x = node.input(0);
  if (x.rank() == 2)
    x = unsqueeze(x, {2});
  if (x.rank() != 3 || !kernels::isFloat(x.dtype) || x.shape[2] < 1 || x.shape[2] > 2)
    throw ImportError("needs a signal of one dim for each sample, real or complex");
  if (e.dependsOnBatch(x.shape[1]))
    throw ImportError("transforms along the batch");
  int64_t step = node.integer(1);
  int64_t size = node.hasInput(3)   ? node.integer(3)
                 : node.hasInput(2) ? node.input(2).shape.at(0)
                                    : x.shape[1];
  if (step < 1 || size < 1 || size > x.shape[1])
    throw ImportError("takes frames of " + std::to_string(size) + " in steps of " +
                      std::to_string(step) + " from a signal of " + std::to_string(x.shape[1]));
  Shape frames{(x.shape[1] - size) / step + 1, size};
  Value places = Value::ofKnown(DType::I64, Known::affine(frames, 0, {step, 1}, false));
  Value framed = gather(e, x, places, 1); // [n, frames, size, parts]
  if (node.hasInput(2)) {
    const Value &window = node.input(2);
    if (window.shape != Shape{size})
      throw ImportError("has a window of shape " + printShape(window.shape, e.marker) +
                        " for frames of " + std::to_string(size));
    framed = elementwise(e, "mul", {framed, unsqueeze(cast(e, window, x.dtype), {1})});
  }
  bool isHalf = node.attrInt("onesided", 1) != 0;
  if (isHalf && x.shape[2] != 1)
    throw ImportError("takes half of the transform of a complex signal");
  node.setOutput(0, transformed(e, framed, {2, size, false, isHalf}));
}

/// Returns the place of edge `i` of the triangles, in a transform of `length`.
/// Source: ONNX's definition of MelWeightMatrix, mel(f) = 2595 log10(1 + f / 700).
int64_t melEdge(int64_t i, int64_t numBins, double low, double high, double length, double rate) {
  auto toMel = [](double frequency) { return 2595 * std::log10(1 + frequency / 700); };
  double mel = toMel(low) + double(i) * (toMel(high) - toMel(low)) / double(numBins + 2);
  double frequency = 700 * (std::pow(10, mel / 2595) - 1);
  return int64_t(std::floor((length + 1) * frequency / rate));
}

/// Makes the matrix [length / 2 + 1, bins] of overlapping triangles on the mel scale.
void importMelWeightMatrix(NodeContext &node) {
  int64_t numBins = node.integer(0), length = node.integer(1), rate = node.integer(2);
  double low = node.scalar(3), high = node.scalar(4);
  DType dtype = dtypeOfOnnx(int32_t(node.attrInt("output_datatype", 1)), "the result");
  int64_t places = length / 2 + 1;
  if (numBins < 1 || length < 1 || rate < 1 || !kernels::isFloat(dtype) ||
      saturatedElements({places, numBins}) > kMaxKnownElements)
    throw ImportError("its numbers of bins and places do not fit together");
  std::vector<double> table(size_t(places * numBins), 0);
  auto set = [&](int64_t place, int64_t bin, double weight) {
    if (place >= 0 && place < places)
      table[size_t(place * numBins + bin)] = kernels::roundTo(dtype, weight);
  };
  for (int64_t bin = 0; bin < numBins; ++bin) {
    auto edge = [&](int64_t i) {
      return melEdge(bin + i, numBins, low, high, double(length), double(rate));
    };
    int64_t from = edge(0), top = edge(1), to = edge(2);
    if (from < 0 || to > length)
      throw ImportError("its frequencies are not below half of the sample rate");
    WorkBudget::spend(to - from + 1);
    for (int64_t place = from; place <= top; ++place)
      set(place, bin, top == from ? 1 : double(place - from) / double(top - from));
    for (int64_t place = top; place < to; ++place)
      set(place, bin, double(to - place) / double(to - top));
  }
  node.setOutput(0, Value::ofKnown(dtype, Known::ofReals({places, numBins}, std::move(table))));
}

} // namespace

llvm::ArrayRef<OpImporter> fourierOps() {
  static const OpImporter ops[] = {
      {"", "DFT", importDft},
      {"", "MelWeightMatrix", importMelWeightMatrix},
      {"", "STFT", importStft},
  };
  return ops;
}

} // namespace tbc::frontend
