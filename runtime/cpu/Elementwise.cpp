//===- Elementwise.cpp - Native kernels applied element by element -------------===//

#include "runtime/cpu/Families.h"
#include "runtime/cpu/Floats.h"

#include <array>
#include <cmath>

namespace tbc::cpu {

using kernels::Attrs;
using kernels::DType;

namespace {

/// Applies the loop to the first operands. All operands and results have one shape.
void apply(Threads &threads, const Buffers &buffers, const NamedLoop &loop, const Types &operands,
           const Types &results, const float *parameters) {
  // Chunks stay in the first-level cache while they are converted.
  constexpr int64_t chunk = 2048;
  int64_t size = kernels::numElements(results[0].shape);
  threads.runRanges(size, pieceBytes / 4, [&](int64_t begin, int64_t end) {
    std::vector<FloatsIn> in;
    std::vector<FloatsOut> out;
    for (int i = 0; i < loop.numInputs; ++i)
      in.emplace_back(buffers.operands[i], operands[i].dtype);
    for (int r = 0; r < loop.numOutputs; ++r)
      out.emplace_back(buffers.results[r], results[r].dtype);
    std::array<const float *, 8> from{};
    std::array<float *, 8> to{};
    for (int64_t at = begin; at < end; at += chunk) {
      int64_t n = std::min(chunk, end - at);
      for (size_t i = 0; i < in.size(); ++i)
        from[i] = in[i].at(at, n);
      for (size_t r = 0; r < out.size(); ++r)
        to[r] = out[r].at(at, n);
      loop.loop(from.data(), to.data(), n, parameters);
      for (FloatsOut &result : out)
        result.finish();
    }
  });
}

float scalar(const Buffers &buffers, const Types &operands, size_t i) {
  return *FloatsIn(buffers.operands[i], operands[i].dtype).at(0, 1);
}

NativeKernel makeAdam(const NamedLoop &loop, bool isDecoupled, const Attrs &attrs,
                      const Types &operands, const Types &results) {
  if (operands.size() != 6 || !areNativeFloats(results) || operands[5].dtype != DType::I64 ||
      !areNativeFloats(Types(operands.begin(), operands.begin() + 5)))
    return nullptr;
  double beta1 = attrs.getDouble("beta1"), beta2 = attrs.getDouble("beta2");
  double epsilon = attrs.getDouble("epsilon"), decay = attrs.getDouble("weight_decay");
  return [=, &loop](Threads &threads, const Buffers &buffers) {
    double lr = scalar(buffers, operands, 4);
    auto step = double(*buffers.operand<int64_t>(5));
    AdamParameters a{};
    a.beta1 = float(beta1), a.oneMinusBeta1 = float(1 - beta1);
    a.beta2 = float(beta2), a.oneMinusBeta2 = float(1 - beta2);
    a.epsilon = float(epsilon);
    a.decay = float(isDecoupled ? 1 - lr * decay : decay);
    a.stepSize = float(lr / (1 - std::pow(beta1, step)));
    a.rootOfDebias2 = float(std::sqrt(1 - std::pow(beta2, step)));
    apply(threads, buffers, loop, operands, results, reinterpret_cast<const float *>(&a));
  };
}

void copy(Threads &threads, const void *from, void *to, int64_t bytes) {
  if (from == to)
    return;
  threads.runRanges(bytes, pieceBytes, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char *>(to) + begin, static_cast<const char *>(from) + begin,
                size_t(end - begin));
  });
}

NativeKernel makeCast(const kernels::TensorType &from, const kernels::TensorType &to) {
  int64_t size = kernels::numElements(to.shape);
  if (!isNativeFloat(from.dtype) || !isNativeFloat(to.dtype))
    return nullptr;
  if (from.dtype == to.dtype)
    return [bytes = size * byteWidth(to.dtype)](Threads &threads, const Buffers &buffers) {
      copy(threads, buffers.operands[0], buffers.results[0], bytes);
    };
  return [size, narrows = to.dtype == DType::BF16](Threads &threads, const Buffers &buffers) {
    threads.runRanges(size, pieceBytes / 4, [&](int64_t begin, int64_t end) {
      if (narrows)
        vectors().toBF16(buffers.operand<float>(0) + begin, buffers.result<uint16_t>(0) + begin,
                         end - begin);
      else
        vectors().fromBF16(buffers.operand<uint16_t>(0) + begin, buffers.result<float>(0) + begin,
                           end - begin);
    });
  };
}

