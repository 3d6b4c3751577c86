//===- StridedCopy.cpp - Copies of boxes between strided layouts ----------===//

#include "runtime/cpu/StridedCopy.h"
#include "runtime/cpu/Floats.h"

#include <algorithm>
#include <cstring>

namespace tbc::cpu {

namespace {

struct Plane {
  int64_t rows, columns;
  int64_t fromRow, fromColumn, toRow, toColumn; // strides in bytes
};

template <typename T> void copyRow(int64_t n, const char *from, int64_t step, char *to) {
  // Rows of a result are dense, so the loop runs along `to`.
  T *out = reinterpret_cast<T *>(to);
  if (step == 0)
    std::fill_n(out, n, *reinterpret_cast<const T *>(from));
  else
    for (int64_t i = 0; i < n; ++i)
      out[i] = *reinterpret_cast<const T *>(from + i * step);
}

/// Elements in a cache line.
template <typename T> constexpr int64_t tileSize = 64 / int64_t(sizeof(T));

/// Transposes a whole tile through a copy. Each line of either side is read or written once, even
/// if all of them map to one set of the cache.
template <typename T> void transposeTile(const Plane &plane, const char *from, char *to) {
  constexpr int64_t tile = tileSize<T>;
  T copy[tile][tile]; // by column and row
  for (int64_t c = 0; c < tile; ++c)
    std::memcpy(copy[c], from + c * plane.fromColumn, sizeof copy[c]);
  for (int64_t r = 0; r < tile; ++r) {
    T line[tile];
    for (int64_t c = 0; c < tile; ++c)
      line[c] = copy[c][r];
    std::memcpy(to + r * plane.toRow, line, sizeof line);
  }
}

/// For a plane that is not dense along one dim on both sides: small tiles keep the lines of both in
/// the cache.
template <typename T> void copyTiles(const Plane &plane, const char *from, char *to) {
  constexpr int64_t tile = tileSize<T>;
  bool isTransposition = plane.fromRow == sizeof(T) && plane.toColumn == sizeof(T);
  for (int64_t r0 = 0; r0 < plane.rows; r0 += tile)
    for (int64_t c0 = 0; c0 < plane.columns; c0 += tile) {
      int64_t rEnd = std::min(plane.rows, r0 + tile), cEnd = std::min(plane.columns, c0 + tile);
      const char *source = from + r0 * plane.fromRow + c0 * plane.fromColumn;
      char *target = to + r0 * plane.toRow + c0 * plane.toColumn;
      if (isTransposition && rEnd - r0 == tile && cEnd - c0 == tile) {
        transposeTile<T>(plane, source, target);
        continue;
      }
      for (int64_t r = 0; r < rEnd - r0; ++r)
        for (int64_t c = 0; c < cEnd - c0; ++c)
          *reinterpret_cast<T *>(target + r * plane.toRow + c * plane.toColumn) =
              *reinterpret_cast<const T *>(source + r * plane.fromRow + c * plane.fromColumn);
    }
}

template <typename T> void copyPlane(const Plane &plane, const char *from, char *to) {
  constexpr auto width = int64_t(sizeof(T));
  bool isDense = plane.toColumn == width && plane.fromColumn == width;
  bool repeats = plane.toColumn == width && plane.fromColumn == 0;
  if (!isDense && !repeats)
    return copyTiles<T>(plane, from, to);
  for (int64_t r = 0; r < plane.rows; ++r, from += plane.fromRow, to += plane.toRow) {
    if (isDense)
      std::memcpy(to, from, size_t(plane.columns * width));
    else
      copyRow<T>(plane.columns, from, 0, to);
  }
}

} // namespace

StridedCopy::StridedCopy(int64_t elementBytes, const kernels::Shape &shape,
                         const kernels::Shape &fromStrides, const kernels::Shape &toStrides)
    : elementBytes(elementBytes) {
  std::vector<Dim> dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    isEmpty |= shape[d] == 0;
    Dim dim{shape[d], fromStrides[d] * elementBytes, toStrides[d] * elementBytes};
    if (dim.size == 1)
      continue;
    // A dim that continues the one before is merged with it.
    if (!dims.empty() && dims.back().from == dim.size * dim.from &&
        dims.back().to == dim.size * dim.to)
      dims.back() = {dims.back().size * dim.size, dim.from, dim.to};
    else
      dims.push_back(dim);
  }
  // Columns are the dim with the smallest stride in the result. Rows are the remaining dim with the
  // smallest stride in the operand, or the widest if the columns are dense there. So a
  // transposition is copied in tiles.
  auto take = [&](auto isBetter, Dim &into) {
    if (dims.empty())
      return;
    auto best = std::min_element(dims.begin(), dims.end(), isBetter);
    into = *best;
    dims.erase(best);
  };
  take([](const Dim &a, const Dim &b) { return a.to < b.to; }, columns);
  if (columns.from == elementBytes || columns.from == 0)
    take([](const Dim &a, const Dim &b) { return a.size > b.size; }, rows);
  else
    take([](const Dim &a, const Dim &b) { return a.from < b.from; }, rows);
  outer = dims;
  for (const Dim &dim : outer)
    numOuter *= dim.size;
  // A tiled plane is cut along both dims. Otherwise a piece of a wide plane would have fewer rows
  // than a tile, and would read a cache line for each element.
  bool isTiled = columns.to != elementBytes || (columns.from != elementBytes && columns.from != 0);
  constexpr int64_t tiledRows = 64;
  int64_t most = std::max<int64_t>(1, pieceBytes / elementBytes);
  columnsPerPiece =
      isTiled ? std::clamp<int64_t>(most / tiledRows, 1, std::max<int64_t>(1, columns.size))
              : columns.size;
  rowsPerPiece = std::clamp<int64_t>(most / std::max<int64_t>(1, columnsPerPiece), 1,
                                     std::max<int64_t>(1, rows.size));
}

