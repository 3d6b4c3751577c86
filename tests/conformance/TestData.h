//===- TestData.h - The tensors of ONNX's backend tests -------------------===//

#ifndef TBC_TESTS_CONFORMANCE_TESTDATA_H
#define TBC_TESTS_CONFORMANCE_TESTDATA_H

#include "runtime/kernels/Tensor.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tbc::conformance {

/// A tensor of an element type unknown to tbc, or a value that is no tensor.
struct UnsupportedData : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Returns the tensor in the file `path`, with floats in `arith` (`Native` or `F64`). Throws
/// `UnsupportedData`, or `std::runtime_error` for a malformed file.
kernels::Tensor readTensorFile(const std::filesystem::path &path, kernels::Arith arith);

/// Returns the files `folder`/`prefix`_0.pb, `prefix`_1.pb and so on.
std::vector<std::filesystem::path> listTensorFiles(const std::filesystem::path &folder,
                                                   const std::string &prefix);

/// Describes the first difference between `found` and `expected`; empty if they agree.
///
/// They agree if the types are equal, integers and booleans are equal, NaNs and infinities match,
/// and for floats |found - expected| <= 1e-7 + 1e-3 * |expected|. For bf16 the factor is 2^-6.
/// Example: 1.0009 agrees with 1, 1.002 does not. These are the tolerances of ONNX's own runner.
std::string difference(const kernels::Tensor &found, const kernels::Tensor &expected);

} // namespace tbc::conformance

#endif // TBC_TESTS_CONFORMANCE_TESTDATA_H
