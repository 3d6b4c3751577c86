//===- TestData.h - The tensors of ONNX's backend tests --------------------===//

#ifndef TBC_TESTS_CONFORMANCE_TESTDATA_H
#define TBC_TESTS_CONFORMANCE_TESTDATA_H

#include "runtime/kernels/Tensor.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tbc::conformance {

/// A tensor of a type that tbc has not, or a value that is no tensor.
struct UnsupportedData : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The tensor in the file `path`, floats in `arith` (Native or F64).
/// Errors: UnsupportedData; std::runtime_error for a file that is not as it should be.
kernels::Tensor readTensorFile(const std::filesystem::path &path, kernels::Arith arith);

/// The files `folder`/`prefix`_0.pb, `prefix`_1.pb and so on.
std::vector<std::filesystem::path> listTensorFiles(const std::filesystem::path &folder,
                                                   const std::string &prefix);

/// Where `found` is not `expected`, in words; empty where they agree: the same type; integers and
/// booleans equal; floats |found - expected| <= 1e-7 + 1e-3 * |expected| (for bf16 1e-7 + 2^-6 *
/// |expected|), NaN where NaN is expected and infinities equal. These are the tolerances of ONNX's
/// own runner.
std::string difference(const kernels::Tensor &found, const kernels::Tensor &expected);

} // namespace tbc::conformance

#endif // TBC_TESTS_CONFORMANCE_TESTDATA_H
