//===- Fit.cpp - Fit cost lines to measurements ------------------------------===//

#include "tools/calibrate/Calibrate.h"

#include <algorithm>
#include <cmath>

namespace tbc::calibrate {

/// Solves the square system by Gaussian elimination with pivoting; singular columns get 0.
static std::vector<double> solve(std::vector<std::vector<double>> a, std::vector<double> b) {
  size_t n = b.size();
  for (size_t column = 0; column < n; ++column) {
    size_t pivot = column;
    for (size_t row = column; row < n; ++row)
      if (std::abs(a[row][column]) > std::abs(a[pivot][column]))
        pivot = row;
    std::swap(a[column], a[pivot]);
    std::swap(b[column], b[pivot]);
    if (a[column][column] == 0)
      continue;
    for (size_t row = 0; row < n; ++row) {
      double factor = row == column ? 0 : a[row][column] / a[column][column];
      for (size_t k = 0; k < n; ++k)
        a[row][k] -= factor * a[column][k];
      b[row] -= factor * b[column];
    }
  }
  for (size_t i = 0; i < n; ++i)
    b[i] = a[i][i] == 0 ? 0 : b[i] / a[i][i];
  return b;
}

std::vector<double> fit(const std::vector<std::vector<double>> &rows,
                        const std::vector<double> &seconds) {
  std::vector<size_t> used;
  for (size_t c = 0; c < rows[0].size(); ++c)
    used.push_back(c);
  while (true) {
    // Columns are scaled to about 1, because their units differ by orders of magnitude.
    std::vector<double> scale;
    for (size_t c : used) {
      double largest = 0;
      for (size_t r = 0; r < rows.size(); ++r)
        largest = std::max(largest, rows[r][c] / seconds[r]);
      scale.push_back(largest > 0 ? largest : 1);
    }
    std::vector<std::vector<double>> a(used.size(), std::vector<double>(used.size(), 0));
    std::vector<double> b(used.size(), 0);
    for (size_t r = 0; r < rows.size(); ++r)
      for (size_t i = 0; i < used.size(); ++i) {
        double x = rows[r][used[i]] / seconds[r] / scale[i];
        b[i] += x;
        for (size_t j = 0; j < used.size(); ++j)
          a[i][j] += x * rows[r][used[j]] / seconds[r] / scale[j];
      }
    std::vector<double> found = solve(a, b);
    auto least = std::min_element(found.begin(), found.end());
    if (least == found.end() || *least >= 0) {
      std::vector<double> coefficients(rows[0].size(), 0);
      for (size_t i = 0; i < used.size(); ++i)
        coefficients[used[i]] = found[i] / scale[i];
      return coefficients;
    }
    used.erase(used.begin() + (least - found.begin()));
  }
}

double relativeError(const std::vector<std::vector<double>> &rows,
                     const std::vector<double> &seconds, const std::vector<double> &coefficients) {
  double total = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    double predicted = 0;
    for (size_t c = 0; c < coefficients.size(); ++c)
      predicted += rows[r][c] * coefficients[c];
    total += std::abs(predicted - seconds[r]) / seconds[r];
  }
  return total / double(rows.size());
}

} // namespace tbc::calibrate