void StridedCopy::run(Threads &threads, const void *from, void *to) const {
  if (isEmpty)
    return;
  if (outer.empty() && rows.size == 1 && columns.from == columns.to)
    return threads.runRanges(
        columns.size * elementBytes, pieceBytes, [&](int64_t begin, int64_t end) {
          std::memcpy(static_cast<char *>(to) + begin, static_cast<const char *>(from) + begin,
                      size_t(end - begin));
        });
  // Several small planes form a piece.
  int64_t planeBytes = rows.size * columns.size * elementBytes;
  int64_t planesPerPiece = std::clamp<int64_t>(pieceBytes / planeBytes, 1, numOuter);
  int64_t piecesPerRow = (columns.size + columnsPerPiece - 1) / columnsPerPiece;
  int64_t piecesPerPlane = (rows.size + rowsPerPiece - 1) / rowsPerPiece * piecesPerRow;
  int64_t numGroups = (numOuter + planesPerPiece - 1) / planesPerPiece;
  threads.run(numGroups * piecesPerPlane, [&](int64_t piece) {
    int64_t first = piece / piecesPerPlane * planesPerPiece;
    int64_t row = piece % piecesPerPlane / piecesPerRow * rowsPerPiece;
    int64_t column = piece % piecesPerRow * columnsPerPiece;
    Plane plane{std::min(rowsPerPiece, rows.size - row),
                std::min(columnsPerPiece, columns.size - column),
                rows.from,
                columns.from,
                rows.to,
                columns.to};
    for (int64_t index = first; index < std::min(numOuter, first + planesPerPiece); ++index) {
      const char *source =
          static_cast<const char *>(from) + row * rows.from + column * columns.from;
      char *target = static_cast<char *>(to) + row * rows.to + column * columns.to;
      int64_t rest = index;
      for (size_t d = outer.size(); d-- > 0; rest /= outer[d].size) {
        source += rest % outer[d].size * outer[d].from;
        target += rest % outer[d].size * outer[d].to;
      }
      switch (elementBytes) {
      case 1:
        copyPlane<uint8_t>(plane, source, target);
        break;
      case 2:
        copyPlane<uint16_t>(plane, source, target);
        break;
      case 4:
        copyPlane<uint32_t>(plane, source, target);
        break;
      default:
        copyPlane<uint64_t>(plane, source, target);
      }
    }
  });
}

} // namespace tbc::cpu
