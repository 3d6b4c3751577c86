//===- Dataset.h - Samples of training and evaluation ----------------------===//
//
// Part of tbc. Plain C++. A data set is a number of samples. A sample has one value per element of
// each input of the model. Ranks ask for their own elements, so no element is read twice. The
// content of a sample does not depend on the rank.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_DATA_DATASET_H
#define TBC_RUNTIME_DATA_DATASET_H

#include "runtime/abi/Status.h"
#include "runtime/kernels/DType.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tbc::data {

/// An input of the model, or its labels.
struct Field {
  std::string name;
  kernels::DType dtype = kernels::DType::F32;
  int64_t elements = 1; // of one sample
  /// Of one sample, if known: the dims beside that of the batch.
  std::vector<int64_t> shape = {};
  bool isLabel = false;
  /// Integers must be at least 0 and below this bound (rows of a table, classes); 0: any.
  int64_t below = 0;
  /// The label that is ignored by the loss; it is a valid label.
  std::optional<int64_t> ignored;
};

class Dataset {
public:
  virtual ~Dataset() = default;
  /// The number of samples; 0: endless.
  virtual int64_t numSamples() const = 0;
  /// Returns element `element` (row-major within the sample) of field `field` of sample `sample`.
  /// Integers are exact. Errors: Usage, with file and offset, for a value that is not valid for the
  /// model.
  virtual Result<double> value(size_t field, int64_t sample, int64_t element) const = 0;
};

/// Whether labels are the next tokens: one integer input, and labels with as many elements.
bool isLanguageModel(const std::vector<Field> &fields);

/// Returns endless random numbers of Philox, keyed by the seed, at (sample, element, field). Floats
/// are uniform in [-1, 1), integers below the field's bound (2 without one). Labels of a language
/// model are the tokens shifted by one.
std::unique_ptr<Dataset> makeSynthetic(std::vector<Field> fields, uint64_t seed);

/// Opens the data of `--data`:
///
/// - "synthetic";
/// - FILE: raw little-endian tokens of 16 bits (32 with `wideTokens`) for a language model. Sample
///   k of n tokens has n + 1 tokens from token k * n on. Example: n = 4: sample 1 has tokens 4 to
///   8, and its labels are tokens 5 to 8;
/// - one "NAME=FILE.npy" per field, with samples along the first dim.
///
/// Errors: Usage, naming the file and the position in it.
Result<std::unique_ptr<Dataset>> openDataset(const std::vector<std::string> &sources,
                                             const std::vector<Field> &fields, bool wideTokens,
                                             uint64_t seed);

/// The two kinds of files, for openDataset.
Result<std::unique_ptr<Dataset>> openTokens(const std::string &path,
                                            const std::vector<Field> &fields, bool wideTokens);
Result<std::unique_ptr<Dataset>> openArrays(const std::vector<std::string> &paths, // per field
                                            const std::vector<Field> &fields);

} // namespace tbc::data

#endif // TBC_RUNTIME_DATA_DATASET_H