/// Rotates rows of x by the angles of their position.
NativeKernel makeRotary(const Attrs &attrs, const Types &operands, const Types &results) {
  const kernels::Shape &shape = operands[0].shape, &table = operands[1].shape;
  if (operands.size() != 3 || !areNativeFloats(operands) || !areNativeFloats(results) ||
      shape.size() < 2 || shape.back() % 2 != 0)
    return nullptr;
  bool isTokenMajor = attrs.getBool("token_major", false); // [b, s, h, d] or [b, s, h * d]
  bool isMerged = isTokenMajor && shape.size() == 3 && !table.empty();
  int64_t half = isMerged ? table.back() : shape.back() / 2, width = 2 * half;
  int64_t length = shape[isTokenMajor ? 1 : shape.size() - 2];
  int64_t rowsPerToken = 1;
  if (isTokenMajor && width > 0 && shape[0] * length > 0)
    rowsPerToken = kernels::numElements(shape) / (width * shape[0] * length);
  kernels::Shape expected{length, half};
  bool isPerSample = table.size() == 3 && shape.size() >= 3;
  if (isPerSample)
    expected.insert(expected.begin(), shape[0]);
  if (table != expected || operands[2].shape != expected)
    return nullptr;
  int64_t rows = width ? kernels::numElements(shape) / width : 0;
  int64_t rowsPerSample = isPerSample && rows ? rows / shape[0] : std::max<int64_t>(1, rows);
  float sign = attrs.getBool("inverse", false) ? -1.0f : 1.0f;
  const bool isInterleaved = attrs.getBool("interleaved", false);
  const NamedLoop *loop = findElementLoop(isInterleaved ? "rotate_pairs" : "rotate");
  return [=](Threads &threads, const Buffers &buffers) {
    threads.runRanges(rows, rowsPerPiece(width), [&](int64_t begin, int64_t end) {
      FloatsIn x(buffers.operands[0], operands[0].dtype);
      FloatsIn cosines(buffers.operands[1], operands[1].dtype);
      FloatsIn sines(buffers.operands[2], operands[2].dtype);
      FloatsOut y(buffers.results[0], results[0].dtype);
      for (int64_t row = begin; row < end; ++row) {
        int64_t angles = (row / rowsPerSample * length + row / rowsPerToken % length) * half;
        const float *from = x.at(row * width, width);
        float *to = y.at(row * width, width);
        const float *cosine = cosines.at(angles, half), *sine = sines.at(angles, half);
        const float *pairs[] = {from, cosine, sine}, *halves[] = {from, from + half, cosine, sine};
        float *const out[] = {to, to + half};
        loop->loop(isInterleaved ? pairs : halves, out, half, &sign);
        y.finish();
      }
    });
  };
}

} // namespace

NativeKernel makeElementwise(std::string_view op, const Attrs &attrs, const Types &operands,
                             const Types &results) {
  if (op == "cast")
    return makeCast(operands[0], results[0]);
  if (op == "rotary")
    return makeRotary(attrs, operands, results);
  if (op == "update_if") {
    int64_t bytes = kernels::numElements(results[0].shape) * byteWidth(results[0].dtype);
    return [bytes](Threads &threads, const Buffers &buffers) {
      bool isNew = *buffers.operand<uint8_t>(2) != 0;
      copy(threads, buffers.operands[isNew ? 1 : 0], buffers.results[0], bytes);
    };
  }
  std::string name(op);
  if (op == "gelu" || op == "gelu_grad")
    name += "_" + attrs.getString("approximate");
  const NamedLoop *loop = findElementLoop(name);
  if (!loop)
    return nullptr;
  if (op == "adamw" || op == "adam")
    return makeAdam(*loop, op == "adamw", attrs, operands, results);
  if (!areNativeFloats(operands) || !areNativeFloats(results))
    return nullptr;
  if (op == "scale_by")
    return [=](Threads &threads, const Buffers &buffers) {
      float factor = scalar(buffers, operands, 1);
      apply(threads, buffers, *loop, operands, results, &factor);
    };
  return [=](Threads &threads, const Buffers &buffers) {
    apply(threads, buffers, *loop, operands, results, nullptr);
  };
}

} // namespace tbc::cpu
