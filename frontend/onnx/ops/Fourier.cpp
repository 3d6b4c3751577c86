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
  bool mirrored = isInverse && isHalf;
  int64_t size = mirrored ? 2 * (x.shape[axis] - 1) : x.shape[axis];
  if (node.hasInput(1))
    size = node.integer(1);
  int64_t wanted = mirrored ? size / 2 + 1 : size;
  int64_t places = !isInverse && isHalf ? size / 2 + 1 : size;
  int64_t inParts = x.shape.back(), outParts = mirrored ? 1 : 2;
  if (size < 1 || saturatedElements({wanted, inParts, places, outParts}) > kMaxKnownElements)
    throw ImportError("transforms " + std::to_string(size) +
                      " places; the table of a transform "
                      "has at most " +
                      std::to_string(kMaxKnownElements) + " elements");
  int64_t given = std::min(x.shape[axis], wanted);
  x = padZeros(e, slice(e, x, axis, 0, 1, given), axis, 0, wanted - given);
  Value table = Value::ofKnown(
      x.dtype, rotations(size, wanted, places, inParts, outParts, isInverse ? 1 : -1, mirrored));
  std::vector<int64_t> labels, out;
  for (unsigned dim = 0; dim < x.rank(); ++dim) {
    labels.push_back(dim);
    out.push_back(dim == axis ? x.rank() : dim == last ? x.rank() + 1 : dim);
  }
  int64_t rank = x.rank();
  node.setOutput(0, einsum(e, x, labels, table, {axis, last, rank, rank + 1}, out));
}

} // namespace

llvm::ArrayRef<OpImporter> fourierOps() {
  static const OpImporter ops[] = {
      {"", "DFT", importDft},
  };
  return ops;
}

} // namespace tbc::frontend
