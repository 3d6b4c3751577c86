//===- Npz.h - Reads NumPy's .npz and .npy files --------------------------===//
//
// Part of tbc. For tests: reference values written by models/export.py.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_SUPPORT_NPZ_H
#define TBC_TESTS_SUPPORT_NPZ_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tbc::test {

/// A dense row-major array. Floats are in `values`, integers and booleans in `ints`; the other is
/// empty.
struct NpyArray {
  std::string dtype; ///< "f2", "f4", "f8", "i1" .. "i8", "u1" .. "u4" or "b1"
  std::vector<int64_t> shape;
  std::vector<double> values;
  std::vector<int64_t> ints;

  bool isFloat() const { return dtype[0] == 'f'; }
  int64_t numElements() const;
};

/// Returns the array in the bytes of an .npy file (format 1.0 to 3.0, little-endian, C order).
///
/// Errors: std::runtime_error that starts with `name`.
NpyArray parseNpy(const std::string &bytes, const std::string &name);

/// Returns every array of an .npz file by its name (the member's name without ".npy"). Members may
/// be stored or deflated.
///
/// Errors: std::runtime_error that starts with `path`.
std::map<std::string, NpyArray> readNpz(const std::string &path);

/// Returns the columns of a comma-separated file of numbers by the names in its first line.
///
/// Errors: std::runtime_error that starts with `path`.
std::map<std::string, std::vector<double>> readCsv(const std::string &path);

} // namespace tbc::test

#endif // TBC_TESTS_SUPPORT_NPZ_H
