//===- Elements.cpp - Evidence in the elements of an initializer -----------===//

#include "frontend/onnx/Elements.h"

#include "frontend/onnx/Sources.h"
#include "ir/HidingNumber.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace tbc::frontend {

namespace {

/// Returns the first rows, at most 65, of a table [.., rows, columns].
std::vector<std::vector<double>> firstRows(const ParameterSource &source) {
  constexpr size_t maxRows = 65, maxElements = size_t(1) << 22;
  Shape shape;
  std::copy_if(source.shape.begin(), source.shape.end(), std::back_inserter(shape),
               [](int64_t size) { return size != 1; });
  std::vector<std::vector<double>> rows;
  if (shape.size() < 2 || kernels::numElements(shape) == 0)
    return rows;
  size_t columns = size_t(kernels::numElements(shape) / shape[0]);
  if (columns > maxElements / maxRows)
    return rows;
  forEachElement(source, [&](double element) {
    if (rows.empty() || rows.back().size() == columns) {
      if (rows.size() == maxRows)
        return false;
      rows.emplace_back();
      rows.back().reserve(columns);
    }
    rows.back().push_back(element);
    return true;
  });
  if (!rows.empty() && rows.back().size() < columns)
    rows.pop_back();
  return rows;
}

/// Returns the tolerance of an element: rounding of the type and of the angles.
double toleranceOf(kernels::DType dtype) {
  return dtype == kernels::DType::BF16 ? 3e-2 : dtype == kernels::DType::F16 ? 4e-3 : 1e-3;
}

bool obeyRecurrence(const std::vector<std::vector<double>> &rows, double tolerance) {
  double largest = 0;
  for (const std::vector<double> &row : rows)
    for (double element : row)
      largest = std::max(largest, std::fabs(element));
  if (!(largest > 0) || !std::isfinite(largest))
    return false;
  bool oscillates = false;
  for (size_t column = 0; column < rows[0].size(); ++column) {
    auto at = [&](size_t row) { return rows[row][column] / largest; };
    size_t best = 1;
    for (size_t row = 1; row + 1 < rows.size(); ++row)
      if (std::fabs(at(row)) > std::fabs(at(best)))
        best = row;
    double factor = at(best) == 0 ? 2 : (at(best + 1) + at(best - 1)) / at(best);
    if (std::fabs(factor) > 2 + tolerance)
      return false;
    for (size_t row = 1; row + 1 < rows.size(); ++row)
      if (std::fabs(at(row + 1) + at(row - 1) - factor * at(row)) > 4 * tolerance)
        return false;
    oscillates |= std::fabs(at(best)) > 0.5 && std::fabs(factor) < 1.99;
  }
  return oscillates;
}

bool haveRowsOfPairs(const std::vector<std::vector<double>> &rows, double tolerance) {
  bool found = false, differ = false;
  for (const std::vector<double> &row : rows) {
    double squares = 0;
    for (double element : row) {
      if (!(std::fabs(element) <= 1 + tolerance))
        return false;
      squares += element * element;
    }
    if (squares == 0)
      continue;
    double half = double(row.size()) / 2;
    if (std::fabs(squares - half) > tolerance * half)
      return false;
    differ |= found && row != rows[0];
    found = true;
  }
  return differ;
}

/// See isOfFormula.
bool areFilters(const ParameterSource &source) {
  constexpr size_t mostOfWindow = size_t(1) << 16;
  if (source.shape.size() < 3 || kernels::numElements(source.shape) == 0)
    return false;
  int64_t channels = source.shape[0] * source.shape[1];
  size_t size = size_t(kernels::numElements(source.shape) / channels);
  if (size < 2 || size > mostOfWindow)
    return false;
  bool areMirrored = true, areEqual = channels > 1, haveMore = false;
  std::vector<double> window, first;
  bool isRead = forEachElement(source, [&](double element) {
    window.push_back(element);
    if (window.size() < size)
      return true;
    haveMore |= size_t(std::count(window.begin(), window.end(), 0.0)) + 1 < size;
    auto isMirrored = [&](double sign) {
      return std::equal(window.begin(), window.end(), window.rbegin(),
                        [&](double a, double b) { return a == sign * b; });
    };
    areMirrored = areMirrored && (isMirrored(1) || isMirrored(-1));
    if (first.empty())
      first = window;
    areEqual = areEqual && window == first;
    window.clear();
    return areMirrored || areEqual;
  });
  return isRead && haveMore;
}

/// See isOfFormula. Large matrices count as weights.
bool isMatrixOfFormula(const ParameterSource &source) {
  constexpr int64_t mostElements = int64_t(1) << 22;
  int64_t rows = source.shape[0], columns = source.shape[1], size = rows * columns;
  if (rows < 3 || columns < 3 || size > mostElements)
    return false;
  std::vector<double> elements;
  int64_t zeros = 0;
  bool isNonNegative = true, isSymmetric = rows == columns;
  // Reading ends in the second row of most weights.
  bool isRead = forEachElement(source, [&](double element) {
    int64_t row = int64_t(elements.size()) / columns, column = int64_t(elements.size()) % columns;
    elements.push_back(element);
    zeros += element == 0;
    isNonNegative &= element >= 0;
    if (isSymmetric && column < row)
      isSymmetric = element == elements[size_t(column * columns + row)];
    return isNonNegative || isSymmetric;
  });
  bool isFormula = isRead && (isSymmetric || 4 * zeros >= size) && !isUniform(source);
  return (isFormula && size - zeros > std::max(rows, columns)) || areSinusoids(source);
}

} // namespace

