//===- TiledAttention.h - Costs of the tiled kernels of attention on GPUs ---===//
//
// Plain C++. The kernels (codegen/cuda/ops/TiledAttention.cpp) follow these numbers. The planner
// counts their bytes, and the roofline their work.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_TILEDATTENTION_H
#define TBC_IR_TILEDATTENTION_H

#include <algorithm>
#include <cstdint>
#include <string>

namespace tbc {

/// The kernels take 16-bit types and heads of these widths of k and v.
inline bool hasTiledAttention(int64_t width, int64_t valueWidth) {
  auto isWidth = [](int64_t width) {
    constexpr int64_t mostOfWarp = 128, most = 256, step = 8, wideStep = 32;
    return width <= mostOfWarp ? width % step == 0 : width <= most && width % wideStep == 0;
  };
  return isWidth(width) && isWidth(valueWidth);
}

/// Whether they take the gradient of bias number `bias` of the attribute `biases` of an attention:
/// one with a query and a key. Example: the first of "hst,bt", not the second.
inline bool hasTiledBiasGradient(const std::string &biases, int64_t bias) {
  size_t begin = 0;
  for (; bias > 0; --bias)
    begin = biases.find(',', begin) + 1;
  std::string letters = biases.substr(begin, biases.find(',', begin) - begin);
  return letters.find("st") != std::string::npos;
}

/// Warps that share the columns of a sum over tiles, each with at most 128: scores are computed in
/// each.
inline int64_t tiledAttentionParts(int64_t width) {
  constexpr int64_t mostColumns = 128;
  return (width + mostColumns - 1) / mostColumns;
}
/// Whether one launch makes dk and dv: their sums have the registers of a warp.
inline bool makesBothGradients(int64_t width, int64_t valueWidth) {
  constexpr int64_t most = 64;
  return std::max(width, valueWidth) <= most;
}

/// Launches of the gradient: the rows' numbers, dq, and dk and dv together or apart.
inline int64_t tiledGradientLaunches(int64_t width, int64_t valueWidth) {
  return makesBothGradients(width, valueWidth) ? 3 : 4;
}

/// Returns the FLOPs executed for each FLOP of the op: products of scores are made again in each
/// launch of the gradient, and by each warp that shares columns.
///
/// Example: the gradient with heads of 128 has matmuls S three times, dP twice, and dq, dk and dv,
/// 8 in place of 5: 1.6. With heads of 64 it has 7: 1.4.
inline double tiledAttentionWork(int64_t width, int64_t valueWidth, bool isGradient) {
  auto d = double(width), dv = double(valueWidth);
  auto parts = double(tiledAttentionParts(width)),
       valueParts = double(tiledAttentionParts(valueWidth));
  if (!isGradient)
    return (valueParts * d + dv) / (d + dv);
  double query = parts * (d + dv) + d;
  double keyAndValue = makesBothGradients(width, valueWidth)
                           ? 2 * d + 2 * dv
                           : parts * (d + dv) + d + valueParts * d + dv;
  return (query + keyAndValue) / (3 * d + 2 * dv);
}

/// Returns the bytes of two f32 for each of `rows` rows, which the launches of the gradient share:
/// queries of every sample and head. Example: 16 samples of 12 heads and 1,024 queries have 196,608
/// rows, 1.5 MiB.
inline int64_t attentionRowBytes(int64_t rows) { return 2 * 4 * rows; }

} // namespace tbc

#endif // TBC_IR_TILEDATTENTION_H
