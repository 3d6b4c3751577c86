//===- Movement.cpp - Native kernels that move elements ------------------------===//

#include "runtime/cpu/Families.h"
#include "runtime/cpu/StridedCopy.h"
#include "runtime/kernels/Support.h"

#include <cstring>

namespace tbc::cpu {

using kernels::Attrs;
using kernels::rowMajorStrides;
using kernels::Shape;
using kernels::TensorType;

namespace {

/// Copies a part of the operand to a part of the result; offsets count elements.
struct Move {
  StridedCopy copy;
  int64_t fromOffset, toOffset;
  size_t operand;
};

NativeKernel moving(int64_t width, std::vector<Move> moves) {
  return [width, moves = std::move(moves)](Threads &threads, const Buffers &buffers) {
    for (const Move &move : moves)
      move.copy.run(threads, buffers.operand<char>(move.operand) + move.fromOffset * width,
                    buffers.result<char>(0) + move.toOffset * width);
  };
}

NativeKernel zeroPadded(const Attrs &attrs, const TensorType &from, const TensorType &to) {
  int64_t width = byteWidth(to.dtype), low = attrs.getInt("low");
  kernels::DimSplit source = kernels::splitAt(from.shape, attrs.getInt("dim"));
  kernels::DimSplit target = kernels::splitAt(to.shape, attrs.getInt("dim"));
  int64_t rowBytes = target.size * target.inner * width;
  int64_t before = low * target.inner * width, kept = source.size * source.inner * width;
  int64_t grain = std::max<int64_t>(1, (int64_t(1) << 18) / std::max<int64_t>(1, rowBytes));
  return [=](Threads &threads, const Buffers &buffers) {
    threads.runRanges(target.outer, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        char *out = buffers.result<char>(0) + row * rowBytes;
        std::memset(out, 0, size_t(before));
        std::memcpy(out + before, buffers.operand<char>(0) + row * kept, size_t(kept));
        std::memset(out + before + kept, 0, size_t(rowBytes - before - kept));
      }
    });
  };
}

} // namespace

NativeKernel makeMovement(std::string_view op, const Attrs &attrs, const Types &operands,
                          const Types &results) {
  if (operands.empty() || results.size() != 1)
    return nullptr;
  const TensorType &from = operands[0], &to = results[0];
  int64_t width = byteWidth(to.dtype);
  Shape fromStrides = rowMajorStrides(from.shape), toStrides = rowMajorStrides(to.shape);
  if (op == "reshape") {
    Shape flat = {kernels::numElements(to.shape)};
    return moving(width, {{StridedCopy(width, flat, {1}, {1}), 0, 0, 0}});
  }
  if (op == "broadcast") {
    const std::vector<int64_t> &dims = attrs.getInts("dims");
    Shape strides(to.shape.size(), 0);
    for (size_t i = 0; i < dims.size(); ++i)
      strides[dims[i]] = fromStrides[i];
    return moving(width, {{StridedCopy(width, to.shape, strides, toStrides), 0, 0, 0}});
  }
  if (op == "transpose") {
    Shape strides;
    for (int64_t dim : attrs.getInts("permutation"))
      strides.push_back(fromStrides[dim]);
    return moving(width, {{StridedCopy(width, to.shape, strides, toStrides), 0, 0, 0}});
  }
  if (op == "slice")
    return moving(width, {{StridedCopy(width, to.shape, fromStrides, toStrides),
                           attrs.getInt("offset") * fromStrides[attrs.getInt("dim")], 0, 0}});
  if (op == "concat") {
    std::vector<Move> moves;
    int64_t offset = 0, dim = attrs.getInt("dim");
    for (size_t i = 0; i < operands.size(); ++i) {
      const Shape &shape = operands[i].shape;
      moves.push_back({StridedCopy(width, shape, rowMajorStrides(shape), toStrides), 0,
                       offset * toStrides[dim], i});
      offset += shape[dim];
    }
    return moving(width, std::move(moves));
  }
  if (op == "pad")
    return zeroPadded(attrs, from, to);
  return nullptr;
}

} // namespace tbc::cpu