bool isUniform(const ParameterSource &source) {
  std::optional<double> first;
  return forEachElement(source, [&](double element) {
    first = first.value_or(element);
    return element == *first;
  });
}

bool isAdditiveMask(const ParameterSource &source) {
  bool hidesSome = false, keepsSome = false;
  bool areAll = forEachElement(source, [&](double element) {
    hidesSome |= hidesScores(element);
    keepsSome |= element == 0;
    return element == 0 || hidesScores(element);
  });
  return areAll && hidesSome && keepsSome;
}

bool isHidingNumber(const ParameterSource &source) {
  return forEachElement(source, [](double element) { return hidesScores(element); });
}

bool isTiny(const ParameterSource &source) {
  return forEachElement(source, [](double element) { return element > 0 && element <= 1e-4; });
}

bool areSinusoids(const ParameterSource &source) {
  constexpr size_t minRows = 4;
  std::vector<std::vector<double>> rows = firstRows(source);
  double tolerance = toleranceOf(source.dtype);
  return rows.size() >= minRows && rows[0].size() >= 2 &&
         (obeyRecurrence(rows, tolerance) || haveRowsOfPairs(rows, tolerance));
}

bool areCosineAndSine(const ParameterSource &a, const ParameterSource &b) {
  auto firstOf = [](const ParameterSource &source, size_t count) {
    std::vector<double> elements;
    forEachElement(source, [&](double element) {
      elements.push_back(element);
      return elements.size() < count;
    });
    return elements;
  };
  double tolerance = toleranceOf(a.dtype);
  for (size_t count : {1, 4096}) { // most pairs of tensors differ in the first element
    std::vector<double> x = firstOf(a, count), y = firstOf(b, count);
    if (x.empty() || x.size() != y.size())
      return false;
    for (size_t i = 0; i < x.size(); ++i)
      if (!(std::fabs(x[i] * x[i] + y[i] * y[i] - 1) <= tolerance))
        return false;
    if (count > 1 && std::all_of(x.begin(), x.end(), [&](double e) { return e == x[0]; }))
      return false;
  }
  return true;
}

bool areFrequencies(const ParameterSource &source) {
  double last = std::numeric_limits<double>::infinity();
  bool found = false;
  forEachElement(source, [&](double element) {
    found = element > 0 && element < last;
    last = element;
    return found;
  });
  return found;
}

bool isOfFormula(const ParameterSource &source) {
  return source.shape.size() == 2 ? isMatrixOfFormula(source) : areFilters(source);
}

/// Returns `table` [.., queries, keys], with dims of 1 before these, as a band that keeps by
/// `kept`.
static std::optional<MaskBand> bandKeptBy(const ParameterSource &table, double kept) {
  int64_t queries = table.shape[table.shape.size() - 2], keys = table.shape.back();
  // Finds the kept keys of every row; both ends of the band advance with the query.
  MaskBand band{-queries, keys, kept, kept};
  int64_t query = 0, key = 0, first = -1, last = -1;
  bool isBand = forEachElement(table, [&](double element) {
    if (element == kept) {
      if (first >= 0 && last != key - 1)
        return false; // a gap
      first = first < 0 ? key : first;
      last = key;
    } else {
      if (band.hidden != kept && band.hidden != element)
        return false;
      band.hidden = element;
    }
    if (++key < keys)
      return true;
    if (first < 0)
      return false;
    if (first > 0)
      band.low = std::max(band.low, first - query);
    if (last + 1 < keys)
      band.high = std::min(band.high, last - query);
    ++query;
    key = 0;
    first = last = -1;
    return true;
  });
  if (!isBand || band.hidden == kept)
    return std::nullopt;
  // A pattern found in the first rows must hold in all.
  query = key = 0;
  bool holds = forEachElement(table, [&](double element) {
    int64_t ahead = key - query;
    bool isKept = ahead >= band.low && ahead <= band.high;
    if (++key == keys) {
      key = 0;
      ++query;
    }
    return isKept == (element == kept);
  });
  return holds ? std::optional(band) : std::nullopt;
}

std::optional<MaskBand> bandOf(const ParameterSource &source) {
  size_t rank = source.shape.size();
  if (rank < 2)
    return std::nullopt;
  const int64_t elements = kernels::numElements(source.shape);
  const int64_t pairs = source.shape[rank - 2] * source.shape[rank - 1];
  if (source.dtype != DType::Bool)
    return elements == pairs ? bandKeptBy(source, 0) : std::nullopt;
  const uint8_t *data = bytesOf(source);
  if (!data || source.encoding != ParameterSource::Encoding::Raw || source.bytes != elements)
    return std::nullopt;
  for (int64_t begin = pairs; begin < elements; begin += pairs)
    if (std::memcmp(data, data + begin, size_t(pairs)) != 0)
      return std::nullopt;
  ParameterSource table = source;
  table.shape = {source.shape[rank - 2], source.shape[rank - 1]};
  table.bytes = pairs;
  if (std::optional<MaskBand> band = bandKeptBy(table, 1))
    return band;
  return bandKeptBy(table, 0);
}

} // namespace tbc::frontend
